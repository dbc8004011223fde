"""The obvious alternatives to geomx's kernels: PyTorch's operators, and CuPy's if it is installed.

Each is timed on the device, in the same units as geomx's own (timings.cc), after a warm-up.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from typing import Any

RATIO = 0.01
BATCH = 4

Row = dict[str, Any]


def others(device: str, elements: int, seconds: float) -> list[Row]:
    """Return times of the installed libraries: rows of library, name, elements, seconds."""
    rows = []
    for library, candidates in (("torch", _torch), ("cupy", _cupy)):
        try:
            module = importlib.import_module(library)
        except ImportError:
            continue
        if library == "cupy" and device == "cpu":
            continue
        settle, runs = candidates(module, device, elements)
        for name, run in runs.items():
            rows.append(
                {"library": library, "name": name, "elements": elements,
                 "seconds": least(run, settle, seconds)}
            )  # fmt: skip
    return rows


def least(run: Callable[[], object], settle: Callable[[], object], seconds: float) -> float:
    """Return the minimum time of batches that fill `seconds`."""
    run()
    settle()
    best = math.inf
    begun = time.perf_counter()
    while True:
        start = time.perf_counter()
        for _ in range(BATCH):
            run()
        settle()
        end = time.perf_counter()
        best = min(best, (end - start) / BATCH)
        if end - begun > seconds:
            return best


def _torch(
    torch: Any, device: str, elements: int
) -> tuple[Callable[[], object], dict[str, Callable[[], object]]]:
    place = torch.device(device)
    gradient, velocity, total, other = (
        0.01 * torch.randn(elements, device=place) for _ in range(4)
    )
    halves = gradient.half()
    kept = max(1, int(RATIO * elements))

    def sparsify() -> None:
        velocity.mul_(0.9).add_(gradient)
        total.add_(velocity)
        _, rows = torch.topk(total.abs(), kept, sorted=False)
        chosen = total[rows]  # the values to send
        total[rows] = 0
        velocity[rows] = 0
        assert len(chosen) == kept

    def two_bits() -> None:
        velocity.add_(gradient)
        signs = velocity.sign() * (velocity.abs() >= 0.01)
        velocity.sub_(signs, alpha=0.02)
        assert signs.to(torch.int8).shape == velocity.shape

    def momentum() -> None:
        velocity.mul_(0.9).add_(gradient, alpha=-1e-3)
        total.add_(velocity)

    settle = torch.cuda.synchronize if place.type == "cuda" else int
    return settle, {
        "copy": lambda: other.copy_(gradient),
        "narrow to fp16": lambda: halves.copy_(gradient),
        "widen and add fp16": lambda: other.add_(halves),
        "add 1": lambda: other.add_(gradient),
        "sparsify": sparsify,
        "two bits": two_bits,
        "momentum": momentum,
    }


def _cupy(
    cupy: Any, device: str, elements: int
) -> tuple[Callable[[], object], dict[str, Callable[[], object]]]:
    cupy.cuda.Device(int(device.split(":")[1])).use()
    gradient = 0.01 * cupy.random.standard_normal(elements, dtype=cupy.float32)
    total = gradient.copy()
    kept = max(1, int(RATIO * elements))

    def sparsify() -> None:
        cupy.add(total, gradient, out=total)
        rows = cupy.argpartition(cupy.abs(total), elements - kept)[elements - kept :]
        chosen = total[rows]
        total[rows] = 0
        assert len(chosen) == kept

    return cupy.cuda.Device().synchronize, {
        "narrow to fp16": lambda: gradient.astype(cupy.float16),
        "add 1": lambda: cupy.add(total, gradient, out=total),
        "sparsify": sparsify,
    }
