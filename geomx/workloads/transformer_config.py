"""The options of the small transformer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TransformerConfig:
    """A small transformer of PyTorch on a text that comes with geomx, letter by letter."""

    batch_size: int = 16  # pieces of text per worker and step
    context: int = 32  # letters in a piece
    width: int = 64  # elements that stand for a letter
    heads: int = 4  # of attention; share the width evenly
    blocks: int = 2  # attention and two dense layers each
    device: str = "cpu"  # cpu, cuda or cuda:N, where numbers are computed
    learning_rate: float = 0.003
    optimizer: str = "adam"  # adagrad, adam, adamw, dcasgd, nag, rmsprop or sgd
    momentum: float | None = None  # of dcasgd, nag and sgd
    wd: float | None = None  # weight decay
    optimizer_options: dict[str, Any] = field(default_factory=dict)  # others, as MXNet names them
    iterations: int = 100  # local steps per worker
    evaluate_every: int = 20  # local steps between evaluations on held-out text
    forward_ms: float = 10.0  # nominal, whole network, one batch, a worker of speed 1.0
    backward_ms: float = 20.0  # nominal, likewise
