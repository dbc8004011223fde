"""Laws of ``benchmarks/fidelity``: draws depend on the seed, and statistics on the rows."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from geomx.config.compose import compose
from geomx.options.schema import RuntimeOptions

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from sim_vs_live.draw import (
    LEARNS,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    Combination,
    Place,
    draw,
    write_network,
)
from sim_vs_live.judge import GOALS, judge, row_of
from sim_vs_live.measure import measure
from sim_vs_live.pace import batch_s, keepable, slowed, slower
from sim_vs_live.page import FIGURES, in_full, overview, title
from sim_vs_live.scenarios import OUTAGE_S, events, write_scenario
from sim_vs_live.study import published, renew


def made(words: str, place: int, sim_s: float, *live_s: float, sent: int = 10) -> dict:
    def run(seconds: float, sent: int) -> dict:
        phases = {"compute": 0.0, "wait": seconds, "push": 0.0, "pull": 0.0}
        traffic = {"a -> b": (sent, 1), "b -> a": (10, 1)}
        figures = {"seconds": seconds, "loss": None, "behind": 0.0}
        return {**figures, "phases": phases, "traffic": traffic}

    return row_of([words], place, run(sim_s, 10), [run(seconds, sent) for seconds in live_s])


@pytest.mark.slow
def test_a_longer_draw_extends_a_shorter_one():
    short, longer = (draw(3, count, seconds=1.0) for count in (2, 5))
    assert longer[:2] == short
    assert [one.place.number for one in longer] == [0, 0, 0, 0, 1]
    assert len({one.own for one in longer[:4]}) == 4
    assert all(LEAST_ITERATIONS <= one.iterations <= MOST_ITERATIONS for one in longer)


@pytest.mark.slow
def test_draws_depend_on_the_seed():
    assert draw(4, 1, seconds=1.0) != draw(3, 1, seconds=1.0)


def place(forward_ms: int = 20, model: tuple[str, ...] = LEARNS) -> Place:
    parties = {
        name: {"workers": 2, "uplink_mbps": 50, "downlink_mbps": 50} for name in ("east", "west")
    }
    central = {"name": "hub", "global_servers": 1, "uplink_mbps": 50, "downlink_mbps": 50}
    delay = {"hub": {"east": 5, "west": 5}, "east": {"west": 5}}
    network = {"name": "pair", "central": central, "parties": parties, "delay_ms": delay}
    return Place(0, network, model, forward_ms)


def test_a_place_is_as_slow_as_the_machine_needs():
    assert slowed(place(20), taken_s=0.03) == place(20)  # 60 ms requested, 60 needed
    assert slowed(place(20), taken_s=0.031) == place(30)
    assert slowed(place(50), taken_s=0.2).batch_ms == 420
    assert slower({3: [20, 30]}).endswith("at place 3 (20 -> 30 ms)")


def test_a_resumed_study_has_the_same_places(tmp_path):
    """Stored measurements are used even if the machine is slower now."""
    sizes = Place(1, place().network, ("workload=synthetic",), 20)
    drawn = [Combination(at.number, at, ("sync=fsa",), 12) for at in (place(), sizes)]
    first = keepable(drawn, tmp_path, lambda at: 0.001 * at.batch_ms)
    assert [one.place.forward_ms for one in first] == [40, 20]
    assert keepable(drawn, tmp_path, lambda at: 1.0) == first


@pytest.mark.slow
def test_a_batch_is_measured_with_all_workers_at_once():
    assert 0.001 < batch_s(place(), measured_s=0.5) < 10


def test_a_file_is_as_old_as_its_content(tmp_path):
    file = tmp_path / "place.yaml"
    for content, changes in (("a", True), ("a", False), ("b", True)):
        if file.exists():
            os.utime(file, (1, 1))
        renew(file, lambda path, text=content: path.write_text(text))
        assert file.read_text() == content
        assert (file.stat().st_mtime > 1) == changes
    assert [path.name for path in tmp_path.iterdir()] == ["place.yaml"]


@pytest.mark.slow
def test_measurements_of_another_network_file_are_repeated(tmp_path):
    file = tmp_path / "place.yaml"
    write_network(place(), file)
    words = [f"network={file}", "numerics=false", "iterations=2"]
    (first, _), (second, _) = (measure(words, tmp_path, 0, [file]) for _ in range(2))
    assert second.summary["wall_seconds"] == first.summary["wall_seconds"]
    os.utime(file)  # it has changed since
    (other, _) = measure(words, tmp_path, 0, [file])
    assert other.summary["wall_seconds"] != first.summary["wall_seconds"]


@pytest.mark.slow
def test_simulations_have_the_cores_of_this_process(tmp_path):
    (sim, _) = measure(["numerics=false", "iterations=2"], tmp_path, 0)
    assert f"costs.cores={len(os.sched_getaffinity(0))}" in sim.summary["words"]


@pytest.mark.slow
def test_measurements_are_stored(tmp_path):
    words = ["numerics=false", "iterations=2"]
    (first, _), (second, _) = (measure(words, tmp_path, 0) for _ in range(2))
    assert second.summary["wall_seconds"] == first.summary["wall_seconds"]
    (other, _) = measure([*words, "seed=1"], tmp_path, 0)
    assert other.summary["wall_seconds"] != first.summary["wall_seconds"]


def test_errors_are_relative_to_the_median_live_run():
    row = made("x", 0, 1.1, 1.0, 0.9, 5.0)
    assert row["live_s"] == 1.0
    assert row["error"] == pytest.approx(0.1)
    assert row["noise"] == pytest.approx([0.0, -0.1, 4.0])


def test_noise_leaves_out_the_run_that_is_the_median():
    for live_s in ((0.9, 1.0, 1.1), (0.9, 1.1)):
        figures = judge([made("x", 0, 1.0, *live_s), made("y", 0, 2.0, 1.0)])
        assert figures["noise_median"] == pytest.approx(0.1)


def test_order_and_regret_within_places():
    rows = [
        made("a", 0, 1.0, 1.2),
        made("b", 0, 1.1, 1.0),  # faster live, slower in simulation
        made("c", 1, 10.0, 10.0),
        made("d", 1, 20.0, 20.0),
    ]
    figures = judge(rows)
    assert figures["tau_within_places"] == pytest.approx(
        0.0
    )  # one of two pairs is ordered correctly
    assert figures["tau"] == pytest.approx(4 / 6)
    assert figures["regret"] == pytest.approx((0.2 + 0.0) / 2)
    assert figures["noise_median"] is None  # noise needs several live runs


def test_different_bytes_on_one_link_are_found():
    figures = judge([made("a", 0, 1.0, 1.0), made("b", 0, 1.0, 1.0, sent=8)])
    assert figures["bytes_equal"] == 1
    assert figures["bytes_worst"] == pytest.approx(0.2)


@pytest.mark.slow
@pytest.mark.parametrize("emulate", ["shaper", "netns"])
def test_drawn_scenarios_fit_the_place(emulate: str, tmp_path: Path):
    """They follow from the seed, and are no reason to call a member lost."""
    assert events(1, place(), 4.0, emulate) == events(1, place(), 4.0, emulate)
    assert OUTAGE_S[1] < RuntimeOptions().failure_timeout_s
    drawn = [events(seed, place(), 4.0, emulate) for seed in range(40)]
    kinds = {key for some in drawn for event in some for key in event}
    assert {"set", "slow", "pause", "cut"} <= kinds
    assert ("traffic" in kinds) == (emulate == "netns")
    network = tmp_path / "network.yaml"
    write_network(place(), network)
    for number, some in enumerate(drawn[:8]):
        write_scenario(some, file := tmp_path / f"{number}.yaml")
        compose([f"network={network}", f"scenario={file}", "mode=live", f"emulate={emulate}",
                 f"hydra.run.dir={tmp_path / str(number)}"])  # fmt: skip


# ---- published results ----


def test_a_published_study_has_its_figures_all_errors_and_the_worst_combinations():
    rows = [made(f"sync={n}", n // 4, 1.0 + 0.01 * n, 1.0) for n in range(12)]
    study = {"seed": 1, "emulate": "shaper", "repeats": 1, "slowed": {}, "machine": "one"}
    kept = published({**study, "rows": rows, "figures": judge(rows)})
    assert [row["error"] for row in kept["rows"]] == [row["error"] for row in rows]
    assert len(json.dumps(kept)) < 3000
    page = overview([kept])
    assert "| median error | 5.5 % |" in page
    assert [n for n in range(12) if f" sync={n} " in page] == [7, 8, 9, 10, 11]
    full = in_full(rows, judge(rows), "all of it")
    assert all(f" sync={n} " in full for n in range(12))


def test_the_page_has_the_figures_of_the_results():
    """The table of docs/fidelity.md equals the published studies and goals."""
    studies = json.loads((ROOT / "benchmarks/results/fidelity.json").read_text("utf-8"))
    named = {title(one): one["figures"] for one in studies}
    order = [f"shaper, seed {seed}" for seed in (1, 2)]
    order += [f"netns, seed {seed}" for seed in (1, 2, 3, 4, 5)]
    assert sorted(order) == sorted(name for name in named if "scenarios" not in name)
    text = (ROOT / "docs/fidelity.md").read_text("utf-8")
    table = text.partition("<!-- measured -->\n")[2].partition("<!-- end -->")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    shown = {line[0]: line[1:] for line in lines[2:]}
    for key, (name, written) in FIGURES.items():
        found = [named[study][key] for study in order]
        if all(value is None for value in found):
            continue
        assert shown[name][1:3] + shown[name][4:] == [written(value) for value in found], name
        for column, emulate in ((0, "shaper"), (3, "netns")):
            goal = GOALS[emulate].get(key)
            written_goal = "" if goal is None else f"{goal}" if key == "tau" else f"{goal:.0%}"
            assert shown[name][column].replace(" ", "") == written_goal, name
    assert len(shown) == sum(any(named[s][key] is not None for s in order) for key in FIGURES)
