#!/usr/bin/env python3
"""Measure the live data path beside what else averages tensors, all in one run.

    python benchmarks/live/run.py                      # everything, about half an hour
    python benchmarks/live/run.py --only one --only many --passes 1    # a look; writes no file

Every row runs its contenders one after another, several times over, so that other load on the
machine meets them alike: only ratios within a row mean something. Stock MXNet gets an environment
of its own, in ``build/benchmarks``; a contender that cannot be installed is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from contenders import Access, Figures, NotHereError, Task, geomx, gloo, mxnet, stock_mxnet, tcp

from geomx.workloads.resnet50 import ResNet50Config, resnet50

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
ONE = (25_000_000,)
MANY = tuple(math.prod(tensor.shape) for tensor in resnet50(ResNet50Config()).tensors)
TINY = (64,) * 100_000
LINKS = (  # of the emulated network: Mbit/s, round trip in ms, and bytes of a connection's window
    (20, 30, 2.75e6),
    (200, 30, 2.75e6),
    (200, 1, 2.75e6),
    (200, 200, 16e6),
    (1000, 30, 2.75e6),
    (1000, 30, 16e6),
)
PAYLOAD = 1448 / 1500  # bytes of TCP's in a frame
URGENT = (16_384, 4_000_000)  # elements: 64 KiB behind 16 MB
URGENT_MBPS = 100

Contender = Callable[[Task], Figures]


@dataclass(frozen=True)
class Row:
    """What is measured side by side.

    Attributes:
        name: For ``--only``.
        what: In words.
        task: The task of all contenders.
        contenders: By name; the first is the one that the others are compared with.
        needed_s: What the links need at least for a round; None: they are as fast as the machine.
        note: Returns a sentence about the figures, which it gets by contender.
    """

    name: str
    what: str
    task: Task
    contenders: dict[str, Contender]
    needed_s: float | None = None
    note: Callable[[Mapping[str, Any]], str] | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", action="append", help="this row alone; may be repeated")
    parser.add_argument("--passes", type=int, default=3, help="runs of each contender")
    arguments = parser.parse_args()
    chosen = rows()
    unknown = set(arguments.only or ()) - {row.name for row in chosen}
    if unknown:
        sys.exit(f"--only {unknown.pop()}: choose of {', '.join(row.name for row in chosen)}")
    report: dict[str, Any] = {"machine": machine(), "rows": []}
    for row in chosen:
        if arguments.only and row.name not in arguments.only:
            continue
        report["rows"].append(measured(row, arguments.passes))
        print(text(report["rows"][-1]), flush=True)
    if not arguments.only:
        (RESULTS / "live.json").write_text(json.dumps(report, indent=1) + "\n")
        (RESULTS / "live.md").write_text(page(report))


def rows() -> list[Row]:
    """Return all rows."""
    folder = ROOT / "build" / "benchmarks" / "mxnet"

    def stock(task: Task) -> Figures:
        return mxnet(task, stock_mxnet(folder))

    peers: dict[str, Contender] = {"gloo": gloo, "MXNet": stock, "bare TCP": tcp}
    three = partial(Task, workers=(3,), rounds=8)
    four = Task(MANY, (2, 2), 8)
    found = [
        Row("one", "3 workers average one tensor of 100 MB", three(ONE), {"geomx": geomx, **peers}),
        Row("many", "3 workers average ResNet-50's 161 tensors", three(MANY),
            {"geomx": geomx, **peers}),
        Row("hips", "2 parties of 2 average ResNet-50's tensors", four,
            {"geomx": geomx, "MXNet": stock, "bare TCP": tcp}),
        Row("tls", "3 workers average 161 tensors, encrypted", three(MANY),
            {"TLS": partial(geomx, tls=True), "plain": geomx},
            note=partial(of_tls, coded=2 * 2 * 4 * three(MANY).bytes)),
        Row("tiny", "1 worker averages 100,000 tensors of 64 elements", Task(TINY, (1,), 4),
            {"geomx": geomx}),
    ]  # fmt: skip
    for mbps, rtt_ms, window in LINKS:
        task = Task(MANY if mbps > 100 else MANY[-60:-30], (1, 1), 3)
        for name, words in (("", ()), (" p3", ("+accel=[p3]",))):
            access = Access(mbps, rtt_ms / 2)
            found.append(
                Row(f"{mbps}-{rtt_ms}-{window / 1e6:g}{name.replace(' ', '-')}",
                    f"2 parties of 1 behind {mbps} Mbit/s, {rtt_ms} ms, "
                    f"windows of {window / 1e6:g} MB{name}", task,
                    {"geomx": partial(geomx, words=(f"tcp.window_bytes={window:.0f}", *words),
                                      access=access)},
                    task.bytes * 8 / (mbps * 1e6),
                    partial(of_link, payload_s=task.bytes * 8 / (mbps * 1e6) / PAYLOAD,
                            window_s=task.bytes / window * rtt_ms / 1e3, rtt_s=rtt_ms / 1e3))
            )  # fmt: skip
    for rtt_ms in (1, 10, 30):
        access = Access(URGENT_MBPS, rtt_ms / 2, "netns")
        words = ("+accel=[p3]", "runtime.frame_bytes=16384")
        urgent = partial(geomx, words=words, access=access, script="of_urgent.py")

        def alone(task: Task, urgent: Contender = urgent) -> Figures:
            return urgent(replace(task, sizes=task.sizes[:1]))

        found.append(
            Row(f"urgent-{rtt_ms}",
                f"64 KiB there and back behind 16 MB, {URGENT_MBPS} Mbit/s, {rtt_ms} ms, "
                "the kernel's TCP, frames of 16 KiB",
                Task(URGENT, (1,), 8), {"behind bulk": urgent, "alone": alone},
                note=partial(of_urgent, delay_s=rtt_ms / 2e3))
        )  # fmt: skip
    return found


def of_tls(figures: Mapping[str, Any], coded: float) -> str:
    """Return what encryption costs at least on this machine, with the fastest cipher.

    Args:
        figures: Of TLS and without.
        coded: Bytes that all nodes encrypt or decrypt for a round.
    """
    plain, tls = figures["plain"]["cpu_s"], figures["TLS"]["cpu_s"]
    command = ["openssl", "speed", "-evp", "AES-128-GCM", "-bytes", "16384", "-seconds", "1", "-mr"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    found = [line.split(":")[-1] for line in done.stdout.splitlines() if line.startswith("+F:")]
    if not found:
        return f"TLS reaches {plain / tls:.2f} of plain."
    rate = float(found[-1])
    least = coded / rate
    limit = plain / (plain + least)
    return (
        f"`openssl speed` encrypts {rate / 1e9:.1f} GB/s by AES-128-GCM on one core, so a round "
        f"needs {least:.2f} s of CPU for that alone, and TLS can reach {limit:.2f} of plain. It "
        f"reaches {plain / tls:.2f}."
    )


def of_link(figures: Mapping[str, Any], payload_s: float, window_s: float, rtt_s: float) -> str:
    """Return what a round needs at least over TCP: the last value comes down after it went up.

    Args:
        figures: Of geomx.
        payload_s: Of its bytes, in frames of 1500 bytes.
        window_s: Of its bytes, at one window of a connection for each round trip.
        rtt_s: The round trip.
    """
    least = max(payload_s, window_s) + rtt_s
    what = "with a window for each round trip" if window_s > payload_s else "with TCP's headers"
    share = least / figures["geomx"]["median_s"]
    return f"Links and a round trip need {least:.3f} s {what}: {100 * share:.0f} % of the round."


def of_urgent(figures: Mapping[str, Any], delay_s: float) -> str:
    """Return how long the urgent tensor takes in one direction, beside the delay of the path."""
    ways = [
        f"{1e3 * (each['median_s'] / 2 - delay_s):.1f} ms {name}" for name, each in figures.items()
    ]
    return f"One way, without the path's delay: {', '.join(ways)}."


def measured(row: Row, passes: int) -> dict[str, Any]:
    """Run a row's contenders in turn, and return its figures."""
    results: dict[str, list[Figures]] = {}
    left_out: dict[str, str] = {}
    load = os.getloadavg()[0]
    for _ in range(passes):
        for name, contender in row.contenders.items():
            if name in left_out:
                continue
            try:
                results.setdefault(name, []).append(contender(row.task))
            except (NotHereError, RuntimeError) as missing:
                left_out[name] = str(missing).strip().rpartition("\n")[2] or "it failed"
                results.pop(name, None)
    if not results:
        raise SystemExit(f"{row.name}: {left_out}")
    figures = {
        name: {
            "round_s": min(min(run.rounds_s) for run in runs),
            "median_s": median(second for run in runs for second in run.rounds_s),
            "first_s": min(run.first_s for run in runs),
            "init_s": min(run.init_s for run in runs),
            "cpu_s": min(run.cpu_s for run in runs),
            "memory": {
                role: round(min(run.growth[role] for run in runs) / row.task.bytes, 2)
                for role in runs[0].growth
                if role != "scheduler"
            },
        }
        for name, runs in results.items()
    }
    return {
        "name": row.name,
        "what": row.what,
        "bytes": row.task.bytes,
        "needed_s": row.needed_s,
        "note": row.note(figures) if row.note else None,
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "contenders": figures,
        "left_out": left_out,
    }


def text(row: dict[str, Any]) -> str:
    """Return a row as a table."""
    lines = [
        f"### {row['what']}\n",
        f"Load before and after: {row['load'][0]}, {row['load'][1]}.\n",
    ]
    head = [
        "",
        "round, best",
        "median",
        "first",
        "init",
        "CPU per round",
        "best of first line",
        "CPU",
    ]
    cells = [head]
    ours = next(iter(row["contenders"].values()))
    for name, figures in row["contenders"].items():
        cells.append(
            [name, *(f"{figures[key]:.3f} s" for key in
                     ("round_s", "median_s", "first_s", "init_s", "cpu_s")),
             f"{ours['round_s'] / figures['round_s']:.2f} times",
             f"{ours['cpu_s'] / figures['cpu_s']:.2f} times"]
        )  # fmt: skip
    lines += ["| " + " | ".join(line) + " |" for line in cells]
    lines.insert(3, "|" + "---|" * len(head))
    if row["needed_s"] is not None:
        share = row["needed_s"] / ours["median_s"]
        lines.append(
            f"\nThe links need {row['needed_s']:.3f} s: {100 * share:.0f} % of their rate."
        )
    if row["note"]:
        lines.append(f"\n{row['note']}")
    if ours["memory"]:
        of = ", ".join(f"{role} {times}" for role, times in ours["memory"].items())
        lines.append(f"\nMemory of geomx's servers, in sizes of the model: {of}.")
    lines += [f"\nWithout {name}: {why}." for name, why in row["left_out"].items()]
    return "\n".join(lines) + "\n"


def page(report: dict[str, Any]) -> str:
    """Return the page of results."""
    about = report["machine"]
    lines = [
        "# The live data path\n",
        "Written by `benchmarks/live/run.py`. Only ratios within a table mean something.\n",
        f"{about['cpu']}, {about['cores']} cores, {about['kernel']}. One copy of 100 MB (memcpy): "
        f"{about['memcpy_s'] * 1e3:.0f} ms.\n",
    ]
    return "\n".join(lines) + "\n" + "\n".join(map(text, report["rows"]))


def machine() -> dict[str, Any]:
    """Describe the machine."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "cpu": names[0] if names else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{os.uname().sysname} {os.uname().release}",
        "memcpy_s": copying(),
    }


def copying() -> float:
    """Return the seconds of copying 100 MB, at best."""
    source = np.ones(ONE[0], np.float32)
    target = np.zeros_like(source)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
