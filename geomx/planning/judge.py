"""Candidates are judged from cheap to dear: sizes and times first, then training, then more seeds.

Simulating sizes and times alone costs milliseconds, real gradients cost seconds. So every candidate
is first simulated without gradients, which gives its time per iteration. From that follows a bound
below which its time cannot fall, and candidates are trained in the order of their bounds until the
bound of the next is above what the best `KEPT` have already. The bound for time to an accuracy
rests on one assumption: that nobody needs less than `EAGER` of the baseline's iterations.

Every run is a variant of a study (`geomx.study`) with a folder of its own, so what is finished is
not run again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joblib import cpu_count

from geomx.config import PER_ITERATION, TO_ACCURACY, PlanOptions
from geomx.errors import GeomxError
from geomx.experiment import Experiment
from geomx.planning.candidates import BASELINE, Candidate, Space
from geomx.progress import progress
from geomx.report.comparison import TARGET_SHARE
from geomx.results import Results
from geomx.study import Variant, carry_out, finished, key_of

KEPT = 5
"""So many of the best are exact: trained, whatever their bounds, and run with several seeds."""
EAGER = 0.5
"""Nobody is assumed to reach the target in less than this part of the baseline's iterations."""
SLACK = 0.9
"""Training changes the time of an iteration by no more than this factor (codecs that adapt)."""
ROOM = 1.05
"""A candidate is trained for this much longer than the baseline takes to the target."""
STRETCH = 4
"""Most iterations that a fast candidate may do in that time, as a multiple of the experiment's."""
CHUNK = 8
"""Candidates that are trained before bounds are looked at again, on any number of cores."""
EVALUATIONS = 40
"""Evaluations in the experiment's iterations, where its words do not say how many."""


@dataclass(frozen=True)
class Outcome:
    """What one run of a candidate came to.

    Attributes:
        seconds_per_iteration: Mean.
        seconds: Until the target accuracy; None where it is not reached or there is no target.
        iterations: The same in iterations of the first worker.
        accuracy: At the end; None without gradients.
        wan_bytes: Over the WAN per iteration, both ways.
    """

    seconds_per_iteration: float
    seconds: float | None
    iterations: int | None
    accuracy: float | None
    wan_bytes: float

    @classmethod
    def of(cls, results: Results, target: float | None) -> Outcome:
        """Read a run that is over."""
        summary = results.summary
        good = (
            row for row in results.evaluations if target is not None and row["accuracy"] >= target
        )
        reached: dict[str, Any] = next(good, {})
        crossed = summary["bytes"]["wan_push"] + summary["bytes"]["wan_pull"]
        return cls(
            summary["seconds_per_iteration"]["mean"],
            reached.get("time_s"),
            reached["iteration"] + 1 if reached else None,
            summary["accuracy"]["final"],
            crossed / summary["iterations"],
        )


@dataclass
class Standing:
    """What is known of a candidate.

    Attributes:
        candidate: Which.
        lossless: It trains as the baseline does.
        reason: Why it cannot be run; empty if it can.
        sized: Its run without gradients.
        outcomes: Its runs of the dearest kind so far, by seed.
        live: Its live run.
        live_reason: Why there is none; empty where it was not asked for.
    """

    candidate: Candidate
    lossless: bool
    reason: str = ""
    sized: Outcome | None = None
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    live: Outcome | None = None
    live_reason: str = ""


class Judge:
    """Runs candidates and keeps what came of them.

    Args:
        base: The experiment with the baseline's plugins.
        words: Those of the plan that belong to every run.
        space: Where candidates come from.
        options: Of the plan.
        directory: Of the plan.
    """

    def __init__(
        self,
        base: Experiment,
        words: Sequence[str],
        space: Space,
        options: PlanOptions,
        directory: Path,
    ) -> None:
        self._base, self._words, self._space = base, list(words), space
        self._options, self._directory = options, directory
        self._jobs = options.jobs or cpu_count()
        self.numerics = base.numerics
        self.by = options.by or (TO_ACCURACY if base.numerics else PER_ITERATION)
        self.target = options.target if self.by == TO_ACCURACY else None
        self.max_loss = options.max_loss
        self.standings: dict[Candidate, Standing] = {}

    # ---- judging ----

    def begin(self) -> None:
        """Run the baseline, which says what the target is.

        Raises:
            GeomxError: It cannot be run.
        """
        self._simulate([BASELINE])
        baseline, seed = self.standings[BASELINE], self._base.seed
        if self.numerics and not baseline.reason:
            self._train([baseline], seed)
        if self.numerics and not baseline.reason and self.by == TO_ACCURACY:
            results = Results.load(self._place(BASELINE, "train", seed))
            if self.target is None:
                self.target = TARGET_SHARE * results.summary["accuracy"]["best"]
            baseline.outcomes[seed] = Outcome.of(results, self.target)
        if baseline.reason:
            raise GeomxError(f"the baseline cannot be run: {baseline.reason}")

    def weigh(self, candidates: Iterable[Candidate]) -> None:
        """Judge those that are new."""
        self._simulate([one for one in candidates if one not in self.standings])
        if not self.numerics:
            return
        while True:
            bar = self.bar()
            waiting = [
                standing
                for standing in self.standings.values()
                if not standing.reason and not standing.outcomes and self.bound(standing) <= bar
            ]
            if not waiting:
                return
            waiting.sort(key=self.bound)
            self._train(waiting[:CHUNK], self._base.seed)

    def repeat(self) -> None:
        """Run the best, and the baseline, with more seeds; one more where nothing is drawn.

        Until those that are the best then have been run so, and nobody else could be.
        """
        first, count = self._base.seed, self._options.seeds
        while True:
            best = [standing.candidate for standing in self.ranking()[:KEPT]]
            chosen = [self.standings[one] for one in dict.fromkeys([*best, BASELINE])]
            chosen = [one for one in chosen if not one.reason and len(one.outcomes) < count]
            if not chosen:
                return
            for seed in range(first + 1, first + count):
                self._train(chosen, seed)
                if all(len(set(one.outcomes.values())) == 1 for one in chosen):
                    return
            self.weigh([])

    def run_live(self) -> None:
        """Run the best live, one by one: live runs side by side would slow each other down."""
        best = self.ranking()[: self._options.live]
        variants = [
            self._variant(s.candidate, "live", self._base.seed, self.iterations(s)) for s in best
        ]
        failed = self._carry_out(variants, 1, "live runs")
        for standing, variant in zip(best, variants, strict=True):
            standing.live_reason = failed.get(variant.directory, "")
            if not standing.live_reason:
                standing.live = Outcome.of(Results.load(variant.directory), self.target)

    # ---- what is known ----

    def value(self, standing: Standing) -> float:
        """The seconds by which candidates are ranked, a mean over seeds; infinite if out of it."""
        return _mean(self.values(standing))

    def values(self, standing: Standing) -> list[float]:
        """The same by seed."""
        outcomes = list(standing.outcomes.values())
        if standing.reason or not outcomes:
            return [math.inf]
        if self.by == TO_ACCURACY:
            return [math.inf if o.seconds is None else o.seconds for o in outcomes]
        if self.numerics and self.shortfall(standing) > 0:
            return [math.inf]
        return [o.seconds_per_iteration for o in outcomes]

    def shortfall(self, standing: Standing) -> float:
        """How much accuracy is missing: to the target, or to what the baseline may lose."""
        base = self.standings[BASELINE]
        common = [seed for seed in standing.outcomes if seed in base.outcomes]
        if not self.numerics or not common:
            return 0.0
        mine = _mean([standing.outcomes[seed].accuracy or 0.0 for seed in common])
        if self.by == TO_ACCURACY:
            return max(0.0, (self.target or 0.0) - mine)
        theirs = _mean([base.outcomes[seed].accuracy or 0.0 for seed in common])
        return max(0.0, theirs - self.max_loss - mine)

    def bound(self, standing: Standing) -> float:
        """Seconds below which its value cannot be, as far as is known without training it."""
        if standing.sized is None:
            return math.inf
        per_iteration = standing.sized.seconds_per_iteration
        if self.by == PER_ITERATION:
            return SLACK * per_iteration
        needed = self.standings[BASELINE].outcomes[self._base.seed].iterations
        return EAGER * per_iteration * (needed or 1)

    def bar(self) -> float:
        """What a candidate has to beat to be among the best."""
        values = sorted(self.value(standing) for standing in self.standings.values())
        return values[KEPT - 1] if len(values) >= KEPT else math.inf

    def ranking(self) -> list[Standing]:
        """Those that can be ranked, the best first."""
        ranked = [s for s in self.standings.values() if math.isfinite(self.value(s))]
        return sorted(ranked, key=lambda s: (self.value(s), s.candidate.name))

    def iterations(self, standing: Standing) -> int:
        """What to run it for: until the target with a tenth to spare, or as the experiment says."""
        needed = [outcome.iterations for outcome in standing.outcomes.values()]
        known = [count for count in needed if count is not None]
        return math.ceil(1.1 * max(known)) if known else self._base.iterations

    def words(self, candidate: Candidate) -> list[str]:
        """What sets a candidate apart on the command line."""
        return self._space.words(candidate)

    def command(self, standing: Standing) -> list[str]:
        """The words that run it live."""
        return [*self._spell(standing.candidate, self.iterations(standing), None), "mode=live"]

    # ---- running ----

    def _simulate(self, candidates: Sequence[Candidate]) -> None:
        variants = []
        for one in candidates:
            self.standings[one] = Standing(one, self._space.lossless(one))
            variants.append(self._variant(one, "sizes", self._base.seed, self._base.iterations))
        refused = self._carry_out(variants, self._jobs, "sizes and times")
        for one, variant in zip(candidates, variants, strict=True):
            standing = self.standings[one]
            standing.reason = refused.get(variant.directory, "")
            if not standing.reason:
                standing.sized = Outcome.of(Results.load(variant.directory), None)
                if not self.numerics:
                    standing.outcomes[self._base.seed] = standing.sized

    def _train(self, standings: Sequence[Standing], seed: int) -> None:
        kind = "train" if self.numerics else "sizes"
        variants = [
            self._variant(s.candidate, kind, seed, self._budget(s) if self.numerics else None)
            for s in standings
        ]
        refused = self._carry_out(variants, self._jobs, "training" if self.numerics else "seeds")
        for standing, variant in zip(standings, variants, strict=True):
            standing.reason = refused.get(variant.directory, "")
            if not standing.reason:
                results = Results.load(variant.directory)
                standing.outcomes[seed] = Outcome.of(results, self.target)

    def _budget(self, standing: Standing) -> int:
        """Iterations to train for: as many as fit into the baseline's time to the target."""
        base, usual = self.standings[BASELINE], self._base.iterations
        known = base.outcomes.get(self._base.seed)
        if standing is base or self.by == PER_ITERATION or known is None or known.seconds is None:
            return usual
        assert standing.sized is not None
        fitting = math.ceil(ROOM * known.seconds / standing.sized.seconds_per_iteration)
        return min(fitting, STRETCH * usual)

    def _carry_out(self, variants: Sequence[Variant], jobs: int, what: str) -> dict[Path, str]:
        """Run those that are not finished; why some could not be, by directory."""
        refused = {}
        waiting = [variant for variant in variants if not finished(variant)]
        with progress(len(variants), what) as advance:
            advance(len(variants) - len(waiting))
            for place, reason in carry_out(waiting, jobs):
                if reason:
                    refused[place] = reason
                advance(1)
        return refused

    def _variant(
        self, candidate: Candidate, kind: str, seed: int, iterations: int | None
    ) -> Variant:
        words = self._spell(candidate, iterations or self._base.iterations, seed)
        own = {"sizes": ["numerics=false", "sim.max_spans=0"], "train": ["sim.max_spans=0"]}
        words = replaced(words, own.get(kind, ["mode=live"]))
        return Variant(tuple(words), candidate.words, self._place(candidate, kind, seed))

    def _place(self, candidate: Candidate, kind: str, seed: int) -> Path:
        folder = re.sub(r"\W+", "_", " ".join(candidate.words)).strip("_")
        return self._directory / "candidates" / folder / f"{kind}_seed{seed}"

    def _spell(self, candidate: Candidate, iterations: int, seed: int | None) -> list[str]:
        own = [*self.words(candidate), f"iterations={iterations}"]
        own += [] if seed is None else [f"seed={seed}"]
        if self.numerics and not any(key_of(word) == "evaluate_every" for word in self._words):
            own.append(f"evaluate_every={max(1, self._base.iterations // EVALUATIONS)}")
        return replaced(self._words, own)


def replaced(words: Iterable[str], own: Sequence[str]) -> list[str]:
    """`words` with `own` in the place of those of the same keys."""
    keys = {key_of(word) for word in own}
    return [*(word for word in words if key_of(word) not in keys), *own]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
