"""Options of networks: how long workers' steps take, drawn alike in both modes, and how sites share
edges."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import Any

import pytest

import geomx
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.network.files import read_network, to_node_link
from geomx.training.step_times import StepTimes
from tests.laws import Build, short_form

RULES = [
    {"lognormal": {"sigma": 0.3}},
    {"workers": ["party1"], "stragglers": {"share": 0.3, "times": 4, "steps": 5}},
    {"workers": "party1/worker0", "trace": [1, 2.5]},
]


def with_rules(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**short_form(2, 1), "steps": list(rules), **more}


# ---- steps ----


@pytest.mark.parametrize(
    ("rule", "median", "mean"),
    [
        ({"lognormal": {"sigma": 0.5}}, 1.0, 1.1331),
        ({"uniform": {"low": 0.5, "high": 2.5}}, 1.5, 1.5),
        ({"exponential": {"mean": 0.4}}, 1.2773, 1.4),
        ({"pareto": {"shape": 3}}, 1.2599, 1.5),
        ({"stragglers": {"share": 0.2, "times": 6, "steps": 1}}, 1.0, 2.0),
        ({"trace": [1, 1, 4]}, 1.0, 2.0),
    ],
)
def test_steps_follow_their_distribution(
    rule: dict[str, Any], median: float, mean: float, seed: int
) -> None:
    times = StepTimes([rule], seed, "party0/worker0")
    drawn = [times.at(step) for step in range(6000)]
    assert statistics.median(drawn) == pytest.approx(median, rel=0.05)
    assert statistics.fmean(drawn) == pytest.approx(mean, rel=0.05)


def test_a_draw_depends_on_seed_worker_rule_and_step_alone() -> None:
    cluster = read_network(with_rules(*RULES))
    first, *_, last = cluster.workers
    assert [len(cluster.graph.nodes[worker.name]["steps"]) for worker in cluster.workers] == [
        1,
        1,
        3,
    ]
    forwards = [StepTimes.of(cluster, 3, last).at(step) for step in range(40)]
    again = StepTimes.of(read_network(to_node_link(cluster.graph)), 3, last)
    assert [again.at(step) for step in reversed(range(40))] == forwards[::-1]
    assert StepTimes.of(cluster, 4, last).at(0) != forwards[0]
    assert StepTimes.of(cluster, 3, first).at(0) != forwards[0]
    slow = StepTimes([RULES[1]], 3, "w")
    blocks = [{slow.at(step) for step in range(5 * block, 5 * block + 5)} for block in range(30)]
    assert all(len(block) == 1 for block in blocks) and set.union(*blocks) == {1.0, 4.0}
    own = StepTimes([{**RULES[0], "seed": 8}], 3, "w").at(1)
    assert own == StepTimes([{**RULES[0], "seed": 8}], 5, "w").at(1)


def computed(directory: Path) -> dict[tuple[str, int], float]:
    with (directory / "iterations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["worker"], int(row["iteration"])): float(row["compute_s"]) for row in rows}


def test_simulated_steps_take_what_is_drawn(simulate: Build, sized: Build, seed: int) -> None:
    wan = with_rules(*RULES)
    run = simulate(wan, sized(1000, forward_s=0.01, backward_s=0.03), iterations=12)
    cluster = run.simulation.experiment.cluster
    took = computed(run.results.directory)
    for worker in cluster.workers:
        times = StepTimes.of(cluster, seed, worker)
        for step in range(12):
            assert took[worker.name, step] == pytest.approx(0.04 * times.at(step), rel=1e-6)
    assert run.results.summary["skipped_iterations"] == 0


@pytest.mark.slow
def test_live_workers_keep_the_pace_that_simulated_ones_draw(tmp_path: Path) -> None:
    words = ["workload=tiny", "workload.forward_ms=4", "workload.backward_ms=8", "iterations=6"]
    words += ["mode=both", "network=two_parties", "network.parties.beijing.workers=1"]
    words += ["network.parties.chengdu.workers=1", "+network.steps=[{uniform:{low:1,high:9}}]"]
    geomx.run([*words, f"hydra.run.dir={tmp_path}"])
    simulated, live = (computed(tmp_path / mode) for mode in ("sim", "live"))
    assert len(set(simulated.values())) == 12
    assert live == pytest.approx(simulated, rel=1e-6)


@pytest.mark.slow
def test_live_steps_need_a_pace() -> None:
    words = ["workload=tiny", "mode=live", "+network.steps=[{trace:[2]}]", "network=two_parties"]
    with pytest.raises(ConfigError, match=r"runtime.pace=false: the network's steps need"):
        compose([*words, "runtime.pace=false"])
    compose(words)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({}, r"steps\[0\] must have one of lognormal, uniform, exponential, pareto, stragglers"),
        ({"lognormal": {"sigma": 4}}, r"steps\[0\].lognormal.sigma is 4; it must be at most 3"),
        ({"uniform": {"low": 2, "high": 1}}, "uniform.high is 1; it must be low or more"),
        ({"uniform": {"low": 2}}, "uniform.high is missing"),
        ({"pareto": {"shape": 0.5}}, "pareto.shape is 0.5; it must be 1 or more"),
        ({"exponential": {"mean": 0}}, "exponential.mean is 0; it must be more than 0"),
        ({"trace": []}, "trace must be a file or a list of multiples"),
        ({"trace": [1, -1]}, r"row 2 of steps\[0\].trace is -1"),
        ({"trace": "none.csv"}, "trace is none.csv, which cannot be read"),
        ({"stragglers": {"share": 0.2, "times": 3, "steps": 0}}, "stragglers.steps is 0; it must"),
        ({"stragglers": {"share": 2, "times": 3}}, "stragglers.share is 2; it must be at least 0"),
        ({"normal": {}}, r"unknown key steps\[0\].normal"),
        (
            {"trace": [1], "workers": ["east"]},
            "no worker or site east; allowed: party0, party0/worker0, party0/worker1, party1,",
        ),
    ],
)
def test_impossible_rules_are_refused(rule: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_network(with_rules(rule))


def test_nodes_that_make_no_steps_have_no_rules() -> None:
    content = to_node_link(read_network(with_rules()).graph)
    server = next(node for node in content["nodes"] if node["kind"] == "server")
    server["steps"] = [{"trace": [2]}]
    with pytest.raises(ConfigError, match="a server makes no steps; give workers the rule"):
        read_network(content)


def test_a_trace_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "slow.csv").write_text("times\n1\n3.5\n")
    content = with_rules({"workers": ["party1"], "trace": "slow.csv"}, folder=str(tmp_path))
    cluster = read_network(content)
    times = StepTimes.of(cluster, 0, cluster.workers[-1])
    assert [times.at(step) for step in range(3)] == [1.0, 3.5, 1.0]


# ---- sharing ----

RATE = 80e6 / 8 * 1448 / 1500


@pytest.mark.parametrize(
    ("sharing", "first", "second"),
    [
        ("maxmin", 2.0, 2.0),
        ("fifo", 2.0, 2.0),
        ({"weighted": {"party0": 3}}, 4 / 3, 2.0),
        ({"weighted": {"party0": 3, "party1": 2}}, 5 / 3, 2.0),
        ({"strict": ["party0"]}, 1.0, 2.0),
        ({"strict": ["party1", "party0"]}, 2.0, 1.0),
    ],
)
def test_two_sites_share_the_hub_as_the_network_says(
    simulate: Build, sized: Build, sharing: Any, first: float, second: float
) -> None:
    """How long each push is under way, in times of one that is alone."""
    elements = 5_000_000
    wan = {**short_form(1, 1, mbps=8000, delay_ms=0), "sharing": sharing}
    wan["central"] |= {"downlink_mbps": 80, "uplink_mbps": 1e6}
    busy = []
    for iterations in (1, 2):
        run = simulate(wan, sized(elements), iterations=iterations, numerics=False)
        rows = {(row["source"], row["target"]): row["busy_s"] for row in run.results.links}
        busy.append([rows[f"party{n}/server", "hub/global_server0"] for n in (0, 1)])
    alone = 4 * elements / RATE
    took = [(two - one) / alone for one, two in zip(*busy, strict=True)]
    assert took == pytest.approx([first, second], rel=0.01)


def test_background_transfers_wait_for_all_sites_of_a_strict_order(
    simulate: Build, sized: Build
) -> None:
    from geomx.scenario.programs import Program

    wan = {**short_form(1, 1, mbps=8000, delay_ms=0), "sharing": {"strict": ["party1", "party0"]}}
    wan["central"] |= {"downlink_mbps": 80, "uplink_mbps": 1e6}
    ends = {}

    def copies(world: Any) -> None:
        for priority in (-1, 1):
            copy = world.wan.transfer("party0", "hub", RATE, priority=priority)
            copy.callbacks.append(lambda _, p=priority: ends.setdefault(p, world.now_s))

    programs = (Program("program", copies),)
    run = simulate(wan, sized(5_000_000), iterations=1, numerics=False, programs=programs)
    assert ends[1] == pytest.approx(1.0, rel=0.01)
    assert -1 not in ends or ends[-1] >= run.results.summary["seconds"] - 1e-9


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("fair", "sharing must be maxmin, fifo, {weighted: {SITE: WEIGHT}} or {strict"),
        ({"weighted": {"east": 2}}, "sharing.weighted.east: there is no site east"),
        ({"weighted": {"party0": 0}}, "sharing.weighted.party0 is 0; it must be more than 0"),
        ({"strict": ["party0", "party0"]}, "sharing.strict names a site twice"),
    ],
)
def test_impossible_sharing_is_refused(rule: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_network({**short_form(1, 1), "sharing": rule})


@pytest.mark.slow
def test_live_runs_refuse_what_their_network_does_not_do() -> None:
    words = ["workload=tiny", "+network.sharing={strict:[beijing]}", "network=two_parties"]
    assert compose(words)[0].cluster.graph.graph["sharing"] == {"strict": ["beijing"]}
    for mode in ("live", "both"):
        with pytest.raises(ConfigError, match=r"network.sharing=.*no site goes first in live runs"):
            compose([*words, f"mode={mode}"])


def test_queues_are_fifo_where_kernels_have_them() -> None:
    words = ["workload=tiny", "network=two_parties"]
    assert [
        compose([*words, f"emulate={emulate}"])[0].fifo for emulate in ("shaper", "netns", "none")
    ] == [False, True, True]
    for rule, fifo in (("maxmin", False), ("fifo", True), ("{strict:[beijing]}", False)):
        chosen = compose([*words, f"+network.sharing={rule}", "emulate=netns"])[0]
        assert chosen.fifo is fifo
    assert not compose([*words, "emulate=netns", "tcp.congestion=cubic"])[0].fifo
    live = [*words, "+network.sharing=fifo", "mode=live"]
    with pytest.raises(ConfigError, match=r"network.sharing=fifo: the shaper shares by max-min"):
        compose(live)
    compose([*live, "emulate=netns"])
