"""The WAN model in Python agrees with the native one, on random networks and changes."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from geomx import _core
from geomx.sim.clock import Clock
from geomx.sim.reference import Connection, ReferenceWan, Stream, Tcp, share

MS = 1_000_000
SIZES = (0, 100, 1e4, 1e6)


def drawn(draws: random.Random) -> dict[str, Any]:
    """Draw a network, its connections, their messages, and changes of edges."""
    edges = [draws.choice([1e5, 1e6, 1e7, 1e8, math.inf]) * draws.uniform(0.5, 2) for _ in range(6)]
    connections = []
    for _ in range(draws.randint(1, 8)):
        path = draws.sample(range(6), draws.randint(1, 3))
        back = draws.sample(range(6), draws.randint(0, 2))
        connections.append(
            {
                "path": path, "reverse": back,
                "reverse_share": draws.choice([0.0, 0.017]) if back else 0.0,
                "weight": draws.choice([1.0, 1.0, draws.uniform(0.2, 5)]),
                "priority_class": draws.choice([0, 0, 0, -1, 1, 2]),
                "rtt_ns": draws.choice([0, 1, 10, 100]) * MS + draws.randint(1, MS),
                "congestion": draws.choice(["bbr", "cubic", "reno"]),
                "window_bytes": draws.choice([2.75e6, 2.75e6, 64e3, math.inf]),
            }
        )  # fmt: skip
    messages = [
        [draws.choice(SIZES) * draws.uniform(0.5, 2) for _ in range(draws.randint(1, 6))]
        for _ in connections
    ]
    starts = [draws.randint(0, 300 * MS) for _ in connections]
    changes = sorted(
        (draws.randint(1, 900 * MS), draws.randrange(6), draws.choice([0, 1e5, 1e6, 1e7]))
        for _ in range(draws.randint(0, 4))
    )
    final = [(1000 * MS + edge, edge, 1e7) for edge in range(6)]  # so that everything ends
    pauses = [[draws.choice([0, 0, 400 * MS]) for _ in line] for line in messages]
    return {
        "fifo": draws.random() < 0.5,
        "edges": edges, "connections": connections, "messages": messages, "starts": starts,
        "changes": [*changes, *final], "pauses": pauses,
    }  # fmt: skip


def native(case: dict[str, Any]) -> list[list[int]]:
    """Return when each message of each connection has left, by the native model."""
    network = _core.FlowNetwork(case["fifo"])
    for rate in case["edges"]:
        network.add_edge(rate)
    for connection in case["connections"]:
        network.add_connection(**connection)
    ends: list[list[int]] = [[] for _ in case["messages"]]
    due = [(time, -1, edge, rate) for time, edge, rate in case["changes"]]
    due += [(time, number, 0, 0.0) for number, time in enumerate(case["starts"])]
    due.sort()
    while True:
        event = network.next_event()
        now = min(event if event is not None else math.inf, due[0][0] if due else math.inf)
        if now == math.inf:
            return ends
        for number in network.advance(now) if event is not None else ():
            ends[number].append(now)
            begun = len(ends[number])
            if begun < len(case["messages"][number]):
                pause = case["pauses"][number][begun]
                if pause:
                    due.append((now + pause, number, 0, 0.0))
                    due.sort()
                else:
                    network.start(number, case["messages"][number][begun], now)
        while due and due[0][0] == now:
            _, number, edge, rate = due.pop(0)
            if number < 0:
                network.set_capacity(edge, rate, now)
            else:
                network.start(number, case["messages"][number][len(ends[number])], now)


def reference(case: dict[str, Any]) -> list[list[int]]:
    """The same by the model in Python."""
    env = Clock()
    ends: list[list[int]] = [[] for _ in case["messages"]]

    def begin(number: int) -> None:
        wan.start(number, case["messages"][number][len(ends[number])])

    def left(number: int) -> None:
        ends[number].append(env.now)
        begun = len(ends[number])
        if begun < len(case["messages"][number]):
            if pause := case["pauses"][number][begun]:
                env.timeout(pause).callbacks.append(lambda _: begin(number))
            else:
                begin(number)

    wan = ReferenceWan(env, case["edges"], left, fifo=case["fifo"])
    for each in case["connections"]:
        hops = dict.fromkeys(each["path"], 1.0)
        for edge in each["reverse"] if each["reverse_share"] else ():
            hops[edge] = hops.get(edge, 0.0) + each["reverse_share"]
        tcp = Tcp(each["rtt_ns"], each["congestion"], each["window_bytes"], fifo=case["fifo"])
        wan.connections.append(Connection(hops, tcp, each["weight"], each["priority_class"]))
    for number, time in enumerate(case["starts"]):
        env.timeout(time).callbacks.append(lambda _, number=number: begin(number))
    for time, edge, rate in case["changes"]:
        env.timeout(time).callbacks.append(
            lambda _, edge=edge, rate=rate: wan.set_capacity(edge, rate)
        )
    env.run()
    return ends


def differences(cases: int, seed: int) -> None:
    """Compare both models; a completion may differ by 1e-6 of its time, or 1 us."""
    for number in range(cases):
        case = drawn(random.Random(f"{seed}/{number}"))
        one, other = native(case), reference(case)
        for connection, (mine, yours) in enumerate(zip(one, other, strict=True)):
            assert mine == pytest.approx(yours, rel=1e-6, abs=1000), (number, connection)


@pytest.mark.parametrize("name", ["25/1412", "26/1455"])
def test_instants_end_where_acknowledgements_and_data_fill_each_others_queues(name: str) -> None:
    """What edges offer data and what acknowledgements need alternated without end."""
    case = drawn(random.Random(name))
    for ends in (native(case), reference(case)):
        assert [len(line) for line in ends] == [len(line) for line in case["messages"]]


def test_both_models_agree(seed: int) -> None:
    differences(60, seed)


@pytest.mark.slow
def test_both_models_agree_on_many_cases(seed: int) -> None:
    differences(300, seed + 1)


def test_sharing_is_max_min() -> None:
    parking_lot = [Stream({0: 1.0, 1: 1.0}), Stream({0: 1.0}), Stream({1: 1.0}, weight=3.0)]
    assert share([10.0, 40.0], parking_lot) == pytest.approx([5.0, 5.0, 35.0])
    first = [Stream({0: 1.0}, cap=4.0), Stream({0: 1.0}, priority_class=1), Stream({})]
    assert share([10.0], first) == pytest.approx([4.0, 6.0, math.inf])


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "model.md").read_text(encoding="utf-8")
    (example,) = page.split("```python\n")[1:]
    exec(compile(example.split("```")[0], "model.md", "exec"), {})
