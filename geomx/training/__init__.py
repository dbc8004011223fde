"""The training loop of one worker, without clock, thread, socket or framework.

Three drivers carry it out, each in its own time: the simulated worker (`geomx.sim.worker`), the
live worker of an experiment (`geomx.live.worker`), and the stores of training scripts (`geomx.kv`
and the packages on top of it). What decides is here, once:

* `Steps` asks the sync policy about each local step: whether it is the last one, whether it
  synchronises, what the coordinator is told, and what it answered.
* `passes` is an experiment's whole loop, as orders to its driver.
* `Pace` says what a step of computing takes, by layer.

The order of the layers, which of them waits for what, and when a contribution leaves are decided in
``runtime_cpp/fabric/trainer.h``.
"""
