"""The options of the small transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from geomx.options.bounds import Count, Device
from geomx.workloads.options import Rate, Training
from geomx.workloads.prose import HELD_OUT


@dataclass(kw_only=True)
class TransformerConfig(Training):
    """A small transformer of PyTorch on a text that comes with geomx, letter by letter."""

    batch_size: Count = 16  # pieces of text per worker and step
    context: Annotated[int, Interval(ge=1, lt=HELD_OUT)] = 32  # letters in a piece
    width: Count = 64  # elements that stand for a letter
    heads: Count = 4  # of attention; share the width evenly
    blocks: Count = 2  # attention and two dense layers each
    device: Device = "cpu"  # where numbers are computed
    learning_rate: Rate = 0.003
    optimizer: str = "adam"
    iterations: Count = 100
    evaluate_every: Count = 20
