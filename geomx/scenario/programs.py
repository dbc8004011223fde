"""Programs of a scenario: functions of the simulated world, from a file or from Python."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from geomx.errors import ConfigError, GeomxError, PluginError, unreadable

FUNCTION = "world"
SUFFIX = ".py"


@dataclass(frozen=True)
class Program:
    """A function that is called with the world when a simulation begins.

    Attributes:
        name: What errors call it: the file, or the function.
        function: The function.
    """

    name: str
    function: Callable[[Any], object]

    def start(self, world: Any) -> None:
        """Call the function.

        Raises:
            PluginError: It failed, or was a generator, which has to be started as a process.
        """
        try:
            answer = self.function(world)
        except GeomxError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(f"{self.name} failed: {said(error)}") from error
        if answer is not None:
            raise PluginError(
                f"{self.name} returned {answer!r} and must return None; a function that yields is "
                "started by another one: world.process(function(world))"
            )


def said(error: BaseException) -> str:
    """Return an exception as one line of text; that of ``sys.exit`` says that it ends the process.

    An exit is a failure, too: a run that never was must not end with status 0.
    """
    if isinstance(error, SystemExit):
        return f"it ends the process ({error})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def program_of(function: object) -> Program:
    """Return the program of a function, for `geomx.run`.

    Raises:
        ConfigError: It is not a function.
    """
    if not callable(function):
        raise ConfigError("world", repr(function), "must be a function of one argument, the world")
    name = getattr(function, "__qualname__", repr(function))
    return Program(f"world={name}", function)


def read_programs(given: Any) -> tuple[Program, ...]:
    """Read the programs of the option ``scenario``.

    Args:
        given: The option: a path ``NAME.py``, whose function ``world(world)`` is the program, or
            something else.

    Returns:
        The program; nothing for other scenarios.

    Raises:
        ConfigError: The file cannot be imported, or has no such function.
    """
    if not isinstance(given, str) or not given.endswith(SUFFIX):
        return ()
    function = function_of("scenario", given, FUNCTION, f"{FUNCTION}({FUNCTION})")
    return (Program(f"scenario={given}: {FUNCTION}", function),)


def function_of(option: str, given: str, name: str, shown: str) -> Callable[..., Any]:
    """Import a file that an option names, and return a function of it.

    Args:
        option: The option, for errors.
        given: Path of the file.
        name: Name of the function.
        shown: The function as errors show it, with its arguments.

    Returns:
        The function.

    Raises:
        ConfigError: The file cannot be imported, or has no such function.
    """
    path = Path(given)
    if (why := unreadable(path)) is not None or not path.is_file():
        raise ConfigError(option, given, why or "there is no such file")
    spec = importlib.util.spec_from_file_location(f"geomx_{path.stem}_of_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # as for a script, so that it may be divided
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(option, given, f"cannot be imported: {said(error)}") from error
    finally:
        del sys.path[0]
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(option, given, f"has no function {shown}")
    return cast(Callable[..., Any], function)
