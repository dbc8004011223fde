"""Lines of the log: what happens to a job, one line for each event.

A line is ``geomx: TIME LEVEL: TEXT``, or with `FORMAT` set to ``json`` (``geomx --json ...``) a
JSON object with ``time`` (UTC, ISO 8601), ``node``, ``level`` and ``text``. The loops of nodes
write the same lines (``runtime_cpp/io/notice.h``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

FORMAT = "GEOMX_LOG"
"""The environment variable that chooses the format; nodes inherit it."""
FLAG = "--json"
NOTHING: Mapping[str, Any] = {}
LAUNCHER = "launcher"
"""The ``node`` of lines about a whole job."""

Level = Literal["info", "warning", "error"]

_PLAIN = re.compile(r"geomx: (?:\S+Z (?:info|warning|error): )?(.*)")
_OBJECT = '{"time": "'


def is_json() -> bool:
    """Return whether lines are JSON."""
    return os.environ.get(FORMAT) == "json"


def environment() -> Mapping[str, str]:
    """Return the environment variable that makes another process write the same format."""
    return {FORMAT: "json"} if is_json() else {}


def say(
    text: str, level: Level = "info", node: str = LAUNCHER, facts: Mapping[str, Any] = NOTHING
) -> None:
    """Write a line to standard error.

    Args:
        text: The event, in one line.
        level: Its level.
        node: The node that it is about.
        facts: Further fields of a line in JSON.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = f"geomx: {now} {level}: {text}"
    if is_json():
        line = json.dumps({"time": now, "node": node, "level": level, "text": text, **facts})
    print(line, file=sys.stderr, flush=True)


def tell(
    text: str, level: Level = "info", node: str = LAUNCHER, facts: Mapping[str, Any] = NOTHING
) -> None:
    """Write a text to standard error as it is, or as a line in JSON if that is the format."""
    if is_json():
        say(" ".join(text.split()), level, node, facts)
    else:
        print(text, file=sys.stderr, flush=True)


def text_of(line: str) -> str | None:
    """Return the text of a line of either format; None for any other line.

    Args:
        line: Without its end.
    """
    if plain := _PLAIN.match(line):
        return plain[1]
    if not line.startswith(_OBJECT):
        return None
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError):
        return None
    return text if isinstance(text, str) else None
