"""Live training of two parties on tensors of a device, compared with the same training on arrays.

    python benchmarks/gpu/training.py cuda:0

One worker in each of two parties, all nodes in this process; softmax regression on random data,
whose gradients are pushed and whose weights are pulled as tensors of the device. Prints one JSON
object. Needs geomx with its core, and PyTorch for a GPU; numpy is used on the CPU.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.kv.local import LocalCluster, unshaped
from geomx.kv.store import KVStore

STEPS, BATCH, FEATURES, CLASSES = 30, 64, 300, 10
RATE = 0.5


class Tensor:
    """An array that supports only DLPack; used on the CPU without PyTorch."""

    def __init__(self, array: NDArray[np.float32]) -> None:
        self.array = array
        self.shape = array.shape

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        if device != "cpu":
            raise
        torch = None
    start = time.perf_counter()
    expected = train(np.asarray, np.asarray, np.asarray)
    if torch is None:
        found = train(np.asarray, np.asarray, Tensor)
    else:
        found = train(
            lambda array: torch.tensor(array, device=device),
            lambda tensor: tensor.cpu().numpy(),
            lambda tensor: tensor,
        )
    differences = [np.abs(a - b).max() for a, b in zip(found, expected, strict=True)]
    result = {
        "device": device,
        "tensors": "DLPack" if torch is None else f"torch {torch.__version__}",
        "steps": STEPS,
        "largest_difference": float(max(differences)),
        "largest_weight": float(np.abs(expected[0]).max()),
        "seconds": round(time.perf_counter() - start, 2),
    }
    print(json.dumps(result))


def train(
    place: Callable[[NDArray[np.float32]], Any],
    back: Callable[[Any], NDArray[np.float32]],
    hand: Callable[[Any], Any],
) -> list[NDArray[np.float32]]:
    """Return the weights of both workers after all steps.

    Args:
        place: Puts an array on the device of the computation.
        back: Copies an array from there.
        hand: Converts an array to the form that the store receives.
    """
    cluster = LocalCluster(unshaped({"near": 1, "far": 1}))

    def work(number: int) -> NDArray[np.float32]:
        draw = np.random.default_rng(number)
        truth = np.random.default_rng(7).standard_normal((FEATURES, CLASSES), dtype=np.float32)
        store = KVStore(cluster.workers[number])
        weight = place(np.zeros((FEATURES, CLASSES), np.float32))
        store.init(0, hand(weight))
        store.set_optimizer("sgd", learning_rate=RATE, rescale_grad=0.5 / BATCH)
        store.barrier()
        for _ in range(STEPS):
            inputs = draw.standard_normal((BATCH, FEATURES), dtype=np.float32)
            labels = np.eye(CLASSES, dtype=np.float32)[(inputs @ truth).argmax(axis=1)]
            x, y = place(inputs), place(labels)
            logits = x @ weight
            powers = math.e ** (logits - logits.max())
            gradient = x.T @ (powers / powers.sum(1).reshape(-1, 1) - y)
            store.push(0, hand(gradient))
            store.pull(0, hand(weight))
        value = back(weight).copy()
        store.close()
        return value

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, range(2)))


if __name__ == "__main__":
    main()
