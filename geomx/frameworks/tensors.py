"""Conversion of any framework's tensors, on any device, to the store's float32 vectors.

A tensor is an object that supports DLPack or ``__cuda_array_interface__``: PyTorch's, CuPy's,
JAX's. On the CPU it is read and written in place. On a GPU it passes through a stage: an event
makes the stage wait for the producer's stream, pushed values are encoded and copied on geomx's own
streams through pinned memory, and an event makes the consumer's stream wait for a pulled value, if
the stream is known. The device never waits for the host.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.errors import GeomxError

# DLPack's codes of memory types: the host's (also pinned and managed), and CUDA's.
_HOST = (1, 3, 13)
_CUDA = 2
_TYPES = {"<f4": "float32", "<f2": "float16"}
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}

_stages: dict[str, _core.DeviceStaging] = {}
_making = threading.Lock()


@dataclass(frozen=True)
class Tensor:
    """Memory of a tensor.

    Attributes:
        device: "cpu", or "cuda:0" and so on.
        address: Address of its first element.
        shape: Its extents.
        type: "float32", "float16", "bfloat16", or another type that only numpy handles.
        strides: Bytes from one element to the next, by dimension.
        owner: Keeps the memory alive.
        stage: Stage of the device; None on the CPU.
    """

    device: str
    address: int
    shape: tuple[int, ...]
    type: str
    strides: tuple[int, ...]
    owner: Any
    stage: _core.DeviceStaging | None


def is_tensor(value: Any) -> bool:
    """Return whether `value` is a tensor of a framework other than numpy."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")


def on_device(value: Any) -> bool:
    """Return whether `value` is a tensor on a GPU, or a non-empty list of such tensors."""
    if isinstance(value, list):
        return bool(value) and all(map(on_device, value))
    if not is_tensor(value):
        return False
    return not hasattr(value, "__dlpack__") or int(value.__dlpack_device__()[0]) == _CUDA


def look_at(value: Any) -> Tensor:
    """Describe the memory of a tensor; its stage waits for the work queued on it so far.

    Args:
        value: The tensor.

    Raises:
        GeomxError: It is on a device for which this build has no kernels, or its framework does not
            give its memory away.
    """
    if hasattr(value, "__dlpack__"):
        kind, number = value.__dlpack_device__()
        stage = _stage(f"cuda:{number}") if int(kind) == _CUDA else None
        # The producer makes the given stream wait until the memory is ready.
        given = {} if stage is None else {"stream": stage.stream}
        try:
            capsule = value.__dlpack__(**given)
        except BufferError as error:  # PyTorch's parameters, for example
            raise GeomxError(f"{type(value).__name__}: {error}") from error
        kind, number, address, shape, type_, strides = _core.describe_tensor(capsule)
        if kind not in (*_HOST, _CUDA):
            raise GeomxError(
                f"a tensor on a device of DLPack's kind {kind}: move it to cpu or cuda"
            )
        owner = (value, capsule)
    else:
        about = value.__cuda_array_interface__
        address, shape = about["data"][0] or 0, tuple(about["shape"])
        type_ = _TYPES.get(about["typestr"], about["typestr"])
        strides = about.get("strides") or _dense(shape, np.dtype(about["typestr"]).itemsize)
        stage = _stage(f"cuda:{_number_of(value)}")
        producer = about.get("stream")
        stage.after(0 if producer is None else producer)
        owner = value
    device = "cpu" if stage is None else stage.device
    return Tensor(device, address, tuple(shape), type_, tuple(strides), owner, stage)


def take(value: Any, copy: bool, stream: int | None = None) -> _core.StagedValue:
    """Return a tensor's values for `_core.Loop.push_value`.

    Args:
        value: The tensor; or a list of tensors of one shape, which are summed in order on the
            device of the first.
        copy: Whether the tensor may be changed afterwards; those of a list may in any case.
        stream: The CUDA stream that would change it, as an integer; it waits by an event. None:
            that of ``__cuda_array_interface__`` if it names one, else this call waits for the copy.

    Raises:
        GeomxError: See `read`.
    """
    if isinstance(value, list):
        return _take_sum(value)
    tensor = look_at(value)
    stage = tensor.stage or _stage("cpu")
    if stream is None and tensor.stage is not None:
        stream = _stream_of(value)
    elements = math.prod(tensor.shape)
    return stage.take(tensor.address, _type_of(tensor), elements, tensor.owner, copy, stream)


def _take_sum(values: list[Any]) -> _core.StagedValue:
    terms, elements = [], 0
    for value in values:
        tensor = look_at(value)
        stage = tensor.stage or _stage("cpu")
        stream = None if tensor.stage is None else _stream_of(value)
        terms.append((stage, tensor.address, _type_of(tensor), tensor.owner, stream))
        elements = math.prod(tensor.shape)
    return terms[0][0].take_sum(terms, elements)


def read(value: Any) -> NDArray[Any]:
    """Return the values of a tensor.

    Args:
        value: The tensor.

    Returns:
        A float32 copy, or numpy's view of a type or layout that only numpy handles.

    Raises:
        GeomxError: See `look_at`; or it cannot be read.
    """
    tensor = look_at(value)
    if tensor.stage is None and not _plain(tensor):
        return _by_numpy(tensor)
    out = np.empty(tensor.shape, np.float32)
    stage = tensor.stage or _stage("cpu")
    stage.fetch(tensor.address, _type_of(tensor), out.reshape(-1))
    return out


def write(values: NDArray[np.float32], target: Any, stream: int | None = None) -> None:
    """Store `values` in a tensor with the same number of elements.

    Args:
        values: A float32 vector.
        target: The tensor.
        stream: The CUDA stream that will use it, as an integer; it waits by an event. None: that of
            ``__cuda_array_interface__`` if it names one, else this call waits.

    Raises:
        GeomxError: See `read`.
    """
    tensor = look_at(target)
    if tensor.stage is None and not _plain(tensor):
        view = _by_numpy(tensor)
        view[...] = values.reshape(view.shape)
        return
    if stream is None and tensor.stage is not None:
        stream = _stream_of(target)
    stage = tensor.stage or _stage("cpu")
    stage.fill(values, tensor.address, _type_of(tensor), tensor.owner, stream)


def fill(loop: _core.Loop, key: int, target: Any, stream: int | None = None) -> None:
    """Store a worker's last complete value of a key in a tensor.

    Values of later rounds are copied to the device in encoded form if codecs have kernels for it.

    Args:
        loop: The worker's loop.
        key: The key in the loop.
        target: The tensor.
        stream: See `write`.

    Raises:
        GeomxError: See `read`.
    """
    tensor = look_at(target)
    stage = tensor.stage or _stage("cpu")
    if stream is None and tensor.stage is not None:
        stream = _stream_of(target)
    type_, elements = _type_of(tensor), math.prod(tensor.shape)
    stage.fill_from(loop, key, tensor.address, type_, elements, tensor.owner, stream)


def _stream_of(value: Any) -> int | None:
    stream: int | None = getattr(value, "__cuda_array_interface__", {}).get("stream")
    return stream


def _plain(tensor: Tensor) -> bool:
    """Return whether a stage can transfer the tensor: a known type, contiguous."""
    size = _SIZES.get(tensor.type)
    if size is None:
        return False
    dense = _dense(tensor.shape, size)
    # Strides are irrelevant in dimensions of extent 1, and in empty tensors.
    return 0 in tensor.shape or all(
        extent == 1 or stride == wanted
        for extent, stride, wanted in zip(tensor.shape, tensor.strides, dense, strict=True)
    )


def _type_of(tensor: Tensor) -> str:
    if not _plain(tensor):
        raise GeomxError(
            f"a tensor of {tensor.type}, shape {tensor.shape} and strides {tensor.strides} on "
            f"{tensor.device}: make it float32 and contiguous first"
        )
    return tensor.type


def _dense(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the strides of contiguous elements of `size` bytes."""
    return tuple(size * math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _by_numpy(tensor: Tensor) -> NDArray[Any]:
    """Return numpy's view of a tensor on the host; unlike `numpy.from_dlpack`, it is writable."""
    if tensor.type == "bfloat16":
        _type_of(tensor)  # raises: numpy has no such type
    try:
        type_ = np.dtype(tensor.type).str
    except TypeError:
        raise GeomxError(f"a tensor of {tensor.type} is not made of numbers") from None
    return np.asarray(_View(tensor, type_))


class _View:
    """Provides numpy's array interface for the memory of a tensor."""

    def __init__(self, tensor: Tensor, type_: str) -> None:
        self.owner = tensor.owner
        self.__array_interface__ = {
            "data": (tensor.address, False),
            "shape": tensor.shape,
            "strides": tensor.strides,
            "typestr": type_,
            "version": 3,
        }


def _number_of(value: Any) -> int:
    """Return the device number of an array that has nothing but the array interface."""
    device = getattr(value, "device", 0)
    return int(getattr(device, "id", device if isinstance(device, int) else 0))


def _stage(device: str) -> _core.DeviceStaging:
    """Return the process's stage for a device.

    Raises:
        GeomxError: This build has no such device.
    """
    with _making:
        if device not in _stages:
            try:
                _stages[device] = _core.DeviceStaging(device)
            except ValueError as error:
                raise GeomxError(f"{error}; `geomx info` says what was built") from error
        return _stages[device]
