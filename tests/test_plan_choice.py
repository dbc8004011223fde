"""Plans: failures with one seed, a baseline that is not to be chosen, and losses of the search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import geomx
from geomx import planning
from geomx.planning import judge as judging
from geomx.planning.candidates import BASELINE, Candidate
from geomx.planning.judge import Judge
from geomx.planning.outcome import Outcome, Standing
from geomx.planning.search import _loss
from geomx.plugin.registry import Registry
from geomx.plugin.sync import SyncPolicy
from geomx.study.variants import Variant, carry_out
from tests.laws import registry_with


@pytest.mark.slow
@pytest.mark.needs("fp16")
def test_a_candidate_that_fails_with_one_seed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if later seeds work."""
    tried: Counter[Path] = Counter()

    def failing(variants: Sequence[Variant], jobs: int) -> Iterator[tuple[Path, str]]:
        for variant in variants:
            place = variant.directory
            tried[place] += 1
            assert tried[place] < 3, "a plan goes on trying"
            if "fp16" in place.parent.name and place.name == "train_seed1":
                yield place, "diverged"
            else:
                yield from carry_out([variant], 1)

    monkeypatch.setattr(judging, "carry_out", failing)
    words = ["workload=tiny", "iterations=8", "plan.sync=[fsa]", "plan.accel=[fp16]"]
    words += ["plan.options=false", "plan.seeds=3", f"hydra.run.dir={tmp_path / 'plan'}"]
    plan = planning.make(words)
    rows = {row["name"]: row for row in plan.content["candidates"]}
    assert (rows["fsa + fp16"]["status"], rows["fsa + fp16"]["reason"]) == ("refused", "diverged")
    assert [row["name"] for row in plan.ranked] == ["fsa"]
    assert plan.ranked[0]["seconds"]["seeds"] == 3


@pytest.mark.slow
def test_a_baseline_that_is_not_to_be_chosen_has_no_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it is before all others: here by its name, before another one that does the same."""

    class Alike:
        """A sync algorithm that does what the baseline does."""

        @geomx.hookimpl
        def geomx_sync_policy(self, cluster: Any) -> SyncPolicy:
            return SyncPolicy()

    registry = registry_with(later=("sync", Alike()))
    monkeypatch.setattr(Registry, "discover", classmethod(lambda cls: registry))
    words = ["workload=tiny", "numerics=false", "iterations=3", "plan.accel=[]", "plan.jobs=1"]
    words += ["plan.seeds=1", f"hydra.run.dir={tmp_path / 'plan'}"]
    either = planning.make([*words, "plan.sync=[fsa,later]"])
    assert [row["name"] for row in either.ranked] == [BASELINE.name, "later"]
    assert either.content["baseline"] is None
    plan = planning.make([*words, "plan.sync=[later]"])
    assert [row["name"] for row in plan.content["candidates"]] == ["later"]
    assert "sync=later" in plan.content["command"]
    assert plan.content["baseline"]["name"] == BASELINE.name
    assert ("", BASELINE.name) in [(rank, row["name"]) for rank, row in plan._lines()]
    assert any("first choice: later" in said for said in plan.verdict())
    assert plan.content["simulated"] == 1


def outcome(seconds: float | None, accuracy: float) -> Outcome:
    """Return a run of 100 iterations of 50 ms."""
    iterations = None if seconds is None else 100
    return Outcome(0.05, seconds, iterations, accuracy, accuracy, 0.0)


def test_a_search_prefers_what_reaches_a_target_that_the_baseline_misses() -> None:
    def standing(name: str, seconds: float | None, accuracy: float) -> Standing:
        one = Standing(Candidate(name), lossless=False, sized=outcome(None, 0.0))
        one.outcomes[0] = outcome(seconds, accuracy)
        return one

    baseline = Standing(BASELINE, lossless=True, sized=outcome(None, 0.0))
    baseline.outcomes[0] = outcome(None, 0.88)
    reached, slow, missed = (
        standing("reached", 5.0, 0.9), standing("slow", 60.0, 0.9), standing("missed", None, 0.88),
    )  # fmt: skip
    judge = Judge.__new__(Judge)
    judge._base = cast(Any, SimpleNamespace(seed=0, iterations=100))
    judge._space = cast(Any, SimpleNamespace(has=lambda candidate: True))
    judge.by, judge.target, judge.numerics, judge._every = "time_to_accuracy", 0.9, True, 1
    judge.standings = {one.candidate: one for one in (baseline, reached, slow, missed)}
    losses = [_loss(judge, one) for one in (reached, slow, missed, baseline)]
    assert losses[:2] == [math.log(5.0), math.log(60.0)]
    assert all(loss is not None and loss > math.log(60.0) for loss in losses[2:])


def test_one_party_alone_is_not_hindered_by_a_preset(tmp_path: Path) -> None:
    """Which sets values of its own network, and how live runs emulate it."""
    text = "# @package _global_\nnetwork: {delay_ms: 40}\nemulate: netns\n"
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/mine.yaml").write_text(text)
    words = ["experiment=mine", f"hydra.searchpath=[file://{tmp_path}]", "workload=tiny"]
    words += ["numerics=false", "iterations=3", "plan.sync=[fsa]", "plan.accel=[]", "plan.jobs=1"]
    plan = planning.make([*words, f"hydra.run.dir={tmp_path / 'plan'}"])
    assert plan.content["alone"]["status"] == "ranked", plan.content["alone"]["reason"]
    assert plan.content["simulator_error"]["source"].endswith("emulate=netns")
