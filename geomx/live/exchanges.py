"""Which exchange moves the arrays of which framework; a framework is imported where it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geomx import _core
from geomx.live.exchange import ArrayExchange, Exchange


def exchange_of(loop: _core.Loop, arrays: Sequence[Any]) -> Exchange:
    """The exchange for the framework that `arrays` are of; without any, nothing is computed."""
    if not arrays:
        return ArrayExchange(loop, copy=False)
    framework = type(arrays[0]).__module__.partition(".")[0]
    if framework == "mxnet":
        from geomx.live.mxnet_exchange import EngineExchange

        return EngineExchange(loop)
    if framework == "torch":
        from geomx.live.torch_exchange import TensorExchange

        return TensorExchange(loop)
    return ArrayExchange(loop)
