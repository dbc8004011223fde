"""The files of a run that lie beside its page."""

from __future__ import annotations

from pathlib import Path

_FILES = {
    "summary.json": "",
    "iterations.csv": "",
    "evaluations.csv": "",
    "links.csv": "",
    "edges.csv": "",
    "edges_over_time.csv": "",
    "network.json": "",
    "parameters.npz": "",
    "trace.json": " for Perfetto or chrome://tracing",
}


def beside(directory: Path) -> str:
    """Return the names of those files of a run that are in its directory."""
    return ", ".join(f"{name}{use}" for name, use in _FILES.items() if (directory / name).exists())
