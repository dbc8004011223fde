"""The command line: ``geomx plugins``, ``info``, ``plan``, ``explain``, ``check``, ``run`` ...

Exit status: 0 done; 2 the request was wrong, with one line that says how to right it; 130 and 143
ended by SIGINT (Ctrl-C) and SIGTERM; 1 anything else, with one line where geomx knows what happened
and a traceback where it does not.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from geomx import cli_plugins
from geomx.errors import ConfigError, GeomxError, refused_file
from geomx.machines import command as cli_machines

if TYPE_CHECKING:
    from geomx.experiment import Experiment

DONE, FAILED, WRONG = 0, 1, 2
INTERRUPTED = 128 + signal.SIGINT
STDOUT = "standard output"
WHERE = "where"  # set on what ends a run early: the end of its sentence
WIDE = 110

_INSTALL = "geomx is not installed with its compiled core; run `pip install -e .` in its folder"


def run(words: Sequence[str]) -> int:
    """``python -m geomx WORDS``: simulate, run live, or both. Returns the exit status."""

    def compose_and_run() -> None:
        try:
            from geomx.compose import main

            main(words, _run_one, _compare_sweep)
        except ModuleNotFoundError as error:
            if (error.name or "") in ("geomx._core", "geomx.sim", "geomx.conf"):
                raise GeomxError(_INSTALL) from error
            raise

    return _guarded(compose_and_run)


def main(arguments: Sequence[str] | None = None) -> int:
    """The ``geomx`` command. Returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["run"]:
        return run(words[1:])
    if words[:1] == ["launch"] and "--help" not in words:
        return _guarded(lambda: launch(words[1:]))
    if words[:1] == ["compat"] and "--help" not in words[:2]:
        return _guarded(lambda: compat(words[1:]))
    if words[:1] == ["plan"] and "--help" not in words:
        return _guarded(lambda: plan(words[1:]))
    if words[:1] == ["calibrate"]:
        return _guarded(lambda: calibrate(words[1:]))
    parser = _Parser(prog="geomx", description="Train one model in several data centres.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        text = (command.__doc__ or "").split("\n", 1)[0]
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=command)
        cli_plugins.add_arguments(name, added)
        cli_machines.add_arguments(name, added)
        if name == "explain":
            added.add_argument("run", metavar="RUN", help="directory of a run, as it is printed")
    commands.add_parser("run", help="The same as python -m geomx.", add_help=False)
    for name, (text, usage, more) in _HELP.items():
        commands.add_parser(
            name,
            help=text,
            description=text,
            usage=f"geomx {name} {usage}",
            epilog=more() if "--help" in words or "-h" in words else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    text = (calibrate.__doc__ or "").split("\n", 1)[0]
    commands.add_parser("calibrate", help=text, add_help=False)

    def dispatch() -> None:
        own, behind = cli_machines.split(words)
        options = parser.parse_args(own, argparse.Namespace(behind=behind))
        options.command(options)

    return _guarded(dispatch)


def plugins(options: argparse.Namespace) -> None:
    """Every plugin found: kind, name, one line, backends, where from."""
    from geomx.registry import Registry

    registry = Registry.discover()
    rows = [
        (plugin.kind, plugin.name, plugin.summary, ", ".join(plugin.backends), plugin.origin)
        for plugin in registry.plugins()
    ]
    _list(("kind", "name", "what it does", "backends", "from"), rows, 2)
    for broken in registry.broken:
        _print(str(broken))


def networks(options: argparse.Namespace) -> None:
    """Every network that comes with geomx: name, parties and workers, one line, source."""
    from geomx.named import named_networks

    rows = []
    for network in named_networks():
        cluster = network.cluster()
        parties, workers = str(len(cluster.parties)), str(len(cluster.workers))
        rows.append((network.name, parties, workers, network.summary, network.source))
    _list(("name", "parties", "workers", "what it is", "source"), rows, 3)
    _print("Any file in their place: network=FILE (YAML, node-link JSON, GraphML, GML).")


def info(options: argparse.Namespace) -> None:
    """The version of geomx, and what it found on this machine."""
    import importlib
    import importlib.metadata
    import platform

    from geomx.experiment import version

    _print(f"geomx {version()}, Python {platform.python_version()}, {platform.platform()}")
    try:
        core = importlib.import_module("geomx._core")
    except ImportError as error:
        _print(f"compiled core: absent ({error})")
    else:
        built: dict[str, Any] = getattr(core, "build_info", dict)()
        details = ", ".join(f"{name} {value}" for name, value in built.items())
        _print(f"compiled core: {core.__file__}" + (f" ({details})" if details else ""))
        for device, description in core.devices():
            _print(f"device {device}: {description}")
        from geomx.live import access

        if not access.has_tls():
            _print(f"TLS: {access.NO_TLS}; until then, runs stay on this machine")
    for name in ("mxnet", "torch", "numpy", "networkx", "simpy", "hydra-core"):
        try:
            _print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            _print(f"{name}: absent")


def launch(words: Sequence[str]) -> None:
    """Run a training script as every worker of a cluster, here or on a job file's machines."""
    job = words[0] if words and "=" not in words[0] else ""  # network=wan.yaml is none
    if job.endswith((".yaml", ".yml")):
        from geomx.machines import launch as machines

        directory, results = machines.launch(Path(job), words[1:])
        if results is not None:
            _print(results.table())
        _print(directory)
        return
    from geomx.live.launcher import launch

    launch(words)


def compat(words: Sequence[str]) -> None:
    """Run a launch script of GeoMX or MXNet as it is."""
    from geomx.compat import command

    command.run(words)


def certs(options: argparse.Namespace) -> None:
    """Make a private authority, and a certificate for every node of a job file."""
    for folder in cli_machines.certs(options):
        _print(folder)


def node(options: argparse.Namespace) -> None:
    """Be one node of a run on this machine; what every launcher runs."""
    raise SystemExit(cli_machines.node(options, options.behind))


def manifest(options: argparse.Namespace) -> None:
    """Write a job as Kubernetes objects, one StatefulSet for every party."""
    print(cli_machines.manifest(options, options.behind), end="")


def collect(options: argparse.Namespace) -> None:
    """Make the files of a run from what its nodes left in one folder."""
    results = cli_machines.collect(options)
    _print(results.table())
    _print(results.directory)


def plan(words: Sequence[str]) -> None:
    """Rank combinations of plugins in simulation, and name the command that runs the first live."""
    from geomx import planning

    places: list[Path] = []
    try:
        made = planning.make(words, places.append)
    except KeyboardInterrupt:
        from geomx.report.page import repeating

        if places:
            again = shlex.join(["geomx", "plan", *repeating(words), f"hydra.run.dir={places[0]}"])
            _print(f"finished runs are kept; to go on: {again}")
        raise
    _print(made.table(), WIDE)
    for sentence in made.verdict():
        _print(sentence)
    if made.content["command"]:
        _print(made.content["command"])
    _print(made.directory)


def calibrate(words: Sequence[str]) -> None:
    """Measure this machine, and the ways between sites, for predictions to start from."""
    from geomx.calibrate import command

    command.main(words, _Parser(prog="geomx calibrate", description=calibrate.__doc__), _print)


def explain(options: argparse.Namespace) -> None:
    """What an iteration of a run waits for, and what would make it faster."""
    from geomx.explaining import explain

    _print(explain(Path(options.run)).shown(), WIDE)


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "plugins": plugins,
    "networks": networks,
    "info": info,
    "explain": explain,
    "new-plugin": cli_plugins.new_plugin,
    "check": cli_plugins.check,
    "node": node,
    "certs": certs,
    "collect": collect,
    "manifest": manifest,
}


def _plan_help() -> str:
    from geomx.config import PlanOptions
    from geomx.options import described

    told = described(PlanOptions, "plan")
    width = max(len(key) for key, _ in told)
    options = "\n".join(f"  {key:{width}}  {text}" for key, text in told)
    return f"""\
WORDS describe the experiment, as for python -m geomx: network=FILE, workload=NAME, iterations=N ...
Options of the plan, with their defaults:
{options}

geomx plan network=my_wan.yaml workload=digits_cnn
geomx plan network=my_wan.yaml workload=resnet50 'plan.sync=[fsa,hfa]' plan.together=1"""


def _launch_help() -> str:
    return """\
JOB.yaml   which node runs on which machine (docs/machines.md); without it, all run on this one
WORDS      the experiment, as for python -m geomx: network=FILE, +sync=NAME, '+accel=[NAME,...]',
           options of plugins, runtime.OPTION=VALUE, hydra.run.dir=FOLDER (python -m geomx --help)
COMMAND    what every worker runs: a script that uses geomx.kv, geomx.mxnet or geomx.torch. The
           first worker's output is shown; logs of all nodes are in the run's folder, in nodes/.
           Without a command, a job file's machines run the workload of the experiment.

geomx launch network=my_wan.yaml +sync=hfa '+accel=[p3]' -- python train.py
geomx launch job.yaml -- python train.py"""


def _compat_help() -> str:
    return """\
COMMAND    a launch script that starts schedulers, servers and workers with the environment
           variables of GeoMX or ps-lite (DMLC_ROLE, DMLC_PS_ROOT_URI ...); see docs/moving.md.
           The logs of all its processes are left in a folder, which is the last line printed.

geomx compat -- bash run_vanilla_hips.sh"""


_HELP: dict[str, tuple[str, str, Callable[[], str]]] = {
    "plan": (
        "Which plugins for a network and a workload.", "[WORDS] [plan.OPTION=VALUE]", _plan_help
    ),
    "launch": (
        "Run a script as every worker, here or on machines.",
        "[JOB.yaml] [WORDS] -- COMMAND",
        _launch_help,
    ),
    "compat": (
        "Run a launch script of GeoMX or MXNet as it is.", "-- COMMAND", _compat_help
    ),
}  # fmt: skip
"""Commands with words of their own: what they do, what they take, and the rest of their help."""


class _Parser(argparse.ArgumentParser):
    """Complains in one line, like everything else here."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage."""
        raise ConfigError(self.prog, " ".join(sys.argv[1:]), f"{message}; see --help")


def _run_one(experiment: Experiment, directory: Path) -> None:
    """Run one experiment, show its results, and print where they are as the last line."""
    from geomx.experiment import execute

    if experiment.study is not None:
        _run_study(experiment, directory)
        return
    with _telling_where(directory):
        results = execute(experiment, directory)
    _print(results.table())
    if experiment.mode == "both":
        from geomx.report.terminal import comparison_table

        comparison, sim = (
            json.loads((directory / name).read_text(encoding="utf-8"))
            for name in ("comparison.json", "sim/summary.json")
        )
        _print(comparison_table(comparison, sim))
    _print(directory)


@contextmanager
def _telling_where(directory: Path) -> Iterator[None]:
    """Have what ends a run early say where its files are, if there are any."""
    try:
        yield
    except (KeyboardInterrupt, GeomxError, OSError) as error:
        if any(directory.glob("**/summary.json")):
            vars(error)[WHERE] = f"; what was measured until then is in {directory}"
        raise


def _run_study(experiment: Experiment, directory: Path) -> None:
    """Run the variants of a study, show how they compare, and print where, as the last line."""
    from geomx.study import conduct

    try:
        comparison = conduct(experiment, directory)
    except KeyboardInterrupt:
        from geomx.report.page import repeating

        words = repeating(experiment.words)
        again = shlex.join(["python", "-m", "geomx", *words, f"hydra.run.dir={directory}"])
        _print(f"finished variants are kept; to go on: {again}")
        raise
    _print(comparison.table(), WIDE)
    _print(directory)
    failed = [row for row in comparison.rows if row.status == "failed"]
    if failed:
        raise GeomxError(f"{failed[0].name} failed: {failed[0].reason}")


def _compare_sweep(directory: Path, words: Sequence[str]) -> None:
    """Leave a report on a sweep beside its jobs, show its table, and print where, at the end."""
    from geomx.study import gather

    if not any(path.name.isdigit() for path in directory.glob("*")):
        return  # no job has begun
    comparison = gather(directory, words)
    if comparison is not None:
        _print(comparison.table(), WIDE)
    _print(directory)


def _list(heads: Sequence[str], rows: Sequence[Sequence[str]], prose: int) -> None:
    """Print rows, of which column `prose` may be wrapped, but not in a pipe or a file."""
    from rich.console import Console

    from geomx.report.terminal import listing

    console = Console()
    narrow = console.is_terminal or "COLUMNS" in os.environ
    _print(*listing(heads, rows, prose, console.width if narrow else None))


def _print(what: Any, width: int | None = None) -> None:
    """Print a line or a table; `width` is that of a table in a pipe or a file, which has none."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if width is not None and not console.is_terminal:
        console.width = width
    try:
        if isinstance(what, str | Path):
            print(what, flush=True)
        else:
            console.print(what)
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = STDOUT
        raise


def _guarded(action: Callable[[], None]) -> int:
    """Do it, and turn what goes wrong into an exit status and one line."""
    _end_on_signals()
    warnings.showwarning = _warn
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a terminal's encoding cannot show is a question mark there, not a failure.
        sys.stdout.reconfigure(errors="replace")
    try:
        action()
    except ConfigError as error:
        return _complain(error, WRONG)
    except GeomxError as error:
        return _complain(error, FAILED)
    except KeyboardInterrupt as error:
        return _complain("interrupted", getattr(error, "status", INTERRUPTED), error)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.filename == STDOUT:
            _drop_output()
        if isinstance(error, BrokenPipeError):
            return FAILED
        sentence = refused_file(error)
        if sentence is None:
            raise
        return _complain(sentence, FAILED, error)
    return DONE


def _drop_output() -> None:
    """Let Python end without a word about what is left in the buffer of standard output."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


class _Ended(KeyboardInterrupt):
    """A signal asks the process to end; `status` is the exit status that tells shells so."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise _Ended(number)


def _end_on_signals() -> None:
    """Let SIGINT and SIGTERM end a run in good order, nothing lost and no process left behind.

    SIGINT too where it came ignored, as a shell's background jobs do: whoever sends it means it.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning is one line on standard error; where in the code it arose helps nobody here."""
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr, flush=True)


def _complain(message: object, status: int, error: BaseException | None = None) -> int:
    """Print one line on standard error, below the notes of `error`. Returns `status`."""
    error = message if isinstance(message, BaseException) else error
    if not getattr(error, "reported", False):
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        told = f"{message}{getattr(error, WHERE, '')}"
        print(" ".join(told.split()), file=sys.stderr, flush=True)
    return status
