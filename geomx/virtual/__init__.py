"""One worker's process in virtual time: `geomx simulate ... -- python train.py`.

The script's store is that of a live run. Only what it stands on is another: instead of a driver of
its own (`_core.Loop`), it has a `geomx.virtual.loop.VirtualLoop`, which passes every call to the
simulator and waits for the answer. `geomx.sim.scripts` is the other end.
"""
