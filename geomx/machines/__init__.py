"""Runs on many machines: who is where, how a machine is reached, and what keeps a job together.

A job file says where the nodes of a network live (`jobfile`). On each machine ``geomx node``
(`agent`) starts one node, watches over it and tells the launcher what it does; the launcher
(`remote`) holds one line to every agent, over SSH or whatever else carries standard input and
output (`reach`), and turns what comes back into the files of a run on one machine. Both ends of
such a line speak in `frames`.
"""
