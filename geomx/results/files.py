"""Readers and writers of a run's files; nothing measured is lost, and equal runs give equal bytes.

Tables are written row by row, and every row reaches the operating system at once, so that a killed
process leaves all its rows. All other files are written completely or not at all. Arrays are stored
in an archive without timestamps. JSON never contains NaN or infinity. Errors of the operating
system name the file, which that of a full disk does not do by itself.
"""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from geomx.errors import GeomxError

Row = dict[str, Any]

DELETED = "was deleted while its run wrote files there; run it again"
"""What is said of a folder."""

_INTEGERS = frozenset(
    {"iteration", "samples", "bytes", "messages", "control_bytes", "shard", "round"}
    | {"global_round", "workers", "flows", "queue_bytes", "peak_flows", "peak_queue_bytes"}
)
_TEXTS = frozenset(
    {"worker", "party", "source", "target", "kind", "server", "tensor", "absent", "late", "dropped"}
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip archive can hold


def parse(column: str, text: str) -> Any:
    """Parse a field of a CSV file.

    Args:
        column: Name of its column, which determines the type.
        text: The field; empty for None.
    """
    if column in _TEXTS:
        return text
    if text == "":
        return None
    return int(text) if column in _INTEGERS else float(text)


@contextmanager
def replacing(path: Path, mode: str = "w", synced: bool = False) -> Iterator[IO[Any]]:
    """Open a draft of `path`, which replaces the file atomically at the end of the block.

    If the block fails, the draft is removed and an existing file is kept.

    Args:
        path: The file.
        mode: ``w`` for text (UTF-8, line ends as given), ``wb`` for bytes.
        synced: Whether it is on the disk at the end, and survives a failure of the machine.

    Yields:
        The open draft.

    Raises:
        OSError: It cannot be written; names `path`.
    """
    draft = path.with_name(path.name + ".new")
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    try:
        with naming(path):
            with draft.open(mode, **text) as file:  # type: ignore[call-overload]
                yield file
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(draft, path)
            if synced:
                sync_folder(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a failure of the machine."""
    entry = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with replacing(path) as file:
        file.write(text)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the name of the file `path` to an `OSError` of the block, such as that of a full disk.

    Raises:
        GeomxError: The folder of the file has been deleted.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT and not path.parent.is_dir():
            raise GeomxError(f"{path.parent} {DELETED}") from error
        error.filename = str(path)
        error.filename2 = None
        raise


class Table:
    """A CSV file that is complete after every row.

    Args:
        path: The file; an existing one is replaced.
        columns: The header line.

    Attributes:
        added: Called with every row after it has been written; None: nothing is.

    Raises:
        OSError: The file cannot be written; names it.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self.rows: list[Row] = []
        self.added: Callable[[Row], None] | None = None
        with naming(path):
            self._file = path.open("w", newline="", encoding="utf-8", buffering=1)
            self._writer = csv.writer(self._file, lineterminator="\n")
            self._writer.writerow(self.columns)

    def add(self, row: Row) -> None:
        """Append a row to memory and to the file.

        Args:
            row: Values by column, in the order of the columns.

        Raises:
            OSError: The file cannot be written; names it.
        """
        self.rows.append(row)
        try:  # called for every row, so without the cost of a context manager
            self._writer.writerow(row.values())
        except OSError as error:
            error.filename = str(self.path)
            raise
        if self.added is not None:
            self.added(row)

    def close(self, rows: Iterable[Row] | None = None) -> None:
        """Close the table.

        Args:
            rows: Rows that replace its content atomically; None keeps it, and writes it anew if
                the file has been deleted.
        """
        with naming(self.path):
            self._file.close()
        if rows is None and self.path.exists():
            return
        self.rows = self.rows if rows is None else list(rows)
        with replacing(self.path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(row.values() for row in self.rows)


def damaged(path: Path, what: object) -> GeomxError:
    """Return the error for a file of a run that is not as geomx wrote it.

    Args:
        path: The file.
        what: What is wrong with it.
    """
    return GeomxError(f"{path} is damaged: {what}; copy the run's folder anew, or repeat the run")


def read_table(path: Path, needed: Iterable[str] = (), whole: bool = False) -> list[Row]:
    """Read a file of `Table`.

    Args:
        path: The file.
        needed: Columns that it must have.
        whole: Whether its last line must be complete; otherwise an incomplete one, of a run that
            was killed or goes on, is left out.

    Returns:
        Its rows.

    Raises:
        GeomxError: It is not such a file.
        OSError: It cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except ValueError as error:
        raise damaged(path, error) from error
    if whole and lines and not lines[-1].endswith("\n"):
        raise damaged(path, f"it ends within line {len(lines)}")
    reader = csv.reader(line for line in lines if line.endswith("\n"))
    try:
        columns = next(reader, [])
        if lacking := [column for column in needed if column not in columns]:
            raise damaged(path, f"its first line lacks the column {lacking[0]}")
        return [_row(columns, fields) for fields in reader]
    except (ValueError, csv.Error) as error:
        raise damaged(path, f"line {reader.line_num}: {error}") from error


def _row(columns: Sequence[str], fields: Sequence[str]) -> Row:
    if len(fields) != len(columns):
        raise ValueError(f"{len(fields)} fields, and {len(columns)} columns")
    return {column: parse(column, text) for column, text in zip(columns, fields, strict=True)}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.

    Returns:
        The object.

    Raises:
        GeomxError: It is not such a file.
        OSError: It cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(path, error) from error
    if not isinstance(content, dict):
        raise damaged(path, "it holds no object")
    return content


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON to `path`, atomically; NaN and infinities become null."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def plain(value: object) -> Any:
    """Convert `value` to JSON's types: numpy objects unpacked, unknown objects as text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [plain(item) for item in items]
    return str(value)


def read_arrays(source: Path | IO[bytes]) -> dict[str, NDArray[Any]]:
    """Read an archive of arrays (``.npz``), of which there may be many.

    What `numpy.load` returns searches a list of all names for every array.

    Args:
        source: The file.

    Returns:
        The arrays by their names, in the archive's order.

    Raises:
        OSError: It cannot be read.
        ValueError: An array in it is damaged, or is no array of numbers.
        zipfile.BadZipFile: It is no archive, or is damaged.
    """
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)  # type: ignore[no-untyped-call]
            arrays[member.filename.removesuffix(".npy")] = array
    return arrays


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], synced: bool = False) -> None:
    """Write named arrays for `numpy.load`; equal arrays in equal order give equal bytes.

    Args:
        path: The file.
        arrays: Arrays by name.
        synced: As for `replacing`.
    """
    with replacing(path, "wb", synced) as whole, zipfile.ZipFile(whole, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)  # type: ignore[no-untyped-call]


def write_network(path: Path, graph: nx.Graph) -> None:
    """Write a network as node-link JSON, the long form of a network file.

    An unlimited bandwidth is omitted, which is how it is read.

    Args:
        path: The file.
        graph: The network.
    """
    data = nx.node_link_data(graph, edges="edges")
    for item in (*data["nodes"], *data["edges"]):
        unlimited = [key for key, value in item.items() if plain(value) is None]
        for key in unlimited:
            del item[key]
    write_json(path, data)


def read_network(path: Path) -> nx.Graph:
    """Read the graph in a file of `write_network`.

    Raises:
        GeomxError: It is not such a file.
        OSError: It cannot be read.
    """
    content = read_json(path)
    try:
        return nx.node_link_graph(content, edges="edges")
    except (KeyError, TypeError, nx.NetworkXError) as error:
        raise damaged(path, f"it holds no network ({error!r})") from error
