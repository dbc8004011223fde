"""Notices of a live run: long waits, and values that are not finite."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.errors import GeomxError, NodeLost
from geomx.kv.local import LocalCluster, unshaped
from geomx.live.member import Member
from geomx.terminal.log import text_of
from tests.test_kv import Stores, everyone

pytestmark = pytest.mark.slow

# ---- waits ----


def notices(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines for the user, with N instead of durations."""
    lines = [x for x in capfd.readouterr().err.splitlines() if x.startswith("geomx: ")]
    lines = [f"geomx: {text_of(line)}" for line in lines]
    return [re.sub(r"waited \d+ s", "waited N s", line) for line in lines]


def come(store: kv.KVStore) -> None:
    """Enter a barrier without waiting for it."""
    with pytest.raises(TimeoutError):
        store.member.loop.barrier(0.01)


def said(capfd: pytest.CaptureFixture[str], *wanted: str) -> list[str]:
    """Wait for lines for the user that contain each of `wanted`; return all lines."""
    lines: list[str] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        lines += notices(capfd)
        if all(any(each in line for line in lines) for each in wanted):
            return lines
        time.sleep(0.05)
    raise AssertionError(f"{wanted} not among {lines}")


@pytest.fixture
def hasty() -> Iterator[Stores]:
    """Return two parties of two workers that report waits after half a second."""
    spec = unshaped({"east": 2, "west": 2})
    runtime = dataclasses.replace(spec.runtime, failure_timeout_s=0.5)
    with_everyone = LocalCluster(dataclasses.replace(spec, runtime=runtime))
    stores = [kv.KVStore(member) for member in with_everyone.workers]
    everyone(stores, lambda store: store.init(["w", "b"], [np.zeros(4), np.zeros(2)]))
    yield stores
    with_everyone.close()


@pytest.mark.parametrize(
    ("act", "wanted"),
    [
        (
            lambda store: store.global_rank != 3 and store.push("w", np.ones(4)),
            [
                "west/server has waited N s for west/worker1 to push round 1 of key 0",
                "hub/global_server0 has waited N s for west/server to push round 1 of key 0",
                "east/server has waited N s for hub/global_server0 to answer round 1 of key 0",
                "east/worker1 has waited N s for east/server to answer round 1 of key 'w'",
            ],
        ),
        (
            lambda store: store.global_rank < 2 and come(store),
            [
                "hub/scheduler has waited N s for west/worker0 and west/worker1 to come to bar",
                "east/worker0 has waited N s for hub/scheduler to say that all workers have come",
            ],
        ),
        (
            lambda store: store.global_rank > 0 and store.member.loop.leave(),
            [
                "hub/scheduler has waited N s for east/worker0 to leave the run",
                "west/worker1 has waited N s for hub/scheduler to say that all workers have left",
            ],
        ),
    ],
    ids=["round", "barrier", "stop"],
)
def test_a_long_wait_is_reported_with_the_awaited_nodes(
    hasty: Stores,
    act: Callable[[kv.KVStore], Any],
    wanted: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    began = time.monotonic()
    everyone(hasty, act)
    lines = said(capfd, *wanted)
    time.sleep(0.6)
    most = 1 + math.log2((time.monotonic() - began) / 0.5)
    lines += notices(capfd)
    for each in wanted:  # repeated only after twice the duration
        assert 1 <= len([line for line in lines if each in line]) <= most


def test_missing_and_unreachable_nodes_are_reported(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = unshaped({"east": 2})
    runtime = dataclasses.replace(spec.runtime, failure_timeout_s=0.5)
    scheduler = Member.open_scheduler(dataclasses.replace(spec, runtime=runtime), "t")
    with ThreadPoolExecutor(2) as pool:
        scheduler.wire()
        address = scheduler.loop.address
        early = pool.submit(Member.join, address, "east/server", None, "t", patience_s=20)
        lost = pool.submit(Member.join, "127.0.0.1:9", "east/worker0", None, "t", patience_s=12)
        said(
            capfd,
            "hub/scheduler has waited N s for hub/global_server0, east/worker0 and east/work",
            f"east/server has waited N s for the scheduler at {address} to say that "
            "every node has joined",
            "east/worker0 has waited N s for the scheduler at 127.0.0.1:9 (",
        )
        # The scheduler stops waiting, and tells all nodes the name.
        monkeypatch.setattr("geomx.live.member.JOIN_TIMEOUT_S", 0.1)
        with pytest.raises(
            NodeLost, match=r"hub/global_server0 was lost: it did not join .* 0.1 s"
        ):
            scheduler.wait_started()
        with pytest.raises(NodeLost, match="hub/global_server0 was lost: it did not join"):
            early.result(10)
        with pytest.raises(GeomxError, match="no connection to"):
            lost.result(20)
    scheduler.loop.close()


# ---- values that are not finite ----


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_reported_by_worker_and_key(
    hasty: Stores, bad: float, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(store: kv.KVStore) -> None:
        for step in range(5):
            gradient = np.ones(4, np.float32)
            gradient[2] = bad if step >= 1 and store.global_rank == 2 else 1
            store.push(["w", "b"], [gradient, np.ones(2)])
            store.pull(["w", "b"])
        store.close()

    everyone(hasty, train)
    lines = [x for x in notices(capfd) if "NaN" in x]
    assert lines[0].startswith(
        "geomx: west/worker0 pushed round 2 of key 'w' with 1 of 4 values NaN or infinite, which "
    )
    assert len(lines) == 4  # three pushes, and their number
    assert (
        lines[3] == "geomx: west/worker0 made 4 pushes in all with values that are NaN or infinite"
    )


@pytest.mark.parametrize("rule", ["refuse", "ignore"])
def test_values_that_are_not_finite_may_be_refused_or_ignored(
    rule: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = unshaped({"east": 1, "west": 1})
    runtime = dataclasses.replace(spec.runtime, non_finite=rule)
    together = LocalCluster(dataclasses.replace(spec, runtime=runtime))
    first, second = stores = [kv.KVStore(member) for member in together.workers]
    everyone(stores, lambda store: store.init("w", np.zeros(4)))
    second.push("w", np.ones(4))
    first.push("w", np.array([1, np.nan, 1, 1], np.float32))
    if rule == "ignore":
        assert np.isnan(second.pull("w")).sum() == 1
    else:
        with pytest.raises(GeomxError, match=r"round 1 of key 'w' with 1 of 4 .* before others"):
            first.pull("w")
        with pytest.raises(TimeoutError):
            second.member.loop.wait(0, 1, 0.5)
    assert "NaN" not in capfd.readouterr().err
    together.close()
