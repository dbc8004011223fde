"""Shared fixtures: the seed, small clusters, network files, and simulations.

Tests draw random numbers from one seed, `pytest --seed=N` (default 0; `random` draws a new seed),
which is printed in the header and with every failure, so that failures can be reproduced.
"""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

from geomx.cluster import Cluster
from geomx.experiment.experiment import Experiment
from geomx.experiment.validation import validate
from geomx.live.fork_pool import kept
from geomx.network.files import read_network
from geomx.options.costs import FIGURES, Costs
from geomx.options.schema import SimOptions
from geomx.plugin.registry import Registry
from geomx.results.recorder import Recorder
from geomx.scenario.programs import Program
from geomx.workload import Layer, TensorSpec, Workload
from geomx.workloads.tiny import BATCH, FEATURES, HIDDEN, SAMPLES, TinyWorkload
from tests.laws import Run, short_form, sizes

SEED = pytest.StashKey[int]()
FOLDER = pytest.StashKey[Path | None]()
MEMORY_BYTES = 4 << 30  # that must be free for temporary files to be in memory
SLOW_AS_A_WHOLE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", default="0", help="seed of every law: a number, or 'random'")


def pytest_configure(config: pytest.Config) -> None:
    # Hundreds of processes import the same modules, so bytecode is cached, that of tests included.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # All cores are at work on tests: threads of a matrix product would only wait for each other.
    for library in ("OPENBLAS", "OMP"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # No test depends on the machine's speed, as Hypothesis's deadline of 200 ms per example does.
    hypothesis.settings.register_profile("geomx", deadline=None)
    hypothesis.settings.load_profile("geomx")
    if not hasattr(config, "workerinput"):  # xdist's processes inherit it
        config.stash[FOLDER] = use_memory()
    text = config.getoption("--seed")
    number = random.SystemRandom().randrange(2**31) if text == "random" else int(text)
    config.stash[SEED] = number


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Leave what test files import out of all searches for garbage: each would take 0.2 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def use_memory() -> Path | None:
    """Write temporary files to memory: tests create so many that a disk takes a third of the time.

    Not where TMPDIR is set, memory is short, or programs must not run from there.

    Returns:
        The folder, which is deleted in the end; None if there is none.
    """
    shared = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(shared, os.W_OK):
        return None
    system = os.statvfs(shared)
    if system.f_flag & os.ST_NOEXEC or system.f_bavail * system.f_frsize < MEMORY_BYTES:
        return None
    folder = tempfile.mkdtemp(prefix="geomx-", dir=shared)
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    return Path(folder)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the files of tests that failed, and say where."""
    folder = session.config.stash.get(FOLDER, None)
    if folder is not None and exitstatus == pytest.ExitCode.TESTS_FAILED:
        session.config.stash[FOLDER] = None
        print(f"\nfiles of the tests that failed are in {folder}, in memory: delete it")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let the interpreter free all at its end, as nanobind names what it does not."""
    if not hasattr(config, "workerinput"):
        gc.unfreeze()
        if folder := config.stash.get(FOLDER, None):
            shutil.rmtree(folder, ignore_errors=True)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use two processes for quick tests, which compute, and three for all tests, as slow ones spend
    half of their time waiting."""
    return 2 if config.option.markexpr == "quick" else 3


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files that contain slow tests only if quick tests are selected, as some import
    PyTorch."""
    if config.option.markexpr != "quick" or not collection_path.match("test_*.py"):
        return None
    return True if SLOW_AS_A_WHOLE.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests that are not slow as quick. Order files by the weight of their slow tests,
    heaviest first, so that all processes end at about the same time."""
    slow: Counter[Path] = Counter()
    for item in items:
        if mark := item.get_closest_marker("slow"):
            slow[item.path] += mark.args[0] if mark.args else 1
        else:
            item.add_marker("quick")
    items.sort(key=lambda item: -slow[item.path])


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.stash[SEED]}"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their length and not by their content, which is hard to read and, if it differs
    between processes, makes xdist collect different tests."""
    return f"{argname}-{len(val)}B" if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"repeat with --seed={item.config.stash[SEED]}"))
    return report


@pytest.fixture(scope="session", autouse=True)
def one_fork_server() -> Iterator[None]:
    """Let all live runs of this process share the imports of one that forks their nodes."""
    with kept(apart_from=["PYTEST_CURRENT_TEST"]):
        yield


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this session."""
    return request.config.stash[SEED]


# ---- networks ----


@pytest.fixture
def network() -> Callable[..., dict[str, Any]]:
    """Return the content of a network file: ``network(1, 3, mbps=20, loss=0.01)``."""
    return short_form


@pytest.fixture
def network_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a network file: ``network_file(1, 3, loss=0.05)``."""

    def write(*workers: int, name: str = "network.yaml", **options: Any) -> Path:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(short_form(*workers, **options)), encoding="utf-8")
        return path

    return write


@pytest.fixture
def two_parties() -> Cluster:
    """Return a cluster of two parties of two workers around a hub."""
    return read_network(short_form(2, 2))


@pytest.fixture
def sized() -> Callable[..., Workload]:
    """Return workloads without numerics: ``sized(1000, 1000, backward_s=0)``."""
    return sizes


@pytest.fixture
def tiny() -> TinyWorkload:
    """Return a workload with numerics: two layers, three tensors, 560 elements, plain SGD."""
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


@cache
def _discovered(path: tuple[str, ...]) -> Registry:
    return Registry.discover()


def installed() -> Registry:
    """Return all plugins on Python's path, cached until the path changes."""
    return _discovered(tuple(sys.path))


FREE = Costs(**dict.fromkeys(FIGURES, 0.0))


@pytest.fixture
def experiment(seed: int) -> Callable[..., Experiment]:
    """Build an experiment from its parts, with endpoint costs of zero unless `costs` are given."""

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
            selection=(registry or installed()).select(sync, chosen),
            costs=FREE,
            sim=SimOptions(max_spans=0),  # writing a trace would take a third of the time
        )
        built = replace(built, **changes)
        validate(built)
        return built

    return build


@pytest.fixture
def simulate(
    experiment: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Run]:
    """Simulate the experiment that `experiment` builds from the same arguments.

    There is no trace, unless `sim` has other options.
    """

    def run(*arguments: Any, **changes: Any) -> Run:
        from geomx.sim.simulation import Simulation

        built = experiment(*arguments, **changes)
        header = {**built.header(), "mode": "sim"}
        recorder = Recorder(tmp_path_factory.mktemp("run"), header, built.sim.max_spans)
        recorder.network(built.cluster.graph)
        simulation = Simulation(built, recorder)
        return Run(simulation, simulation.run())

    return run


@pytest.fixture
def act(simulate: Callable[..., Any], sized: Callable[..., Any]) -> Callable[..., Any]:
    """Run a program in a simulation of one worker per party that pushes `elements` numbers."""

    def run(program: Callable[[Any], None] | None, elements: int = 100_000, **more: Any) -> Any:
        programs = (Program("program", program),) if program else ()
        network = more.pop("network", short_form(1, 1, mbps=80, delay_ms=10))
        steps = more.pop("iterations", 3)
        workload = sized(elements, forward_s=0.01, backward_s=0.01)
        return simulate(
            network, workload, iterations=steps, numerics=False, programs=programs, **more
        )

    return run


def present(*names: str) -> bool:
    """Return whether plugins of these names are installed."""
    known = {plugin.name for plugin in installed().plugins()}
    return set(names) <= known


@pytest.fixture(autouse=True)
def _skip_absent_plugins(request: pytest.FixtureRequest) -> None:
    """Skip tests marked ``@pytest.mark.needs("dgt")`` if the plugin has been deleted."""
    for mark in request.node.iter_markers("needs"):
        if not present(*mark.args):
            pytest.skip(f"not installed: {', '.join(mark.args)}")
