"""Endpoint costs in an experiment: read from files, chosen, checked, and applied to a GPU."""

from __future__ import annotations

import dataclasses
import os
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomx.errors import ConfigError
from geomx.network.files import load
from geomx.options.costs import SHIPPED_SOURCE, Costs, DeviceCosts, Figures, Measured
from geomx.options.named_costs import DEFAULT_GPU, named_costs
from geomx.options.parsing import build_options
from geomx.workload import Layer, Workload


class CostsWarning(UserWarning):
    """The costs were measured on another machine, or for another version or workload."""


def beside_device(
    figures: Figures, device: DeviceCosts, push: bool | None, pull: bool | None
) -> Figures:
    """Return the costs of a worker whose tensors are on a GPU.

    Values cross the bus once in each direction. If the GPU encodes or decodes them, they cross it
    as on the wire, and encoding or decoding takes the same time in both directions. Otherwise they
    cross it before encoding or after decoding.

    Args:
        figures: Costs of a worker with tensors in the host's memory.
        device: Costs of the GPU.
        push: Whether all codecs of its pushes encode on the GPU; None if there are none.
        pull: Whether the codecs of its pulls decode on the GPU; None if there are none.

    Returns:
        Seconds per message and per byte, by kind of work.
    """
    copy = device.copy_message_s, device.copy_byte_s
    changed = dict(figures)

    def add(work: str) -> None:
        message_s, byte_s = changed[work]
        changed[work] = message_s + copy[0], byte_s + copy[1]

    if push:
        changed["encode"] = device.encode_message_s, device.encode_byte_s
    if pull:
        changed["decode"] = device.encode_message_s, device.encode_byte_s
    add("encode" if push is False else "send")
    add("decode" if pull is False else "receive")
    return changed


def served_on_device(figures: Figures, device: DeviceCosts, share: float | None) -> Figures:
    """Return the costs of a server that updates and encodes on a GPU.

    The host adds contributions; sums cross the bus on their way to an optimizer or a codec. Weights
    return dense, encoded values as on the wire.

    Args:
        figures: Costs of a server without a GPU.
        device: Costs of the GPU.
        share: Bytes on the wire per byte before encoding, if all codecs encode on the GPU;
            otherwise None.

    Returns:
        Seconds per message and per byte, by kind of work.
    """
    changed = dict(figures)

    def work(name: str, message_s: float, byte_s: float, back: float) -> None:
        changed[name] = (
            message_s + 2 * device.copy_message_s,
            byte_s + (1 + back) * device.copy_byte_s,
        )

    work("update", device.update_message_s, device.update_byte_s, 1.0)
    if share is not None:
        work("encode", device.encode_message_s, device.encode_byte_s, share)
    return changed


def this_machine() -> tuple[str, int]:
    """Return the processor's name, and the number of cores that this process may use."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
                break
    return name, len(os.sched_getaffinity(0))


def read_costs(path: Path) -> dict[str, Any]:
    """Read and check a costs file.

    Args:
        path: The file.

    Returns:
        Values for `Costs`.

    Raises:
        ConfigError: The file is missing or unreadable, or a value in it is invalid.
    """
    if not os.path.isfile(path):
        names = ", ".join(sorted(named_costs()))
        remedy = f"must be a file that `geomx calibrate` wrote, or a name: {names}"
        raise ConfigError("costs", path, remedy)
    try:
        content = load(path)
    except ConfigError as error:
        raise ConfigError("costs", path, error.remedy) from error
    if not isinstance(content, Mapping):
        raise ConfigError("costs", path, "must hold a table; `geomx calibrate` writes one")
    build_options(Costs, content, "costs")
    measured = {**dataclasses.asdict(Measured()), **content.get("measured", {})}  # or nowhere
    return {**content, "measured": measured, "source": str(path)}


def warn_of_foreign_costs(costs: Costs, version: str, here: bool) -> None:
    """Warn if costs from a file were measured with another version or on another machine.

    Args:
        costs: The costs.
        version: Version of this geomx.
        here: Whether they are used to predict a run on this machine.
    """
    if costs.source == SHIPPED_SOURCE or costs.source in named_costs():
        return
    measured, differs = costs.measured, []
    if measured.geomx and measured.geomx != version:
        differs.append(f"geomx {measured.geomx}, this is {version}")
    if here and (measured.machine, measured.cores) != this_machine():
        name, cores = this_machine()
        told = f"{measured.machine} with {measured.cores} cores" if measured.machine else ""
        differs.append(f"{told or 'an unknown machine'}, this is {name} with {cores}")
    if differs:
        told = "; ".join(differs)
        remedy = "`geomx calibrate` measures again"
        _warn(f"costs={costs.source} was measured with {told}; {remedy}")


def chosen_costs(costs: Costs, workload: Workload) -> Costs:
    """Return `costs`, or a GPU's costs if none were given and workers' tensors are on one.

    The defaults were measured on a small processor, which does not represent the endpoints of a
    workload on accelerators.
    """
    if workload.device == "cpu" or costs != Costs():
        return costs
    made = build_options(Costs, named_costs()[DEFAULT_GPU], "costs")
    remedy = f"taken as workload.device={workload.device}; costs=cpu takes geomx's defaults"
    return dataclasses.replace(made, basis=f"{made.basis}; {remedy}")


def timed(workload: Workload, costs: Costs, given: bool) -> Workload:
    """Return `workload` with the measured times of its layers, if `costs` has any for it.

    Args:
        workload: The workload with the times of its options.
        costs: `Costs.compute` applies if layers and batch size equal those of the workload.
        given: Whether the user set times of the workload, which then take precedence.

    Returns:
        The workload with the times that apply.
    """
    times = costs.compute.get(workload.name)
    if times is None or given:
        return workload
    key = f"costs.compute.{workload.name}"
    if times.layers != [layer.name for layer in workload.layers]:
        _warn(f"{key} was measured for other layers; the workload's own times are used")
        return workload
    if times.batch_size != workload.batch_size:
        told = f"{times.batch_size} samples a step, not {workload.batch_size}"
        _warn(f"{key} was measured with {told}; the workload's own times are used")
        return workload
    each = zip(times.layers, times.forward_s, times.backward_s, strict=True)
    return dataclasses.replace(workload, layers=tuple(Layer(*layer) for layer in each))


def _warn(sentence: str) -> None:
    warnings.warn(sentence, CostsWarning, stacklevel=3)
