"""Membership in a simulated script: workers may leave the run early; losing a process ends it."""

from __future__ import annotations

from dataclasses import replace

from geomx.cluster import NodeSpec
from geomx.errors import NodeLost
from geomx.experiment.experiment import Experiment
from geomx.experiment.rounds import needs_all
from geomx.sim.members import KILLED, Members


def leaving_allowed(experiment: Experiment) -> tuple[Experiment, str]:
    """Let workers leave when they have made their steps, as by default in a launched script.

    Workers whose shares of the data differ make different numbers of steps. A launched script with
    an explicit ``faults.on_loss=stop`` ends with an error when one leaves, and so does this.

    Args:
        experiment: The experiment of a script, which ends if a node is lost.

    Returns:
        It with rounds that go on without workers that have left, and an empty text; or unchanged
        with what needs all workers in every round.
    """
    faults = experiment.faults
    said = {word.lstrip("+").partition("=")[0] for word in experiment.overrides}
    if faults.on_loss != "stop" or "faults.on_loss" in said:
        return experiment, f"faults.on_loss={faults.on_loss}"
    if faults.durable == "log":
        return experiment, "faults.durable=log"
    for who, _ in needs_all(experiment.cluster, experiment.selection):
        return experiment, who
    return replace(experiment, faults=replace(faults, on_loss="continue")), ""


class ScriptMembers(Members):
    """The processes of a simulated script, each of which the run needs until it has left."""

    def kill(self, node: NodeSpec, reason: str = KILLED) -> None:
        """End the run: a process of a script is not replaced.

        Raises:
            NodeLost: Always.
        """
        raise NodeLost(node.name, reason)
