"""The Python part of the live runtime, which runs experiments with real processes.

`launcher` starts one process per node on this machine. Each joins the scheduler, receives the
experiment from it, and runs its role (`node`). `geomx._core.Loop` implements the protocol and all
network I/O; this package uses no sockets of its own for it.
"""
