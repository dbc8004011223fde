"""Endpoint costs that come with geomx under a name, for ``costs=NAME``.

``none`` charges nothing: what remains is the network and the workload's own steps. ``cpu`` are the
defaults, by name. The others stand for endpoints whose tensors lie on a GPU and whose network card
reads and writes the GPU's memory itself, so that no processor touches a byte.

Nothing about a GPU was measured here. Each figure follows from the memory bandwidth that the
manufacturer publishes, by the number of times that a kind of work passes over the memory, and from
times per message that are assumed. Real kernels reach less than the published peak, and a runtime
over ordinary sockets, such as geomx's own, takes longer: these figures say what the device allows,
and ``geomx calibrate`` measures what a machine does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT_GPU = "gpu"
"""What stands for the endpoints of a workload on a GPU where no costs are given."""

PASSES = {"send": 1, "receive": 1, "encode": 5, "decode": 2, "aggregate": 3, "update": 7}
"""Bytes of memory read or written per byte of work.

The network card reads what it sends and writes what it receives. Sparsifying reads the gradient,
and reads and writes velocity and sum, which is the most of all codecs. Decoding reads and writes
the values. For a sum, it and a term are read, and it is written. Adam reads the gradient, the
weight and two moments, and writes all but the gradient, which is the most of all optimizers.
"""

WORK_REQUEST_S = 1e-6
"""Assumed: handing a message to a network card that works by itself, or taking one from it."""

LAUNCH_S = 5e-6
"""Assumed: starting a kernel."""


@dataclass(frozen=True)
class Gpu:
    """A device, by what its manufacturer publishes.

    Attributes:
        name: Of the device.
        memory_bytes_s: Bandwidth of its memory.
        source: Where that is published.
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
    """The same figures wherever tensors lie, and no copies between a host and a device."""
    device = {key: figures[key] for key in figures if key.startswith(("encode", "update"))}
    copies = {"copy_message_s": 0.0, "copy_byte_s": 0.0}
    of_device = {"name": name, "basis": basis, **copies, **device}
    return {**figures, "device": of_device, "basis": basis}
