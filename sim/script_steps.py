"""The local steps of a simulated script: where they begin and end, what they compute.

A rhythm or an optimizer tells where a step begins. Otherwise a step is recognised by its pushes: it
ends where the store returned from its last call before a key is pushed for the second time. The
computing up to that push belongs to the next step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from geomx.sim.protocols import IterationRow, Worker
from geomx.sim.script_world import ScriptWorld
from geomx.training.pace import NS

_SHOWN_NS = 20_000  # shorter spans of computing or waiting are left out of the timeline
_TOUCHING = frozenset({"push", "wait", "value", "reply", "barrier"})


class ScriptSteps:
    """The steps of one worker.

    Args:
        simulation: The simulation.
        worker: The worker.

    Attributes:
        compute_ns: Virtual nanoseconds of computing in the current step; after its end, in it.
        first_ns: Computing of the first step.
        total_ns: Computing of all steps.
        real_ns: Real nanoseconds in which its process did not compute between two calls.
        done: Steps that have ended.
    """

    def __init__(self, simulation: ScriptWorld, worker: Worker) -> None:
        self.compute_ns = self.first_ns = self.total_ns = self.real_ns = self.done = 0
        self._worker = worker
        self._simulation = simulation
        self._told = False  # the script tells where steps begin
        self._pushed: set[int] = set()  # keys of this step
        self._began_ns = 0
        self._returned_ns = 0  # from the last call that concerned a step
        self._after_ns = 0  # computing since then
        self._touched = self._charged = False
        self._times: float | None = None  # of the usual time that this step takes; None: not asked
        acts = simulation.experiment.event_schedule.acts()
        self._pauses = [
            (act.at_ns, act.for_ns)
            for act in acts
            if act.what in ("pause", "kill") and worker.spec.id in act.one
        ]

    # ---- from the worker ----

    def compute(self, request: dict[str, Any]) -> Generator[simpy.Event, Any, None]:
        """Let the computing before a request pass."""
        op, env = request["op"], self._simulation.env
        self.real_ns += request["waited_ns"] if op != "stopped" and not self._worker.ended else 0
        speed, computing = self._worker.spec.speed, self._simulation.computing
        took_ns = computing.between_calls(request["computed_ns"], speed)
        if op == "start":
            return  # creating the store is not part of the run
        if not self._told and op == "push" and request["key"] in self._pushed:
            self._finish(self._returned_ns, self._after_ns)
        computes = op == "push" or (op == "mark" and request["what"] == "computed")
        if computes and not self._charged:
            took_ns += computing.of_step(speed)
            self._charged = True
        if op == "push":
            self._pushed.add(request["key"])
        self._touched = op in _TOUCHING
        if took_ns > 0:
            took_ns = round(took_ns * self._multiple())
            started_ns = env.now
            yield env.timeout(took_ns + self._paused(took_ns))
            self.compute_ns += took_ns
            self._after_ns += took_ns
            self._span("computing", "compute", started_ns)

    def _multiple(self) -> float:
        """Return the multiple of its usual time that the current step takes in this world."""
        if self._times is None:
            self._worker.steps.step = self.done
            self._times = self._simulation.begin(self._worker)
        return self._times

    def _paused(self, took_ns: int) -> int:
        """Return how long the node is paused while it computes for `took_ns` from now on."""
        now, paused_ns = self._simulation.env.now, 0
        for at_ns, for_ns in self._pauses:
            if now <= at_ns < now + took_ns + paused_ns:
                paused_ns += for_ns
            elif at_ns < now < at_ns + for_ns:
                paused_ns += at_ns + for_ns - now
        return paused_ns

    def returned(self) -> None:
        """Note that the store returns from the request."""
        if self._touched:
            self._returned_ns, self._after_ns = self._simulation.env.now, 0

    def waited(self, since_ns: int, what: str, about: dict[str, int]) -> None:
        """Note that the worker has waited: for the value of a key, `about` has it and its round."""
        self._span(what, "wait", since_ns, about)

    def begin(self) -> None:
        """Begin a step, as the script tells."""
        now = self._simulation.env.now
        if self._told and self._charged:
            self._finish(now, 0)
        elif not self._told:
            self._began_ns, self.compute_ns = now, 0
        self._told = True

    def end(self) -> None:
        """End the last step: the worker leaves."""
        if self._charged:
            self._finish(self._returned_ns, self._after_ns)

    # ---- rows ----

    def _finish(self, end_ns: int, later_ns: int) -> None:
        """Record the step, which ended at `end_ns`; `later_ns` of computing belong to the next."""
        self.compute_ns -= later_ns
        self.total_ns += self.compute_ns
        self.first_ns = self.compute_ns if self.done == 0 else self.first_ns
        row = IterationRow(self._worker, self.done, self._began_ns, end_ns)
        self._simulation.iteration(row)
        self.done += 1
        self._began_ns = end_ns
        self.compute_ns = later_ns
        self._pushed.clear()
        self._charged = False
        self._times = None

    def _span(
        self, name: str, category: str, since_ns: int, about: dict[str, int] | None = None
    ) -> None:
        spec, now = self._worker.spec, self._simulation.env.now
        took_s = (now - since_ns) / NS
        if now - since_ns >= _SHOWN_NS:
            self._simulation.recorder.span(
                spec.name, spec.party, name, category, since_ns / NS, took_s, **(about or {})
            )
