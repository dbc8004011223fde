"""A worker of ``geomx launch``: averages arrays through the key-value store."""

from __future__ import annotations

import time

from rounds import measure, memory, task, zeros

from geomx import kv


def main() -> None:
    arrays = zeros(task()["sizes"])
    store = kv.create("dist_sync")
    before = memory(task()["root"])
    began = time.monotonic()
    keys = list(range(len(arrays)))
    store.init(keys, arrays)
    measure(
        store.global_rank,
        store.barrier,
        lambda arrays: store.pushpull(keys, list(arrays)) and None,
        arrays,
        began,
        before=before,
    )


if __name__ == "__main__":
    main()
