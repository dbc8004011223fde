"""Pushes and pulls PyTorch tensors.

A dense float32 tensor in host memory is sent from its own memory and filled in place; the loop
holds a reference until it has been sent. A tensor on a GPU is copied by the device's stage
(`geomx.frameworks.tensors`) on geomx's own stream, and an event makes the consumer's stream wait
for a value. All other tensors (other types or layouts, devices without kernels in this build) are
copied by PyTorch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geomx import _core
from geomx.errors import GeomxError
from geomx.frameworks import tensors
from geomx.live.exchange import ArrayExchange

_STAGED = (torch.float32, torch.float16, torch.bfloat16)


def on_host(tensor: torch.Tensor) -> NDArray[np.float32]:
    """Return a tensor as a float32 vector in host memory, sharing memory if possible.

    Args:
        tensor: A dense tensor.

    Raises:
        GeomxError: It is sparse or complex.
    """
    if tensor.layout != torch.strided:
        raise GeomxError(
            f"{tensor.layout} tensors cannot be exchanged, keys are dense: pass tensor.to_dense()"
        )
    if tensor.is_complex():
        raise GeomxError("complex tensors cannot be exchanged, values are real numbers")
    there = tensor.detach()
    vector: NDArray[np.float32]
    if staged(there):
        with torch.cuda.device_of(there):  # its current stream is the producer
            vector = tensors.read(there).reshape(-1)
    else:
        vector = there.to("cpu", torch.float32).contiguous().view(-1).numpy()
    return vector


def staged(tensor: torch.Tensor) -> bool:
    """Return whether a stage handles `tensor`."""
    return (
        tensor.is_cuda
        and tensor.dtype in _STAGED
        and tensor.is_contiguous()
        and f"cuda:{tensor.get_device()}" in _devices()
    )


@functools.cache
def _devices() -> frozenset[str]:
    """Return the devices for which this build has kernels."""
    return frozenset(name for name, _ in _core.devices())


class TensorExchange(ArrayExchange):
    """`geomx.live.exchange.Exchange` for tensors: `push` returns at once, `pull` waits."""

    def push(
        self,
        key: int,
        array: torch.Tensor | list[torch.Tensor],
        *,
        priority: int = 0,
        loss: float = math.nan,
        last: bool = False,
        not_before_s: float = 0.0,
        absent: bool = False,
    ) -> None:
        """Contribute a tensor to the key's next round; returns at once.

        Args:
            key: Number of a declared tensor.
            array: A tensor of the declared shape, or one for each device, which are added. Without
                ``copy``, it must not be changed afterwards.
            priority: Ignored.
            loss: The worker's last training loss.
            last: Whether the key will not be pushed again.
            not_before_s: Earliest time of sending, in seconds since the start of the run.
            absent: Whether the tensor is zeros because this worker has no gradient. A round without
                any contribution changes nothing.
        """
        if isinstance(array, list):
            return self._send_value(
                key, tensors.take(array, True), loss, last, not_before_s, absent
            )
        there = array.detach()
        if staged(there):  # asynchronous, on the stage's own streams
            with torch.cuda.device_of(there):
                stream = torch.cuda.current_stream().cuda_stream
                taken = tensors.take(there, self.copies, stream)
            return self._send_value(key, taken, loss, last, not_before_s, absent)
        value = on_host(array)
        if self.copies and value.ctypes.data == array.data_ptr():
            value = _core.copied(value)
        self._send(key, value, loss, last, not_before_s, absent)

    def pull(self, key: int, out: Sequence[torch.Tensor], *, priority: int = 0) -> None:
        """Fill tensors with the value after the last push; on a device the current stream waits.

        Args:
            key: Number of a declared tensor.
            out: Tensors of the declared shape.
            priority: Ignored.
        """
        self.wait(key)
        for target in out:
            there = target.detach()
            if staged(there):
                with torch.cuda.device_of(there):
                    stream = torch.cuda.current_stream().cuda_stream
                    tensors.fill(self._loop, key, there, stream)
            else:
                vector = on_host(there)
                self._loop.value(key, vector)
                if vector.ctypes.data != there.data_ptr():
                    there.copy_(torch.from_numpy(vector).view(there.shape))
            if not target.is_inference():
                torch.autograd.graph.increment_version(target)  # PyTorch does not see all changes

    def settle(self, arrays: Sequence[torch.Tensor]) -> None:
        """Wait until tensors have been computed.

        Args:
            arrays: On any device.
        """
        for device in {array.device for array in arrays if array.is_cuda}:
            torch.cuda.current_stream(device).synchronize()

    def copy(self, array: Any) -> Any:
        """Copy a tensor, detached from its graph.

        Args:
            array: A tensor.

        Returns:
            A copy that no later pull changes.
        """
        return array.detach().clone()
