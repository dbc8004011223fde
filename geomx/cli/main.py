"""The command line: ``geomx plugins``, ``info``, ``plan``, ``explain``, ``check``, ``run`` ...

Exit status: 0 done; 2 the request is invalid, with a remedy in one line; 130 and 143 ended by
SIGINT (Ctrl-C) and SIGTERM; 1 any other failure, with one line, or a traceback if unexpected.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from geomx.cli import machines as cli_machines
from geomx.cli import plugins
from geomx.cli.help import EXPERIMENT, HELP
from geomx.errors import PARTS, ConfigError, GeomxError, refused_file, unbuilt
from geomx.plugin.watchdog import any_abandoned, own_process
from geomx.terminal.output import (
    STDOUT,
    complain,
    drop_output,
    ignore_kept_generators,
    show,
    show_list,
    telling_where,
    warn,
)

if TYPE_CHECKING:
    from geomx.experiment.experiment import Experiment

DONE, FAILED, WRONG = 0, 1, 2
INTERRUPTED = 128 + signal.SIGINT
WIDE = 110
HELP_FLAGS = ("-h", "--help")
FLAGS = ("-", "~")  # prefixes of a flag of an experiment, and of a key that is removed


def run(words: Sequence[str]) -> int:
    """Run the experiment that `words` describe; return the exit status."""
    if "--version" in words:
        from geomx.experiment.experiment import version

        return _guarded(lambda: show(f"geomx {version()}"))

    def compose_and_run() -> None:
        from geomx.config import compose

        compose.main(words, _run_one, _compare_sweep)

    return _guarded(compose_and_run)


def module(words: Sequence[str]) -> int:
    """Run ``python -m geomx``: as `main`, but without arguments it runs the default experiment.

    Returns the exit status.
    """
    return run(words) if not words or words[0] in HELP_FLAGS else main(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ``geomx`` command: a command of `_parser`, or the overrides of an experiment.

    Returns the exit status.
    """
    if arguments is None:
        return ended(main(sys.argv[1:]))
    words = list(arguments)
    if not words or words[0] in HELP_FLAGS:
        return _guarded(_parser(words).print_help)
    if words[0] == "run":
        return run(words[1:])
    if "=" in words[0] or words[0].startswith(FLAGS):
        return run(words)
    if words[:1] == ["launch"] and "--help" not in words:
        return _guarded(lambda: launch(words[1:]))
    if words[:1] == ["compat"] and "--help" not in words[:2]:
        return _guarded(lambda: compat(words[1:]))
    if words[:1] == ["plan"] and "--help" not in words:
        return _guarded(lambda: plan(words[1:]))
    if words[:1] == ["calibrate"]:
        return _guarded(lambda: calibrate(words[1:]))

    def dispatch() -> None:
        own, behind = cli_machines.split(words)
        options = _parser(words).parse_args(own, argparse.Namespace(behind=behind))
        options.command(options)

    return _guarded(dispatch)


def _parser(words: Sequence[str]) -> _Parser:
    """Return the parser of all commands, with the full help of the one in `words`."""
    parser = _Parser(
        prog="geomx",
        description="Train one model in several data centres.",
        usage="geomx COMMAND ...\n       geomx OVERRIDES",
        epilog=EXPERIMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        text = (calibrate.__doc__ or "").split("\n", 1)[0]
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=command)
        plugins.add_arguments(name, added)
        cli_machines.add_arguments(name, added)
        if name == "explain":
            added.add_argument("run", metavar="RUN", help="directory of a run, as printed by it")
    text = "An experiment, by default a small one; geomx run --help lists its options."
    commands.add_parser("run", help=text, add_help=False)
    for name, (text, usage, more) in HELP.items():
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
    return parser


def networks(options: argparse.Namespace) -> None:
    """List every network that ships with geomx: name, parties and workers, summary, source."""
    from geomx.network.named import named_networks

    rows = []
    for network in named_networks():
        cluster = network.cluster()
        parties, workers = str(len(cluster.parties)), str(len(cluster.workers))
        rows.append((network.name, parties, workers, network.summary, network.source))
    show_list(("name", "parties", "workers", "what it is", "source"), rows, 3)
    show("Any other network: network=FILE (YAML, node-link JSON, GraphML, GML).")


def info(options: argparse.Namespace) -> None:
    """Show the version of geomx, and what it uses on this machine."""
    import importlib
    import importlib.metadata
    import platform

    from geomx.experiment.experiment import version

    show(f"geomx {version()}, Python {platform.python_version()}, {platform.platform()}")
    try:
        core = importlib.import_module("geomx._core")
    except ImportError as error:
        show(f"compiled core: absent ({error})")
    else:
        built: dict[str, Any] = getattr(core, "build_info", dict)()
        details = ", ".join(f"{name} {value}" for name, value in built.items())
        show(f"compiled core: {core.__file__}" + (f" ({details})" if details else ""))
        for device, description in core.devices():
            show(f"device {device}: {description}")
        from geomx.live import access

        if not access.has_tls():
            show(f"TLS: {access.NO_TLS}; until then, runs stay on this machine")
    for name in ("mxnet", "torch", "numpy", "networkx", "simpy", "hydra-core"):
        try:
            show(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            show(f"{name}: absent")


def launch(words: Sequence[str]) -> None:
    """Run a training script as every worker of a cluster, here or on a job file's machines."""
    job = words[0] if words and "=" not in words[0] else ""  # not network=wan.yaml
    if job.endswith((".yaml", ".yml")):
        from geomx.machines import launch as machines

        directory, results = machines.launch(Path(job), words[1:])
        if results is not None:
            show(results.table())
        show(directory)
        return
    from geomx.live.launcher import launch

    launch(words)


def compat(words: Sequence[str]) -> None:
    """Run an unmodified launch script of GeoMX or MXNet."""
    from geomx.compat import command

    command.run(words)


def certs(options: argparse.Namespace) -> None:
    """Create a private authority, and a certificate for every node of a job file."""
    for folder in cli_machines.certs(options):
        show(folder)


def node(options: argparse.Namespace) -> None:
    """Run one node of a job on this machine; used by every launcher."""
    raise SystemExit(cli_machines.node(options, options.behind))


def manifest(options: argparse.Namespace) -> None:
    """Write a job as Kubernetes objects, with one StatefulSet per party."""
    print(cli_machines.manifest(options, options.behind), end="")


def collect(options: argparse.Namespace) -> None:
    """Convert what the nodes of a run left in one folder to the files of a run."""
    results = cli_machines.collect(options)
    show(results.table())
    show(results.directory)


def plan(words: Sequence[str]) -> None:
    """Rank combinations of plugins in simulation, and print the live command of the first."""
    from geomx import planning

    places: list[Path] = []
    try:
        made = planning.make(words, places.append)
    except KeyboardInterrupt:
        from geomx.report.page import repeating

        if places:
            again = shlex.join(["geomx", "plan", *repeating(words), f"hydra.run.dir={places[0]}"])
            show(f"finished runs are kept; to continue: {again}")
        raise
    show(made.table(), WIDE)
    for sentence in made.verdict():
        show(sentence)
    if made.content["command"]:
        show(made.content["command"])
    show(made.directory)


def calibrate(words: Sequence[str]) -> None:
    """Measure this machine, and the network between sites, as a basis of predictions."""
    from geomx.cli import calibrate as command

    command.main(words, _Parser(prog="geomx calibrate", description=calibrate.__doc__), show)


def explain(options: argparse.Namespace) -> None:
    """Show what an iteration of a run waits for, and what would make it faster."""
    from geomx.explaining import explain

    show(explain(Path(options.run)).shown(), WIDE)


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "plugins": plugins.plugins,
    "networks": networks,
    "info": info,
    "explain": explain,
    "new-plugin": plugins.new_plugin,
    "check": plugins.check,
    "api": plugins.api,
    "node": node,
    "certs": certs,
    "collect": collect,
    "manifest": manifest,
}


def ended(status: int) -> int:
    """Return the exit status, or exit at once if a call of a plugin hangs."""
    if any_abandoned():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


class _Parser(argparse.ArgumentParser):
    """Reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage."""
        raise ConfigError(self.prog, " ".join(sys.argv[1:]), f"{message}; see --help")


def _run_one(experiment: Experiment, directory: Path) -> None:
    """Run one experiment, show its results, and print its directory as the last line."""
    from geomx.runner import execute

    if experiment.study is not None:
        _run_study(experiment, directory)
        return
    with telling_where(directory):
        results = execute(experiment, directory)
    show(results.table())
    if experiment.mode == "both":
        from geomx.results.tables import comparison_table

        comparison, sim = (
            json.loads((directory / name).read_text(encoding="utf-8"))
            for name in ("comparison.json", "sim/summary.json")
        )
        show(comparison_table(comparison, sim))
    show(directory)


def _run_study(experiment: Experiment, directory: Path) -> None:
    """Run the variants of a study, show their comparison, and print its directory last."""
    from geomx.study.variants import conduct

    try:
        comparison = conduct(experiment, directory)
    except KeyboardInterrupt:
        from geomx.report.page import repeating

        words = repeating(experiment.words)
        again = shlex.join(["python", "-m", "geomx", *words, f"hydra.run.dir={directory}"])
        show(f"finished variants are kept; to continue: {again}")
        raise
    show(comparison.table(), WIDE)
    show(directory)
    failed = [row for row in comparison.rows if row.status == "failed"]
    if failed:
        raise GeomxError(f"{failed[0].name} failed: {failed[0].reason}")


def _compare_sweep(directory: Path, words: Sequence[str]) -> None:
    """Write a report on a sweep beside its jobs, show its table, and print its directory."""
    from geomx.study.variants import gather

    if not any(path.name.isdigit() for path in directory.glob("*")):
        return  # no job has begun
    comparison = gather(directory, words)
    if comparison is not None:
        show(comparison.table(), WIDE)
    show(directory)


def _guarded(action: Callable[[], None]) -> int:
    """Call `action`, and turn errors into one line and an exit status."""
    _end_on_signals()
    warnings.showwarning = warn
    sys.unraisablehook = ignore_kept_generators
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks become question marks instead of failures.
        sys.stdout.reconfigure(errors="replace")
    try:
        with own_process():
            action()
    except ConfigError as error:
        return complain(error, WRONG)
    except GeomxError as error:
        return complain(error, FAILED)
    except ImportError as error:
        if error.name not in PARTS:
            raise
        return complain(unbuilt(), FAILED)
    except KeyboardInterrupt as error:
        return complain("interrupted", getattr(error, "status", INTERRUPTED), error)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.filename == STDOUT:
            drop_output()
        if isinstance(error, BrokenPipeError):
            return FAILED
        sentence = refused_file(error)
        if sentence is None:
            raise
        return complain(sentence, FAILED, error)
    return DONE


class _Ended(KeyboardInterrupt):
    """A signal asks the process to end; `status` is the matching exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise _Ended(number)


def _end_on_signals() -> None:
    """End runs on SIGINT and SIGTERM in good order, without losing results or leaving processes.

    Also if SIGINT is ignored initially, as in a shell's background jobs: it is sent on purpose.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
