"""What a run with ``faults.on_loss=continue`` must have computed: its participation, replayed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.cluster import Cluster
from geomx.experiment.experiment import Experiment
from geomx.experiment.native_parts import training_optimizers
from geomx.plugin.parts import as_vector, optimizer_text
from geomx.results.files import read_table

Values = NDArray[np.float32]


def participants(folder: Path, cluster: Cluster) -> dict[tuple[str, int], list[list[str]]]:
    """Return who took part in the incomplete rounds of a run.

    Args:
        folder: Folder of the run.
        cluster: Its nodes.

    Returns:
        For each tensor and global round, the names of the workers, by party.
    """
    table = folder / "participation.csv"
    rows = read_table(table) if table.exists() else []
    absent: dict[tuple[str, int], set[str]] = defaultdict(set)
    for row in rows:
        number = int(row["global_round"] or row["round"])
        absent[row["tensor"], number].update(str(row["absent"] or "").split())
    return {key: _present(cluster, names) for key, names in absent.items()}


def _present(cluster: Cluster, absent: set[str]) -> list[list[str]]:
    parties = (
        [worker.name for worker in party.workers if worker.name not in absent]
        for party in cluster.parties
        if party.server.name not in absent
    )
    return [party for party in parties if party]


def replay(experiment: Experiment, folder: Path) -> dict[str, Values]:
    """Train with plain sums over those who took part.

    It applies to sync algorithms in which every step is a global round, without codecs.

    Args:
        experiment: The experiment.
        folder: Folder of its run.

    Returns:
        The final values by tensor, which the run must equal bit by bit.
    """
    cluster, workload = experiment.cluster, experiment.workload
    workers = [worker.name for worker in cluster.workers]
    model = workload.model(experiment.seed)
    spec, _ = training_optimizers(cluster, experiment.selection, workload.optimizer)
    assert spec is not None
    keys = range(len(workload.tensors))
    optimizers = [_core.Optimizer(optimizer_text(spec), key) for key in keys]
    weights = [as_vector(model.get(model.parameters, key)).copy() for key in keys]
    partial = participants(folder, cluster)
    everybody = _present(cluster, set())
    for step in range(experiment.iterations):
        gradients = {}
        for rank, worker in enumerate(workers):
            for key, tensor in enumerate(workload.tensors):
                model.set(key, weights[key].reshape(tensor.shape))
            model.step(step, rank, len(workers))
            gradients[worker] = [as_vector(model.get(model.gradients, k)).copy() for k in keys]
        for key, tensor in enumerate(workload.tensors):
            parties = partial.get((tensor.name, step + 1), everybody)
            sums = [_sum([gradients[worker][key] for worker in party]) for party in parties]
            total, count = _sum(sums), sum(len(party) for party in parties)
            if count < len(workers):
                total = total * np.float32(len(workers) / count)
            optimizers[key].update(weights[key], np.ascontiguousarray(total), len(workers))
    return {
        tensor.name: weights[key].reshape(tensor.shape)
        for key, tensor in enumerate(workload.tensors)
    }


def _sum(values: list[Values]) -> Values:
    total = values[0].copy()
    for value in values[1:]:
        total += value
    return total
