"""Helpers for tests of training: networks, workloads, reference results, expected bytes, an
observer of events, and the workers of a cluster in this process."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np

import geomx
from geomx.kv.local import LocalCluster
from geomx.live.member import Member
from geomx.plugin.registry import Registry
from geomx.results.results import Results
from geomx.workload import Layer, TensorSpec, Workload

FRAME_BYTES = 256 * 1024
PARTIES = [(1,), (4,), (2, 2), (1, 3), (3, 1, 2)]
Build = Callable[..., Any]


def short_form(
    *workers: int,
    mbps: float = 100,
    delay_ms: float = 10,
    loss: float = 0.0,
    lan: dict[str, float] | None = None,
    speed: Sequence[Sequence[float]] = (),
) -> dict[str, Any]:
    """Return the content of a network file: a party per entry of `workers`, around a faster hub."""
    parties = {
        f"party{index}": {"workers": count, "uplink_mbps": mbps, "downlink_mbps": mbps}
        for index, count in enumerate(workers)
    }
    for party, speeds in zip(parties.values(), speed, strict=False):
        party["speed"] = list(speeds)  # type: ignore[assignment]
    return {
        "central": {"name": "hub", "uplink_mbps": 10 * mbps, "downlink_mbps": 10 * mbps},
        "parties": parties,
        "delay_ms": delay_ms,
        "loss": loss,
        "lan": lan or {"mbps": 10_000, "delay_ms": 0.05},
    }


def sizes(
    *elements: int, forward_s: float = 0.001, backward_s: float = 0.002, **more: Any
) -> Workload:
    """Return a workload without numerics: one layer with one tensor per entry of `elements`."""
    layers = tuple(Layer(f"layer{i}", forward_s, backward_s) for i in range(len(elements)))
    tensors = tuple(TensorSpec(f"t{i}", (count,), i) for i, count in enumerate(elements))
    return Workload("sizes", layers, tensors, batch_size=1, samples=1, iterations=1, **more)


@dataclass
class Run:
    """One simulated run with its simulation and results."""

    simulation: Any
    results: Results

    @property
    def parameters(self) -> list[np.ndarray]:
        return list(self.results.parameters().values())

    @property
    def bytes(self) -> dict[str, int]:
        return self.results.summary["bytes"]

    def stats(self, role: str) -> dict[str, int]:
        """Return the sum of the counts of all nodes with `role`."""
        nodes = [n for n in self.simulation.experiment.cluster.nodes if n.role == role]
        counts = [self.simulation.fabric.node_stats(node.id) for node in nodes]
        return {name: sum(count[name] for count in counts) for name in counts[0]}


def same(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def close(one: Sequence[np.ndarray], other: Sequence[np.ndarray], tolerance: float) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in pairs)


def on_all_batches(tiny: Any, seed: int, workers: int) -> list[np.ndarray]:
    """Return the parameters of one worker trained on the batches of all workers, with plain SGD."""
    model, rate = tiny.model(seed), np.float32(tiny.optimizer["learning_rate"])
    for step in range(tiny.iterations):
        batches = [model.batch(step, worker, workers) for worker in range(workers)]
        model.differentiate(np.concatenate(batches))
        for key, gradient in enumerate(model.gradients):
            model.parameters[key] -= rate * gradient
    return model.parameters


def counting(tiny: Any, seed: int, monkeypatch: Any) -> Any:
    """Return `tiny` with gradients of 1 and a learning rate of 1: its parameters count updates."""

    def ones(model: Any, chosen: np.ndarray) -> float:
        for gradient in model.gradients:
            gradient[...] = 1
        return 1.0

    monkeypatch.setattr(type(tiny.model(seed)), "differentiate", ones)
    return type(tiny)(**{**vars(tiny), "optimizer": {"name": "sgd", "learning_rate": 1.0}})


def by_hand(
    tiny: Any, seed: int, counts: Sequence[int], iterations: int, k1: int = 1, k2: int = 1
) -> list[np.ndarray]:
    """Reference of hierarchical averaging; k1 = k2 = 1 is full synchrony with plain SGD."""
    rate = np.float32(tiny.optimizer["learning_rate"])
    model = tiny.model(seed)
    total, last = sum(counts), iterations - 1
    start = [value.copy() for value in model.parameters]
    local = [[value.copy() for value in start] for _ in range(total)]
    parties = np.split(np.arange(total), np.cumsum(counts)[:-1])
    rounds = 0
    for step in range(iterations):
        for worker in range(total):
            for key, value in enumerate(local[worker]):
                model.set(key, value)
            model.step(step, worker, total)
            for key, gradient in enumerate(model.gradients):
                local[worker][key] -= rate * gradient
        if (step + 1) % k1 and step != last:
            continue
        rounds += 1
        groups = parties if rounds % k2 and step != last else [np.arange(total)]
        for group in groups:
            for key in range(len(start)):
                mean = np.mean([local[worker][key] for worker in group], axis=0)
                for worker in group:
                    local[worker][key] = mean.copy()
    return local[0]


def expected_bytes(workload: Workload, bytes_per_element: int = 4) -> int:
    """Return the bytes of one value of the model on one link: payload, and 80 per message."""
    total = 0
    for tensor in workload.tensors:
        payload = tensor.elements * bytes_per_element
        total += payload + 80 * max(1, -(-payload // FRAME_BYTES))
    return total


class Watch:
    """An observer of events, like a third-party plugin."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @geomx.hookimpl
    def geomx_events(self, events: Any) -> None:
        events.subscribe(self.seen.extend)

    def arrivals(self, node: str, step: int) -> list[int]:
        """Return tensors in the order in which their values of `step` arrived at `node`."""
        values = [e for e in self.seen if e.kind == "value" and e.node == node]
        return [event.key for event in values if event.round == step + 1]


@dataclass(frozen=True)
class Plain:
    """A plugin's options: none."""


def registry_with(**plugins: tuple[str, Any]) -> Registry:
    """Return a registry of the installed plugins and of these: name=(kind, instance)."""

    @geomx.hookimpl
    def geomx_register(register: Any) -> None:
        for name, (kind, instance) in plugins.items():
            register(kind, name, Plain, lambda config, built=instance: built)

    registry = Registry.discover()
    registry.ask(types.SimpleNamespace(__name__="stranger", geomx_register=geomx_register))
    return registry


def by_all_workers(cluster: LocalCluster, act: Callable[[Member], Any]) -> list[Any]:
    """Run `act` for all workers concurrently, and close the cluster; return the results.

    The first error closes it at once: the others would wait for that worker, and hide its error.
    """
    with ThreadPoolExecutor(len(cluster.workers)) as pool:
        acts = [pool.submit(act, member) for member in cluster.workers]
        try:
            for each in as_completed(acts):
                each.result()
        finally:
            cluster.close()
    return [each.result() for each in acts]
