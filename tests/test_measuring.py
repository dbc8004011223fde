"""What `geomx calibrate` measures on slow paths, and what it says when a process of its fails."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geomx import calibrate
from geomx.calibrate import layers, probe
from geomx.config.compose import compose
from geomx.errors import ConfigError, GeomxError


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start a probe that waits shortly for datagrams which may still be under way."""
    monkeypatch.setattr(probe, "LATE_S", 0.1)
    with probe.Probe("127.0.0.1", 0) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_a_first_datagram_may_be_late_and_others_may_be_lost(target: str) -> None:
    """As over a satellite, with a round trip that is longer than the wait at the end."""
    with probe._connected(target, "", "datagrams") as (_, stream):
        port = probe._hear(stream)["port"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            for _ in range(3):
                time.sleep(0.3)
                datagrams.sendto(bytes(probe.DATAGRAM_BYTES), ("127.0.0.1", port))
        probe._say(stream, {"sent": 4})
        assert probe._hear(stream)["count"] == 3


def test_gaps_of_a_slow_path_are_no_loss(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "DATAGRAMS", 3)
    monkeypatch.setattr(probe, "FEWEST_DATAGRAMS", 3)
    assert probe._loss(target, "", mbps=0.16) == 0.0  # a datagram every 0.3 s


def test_a_slow_path_is_not_measured_for_longer_than_others(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "FEWEST_DATAGRAMS", 2)
    said: list[Any] = []
    say = probe._say
    monkeypatch.setattr(probe, "_say", lambda *words: (said.append(words[1]), say(*words)))
    monkeypatch.setattr("geomx.calibrate.probe.time.sleep", lambda seconds: None)
    assert probe._loss(target, "", mbps=0.1) == 0.0
    assert {"sent": 62} in said  # which take 30 s


def test_a_probe_that_others_reach_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, anyone could have it send to other probes for half a minute."""
    monkeypatch.delenv("GEOMX_TOKEN", raising=False)
    monkeypatch.setattr(probe.Probe, "serve_forever", lambda running: None)
    with pytest.raises(ConfigError, match=r"--serve=0\.0\.0\.0:0: is beyond .* needs GEOMX_TOKEN"):
        probe.serve("0.0.0.0:0", print)


COMPUTE = layers._compute


def failing(place: tuple[Any, int, int, int], *others: Any) -> None:
    """Compute in a process, except in that of the second worker, which fails."""

    def fail(*words: Any) -> None:
        raise MemoryError("no memory is left")

    if place[2] == 1:
        vars(layers)["_steps"] = fail
    COMPUTE(place, *others)


@pytest.mark.slow
def test_the_error_of_the_process_that_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others cannot begin without it, the first one too."""
    monkeypatch.setattr(layers, "_compute", failing)
    experiment, _ = compose(["workload=tiny"], directory=tmp_path)
    assert len(experiment.cluster.workers) > 1
    with pytest.raises(GeomxError, match="layers could not be measured: no memory is left"):
        layers.measure(experiment, 0.1, lambda: None)


def test_the_table_has_all_that_was_measured_on_a_gpu() -> None:
    shown = calibrate.table({"device": {"name": "a GPU", "update_byte_s": 1e-9}})
    told = list(shown.columns[0].cells)
    assert told[-3:] == ["copy, GPU", "encode, GPU", "update, GPU"]
