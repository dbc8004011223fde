"""The workload of a training script: its tensors, as far as it has initialised them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from geomx.workload import TensorSpec, Workload


def of(command: Sequence[str]) -> Workload:
    """Return the workload of a script that has not initialised any tensor yet.

    Args:
        command: Its command, whose first word that ends in ``.py`` names it.
    """
    words = [Path(word).name for word in command]
    name = next((word for word in words[1:] if word.endswith(".py")), words[0])
    return Workload(name, (), (), batch_size=0, samples=0, iterations=0)


def with_tensors(workload: Workload, declared: Iterable[tuple[str, Sequence[int]]]) -> Workload:
    """Return a script's workload with more tensors, given by names and shapes."""
    more = (TensorSpec(name, tuple(shape), 0) for name, shape in declared)
    return replace(workload, tensors=(*workload.tensors, *more))


def shown(name: str) -> str:
    """Return how a tensor is called in tables: MXNet's keys are numbers."""
    return f"key {name}" if name.isdigit() else name
