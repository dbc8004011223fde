"""Runs on many machines: placement of nodes, access to machines, supervision of a job.

A job file assigns the nodes of a network to machines (`jobfile`). On each machine ``geomx node``
(`agent`) starts one node, supervises it and reports to the launcher; the launcher (`remote`) has
one connection to every agent, over SSH or anything else that forwards standard input and output
(`reach`), and writes the same files as a run on one machine. Both ends of a connection exchange
`frames`.
"""
