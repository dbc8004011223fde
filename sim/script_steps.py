"""The local steps of a simulated script: what they compute, and how long they take.

Where they begin and end is decided as in a live run (``runtime_cpp/core/local_steps.h``).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from geomx import _core
from geomx.sim.clock import FOREVER
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
        computed_s: Seconds of computing of every step that has ended.
        real_ns: Real nanoseconds in which its process did not compute between two calls.
    """

    def __init__(self, simulation: ScriptWorld, worker: Worker) -> None:
        self.compute_ns = self.real_ns = 0
        self.computed_s: list[float] = []
        self._worker = worker
        self._simulation = simulation
        self._bounds = _core.LocalSteps()
        self._returned_ns = 0  # from the last call that concerned a step
        self._after_ns = 0  # computing since then
        self._touched = False
        self._times: float | None = None  # of the usual time that this step takes; None: not asked
        self._paused_until_ns = 0
        self._ends_ns = 0  # when its present computing does; 0: it does not compute
        self._more_ns = 0  # by which pauses lengthen that

    @property
    def done(self) -> int:
        """Number of steps that have ended."""
        return self._bounds.done

    @property
    def as_measured(self) -> bool:
        """Whether computing always takes what its process measures, divided by the worker's speed.

        Otherwise constants, rules of the network, programs, events of a scenario or other work on
        shared cores decide.
        """
        simulation = self._simulation
        disturbed = simulation.has_world or bool(simulation.experiment.event_schedule)
        return simulation.computing.measured and simulation.cores is None and not disturbed

    # ---- from the worker ----

    def compute(self, request: dict[str, Any]) -> Generator[simpy.Event, Any, None]:
        """Let the computing before a request pass."""
        op, env = request["op"], self._simulation.env
        self.real_ns += request["waited_ns"] if op != "stopped" and not self._worker.ended else 0
        speed, computing = self._worker.spec.speed, self._simulation.computing
        took_ns = computing.between_calls(request["computed_ns"], speed)
        if op == "start":
            return  # creating the store is not part of the run
        if op == "push":
            self._finish(self._bounds.push(request["key"], self._returned_ns), self._after_ns)
        computes = op == "push" or (op == "mark" and request["what"] == "computed")
        if computes and self._bounds.computed():
            took_ns += computing.of_step(speed)
        self._touched = op in _TOUCHING
        if took_ns > 0:
            took_ns = round(took_ns * self._multiple())
            started_ns = env.now
            threads = computing.threads(request["computed_ns"], request["processor_ns"])
            took_ns = yield from self._pass(took_ns, threads)
            self.compute_ns += took_ns
            self._after_ns += took_ns
            self._span("computing", "compute", started_ns)

    def _multiple(self) -> float:
        """Return the multiple of its usual time that the current step takes in this world."""
        if self._times is None:
            self._worker.steps.step = self.done
            self._times = self._simulation.begin(self._worker)
        return self._times

    def _pass(self, took_ns: int, threads: float) -> Generator[simpy.Event, Any, int]:
        """Let computing pass, and pauses before and during it; return how long it took alone."""
        env, cores = self._simulation.env, self._simulation.cores
        while (left_ns := self._paused_until_ns - env.now) > 0:
            yield env.timeout(left_ns)
        if cores is None:
            self._more_ns = took_ns
        else:
            since_ns, self._ends_ns = env.now, FOREVER
            yield cores.compute(took_ns, threads)
            took_ns = env.now - since_ns
        while self._more_ns > 0:
            more_ns, self._more_ns = self._more_ns, 0
            self._ends_ns = env.now + more_ns
            yield env.timeout(more_ns)
        self._ends_ns = 0
        return took_ns

    def pause(self, for_ns: int) -> None:
        """Let its process compute nothing for a time from now on; pauses that overlap add up."""
        now = self._simulation.env.now
        self._paused_until_ns = max(self._paused_until_ns, now) + for_ns
        if now < self._ends_ns:
            self._more_ns += for_ns

    def returned(self) -> None:
        """Note that the store returns from the request."""
        if self._touched:
            self._returned_ns, self._after_ns = self._simulation.env.now, 0

    def waited(self, since_ns: int, what: str, about: dict[str, int]) -> None:
        """Note that the worker has waited: for the value of a key, `about` has it and its round."""
        self._span(what, "wait", since_ns, about)

    def begin(self) -> None:
        """Begin a step, as the script tells."""
        if not self._bounds.told:
            self.compute_ns = 0
        self._finish(self._bounds.begin(self._simulation.env.now), 0)

    def end(self) -> None:
        """End the last step: the worker leaves."""
        self._worker.steps.last = True  # no other begins
        self._finish(self._bounds.leave(self._returned_ns), self._after_ns)

    # ---- rows ----

    def _finish(self, step: tuple[int, int, int] | None, later_ns: int) -> None:
        """Record a step, if one has ended; `later_ns` of computing belong to the next."""
        if step is None:
            return
        self.compute_ns -= later_ns
        self.computed_s.append(self.compute_ns / NS)
        self._simulation.iteration(IterationRow(self._worker, *step))
        self.compute_ns = later_ns
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
