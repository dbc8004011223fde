"""What the tests share: the seed, small clusters, network files, and a model that costs nothing.

Every law draws from one seed, `pytest --seed=N` (0 if not given, `random` for a new one), which is
printed at the top and again with every failure, so that any failure can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from geomx.cluster import Cluster
from geomx.config import Costs
from geomx.experiment import Experiment
from geomx.network import read_network
from geomx.registry import Registry
from geomx.results import Recorder, Results
from geomx.workload import Layer, Model, TensorSpec, Workload

SEED = pytest.StashKey[int]()
SAMPLES, FEATURES, HIDDEN, BATCH = 480, 12, 40, 8


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", default="0", help="seed of every law: a number, or 'random'")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): skipped unless these plugins are installed")
    text = config.getoption("--seed")
    number = random.SystemRandom().randrange(2**31) if text == "random" else int(text)
    config.stash[SEED] = number


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.stash[SEED]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"repeat with --seed={item.config.stash[SEED]}"))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this session."""
    return request.config.stash[SEED]


# ---- networks ----


def short_form(
    *workers: int,
    mbps: float = 100,
    delay_ms: float = 10,
    loss: float = 0.0,
    lan: dict[str, float] | None = None,
    speed: Sequence[Sequence[float]] = (),
) -> dict[str, Any]:
    """A network file's content: one party per entry of `workers`, around a hub ten times as fast."""
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


@pytest.fixture
def network() -> Callable[..., dict[str, Any]]:
    """Content of a network file: ``network(1, 3, mbps=20, loss=0.01)``."""
    return short_form


@pytest.fixture
def network_file(tmp_path: Path) -> Callable[..., Path]:
    """Write such content to a file: ``network_file(1, 3, loss=0.05)``."""

    def write(*workers: int, name: str = "network.yaml", **options: Any) -> Path:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(short_form(*workers, **options)), encoding="utf-8")
        return path

    return write


@pytest.fixture
def two_parties() -> Cluster:
    """Two parties of two workers around a hub."""
    return read_network(short_form(2, 2))


# ---- a model that costs nothing ----


class TinyModel:
    """A tanh network on made-up data; numpy alone, float32, every operation in a fixed order."""

    def __init__(self, tensors: Sequence[TensorSpec], seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.inputs = draw.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
        direction = draw.standard_normal(FEATURES, dtype=np.float32)
        self.targets = np.sign(self.inputs @ direction)
        self.parameters = [
            0.3 * draw.standard_normal(tensor.shape, dtype=np.float32) for tensor in tensors
        ]
        self.gradients = [np.zeros(tensor.shape, np.float32) for tensor in tensors]

    def batch(self, step: int, worker: int, workers: int) -> np.ndarray:
        """Indices of a worker's batch: its own slice of the samples, round and round."""
        mine = SAMPLES // workers
        return worker * mine + (step * BATCH + np.arange(BATCH)) % mine

    def differentiate(self, chosen: np.ndarray) -> float:
        """Loss and gradients of the mean over the samples `chosen`."""
        inputs, targets = self.inputs[chosen], self.targets[chosen]
        weight1, bias1, weight2 = self.parameters
        hidden = np.tanh(inputs @ weight1 + bias1)
        error = hidden @ weight2 - targets
        back = np.outer(error, weight2) * (1 - hidden**2) / np.float32(len(chosen))
        self.gradients[0][...] = inputs.T @ back
        self.gradients[1][...] = back.sum(axis=0)
        self.gradients[2][...] = hidden.T @ error / np.float32(len(chosen))
        return float((error**2).mean() / 2)

    def step(self, step: int, worker: int, workers: int) -> float:
        return self.differentiate(self.batch(step, worker, workers))

    def get(self, arrays: Sequence[np.ndarray], key: int) -> np.ndarray:
        return arrays[key].copy()

    def set(self, key: int, value: np.ndarray) -> None:
        self.parameters[key][...] = value

    def evaluate(self, parameters: Sequence[np.ndarray]) -> tuple[float, float]:
        weight1, bias1, weight2 = parameters
        scores = np.tanh(self.inputs @ weight1 + bias1) @ weight2
        correct = np.mean(np.sign(scores) == self.targets)
        return float(correct), float(((scores - self.targets) ** 2).mean() / 2)


@dataclass(frozen=True)
class TinyWorkload(Workload):
    """The workload of `TinyModel`."""

    has_numerics: bool = True

    def model(self, seed: int) -> Model:
        return TinyModel(self.tensors, seed)


def sizes(
    *elements: int, forward_s: float = 0.001, backward_s: float = 0.002, **more: Any
) -> Workload:
    """A size-only workload: one layer with one tensor per entry of `elements`."""
    layers = tuple(Layer(f"layer{i}", forward_s, backward_s) for i in range(len(elements)))
    tensors = tuple(TensorSpec(f"t{i}", (count,), i) for i, count in enumerate(elements))
    return Workload("sizes", layers, tensors, batch_size=1, samples=1, iterations=1, **more)


@pytest.fixture
def sized() -> Callable[..., Workload]:
    """Size-only workloads: ``sized(1000, 1000, backward_s=0)``."""
    return sizes


@pytest.fixture
def tiny() -> TinyWorkload:
    """A workload with numbers: two layers, three tensors, 560 elements, plain SGD."""
    return TinyWorkload(
        name="tiny",
        layers=(Layer("hidden", 0.001, 0.002), Layer("output", 0.001, 0.002)),
        tensors=(
            TensorSpec("hidden.weight", (FEATURES, HIDDEN), 0),
            TensorSpec("hidden.bias", (HIDDEN,), 0),
            TensorSpec("output.weight", (HIDDEN,), 1),
        ),
        batch_size=BATCH,
        samples=SAMPLES,
        iterations=6,
        optimizer={"name": "sgd", "learning_rate": 0.05},
    )


# ---- running ----


@dataclass
class Run:
    """One simulated run and the world it happened in."""

    simulation: Any
    results: Results

    @property
    def parameters(self) -> list[np.ndarray]:
        return list(self.results.parameters().values())

    @property
    def bytes(self) -> dict[str, int]:
        return self.results.summary["bytes"]

    def stats(self, role: str) -> dict[str, int]:
        """Counts of all nodes in `role`, added up."""
        nodes = [n for n in self.simulation.experiment.cluster.nodes if n.role == role]
        counts = [self.simulation.fabric.node_stats(node.id) for node in nodes]
        return {name: sum(count[name] for count in counts) for name in counts[0]}


FREE = Costs(**dict.fromkeys(Costs.__dataclass_fields__, 0.0))


@pytest.fixture
def experiment(seed: int) -> Callable[..., Experiment]:
    """Build an experiment from parts, free endpoints unless `costs` are given."""

    def build(
        network: dict[str, Any] | Cluster,
        workload: Workload,
        sync: tuple[str, dict[str, Any]] | None = None,
        accel: Sequence[str | tuple[str, dict[str, Any]]] = (),
        registry: Registry | None = None,
        **changes: Any,
    ) -> Experiment:
        chosen = [(choice, {}) if isinstance(choice, str) else choice for choice in accel]
        built = Experiment(
            mode="sim",
            seed=seed,
            iterations=workload.iterations,
            numerics=workload.has_numerics,
            cluster=network if isinstance(network, Cluster) else read_network(network),
            workload=workload,
            selection=(registry or Registry.discover()).select(sync, chosen),
            costs=FREE,
        )
        built = replace(built, **changes)
        built.validate()
        return built

    return build


@pytest.fixture
def simulate(
    experiment: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Run]:
    """Simulate what `experiment` would build from the same arguments."""

    def run(*arguments: Any, **changes: Any) -> Run:
        from geomx.sim.simulation import Simulation

        built = experiment(*arguments, **changes)
        recorder = Recorder(tmp_path_factory.mktemp("run"), {**built.header(), "mode": "sim"})
        recorder.network(built.cluster.graph)
        simulation = Simulation(built, recorder)
        return Run(simulation, simulation.run())

    return run


def present(*names: str) -> bool:
    """Whether plugins of these names are installed."""
    known = {plugin.name for plugin in Registry.discover().plugins()}
    return set(names) <= known


@pytest.fixture(autouse=True)
def _skip_absent_plugins(request: pytest.FixtureRequest) -> None:
    """Honour ``@pytest.mark.needs("dgt")``: tests of a plugin go where its folder goes."""
    for mark in request.node.iter_markers("needs"):
        if not present(*mark.args):
            pytest.skip(f"not installed: {', '.join(mark.args)}")
