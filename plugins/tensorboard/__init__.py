"""TensorBoard: event files with the curves of a run, which TensorBoard and other tools read.

They are written by tensorboardX, because TensorBoard's own writer needs TensorFlow or PyTorch. The
times of the events are those of the run after its creation, so that TensorBoard's axis "relative"
shows virtual seconds for a simulation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomx.errors import ConfigError
from geomx.plugin import TrackedRun, Tracker
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register

NAME = "tensorboard"


@dataclass(frozen=True)
class TensorBoardConfig:
    """Options of TensorBoard."""

    folder: str | None = None
    """Folder that gets a sub-folder for the run; null: the folder tensorboard/ of the run."""


@contextmanager
def _without_torch() -> Iterator[None]:
    """Hide PyTorch in the block, unless it is loaded.

    tensorboardX loads it if it can, only to accept tensors. That takes a second of CPU time, and
    MXNet computes more slowly beside it: simulations of the digits took twice the CPU time.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


class TensorBoard:
    """Curves as event files for TensorBoard; needs geomx[tensorboard]."""

    def __init__(self, config: TensorBoardConfig) -> None:
        try:
            with _without_torch():
                from tensorboardX import SummaryWriter
        except ImportError as error:
            remedy = "needs tensorboardX: pip install 'geomx[tensorboard]'"
            raise ConfigError("track", f"[{NAME}]", remedy) from error
        self._writer = SummaryWriter
        self._folder = config.folder

    @hookimpl
    def geomx_track(self, run: TrackedRun) -> Tracker:
        """Write event files into the folder."""
        folder = run.directory / NAME
        if self._folder is not None:
            folder = Path(self._folder) / "-".join(run.directory.parts[-2:])
        return _Events(self._writer(str(folder)), run)


class _Events(Tracker):
    def __init__(self, writer: Any, run: TrackedRun) -> None:
        self._writer, self._began_s = writer, run.began_s
        table = [f"| {name} | {value} |" for name, value in run.parameters.items()]
        text = "\n".join(["| option | value |", "|---|---|", *table])
        writer.add_text("parameters", f"{run.name} ({run.mode})\n\n{text}", walltime=run.began_s)

    def scalars(self, values: Mapping[str, float], iteration: int, time_s: float) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration, walltime=self._began_s + time_s)

    def fault(self, row: Mapping[str, Any]) -> None:
        at_s = self._began_s + row["time_s"]
        self._writer.add_text("faults", json.dumps(row), walltime=at_s)

    def end(self, summary: Mapping[str, Any]) -> None:
        for name, count in summary["bytes"].items():
            self._writer.add_scalar(f"bytes/{name}", count)
        self._writer.close()


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``track=[tensorboard]``."""
    register("track", NAME, TensorBoardConfig, TensorBoard)
