"""The live runtime's Python side: the same experiment as in simulation, as real processes.

`launcher` starts one process per node on this machine; each of them joins the scheduler, learns the
experiment from it and plays its part (`node`). The protocol and all that moves bytes is
`geomx._core.Loop`; nothing in here touches a socket.
"""
