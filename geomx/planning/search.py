"""Choosing among more candidates than can be simulated: Optuna's tree-structured Parzen estimator.

Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011, as Optuna has it. It
takes categories and conditional choices (an option exists only beside its plugin) as they are, asks
for batches, and repeats itself for a seed, so that an interrupted search goes on where it was. What
it minimises is what the plan ranks by. Every sync algorithm and every accelerator by itself come
first, so that no plugin is left out by chance.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import optuna

from geomx.options.schema import PlanOptions
from geomx.planning.candidates import BASELINE, Candidate, Space
from geomx.planning.judge import Judge, Standing

BATCH = 8
"""Candidates per question, on any number of cores, so that a seed means the same on all."""
PATIENCE = 12
"""Batches in a row without anything new after which the search has seen what it will."""
NOBODY = ""


def search(space: Space, judge: Judge, options: PlanOptions, seed: int) -> None:
    """Judge candidates until ``options.candidates`` have been simulated."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=2 * BATCH, multivariate=True, group=True, constant_liar=True
        )
    study = optuna.create_study(sampler=sampler)
    for parameters in _singles(space):
        study.enqueue_trial(parameters)
    idle = 0
    while len(judge.standings) < options.candidates and idle < PATIENCE:
        left = options.candidates - len(judge.standings)
        asked = [(trial, _suggest(space, trial)) for trial in (study.ask() for _ in range(BATCH))]
        new = [one for one in dict.fromkeys(one for _, one in asked) if one not in judge.standings]
        idle = 0 if new else idle + 1
        judge.weigh(new[:left])
        for trial, one in asked:
            loss = _loss(judge, judge.standings[one]) if one in judge.standings else None
            if loss is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, loss)


def _singles(space: Space) -> Iterator[dict[str, Any]]:
    """Every sync algorithm alone, and every accelerator under one of them; options at defaults."""
    first = BASELINE.sync if BASELINE.sync in space.syncs else space.syncs[0]
    alone = [(sync, NOBODY) for sync in space.syncs]
    alone += [(first, name) for name in space.accels if space.slots]
    for sync, accel in alone:
        chosen = {_slot(number): accel if number == 0 else NOBODY for number in range(space.slots)}
        axes = space.axes(sync, [accel] if accel else [])
        yield {"sync": sync, **chosen, **{key: values[0] for key, values in axes.items()}}


def _suggest(space: Space, trial: Any) -> Candidate:
    """One combination: the sync algorithm, an accelerator or none per slot, options of both."""
    sync = trial.suggest_categorical("sync", space.syncs)
    chosen = (
        trial.suggest_categorical(_slot(number), [NOBODY, *space.accels])
        for number in range(space.slots)
    )
    accel = [name for name in dict.fromkeys(chosen) if name != NOBODY]
    axes = space.axes(sync, accel)
    return space.candidate(
        sync, accel, {key: trial.suggest_categorical(key, values) for key, values in axes.items()}
    )


def _slot(number: int) -> str:
    return f"accelerator {number + 1}"


def _loss(judge: Judge, standing: Standing) -> float | None:
    """What Optuna minimises: the logarithm of the ranked time, more where it is out of the ranking.

    None where the candidate cannot be run. One that was not trained because it could not have won
    counts with its bound, one that misses its accuracy with the part that is missing on top.
    """
    if standing.reason:
        return None
    value = judge.value(standing)
    if math.isfinite(value):
        return math.log(value)
    worst = max(judge.value(judge.standings[BASELINE]), judge.bound(standing))
    if not math.isfinite(worst):
        worst = judge.bound(standing)
    return math.log(worst) + (10 * judge.shortfall(standing) if standing.outcomes else 0.0)
