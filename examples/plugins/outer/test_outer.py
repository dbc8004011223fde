"""The example keeps geomx's laws of sync algorithms; a plain outer step averages parameters."""

import pytest

import geomx
from geomx.testing import check_plugin

WORDS = ["workload=tiny", "iterations=12", "evaluate_every=12"]


def run(folder, *words):
    return geomx.run([*WORDS, *words, f"hydra.run.dir={folder}"])


def test_laws() -> None:
    check_plugin("outer")


def test_a_plain_outer_step_after_every_step_is_the_mean_of_all(tmp_path) -> None:
    """With SGD as inner optimizer, averaging parameters is equivalent to full synchronisation."""
    plain = ["sync=outer", "sync.h=1", "sync.outer_lr=1", "sync.momentum=0"]
    mine = run(tmp_path / "mine", *plain).parameters()
    full = run(tmp_path / "full").parameters()
    for name, value in full.items():
        assert mine[name] == pytest.approx(value, abs=2e-6)


def test_the_wan_carries_one_round_in_h(tmp_path) -> None:
    often = run(tmp_path / "often", "sync=outer", "sync.h=1").summary["bytes"]
    seldom = run(tmp_path / "seldom", "sync=outer", "sync.h=6").summary["bytes"]
    for kind in ("wan_push", "wan_pull", "lan"):
        assert seldom[kind] == often[kind] / 6
