"""Iterations of two parties that exchange ResNet-50's tensors, held by a device or by the host.

    python benchmarks/gpu/stores.py cuda:0

One worker in each of two parties, all nodes in this process, links as fast as the machine. Every
iteration pushes all 161 gradients and pulls all weights; nothing is computed. Cases differ in
where tensors are (``host``, ``device``), in accelerators, and in where servers update
(``servers``). Prints one JSON object: the median and the least seconds of an iteration by case, of
which the first ones are not counted. Needs geomx with its core, and PyTorch.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from geomx.kv.local import LocalCluster, unshaped
from geomx.kv.store import KVStore
from geomx.options.schema import RuntimeOptions
from geomx.workloads.resnet50 import ResNet50Config, resnet50

SIZES = tuple(math.prod(tensor.shape) for tensor in resnet50(ResNet50Config()).tensors)
WARM, COUNTED = 3, 8
CODECS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "dense": (),
    "fp16": (("fp16", {}),),
    "bisparse": (("bisparse", {"ratio": 0.01, "warmup_rounds": 0}),),
}


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    torch = importlib.import_module("torch")
    rows = []
    for codec in CODECS:
        places = [("host", "cpu"), ("device", "cpu"), ("device", device)]
        for place, servers in dict.fromkeys(places):
            on = device if place == "device" else "cpu"
            seconds = iterations(torch, codec, on, servers)
            rows.append({
                "codec": codec, "place": place, "servers": servers,
                "median_s": statistics.median(seconds), "least_s": min(seconds),
            })  # fmt: skip
    print(json.dumps({"device": device, "tensors": len(SIZES), "rows": rows}))


def iterations(torch: Any, codec: str, device: str, servers: str) -> list[float]:
    """Return the seconds of counted iterations, those of the slower worker."""
    spec = unshaped({"near": 1, "far": 1})
    runtime = RuntimeOptions(server_device=servers)
    cluster = LocalCluster(dataclasses.replace(spec, accel=CODECS[codec], runtime=runtime))

    def work(number: int) -> list[float]:
        draw = np.random.default_rng(number)
        keys = list(range(len(SIZES)))
        gradients = [
            torch.tensor(draw.standard_normal(size, dtype=np.float32), device=device)
            for size in SIZES
        ]
        weights = [torch.zeros(size, device=device) for size in SIZES]
        store = KVStore(cluster.workers[number])
        store.init(keys, weights)
        store.set_optimizer("sgd", learning_rate=0.01)
        taken = []
        for _ in range(WARM + COUNTED):
            store.barrier()
            begun = time.perf_counter()
            for key in reversed(keys):
                store.push(key, gradients[key])
            store.pull(keys, weights)
            if device != "cpu":
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - begun)
        store.close()
        return taken[WARM:]

    try:
        with ThreadPoolExecutor(2) as pool:
            return [max(both) for both in zip(*pool.map(work, range(2)), strict=True)]
    finally:
        cluster.close()  # otherwise the next case would share the memory with its servers


if __name__ == "__main__":
    main()
