"""Endpoint costs that come with geomx under a name, for ``costs=NAME``.

``none`` is zero costs, so that only the network and the workload's steps take time. ``cpu`` are the
defaults. The others model endpoints whose tensors are on a GPU and whose network card accesses the
GPU's memory directly, without the processor.

The costs of GPUs were not measured. Times per byte are computed from the memory bandwidth that the
manufacturer publishes, and the bytes of memory that each kind of work reads and writes. Times per
message are assumed. Real kernels do not reach the published peak, and a runtime over ordinary
sockets, such as geomx's own, takes longer. These costs are therefore lower bounds for the device;
``geomx calibrate`` measures a machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT_GPU = "gpu"
"""The costs of workloads on a GPU if none are given."""

PASSES = {"send": 1, "receive": 1, "encode": 5, "decode": 2, "aggregate": 3, "update": 7}
"""Bytes of memory read or written per byte of work.

The network card reads what it sends and writes what it receives. Encoding is sparsification, the
codec with the most accesses: it reads the gradient, and reads and writes velocity and sum. Decoding
reads and writes the values. Aggregation reads the sum and a term, and writes the sum. The
update is that of Adam, the optimizer with the most accesses: it reads the gradient, the weight and
two moments, and writes all but the gradient.
"""

WORK_REQUEST_S = 1e-6
"""Assumed: passing a message to, or taking one from, a network card with direct memory access."""

LAUNCH_S = 5e-6
"""Assumed: starting a kernel."""


@dataclass(frozen=True)
class Gpu:
    """Published data of a GPU.

    Attributes:
        name: The GPU's name.
        memory_bytes_s: Peak bandwidth of its memory, in bytes per second.
        source: The publication.
    """

    name: str
    memory_bytes_s: float
    source: str


_A100 = Gpu("NVIDIA A100 80GB SXM", 2.039e12, "NVIDIA A100 Tensor Core GPU data sheet, 2021")
GPUS = {
    "a100": _A100,
    "h100": Gpu("NVIDIA H100 SXM", 3.35e12, "NVIDIA H100 Tensor Core GPU data sheet, 2023"),
    "h200": Gpu("NVIDIA H200 SXM", 4.8e12, "NVIDIA H200 Tensor Core GPU data sheet, 2023"),
    DEFAULT_GPU: _A100,  # the slowest of them
}


def named_costs() -> dict[str, dict[str, Any]]:
    """Return values for `geomx.options.costs.Costs` by name; other fields have their defaults."""
    free = {f"{work}_{per}_s": 0.0 for work in PASSES for per in ("message", "byte")}
    costs = {"none": _everywhere(free, "none", "endpoints take no time"), "cpu": {}}
    costs |= {name: _of_gpu(gpu) for name, gpu in GPUS.items()}
    return {name: {**values, "source": name} for name, values in costs.items()}


def _of_gpu(gpu: Gpu) -> dict[str, Any]:
    figures = {}
    for work, passes in PASSES.items():
        by_card = work in ("send", "receive")
        figures[f"{work}_message_s"] = WORK_REQUEST_S if by_card else LAUNCH_S
        figures[f"{work}_byte_s"] = passes / gpu.memory_bytes_s
    basis = (
        f"{gpu.name}, its memory at the published {gpu.memory_bytes_s / 1e12:g} TB/s ({gpu.source})"
        ", assumed latencies; not measured"
    )
    return _everywhere(figures, gpu.name, basis)


def _everywhere(figures: dict[str, float], name: str, basis: str) -> dict[str, Any]:
    """Return costs that are equal for tensors on the host and the device, without copies."""
    device = {key: figures[key] for key in figures if key.startswith(("encode", "update"))}
    copies = {"copy_message_s": 0.0, "copy_byte_s": 0.0}
    of_device = {"name": name, "basis": basis, **copies, **device}
    return {**figures, "device": of_device, "basis": basis}
