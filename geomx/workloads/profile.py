"""A network by a file of its layers: measured times, and tensors in the order of their gradients.

``geomx import kineto`` writes such a file from a trace of PyTorch's profiler; any other measurement
may be written down in its form::

    layers:                                   # in forward order
    - {name: conv, forward_ms: 1.5, backward_ms: 3.1, tensors: {weight: [64, 3, 7, 7], bias: [64]}}
    - {name: dense, forward_ms: 0.2, backward_ms: 0.4, tensors: {weight: [10, 512]}}

Gradients of a layer appear at the end of its backward pass, which visits the layers in reverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from geomx.errors import ConfigError
from geomx.options.bounds import Count
from geomx.options.parsing import build_options
from geomx.workload import Layer, TensorSpec, Workload
from geomx.workloads.optimizers import optimizer_of
from geomx.workloads.options import Amount, Milliseconds, Updates
from geomx.yaml_files import YamlError, read_yaml


@dataclass(kw_only=True)
class ProfileConfig(Updates, Amount):
    """Layers with the times and sizes of a file; sizes only, nothing is trained."""

    path: str = ""  # the file, as `geomx import kineto` writes it


@dataclass(kw_only=True)
class ProfiledLayer:
    """An entry of ``layers``."""

    name: Annotated[str, MinLen(1)]
    forward_ms: Milliseconds
    backward_ms: Milliseconds
    tensors: dict[str, list[Count]]


def profile(config: ProfileConfig) -> Workload:
    """Layers with the times and sizes of a file; sizes only, nothing is trained.

    Raises:
        ConfigError: The file is missing or invalid, or an option is.
    """
    layers = _layers(config.path)
    tensors = tuple(
        TensorSpec(f"{layer.name}.{name}", tuple(shape), index)
        for index, layer in enumerate(layers)
        for name, shape in layer.tensors.items()
    )
    names = [tensor.name for tensor in tensors]
    if not names:
        raise ConfigError("workload.path", config.path, "has no tensors: nothing would be sent")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError("workload.path", config.path, f"has two tensors {twice}")
    return Workload(
        name="profile",
        layers=tuple(
            Layer(layer.name, layer.forward_ms / 1e3, layer.backward_ms / 1e3) for layer in layers
        ),
        tensors=tensors,
        batch_size=config.batch_size,
        samples=config.batch_size * config.iterations,
        iterations=config.iterations,
        evaluate_every=config.evaluate_every,
        optimizer=optimizer_of(config),
    )


def _layers(path: str) -> list[ProfiledLayer]:
    """Read the file's layers.

    Raises:
        ConfigError: It is missing or invalid.
    """
    if not path:
        raise ConfigError("workload.path", path, "must be a file of layers: see geomx import")
    try:
        content = read_yaml(Path(path))
    except YamlError as error:
        raise ConfigError("workload.path", path, str(error)) from error
    entries: Any = content.get("layers") if isinstance(content, Mapping) else None
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise ConfigError("workload.path", path, "must have a list `layers`: see geomx import")
    layers = []
    for number, entry in enumerate(entries):
        where = f"layers[{number}] of {path}"
        if not isinstance(entry, Mapping):
            raise ConfigError(where, entry, "must have name, forward_ms, backward_ms and tensors")
        options = {str(key): value for key, value in entry.items()}
        layers.append(build_options(ProfiledLayer, options, where))
    return layers
