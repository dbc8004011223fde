"""The workers of `geomx simulate --shadows`: the first runs the script, the others do what it does.

`geomx.sim.turns` says how they follow the script's process, `geomx.sim.planned_shadows` how they do
where every worker has its own number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from geomx.cluster import NodeSpec
from geomx.experiment.experiment import Experiment
from geomx.sim.planned_shadows import PlannedFollower
from geomx.sim.script_world import Channel, Processes
from geomx.sim.turns import Follower, Turns
from geomx.training.steps import Steps


class Shadows:
    """The channels of all workers, to the process of the first.

    A sync policy may scale what workers push by the size of their party; so the values of shadows
    are those of the first worker, times the ratio of the scales.

    Args:
        started: The process of the first worker, which has connected.
        experiment: The experiment.
    """

    def __init__(self, started: Processes, experiment: Experiment) -> None:
        cluster = experiment.cluster
        policy = experiment.selection.sync_policy(cluster)
        process = started.channels[cluster.workers[0].id]
        turns = Turns(process, len(cluster.workers))
        usual = Steps(policy, cluster, cluster.workers[0])

        def follower(worker: NodeSpec) -> Follower:
            first = worker.id == cluster.workers[0].id
            steps = Steps(policy, cluster, worker)
            factor = float(steps.scale) / float(usual.scale)
            if steps.consults:
                plan = partial(Steps, policy, cluster, worker)
                return PlannedFollower(turns, process, first, factor, plan)
            return Follower(turns, process, first, factor)

        self._started = started
        self._channels = {worker.id: follower(worker) for worker in cluster.workers}

    @property
    def channels(self) -> Mapping[int, Channel]:
        """By node id."""
        return self._channels

    def wait_ended(self) -> None:
        """See `geomx.virtual.processes.Processes`."""
        self._started.wait_ended()
