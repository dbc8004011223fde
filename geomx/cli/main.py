"""The command line: ``geomx plugins``, ``info``, ``plan``, ``explain``, ``check``, ``run`` ...

Exit status: 0 done; 2 the request is invalid, with a remedy in one line; 130 and 143 ended by
SIGINT (Ctrl-C) and SIGTERM, 129 by SIGHUP (a closed terminal, except under `nohup`); 1 any other
failure, with one line, or a traceback if unexpected.

Every command is a module of this package. It is imported when it is called, by the table
`COMMANDS`, so that none waits for what only another one needs.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from itertools import takewhile
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from geomx.cli.parser import Parser, line, split
from geomx.errors import (
    PARTS,
    ConfigError,
    GeomxError,
    UsageError,
    near,
    refused_file,
    unbuilt,
)
from geomx.imports import without_collections
from geomx.limits.watchdog import any_abandoned, own_process
from geomx.terminal import log
from geomx.terminal.output import (
    STDOUT,
    complain,
    drop_output,
    ignore_kept_generators,
    show,
    warn,
)
from geomx.version import __version__

DONE, FAILED, WRONG = 0, 1, 2
INTERRUPTED = 128 + signal.SIGINT
HELP_FLAGS = {"-h", "--help"}
FLAGS = ("-", "~")  # prefixes of a flag of an experiment, and of a key that is removed

EXPERIMENT = """\
Overrides without a command run an experiment, as python -m geomx does:
  geomx +sync=NAME '+accel=[NAME,NAME]'"""
"""Help on overrides without a command."""


class Command(NamedTuple):
    """A command.

    Attributes:
        help: What it does, in one line.
        module: Of this package. It has ``main``, which takes the parsed options, or the words of a
            command that has a `usage`; ``arguments``, which tells a parser what the command takes;
            and for words ``epilog``, the rest of the help.
        usage: Of a command that takes words; empty: its help is its own affair.
    """

    help: str
    module: str
    usage: str | None = None

    def load(self) -> Any:
        """The module."""
        name = f"geomx.cli.{self.module}"
        if name in sys.modules:
            return sys.modules[name]
        with without_collections():
            return importlib.import_module(name)


COMMANDS = {
    "plugins": Command(
        "List every plugin: kind, name, summary, what it is in each mode, origin.", "plugins"
    ),
    "networks": Command(
        "List every network that ships with geomx: name, parties and workers, summary, source.",
        "networks",
    ),
    "info": Command("Show the version of geomx, and what it uses on this machine.", "info"),
    "top": Command("Watch a running live job: geomx top PORT, its metrics.port.", "top"),
    "explain": Command(
        "Show what an iteration of a run waits for, and what would make it faster.", "explain"
    ),
    "report": Command(
        "Write the page of a run, or serve it while the run happens: geomx report RUN --serve.",
        "report",
    ),
    "new-plugin": Command(
        "Write a small, complete plugin project: geomx new-plugin NAME --kind codec.", "new_plugin"
    ),
    "check": Command(
        "Check an installed plugin against the laws of its kind: geomx check NAME.", "check"
    ),
    "api": Command("Show what plugins may use, or one hook or object: geomx api Codec.", "api"),
    "node": Command("Run one node of a job on this machine; used by every launcher.", "node"),
    "certs": Command(
        "Create a private authority, and a certificate for every node of a job file.", "certs"
    ),
    "collect": Command(
        "Convert what the nodes of a run left in one folder to the files of a run.", "collect"
    ),
    "manifest": Command(
        "Write a job as Kubernetes objects, with one StatefulSet per party.", "manifest"
    ),
    "run": Command(
        "An experiment, by default a small one; geomx run --help lists its options.", "runs", ""
    ),
    "plan": Command(
        "Choose plugins for a network and a workload, or a script.",
        "plan",
        "[OVERRIDES] [plan.OPTION=VALUE] [[--compute HOW] [--shadows] -- COMMAND]",
    ),
    "launch": Command(
        "Run a script as every worker, here or on many machines.",
        "launch",
        "[JOB.yaml] [OVERRIDES] -- COMMAND",
    ),
    "simulate": Command(
        "Run a script as every worker, in virtual time over a simulated WAN.",
        "simulate",
        "[OVERRIDES] [--compute HOW] [--shadows] -- COMMAND",
    ),
    "compat": Command("Run an unmodified launch script of GeoMX or MXNet.", "compat", "-- COMMAND"),
    "import": Command(
        "Convert what other tools have measured to a workload or a network.",
        "import_files",
    ),
    "export": Command(
        "Write a run in a format of other tools: geomx export chakra RUN.", "export_files"
    ),
    "calibrate": Command(
        "Measure this machine, and the network between sites, as a basis of predictions.",
        "calibrate",
        "",
    ),
}
RUN_HELP = Command(COMMANDS["run"].help, "run_help", "")
"""The help of an experiment, for which nothing that runs one need be imported."""

ATTACHED = Command(COMMANDS["node"].help, "agent")
"""A node that a launcher starts, which must be quick."""


def run(arguments: Sequence[str]) -> int:
    """Run the experiment that `arguments` describe; return the exit status."""
    if "--version" in arguments:
        return _guarded(lambda: show(f"geomx {__version__}"))
    command = RUN_HELP if HELP_FLAGS.intersection(arguments) else COMMANDS["run"]
    return _guarded(lambda: command.load().main(arguments))


def module(arguments: Sequence[str]) -> int:
    """Run ``python -m geomx``: as `main`, but without arguments it runs the default experiment.

    Returns the exit status.
    """
    return run(arguments) if not arguments or arguments[0] in HELP_FLAGS else main(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ``geomx`` command: one of `COMMANDS`, or the overrides of an experiment.

    Returns the exit status.
    """
    if arguments is None:
        return ended(main(sys.argv[1:]))
    arguments = _without_flag(list(arguments))
    if not arguments or arguments[0] in HELP_FLAGS:
        return _guarded(_parser(arguments).print_help)
    if arguments[0] == "run":
        return run(arguments[1:])
    if "=" in arguments[0] or arguments[0].startswith(FLAGS):
        return run(arguments)
    command = COMMANDS.get(arguments[0])
    if command is not None and command.usage is not None and not _wants_help(arguments):
        return _guarded(lambda: command.load().main(arguments[1:]))

    def dispatch() -> None:
        if arguments[0] not in COMMANDS:
            raise UsageError(
                arguments, f"no such command; {near(arguments[0], COMMANDS)}; see --help"
            )
        own, behind = split(arguments[0], arguments[1:])
        with line(arguments):
            options = _parser(arguments).parse([arguments[0], *own], behind)
        options.main(options)

    return _guarded(dispatch)


def _without_flag(arguments: list[str]) -> list[str]:
    """Return `arguments` without `log.FLAG`, which makes this process and its nodes write JSON."""
    own = arguments.index("--") if "--" in arguments else len(arguments)
    if log.FLAG not in arguments[:own]:
        return arguments
    os.environ[log.FORMAT] = "json"
    return [word for word in arguments[:own] if word != log.FLAG] + arguments[own:]


def _wants_help(arguments: Sequence[str]) -> bool:
    """Whether the help of a command that takes words is wanted, and not of what it runs."""
    if arguments[0] == "calibrate":  # it parses by itself
        return False
    own = takewhile("--".__ne__, arguments[:2] if arguments[0] == "compat" else arguments)
    return not HELP_FLAGS.isdisjoint(own)


def _parser(arguments: Sequence[str]) -> Parser:
    """Return the parser of all commands, with all arguments of the one in `arguments`."""
    parser = Parser(
        prog="geomx",
        description="Train one model in several data centres.",
        usage="geomx COMMAND ...\n       geomx OVERRIDES",
        epilog=EXPERIMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        prog=parser.prog, dest="command", required=True, metavar="COMMAND"
    )
    for name, command in COMMANDS.items():
        named = arguments[:1] == [name]
        if command.usage == "":
            commands.add_parser(name, help=command.help, add_help=False)
        elif command.usage is not None:
            commands.add_parser(
                name,
                help=command.help,
                description=command.help,
                usage=f"geomx {name} {command.usage}",
                epilog=command.load().epilog() if named else None,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        else:
            added = commands.add_parser(name, help=command.help, description=command.help)
            if named:
                called = (ATTACHED if "--attached" in arguments else command).load()
                getattr(called, "arguments", lambda parser: None)(added)
                added.set_defaults(main=called.main)
    return parser


def ended(status: int) -> int:
    """Return the exit status, or exit at once if a call of a plugin hangs."""
    if any_abandoned():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


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
        _end_already()
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
    except Exception as error:
        if not _signals:
            raise
        _end_already()  # a library has made another error of the interruption
        return complain("interrupted", 128 + _signals[0], error)
    return DONE


class _Ended(KeyboardInterrupt):
    """A signal asks the process to end; `status` is the matching exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


_signals: list[int] = []
"""The signals that have asked this process to end."""


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _signals.append(number)
    raise _Ended(number)


def _end_already() -> None:
    """Let further signals have no effect: the process ends."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: None)


def _end_on_signals() -> None:
    """End runs on signals in good order, without losing results or leaving processes.

    Also if SIGINT is ignored initially, as in a shell's background jobs: it is sent on purpose. A
    SIGHUP that is ignored initially, as under `nohup`, stays ignored.
    """
    _signals.clear()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _end)
