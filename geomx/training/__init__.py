"""The training loop of one worker, without clock, thread, socket or framework.

It has three drivers: the simulated worker (`geomx.sim.worker`), the live worker of an experiment
(`geomx.live.worker`), and the stores of training scripts (`geomx.kv` and the packages that use it).

* `Steps` calls the sync policy for each local step: whether it is the last, whether it
  synchronises, the report to the coordinator, and its reply.
* `passes` is the complete loop of an experiment's worker, as instructions to its driver.
* `Pace` contains the computing time of a step, by layer.

``runtime_cpp/fabric/trainer.h`` decides the order of the layers, their waits, and when
contributions are sent.
"""
