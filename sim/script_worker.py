"""A simulated worker whose steps are those of a training script, in a process of its own.

The process computes and then makes a request (`geomx.virtual.loop`): the SimPy process here waits
for it in real time, lets the time pass that the computing takes, carries the request out on the
worker's node, and replies once the script may go on. Between its reply and the next request no
virtual time passes for anyone, so that only one worker computes at a time.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.sim.protocols import Notice
from geomx.sim.script_steps import ScriptSteps
from geomx.sim.script_world import Channel, Message, ScriptWorld
from geomx.training.pace import NS
from geomx.training.steps import Report, Steps

Reply = tuple[dict[str, Any], Any]
Waits = Generator[simpy.Event, Any, Reply]

DONE: Reply = {}, b""


class ScriptWorker:
    """One worker of a simulated script.

    Args:
        simulation: The simulation.
        spec: The node.
        rank: Its position among all workers.

    Attributes:
        steps: The script's process counts its steps; this tells which one is the last.
        loss: Of no effect likewise.
        parameters: Empty: the script has them.
        ended: Whether its script has left the run.
        trains: Whether it has not.
        keys: Tensors by key: name and shape.
        waits_for: What it waits for, for errors; empty while it does not wait.
    """

    def __init__(self, simulation: ScriptWorld, spec: NodeSpec, rank: int) -> None:
        self.simulation = simulation
        self.spec = spec
        self.rank = rank
        self.steps = Steps(simulation.policy, simulation.experiment.cluster, spec)
        self.parameters: list[NDArray[Any]] = []
        self.loss = math.nan
        self.ended, self.trains = False, True
        self.keys: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.waits_for = ""
        self._pushed: Counter[int] = Counter()  # by key
        self._reduced_ns = 0  # when its group of processes has added what it has begun to
        self.local = ScriptSteps(simulation, self)
        self._verbs = _core.FabricWorker(simulation.fabric, spec.id)
        self._rounds: dict[int, tuple[int, int]] = {}  # by key: round and arrival of its value
        self._replies: deque[list[float]] = deque()
        self._states: deque[tuple[int, int, int, int, bytes]] = deque()
        self._barriers = self._released = 0
        self._notice: simpy.Event | None = None  # that it waits for

    @property
    def compute_s(self) -> float:
        """Seconds of computing in the latest step."""
        return self.local.compute_ns / NS

    took_s = compute_s

    def standing(self) -> str:
        """What the script waits for, and where; empty if it does not wait."""
        if not (self.ended and self.waits_for):
            return self.waits_for
        what = f"{self.waits_for} after {self.local.done} steps"
        if needs_all := self.simulation.needs_all:
            what += f" (all must make as many, since {needs_all} needs them in every round)"
        return what

    # ---- notices of the fabric ----

    def hear(self, notice: Notice) -> None:
        """Handle a notice to this worker."""
        _, kind, key, number, text, _, values, _ = notice
        if kind == "value":
            self._rounds[key] = number, self.simulation.env.now
        elif kind == "reply":
            self._replies.append(values)
        elif kind == "released":
            self._released = number
        elif kind == "state":
            state: Any = text  # bytes, of this kind
            self._states.append(_core.state_part(state))
        self.wake()

    def round(self, key: int) -> int:
        """See `geomx.sim.protocols.Worker.round`."""
        return self._verbs.round(key) if key in self.keys else 0

    def pause(self, for_ns: int) -> None:
        """See `geomx.sim.protocols.Worker.pause`."""
        self.local.pause(for_ns)

    def wake(self) -> None:
        """Let the worker look whether what it waits for has come."""
        if self._notice is not None:
            self._notice.succeed()
            self._notice = None

    def _until(
        self, here: Callable[[], bool], what: str, where: str, key: int | None = None
    ) -> Generator[Any, Any, None]:
        """Wait for `what`, which is there when `here` returns True: maybe the value of a key."""
        since_ns = self.simulation.env.now
        self.waits_for = f"{what} since {where}" if where else what
        while not here():
            self._notice = self.simulation.env.event()
            yield self._notice
        self.waits_for = ""
        about = {} if key is None else {"key": key, "round": self._rounds[key][0]}
        self.local.waited(since_ns, what, about)

    # ---- the script ----

    @property
    def channel(self) -> Channel:
        """The connection to its process."""
        return self.simulation.processes.channels[self.spec.id]

    def run(self) -> Generator[simpy.Event, Any, None]:
        """Carry out what the script requests, until it has left; the worker's SimPy process.

        Raises:
            NodeLost: Its process has ended before.
        """
        while True:
            reply, values = DONE
            for fields, content in self._requests():
                yield from self.local.compute(fields)
                try:
                    reply, values = yield from self._carry_out(fields["op"], fields, content)
                except ValueError as error:
                    reply, values = {"error": str(error)}, b""
                    break
                self.local.returned()
            self.channel.send(reply | {"now_ns": self.simulation.env.now}, values)
            if fields["op"] == "stopped":
                return

    def _requests(self) -> list[Message]:
        """Wait in real time for the requests up to one that has a reply.

        All are read before the first is carried out, as that may let another worker compute.

        Raises:
            NodeLost: The process has ended.
        """
        requests: list[Message] = []
        while not requests or "asks" not in requests[-1][0]:
            request = self.channel.receive()
            if request is None:
                raise self.channel.lost("without leaving the run")
            requests.append(request)
        return requests

    def _carry_out(self, op: str, asked: dict[str, Any], content: Any) -> Waits:
        """Carry out a request; return the reply."""
        now = self.simulation.env.now
        match op:
            case "start":
                measured, as_measured = self.simulation.computing.measured, self.local.as_measured
                return {"measured": measured, "as_measured": as_measured}, b""
            case "declare":
                self._declare(asked)
            case "init":
                self._verbs.init(asked["key"], _vector(content), now)
            case "request":
                self._verbs.request(asked["key"], now)
            case "push":
                self._push(asked, content)
            case "wait":
                return (yield from self._wait(asked))
            case "value":
                return {}, self._value(asked["key"], asked["elements"])
            case "absent":
                return {"absent": self._verbs.absent(asked["key"])}, b""
            case "reached":
                return {"reached": self._verbs.reached(asked["key"])}, b""
            case "round":
                return {"round": self._verbs.round(asked["key"])}, b""
            case "optimizer":
                self._verbs.run_optimizer(asked["optimizer"], asked["unless_given"], now)
            case "expect_optimizer":
                self._verbs.expect_optimizer(now)
            case "mark" if asked["what"] == "begins":
                self.local.begin()
            case "mark" | "now" | "plans":
                pass  # the computing has passed
            case "sleep":
                yield self.simulation.env.timeout(round(asked["seconds"] * NS))
            case "evaluated":
                self.simulation.evaluated(asked["step"], asked["accuracy"], asked["loss"])
            case _:
                return (yield from self._job(op, asked, bytes(content)))
        return DONE

    def _job(self, op: str, asked: dict[str, Any], content: bytes) -> Waits:
        """Carry out a request that concerns the job, and no tensor."""
        now, where = self.simulation.env.now, asked.get("where", "")
        match op:
            case "report":
                told = asked.get("told", Report(asked["host"], asked["number"], asked["values"]))
                report = told(self.compute_s) if callable(told) else told
                self._verbs.report(report.host, report.coordinator, report.values, now)
            case "reply":
                number = asked["number"]
                cluster = self.simulation.experiment.cluster
                whom = self.simulation.experiment.selection.coordinator(cluster, number)
                yield from self._until(lambda: bool(self._replies), f"an answer of {whom}", where)
                return {"values": self._replies.popleft()}, b""
            case "barrier":
                self._verbs.barrier(now)
                self._barriers += 1
                due = self._barriers
                what = f"all workers at barrier {due}"
                yield from self._until(lambda: self._released >= due, what, where)
            case "ask_states":
                self._verbs.ask_states(now)
            case "state":
                what = "the state of an optimizer"
                yield from self._until(lambda: bool(self._states), what, where)
                *part, saved = self._states.popleft()
                return {"part": part}, saved
            case "load_state":
                self._verbs.load_state(asked["key"], asked["shard"], content, now)
            case "leave":
                self.local.end()
                yield from self._until(self._answered, "the answers to its last pushes", where)
                self.ended, self.trains = True, False
                self.simulation.left(self)
            case "stopped":
                what = "the other workers to leave"
                yield from self._until(lambda: self.simulation.all_left, what, where)
            case _:
                raise ValueError(f"no such request: {op}")
        return DONE

    def _declare(self, asked: dict[str, Any]) -> None:
        key, shape, name = asked["key"], tuple(asked["shape"]), asked["name"]
        shards: list[Any] = [tuple(shard) for shard in asked["shards"]]
        self._verbs.declare(key, math.prod(shape), shards, name)
        self.keys[key] = name, shape
        self.simulation.declared(key, name, shape, shards)

    def _push(self, asked: dict[str, Any], content: Any) -> None:
        env, reduce_ns = self.simulation.env, asked.get("reduce_ns", 0)
        self._pushed[asked["key"]] += 1
        if reduce_ns > 0:
            self._reduced_ns = max(self._reduced_ns, env.now) + reduce_ns
        if self._reduced_ns <= env.now:
            self._send(asked, content)
        else:
            env.process(self._send_later(asked, content, self._reduced_ns - env.now))

    def _send_later(self, asked: dict[str, Any], content: Any, after_ns: int) -> Waits:
        """Push when the processes of a group have added what each of them has."""
        yield self.simulation.env.timeout(after_ns)
        self._send(asked, content)
        return DONE

    def _send(self, asked: dict[str, Any], content: Any) -> None:
        loss, shared = asked["loss"], isinstance(content, _core.PushedValues)
        self._verbs.push(
            asked["key"],
            content if shared else _core.PushedValues(_vector(content)),
            float("nan") if loss is None else loss,
            asked["last"],
            asked["absent"],
            self.simulation.env.now,
        )

    def _answered(self) -> bool:
        """Return whether all pushes are answered: until then, a node does not leave."""
        return all(self._rounds.get(key, (0, 0))[0] >= due for key, due in self._pushed.items())

    def _wait(self, asked: dict[str, Any]) -> Waits:
        key, due = asked["key"], asked["round"]
        name = self.simulation.tensor_name(key)
        what = f"round {due} of {name}" if due else f"the initial value of {name}"

        def here() -> bool:
            number, _ = self._rounds.get(key, (-1, 0))
            return bool(number >= due)

        yield from self._until(here, what, asked["where"], key)
        elements = math.prod(self.keys[key][1])
        return {"arrived_s": self._rounds[key][1] / NS}, self._value(key, elements)

    def _value(self, key: int, elements: int) -> NDArray[np.float32] | bytes:
        """Return the value of a tensor that has arrived last, if the process waits for it."""
        if not self.channel.leads:
            return b""
        out = np.empty(elements, np.float32)
        self._verbs.value(key, out)
        return out

    def values(self) -> dict[str, NDArray[np.float32]]:
        """Return the values of all tensors that have arrived last, by name."""
        found = {}
        for key, (name, shape) in self.keys.items():
            if key in self._rounds:
                flat = np.empty(math.prod(shape), np.float32)
                self._verbs.value(key, flat)
                found[name] = flat.reshape(shape)
        return found


def _vector(content: bytearray) -> NDArray[np.float32]:
    return np.frombuffer(content, np.float32)
