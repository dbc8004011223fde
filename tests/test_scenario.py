"""Scenarios: refusals, the order of acts, and equal behaviour of both modes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomx import runner
from geomx._core import clock_s
from geomx.cluster import Cluster
from geomx.config.compose import compose
from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.experiment.live_events import of_live_script
from geomx.live.disturbances import Disturbances, WorkerEvents
from geomx.live.wan_events import WanEvents
from geomx.network.files import read_network
from geomx.results.results import Results
from geomx.results.tables import summary_table
from geomx.scenario import Act, NodeActs, Scenario, read_scenario
from geomx.scenario.acts import BY_HAND
from tests.test_training_loop import S, clock

NETWORK: dict[str, Any] = {
    "central": {"name": "hub", "uplink_mbps": 400, "downlink_mbps": 400},
    "parties": {
        name: {"workers": 2, "uplink_mbps": 400, "downlink_mbps": 400} for name in ("east", "west")
    },
    "delay_ms": 5,
}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return read_network(NETWORK)


# ---- reading ----


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ("cut", r"scenario\[0\]=cut: must be an event"),
        ({"at_s": 1}, r"must have exactly one of cut, reset, kill, pause"),
        ({"at_s": 1, "kill": "east/server", "reset": ["east", "hub"]}, r"must have exactly one of"),
        ({"kill": "east/server"}, r"must have a time: at_s or every_s"),
        ({"kill": "east/server", "at_s": 1, "every_s": 2}, r"must have a time: at_s or every_s"),
        ({"kill": "east/server", "at_s": 1, "random": True}, r"\.random=true: needs every_s"),
        ({"kill": "east/servr", "at_s": 1}, r"\.kill=east/servr: .* did you mean east/server\?"),
        ({"kill": "east", "at_s": 1}, r"\.kill=east: there is no such node"),
        ({"cut": ["east", "hub"], "at_s": 1}, r"\.for_s=null: cut needs for_s"),
        (
            {"pause": "east/server", "every_s": 1, "for_s": 1},
            r"\.for_s=1.0: must be less than every_s=1: the node would never continue",
        ),
        ({"reset": ["east", "hub"], "at_s": 1, "for_s": 2}, r"\.for_s=2: reset has no duration"),
        ({"reset": ["east"], "at_s": 1}, r"\.reset=.*must be two different sites or nodes"),
        ({"reset": ["east", "east/worker0"], "at_s": 1}, r"one of them is part of the other"),
        ({"reset": ["east", "nort"], "at_s": 1}, r"\.reset=nort: there is no such site or node"),
        (
            {"cut": ["east", "hub"], "at_s": -1, "for_s": 1},
            r"scenario\[0\]\.at_s=-1.0: must be between 0 and 1000000000, or null",
        ),
        ({"slow": "east/server", "at_s": 1}, r"\[0\]=.*slow needs times"),
        ({"slow": "east/server", "at_s": 1, "times": 2}, r"\.for_s=null: slow needs for_s"),
        (
            {"slow": "east/server", "at_s": 1, "times": 0, "for_s": 1},
            r"\.times=0.0: must be more than 0 and at most 1000000, or null",
        ),
        ({"kill": "east/server", "at_s": 1, "times": 2}, r"\.times=2: kill has no times"),
        ({"set": ["east", "hub"], "at_s": 1}, r"set needs mbps or delay_ms or loss"),
        ({"set": ["east", "hub"], "at_s": 1, "mbps": -1}, r"\.mbps=-1.0: must be between 0 and"),
        ({"set": ["east", "hub"], "at_s": 1, "mbps": 1, "for_s": 1}, r"set has no duration"),
        ({"set": ["east", "hub/scheduler"], "at_s": 1, "mbps": 1}, r"no edge east -> hub/sched"),
        ({"set": ["east", "nort"], "at_s": 1, "mbps": 1}, r"\.set=.*there is no node nort"),
        ({"traffic": ["east", "hub"], "at_s": 1}, r"traffic needs bytes or mbps"),
        ({"traffic": ["east", "hub"], "at_s": 1, "mbps": 1}, r"traffic needs for_s"),
        ({"traffic": ["east", "hub"], "at_s": 1, "bytes": 1, "mbps": 2}, r"and not both"),
        ({"traffic": ["east", "hub"], "at_s": 1, "mbps": 0, "for_s": 1}, r"more than 0 Mbit/s"),
        ({"traffic": ["east", "east"], "at_s": 1, "bytes": 1}, r"two different sites or nodes"),
        ({"join": "east", "at_s": 1}, r"\.join=east: must be {party: NAME, workers: NUMBER}"),
        (
            {"join": {"party": ["east"], "workers": 1}, "at_s": 1},
            r"\.party=\['east'\]: there is no such party",
        ),
        (
            {"join": {"party": "east", "workers": True}, "at_s": 1},
            r"\.workers=True: must be 1 to 2",
        ),
        ({"kil": "east/server", "at_s": 1}, r"scenario\[0\]\.kil=east/server: unknown option"),
    ],
)
def test_invalid_events_are_refused(cluster: Cluster, event: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_scenario([event], cluster)


@pytest.mark.slow
def test_a_scenario_comes_from_a_file_or_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "bad_day.yaml"
    file.write_text(
        "- {at_s: 1, cut: [beijing, hub], for_s: 2}\n- {every_s: 9, kill: any worker}\n"
    )
    (read, drawn), inline = (
        compose([f"scenario={word}"])[0].scenario
        for word in (file, "[{at_s: 1, cut: [beijing, hub], for_s: 2}]")
    )
    assert (read,) == inline
    assert read.plain() == {"at_s": 1.0, "cut": ["beijing", "hub"], "for_s": 2.0}
    assert (drawn.what, drawn.targets) == ("kill", ("any worker",))
    for wrong, why in (
        (tmp_path / "none.yaml", "cannot be read"),
        ("world.txt", "must be a list of events, a file NAME.yaml of one, or a program NAME.py"),
        ("5", "must be a list of events"),
    ):
        with pytest.raises(ConfigError, match=f"scenario={wrong}: {why}"):
            compose([f"scenario={wrong}"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("join: beijing\n", ": must be a list of events, or a YAML file of one"),
        ("a: &a [*a]\n", ": contains itself by an alias at line 1"),
        ("- {at_s: 1, at_s: 2}\n", ": at_s comes twice at line 1 and after"),
        ("- {at_s: 1, for_s: 0b_}\n", ": is not YAML: 0b_ at line 1 is no int; quote it if"),
        (b"\xff\xfe", ": cannot be read: it is not a text file"),
    ],
)
def test_an_unusable_file_is_named(
    cluster: Cluster, content: str | bytes, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "events.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        read_scenario(str(file), cluster)
    assert str(caught.value).startswith(f"scenario={file}{sentence}")


def join(workers: int, at_s: float = 1.0) -> dict[str, Any]:
    return {"at_s": at_s, "join": {"party": "west", "workers": workers}}


@pytest.mark.parametrize(
    ("absent", "joins", "late", "by_hand"),
    [
        ([], [join(1)], {"west/worker1": 0}, ()),
        (["west/worker1"], [join(1)], {"west/worker1": 0}, ()),
        (["west/worker0"], [join(1)], {"west/worker0": 0}, ()),
        (
            ["west"], [join(1)],
            {"west/worker1": 0, "west/worker0": BY_HAND, "west/server": 0}, ("west/worker0",),
        ),
        (["west"], [join(2)], {"west/worker0": 0, "west/worker1": 0, "west/server": 0}, ()),
        (
            ["west/worker0"], [join(1, 2.0), join(1)],
            {"west/worker0": 0, "west/worker1": 1, "west/server": 1}, (),
        ),
    ],
)  # fmt: skip
def test_absent_workers_join_first_and_the_last_ones_of_them(
    cluster: Cluster,
    absent: list[str],
    joins: list[dict[str, Any]],
    late: dict[str, int],
    by_hand: tuple[str, ...],
) -> None:
    scenario = Scenario(read_scenario(joins, cluster), cluster, 0, absent)
    assert {cluster.nodes[node].name: by for node, by in scenario.late.items()} == late
    assert scenario.by_hand == by_hand


# ---- the order of time ----

times = st.floats(0.001, 50.0)
events = st.one_of(
    st.builds(lambda at, last: {"cut": ["east", "hub"], "at_s": at, "for_s": last}, times, times),
    st.builds(
        lambda every, last, drawn: {
            "cut": ["west", "hub"], "every_s": every, "for_s": last, "random": drawn
        },
        times, times, st.booleans(),
    ),
    st.builds(
        lambda every, drawn: {"kill": "any worker", "every_s": every, "random": drawn},
        times, st.booleans(),
    ),
    st.builds(
        lambda every, drawn: {
            "pause": "east/worker0", "every_s": every, "for_s": every / 2, "random": drawn
        },
        times, st.booleans(),
    ),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(events, max_size=5), st.integers(0, 2**40))
def test_acts_are_in_the_order_of_time_and_every_cut_ends(
    given: list[dict[str, Any]], seed: int
) -> None:
    cluster = read_network(NETWORK)
    scenario = Scenario(read_scenario(given, cluster), cluster, seed)
    acts = list(islice(scenario.acts(), 200))
    assert acts == list(islice(scenario.acts(), 200))
    assert [act.at_ns for act in acts] == sorted(act.at_ns for act in acts)
    cuts: dict[int, list[Act]] = {}
    for act in acts:
        if act.what == "cut":
            cuts.setdefault(act.event, []).append(act)
        elif act.what == "heal":
            begun = cuts[act.event].pop(0)
            assert act.at_ns - begun.at_ns == round(given[act.event]["for_s"] * 1e9)
            assert (act.one, act.other) == (begun.one, begun.other)
        elif act.what in ("pause", "resume"):
            assert [cluster.nodes[node].name for node in act.one] == ["east/worker0"]
        else:
            assert {cluster.nodes[node].role for node in act.one} == {"worker"}


@pytest.mark.slow
@given(st.lists(events, max_size=4), st.integers(0, 2**40), st.lists(times, max_size=5))
def test_a_node_draws_no_acts_beyond_the_time(
    given: list[dict[str, Any]], seed: int, spans: list[float]
) -> None:
    """Others' acts may repeat for ever."""
    cluster = read_network(NETWORK)
    events = read_scenario([*given, {"every_s": 1, "reset": ["east", "hub"]}], cluster)
    scenario = Scenario(events, cluster, seed)
    end_ns = sum(round(span * 1e9) for span in spans)
    drawn = list(takewhile(lambda act: act.at_ns <= end_ns, scenario.acts()))
    for node in cluster.nodes:
        acts, now_ns = NodeActs(scenario, ("pause", "kill"), node.id), 0
        its = [act for act in drawn if act.what in ("pause", "kill") and node.id in act.one]
        for span in spans:
            before_ns, now_ns = now_ns, now_ns + round(span * 1e9)
            due = [act for act in its if before_ns < act.at_ns <= now_ns]
            assert list(acts.until(now_ns)) == due


@pytest.mark.parametrize("what", ["a node", "the network"])
def test_acts_of_others_are_waited_for(cluster: Cluster, what: str) -> None:
    """Threads that only skipped them would take a core each."""
    event = {"every_s": 0.05, "reset": ["east", "hub"]}
    scenario, drawn = Scenario(read_scenario([event], cluster), cluster, 0), 0

    class Counting:
        by_iteration = ()

        def acts(self) -> Iterator[Act]:
            nonlocal drawn
            for act in scenario.acts():
                drawn += 1
                yield act

    spec: Any = SimpleNamespace(event_schedule=Counting())
    began_s = time.monotonic()
    if what == "a node":
        about = {"node": cluster.scheduler, "started_s": clock_s(), "loop": None}
        member: Any = SimpleNamespace(spec=spec, late=False, resumed=False, **about)
        Disturbances(member, ()).start()
    else:
        WanEvents(spec, None, {}, {}).begin(began_s)
    time.sleep(0.3)
    assert 1 <= drawn <= (time.monotonic() - began_s) / 0.05 + 2


# ---- both modes ----

# With the duration of the digits' iterations, for laws that do not depend on values.
SMALL = ["workload=tiny", "workload.forward_ms=10", "workload.backward_ms=20"]


def run(folder: Path, mode: str, scenario: str = "[]", *words: str) -> Results:
    network = folder.parent / "network.yaml"
    network.write_text(str(NETWORK))
    shared = [f"mode={mode}", f"network={network}", "iterations=20", "sim.max_spans=0"]
    shared += [f"hydra.run.dir={folder}"]
    return runner.run(*shared, f"scenario={scenario}", *words)


@pytest.mark.slow
def test_a_simulated_run_survives_faults_of_links(tmp_path: Path) -> None:
    calm = run(tmp_path / "calm", "sim", "[]", *SMALL)
    resets = "{every_s: 0.1, random: true, reset: [east, hub]}"
    rough = f"[{resets}, {{at_s: 0.2, cut: [west, hub], for_s: 2}}]"
    disturbed = run(tmp_path / "rough", "sim", rough, *SMALL)
    for name, value in calm.parameters().items():
        assert np.array_equal(value, disturbed.parameters()[name])
    faults = disturbed.summary["faults"]
    assert {"time_s": 0.2, "what": "cut", "link": ["west", "hub"], "for_s": 2.0} in faults
    assert sum(row["what"] == "reset" for row in faults) > 3
    assert "faults" not in calm.summary
    what, count, kinds = map(list, (c.cells for c in summary_table(disturbed.summary).columns))
    row = list(map(str, what)).index("faults")
    assert (str(count[row]), str(kinds[row])) == (
        f"{len(faults)}", f"reset: {len(faults) - 1}, cut: 1"
    )  # fmt: skip
    assert 1.9 < disturbed.summary["seconds"] - calm.summary["seconds"] < 4.0
    again = run(tmp_path / "again", "sim", rough, *SMALL)
    for file in ("iterations.csv", "links.csv", "parameters.npz"):
        assert (again.directory / file).read_bytes() == (disturbed.directory / file).read_bytes()


@pytest.mark.slow
def test_a_live_run_behaves_like_the_simulation(tmp_path: Path) -> None:
    rough = "[{every_s: 0.3, reset: [east, hub]}, {at_s: 0.5, cut: [west, hub], for_s: 2}]"
    calm = run(tmp_path / "calm", "sim", "[]", *SMALL)
    sim, live = (run(tmp_path / mode, mode, rough, *SMALL) for mode in ("sim", "live"))
    for name, value in calm.parameters().items():
        assert np.array_equal(value, live.parameters()[name])
    lost_s = sim.summary["seconds"] - calm.summary["seconds"]
    longest_s = max(row["end_s"] - row["start_s"] for row in live.iterations)
    assert lost_s / 1.5 < longest_s < lost_s * 1.5
    assert [row["what"] for row in live.summary["faults"]].count("cut") == 1


@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])
def test_a_connection_is_silent_for_longer_than_its_path_is_cut(tmp_path: Path, mode: str) -> None:
    """By half of that, as TCP waits to retransmit, but by a quarter of ``redial_s`` at most."""
    for for_s, redial_s in ((0.4, 2.0), (0.8, 1.0)):
        scenario = f"[{{at_s: 0.5, cut: [west, hub], for_s: {for_s}}}]"
        words = [f"faults.redial_s={redial_s}", "accel=[]", *SMALL]
        results = run(tmp_path / f"{mode}{redial_s}", mode, scenario, *words)
        longest = {
            row["worker"]: row
            for row in sorted(results.iterations, key=lambda row: row["end_s"] - row["start_s"])
            if row["party"] == "west"
        }
        during = [row["end_s"] for row in longest.values()]
        assert len(during) == 2
        later_s = min(during) - (0.5 + for_s + min(for_s, redial_s / 2) / 2)
        assert later_s > 0
        assert mode == "live" or later_s < 0.2  # of the paths, and of a step


@pytest.mark.parametrize(("arrival_s", "end_s"), [(0.0, 0.2), (0.12, 0.22), (0.16, 0.46)])
def test_consecutive_layers_are_slow_if_they_begin_when_their_worker_is(
    arrival_s: float, end_s: float
) -> None:
    passes = clock([0.1, 0.1], [0.1, 0.1])
    passes.backward("gradients", False, False, 0)
    passes.arrived([(round(0.2 * S), 0, 1)])
    passes.slow(round(0.35 * S), 9 * S, 3.0)
    passes.forward(round(0.2 * S))
    assert passes.arrived([(round((0.2 + arrival_s) * S), 1, 1)]) == round((0.2 + end_s) * S)


@pytest.mark.slow
def test_a_slow_worker_is_as_slow_live(tmp_path: Path) -> None:
    """Also in the steps in which that begins and ends."""
    words = ["iterations=5", "workload=tiny", "workload.forward_ms=100", "workload.backward_ms=400"]
    words += ["+sync=fsa", "accel=[]"]
    slow = "[{at_s: 0.05, slow: west/worker0, times: 3, for_s: 1.7}]"
    sim, live = (run(tmp_path / mode, mode, slow, *words) for mode in ("sim", "live"))
    steps = [
        [row["end_s"] - row["start_s"] for row in results.iterations if row["party"] == "west"]
        for results in (sim, live)
    ]
    assert max(steps[0]) > 1.2
    for simulated_s, live_s in zip(*steps, strict=True):
        assert abs(live_s - simulated_s) < 0.4  # half of what a backward pass is longer by


@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])
def test_a_killed_node_ends_the_run(tmp_path: Path, mode: str) -> None:
    events = "[{at_s: 0.3, kill: west/worker1}]"
    with pytest.raises(NodeLost, match="west/worker1"):
        run(tmp_path / "killed", mode, events, "iterations=200", *SMALL)
    until_then = Results.load(tmp_path / "killed")
    assert until_then.iterations
    if mode == "sim":  # live nodes report what they have counted when they leave
        pushed = sum(row["bytes"] for row in until_then.links if row["kind"] == "wan")
        sent = until_then.summary["bytes"]
        assert sent["wan_push"] + sent["wan_pull"] == pushed > 0
        assert any(row["bytes"] for row in until_then.edges)


@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])
def test_a_cut_longer_than_the_patience_ends_the_run(tmp_path: Path, mode: str) -> None:
    words = ["faults.suspect_s=1", "iterations=200", *SMALL]
    with pytest.raises(NodeLost, match="nothing heard for 1000 ms"):
        run(tmp_path / "stop", mode, "[{at_s: 0.3, cut: [west, hub], for_s: 30}]", *words)


@pytest.mark.parametrize("node", ["east/worker0", "west/server", "hub/global_server0"])
@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])
def test_a_pause_delays_the_run_by_its_duration(tmp_path: Path, mode: str, node: str) -> None:
    calm = run(tmp_path / "calm", "sim", "[]", *SMALL)
    paused = run(tmp_path / "paused", mode, f"[{{at_s: 0.3, pause: {node}, for_s: 2}}]", *SMALL)
    for name, value in calm.parameters().items():
        assert np.array_equal(value, paused.parameters()[name])
    usual_s = calm.summary["seconds_per_iteration"]["p50"]
    longest_s = max(row["end_s"] - row["start_s"] for row in paused.iterations)
    assert 1.8 < longest_s < 2.0 + 2 * usual_s + (0.2 if mode == "sim" else 1.5)
    assert paused.summary["faults"] == [
        {"time_s": 0.3, "what": "pause", "node": node, "for_s": 2.0}
    ]


@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])
def test_events_may_repeat_for_ever(tmp_path: Path, mode: str) -> None:
    resets = "{every_s: 0.2, reset: [west, hub]}"
    again = f"[{{every_s: 0.3, pause: east/worker0, for_s: 0.1}}, {resets}]"
    calm = run(tmp_path / "calm", "sim", "[]", *SMALL)
    disturbed = run(tmp_path / "again", mode, again, *SMALL)
    for name, value in calm.parameters().items():
        assert np.array_equal(value, disturbed.parameters()[name])
    assert disturbed.summary["seconds"] > calm.summary["seconds"] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    "events",
    [
        "{every_s: 0.004, reset: [west, hub]}, {every_s: 0.003, reset: [east, hub]}",
        "{every_s: 0.05, cut: [west, hub], for_s: 0.045}",
        "{every_s: 0.01, pause: west/server, for_s: 0.009}",
    ],
)
def test_faults_that_no_message_escapes_end_the_simulation(tmp_path: Path, events: str) -> None:
    with pytest.raises(
        ConfigError, match=r"scenario\[\d\]\.every_s=0\.0\d+: must be longer: 10000"
    ):
        run(tmp_path, "sim", f"[{events}]", *SMALL)


@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])
def test_a_computation_takes_longer_by_the_pauses_during_it(tmp_path: Path, mode: str) -> None:
    """Also if it would end after them: a stopped process does not compute."""
    pauses = [f"{{at_s: {at_s}, pause: east/worker0, for_s: 0.2}}" for at_s in (0.1, 0.65)]
    words = ["workload=synthetic", "workload.forward_ms=400", "workload.backward_ms=1100"]
    words += ["workload.elements=[100,100,100,100]", "iterations=2", "numerics=false"]
    calm, paused = (
        run(tmp_path / name, how, f"[{','.join(events)}]", *words)
        for name, how, events in (("calm", "sim", []), ("paused", mode, pauses))
    )
    ends_s = [
        [row["end_s"] for row in each.iterations if row["worker"] == "east/worker0"]
        for each in (calm, paused)
    ]
    for usual_s, late_s in zip(*ends_s, strict=True):
        assert usual_s + 0.35 < late_s < usual_s + (0.41 if mode == "sim" else 0.8)


@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])
def test_a_pause_longer_than_the_patience_ends_the_run(tmp_path: Path, mode: str) -> None:
    for node in ("east/server", "hub/scheduler"):
        events = f"[{{at_s: 0.3, pause: {node}, for_s: 4}}]"
        with pytest.raises(NodeLost, match=node):
            run(tmp_path / node[:3], mode, events, "faults.suspect_s=1", "iterations=200", *SMALL)


# ---- the network, traffic of others, slow nodes ----


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ("{at_s: 1, traffic: [east, hub], bytes: 5}", r"traffic=.*emulate=netns only"),
        ("{at_s: 1, set: [east, hub], loss: 0.1}", r"set\.loss=0.1: .* emulate=netns only"),
        ("{every_s: 1, set: [east, hub], mbps: 9}", r"set\.every_s=1.0: live runs set"),
        ("{at_s: 1, set: [east, hub], mbps: 0}", r"the last bandwidth of a live run must not be 0"),
        ("{at_s: 1, slow: east/server, times: 2, for_s: 1}", r"live runs slow workers only"),
    ],
)
def test_what_a_live_run_cannot_do_is_refused(tmp_path: Path, event: str, sentence: str) -> None:
    network = tmp_path / "network.yaml"
    network.write_text(str(NETWORK))
    with pytest.raises(ConfigError, match=sentence):
        compose([f"network={network}", "mode=live", f"scenario=[{event}]", "workload=tiny"])


def test_a_set_bandwidth_is_a_trace_of_live_runs(tmp_path: Path) -> None:
    network = tmp_path / "network.yaml"
    network.write_text(str(NETWORK))
    events = "[{at_s: 3, set: [hub, east], mbps: 70}, {at_s: 1, set: [east, east/wan], mbps: 5}]"
    words = [f"network={network}", f"scenario={events}", "workload=tiny"]
    graph = compose([*words, "mode=both"])[0].cluster.graph
    assert graph.edges["east/wan", "hub/wan"]["trace"] == [[3.0, 70.0]]
    assert graph.edges["hub/wan", "east/wan"]["trace"] == [[3.0, 70.0]]
    assert graph.edges["east", "east/wan"]["trace"] == [[1.0, 5.0]]
    simulated = compose(words)[0]
    assert "trace" not in simulated.cluster.graph.edges["east", "east/wan"]
    launched = of_live_script(simulated)  # geomx launch
    assert launched.cluster.graph.edges["east", "east/wan"]["trace"] == [[1.0, 5.0]]


def test_what_a_launched_script_cannot_do_is_refused(tmp_path: Path) -> None:
    network = tmp_path / "network.yaml"
    network.write_text(str(NETWORK))
    for event, sentence in (
        ("{at_s: 1, slow: east/worker0, times: 2, for_s: 1}", "is for experiments, not for script"),
        ("{at_s: 1, traffic: [east, hub], bytes: 5}", "emulate=netns only"),
    ):
        composed = compose([f"network={network}", f"scenario=[{event}]", "workload=tiny"])[0]
        with pytest.raises(ConfigError, match=sentence):
            of_live_script(composed)


@pytest.mark.slow
def test_simulations_follow_all_events(tmp_path: Path) -> None:
    """Edges, traffic and slow nodes, with what the summary and edges.csv say about them."""
    calm = run(tmp_path / "calm", "sim", "[]", *SMALL)
    slow = run(
        tmp_path / "slow", "sim", "[{at_s: 0, slow: any worker, times: 4, for_s: 100}]", *SMALL
    )
    computing = 20 * 0.03
    longer = slow.summary["seconds"] - calm.summary["seconds"]
    assert longer == pytest.approx(3 * computing, rel=0.02)
    (row,) = slow.summary["faults"]
    assert row["times"] == 4.0 and row["for_s"] == 100.0 and "worker" in row["node"]
    events = (
        "[{at_s: 0.1, set: [east, hub], mbps: 40, delay_ms: 25, loss: 0.01},"
        " {at_s: 0.2, traffic: [east, hub], mbps: 20, for_s: 0.5},"
        " {at_s: 0.2, traffic: [hub, west], bytes: 1e6}]"
    )
    busy = run(tmp_path / "busy", "sim", events, *SMALL)
    assert busy.summary["seconds"] > calm.summary["seconds"] + 0.5
    sets, paced, tcp = busy.summary["faults"]
    assert sets == {
        "time_s": 0.1, "what": "set", "link": ["east", "hub"],
        "mbps": 40.0, "delay_ms": 25.0, "loss": 0.01,
    }  # fmt: skip
    assert (paced["mbps"], tcp["bytes"]) == (20.0, 1e6)
    sent = [
        {(row["source"], row["target"]): row["bytes"] for row in one.edges} for one in (calm, busy)
    ]
    edges = ("east/wan", "hub/wan"), ("hub/wan", "west/wan")
    more = [sent[1][edge] - sent[0][edge] for edge in edges]
    assert more == pytest.approx([20e6 / 8 * 0.5 * 1448 / 1500 * 0.99, 1e6], rel=1e-4)
    for name, value in calm.parameters().items():
        assert np.array_equal(value, busy.parameters()[name])


@pytest.mark.slow
def test_live_runs_follow_bandwidths_and_slow_workers(tmp_path: Path) -> None:
    events = (
        "[{at_s: 0.3, set: [east, hub], mbps: 0.01}, {at_s: 1.8, set: [east, hub], mbps: 400},"
        " {at_s: 2, slow: west/worker0, times: 5, for_s: 1}]"
    )
    words = ["iterations=40", *SMALL]
    for mode in ("sim", "live"):
        rows = run(tmp_path / mode, mode, events, *words).iterations
        held_s = max(row["wait_s"] for row in rows if row["start_s"] < 1.8)
        assert held_s == pytest.approx(1.5, abs=0.3)
        took = {row["compute_s"] for row in rows if row["worker"] == "west/worker0"}
        assert sorted(took) == pytest.approx([0.03, 0.15])


# ---- events that multiply ----

STILL = (
    "east/worker0 would take 1e+12 times as long: overlapping events `slow` multiply, and may come "
    "to more than 0 and at most 1000000; let fewer of them overlap"
)


def test_a_node_cannot_be_slowed_without_a_bound(tmp_path: Path) -> None:
    slow = [{"slow": "east/worker0", "at_s": 0.001, "times": 1e6, "for_s": 9}] * 2
    network = tmp_path / "network.json"
    network.write_text(json.dumps(NETWORK))
    events = tmp_path / "events.yaml"
    events.write_text(json.dumps(slow))
    words = [f"network={network}", f"scenario={events}", "workload=tiny", "numerics=false"]
    with pytest.raises(GeomxError) as caught:
        runner.run([*words, "iterations=2"])
    assert str(caught.value) == STILL


@pytest.mark.parametrize("apart_s", [1.0, 9.0])
def test_a_live_worker_cannot_be_slowed_without_a_bound(cluster: Cluster, apart_s: float) -> None:
    events = [
        {"slow": "east/worker0", "at_s": at_s, "times": 1e6, "for_s": 8}
        for at_s in (1, 1 + apart_s)
    ]
    scenario = Scenario(read_scenario(events, cluster), cluster, 0)
    told: list[float] = []
    clock = SimpleNamespace(slow=lambda start, end, times: told.append(times))
    member: Any = SimpleNamespace(node=cluster.workers[0], late=False, resumed=False)
    events_of_clock = WorkerEvents(clock, scenario, member)
    if apart_s < 8:
        with pytest.raises(GeomxError) as caught:
            events_of_clock.tell(0)
        assert str(caught.value) == STILL
    else:
        events_of_clock.tell(0)
        assert told == [1e6, 1e6]
