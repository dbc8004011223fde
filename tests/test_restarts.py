"""Killed servers and schedulers resume from their journals, without changes to the results."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import hookimpl, runner
from geomx.cluster import Link
from geomx.errors import ConfigError, NodeLost
from geomx.experiment.native_parts import parts_without_snapshots
from geomx.live.files import durable, stem
from geomx.live.journal import opened
from geomx.results.results import Results
from geomx.testing.worlds import cluster
from tests.laws import registry_with

NETWORK: dict[str, Any] = {
    "central": {"name": "hub", "uplink_mbps": 400, "downlink_mbps": 400},
    "parties": {
        name: {"workers": 2, "uplink_mbps": 400, "downlink_mbps": 400} for name in ("east", "west")
    },
    "delay_ms": 5,
}
# Starts quickly, without MXNet; a step takes as long as one of the default workload.
TINY = ["workload=tiny", "workload.forward_ms=10", "workload.backward_ms=20"]
SMALL = ["powersgd.min_elements=64", "bisparse.min_elements=8"]  # tiny's tensors are encoded
DURABLE = "faults.durable=log"
CUT = "faults.log_mb=0"  # logs are replaced as often as that is possible


def run(folder: Path, *words: str, mode: str = "live") -> Results:
    network = folder.parent / "network.yaml"
    network.write_text(str(NETWORK))
    shared = [f"network={network}", "iterations=40", "sim.max_spans=0"]
    return runner.run(f"mode={mode}", *shared, f"hydra.run.dir={folder}", *words)


def check_equal(one: Results, other: Results) -> None:
    """Check that two runs have equal bits and traffic, except control traffic (heartbeats)."""
    for name, value in one.parameters().items():
        assert np.array_equal(value, other.parameters()[name])
    for way in ("wan_push", "wan_pull", "lan"):
        assert one.summary["bytes"][way] == other.summary["bytes"][way]


def process(folder: Path, node: str) -> int | None:
    """Return the process of a node of the run in a folder; None if there is none."""
    notes = os.fsencode(stem(folder, node))
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"--notes" in words and words[words.index(b"--notes") + 1] == notes:
                return int(entry.name)
    return None


@contextlib.contextmanager
def killer(folder: Path, nodes: list[str], every_s: float) -> Iterator[list[str]]:
    """Kill the nodes in turn, after training has started."""
    killed: list[str] = []
    over = threading.Event()

    def work() -> None:
        first = stem(folder, "east/worker0").with_suffix(".jsonl")
        while not over.wait(0.02):
            if first.exists() and b"iteration" in first.read_bytes():
                break
        for node in nodes:
            pid = process(folder, node)
            if pid is not None and not over.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(node)
            if over.wait(every_s):
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["+accel=[p3]"],
        [*TINY, "+sync=hfa", "+accel=[powersgd,bisparse]", *(f"accel.{name}" for name in SMALL)],
    ],
)
def test_killed_nodes_resume_where_they_were(tmp_path: Path, words: list[str]) -> None:
    calm = run(tmp_path / "calm", *words, mode="sim")
    nodes = ["hub/global_server0", "west/server", "hub/scheduler", "hub/global_server0"]
    folder = tmp_path / "killed"
    with killer(folder, nodes, 0.7) as killed:
        live = run(folder, *words, DURABLE, CUT, "iterations=40")
    assert killed
    check_equal(calm, live)
    assert opened(durable(folder, "hub/global_server0")).cut
    restarts = [row["node"] for row in live.summary["faults"] if row["what"] == "restart"]
    assert restarts and set(restarts) <= set(killed)


@pytest.mark.slow
def test_a_journal_does_not_change_results(tmp_path: Path) -> None:
    words = [*TINY, "+sync=hfa", "+accel=[bisparse,p3]", "accel.p3.slice_elements=50"]
    words += ["accel.bisparse.min_elements=8"]
    calm = run(tmp_path / "calm", *words, mode="sim")
    logged = run(tmp_path / "durable", *words, DURABLE)
    check_equal(calm, logged)
    names = {file.name for file in (logged.directory / "durable").glob("*.journal")}
    nodes = list((logged.directory / "nodes").glob("*.jsonl"))
    assert names == {f"{node.stem}.journal" for node in nodes} and len(names) == 8


@pytest.mark.slow
def test_a_node_that_is_killed_too_often_ends_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    with (
        pytest.raises(NodeLost, match=r"hub/global_server0 was lost: killed by SIGKILL"),
        killer(folder, ["hub/global_server0"] * 2, 1.5),
    ):
        run(folder, *TINY, DURABLE, "faults.restarts=1", "iterations=2000")


def cut_short(journal: Path) -> None:
    os.truncate(journal, journal.stat().st_size // 2)  # peers have received a part of the rest


def damage(journal: Path) -> None:
    with journal.open("r+b") as file:
        file.seek(64)  # in the first record; the last one may be incomplete, and is then cut off
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (cut_short, "a journal was cut short or lost|messages that were never sent"),
        (damage, r"the journal .*hub-global_server0.journal is damaged at byte \d+"),
    ],
)
def test_a_damaged_journal_ends_the_run(
    tmp_path: Path, spoil: Callable[[Path], None], sentence: str
) -> None:
    folder, node = tmp_path / "spoilt", "hub/global_server0"
    notes = stem(folder, node).with_suffix(".jsonl")

    def work() -> None:
        while not notes.exists() or b"killed" not in notes.read_bytes():
            time.sleep(0.02)
        spoil(durable(folder, node))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    kill = f"scenario=[{{at_s: 0.5, kill: {node}, restart_s: 1.5}}]"
    with pytest.raises(NodeLost, match=sentence):
        run(folder, *TINY, DURABLE, "iterations=2000", kill)
    thread.join()


# ---- scenarios ----


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sim", "live"])
@pytest.mark.parametrize("node", ["hub/global_server0", "east/server", "hub/scheduler"])
def test_a_scenario_restarts_killed_nodes(tmp_path: Path, mode: str, node: str) -> None:
    small = "workload=tiny"
    calm = run(tmp_path / "calm", small, mode="sim")
    scenario = f"scenario=[{{at_s: 0.3, kill: {node}, restart_s: 1}}]"
    killed = run(tmp_path / "killed", small, DURABLE, "faults.restarts=0", scenario, mode=mode)
    check_equal(calm, killed)
    (row,) = killed.summary["faults"]
    recovered_s = row.pop("recovered_s")
    assert row == {"time_s": 0.3, "what": "kill", "node": node, "restart_s": 1.0}
    assert 1.0 <= recovered_s < (1.001 if mode == "sim" else 6.0)
    if node != "hub/scheduler":
        longest_s = max(each["end_s"] - each["start_s"] for each in killed.iterations)
        assert longest_s > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sim", "live"])
def test_global_servers_resume_where_training_continues_without_others(
    tmp_path: Path, mode: str
) -> None:
    calm = run(tmp_path / "calm", "workload=tiny", mode="sim")
    events = ", ".join(
        f"{{at_s: {at_s}, kill: hub/{node}, restart_s: 0.5}}"
        for at_s, node in ((0.2, "scheduler"), (0.3, "global_server0"))
    )
    words = ["workload=tiny", DURABLE, "faults.on_loss=continue", f"scenario=[{events}]"]
    killed = run(tmp_path / "killed", *words, mode=mode)
    check_equal(calm, killed)
    rows = killed.summary["faults"]
    assert [row["node"] for row in rows] == ["hub/scheduler", "hub/global_server0"]
    assert all(0.5 <= row["recovered_s"] < 6.0 for row in rows)
    assert max(each["end_s"] - each["start_s"] for each in killed.iterations) > 0.5
    kept = {file.name for file in (killed.directory / "durable").glob("*")}
    assert kept == (
        set() if mode == "sim" else {"hub-global_server0.journal", "hub-scheduler.journal"}
    )


@pytest.mark.slow
def test_a_lost_worker_is_told_of_once_after_the_restart_of_a_global_server(tmp_path: Path) -> None:
    events = (
        "{at_s: 0.2, kill: hub/global_server0, restart_s: 0.1}, "
        "{at_s: 1.5, kill: west/worker0, restart_s: 0.3}"
    )
    words = [*TINY, DURABLE, "faults.on_loss=continue", f"scenario=[{events}]", "iterations=80"]
    run(tmp_path / "run", *words)
    logs = [file.read_text() for file in (tmp_path / "run" / "nodes").glob("*.log")]
    lines = [line for log in logs for line in log.splitlines() if "west/worker0 is" in line]
    assert len(lines) == 2 and "is lost" in lines[0] and "is back" in lines[1], lines


class InPython:
    """An accelerator with parts in Python on one kind of link."""

    @hookimpl
    def geomx_codec(self, link: Link) -> Any:
        return Same() if link.kind == "wan" else None


class Same:
    """A codec that changes nothing."""

    whole: frozenset[str] = frozenset()
    survives_holes = True

    def layout(self, spec: Any) -> Any:
        return spec

    def encode(self, parts: Any) -> Any:
        return parts

    def decode(self, parts: Any, length: int) -> Any:
        return parts


def test_plugins_without_snapshots_are_known() -> None:
    """The state of all that geomx has can be written in snapshots, that of Python cannot."""
    registry = registry_with(own=("accel", InPython()))
    for plugin in registry.plugins():
        if plugin.kind not in ("sync", "accel"):
            continue
        chosen: tuple[str, dict[str, Any]] = (plugin.name, {})
        is_sync = plugin.kind == "sync"
        selection = registry.select(chosen if is_sync else None, [] if is_sync else [chosen])
        found = set(parts_without_snapshots(selection.cluster(cluster()), selection))
        assert found == ({"accel own: geomx_codec"} if plugin.name == "own" else set())


@pytest.mark.slow
def test_invalid_restarts_are_refused(tmp_path: Path) -> None:
    def refused(scenario: str, *words: str) -> str:
        with pytest.raises(ConfigError) as error:
            run(tmp_path / "refused", f"scenario=[{scenario}]", *words, mode="sim")
        return str(error.value)

    kill = "at_s: 1, kill: east/server"
    assert "needs faults.durable=log" in refused(f"{{{kill}, restart_s: 1}}")
    assert "is for kill only" in refused("{at_s: 1, pause: east/server, for_s: 1, restart_s: 1}")
    for worker in ("east/worker0", "any worker"):
        said = refused(f"{{at_s: 1, kill: {worker}, restart_s: 1}}", DURABLE)
        assert "needs faults.on_loss=continue" in said
