"""Pushing and pulling PyTorch's tensors.

A dense float32 tensor in the host's memory leaves from where it is and is filled where it is; the
loop holds on to what it sends until it has been sent. Others (on a device, of another type, not
contiguous) go through a copy in the host's memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geomx import kv
from geomx.errors import GeomxError
from geomx.live.exchange import ArrayExchange


def on_host(tensor: torch.Tensor) -> NDArray[np.float32]:
    """`tensor` as a float32 vector in the host's memory; the same memory where that is possible.

    Raises:
        GeomxError: It is sparse, or not made of real numbers.
    """
    if tensor.layout != torch.strided:
        raise GeomxError(f"{tensor.layout} tensors cannot be exchanged, keys are dense")
    if tensor.is_complex():
        raise GeomxError("complex tensors cannot be exchanged, values are real numbers")
    dense = tensor.detach().to("cpu", torch.float32).contiguous().view(-1)
    vector: NDArray[np.float32] = dense.numpy()
    return vector


class TensorExchange(ArrayExchange):
    """`geomx.live.exchange.Exchange` for tensors: `push` returns at once, `pull` waits."""

    def push(
        self,
        key: int,
        array: torch.Tensor,
        *,
        priority: int = 0,
        loss: float = math.nan,
        last: bool = False,
        not_before_s: float = 0.0,
    ) -> None:
        """See `Exchange.push`. Without ``copy``, `array` must not be changed any more."""
        value = on_host(array)
        if self._copy and value.ctypes.data == array.data_ptr():
            value = value.copy()
        self._send(key, value, loss, last, not_before_s)

    def pull(self, key: int, out: Sequence[torch.Tensor], *, priority: int = 0) -> None:
        """See `Exchange.pull`."""
        self.wait(key)
        for target in out:
            there = target.detach()
            vector = on_host(there)
            self._loop.value(key, vector)
            if vector.ctypes.data != there.data_ptr():
                there.copy_(torch.from_numpy(vector).view(there.shape))
            elif not target.is_inference():
                torch.autograd.graph.increment_version(target)  # nobody else saw it change

    def settle(self, arrays: Sequence[torch.Tensor]) -> None:
        """See `Exchange.settle`."""
        for device in {array.device for array in arrays if array.is_cuda}:
            torch.cuda.current_stream(device).synchronize()

    def copy(self, array: Any) -> Any:
        """See `Exchange.copy`."""
        return array.detach().clone()


def claimed(store: kv.KVStore, copy: bool) -> TensorExchange:
    """The exchange of a store that has been used for nothing else.

    Args:
        store: A worker's.
        copy: See `TensorExchange`.

    Raises:
        GeomxError: It has been.
    """
    if store.keys:
        raise GeomxError("a process trains once: give one optimizer the parameters of all models")
    exchange = TensorExchange(store.member.loop, copy=copy)
    store.use(exchange)
    return exchange
