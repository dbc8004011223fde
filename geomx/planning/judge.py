"""Evaluation of candidates from cheap to expensive: sizes and times, training, more seeds.

Simulating sizes and times alone takes milliseconds, real gradients take seconds. Every candidate is
therefore first simulated without gradients, which gives its time per iteration and from that a
lower bound of its ranked time. Candidates are trained in the order of their bounds until the next
bound exceeds the results of the best `KEPT`. The bound of the time to an accuracy rests on one
assumption: that no candidate needs less than `EAGER` of the baseline's iterations.

An accuracy counts as reached only if it lasts (`geomx.planning.outcome`), and must still be there
when the recommended run ends. The commands of the best are therefore simulated as printed, with
every seed, and lengthened until they end at the target (`Judge.settle`). That needs no knowledge of
the end of a run under a sync algorithm or of the length of its cycle.

Every run is a variant of a study (`geomx.study`) with a folder of its own, so that finished runs
are not repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from joblib import cpu_count

from geomx.errors import ConfigError, GeomxError
from geomx.experiment.experiment import Experiment
from geomx.options.schema import PER_ITERATION, TO_ACCURACY, PlanOptions
from geomx.pages.comparison import TARGET_SHARE
from geomx.planning.alone import Alone
from geomx.planning.candidates import BASELINE, Candidate, Space, replaced
from geomx.planning.outcome import HELD, LIVE_HELD, Outcome, Standing, mean
from geomx.results.results import Results
from geomx.results.words import key_of
from geomx.study.variants import Variant, carry_out, finished
from geomx.terminal.progress import progress

KEPT = 5
"""Number of best candidates that are always trained, and run with several seeds."""
EAGER = 0.5
"""No candidate is assumed to need less than this fraction of the baseline's iterations."""
SLACK = 0.9
"""Training changes the time of an iteration by no more than this factor (codecs that adapt)."""
ROOM = 1.05
"""A candidate is trained for this multiple of the baseline's time to the target."""
STRETCH = 4
"""Limit on the iterations of a fast candidate in that time, as a multiple of the experiment's."""
CHUNK = 8
"""Candidates that are trained before bounds are compared again, on any number of cores."""
LONGER = 0.2
"""A command that does not end at the target is tried again with this fraction more iterations."""
EVALUATIONS = 40
"""Evaluations over the experiment's iterations, if the overrides do not set their interval."""


class Judge:
    """Runs candidates and keeps their results.

    Args:
        base: The experiment with the baseline's plugins.
        overrides: Overrides of the plan that apply to every run.
        space: Source of the candidates.
        options: Options of the plan.
        directory: Directory of the plan.
    """

    def __init__(
        self,
        base: Experiment,
        overrides: Sequence[str],
        space: Space,
        options: PlanOptions,
        directory: Path,
    ) -> None:
        self._base, self._overrides, self._space = base, list(overrides), space
        self._options, self._directory = options, directory
        self._jobs = options.jobs or cpu_count()
        self.numerics = base.numerics
        self.by = options.by or (TO_ACCURACY if base.numerics else PER_ITERATION)
        self.target = options.target if self.by == TO_ACCURACY else None
        self.max_loss = options.max_loss
        self.standings: dict[Candidate, Standing] = {}
        self.alone: Standing | None = None
        said = any(key_of(override) == "evaluate_every" for override in self._overrides)
        self._every = base.evaluate_every if said else max(1, base.iterations // EVALUATIONS)

    # ---- judging ----

    def begin(self) -> None:
        """Run the baseline, which determines the target.

        Raises:
            ConfigError: It would not be evaluated within its iterations.
            GeomxError: The baseline cannot be run.
        """
        usual, every = self._base.iterations, self._every
        if self.by == TO_ACCURACY and self.target is None and every > usual:
            remedy = f"must be at most iterations={usual}, to find a target; or give plan.target"
            raise ConfigError("evaluate_every", every, remedy)
        self._add([BASELINE])
        baseline, seed = self.standings[BASELINE], self._base.seed
        if self.numerics and not baseline.reason:
            self._train([baseline], seed)
        if self.numerics and not baseline.reason and self.by == TO_ACCURACY:
            results = Results.load(self._place(BASELINE, "train", seed))
            if self.target is None:
                # Iterations beyond the experiment's only show whether an accuracy lasts.
                rows = [r for r in results.evaluations if r["iteration"] < usual]
                self.target = TARGET_SHARE * max(row["accuracy"] for row in rows)
            baseline.outcomes[seed] = Outcome.of(results, self.target)
        if baseline.reason:
            raise GeomxError(f"the baseline cannot be run: {baseline.reason}")

    def weigh(self, candidates: Iterable[Candidate]) -> None:
        """Evaluate the new ones among `candidates`."""
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
        """Confirm the best and the baseline, with more seeds and commands that end at the target.

        More seeds and longer commands can only move a candidate down the ranking or leave it in
        place, so the best are final when nothing remains to be done for them.
        """
        while True:
            self._repeat()
            chosen = self._best()
            waiting = [one for one in chosen if not one.ends and math.isfinite(self.value(one))]
            if self.target is None or not waiting:
                return
            self._try_commands(waiting)

    def compare_alone(self, alone: Alone) -> None:
        """Evaluate one party without the others, outside the ranking."""
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
        """Return the best and the baseline, if they can be run."""
        best = [standing.candidate for standing in self.ranking()[:KEPT]]
        chosen = [self.standings[one] for one in dict.fromkeys([*best, BASELINE])]
        return [one for one in chosen if not one.reason]

    def _repeat(self) -> None:
        """Run the best and the baseline with more seeds; with only one more if nothing is random.

        Ends when all of those that are then the best have been run so, and no other can join them.
        """
        first, count = self._base.seed, self._options.seeds
        while True:
            chosen = [one for one in self._best() if len(one.outcomes) < count]
            if not chosen:
                return
            for seed in range(first + 1, first + count):
                self._train(chosen, seed)
                refused = any(one.reason for one in chosen)
                if not refused and all(len(set(one.outcomes.values())) == 1 for one in chosen):
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
        """Postpone the iteration from which the target counts as reached."""
        count = self.iterations(standing)
        more = max(1, math.ceil(LONGER * count / self._every)) * self._every
        standing.earliest = count - HELD * self._every + more
        for seed in standing.outcomes:
            results = Results.load(self._place(standing.candidate, "train", seed))
            standing.outcomes[seed] = Outcome.of(results, self.target, standing.earliest)

    def run_live(self) -> None:
        """Run the best live, one by one, since simultaneous runs would slow each other down."""
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

    # ---- results ----

    def value(self, standing: Standing) -> float:
        """Return the ranked time of a candidate in seconds (mean over seeds); infinite if unranked.

        Times per iteration are scaled to the number of samples that all workers take in an
        iteration.
        """
        return mean(self.values(standing))

    def values(self, standing: Standing) -> list[float]:
        """Return the ranked times by seed, in seconds."""
        outcomes = list(standing.outcomes.values())
        if standing.reason or not outcomes:
            return [math.inf]
        if self.by == TO_ACCURACY:
            return [math.inf if o.seconds is None else o.seconds for o in outcomes]
        if self.numerics and self.shortfall(standing) > 0:
            return [math.inf]
        return [o.seconds_per_iteration / standing.candidate.share for o in outcomes]

    def shortfall(self, standing: Standing) -> float:
        """Return the missing accuracy, 0..1: to the target, or to the baseline less `max_loss`."""
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
        """Return a lower bound of `value`, in seconds, from the simulation of sizes and times."""
        if standing.sized is None:
            return math.inf
        per_iteration = standing.sized.seconds_per_iteration
        if self.by == PER_ITERATION:
            return SLACK * per_iteration
        needed = self.standings[BASELINE].outcomes[self._base.seed].iterations
        return EAGER * per_iteration * (needed or 1)

    def bar(self) -> float:
        """Return the ranked time that a candidate has to beat to be among the best, in seconds."""
        ranking = self.ranking()
        return self.value(ranking[KEPT - 1]) if len(ranking) >= KEPT else math.inf

    def candidates(self) -> list[Standing]:
        """Return the simulated candidates, without the baseline if that is not to be chosen."""
        return [s for s in self.standings.values() if self._space.has(s.candidate)]

    def ranking(self) -> list[Standing]:
        """Return the candidates that can be ranked, the best first."""
        ranked = [s for s in self.candidates() if math.isfinite(self.value(s))]
        return sorted(ranked, key=lambda s: (self.value(s), s.candidate.name))

    def iterations(self, standing: Standing) -> int:
        """Return the iterations to run: until the target has held, or as in the experiment."""
        needed = [outcome.iterations for outcome in standing.outcomes.values()]
        known = [count for count in needed if count is not None]
        return max(known) + HELD * self._every if known else self._base.iterations

    def overrides(self, candidate: Candidate) -> list[str]:
        """Return the overrides that select `candidate`."""
        return self._space.overrides(candidate)

    def command(self, standing: Standing) -> list[str]:
        """Return the overrides that run it live."""
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
        """Train those that could be run with all seeds so far; one failure refuses a candidate."""
        standings = [standing for standing in standings if not standing.reason]
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
        """Return the iterations to train for, which fit into the baseline's time to the target.

        The evaluations that show whether the last of them lasts come on top.
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
        """Run the unfinished variants; return the reasons of those that failed, by directory."""
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
        overrides = self._spell(candidate, iterations or self._base.iterations, seed)
        shown = "sim.max_spans=0"
        own = {"sizes": ["numerics=false", shown], "train": [shown], "command": [shown]}
        overrides = replaced(overrides, own.get(kind, ["mode=live"]))
        if kind == "command":
            kind = f"command{iterations}"
        return Variant(tuple(overrides), candidate.overrides, self._place(candidate, kind, seed))

    def _place(self, candidate: Candidate, kind: str, seed: int) -> Path:
        return self._directory / candidate.folder / f"{kind}_seed{seed}"

    def _spell(self, candidate: Candidate, iterations: int, seed: int | None) -> list[str]:
        own = [*self.overrides(candidate), f"iterations={iterations}"]
        own += [] if seed is None else [f"seed={seed}"]
        if self.numerics:
            own.append(f"evaluate_every={self._every}")
        return replaced(self._overrides, own)
