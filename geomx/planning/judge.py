"""Candidates are judged from cheap to dear: sizes and times first, then training, then more seeds.

Simulating sizes and times alone costs milliseconds, real gradients cost seconds. So every candidate
is first simulated without gradients, which gives its time per iteration. From that follows a bound
below which its time cannot fall, and candidates are trained in the order of their bounds until the
bound of the next is above what the best `KEPT` have already. The bound for time to an accuracy
rests on one assumption: that no candidate needs less than `EAGER` of the baseline's iterations.

An accuracy counts as reached only where it lasts (`geomx.planning.outcome`), and what a plan
promises has to be there when the run ends. The length of a command is therefore tried: the commands
of the best are simulated as they are printed, with every seed, and lengthened until they end at the
target (`Judge.settle`). That takes no knowledge of what a sync algorithm does at the end of a run
or how long its cycle is.

Every run is a variant of a study (`geomx.study`) with a folder of its own, so what is finished is
not run again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from joblib import cpu_count

from geomx.errors import GeomxError
from geomx.experiment.experiment import Experiment
from geomx.options.schema import PER_ITERATION, TO_ACCURACY, PlanOptions
from geomx.planning.alone import Alone
from geomx.planning.candidates import BASELINE, Candidate, Space
from geomx.planning.outcome import HELD, LIVE_HELD, Outcome, Standing, mean
from geomx.report.comparison import TARGET_SHARE
from geomx.results.results import Results
from geomx.study.variants import Variant, carry_out, finished, key_of
from geomx.terminal.progress import progress

KEPT = 5
"""So many of the best are exact: trained, whatever their bounds, and run with several seeds."""
EAGER = 0.5
"""No candidate is assumed to need less than this part of the baseline's iterations."""
SLACK = 0.9
"""Training changes the time of an iteration by no more than this factor (codecs that adapt)."""
ROOM = 1.05
"""A candidate is trained for this much longer than the baseline takes to the target."""
STRETCH = 4
"""Most iterations that a fast candidate may do in that time, as a multiple of the experiment's."""
CHUNK = 8
"""Candidates that are trained before bounds are looked at again, on any number of cores."""
LONGER = 0.2
"""A command that does not end at the target is tried again with this part more iterations."""
EVALUATIONS = 40
"""Evaluations in the experiment's iterations, where its words do not say how many."""


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
        self.alone: Standing | None = None
        said = any(key_of(word) == "evaluate_every" for word in self._words)
        self._every = base.evaluate_every if said else max(1, base.iterations // EVALUATIONS)

    # ---- judging ----

    def begin(self) -> None:
        """Run the baseline, which says what the target is.

        Raises:
            GeomxError: It cannot be run.
        """
        self._add([BASELINE])
        baseline, seed = self.standings[BASELINE], self._base.seed
        if self.numerics and not baseline.reason:
            self._train([baseline], seed)
        if self.numerics and not baseline.reason and self.by == TO_ACCURACY:
            results = Results.load(self._place(BASELINE, "train", seed))
            if self.target is None:
                # What it was run for beyond the experiment's iterations shows only what lasts.
                rows = [r for r in results.evaluations if r["iteration"] < self._base.iterations]
                self.target = TARGET_SHARE * max(row["accuracy"] for row in rows)
            baseline.outcomes[seed] = Outcome.of(results, self.target)
        if baseline.reason:
            raise GeomxError(f"the baseline cannot be run: {baseline.reason}")

    def weigh(self, candidates: Iterable[Candidate]) -> None:
        """Judge those that are new."""
        self._add([one for one in candidates if one not in self.standings])
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

    def settle(self) -> None:
        """Make sure of the best, and of the baseline: more seeds, and commands that hold.

        Every seed and every command that is lengthened can only put a candidate further back or
        leave it, so that the best are the best once no more is to be done for them.
        """
        while True:
            self._repeat()
            chosen = self._best()
            waiting = [one for one in chosen if not one.ends and math.isfinite(self.value(one))]
            if self.target is None or not waiting:
                return
            self._try_commands(waiting)

    def compare_alone(self, alone: Alone) -> None:
        """Judge one party without the others, apart from the ranking."""
        (self.alone,) = self._simulate([alone])
        if not self.numerics or self.alone.reason:
            return
        first = self._base.seed
        for seed in range(first, first + self._options.seeds):
            self._train([self.alone], seed)
        while self.target is not None and not self.alone.ends:
            if not math.isfinite(self.value(self.alone)):
                return
            self._try_commands([self.alone])

    def _best(self) -> list[Standing]:
        """The best and the baseline, if they can be run."""
        best = [standing.candidate for standing in self.ranking()[:KEPT]]
        chosen = [self.standings[one] for one in dict.fromkeys([*best, BASELINE])]
        return [one for one in chosen if not one.reason]

    def _repeat(self) -> None:
        """Run the best, and the baseline, with more seeds; one more where nothing is drawn.

        Until those that are the best then have been run so, and no other could be.
        """
        first, count = self._base.seed, self._options.seeds
        while True:
            chosen = [one for one in self._best() if len(one.outcomes) < count]
            if not chosen:
                return
            for seed in range(first + 1, first + count):
                self._train(chosen, seed)
                if all(len(set(one.outcomes.values())) == 1 for one in chosen):
                    return
            self.weigh([])

    def _try_commands(self, standings: Sequence[Standing]) -> None:
        """Simulate commands with every seed; lengthen those that do not end at the target."""
        assert self.target is not None
        tried = [
            (standing, seed, self._variant(standing.candidate, "command", seed, count))
            for standing in standings
            for count in [self.iterations(standing)]
            for seed in standing.outcomes
        ]
        refused = self._carry_out([variant for *_, variant in tried], self._jobs, "commands")
        ends: dict[int, dict[int, float]] = {}
        for standing, seed, variant in tried:
            standing.reason = standing.reason or refused.get(variant.directory, "")
            if not standing.reason:
                ended = Results.load(variant.directory).summary["accuracy"]["final"]
                ends.setdefault(id(standing), {})[seed] = ended
        for standing in standings:
            if standing.reason:
                continue
            found = ends[id(standing)]
            if min(found.values()) >= self.target:
                standing.ends = found
            else:
                self._lengthen(standing)

    def _lengthen(self, standing: Standing) -> None:
        """Let the target count as reached later."""
        count = self.iterations(standing)
        more = max(1, math.ceil(LONGER * count / self._every)) * self._every
        standing.earliest = count - HELD * self._every + more
        for seed in standing.outcomes:
            results = Results.load(self._place(standing.candidate, "train", seed))
            standing.outcomes[seed] = Outcome.of(results, self.target, standing.earliest)

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
                results = Results.load(variant.directory)
                standing.live = Outcome.of(results, self.target, held=LIVE_HELD)

    # ---- what is known ----

    def value(self, standing: Standing) -> float:
        """The seconds by which candidates are ranked, a mean over seeds; infinite if out of it.

        Times per iteration are those of as many samples as all workers take in an iteration.
        """
        return mean(self.values(standing))

    def values(self, standing: Standing) -> list[float]:
        """The same by seed."""
        outcomes = list(standing.outcomes.values())
        if standing.reason or not outcomes:
            return [math.inf]
        if self.by == TO_ACCURACY:
            return [math.inf if o.seconds is None else o.seconds for o in outcomes]
        if self.numerics and self.shortfall(standing) > 0:
            return [math.inf]
        return [o.seconds_per_iteration / standing.candidate.share for o in outcomes]

    def shortfall(self, standing: Standing) -> float:
        """How much accuracy is missing: to the target, or to what the baseline may lose."""
        base = self.standings[BASELINE]
        common = [seed for seed in standing.outcomes if seed in base.outcomes]
        if not self.numerics or not common:
            return 0.0
        mine = mean([standing.outcomes[seed].accuracy or 0.0 for seed in common])
        if self.by == TO_ACCURACY:
            return max(0.0, (self.target or 0.0) - mine)
        theirs = mean([base.outcomes[seed].accuracy or 0.0 for seed in common])
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
        """What to run it for: until the target has been held, or as the experiment says."""
        needed = [outcome.iterations for outcome in standing.outcomes.values()]
        known = [count for count in needed if count is not None]
        return max(known) + HELD * self._every if known else self._base.iterations

    def words(self, candidate: Candidate) -> list[str]:
        """What sets a candidate apart on the command line."""
        return self._space.words(candidate)

    def command(self, standing: Standing) -> list[str]:
        """The words that run it live."""
        return [*self._spell(standing.candidate, self.iterations(standing), None), "mode=live"]

    # ---- running ----

    def _add(self, candidates: Sequence[Candidate]) -> None:
        for standing in self._simulate(candidates):
            self.standings[standing.candidate] = standing

    def _simulate(self, candidates: Sequence[Candidate]) -> list[Standing]:
        seed, usual = self._base.seed, self._base.iterations
        standings = [Standing(one, self._space.lossless(one)) for one in candidates]
        variants = [self._variant(one, "sizes", seed, usual) for one in candidates]
        refused = self._carry_out(variants, self._jobs, "sizes and times")
        for standing, variant in zip(standings, variants, strict=True):
            standing.reason = refused.get(variant.directory, "")
            if not standing.reason:
                standing.sized = Outcome.of(Results.load(variant.directory), None)
                if not self.numerics:
                    standing.outcomes[self._base.seed] = standing.sized
        return standings

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
                standing.outcomes[seed] = Outcome.of(results, self.target, standing.earliest)

    def _budget(self, standing: Standing) -> int:
        """Iterations to train for: as many as fit into the baseline's time to the target.

        And what it takes to see that the last of them lasts.
        """
        base, usual = self.standings[BASELINE], self._base.iterations
        known = base.outcomes.get(self._base.seed)
        if self.by == PER_ITERATION:
            return math.ceil(usual / standing.candidate.share)
        held = HELD * self._every
        if standing is base or known is None or known.seconds is None:
            return usual + held
        assert standing.sized is not None
        fitting = math.ceil(ROOM * known.seconds / standing.sized.seconds_per_iteration)
        return min(fitting, math.ceil(STRETCH * usual / standing.candidate.share)) + held

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
        shown = "sim.max_spans=0"
        own = {"sizes": ["numerics=false", shown], "train": [shown], "command": [shown]}
        words = replaced(words, own.get(kind, ["mode=live"]))
        if kind == "command":
            kind = f"command{iterations}"
        return Variant(tuple(words), candidate.words, self._place(candidate, kind, seed))

    def _place(self, candidate: Candidate, kind: str, seed: int) -> Path:
        return self._directory / candidate.folder / f"{kind}_seed{seed}"

    def _spell(self, candidate: Candidate, iterations: int, seed: int | None) -> list[str]:
        own = [*self.words(candidate), f"iterations={iterations}"]
        own += [] if seed is None else [f"seed={seed}"]
        if self.numerics:
            own.append(f"evaluate_every={self._every}")
        return replaced(self._words, own)


def replaced(words: Iterable[str], own: Sequence[str]) -> list[str]:
    """`words` with `own` in the place of those of the same keys, and of options of those keys."""
    keys = {key_of(word) for word in own}
    kept = (word for word in words if not keys.intersection((key_of(word), _group(word))))
    return [*kept, *own]


def _group(word: str) -> str:
    """``network`` of ``network.delay_ms=1``."""
    return key_of(word).partition(".")[0]
