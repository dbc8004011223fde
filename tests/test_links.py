"""Broken connections during a run: its parameters equal an undisturbed run's, bit by bit."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import _core
from geomx.config.compose import compose
from geomx.errors import NodeLost
from geomx.live.launcher import run_experiment
from geomx.results.recorder import Recorder
from geomx.results.results import Results
from geomx.sim.simulation import Simulation
from tests.broken import Breaker, processes

needs_namespaces = pytest.mark.skipif(
    bool(_core.why_no_namespaces()), reason="needs root and network namespaces"
)
NETWORK = """
name: small
central: {name: hub, global_servers: 1, uplink_mbps: 400, downlink_mbps: 400}
parties:
  east: {workers: 2, uplink_mbps: 400, downlink_mbps: 400}
  west: {workers: 1, uplink_mbps: 400, downlink_mbps: 400}
delay_ms: 5
lan: {mbps: 10000, delay_ms: 0.05}
"""

# For laws that do not depend on values or sizes: it starts without MXNet.
SMALL = ["workload=tiny", "workload.forward_ms=10", "workload.backward_ms=20"]


def live(folder: Path, *words: str) -> Results:
    """Run live, with files in `folder`."""
    network = folder.parent / "network.yaml"
    network.write_text(NETWORK)
    experiment, _ = compose(["mode=live", f"network={network}", "iterations=30", *words])
    return run_experiment(experiment, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["+sync=fsa", "+accel=[p3]"], marks=pytest.mark.needs("fsa", "p3")),
        pytest.param(
            [
                *SMALL,
                "+sync=hfa",
                "sync.k1=3",
                "sync.k2=2",
                "+accel=[bisparse]",
                "accel.bisparse.ratio=0.1",
            ],
            marks=pytest.mark.needs("hfa", "bisparse"),
        ),
        pytest.param(
            ["+sync=fsa", "+accel=[bisparse,dgt,p3]", "accel.dgt.k=1", "accel.dgt.k_min=1"],
            marks=pytest.mark.needs("fsa", "bisparse", "dgt", "p3"),
        ),
    ],
)
def test_resets_change_no_bit(tmp_path: Path, words: list[str]) -> None:
    calm = simulated(tmp_path / "calm", None, *words, "iterations=30").parameters()
    seed = random.SystemRandom().randrange(2**32)
    with Breaker(tmp_path / "broken", 0.05, seed) as breaker:
        results = live(tmp_path / "broken", *words)
    if breaker.refused:
        pytest.skip("this system lets no process have another's sockets (pidfd_getfd)")
    said = f"seed {seed}, {breaker.count} resets"
    assert breaker.count >= 5, said
    broken = results.parameters()
    for name, value in calm.items():
        assert np.array_equal(value, broken[name]), said
    logs = "".join(log.read_text() for log in (tmp_path / "broken/nodes").glob("*.log"))
    assert "again, 0." in logs, said
    assert "was lost" not in logs, said


def test_silence_is_suspect_after_the_configured_time() -> None:
    experiment, _ = compose(["faults.on_loss=wait", "faults.suspect_s=2"])
    assert experiment.faults.suspect_after_s(experiment.runtime) == 2
    experiment, _ = compose(["runtime.failure_timeout_s=7"])
    assert experiment.faults.suspect_after_s(experiment.runtime) == 7


# ---- a path that stops delivering ----


@contextlib.contextmanager
def silence(folder: Path, after_s: float, for_s: float) -> Iterator[None]:
    """Drop all packets between the sites of a run in namespaces for a while, once it trains."""

    def hold() -> None:
        table = folder / "iterations.csv"
        while not table.exists() or table.read_text().count("\n") < 4:
            time.sleep(0.02)
        time.sleep(after_s)
        (router,) = (pid for pid in processes(folder) if b"namespaces" in command_line(pid))
        os.kill(router, signal.SIGSTOP)
        time.sleep(for_s)
        with contextlib.suppress(ProcessLookupError):  # the run may have ended
            os.kill(router, signal.SIGCONT)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    yield
    thread.join(30)


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


APART = ["emulate=netns", "+sync=fsa", "faults.suspect_s=2", *SMALL]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the parameters of an undisturbed run in namespaces."""
    return live(tmp_path_factory.mktemp("calm") / "run", *APART).parameters()


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize("for_s", [1.5, 4.0])
def test_training_continues_after_an_outage_of_the_path(
    tmp_path: Path, calm: dict[str, Any], for_s: float
) -> None:
    with silence(tmp_path / "cut", 0.1, for_s):
        results = live(tmp_path / "cut", *APART, "faults.on_loss=wait")
    for name, value in calm.items():
        assert np.array_equal(value, results.parameters()[name])
    longest = max(row["end_s"] - row["start_s"] for row in results.iterations)
    assert for_s - 0.5 < longest < for_s + 2.0
    logs = "".join(log.read_text() for log in (tmp_path / "cut/nodes").glob("*.log"))
    assert ("nothing heard for 2000 ms" in logs) == (for_s > 2)


@pytest.mark.slow
@needs_namespaces
def test_silence_ends_a_run_with_on_loss_stop(tmp_path: Path) -> None:
    with (
        silence(tmp_path / "cut", 0.1, 8.0),
        pytest.raises(NodeLost, match="nothing heard for 2000 ms"),
    ):
        live(tmp_path / "cut", *APART)


# ---- the same, simulated ----

Injection = Callable[[Simulation, dict[str, int]], Iterator[Any]]


def simulated(folder: Path, inject: Injection | None, *words: str) -> Results:
    """Simulate a run with a SimPy process that disturbs its links."""
    network = folder.parent / "network.yaml"
    network.write_text(NETWORK)
    experiment, _ = compose([f"network={network}", "iterations=12", "sim.max_spans=0", *words])
    recorder = Recorder(folder, {**experiment.header(), "mode": "sim"}, max_spans=0)
    recorder.network(experiment.cluster.graph)
    simulation = Simulation(experiment, recorder)
    if inject is not None:
        simulation.fabric.expect_faults()
        ids = {node.name: node.id for node in experiment.cluster.nodes}
        simulation.env.process(inject(simulation, ids))
    return simulation.run()


def resets(simulation: Simulation, ids: dict[str, int]) -> Iterator[Any]:
    """Reset a connection every 20 ms."""
    pairs = [("east/server", "hub/global_server0"), ("west/server", "hub/global_server0")]
    pairs += [("east/worker0", "east/server"), ("west/worker0", "west/server")]
    for one, other in pairs * 5:
        yield simulation.env.timeout(20_000_000)
        simulation.fabric.reset(ids[one], ids[other], simulation.env.now)


def cut(for_s: float) -> Injection:
    """Return a process that cuts all links of west once."""

    def inject(simulation: Simulation, ids: dict[str, int]) -> Iterator[Any]:
        ends = ids["west/server"], ids["hub/global_server0"]
        yield simulation.env.timeout(100_000_000)
        simulation.fabric.cut(*ends, simulation.env.now)
        yield simulation.env.timeout(int(for_s * 1e9))
        simulation.fabric.heal(*ends, simulation.env.now)

    return inject


@pytest.mark.slow
@pytest.mark.needs("fsa", "hfa", "p3", "bisparse")
@pytest.mark.parametrize(
    "words", [["+sync=fsa", "+accel=[p3]"], ["+sync=hfa", "+accel=[bisparse]"]]
)
def test_simulated_links_recover_to_the_same_bits(tmp_path: Path, words: list[str]) -> None:
    calm = simulated(tmp_path / "calm", None, *words)
    for name, inject in (("resets", resets), ("cut", cut(3.0))):
        results = simulated(tmp_path / name, inject, *words)
        for key, value in calm.parameters().items():
            assert np.array_equal(value, results.parameters()[key]), name
        assert results.summary["bytes"] == calm.summary["bytes"]
        longer_s = results.summary["seconds"] - calm.summary["seconds"]
        assert longer_s > (2.9 if name == "cut" else 0.02)
        assert longer_s < (5.0 if name == "cut" else 2.0)


@pytest.mark.slow
def test_a_long_simulated_cut_ends_the_run(tmp_path: Path) -> None:
    between = "west/server <-> hub/global_server0|hub/global_server0 <-> west/server"
    with pytest.raises(NodeLost, match=between) as caught:
        simulated(tmp_path / "stop", cut(30.0), *SMALL)
    assert "nothing heard for 5000 ms since its connection ended" in str(caught.value)
    calm = simulated(tmp_path / "calm", None, *SMALL)
    late = simulated(tmp_path / "wait", cut(30.0), "faults.on_loss=wait", *SMALL)
    for key, value in calm.parameters().items():
        assert np.array_equal(value, late.parameters()[key])
    with pytest.raises(NodeLost, match="nothing heard for 10000 ms"):
        simulated(
            tmp_path / "over", cut(30.0), "faults.on_loss=wait", "faults.patience_s=10", *SMALL
        )
