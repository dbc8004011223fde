"""Rows of text below each other, which become paragraphs where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2  # characters between columns
NARROW = 40
"""Characters that a column of prose needs; where it has fewer, rows become paragraphs."""


def listing(
    heads: Sequence[str], rows: Sequence[Sequence[str]], prose: int, width: int | None
) -> tuple[RenderableType, int]:
    """Rows below each other, nothing of them cut, however narrow the terminal is.

    Args:
        heads: Names of the columns.
        rows: Their texts.
        prose: Which column may be wrapped.
        width: Characters in a line; None: any number, as in a pipe, where rows stay lines.

    Returns:
        What to print, and how wide it is.
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
        below = (row[prose], ", ".join(row[prose + 1 :]))
        lines += [Padding(Text(text), (0, 0, 0, GAP)) for text in below]
    return Group(*lines), width
