"""A cluster in a process of its own that is attacked: ``python -m tests.attacked``.

The workers of the first party, and one of the second, train; the last worker is left to the test.
It writes the scheduler's address, then a line per round with its value, and ``stopped`` at the end.
A line of input ends training.
"""

from __future__ import annotations

import select
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from geomx import _core
from tests.test_loop import EAST, GLOBAL, NAMES, PATIENCE_S, SCHEDULER, TOKEN, node_config

PUPPET = NAMES.index("west1")
TRAINING = [node for node in range(len(NAMES)) if NAMES[node][-1] in "01" and node != PUPPET]
ELEMENTS = 1000
SILENCE_S = 30.0


def config(node: int) -> _core.NodeConfig:
    """Return the strict configuration of a node."""
    made = node_config(node, SILENCE_S)
    made.open, made.continues = False, True
    made.master = {GLOBAL: EAST, EAST: TRAINING[0]}.get(node)
    if node in (GLOBAL, EAST, EAST + 1):
        made.declare([[(0, ELEMENTS, 0, 0)]])
    return made


def main() -> None:
    """Run the cluster."""
    loops = {n: _core.Loop("127.0.0.1", 0, TOKEN) for n in range(len(NAMES)) if n != PUPPET}
    scheduler = loops[SCHEDULER]
    scheduler.run(config(SCHEDULER), {}, None)
    print(scheduler.address, flush=True)

    def start(node: int) -> None:
        _, roster = loops[node].join(scheduler.address, NAMES[node], node, 10 * PATIENCE_S)
        loops[node].run(config(node), roster, None)
        loops[node].wait_started(PATIENCE_S)

    with ThreadPoolExecutor(len(NAMES)) as pool:
        list(pool.map(start, (node for node in loops if node != SCHEDULER)))
    workers = [loops[node] for node in TRAINING]
    for worker in workers:
        worker.declare(0, ELEMENTS, [(0, ELEMENTS, 0, 0)])
    workers[0].init(0, np.zeros(ELEMENTS, np.float32))
    for worker in workers:
        worker.request(0)
    for worker in workers:
        worker.wait(0, 0, PATIENCE_S)
    print("started", flush=True)
    out = np.empty(ELEMENTS, np.float32)
    while not select.select([sys.stdin], [], [], 0)[0]:
        turns = [w.push(0, np.full(ELEMENTS, 3.0 + i, np.float32)) for i, w in enumerate(workers)]
        for worker, turn in zip(workers, turns, strict=True):
            worker.wait(0, turn, 10 * PATIENCE_S)
            worker.value(0, out)
            assert np.all(out == out[0])
            print(f"round {turn} {out[0]}", flush=True)
    for worker in workers:
        worker.leave()
    for loop in loops.values():
        assert loop.wait_stopped(PATIENCE_S)
    for loop in loops.values():
        loop.close()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
