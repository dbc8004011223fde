#!/usr/bin/env python3
"""Single TCP connections compared with the model, over random paths between network namespaces.

Each path is two network namespaces with a router between them (`geomx._core.Router`), with a random
bandwidth and round trip, and a congestion control. Over it the kernel's own TCP carries

    new      a connection that is opened for one transfer, from the first SYN to the last byte
    kept     the next transfer of a connection that has just carried others
    idle     the same after a pause

and `geomx.sim.transfer_times` predicts each of these transfers, with the same pauses between them.
For comparison: size over bandwidth, and SimGrid's LV08.

    python benchmarks/tcp/connections.py              # root; about a quarter of an hour
    python benchmarks/tcp/connections.py --ways 2     # a look; nothing is written
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import networkx as nx
import numpy as np

from geomx import _core
from geomx.live.emulation import inside
from geomx.live.namespaces import FIRST_ADDRESS, queue_bytes, settings
from geomx.sim import transfer_times
from geomx.terminal import units
from geomx.terminal.progress import progress

RESULTS = Path(__file__).parents[1] / "results"
WAYS = 24
STATES = ("new", "kept", "idle")
OTHERS = ("size / bandwidth", "LV08")
TRANSFERS = 4  # of each state, over each way
MBPS = (50.0, 1000.0)
RTT_MS = (5.0, 250.0)
SIZES = (1e4, 1e8)
LONGEST_S = 5.0  # limit on the duration of a transfer at full speed
PAUSES_S = (0.3, 4.0)
WINDOW_BYTES = 2.75e6
CHUNK = bytes(1 << 20)
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Way:
    """A bandwidth, a round trip, and the transfers over it."""

    mbps: float
    rtt_ms: float
    congestion: str
    sizes: dict[str, list[int]]  # by state; the first of `kept` opens the connection
    pauses_s: list[float]

    def graph(self) -> nx.DiGraph:
        """The path as a graph for the model."""
        edge = {"bandwidth_mbps": self.mbps, "delay_ms": self.rtt_ms / 2}
        return nx.DiGraph([("here", "there", edge), ("there", "here", edge)])


@dataclass(frozen=True)
class Moment:
    """Start and end of one transfer, in seconds."""

    size: int
    began_s: float
    ended_s: float


def draw(seed: int, number: int, congestion: str) -> Way:
    """Return path `number`; bandwidth, round trip and sizes are log-uniform."""
    rng = np.random.default_rng([seed, number])

    def even(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    mbps, rtt_ms = round(even(*MBPS), 1), round(even(*RTT_MS), 1)
    most = min(SIZES[1], mbps / 8 * 1e6 * LONGEST_S)
    sizes = {state: [round(even(SIZES[0], most)) for _ in range(TRANSFERS)] for state in STATES}
    return Way(mbps, rtt_ms, congestion, sizes, [even(*PAUSES_S) for _ in range(TRANSFERS)])


# ---- the kernel ----


class Ground:
    """The namespaces of a path. Use as a context manager."""

    def __init__(self, way: Way) -> None:
        self._congestion = way.congestion
        self._router = _core.Router(1)
        here, there = FIRST_ADDRESS, FIRST_ADDRESS + 1
        self._spaces = [
            self._router.add_site([address], settings(WINDOW_BYTES)) for address in (here, there)
        ]
        queue = queue_bytes({"bandwidth_mbps": way.mbps}, way.rtt_ms / 1e3)
        for source, target in ((here, there), (there, here)):
            bytes_per_s, delay_ns = way.mbps * 125_000, round(way.rtt_ms * 5e5)
            edge = self._router.add_edge(bytes_per_s, delay_ns, 0, 0.0, queue)
            self._router.add_route(source, target, [edge])

    def __enter__(self) -> Ground:
        self._router.start()
        with self._inside(1):
            self.door = socket.create_server(("10.0.0.2", 0))
        self.door.settimeout(PATIENCE_S)
        return self

    def __exit__(self, *raised: object) -> None:
        self.door.close()
        self._router.stop()

    def _inside(self, index: int) -> AbstractContextManager[None]:
        return inside(f"/proc/self/fd/{self._spaces[index]}")

    def socket(self) -> socket.socket:
        """Return an unconnected socket."""
        with self._inside(0):
            return unconnected(self._congestion)


def unconnected(congestion: str) -> socket.socket:
    """Return a socket in the namespace of the calling thread."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.settimeout(PATIENCE_S)
    return made


def push(sender: socket.socket, size: int) -> None:
    """Send all bytes of a transfer."""
    left = size
    while left > 0:
        left -= sender.send(CHUNK[: min(left, len(CHUNK))])


def take(receiver: socket.socket, size: int, room: memoryview) -> float:
    """Receive all bytes of a transfer; return the time of the last one."""
    left = size
    while left > 0:
        left -= receiver.recv_into(room[: min(left, len(room))])
    return time.monotonic()


class Receiver:
    """The other end, which receives transfers of known sizes and acknowledges each."""

    def __init__(self, door: socket.socket, sizes: Sequence[int]) -> None:
        self.ended_s: list[float] = []
        self._door, self._sizes = door, sizes
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        room = memoryview(bytearray(1 << 20))
        end, _ = self._door.accept()
        with end:
            end.settimeout(PATIENCE_S)
            for size in self._sizes:
                self.ended_s.append(take(end, size, room))
                end.sendall(b"!")

    def join(self) -> None:
        """Wait for the last transfer."""
        self._thread.join(PATIENCE_S)


def send(sender: socket.socket, size: int) -> None:
    """Send all bytes of a transfer, and wait for the acknowledgement."""
    push(sender, size)
    if sender.recv(1) != b"!":
        raise ConnectionError("the other end went away")


def fresh(ground: Ground, size: int) -> Moment:
    """Measure one transfer over a connection of its own."""
    receiver = Receiver(ground.door, [size])
    with ground.socket() as sender:
        began_s = time.monotonic()
        sender.connect(ground.door.getsockname())
        send(sender, size)
        receiver.join()
    return Moment(size, began_s, receiver.ended_s[0])


def lasting(ground: Ground, sizes: Sequence[int], pauses_s: Sequence[float]) -> list[Moment]:
    """Measure transfers over one connection, with a pause before each."""
    began_s = []
    receiver = Receiver(ground.door, sizes)
    with ground.socket() as sender:
        sender.connect(ground.door.getsockname())
        for size, pause_s in zip(sizes, pauses_s, strict=True):
            time.sleep(pause_s)
            began_s.append(time.monotonic())
            send(sender, size)
        receiver.join()
    return [Moment(*one) for one in zip(sizes, began_s, receiver.ended_s, strict=True)]


# ---- the models ----


def rows_of(way: Way) -> Iterator[dict[str, object]]:
    """Yield every transfer over a path: its duration, and the predictions of three models."""
    kept, idle = way.sizes["kept"], way.sizes["idle"]
    with Ground(way) as ground:
        alone = [fresh(ground, size) for size in way.sizes["new"]]
        pauses_s = [*[0.0] * len(kept), *way.pauses_s]
        together = lasting(ground, [*kept, *idle], pauses_s)
    graph = way.graph()

    def row(state: str, moment: Moment, ended_s: float, flow: tuple) -> dict[str, object]:
        took_s = moment.ended_s - moment.began_s
        lv08 = transfer_times(graph, [flow], model="LV08")[0] - flow[3]
        said = {
            "model": ended_s - flow[3],
            "size / bandwidth": moment.size / (way.mbps * 125_000),
            "LV08": lv08,
        }
        return {
            "mbps": way.mbps, "rtt_ms": way.rtt_ms, "congestion": way.congestion, "state": state,
            "bytes": moment.size, "seconds": round(took_s, 6),
            "errors": {name: round(seconds / took_s - 1, 5) for name, seconds in said.items()},
        }  # fmt: skip

    for moment in alone:
        flow = ("here", "there", moment.size, 0.0)
        yield row("new", moment, *transfer_times(graph, [flow], congestion=way.congestion), flow)
    states = [*["kept"] * len(kept), *["idle"] * len(idle)]
    flows: list[tuple[str, str, float, float]] = []
    before, ended_s = None, 0.0
    for state, moment in zip(states, together, strict=True):
        # Transfers keep their measured distance to the previous one, so that errors do not add up.
        pause_s = moment.began_s - before.ended_s if before else 0.0
        flows.append(("here", "there", moment.size, ended_s + pause_s))
        ended_s = transfer_times(graph, flows, congestion=way.congestion, new_connections=False)[-1]
        if before:  # the first uses an open connection that has carried nothing
            yield row(state, moment, ended_s, flows[-1])
        before = moment


# ---- the table ----


def figures(rows: Sequence[dict]) -> dict[str, float]:
    """Return mean, median, 95th percentile and bias of the model's errors, and the others'."""
    sizes = np.abs([row["errors"]["model"] for row in rows])
    others = {name: fmean(abs(row["errors"][name]) for row in rows) for name in OTHERS}
    return {
        "transfers": len(rows),
        "mean": float(sizes.mean()),
        "median": float(np.median(sizes)),
        "p95": float(np.quantile(sizes, 0.95)),
        "bias": median(row["errors"]["model"] for row in rows),
        **others,
    }


def groups(rows: Sequence[dict]) -> Iterator[tuple[str, list[dict]]]:
    """Yield all transfers, by congestion control and state, by size and by round trip."""
    yield "all", list(rows)
    for congestion in sorted({row["congestion"] for row in rows}):
        for state in STATES:
            yield (
                f"{congestion}, {state}",
                [r for r in rows if (r["congestion"], r["state"]) == (congestion, state)],
            )
    names = ("below 100 kB", "100 kB to 1 MB", "1 to 10 MB", "10 MB and more")
    for name, low, high in zip(names, (0, 1e5, 1e6, 1e7), (1e5, 1e6, 1e7, math.inf), strict=True):
        yield name, [row for row in rows if low <= row["bytes"] < high]
    for low, high in ((5, 20), (20, 80), (80, 250)):
        name = f"round trip {low} to {high} ms"
        yield name, [row for row in rows if low <= row["rtt_ms"] < high]


def table(rows: Sequence[dict]) -> str:
    """Return the statistics as Markdown, and the worst ten transfers."""
    heads = ["transfers", "number", "mean error", "median", "95th percentile", "bias", *OTHERS]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, members in groups(rows):
        if not members:
            continue
        found = figures(members)
        shares = [units.share(found[key]) for key in ("mean", "median", "p95", "bias", *OTHERS)]
        lines.append(f"| {name} | {found['transfers']} | {' | '.join(shares)} |")
    lines += ["", "Ten largest errors:", "", "| Mbit/s | round trip | | bytes | took | model |",
              "|---|---|---|---|---|---|"]  # fmt: skip
    for row in sorted(rows, key=lambda row: -abs(row["errors"]["model"]))[:10]:
        what = f"{row['congestion']}, {row['state']}"
        cells = [
            units.number(row["mbps"]), f"{row['rtt_ms']} ms", what, units.size(row["bytes"]),
            units.duration(row["seconds"]), units.signed_share(row["errors"]["model"]),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--ways", type=int, default=WAYS, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--congestion", default="bbr,cubic", help="each way has these in turn")
    arguments = parser.parse_args()
    if reason := _core.why_no_namespaces():
        sys.exit(f"network namespaces are needed: {reason}")
    controls = arguments.congestion.split(",")
    ways = [draw(arguments.seed, n, each) for n in range(arguments.ways) for each in controls]
    rows: list[dict] = []
    with progress(len(ways), "ways") as advance:
        for way in ways:
            rows += rows_of(way)
            advance(1)
    print(table(rows))
    if arguments.ways < WAYS:
        return
    study = {
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}",
        "load": round(os.getloadavg()[2], 1),
        "seed": arguments.seed,
        "figures": {name: figures(members) for name, members in groups(rows) if members},
    }
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    text = f'{json.dumps(study, indent=1)[:-2]},\n "rows": [\n{lines}\n ]\n}}\n'
    (RESULTS / "tcp.json").write_text(text, encoding="utf-8")
    (RESULTS / "tcp.md").write_text(
        "# Single TCP connections against the model\n\n"
        f"Generated by `benchmarks/tcp/connections.py`: {arguments.ways} random paths, seed "
        f"{arguments.seed}, {study['machine']}, load average {study['load']} at the end. Errors "
        "are (model - measured) / measured; mean and percentiles are those of the absolute errors, "
        "and the bias is the median of the signed errors.\n\n" + table(rows),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
