"""Rows of CSV files that a network file names."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from geomx.network.validators import refuse


def csv_rows(path: Path, columns: Sequence[str], what: str, given: str) -> list[list[str]]:
    """Read a table; blank lines and those that begin with ``#`` are left out.

    Args:
        path: The file.
        columns: Its first line.
        what: The option that names it, for errors.
        given: Its value, for errors.

    Returns:
        The rows after the first line.

    Raises:
        NetworkError: The file cannot be read, or begins with another line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if _says(row)]
    except (OSError, ValueError, csv.Error) as error:
        refuse(f"{what} is {given}, which cannot be read: {error}")
    if not rows or [name.strip() for name in rows[0]] != list(columns):
        refuse(f"{what} is {given}, which must begin with the line {','.join(columns)}")
    return rows[1:]


def _says(row: list[str]) -> bool:
    """Whether a row is neither blank nor a comment."""
    return any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
