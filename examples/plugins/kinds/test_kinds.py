"""Every plugin of this project satisfies geomx's laws, and does what its module describes."""

import numpy as np
import pytest
from geomx_kinds.adabelief import AdaBeliefConfig, Belief
from geomx_kinds.apart import LargestAlone
from geomx_kinds.branches import TreeCoordinator
from geomx_kinds.stalls import Stalls, StallsConfig
from geomx_kinds.tails import BEST_EFFORT, Window

import geomx
from geomx.events import Event
from geomx.testing import check_plugin
from geomx.workload import TensorSpec

LOSSY = """
central: {name: hub, uplink_mbps: 100, downlink_mbps: 100}
parties:
  east: {workers: 1, uplink_mbps: 100, downlink_mbps: 100}
  west: {workers: 1, uplink_mbps: 100, downlink_mbps: 100}
delay_ms: 20
loss: 0.05
lan: {mbps: 10000, delay_ms: 0.05}
"""


NAMES = ("tails", "apart", "branches", "adabelief", "ratings", "stalls", "crowd", "packets")


@pytest.mark.parametrize("name", NAMES)
def test_laws(name) -> None:
    check_plugin(name)


def test_every_row_is_at_risk_once_in_so_many_rounds() -> None:
    window, risked = Window(0.25), np.zeros(1000, int)
    for number in range(5):
        for first, rows, _, channel in window.cut([(0, 1000, 0, 0)], 4.0, number):
            risked[first : first + rows] += channel == BEST_EFFORT
    assert (risked == 1).all()
    assert window.cut([(0, 16, 0, 0)], 4.0, 1) == [(0, 16, 0, 0)]  # too short for a window


def test_what_is_lost_is_missed_and_the_rest_is_learnt(tmp_path) -> None:
    file = tmp_path / "lossy.yaml"
    file.write_text(LOSSY)
    words = [f"network={file}", "workload=ratings", "iterations=60", "evaluate_every=20"]
    words += [f"hydra.run.dir={tmp_path / 'run'}"]
    results = geomx.run([*words, "+accel=[tails]"])
    assert results.summary["best_effort_slices"]["missing"] > 0
    losses = [row["loss"] for row in results.evaluations]
    assert losses[-1] < 0.8 * losses[0]


def test_the_largest_are_alone() -> None:
    sizes = (5, 100, 7, 50, 6)
    tensors = [TensorSpec(f"t{size}", (size,), 0) for size in sizes]

    def servers(count: int, most: int) -> list[int]:
        placed = LargestAlone(count, most, tensors)
        return [placed.server(key, 0, []) for key in range(len(tensors))]

    assert servers(1, 1) == [0] * 5
    assert servers(3, 1) == [2, 0, 2, 1, 1]
    assert servers(3, 9) == [2, 0, 2, 1, 2]


@pytest.mark.parametrize("width", [1, 2, 5])
def test_members_are_served_once_and_none_serves_more_than_the_width(width, monkeypatch) -> None:
    monkeypatch.setattr(geomx.OverlayReport, "read", lambda report: report)
    root, members = 1, list(range(10, 23))
    report = geomx.OverlayReport("origin", root, 0, 0, 3, 0, None, 0, members)
    coordinator, have, orders = TreeCoordinator(width), [root], []
    for source in have:  # grows as members are served
        what = "origin" if source == root else "has"
        said = coordinator.on_report(source, report._replace(what=what), 0.0)
        assert len(said) <= width and all(member == source for member, _ in said)
        have += members[len(orders) : len(orders) + len(said)]
        orders += [order for _, order in said]
    assert orders == [geomx.overlay_order("pull", report, member) for member in members]
    assert coordinator.lacking == {}


def test_a_bowl_has_a_bottom() -> None:
    belief, scale = Belief(AdaBeliefConfig(rate=1)), np.array([1.0, 100.0])
    weight = np.array([1.0, -1.0])
    for _ in range(500):
        weight = belief.update(weight, scale * weight, 0.02)
    assert np.abs(weight).max() < 1e-3


def test_a_long_iteration_is_reported_with_its_worker(capsys) -> None:
    stalls, ends = Stalls(StallsConfig(times=2)), [1, 2, 3, 4, 5, 6, 9, 10]
    stalls.observe([Event(end, "east/worker0", "iteration", -1, i) for i, end in enumerate(ends)])
    assert capsys.readouterr().err == "east/worker0: iteration 6 took 3 s\n"


def test_a_crowd_shares_the_wan_in_simulations_only(tmp_path) -> None:
    words = ["workload=ratings", "iterations=20", "network=two_parties"]
    ends = {}
    for name in ("", "crowd"):
        run = [f"+accel=[{name}]", f"hydra.run.dir={tmp_path / f'run{name}'}"]
        run += [f"accel.{name}.every_s=0.1"] if name else []
        ends[name] = geomx.run([*words, *run]).summary["seconds"]
    assert ends["crowd"] > ends[""]
    with pytest.raises(geomx.ConfigError, match="mode=live: accel crowd: geomx_scenario acts on"):
        geomx.run([*words, "+accel=[crowd]", "mode=live"])
