"""Selects the exchange for a framework's arrays; a framework is imported only when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geomx import _core
from geomx.live.exchange import ArrayExchange, Exchange


def exchange_of(loop: _core.Loop, arrays: Sequence[Any]) -> Exchange:
    """Return the exchange for the framework of `arrays`, which may be empty."""
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
