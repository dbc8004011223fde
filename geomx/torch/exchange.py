"""How `geomx.torch` hands tensors to a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from geomx import kv
from geomx.errors import GeomxError
from geomx.kv.values import Key, first_rounded
from geomx.live.torch_exchange import TensorExchange, on_host
from geomx.virtual.torch_exchange import SimulatedTensorExchange

K = TypeVar("K", bound=Key)

NO_WEIGHTS = (
    "this worker cannot continue what it or its job had begun: the servers do not have the "
    "parameters; choose update='servers', or launch with faults.on_loss=stop and no resume"
)
"""Why a process cannot take the place of a lost worker, or begin with the state of a run."""


def shaped(tensor: torch.Tensor) -> NDArray[np.float32]:
    """Return `on_host` in the tensor's shape, as an initial value for a store."""
    return on_host(tensor).reshape(tuple(tensor.shape))


def check_numbers(store: kv.KVStore, named: Mapping[str, torch.Tensor]) -> None:
    """Check that other workers can have the numbers of a model, which start as float32.

    Args:
        store: Store of a worker.
        named: The model's parameters by name.

    Raises:
        GeomxError: float32 would round a whole number, or a parameter is complex or empty.
    """
    for name, parameter in named.items():
        wrong = "" if parameter.numel() else "has no elements: leave it out, or"
        if parameter.is_complex():
            wrong = "is complex, but values are real: hold its parts (torch.view_as_real), or"
        if wrong:
            raise GeomxError(f"parameter {name} {wrong} make it a buffer (register_buffer)")
    for name, parameter in named.items() if store.num_all_workers > 1 else ():
        if parameter.is_floating_point():
            continue
        rounded = first_rounded(parameter.detach().cpu().numpy())
        if rounded is not None:
            raise GeomxError(
                f"parameter {name} has {rounded}, which would be rounded to float32, the type in "
                "which all workers get the first worker's model: make it a buffer "
                "(register_buffer), which stays with each worker"
            )


def introduce(
    store: kv.KVStore,
    exchange: TensorExchange,
    parameters: Mapping[K, torch.Tensor],
    trained: Collection[K],
) -> None:
    """Give parameters keys, and set them to the first worker's values.

    The first worker's own stay as they are where they are not trained, also if float32 would round
    them; not if servers have the values of an earlier process.

    Args:
        store: Store of a worker.
        exchange: Its exchange.
        parameters: The parameters by key.
        trained: Keys of those that are exchanged later.
    """
    store.init(list(parameters), [shaped(parameter) for parameter in parameters.values()])
    gives = store.is_master_worker and not store.member.late and not store.rounds
    for key, parameter in parameters.items():
        if key in trained or not gives:
            exchange.pull(store.entry(key).key, [parameter])


def summing(type_: torch.dtype) -> torch.dtype:
    """Return the type in which to divide a sum of tensors of a type.

    Sums in half precision can overflow where their mean does not, and are rounded before they are
    divided.
    """
    return torch.promote_types(type_, torch.float32)


def mean(
    fetch: Callable[[int, torch.Tensor], None], key: int, like: torch.Tensor, workers: int
) -> torch.Tensor:
    """Return the mean of what all workers have sent of a parameter.

    Args:
        fetch: Fills a tensor with the sum of a key.
        key: The parameter's key.
        like: A tensor of its shape and type.
        workers: Number of all workers.
    """
    total = torch.empty_like(like, dtype=summing(like.dtype))
    fetch(key, total)
    return total.div_(workers).to(like.dtype)


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
