"""Connections that break under live runs: parameters are those of the undisturbed run, to the bit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.broken import Breaker

from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.live.launcher import run_experiment
from geomx.results.results import Results

NETWORK = """
name: small
central: {name: hub, global_servers: 1, uplink_mbps: 400, downlink_mbps: 400}
parties:
  east: {workers: 2, uplink_mbps: 400, downlink_mbps: 400}
  west: {workers: 1, uplink_mbps: 400, downlink_mbps: 400}
delay_ms: 5
lan: {mbps: 10000, delay_ms: 0.05}
"""


def live(folder: Path, *words: str) -> Results:
    """A live run, its files in `folder`."""
    network = folder.parent / "network.yaml"
    network.write_text(NETWORK)
    experiment, _ = compose(["mode=live", f"network={network}", "iterations=30", *words])
    return run_experiment(experiment, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["+sync=fsa", "+accel=[p3]"],
        ["+sync=hfa", "sync.k1=3", "sync.k2=2", "+accel=[bisparse]", "accel.bisparse.ratio=0.1"],
        ["+sync=fsa", "+accel=[bisparse,dgt,p3]", "accel.dgt.k=1", "emulate=none"],
    ],
)
def test_resets_change_no_bit(tmp_path: Path, words: list[str]) -> None:
    calm = live(tmp_path / "calm", *words).parameters()
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


def test_what_cannot_be_had_yet_is_said_at_the_door() -> None:
    with pytest.raises(ConfigError, match="faults.on_loss=continue: .* choose stop or wait"):
        compose(["faults.on_loss=continue"])
    experiment, _ = compose(["faults.on_loss=wait", "faults.suspect_s=2"])
    assert experiment.faults.suspect_after_s(experiment.runtime) == 2
    experiment, _ = compose(["runtime.failure_timeout_s=7"])
    assert experiment.faults.suspect_after_s(experiment.runtime) == 7
