"""Best-effort datagrams yield to reliable messages, by routers (DSCP marks) or by their sender."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import geomx

pytestmark = pytest.mark.needs("dgt")

WORDS = ("+sync=fsa", "+accel=[dgt]", "accel.dgt.k=0.5", "iterations=6", "workload=synthetic",
         "workload.elements=[200000,100000,50000]")  # fmt: skip
TOGETHER_US = 1.0  # times in traces are rounded


def run(queueing: str, folder: Path, *words: str) -> geomx.Results:
    place = f"hydra.run.dir={folder}"
    return geomx.run([*WORDS, "numerics=false", f"tcp.queueing={queueing}", *words, place])


Spans = list[tuple[float, float]]


def sent(results: geomx.Results) -> list[tuple[Spans, Spans]]:
    """Return by link the spans of reliable messages and of datagrams."""
    links: dict[Any, tuple[Spans, Spans]] = defaultdict(lambda: ([], []))
    trace = json.loads((results.directory / "trace.json").read_text("utf-8"))
    for event in trace["traceEvents"]:
        if event.get("cat") != "send":
            continue
        reliable, datagrams = links[event["pid"], event["tid"], event["name"].split()[-1]]
        spans = datagrams if "channel" in event["args"] else reliable
        spans.append((event["ts"], event["ts"] + event["dur"]))
    return list(links.values())


def overlapping(results: geomx.Results) -> int:
    """Count datagrams handed to the network before the previous one of their link left."""
    return sum(
        later[0] < earlier[1] - TOGETHER_US
        for _, datagrams in sent(results)
        for earlier, later in itertools.pairwise(sorted(datagrams))
    )


def training_bytes(results: geomx.Results) -> dict[str, int]:
    """Return bytes by direction, without control messages."""
    return {name: count for name, count in results.summary["bytes"].items() if name != "control"}


def meeting(results: geomx.Results) -> int:
    """Count datagrams that started during a reliable message of the same link."""
    return sum(
        any(begin + TOGETHER_US < at < end - TOGETHER_US for begin, end in reliable)
        for reliable, datagrams in sent(results)
        for at, _ in datagrams
    )


@pytest.mark.slow
def test_a_sender_delays_datagrams_if_routers_ignore_marks(tmp_path: Path) -> None:
    marked = run("priority", tmp_path / "priority")
    unmarked = run("fifo", tmp_path / "fifo")
    assert sum(len(datagrams) for _, datagrams in sent(unmarked)) > 100
    assert meeting(unmarked) == 0 < meeting(marked)
    # Delayed datagrams arrive late more often; the bytes are the same.
    late = [results.summary["best_effort_slices"]["late"] for results in (unmarked, marked)]
    assert late[0] > late[1]
    assert training_bytes(unmarked) == training_bytes(marked)


@pytest.mark.slow
@pytest.mark.parametrize("queueing", ["priority", "fifo"])
def test_a_live_run_delays_datagrams(queueing: str, tmp_path: Path) -> None:
    predicted = run(queueing, tmp_path / "sim")
    found = run(queueing, tmp_path / "live", "mode=live")
    assert training_bytes(found) == training_bytes(predicted)
    assert (meeting(found) == 0) == (queueing == "fifo")


def test_datagrams_are_handed_to_fifo_queues_at_their_pace(tmp_path: Path) -> None:
    """They stand in the queue, and others wait behind them; elsewhere each waits for the last."""
    queued = run("fifo", tmp_path / "queues", "emulate=netns")
    alone = run("fifo", tmp_path / "shaper", "emulate=shaper")
    assert overlapping(queued) > 100
    assert overlapping(alone) == 0
    assert training_bytes(queued) == training_bytes(alone)
