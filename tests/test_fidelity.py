"""Laws of ``benchmarks/fidelity``: draws follow from the seed, judgement from the rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from sim_vs_live.draw import LEAST_ITERATIONS, MOST_ITERATIONS, draw
from sim_vs_live.judge import judge, row_of
from sim_vs_live.measure import measure


def made(words: str, place: int, sim_s: float, *live_s: float, sent: int = 10) -> dict:
    def run(seconds: float, sent: int) -> dict:
        phases = {"compute": 0.0, "wait": seconds, "push": 0.0, "pull": 0.0}
        traffic = {"a -> b": (sent, 1), "b -> a": (10, 1)}
        figures = {"seconds": seconds, "loss": None, "behind": 0.0}
        return {**figures, "phases": phases, "traffic": traffic}

    return row_of([words], place, run(sim_s, 10), [run(seconds, sent) for seconds in live_s])


def test_a_longer_draw_begins_with_the_shorter_one():
    short, longer = (draw(3, count, seconds=1.0) for count in (2, 5))
    assert longer[:2] == short
    assert [one.place.number for one in longer] == [0, 0, 0, 0, 1]
    assert len({one.own for one in longer[:4]}) == 4
    assert all(LEAST_ITERATIONS <= one.iterations <= MOST_ITERATIONS for one in longer)


def test_another_seed_draws_others():
    assert draw(4, 1, seconds=1.0) != draw(3, 1, seconds=1.0)


def test_what_is_measured_is_kept(tmp_path):
    words = ["numerics=false", "iterations=2"]
    (first, _), (second, _) = (measure(words, tmp_path, 0) for _ in range(2))
    assert second.summary["wall_seconds"] == first.summary["wall_seconds"]
    (other, _) = measure([*words, "seed=1"], tmp_path, 0)
    assert other.summary["wall_seconds"] != first.summary["wall_seconds"]


def test_errors_are_of_the_median_live_run():
    row = made("x", 0, 1.1, 1.0, 0.9, 5.0)
    assert row["live_s"] == 1.0
    assert row["error"] == pytest.approx(0.1)
    assert row["noise"] == pytest.approx([0.0, -0.1, 4.0])


def test_order_and_regret_within_places():
    rows = [
        made("a", 0, 1.0, 1.2),
        made("b", 0, 1.1, 1.0),  # the better one, which the simulator puts second
        made("c", 1, 10.0, 10.0),
        made("d", 1, 20.0, 20.0),
    ]
    figures = judge(rows)
    assert figures["tau_within_places"] == pytest.approx(0.0)  # one pair right, one wrong
    assert figures["tau"] == pytest.approx(4 / 6)
    assert figures["regret"] == pytest.approx((0.2 + 0.0) / 2)
    assert figures["noise_median"] is None  # one live run each says nothing about noise


def test_bytes_that_differ_on_one_link_are_seen():
    figures = judge([made("a", 0, 1.0, 1.0), made("b", 0, 1.0, 1.0, sent=8)])
    assert figures["bytes_equal"] == 1
    assert figures["bytes_worst"] == pytest.approx(0.2)
