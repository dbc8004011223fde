"""``geomx plan``: which sync algorithm with which accelerators, for a network and a workload.

It simulates the combinations of what is installed, or those that an optimiser finds promising where
they are too many; ranks them by the time to an accuracy that lasts, or by the time per iteration
where no more than a little accuracy is lost; says how sure it is, and whether one party alone would
be faster; and names the command that runs the first choice live. Candidates are in
`geomx.planning.candidates`, one party alone in `geomx.planning.alone`, how they are judged in
`geomx.planning.judge`, the search in `geomx.planning.search`, what is left behind in
`geomx.planning.report` and `geomx.planning.verdict`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import yaml

from geomx.errors import ConfigError
from geomx.options.parsing import build_options
from geomx.options.schema import TO_ACCURACY, PlanOptions
from geomx.planning.alone import strongest
from geomx.planning.candidates import Space
from geomx.planning.certainty import Certainty, fidelity
from geomx.planning.judge import Judge
from geomx.planning.report import Plan
from geomx.planning.search import search
from geomx.plugin.registration import DEFAULT_SYNC
from geomx.plugin.registry import Registry
from geomx.study.variants import key_of

OWN = "the plan's to choose; plan.{0}=[NAME,NAME] narrows the choice"
REFUSED = {
    "sync": OWN.format("sync"),
    "accel": OWN.format("accel"),
    "mode": "a plan simulates; plan.live=N then runs the best N live",
}


def make(words: Sequence[str], begun: Callable[[Path], None] = lambda directory: None) -> Plan:
    """Plan for what `words` describe, and leave the files of the plan in its run directory.

    Args:
        words: As for ``python -m geomx``, and ``plan.OPTION=VALUE``; see `PlanOptions`. With the
            ``hydra.run.dir`` of an earlier plan, what it has finished is not run again.
        begun: Told where the files will be, before anything is run.

    Raises:
        ConfigError: A word is wrong.
        GeomxError: The baseline cannot be run.
    """
    from geomx.config.compose import compose

    kept, fixed, options = _sorted_out(words)
    base, directory = compose([*kept, f"sync={DEFAULT_SYNC}", "accel=[]"])
    begun(directory)
    kept = [word for word in kept if key_of(word).split(".")[0] not in ("hydra", "study")]
    if base.study is not None:
        kept.append("study=null")
    if options.by == TO_ACCURACY and not base.numerics:
        remedy = "needs real gradients; without them only seconds_per_iteration is known"
        raise ConfigError("plan.by", options.by, remedy)
    said = {key_of(word): word.partition("=")[2] for word in kept}
    error = fidelity(options.fidelity, said.get("emulate", "shaper"))
    space = Space(base, options, Registry.discover(), fixed)
    judge = Judge(base, kept, space, options, directory)
    judge.begin()
    some = list(islice(space.all(), options.candidates + 1))
    exhaustive = len(some) <= options.candidates
    if exhaustive:
        judge.weigh(some)
    else:
        search(space, judge, options, base.seed)
    judge.settle()
    judge.compare_alone(strongest(base.cluster, directory))
    if options.live:
        judge.run_live()
    ranking = judge.ranking()
    certainty = Certainty.of([judge.values(one) for one in ranking], error) if ranking else None
    return Plan.write(directory, words, base, judge, exhaustive, error, certainty)


def _sorted_out(words: Sequence[str]) -> tuple[list[str], list[str], PlanOptions]:
    """Words of the experiment, words that set plugins' options, and the plan's own.

    Raises:
        ConfigError: One of them is the plan's to choose, or an option is wrong.
    """
    kept, fixed, own = [], [], {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key_of(word)
        if word.startswith("-") or not equals:
            raise ConfigError("word", word, "must be key=value")
        if key in REFUSED:
            raise ConfigError(key, value, REFUSED[key])
        if key.startswith("plan."):
            try:
                own[key.removeprefix("plan.")] = yaml.safe_load(value)
            except yaml.YAMLError as error:
                raise ConfigError(key, value, "cannot be read; quote it") from error
        elif key.startswith(("sync.", "accel.")):
            fixed.append(word)
        else:
            kept.append(word)
    return kept, fixed, build_options(PlanOptions, own, "plan")
