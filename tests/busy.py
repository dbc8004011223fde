"""A cluster in a process of its own, of which a worker is lost: ``python -m tests.busy``.

While a codec in Python decodes on the thread of a server's loop, this process asks that loop who
takes part. It prints what it was told.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from geomx import _core
from tests.test_loop import EAST, NAMES, PATIENCE_S, SCHEDULER, TOKEN, WORKERS, node_config

LOST = NAMES.index("east1")


class Halting:
    """Half precision. While `halts` is set, decoding does not go on until `goes` is, too."""

    whole = frozenset[str]()
    survives_holes = True
    halts, halted, goes = threading.Event(), threading.Event(), threading.Event()

    def layout(self, spec: dict[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
        return {"values": (spec["values"][0], "f2")}

    def encode(self, parts: dict[str, Any]) -> dict[str, Any]:
        return {"values": parts["values"].astype(np.float16)}

    def decode(self, parts: dict[str, Any], length: int) -> dict[str, Any]:
        if self.halts.is_set():
            self.halted.set()
            self.goes.wait(PATIENCE_S)
        return {"values": parts["values"].astype(np.float32)}


def config(node: int) -> _core.NodeConfig:
    """Return the configuration of a node, with the codec on the way from a worker to its server."""
    made = node_config(node, silence_s=PATIENCE_S)
    made.continues = True
    peer = {EAST: WORKERS[0], WORKERS[0]: EAST}.get(node)
    if peer is not None:
        made.add_link(peer, "push", [_core.python_codec(Halting())], [], 0.0)
    return made


def told(loop: _core.Loop, kind: str) -> list[str]:
    """Return the names in the next notice of this kind."""
    for _ in range(int(PATIENCE_S * 100)):
        for _, what, names, *_ in loop.members():
            if what == kind:
                return names
        time.sleep(0.01)
    raise TimeoutError(kind)


def main() -> None:
    """Run the cluster."""
    loops = [_core.Loop("127.0.0.1", 0, TOKEN) for _ in NAMES]
    loops[SCHEDULER].run(config(SCHEDULER), {}, None)

    def start(node: int) -> None:
        scheduler = loops[SCHEDULER].address
        _, roster = loops[node].join(scheduler, NAMES[node], node, PATIENCE_S)
        loops[node].run(config(node), roster, None)
        loops[node].wait_started(PATIENCE_S)

    with ThreadPoolExecutor(len(NAMES)) as pool:
        list(pool.map(start, range(1, len(NAMES))))
    workers = [loops[node] for node in WORKERS if node != LOST]
    for worker in (*workers, loops[LOST]):
        worker.declare(0, 4, [(0, 4, 0, 0)])
    loops[LOST].close()
    server = loops[EAST]
    print("gone", *told(server, "gone"), flush=True)

    def push() -> list[int]:
        return [worker.push(0, np.ones(4, np.float32)) for worker in workers]

    for worker, turn in zip(workers, push(), strict=True):
        worker.wait(0, turn, PATIENCE_S)
    Halting.halts.set()
    turns = push()
    assert Halting.halted.wait(PATIENCE_S)
    print("partial", *told(server, "partial"), flush=True)  # of the first round
    assert server.in_charge
    Halting.goes.set()
    for worker, turn in zip(workers, turns, strict=True):
        worker.wait(0, turn, PATIENCE_S)
        worker.leave()
    for loop in loops:
        loop.close()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
