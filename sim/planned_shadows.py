"""Shadows of a script under a sync policy that plans the steps of every worker by its speed.

The process of the script makes as many local steps between two exchanges as the plan says that it
received: that of the worker which had a reply first. The other workers make their own numbers of
steps, each as long as the latest that the process has computed. What they push is what the process
has, after its own number of steps.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from geomx.sim.script_world import Channel, Message
from geomx.sim.turns import OF_OTHERS, Follower, Turns
from geomx.training.steps import Steps

SKIPPED = "of a step that this worker does not make"
EXCHANGING = frozenset({"push", "report"})
NOTHING = {"computed_ns": 0, "processor_ns": 0}
"""What a request says of the computing before it, if there was none."""


class PlannedFollower(Follower):
    """A `Follower` with a plan of its own.

    Args:
        turns: The turns of the process.
        process: The connection to it.
        first: Whether this is the worker whose name the process has.
        factor: The factor on what the worker pushes.
        plan: Returns the worker's steps, of which the slowest worker makes a given number.
    """

    def __init__(
        self,
        turns: Turns,
        process: Channel,
        first: bool,
        factor: float,
        plan: Callable[[int], Steps],
    ) -> None:
        super().__init__(turns, process, first, factor)
        self._plan = plan
        self._steps: Steps | None = None
        self._exchanges = False  # after the current step, which it has not done yet
        self._skips = False  # the process makes steps that this worker does not
        self._computes = False  # a step has begun and is not computed
        self._computed = Counter[str]()  # by the process, in the current or latest step
        self._awaits_reply = False
        self._own: deque[Message] = deque()  # that come before the next of the process

    def receive(self) -> Message | None:
        """See `Follower.receive`."""
        while not self._own:
            received = super().receive()
            if received is None:
                return None
            self._follow(*received)
        return self._own.popleft()

    def send(self, fields: dict[str, Any], content: object = b"") -> None:
        """See `Follower.send`."""
        if self._awaits_reply and self._steps is not None and "values" in fields:
            self._steps.reply(fields["values"])
        self._awaits_reply = False
        super().send(fields, content)

    def _follow(self, fields: dict[str, Any], content: Any) -> None:
        """Append what this worker requests where the process requests `fields`."""
        op, steps = fields["op"], self._steps
        if op == "plans":
            self._steps = self._plan(fields["steps"])
        if op == "plans" or steps is None:
            self._own.append((fields, content))
            return
        if op in EXCHANGING:
            self._skips = False
            while not self._exchanges:
                self._begin(steps)
                self._own.append(_mark("begins", NOTHING))
                self._own.append(_mark("computed", self._computed))
        self._note_computing(fields)
        if op == "mark" and fields["what"] == "begins":
            self._skips = self._exchanges
            if not self._skips:
                self._begin(steps)
        elif op == "report":
            fields = fields | {"told": steps.report}
            self._exchanges = False
        elif op == "reply":
            fields = fields | {"number": steps.sync.coordinator}
        self._awaits_reply = op == "reply"
        if self._skips and op not in OF_OTHERS:
            waits = "asks" in fields and op != "sleep"
            fields = fields | NOTHING | ({} if waits else {"op": "mark", "what": SKIPPED})
        self._own.append((fields, content))

    def _begin(self, steps: Steps) -> None:
        steps.begin()
        self._exchanges = steps.synchronises()

    def _note_computing(self, fields: dict[str, Any]) -> None:
        """Measure what the process computes in a step."""
        if self._computes:
            self._computed.update({name: fields[name] for name in NOTHING})
        if fields["op"] == "mark" and fields["what"] in ("begins", "computed"):
            self._computes = fields["what"] == "begins"
            if self._computes:
                self._computed.clear()


def _mark(what: str, computed: Mapping[str, int]) -> Message:
    return {"op": "mark", "what": what, "waited_ns": 0} | NOTHING | dict(computed), b""
