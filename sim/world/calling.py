"""Calls functions of programs and of WAN models, whose failures name them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from geomx.errors import GeomxError, PluginError
from geomx.plugin.selection import Selection
from geomx.scenario.programs import said


def called(
    selection: Selection,
    what: str,
    function: Callable[..., Any],
    *arguments: Any,
    check: Callable[[Any], Any] | None = None,
) -> Any:
    """Call a function and return its result.

    Args:
        selection: The plugins of the run; one whose code fails is named.
        what: What the function is, for errors.
        function: The function.
        arguments: Its arguments.
        check: Raises an error for a result that is not allowed, and returns any other one.

    Raises:
        PluginError: It failed, called ``sys.exit``, or its result is not allowed.
    """
    try:
        result = function(*arguments)
        return result if check is None else check(result)
    except GeomxError:
        raise
    except (Exception, SystemExit) as error:
        blamed = selection.blamed(error)
        told = PluginError(f"{what} {shown(function)} failed: {said(error)}")
        raise blamed or told from error


def shown(function: Callable[..., Any]) -> str:
    """Return a function as errors show it, with its file and line if known."""
    code = getattr(function, "__code__", None)
    where = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
    return f"{getattr(function, '__qualname__', repr(function))}{where}"
