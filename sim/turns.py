"""One process of a script for all workers: the others are shadows of the first.

The process is the first worker's: it has its name, gives initial values and sets the optimizer. Its
requests between two replies are a turn. Every worker carries out all turns, on its own node and at
its own virtual times: it pushes what the process has pushed, and waits for values of its own. What
was computed before a request takes it as long as it took the process, by its own speed.

The process has the reply of the worker that has one first. The next turn is therefore known before
any worker needs it, and no worker waits for another one for that reason. If all workers of a full
simulation would receive the same values and compute the same from them, both simulations are equal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from geomx import _core
from geomx.errors import GeomxError
from geomx.sim.script_world import Channel, Message

OF_OTHERS = {
    "optimizer": {"op": "expect_optimizer"},
    **{each: {"op": "mark", "what": each} for each in ("init", "load_state", "evaluated")},
}
"""Requests of the first worker alone, and what shadows do instead; for a mark they only compute."""

STATES = frozenset({"ask_states", "state"})


@dataclass
class _Request:
    """A request of the process, and what workers push with it, by their factor."""

    fields: dict[str, Any]
    content: bytearray
    pushed: dict[float, _core.PushedValues] = field(default_factory=dict)

    def values(self, factor: float) -> _core.PushedValues:
        """Return the content of a push times a factor, which workers of that factor share."""
        if factor not in self.pushed:
            vector = np.frombuffer(self.content, np.float32)
            scaled = vector if factor == 1.0 else vector * np.float32(factor)
            self.pushed[factor] = _core.PushedValues(scaled)
        return self.pushed[factor]


@dataclass
class _Turn:
    requests: list[_Request]
    left: int  # workers that have not carried it out


class Turns:
    """The turns of the process, each kept until all workers have carried it out.

    Args:
        channel: The connection to the process.
        workers: Number of workers.

    Attributes:
        answered: Number of turns to which the process has a reply.
    """

    def __init__(self, channel: Channel, workers: int) -> None:
        self.answered = 0
        self._channel, self._workers = channel, workers
        self._turns: deque[_Turn] = deque()
        self._dropped = 0

    def turn(self, number: int) -> list[_Request] | None:
        """Return a turn, for which this may wait in real time; None if the process has ended.

        Raises:
            GeomxError: It requests what no shadow can do.
        """
        if number == self._dropped + len(self._turns):
            requests: list[_Request] = []
            while not requests or "asks" not in requests[-1].fields:
                received = self._channel.receive()
                if received is None:
                    return None
                requests.append(_Request(*received))
                if requests[-1].fields["op"] in STATES:
                    raise GeomxError(
                        "the script saves the state of the servers' optimizer, which --shadows "
                        "does not simulate: leave --shadows out, or save no checkpoint"
                    )
            self._turns.append(_Turn(requests, self._workers))
        return self._turns[number - self._dropped].requests

    def answer(self, number: int, fields: dict[str, object], content: object) -> None:
        """Note that a worker has carried a turn out; the process has the first one's reply."""
        if number == self.answered:
            self._channel.send(fields, content)
            self.answered += 1
        self._turns[number - self._dropped].left -= 1
        while self._turns and self._turns[0].left == 0:
            self._turns.popleft()
            self._dropped += 1


class Follower:
    """The channel of one worker, to the process of all.

    Args:
        turns: The turns of the process.
        process: The connection to it.
        first: Whether this is the worker whose name the process has.
        factor: The factor on what the worker pushes.
    """

    def __init__(self, turns: Turns, process: Channel, first: bool, factor: float) -> None:
        self._turns, self._process = turns, process
        self._first, self._factor = first, factor
        self._number = self._next = 0

    @property
    def startup_s(self) -> float:
        """See `geomx.virtual.processes.Channel`."""
        return self._process.startup_s

    @property
    def leads(self) -> bool:
        """Whether the process waits for this worker's reply: no other worker had one before."""
        return self._number == self._turns.answered

    def receive(self) -> Message | None:
        """Return the next request; None if the process has ended."""
        requests = self._turns.turn(self._number)
        if requests is None:
            return None
        request = requests[self._next]
        self._next += 1
        fields = request.fields
        if not self._first and (instead := OF_OTHERS.get(str(fields["op"]))):
            return fields | instead, request.content
        pushes = fields["op"] == "push"
        return fields, request.values(self._factor) if pushes else request.content

    def send(self, fields: dict[str, object], content: object = b"") -> None:
        """End the turn with a reply."""
        self._turns.answer(self._number, fields, content)
        self._number += 1
        self._next = 0

    def lost(self, without: str) -> Exception:
        """See `geomx.virtual.processes.Channel`."""
        return self._process.lost(without)
