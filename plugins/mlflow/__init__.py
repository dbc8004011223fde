"""MLflow: a run with parameters, curves and the files of geomx's own run as artefacts.

Values are sent in batches of `BATCH`, because a tracking server answers every request. The times of
values are those of the run after its creation, virtual in a simulation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from geomx.errors import ConfigError
from geomx.plugin import TrackedRun, Tracker
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register

NAME = "mlflow"
BATCH = 200
ARTEFACTS = ("report.html", "summary.json", "links.csv", "edges.csv", "network.json")
LONGEST = 6000
"""Characters of a parameter's value, the limit of MLflow."""
MOST = 100
"""Parameters that MLflow takes in one request."""
REFUSED = re.compile(r"[^\w.\- :/]")
"""Characters that MLflow takes in no name."""


@dataclass(frozen=True)
class MlflowConfig:
    """Options of MLflow."""

    uri: str | None = None
    """Tracking server or store; null: MLflow's own default, with MLFLOW_TRACKING_URI."""
    experiment: str = "geomx"
    """MLflow experiment that gets the run."""
    artefacts: bool = True
    """Store report, summary and tables of traffic with the run."""


class Mlflow:
    """A run in MLflow with parameters, curves and report; needs geomx[mlflow]."""

    def __init__(self, config: MlflowConfig) -> None:
        try:
            import mlflow
        except ImportError as error:
            remedy = "needs MLflow: pip install 'geomx[mlflow]'"
            raise ConfigError("track", f"[{NAME}]", remedy) from error
        self._mlflow = mlflow
        self._config = config

    @hookimpl
    def geomx_track(self, run: TrackedRun) -> Tracker:
        """Create an MLflow run."""
        client = self._mlflow.MlflowClient(self._config.uri)
        experiment = experiment_id(client, self._config.experiment)
        return _Run(self._mlflow, client, experiment, run, self._config.artefacts)


def experiment_id(client: Any, name: str) -> str:
    """Return the id of an experiment, which is created unless it exists.

    Jobs of a sweep may create it at the same time; then all use the one that was first.

    Args:
        client: MLflow's client.
        name: Name of the experiment.

    Raises:
        ConfigError: It was deleted, but its name is still in use.
    """
    known = client.get_experiment_by_name(name)
    if known is None:
        try:
            return str(client.create_experiment(name))
        except Exception:
            known = client.get_experiment_by_name(name)
            if known is None:
                raise
    if known.lifecycle_stage == "deleted":
        again = f"mlflow experiments restore --experiment-id {known.experiment_id}"
        remedy = f"was deleted in MLflow: run `{again}`, or choose another name"
        raise ConfigError("track.mlflow.experiment", name, remedy)
    return str(known.experiment_id)


class _Run(Tracker):
    def __init__(
        self, mlflow: Any, client: Any, experiment: str, run: TrackedRun, artefacts: bool
    ) -> None:
        self._entities, self._client, self._run = mlflow.entities, client, run
        self._artefacts = artefacts
        began_ms = int(run.began_s * 1000)
        tags = {"mode": run.mode, "mlflow.source.name": "geomx"}
        made = client.create_run(experiment, began_ms, tags, f"{run.name} ({run.mode})")
        self._id: str = made.info.run_id
        parameters = [
            self._entities.Param(REFUSED.sub("_", name), str(value)[:LONGEST])
            for name, value in run.parameters.items()
        ]
        for first in range(0, len(parameters), MOST):
            client.log_batch(self._id, params=parameters[first : first + MOST])
        self._metrics: list[Any] = []
        self._last_s = 0.0
        self._faults: list[Mapping[str, Any]] = []

    def scalars(self, values: Mapping[str, float], iteration: int, time_s: float) -> None:
        self._last_s = max(self._last_s, time_s)
        at_ms = int((self._run.began_s + time_s) * 1000)
        metric = self._entities.Metric
        self._metrics += [metric(name, value, at_ms, iteration) for name, value in values.items()]
        if len(self._metrics) >= BATCH:
            self._send()

    def fault(self, row: Mapping[str, Any]) -> None:
        self._faults.append(row)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.scalars({f"bytes/{name}": n for name, n in summary["bytes"].items()}, 0, self._last_s)
        self._send()
        if self._faults:
            self._client.log_dict(self._id, {"faults": self._faults}, "faults.json")
        for name in ARTEFACTS if self._artefacts else ():
            if (self._run.directory / name).exists():
                self._client.log_artifact(self._id, str(self._run.directory / name))
        status = "FAILED" if "aborted" in summary else "FINISHED"
        end_ms = int((self._run.began_s + self._last_s) * 1000)
        self._client.set_terminated(self._id, status, end_ms)

    def _send(self) -> None:
        for first in range(0, len(self._metrics), BATCH):
            self._client.log_batch(self._id, metrics=self._metrics[first : first + BATCH])
        self._metrics = []


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``track=[mlflow]``."""
    register("track", NAME, MlflowConfig, Mlflow)
