"""A worker of ``geomx launch``: measures how long an urgent tensor takes behind bulk.

The task's first tensor is urgent and the second is the bulk, which may be missing. A round begins
when the bulk has been under way for a while, and ends when the urgent tensor's sum is back. The
bulk ends before the next.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from rounds import processor_seconds, task, zeros

from geomx import kv

AHEAD_S = 0.5


def main() -> None:
    todo = task()
    urgent, *bulk = zeros(todo["sizes"])
    store = kv.create("dist_sync")
    began = time.monotonic()
    store.init(list(range(1 + len(bulk))), [urgent, *bulk])
    ready = time.monotonic()
    spans: list[tuple[float, float]] = []
    cpu = 0.0
    for number in range(todo["rounds"]):
        if number == 1:
            cpu = processor_seconds(todo["root"])
        for key, array in enumerate(bulk, 1):
            store.push(key, array)
        time.sleep(AHEAD_S)
        start = time.monotonic()
        store.pushpull(0, urgent)
        spans.append((start, time.monotonic()))
        for key, array in enumerate(bulk, 1):
            store.pull(key, array)
            if time.monotonic() < spans[-1][1] + AHEAD_S / 10:
                raise SystemExit("the bulk was through before the urgent tensor")
    facts = {"init_s": ready - began, "spans": spans, "aside_s": 0.0}
    facts["cpu_s"] = processor_seconds(todo["root"]) - cpu
    Path(todo["folder"], f"{store.global_rank}.json").write_text(json.dumps(facts))
    store.barrier()


if __name__ == "__main__":
    main()
