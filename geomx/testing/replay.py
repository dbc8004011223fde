"""What a run with ``faults.on_loss=continue`` must have computed: its participation, replayed."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.cluster import Cluster
from geomx.errors import GeomxError
from geomx.experiment.experiment import Experiment
from geomx.experiment.native_parts import training_optimizers
from geomx.plugin.parts import as_vector, optimizer_text
from geomx.plugin.workloads import model_of
from geomx.results.files import read_table

Values = NDArray[np.float32]


Round = tuple[str, int]
"""A tensor, and the number of a global round of it."""

Told = dict[tuple[str, str], dict[int, list[set[str]]]]
"""The workers that a local server's sums lack: by server, tensor and global round, in order."""


def participants(folder: Path, cluster: Cluster) -> dict[Round, list[list[str]]]:
    """Return who took part in the incomplete global rounds of a run.

    A local server's row counts if its sum does: a round without a worker has a row of the global
    server, with the number of workers. The last rows of a local server that was killed may be
    missing, or be of sums that never arrived; the number tells whether all were there, or the
    same workers as in the party's round before.

    Args:
        folder: Folder of the run.
        cluster: Its nodes.

    Returns:
        For each tensor and global round, the names of the workers, by party.

    Raises:
        GeomxError: The rows do not say who took part.
    """
    table = folder / "participation.csv"
    rows = read_table(table) if table.exists() else []
    servers = {party.server.name for party in cluster.parties}
    partial: dict[Round, tuple[int, set[str]]] = {}
    told: Told = defaultdict(dict)
    for row in rows:
        tensor, server = row["tensor"], row["server"]
        names = set(str(row["absent"] or "").split())
        if server in servers:
            told[server, tensor].setdefault(int(row["global_round"]), []).append(names)
        else:
            about = tensor, int(row["round"])
            workers, absent = partial.get(about, (row["workers"], set()))
            partial[about] = min(workers, row["workers"]), absent | names
    return {about: _taken(cluster, about, *partial[about], told) for about in partial}


def _taken(
    cluster: Cluster, about: Round, workers: int, absent: set[str], told: Told
) -> list[list[str]]:
    """Return who took part in one round: the likeliest that comes to this number of workers."""
    tensor, number = about
    possible = []
    for party in cluster.parties:
        if party.server.name in absent:
            continue
        rows = told[party.server.name, tensor]
        earlier = rows.get(max((each for each in rows if each < number), default=0), [])
        gone = [*rows.get(number, [])[::-1], set(), *earlier[-1:]]
        names = [worker.name for worker in party.workers]
        possible.append([[name for name in names if name not in each] for each in gone])
    for parties in product(*possible):
        if sum(len(party) for party in parties) == workers:
            return [party for party in parties if party]
    raise GeomxError(f"participation.csv does not say which {workers} workers took part in {about}")


def replay(experiment: Experiment, folder: Path) -> dict[str, Values]:
    """Train with plain sums over those who took part.

    It applies to sync algorithms in which every step is a global round, without codecs or a quorum.

    Args:
        experiment: The experiment.
        folder: Folder of its run.

    Returns:
        The final values by tensor, which the run must equal bit by bit.
    """
    cluster, workload = experiment.cluster, experiment.workload
    workers = [worker.name for worker in cluster.workers]
    model = model_of(workload, experiment.seed)
    spec, _ = training_optimizers(cluster, experiment.selection, workload.optimizer)
    assert spec is not None
    keys = range(len(workload.tensors))
    optimizers = [_core.Optimizer(optimizer_text(spec), key) for key in keys]
    weights = [as_vector(model.get(model.parameters, key)).copy() for key in keys]
    partial = participants(folder, cluster)
    everybody = [[worker.name for worker in party.workers] for party in cluster.parties]
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
