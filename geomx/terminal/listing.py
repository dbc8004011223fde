"""Rows of text in columns, or as paragraphs if the terminal is narrow."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geomx.terminal.output import show

GAP = 2  # characters between columns
NARROW = 40
"""Minimum width of the column of prose in characters; below it, rows become paragraphs."""


def listing(
    heads: Sequence[str], rows: Sequence[Sequence[str]], prose: int, width: int | None
) -> tuple[RenderableType, int]:
    """Lay out rows without cutting any text, however narrow the terminal is.

    Args:
        heads: Names of the columns.
        rows: Their texts.
        prose: The column that may be wrapped.
        width: Characters in a line; None: unlimited, as in a pipe, where each row is a line.

    Returns:
        The renderable, and its width in characters.
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    whole = sum(widths) + GAP * (len(widths) - 1)
    width = whole if width is None else width
    if width >= whole - max(0, widths[prose] - NARROW):
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        for index, head in enumerate(heads):
            table.add_column(head, no_wrap=index != prose)
        for row in rows:
            table.add_row(*map(Text, row))
        return table, width
    lines: list[RenderableType] = []
    for row in rows:
        named = zip(heads[1:prose], row[1:prose], strict=True)
        told = [row[0], *(f"{head} {text}" if text.isdigit() else text for head, text in named)]
        lines.append(Text(" ".join(told), style="bold"))
        below = (row[prose], ", ".join(filter(None, row[prose + 1 :])))
        lines += [Padding(Text(text), (0, 0, 0, GAP)) for text in below]
    return Group(*lines), width


def show_list(heads: Sequence[str], rows: Sequence[Sequence[str]], prose: int) -> None:
    """Print rows in columns.

    Args:
        heads: Names of the columns.
        rows: Their texts.
        prose: The column that may be wrapped on a terminal.
    """
    console = Console()
    narrow = console.is_terminal or "COLUMNS" in os.environ
    show(*listing(heads, rows, prose, console.width if narrow else None))
