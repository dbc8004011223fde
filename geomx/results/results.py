"""The results of a run, finished just now or read from its directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import rich.table
from numpy.typing import NDArray

from geomx.errors import GeomxError
from geomx.results import tables
from geomx.results.columns import NEEDED
from geomx.results.files import Row, damaged, read_arrays, read_json, read_table
from geomx.results.folders import elsewhere
from geomx.results.refusals import told
from geomx.terminal import units
from geomx.version import SUMMARY_SCHEMA, __version__

UNFINISHED = "the run was killed before it could end"
"""What ``summary.json`` says under ``aborted`` until the run ends."""

_OBJECTS = ("seconds_per_iteration", "bytes", "accuracy", "loss")  # of every summary
TABLES = ("iterations", "evaluations", "links", "edges")
"""The tables of a run, as attributes of `Results` and as CSV files in its directory."""


@dataclass(repr=False)
class Results:
    """A run that is over.

    Attributes:
        directory: Where its files are.
        summary: Content of ``summary.json``; an aborted run has the reason under ``aborted``.
        iterations: Rows of ``iterations.csv`` by iteration, then worker. Times in seconds.
        evaluations: Rows of ``evaluations.csv``.
        links: Rows of ``links.csv``, one per directed link.
        edges: Rows of ``edges.csv``, one per directed edge of the graph; none of a run that ended
            before its traffic was known, or of an older version.
    """

    directory: Path
    summary: dict[str, Any]
    iterations: list[Row]
    evaluations: list[Row]
    links: list[Row]
    edges: list[Row] = field(default_factory=list)

    @classmethod
    def load(cls, directory: Path | str) -> Results:
        """Read a run back from its directory.

        Args:
            directory: Where the run left its files.

        Returns:
            The run.

        Raises:
            GeomxError: There is no run in `directory`, one of its files is damaged, or another
                version of geomx wrote them in another form.
        """
        directory = Path(directory)
        try:
            summary = _summary(directory / "summary.json")
            whole = summary.get("aborted") != UNFINISHED
            there = [n for n in TABLES if n != "edges" or (directory / "edges.csv").exists()]
            rows = (read_table(directory / f"{n}.csv", NEEDED[n], whole) for n in there)
            return cls(directory, summary, *rows)
        except FileNotFoundError as error:
            missing = Path(error.filename).name
            sentence = f"{directory} does not hold a run: it has no {missing}{told(directory)}"
            raise GeomxError(sentence + elsewhere(directory)) from error
        except OSError as error:
            raise GeomxError(f"{error.filename} cannot be read: {error.strerror}") from error

    def __repr__(self) -> str:
        """Return one line: what was run, the main results, and the directory."""
        summary = self.summary
        figures = [f"{len(self.iterations)} worker iterations"]
        mean_s = summary["seconds_per_iteration"]["mean"]
        if mean_s is not None:
            figures.append(f"{units.duration(mean_s)} per iteration")
        if summary["accuracy"]["final"] is not None:
            figures.append(f"accuracy {units.decimals(summary['accuracy']['final'])}")
        if "aborted" in summary:
            figures.append(f"aborted: {summary['aborted']}")
        return f"<Results: {tables.title(summary)}: {', '.join(figures)}; {self.directory}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the summary, and where the report is."""
        shown = self.table()._repr_mimebundle_((), ())["text/html"]
        return f"{shown}<p>Report: <code>{escape(str(self.directory / 'report.html'))}</code></p>"

    def frame(self, name: str) -> Any:
        """Make a table of the run a data frame of pandas.

        Args:
            name: ``iterations``, ``evaluations``, ``links`` or ``edges``; see the attributes.

        Returns:
            A `pandas.DataFrame` with a column per field, in the units of the attribute.

        Raises:
            GeomxError: pandas is not installed.
            ValueError: There is no such table.
        """
        if name not in TABLES:
            raise ValueError(f"name must be one of {', '.join(TABLES)}, not {name!r}")
        try:
            import pandas
        except ImportError as error:
            raise GeomxError("frame() needs pandas: pip install pandas") from error
        return pandas.DataFrame(getattr(self, name))

    def table(self) -> rich.table.Table:
        """Make the table that the command line prints after a run.

        Returns:
            A table for `rich.print`.
        """
        return tables.summary_table(self.summary)

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Read the trained parameters of the global model.

        Returns:
            Arrays by the names of the workload's tensors; empty for a run of sizes alone.
        """
        path = self.directory / "parameters.npz"
        if not path.exists():
            return {}
        return read_arrays(path)


def _summary(path: Path) -> dict[str, Any]:
    """Read ``summary.json``.

    Raises:
        GeomxError: It is damaged, or another version of geomx wrote it in another form.
        OSError: It cannot be read.
    """
    summary = read_json(path)
    if "schema" not in summary:
        raise damaged(path, "it has no schema, which the summary of every run has")
    if summary["schema"] != SUMMARY_SCHEMA:
        wrote = f"geomx {summary['geomx']}" if "geomx" in summary else "the geomx that wrote it"
        raise GeomxError(
            f"{path} has schema {summary['schema']!r}, and geomx {__version__} reads schema "
            f"{SUMMARY_SCHEMA}: read the run with {wrote}, or repeat it"
        )
    kinds: dict[str, type] = {"mode": str, **dict.fromkeys(_OBJECTS, dict)}
    for name, kind in kinds.items():
        if not isinstance(summary.get(name), kind):
            raise damaged(path, f"it has no {name}, which the summary of every run has")
    return summary
