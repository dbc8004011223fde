"""``resume=DIR``: continues a live run all of whose processes were killed, as by a power cut.

The folder says all that is needed: the experiment is in every node's journal, and so is where each
node was. What cannot be continued is refused before a process is started.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from geomx.errors import ConfigError, GeomxError
from geomx.experiment.experiment import Experiment
from geomx.live.checkpoint import KEY, NO_JOURNALS
from geomx.live.files import Reader, durable, experiment_file, stem
from geomx.live.journal import opened
from geomx.live.restarts import begun
from geomx.live.resumption import Resumption
from geomx.live.spec import Spec
from geomx.plugin.registry import Registry
from geomx.results.files import read_json
from geomx.results.words import of_one_run
from geomx.terminal.log import tell
from geomx.workload import Layer

PAUSE_S = 0.01
"""How much later than its last record a run goes on, by its own clock."""

ANEW = "with network=... a new run begins with what the servers have learned"
_OF_ITSELF = ("lost", "failed", "interrupted")


def asked(overrides: Sequence[str]) -> bool:
    """Return whether `overrides` ask for a run to be continued.

    With another network, after that run's end, or if its workers had no journals or its nodes were
    in namespaces, they describe a new run, which only begins with what that one has learned
    (`geomx.live.checkpoint`).
    """
    given = _given(overrides)
    continues = given.get(KEY, "null") != "null"
    if not continues or "network" not in given:
        return continues
    directory = Path(given[KEY])
    summary = _summary(directory)
    same = f"network={given['network']}" in _words(summary)
    gone = summary.get("emulate") == "netns"
    return "aborted" in summary and same and not gone and _recorded(directory)


def read(
    overrides: Sequence[str], registry: Registry | None = None
) -> tuple[Experiment, Path, Resumption]:
    """Find out how to continue a run.

    Args:
        overrides: Of the command line: ``resume=DIR``, ``mode=live``, and others that the run had.
        registry: The installed plugins; None: discover them.

    Returns:
        The experiment, its folder, and what its processes must know.

    Raises:
        ConfigError: There is nothing to continue; says why.
        GeomxError: The run is of another version of geomx.
    """
    given = _given(overrides)
    directory = Path(given[KEY]).absolute()
    if not (directory / "durable").is_dir():
        raise ConfigError(KEY, given[KEY], NO_JOURNALS)
    summary = _summary(directory)
    if summary and "aborted" not in summary:
        raise ConfigError(KEY, given[KEY], "is complete: its results are there")
    _check_words(overrides, given[KEY], summary)
    found = _Journals(directory, given[KEY])
    experiment = _experiment(found.spec, summary, registry or Registry.discover())
    if experiment.emulate == "netns":
        gone = f"ran with emulate=netns, whose networks are gone; {ANEW}"
        raise ConfigError(KEY, given[KEY], gone)
    ahead_s = found.last_s + PAUSE_S - time.monotonic()
    return experiment, directory, Resumption(ahead_s, found.addresses)


def words_of(overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a script's run that begins with the state of another.

    Args:
        overrides: Of the command line. With ``resume=DIR`` and without a network, what they leave
            open is as in the run in DIR.
    """
    given = _given(overrides)
    if KEY not in given or "network" in given:
        return list(overrides)
    directory = Path(given[KEY])
    summary = _summary(directory, ", and give the options of the run that you want to keep")
    if not summary and (directory / "durable").is_dir():
        tell(f"resume={directory} has no summary.json: options not given have defaults", "warning")
    had = [str(word) for word in summary.get("words", ())]
    own = {*given, KEY}
    kept = [word for word in had if _key(word) not in own and not of_one_run(word)]
    return [*kept, *overrides]


class _Journals:
    """The journals of a run, all of them read.

    Attributes:
        spec: The experiment.
        addresses: Of the nodes, by name.
        last_s: The latest time in any of them, by the clock of the run.
    """

    def __init__(self, directory: Path, given: str) -> None:
        self._directory, self._given = directory, given
        self.spec, text = self._spec()
        earlier = Resumption.beside(durable(directory, self.spec.cluster.scheduler.name))
        self.addresses: dict[str, str] = {}
        self.last_s = 0.0
        for node in self.spec.cluster.nodes:
            self._check_end(node.name)
            path = durable(directory, node.name)
            if not begun(path):
                self._refuse(
                    f"has no journal of {node.name}: it had not begun, trains on a device, or "
                    f"training would have continued without it (faults.on_loss=continue); {ANEW}"
                )
            try:
                journal = opened(path)
                if _plain(journal.experiment) != text:
                    self._refuse(f"holds journals of two experiments: {path.name} is of another")
                self.addresses |= journal.roster
                self.last_s = max(self.last_s, journal.last_s())
            except RuntimeError as error:
                self._refuse(f"cannot be continued: {error}", error)
            del journal  # unlocks it
        self.addresses |= earlier.addresses

    def _spec(self) -> tuple[Spec, dict[str, Any]]:
        path = experiment_file(self._directory)
        try:
            return _run_of(path)
        except (OSError, ValueError, TypeError) as error:
            self._refuse(f"does not say what was run: {path} cannot be read", error)

    def _check_end(self, name: str) -> None:
        """Refuse a run that a node has ended: it has told the others, whose journals say so."""
        takes_part, status = False, None
        for note in Reader(stem(self._directory, name)).new():
            if "resumes" in note:
                takes_part = False
            elif "started" in note or "recovered" in note:
                takes_part = True
            elif "end" in note and takes_part:
                status = note["end"]["status"]
        if status in _OF_ITSELF:
            self._refuse(
                f"was ended by {name} ({status}), and only a run whose processes were all killed "
                "can be continued"
            )

    def _refuse(self, why: str, cause: Exception | None = None) -> NoReturn:
        raise ConfigError(KEY, self._given, why) from cause


def _given(overrides: Sequence[str]) -> dict[str, str]:
    """The values of overrides by key; that of the folder without the quotes that Hydra may need."""
    given = {_key(override): override.partition("=")[2] for override in overrides}
    if quoted := re.fullmatch(r"""(['"])(.*)\1""", given.get(KEY, "")):
        given[KEY] = re.sub(rf"\\({quoted[1]})", r"\1", quoted[2])
    return given


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+")


def _plain(text: str) -> dict[str, Any]:
    """An experiment without what depends on the place of its folder."""
    fields = dict(json.loads(text))
    return {key: value for key, value in fields.items() if key not in ("usage_file", "checkpoint")}


def _run_of(path: Path) -> tuple[Spec, dict[str, Any]]:
    """Read an experiment, and what it says as `_plain`."""
    text = path.read_text(encoding="utf-8")
    plain = _plain(text)  # which tells a damaged file from one of another version
    return Spec.from_json(text), plain


def _recorded(directory: Path) -> bool:
    """Whether the run's options let workers keep journals; True if its folder is damaged."""
    try:
        return _run_of(experiment_file(directory))[0].faults.logs("worker")
    except (OSError, ValueError, TypeError):
        return True


def _summary(directory: Path, also: str = "") -> dict[str, Any]:
    """Read what a run was; empty if it has not said so.

    Args:
        directory: Of the run.
        also: What else to do where the file is damaged.

    Raises:
        ConfigError: The file is damaged, as after a power cut; the run can do without it.
    """
    try:
        return read_json(directory / "summary.json")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, GeomxError) as error:
        why = str(error).partition("; ")[0]
        raise ConfigError(KEY, directory, f"{why}; delete that file{also}") from error


def _check_words(overrides: Sequence[str], given: str, summary: dict[str, Any]) -> None:
    """Refuse words that describe another run."""
    had = _words(summary)
    for override in overrides:
        word = override.lstrip("+")
        if _key(override) == KEY or word == "mode=live" or word in had:
            continue
        remedy = (
            f"is a run without {override}; leave it out: the folder says what was run. "
            "With another network=..., the options describe a new run, which begins with its state"
        )
        raise ConfigError(KEY, given, remedy)


def _words(summary: dict[str, Any]) -> set[str]:
    """The overrides of a run."""
    return {str(word).lstrip("+") for word in summary.get("words", ())}


def _experiment(spec: Spec, summary: dict[str, Any], registry: Registry) -> Experiment:
    """Build the experiment that every node has in its journal."""
    if spec.workload is None:
        raise GeomxError("a script cannot be continued: its workers have no journals")
    name, options = spec.workload
    workload = registry.workload(name, options)
    layers = tuple(
        Layer(layer.name, *times_s)
        for layer, times_s in zip(workload.layers, spec.times_s, strict=True)
    )
    return Experiment(
        mode="live",
        seed=spec.seed,
        iterations=spec.iterations,
        numerics=spec.numerics,
        cluster=spec.cluster,
        workload=dataclasses.replace(workload, layers=layers),
        selection=registry.select(spec.sync, spec.accel),
        evaluate_every=spec.evaluate_every,
        runtime=spec.runtime,
        faults=spec.faults,
        metrics=spec.metrics,
        scenario=spec.scenario,
        tcp=spec.tcp,
        emulate=str(summary.get("emulate", "shaper" if spec.emulated else "none")),
        overrides=[str(word) for word in summary.get("words", ())],
        workload_options=dict(options),
    )
