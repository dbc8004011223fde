"""How `geomx.torch` hands tensors to a store."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from geomx import kv
from geomx.errors import ConfigError, GeomxError
from geomx.live.torch_exchange import TensorExchange, on_host
from geomx.virtual.torch_exchange import SimulatedTensorExchange

NO_WEIGHTS = (
    "this worker cannot continue what it or its job had begun: the servers do not have the "
    "parameters; choose update='servers', or launch with faults.on_loss=stop and no resume"
)
"""Why a process cannot take the place of a lost worker, or begin with the state of a run."""


def shaped(tensor: torch.Tensor) -> NDArray[np.float32]:
    """Return `on_host` in the tensor's shape, as an initial value for a store."""
    return on_host(tensor).reshape(tuple(tensor.shape))


def claimed(store: kv.KVStore, copy: bool) -> TensorExchange:
    """Return a tensor exchange for a store that has no keys yet.

    Args:
        store: Store of a worker.
        copy: See `TensorExchange`.

    Raises:
        GeomxError: The store has keys already.
    """
    if store.keys:
        raise GeomxError("a process trains once: give one optimizer the parameters of all models")
    kind = SimulatedTensorExchange if store.member.virtual else TensorExchange
    exchange = kind(store.member.loop, copy=copy)
    store.use(exchange)
    return exchange


def checked(update: str) -> str:
    """Return `update` if it is one of the words of `geomx.torch.Optimizer`."""
    if update not in ("servers", "worker"):
        raise ConfigError("update", update, "must be servers or worker")
    return update
