"""What it costs to watch a run: metrics of a live job, and a tracker of a simulation.

Each pair of commands differs in one option. They run in turns, so that other load on the machine
meets both alike, and are compared by CPU seconds of all their processes, live jobs also by samples
per second. On a busy machine these vary by more than what is measured; the CPU time of one request
for metrics, counted at all nodes of a job with slow steps, does not.

    python benchmarks/watching/cost.py               # eight turns, a quarter of an hour
    python benchmarks/watching/cost.py --turns 1     # one; writes no file
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "results"
TURNS = 8
SCRAPE_S = 5.0
"""Seconds between two scrapes, as in examples/monitoring."""

PORTS = 12
REQUESTS = 40
START_S = 10.0
SLOW = [
    "mode=live",
    "workload=synthetic",
    "workload.elements=[60000,60000]",
    "iterations=10000",
]
"""A job that computes 0.3 s in each step."""
LIVE = ["mode=live", "emulate=none", "runtime.pace=false"]


@dataclass(frozen=True)
class Pair:
    """Two commands.

    Attributes:
        name: What is compared.
        words: The command without the option.
        option: The option.
        goal: The largest share of CPU time that it may cost.
    """

    name: str
    words: tuple[str, ...]
    option: str
    goal: float


PAIRS = (
    Pair("live, metrics", (*LIVE, "iterations=2000"), "metrics.port={port}", 0.02),
    Pair("simulated, tracker", ("iterations=500",), "+track=[tensorboard]", 0.05),
)


@dataclass(frozen=True)
class Cost:
    """CPU seconds of a command, and its samples per second."""

    cpu_s: float
    samples_per_s: float


def measure(words: list[str], port: int | None) -> Cost:
    """Run a command to its end, and scrape it if it serves metrics."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder, scraping(port):
        command = [sys.executable, "-m", "geomx", *words, f"hydra.run.dir={folder}/run"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Cost(cpu_s, summary["samples_per_second"])


@contextlib.contextmanager
def scraping(port: int | None) -> Iterator[None]:
    """Request the metrics at `port` every `SCRAPE_S` in the block, as Prometheus does."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPE_S):
            with contextlib.suppress(OSError):  # not there yet, or no longer
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2).read()

    thread = threading.Thread(target=scrape, daemon=True)
    if port is not None:
        thread.start()
    yield
    ended.set()
    if port is not None:
        thread.join()


def free_port() -> int:
    """Return a port from which on `PORTS` are free, below those of outgoing connections."""
    for first in range(11000 + os.getpid() % 1000 * 16, 32000, PORTS):
        try:
            for port in range(first, first + PORTS):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise SystemExit("no free ports")


def cpu_of(folder: str) -> dict[str, float]:
    """Return the CPU seconds of each node of a job so far, by name."""
    spent = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(folder.encode()) for word in words) and b"--name" in words:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                ticks = int(fields[11]) + int(fields[12])  # user, system
                name = words[words.index(b"--name") + 1].decode()
                spent[name] = ticks / os.sysconf("SC_CLK_TCK")
    return spent


def request_cost() -> list[str]:
    """Return lines about the CPU time of one request for the metrics of all nodes."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        words = [*SLOW, f"metrics.port={port}", f"hydra.run.dir={folder}/run"]
        quiet = subprocess.DEVNULL
        job = subprocess.Popen([sys.executable, "-m", "geomx", *words], stdout=quiet, stderr=quiet)
        try:
            time.sleep(START_S)
            began, before = time.monotonic(), cpu_of(folder)
            time.sleep(START_S)
            idle_s, between = time.monotonic() - began, cpu_of(folder)
            began = time.monotonic()
            for _ in range(REQUESTS):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
            busy_s, after = time.monotonic() - began, cpu_of(folder)
        finally:
            job.terminate()
            job.wait()
    each = {
        name: (after[name] - between[name] - (between[name] - before[name]) * busy_s / idle_s)
        / REQUESTS
        for name in before
    }
    whole, most = sum(each.values()), max(each, key=lambda name: each[name])
    return [
        f"A request for the metrics of a job of {len(each)} nodes takes {1e3 * whole:.0f} ms of "
        f"CPU time at all of them together, {1e3 * each[most]:.0f} ms of it at {most}: every "
        f"{SCRAPE_S:g} s, that is {whole / SCRAPE_S:.2%} of one core.",
        "",
    ]


def compare(pair: Pair, turns: int) -> list[str]:
    """Return the row of a pair."""
    costs: dict[bool, list[Cost]] = {False: [], True: []}
    for turn in range(turns):
        for watched in (False, True) if turn % 2 == 0 else (True, False):
            port = free_port() if watched and "port" in pair.option else None
            more = [pair.option.format(port=port)] if watched else []
            costs[watched].append(measure([*pair.words, *more], port))
            print(pair.name, "with" if watched else "without", costs[watched][-1], flush=True)
    pairs = list(zip(costs[True], costs[False], strict=True))
    ratios = [watched.cpu_s / plain.cpu_s for watched, plain in pairs]
    whole = sum(each.cpu_s for each in costs[True]) / sum(each.cpu_s for each in costs[False])
    time_s = {on: sum(1 / each.samples_per_s for each in costs[on]) for on in costs}
    live = "mode=live" in pair.words
    return [
        pair.name,
        f"{statistics.median(each.cpu_s for each in costs[False]):.1f} s",
        f"{whole:.3f}",
        f"{min(ratios):.3f} to {max(ratios):.3f}",
        f"{1 + pair.goal:.2f}",
        f"{time_s[False] / time_s[True]:.3f}" if live else "",
    ]


def main() -> None:
    """Measure all pairs, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS, help="of each pair")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    request = request_cost()
    print(*request, sep="\n")
    rows = [compare(pair, options.turns) for pair in PAIRS]
    head = ["", "CPU without", "with / without, all turns", "range", "goal", "samples per second"]
    table = [head, ["---"] * len(head), *rows]
    lines = ["| " + " | ".join(row) + " |" for row in table]
    print("\n".join(lines))
    if options.turns < TURNS:
        return
    text = [
        "# What it costs to watch a run",
        "",
        "Written by `benchmarks/watching/cost.py`: CPU seconds of all processes with an option,",
        f"relative to those without, {options.turns} turns each. Metrics are requested every "
        f"{SCRAPE_S:g} s. {os.cpu_count()} cores; load before: {load:.1f}, after: "
        f"{os.getloadavg()[0]:.1f}.",
        "",
        *lines,
        "",
        *request,
    ]
    (RESULTS / "watching.md").write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
