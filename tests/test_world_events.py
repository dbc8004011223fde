"""What programs of the world wait for and count: values, rounds, transfers, and standstills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from geomx import runner
from geomx.errors import GeomxError
from geomx.events import NodeActed, TransferEnded, ValueArrived
from geomx.network.files import read_network
from geomx.options.schema import FaultOptions
from geomx.scenario import read_scenario
from geomx.sim import Transfer, World
from tests.laws import Build, short_form

Process = Iterator[Any]
WORKER = "party1/worker0"


def started(process: Callable[[World], Process]) -> Callable[[World], None]:
    """Return a program that starts a process."""

    def program(world: World) -> None:
        world.process(process(world))

    return program


def test_values_are_waited_for_again_after_a_condition(act: Build) -> None:
    """A condition that holds ends reports of values unless they are waited for."""
    times = []

    def process(world: World) -> Process:
        for _ in range(3):
            yield world.events.next(ValueArrived)
            times.append(world.now_s)
            yield world.when(lambda since=world.now_s: world.now_s > since)

    act(started(process), 1000, iterations=8)
    assert len(times) == 3


SCENARIOS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "all": ([], {}),
    "lost": ([{"at_s": 0.1, "kill": WORKER}], {"on_loss": "continue"}),
    "back": ([{"at_s": 0.1, "kill": WORKER, "restart_s": 0.1}], {"on_loss": "continue"}),
    "absent": ([], {"on_loss": "continue", "absent": (WORKER,)}),
}


@pytest.mark.parametrize("case", SCENARIOS)
def test_rounds_are_those_of_the_workers_that_train(act: Build, case: str) -> None:
    """From 0 before the first one, without gaps, and not held up by a worker that is lost."""
    rounds, events, faults = [], *SCENARIOS[case]

    def process(world: World) -> Process:
        while True:
            rounds.append(world.round("t0"))
            assert world.round() == rounds[-1]
            assert world.nodes["party0/worker0"].round("t0") >= rounds[-1]
            assert world.nodes[WORKER].round("t0") >= 0
            yield world.env.timeout(world.seconds(0.005))

    def program(world: World) -> None:
        assert world.round() == world.nodes[WORKER].round("t0") == 0
        world.process(process(world))

    act(
        program, 1000, network=short_form(1, 1), iterations=10,
        faults=FaultOptions(**faults),
        scenario=read_scenario(events, read_network(short_form(1, 1))),
    )  # fmt: skip
    assert rounds[0] == 0 and rounds == sorted(rounds) and rounds[-1] >= 9
    assert set(range(9)) <= set(rounds)


def test_transfers_that_arrive_together_are_told_apart(act: Build) -> None:
    """Although what hears of the first starts another, which may get the number of the second."""
    made: list[Transfer] = []
    published: list[TransferEnded] = []

    def program(world: World) -> None:
        def send() -> None:
            made.append(world.wan.transfer("party0", "hub", 1e5))

        def again(event: TransferEnded) -> None:
            published.append(event)
            if len(made) < 10:
                send()
                made[0].cancel()  # has no effect, as it has ended

        world.events.subscribe(TransferEnded, again)
        send()
        send()

    act(program, 2_000_000, iterations=3)
    assert len(made) == len(published) == 10
    assert all(each.processed and not each.cancelled for each in made)
    assert [each.started_s for each in made] == sorted(event.started_s for event in published)
    assert made[0].ended_s == made[1].ended_s and made[2].ended_s > made[1].ended_s


@pytest.mark.parametrize("what", ["outage", "scenario"])
def test_waiting_for_what_ends_by_itself_is_no_standstill(act: Build, what: str) -> None:
    """An outage of the network, or what a scenario will set, although only a program runs."""
    idle, network = [], short_form(1, 1)
    if what == "outage":
        network["outages"] = [{"site": "party0", "start_s": 0.1, "end_s": 3}]
    down = {"set": ["party0", "hub"], "mbps": 0, "at_s": 0.1}
    events = [down, {**down, "mbps": 100, "at_s": 3}] if what == "scenario" else []

    def process(world: World) -> Process:
        while True:
            yield world.env.timeout(world.seconds(0.01))
            idle.append(world._simulation.idle)

    scenario = read_scenario(events, read_network(network))
    run = act(started(process), network=network, iterations=5, scenario=scenario)
    assert run.results.summary["seconds"] > 3 and len(idle) > 300
    assert not any(idle)


OF_OTHERS: dict[str, dict[str, Any]] = {
    "redraw": {
        "redraw": {"every_s": 1, "low_mbps": 10, "high_mbps": 20, "links": [["party1", "hub"]]}
    },
    "outage": {"outages": [{"site": "party1", "start_s": 1, "end_s": 2, "every_s": 5}]},
    "failures": {"outages": [{"site": "party1", "mean_up_s": 5, "mean_down_s": 1}]},
}


@pytest.mark.parametrize("how", ["set", "down"])
@pytest.mark.parametrize("schedule", OF_OTHERS)
def test_schedules_of_other_edges_do_not_hide_a_standstill(
    act: Build, schedule: str, how: str
) -> None:
    """Bandwidths change for ever, but nothing that waits needs them."""
    network = short_form(1, 1) | OF_OTHERS[schedule]

    def process(world: World) -> Process:
        yield world.env.timeout(world.seconds(0.1))
        values: dict[str, Any] = {"mbps": 0} if how == "set" else {"up": False}
        world.wan.set("party0", "hub", both=True, **values)

    with pytest.raises(GeomxError, match=r"came to a standstill at 0\.1 s: party0/"):
        act(started(process), 1_000_000, network=network)


def test_a_standstill_is_detected_although_edges_are_read(tmp_path: Path) -> None:
    """Under a watchdog, which notices that nothing but the readings happens."""
    redraw = "{every_s: 1, low_mbps: 10, high_mbps: 20, links: [[chengdu, hub]]}"
    with pytest.raises(GeomxError, match="the simulation came to a standstill at"):
        runner.run(
            "workload=tiny", f"+network.redraw={redraw}",
            "scenario=[{at_s: 0.1, set: [beijing, hub], mbps: 0}]", "sim.edges_every_s=0.1",
            "runtime.failure_timeout_s=1", f"hydra.run.dir={tmp_path / 'run'}",
        )  # fmt: skip


def test_a_schedule_that_ends_a_wait_is_followed(act: Build) -> None:
    """Although others change for ever, and a program sets a third edge."""
    network = short_form(1, 1) | {
        "redraw": OF_OTHERS["redraw"]["redraw"],
        "outages": [{"site": "party0", "start_s": 0.05, "end_s": 50}],
    }

    def program(world: World) -> None:
        world.wan.set("hub", "party1", mbps=50)

    run = act(program, 1_000_000, network=network, iterations=2)
    assert 50 < run.results.summary["seconds"] < 60


# ---- acts on dead nodes, and on slow ones ----

DEAD = [
    ([{"at_s": 0.1, "kill": WORKER, "restart_s": 0.3}], [(0.1, "kill"), (0.4, "restart")]),
    (
        [
            {"at_s": 0.1, "kill": WORKER, "restart_s": 0.3},
            {"at_s": 0.2, "kill": WORKER, "restart_s": 0.1},
            {"at_s": 0.25, "kill": WORKER},
            {"at_s": 0.28, "pause": WORKER, "for_s": 5},
        ],
        [(0.1, "kill"), (0.4, "restart")],
    ),
    (
        [
            {"at_s": 0.1, "kill": WORKER},
            {"at_s": 0.2, "kill": WORKER, "restart_s": 0.1},
        ],
        [(0.1, "kill")],
    ),
]


@pytest.mark.parametrize(("events", "expected"), DEAD)
def test_acts_on_a_dead_worker_have_no_effect(act: Build, events: Any, expected: Any) -> None:
    """A dead process cannot carry them out; the kill that has ended it restarts it."""
    heard: list[NodeActed] = []

    def program(world: World) -> None:
        world.events.subscribe(NodeActed, heard.append)

    scenario = read_scenario(events, read_network(short_form(1, 1)))
    faults = FaultOptions(on_loss="continue")
    run = act(program, 1000, iterations=20, faults=faults, scenario=scenario)
    assert [(round(each.time_s, 9), each.what) for each in heard] == expected
    rows = run.results.summary["faults"]
    assert all(row["what"] in event for row, event in zip(rows, events, strict=True))
    ends = [row["end_s"] for row in run.results.iterations if row["worker"] == WORKER]
    back = [end_s for end_s in ends if end_s > 0.4]
    assert bool(back) == (len(expected) == 2) and not any(0.15 < end_s <= 0.4 for end_s in ends)
    assert max(back, default=0) < 2


def test_a_program_restarts_a_node_before_its_kill_does(act: Build) -> None:
    """Then it is killed again, and the restart of the first kill does not count."""
    heard: list[NodeActed] = []

    def process(world: World) -> Process:
        world.events.subscribe(NodeActed, heard.append)
        node = world.nodes[WORKER]
        for at_s, do in (
            (0.1, lambda: node.kill(restart_s=0.2)), (0.15, node.restart), (0.16, node.restart),
            (0.2, lambda: node.kill(restart_s=0.3)),
        ):  # fmt: skip
            yield world.env.timeout(world.seconds(at_s) - world.env.now)
            do()

    act(started(process), 1000, iterations=20, faults=FaultOptions(on_loss="continue"))
    told = [(round(each.time_s, 9), each.what) for each in heard]
    assert told == [(0.1, "kill"), (0.15, "restart"), (0.2, "kill"), (0.5, "restart")]


def test_a_dead_server_that_resumes_is_not_killed_again(act: Build) -> None:
    """Nor paused: it is back when the kill that has ended it says so."""
    first = {"at_s": 0.1, "kill": "party0/server", "restart_s": 0.5}
    others: list[dict[str, Any]] = [
        {"at_s": 0.2, "kill": "party0/server", "restart_s": 0.1},
        {"at_s": 0.3, "pause": "party0/server", "for_s": 2},
    ]
    runs = []
    for events in ([first], [first, *others]):
        scenario = read_scenario(events, read_network(short_form(1, 1)))
        faults = FaultOptions(durable="log")
        runs.append(act(None, 1000, iterations=20, faults=faults, scenario=scenario).results)
    once, more = ((run.directory / "iterations.csv").read_bytes() for run in runs)
    assert once == more and runs[0].summary["seconds"] > 0.6
    assert [row.get("recovered_s") for row in runs[1].summary["faults"]] == [0.5, None, None]


@pytest.mark.parametrize("restarts", [True, False], ids=["restart", "join"])
def test_a_slow_worker_is_slow_in_its_next_process(act: Build, restarts: bool) -> None:
    network = read_network(short_form(1, 2))
    slow = {"at_s": 0, "slow": "party1/worker1", "times": 5, "for_s": 1000}
    other: dict[str, Any] = {"at_s": 0.5, "kill": "party1/worker1", "restart_s": 0.1}
    if not restarts:
        other = {"at_s": 0.5, "join": {"party": "party1", "workers": 1}}
    run = act(
        None, 10, network=network, iterations=30, faults=FaultOptions(on_loss="continue"),
        scenario=read_scenario([slow, other], network),
    )  # fmt: skip
    rows = [row for row in run.results.iterations if row["worker"] == "party1/worker1"]
    late = [row for row in rows if row["start_s"] > 0.5]
    assert len(late) > 2
    for row in late:
        assert row["compute_s"] == pytest.approx(0.1)
        assert row["end_s"] - row["start_s"] >= 0.1 - 1e-9


@pytest.mark.parametrize("again", [True, False], ids=["repeated", "listed"])
def test_a_node_is_slow_again_at_the_end_of_being_slow(act: Build, again: bool) -> None:
    """Events that follow each other do not overlap, and so do not multiply."""
    network = read_network(short_form(1, 1))
    slow: dict[str, Any] = {"slow": WORKER, "times": 1100, "for_s": 0.5}
    starts: list[dict[str, Any]] = [{"every_s": 0.5}] if again else [{"at_s": 0.5}, {"at_s": 1}]
    scenario = read_scenario([slow | start for start in starts], network)
    run = act(None, 10, network=network, iterations=20, scenario=scenario)
    took_s = {row["compute_s"] for row in run.results.iterations if row["worker"] == WORKER}
    assert sorted(took_s) == pytest.approx([0.02, 22])
