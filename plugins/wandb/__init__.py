"""Weights & Biases: a run with parameters and curves, offline unless said otherwise.

``wandb sync FOLDER`` uploads an offline run later. ``time_s`` is logged with every value, so that
charts can have the time of the run, virtual in a simulation, as their axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from geomx.errors import ConfigError
from geomx.plugin import TrackedRun, Tracker
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register

NAME = "wandb"


@dataclass(frozen=True)
class WandbConfig:
    """Options of Weights & Biases."""

    online: bool = False
    """Upload while the run lasts, with the account that `wandb login` has set."""
    project: str = "geomx"
    """Project that gets the run."""


class Wandb:
    """A run of Weights & Biases, offline by default; needs geomx[wandb]."""

    def __init__(self, config: WandbConfig) -> None:
        try:
            import wandb
        except ImportError as error:
            remedy = "needs wandb: pip install 'geomx[wandb]'"
            raise ConfigError("track", f"[{NAME}]", remedy) from error
        self._wandb = wandb
        self._config = config

    @hookimpl
    def geomx_track(self, run: TrackedRun) -> Tracker:
        """Begin a run in the directory of geomx's run."""
        begun = self._wandb.init(
            project=self._config.project,
            name=f"{run.name} ({run.mode})",
            config=dict(run.parameters),
            dir=str(run.directory),
            mode="online" if self._config.online else "offline",
            reinit="create_new",
            settings=self._wandb.Settings(console="off", silent=True),
        )
        return _Run(begun)


class _Run(Tracker):
    def __init__(self, run: Any) -> None:
        self._run = run
        run.define_metric("iteration")
        run.define_metric("*", step_metric="iteration")

    def scalars(self, values: Mapping[str, float], iteration: int, time_s: float) -> None:
        self._run.log({**values, "iteration": iteration, "time_s": time_s})

    def fault(self, row: Mapping[str, Any]) -> None:
        self._run.summary.update({"faults": [*self._run.summary.get("faults", ()), dict(row)]})

    def end(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update({f"bytes/{name}": n for name, n in summary["bytes"].items()})
        self._run.finish(exit_code=1 if "aborted" in summary else 0)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``track=[wandb]``."""
    register("track", NAME, WandbConfig, Wandb)
