"""Runs with a slow node, for tests of rounds that close without late parties or workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.results.files import read_table
from geomx.results.results import Results
from tests.laws import registry_with


def words_of(
    folder: Path, parties: Mapping[str, Mapping[str, Any]], quorum: Sequence[str], *more: str
) -> list[str]:
    """Return the words of a run of these parties with equal access links."""
    access = {"uplink_mbps": 400, "downlink_mbps": 400}
    network: dict[str, Any] = {
        "central": {"name": "hub", **access},
        "parties": {name: {**party, **access} for name, party in parties.items()},
        "delay_ms": 5,
    }
    path = folder.parent / "network.yaml"
    path.write_text(str(network))
    return [
        f"network={path}", "iterations=12", "faults.on_loss=continue", *quorum,
        "workload=tiny", "workload.forward_ms=10", "workload.backward_ms=20",
        "sim.max_spans=0", f"hydra.run.dir={folder}", *more,
    ]  # fmt: skip


def rows_of(results: Results, worker: str) -> list[dict[str, Any]]:
    return [row for row in results.iterations if row["worker"] == worker]


def took_part(folder: Path) -> list[tuple[Any, ...]]:
    """Return who was absent or late in which round of which tensor."""
    rows = read_table(folder / "participation.csv")
    chosen = ("server", "tensor", "shard", "round", "absent", "late")
    return sorted(tuple(str(row[name] or "") for name in chosen) for row in rows)


def same_parameters(one: Results, other: Results) -> bool:
    pairs = zip(one.parameters().values(), other.parameters().values(), strict=True)
    return all(np.array_equal(first, second) for first, second in pairs)


def costs_the_deadline(alone: Results, slow: Results, workers: Sequence[str], which: slice) -> None:
    """Check that a slow node makes these iterations of the others longer by 0.2 s, no more."""
    undisturbed = rows_of(alone, workers[0])[5]
    undisturbed_s = undisturbed["end_s"] - undisturbed["start_s"]
    for worker in workers:
        for row in rows_of(slow, worker)[which]:
            assert row["end_s"] - row["start_s"] == pytest.approx(undisturbed_s + 0.2, abs=1e-3)
    assert alone.summary["participation"]["without"] == 0
    assert slow.summary["participation"]["late"] > 0


def is_refused(words: Sequence[str], key: str) -> None:
    """Check that these words are refused, with `key` as the reason."""
    with pytest.raises(ConfigError) as caught:
        compose(list(words))
    assert caught.value.key == key


class Buffer:
    """FedBuff's rounds in Python."""

    relative = False

    def __init__(self, k: int, oldest: int) -> None:
        self.k, self.oldest = k, oldest

    def closes_at(
        self, shard: Any, contributions: Any, awaited: Any, before_s: float | None, now_s: float
    ) -> float | None:
        return now_s if len(contributions) >= self.k else None

    def takes(self, shard: Any, late: geomx.Contribution) -> bool:
        return late.age <= self.oldest

    def weigh(self, shard: Any, contributions: Any, workers: int) -> list[float]:
        return [(1 + each.age) ** -0.5 for each in contributions]


class Confused(Buffer):
    def weigh(self, shard: Any, contributions: Any, workers: int) -> list[float]:
        return []


def in_python(method: str, rounds: Any, **options: int) -> Any:
    """Return a registry with ``sync=own``: fedbuff, with rounds in Python.

    Args:
        method: Of the sync policy, which is to return the rounds.
        rounds: The method.
        options: Those of fedbuff.
    """

    class Own:
        @geomx.hookimpl
        def geomx_sync_policy(self, cluster: Any) -> geomx.SyncPolicy:
            from geomx.plugins.fedbuff import FedBuffConfig, FedBuffPolicy

            policy = type("Policy", (FedBuffPolicy,), {method: rounds})
            own: geomx.SyncPolicy = policy(FedBuffConfig(**options))
            return own

    return registry_with(own=("sync", Own()))
