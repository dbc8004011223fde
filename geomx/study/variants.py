"""Studies: several variants of one experiment, run and compared with a baseline.

A *variant* is a few overrides on top of those of the study: another sync algorithm, other
accelerators, another seed, anything. ``study.each=[sync,accel]`` makes one variant per installed
plugin, external ones included; ``study.variants`` lists others. Every variant is a run with a
directory of its own. Finished variants are not run again: the same overrides with the same
``hydra.run.dir`` resume an interrupted study.

A sweep (``-m``) defines its own variants; `gather` compares their results.
"""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomx.config.compose import compose
from geomx.config.directories import A_RUN
from geomx.config.sweeps import killed_told
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.experiment import Experiment
from geomx.experiment.idle_plugins import PluginWarning
from geomx.experiment.unreached import ScenarioWarning, warn_of_unreached_in_many
from geomx.frameworks.mxnet_loader import compute_at_once
from geomx.limits.watchdog import attended, own_process
from geomx.options.parsing import words_of
from geomx.options.schema import StudyOptions
from geomx.pages.comparison import Comparison, Entry
from geomx.plugin.calling import one_line
from geomx.plugin.registration import DEFAULT_SYNC
from geomx.plugin.registry import Registry
from geomx.results.refusals import NOTE as REFUSED
from geomx.results.refusals import Refusal
from geomx.results.results import Results
from geomx.results.words import key_of, of_one_run
from geomx.runner import check, execute
from geomx.study.names import folder_name, shown_name
from geomx.study.presets import PRESET, mode_of
from geomx.terminal.progress import progress, quiet
from geomx.version import __version__

A_JOB = (*A_RUN, REFUSED)  # what the folder of a job of a sweep holds, or Hydra's own folder
NOTE = "failure.txt"


@dataclass(frozen=True)
class Variant:
    """One run of a study.

    Attributes:
        overrides: All overrides, which repeat the run.
        own: The overrides that distinguish it from the other variants.
        directory: Directory of its files.
    """

    overrides: tuple[str, ...]
    own: tuple[str, ...]
    directory: Path


def run(overrides: Sequence[str]) -> Comparison:
    """Run a study, as the command line would.

    The state of the calling process is preserved, as by `geomx.run`.

    Args:
        overrides: Overrides, among them ``study.each`` or ``study.variants``.

    Returns:
        The comparison of its variants.

    Raises:
        ConfigError: The overrides do not describe a study, or its baseline is refused.
    """

    def work() -> Comparison:
        experiment, directory = compose(overrides)
        if experiment.study is None:
            raise ConfigError("study", "", "is empty; set study.each or study.variants")
        return conduct(experiment, directory)

    return attended(work)


def conduct(experiment: Experiment, directory: Path) -> Comparison:
    """Run the unfinished variants of `experiment`, and compare all of them.

    Writes ``study.json``, ``study.csv``, ``chart.svg`` and ``report.html`` to `directory`, and one
    folder per variant. A variant that is refused or fails is a row with the reason.

    Args:
        experiment: The experiment with its study.
        directory: Directory of the study.

    Returns:
        The comparison.

    Raises:
        ConfigError: The baseline is refused, or an override is invalid.
    """
    from joblib import cpu_count

    options = experiment.study or StudyOptions()
    variants = plan(experiment.overrides, options, directory)
    waiting = [variant for variant in variants if not finished(variant)]
    # Only simulations may run in parallel: live runs would slow each other down.
    simulated = all(_mode(variant, experiment.mode) == "sim" for variant in waiting)
    jobs = options.jobs or (cpu_count() if simulated else 1)
    if variants[0] in waiting:
        _check(variants[0])
    refusals: dict[Path, str] = {}
    try:
        with progress(len(variants), "variants") as advance:
            advance(len(variants) - len(waiting))
            for place, reason in carry_out(waiting, jobs):
                if reason:
                    refusals[place] = reason
                advance(1)
    finally:
        comparison = _compare(directory, variants, refusals, options.target_accuracy, experiment)
    _warn_of_unreached(experiment, variants)
    return comparison


def _mode(variant: Variant, mode: str) -> str:
    """Return the mode of a variant of a study with `mode`."""
    chosen = {"mode", PRESET}.intersection(map(key_of, variant.own))
    return mode_of(variant.overrides, mode) if chosen else mode


def _warn_of_unreached(experiment: Experiment, variants: Sequence[Variant]) -> None:
    """Warn of events of the scenario before which variants ended that have no other one."""
    same = [v for v in variants if "scenario" not in map(key_of, v.own)]
    found = [results.summary for v in same if (results := readable(v)) is not None]
    ended = [summary for summary in found if "aborted" not in summary]
    ends = [(summary["seconds"], summary["iterations"]) for summary in ended]
    warn_of_unreached_in_many(experiment.event_schedule, ends)


def carry_out(variants: Sequence[Variant], jobs: int) -> Iterator[tuple[Path, str]]:
    """Run variants, each in a process of its own if `jobs` is more than one.

    Args:
        variants: The variants.
        jobs: Number of simultaneous runs.

    Yields:
        As they end, their directories, and why they could not be run (empty if they could).
    """
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    jobs = max(1, min(jobs, len(variants)))
    if get_active_backend()[0].nesting_level:  # in a job of a sweep, where joblib has threads only
        jobs = 1
    work = Parallel(n_jobs=jobs, return_as="generator_unordered")
    home = Path.cwd() if jobs > 1 else None
    with killed_told():
        yield from work(delayed(_run)(variant, home) for variant in variants)


def gather(directory: Path, overrides: Sequence[str]) -> Comparison | None:
    """Compare the jobs of a sweep, and of others that share its directory.

    The baseline is the first job with results, the default sync and no accelerator, else the first
    with results. A job that was refused, or failed, is a row with the sentence that it printed.

    Args:
        directory: Directory of the sweep.
        overrides: Overrides of the sweep.

    Returns:
        The comparison; None if there are fewer than two jobs.
    """
    found: dict[Path, Results | Refusal] = {
        place: job for place in jobs_in(directory) if (job := _readable(place) or Refusal.of(place))
    }
    told = [_told(job) for job in found.values()]
    if len(found) < 2:
        return None
    common = set(told[0]["words"]).intersection(*(summary["words"] for summary in told))
    entries = []
    for (place, job), summary in zip(found.items(), told, strict=True):
        own = [word for word in summary["words"] if word not in common]
        folder, name = place.relative_to(directory).as_posix(), shown_name(own, summary, True)
        if isinstance(job, Results):
            entries.append(Entry.of(job, name, own, folder))
        else:
            entries.append(Entry(name, own, folder, job.status, job.reason))
    entries.sort(key=lambda entry: (entry.results is None, not entry.plain(DEFAULT_SYNC)))
    return Comparison.write(directory, entries, None, overrides, by="sweep")


def _told(job: Results | Refusal) -> dict[str, Any]:
    """Return the overrides and plugins of a job, as in ``summary.json``."""
    summary = job.summary if isinstance(job, Results) else vars(job)
    return {**summary, "words": [str(word) for word in summary.get("words", ())]}


def jobs_in(directory: Path) -> Iterator[Path]:
    """Yield the folders of the jobs of a sweep, wherever ``hydra.sweep.subdir`` has put them.

    Args:
        directory: Directory of the sweep.
    """

    def order(path: Path) -> tuple[bool, int, str]:
        number = path.name.isdecimal()
        return not number, int(path.name) if number else 0, path.name

    for path in sorted(directory.iterdir(), key=order):
        if (path / ".hydra").is_dir() or any((path / name).exists() for name in A_JOB):
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from jobs_in(path)


def plan(overrides: Iterable[str], options: StudyOptions, directory: Path) -> list[Variant]:
    """Return the variants without duplicates, the baseline first.

    Args:
        overrides: Overrides of the study itself.
        options: Options of the study.
        directory: Directory of the study.

    Raises:
        ConfigError: A variant's text cannot be divided into overrides, the baseline's has none, or
            a variant would be a study.
    """
    base = [
        override
        for override in overrides
        if key_of(override).split(".")[0] != "study" and not of_one_run(override)
    ]
    baseline = words_of(options.baseline, "study.baseline")
    if not all("=" in word or word.startswith("~") for word in baseline):
        remedy = "must consist of overrides, as in study.baseline='sync=NAME seed=1'"
        raise ConfigError("study.baseline", options.baseline, remedy)
    chosen = [baseline or [f"sync={DEFAULT_SYNC}", "accel=[]"]]
    for kind in options.each:
        names = (plugin.name for plugin in Registry.discover().plugins(kind))
        chosen += [[f"{kind}={name}" if kind == "sync" else f"{kind}=[{name}]"] for name in names]
    for number, text in enumerate(options.variants):
        chosen.append(words_of(text, f"study.variants[{number}]"))
    made: dict[tuple[str, ...], Variant] = {}
    for own in chosen:
        keys = {key_of(override) for override in own}
        if any(key.split(".")[0] == "study" for key in keys):
            raise ConfigError("study", " ".join(own), "a variant cannot be a study itself")
        kept = [override for override in base if key_of(override) not in keys]
        whole = (*kept, "study=null", *own)
        # The same with the defaults written out is the same variant.
        said = {key_of(override) for override in whole}
        full = [*whole, *(w for w in chosen[0] if key_of(w) not in said)]
        identity = tuple(sorted(override.lstrip("+") for override in full))
        place = folder_name(" ".join(own))
        taken = {variant.directory.name for variant in made.values()}
        while place in taken:
            place += "_"
        made.setdefault(identity, Variant(whole, tuple(own), directory / place))
    return list(made.values())


def finished(variant: Variant) -> bool:
    """Return whether `variant` has completed, with this version and the same overrides."""
    results = _own(variant)
    return results is not None and "aborted" not in results.summary


def _own(variant: Variant) -> Results | None:
    """Return the results of `variant`; None also if they are of other overrides or versions."""
    results = readable(variant)
    if results is None or results.summary.get("words") != list(variant.overrides):
        return None
    return results if results.summary.get("geomx") == __version__ else None


def readable(variant: Variant) -> Results | None:
    """Return the results of a variant; None also if they are damaged or of another version."""
    return _readable(variant.directory)


def _readable(directory: Path) -> Results | None:
    try:
        return load(directory)
    except GeomxError:
        return None


def load(directory: Path) -> Results | None:
    """Return the results in `directory` (for ``mode=both`` the live ones), or None."""
    for place in (directory, directory / "live"):
        if (place / "summary.json").is_file():
            return Results.load(place)
    return None


def _compare(
    directory: Path,
    variants: Sequence[Variant],
    refusals: dict[Path, str],
    target: float | None,
    experiment: Experiment,
) -> Comparison:
    entries = []
    for variant in variants:
        results, place = _own(variant), variant.directory.name
        ran = results is not None
        name = shown_name(variant.own, results.summary if results else experiment.header(), ran)
        if variant.directory in refusals:
            reason = refusals[variant.directory]
            failed = (variant.directory / NOTE).exists()
            entry = Entry(name, variant.own, place, "failed" if failed else "refused", reason)
        elif results is None or "aborted" in results.summary:
            entry = Entry(name, variant.own, place, "unfinished", "the study was interrupted")
        else:
            entry = Entry.of(results, name, variant.own, place)
        entries.append(entry)
    return Comparison.write(directory, entries, target, experiment.overrides, by="study")


def _check(baseline: Variant) -> None:
    """Raise the error that would occur in every variant before anything is run."""
    try:
        experiment, _ = compose(baseline.overrides, directory=baseline.directory)
        check(experiment)
    except ConfigError as error:
        which = f"the study's baseline, {' '.join(baseline.own)}, is refused"
        remedy = f"{error.remedy}; {which}: study.baseline='sync=NAME' sets another one"
        raise ConfigError(error.key, error.value, remedy) from error


def _run(variant: Variant, home: Path | None) -> tuple[Path, str]:
    """Run one variant; return its directory, and why it could not be run (empty if it could).

    In a process of its own, `home` is the base of relative paths; otherwise it is None.
    """
    if home is None:
        return _run_here(variant)
    os.chdir(home)  # a reused process may still be in another folder
    # Ctrl-C reaches the whole terminal; the process that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    compute_at_once()
    with own_process():
        return _run_here(variant)


def _run_here(variant: Variant) -> tuple[Path, str]:
    note = variant.directory / NOTE
    note.unlink(missing_ok=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", PluginWarning
            )  # the variant's row shows what the warning says
            experiment, directory = compose(variant.overrides, directory=variant.directory)
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ScenarioWarning)  # `conduct` warns once for all
            execute(experiment, directory)
    except ConfigError as error:
        return variant.directory, one_line(error)
    except Exception as error:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(traceback.format_exc(), encoding="utf-8")
        return variant.directory, one_line(error)
    return variant.directory, ""
