"""Tensors of any framework, on any device, as what the store works with: float32 vectors.

A tensor is what speaks DLPack or has ``__cuda_array_interface__``: PyTorch's, CuPy's, JAX's. On the
processor it is read and written in place. On a GPU it passes through a stage: the producer's stream
is waited for by an event, what is pushed is encoded and copied on streams of geomx's own through
pinned memory, and the stream that uses a pulled value waits for it by an event where it is known.
The device waits for nobody.
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

# DLPack's numbers for kinds of memory: the host's (pinned and managed too), and CUDA's.
_HOST = (1, 3, 13)
_CUDA = 2
_TYPES = {"<f4": "float32", "<f2": "float16"}
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}

_stages: dict[str, _core.Stage] = {}
_making = threading.Lock()


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies.

    Attributes:
        device: "cpu", or "cuda:0" and so on.
        address: Of its first element.
        shape: Its extents.
        type: "float32", "float16", "bfloat16", or another, which only numpy takes.
        strides: Bytes from one element to the next, by dimension.
        owner: Keeps the memory alive.
        stage: Of the device; None on the processor.
    """

    device: str
    address: int
    shape: tuple[int, ...]
    type: str
    strides: tuple[int, ...]
    owner: Any
    stage: _core.Stage | None


def is_tensor(value: Any) -> bool:
    """Whether `value` is a tensor of another framework than numpy."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")


def on_device(value: Any) -> bool:
    """Whether `value` is a tensor on a GPU, or a list of nothing else."""
    if isinstance(value, list):
        return bool(value) and all(map(on_device, value))
    if not is_tensor(value):
        return False
    return not hasattr(value, "__dlpack__") or int(value.__dlpack_device__()[0]) == _CUDA


def look_at(value: Any) -> Tensor:
    """Where `value` lies; what is queued for it so far comes before what its stage does next.

    Raises:
        GeomxError: It is on a device that this build has no kernels for.
    """
    if hasattr(value, "__dlpack__"):
        kind, number = value.__dlpack_device__()
        stage = _stage(f"cuda:{number}") if int(kind) == _CUDA else None
        # Whoever hands out the memory lets the given stream wait until the memory is ready.
        capsule = value.__dlpack__() if stage is None else value.__dlpack__(stream=stage.stream)
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
    """A tensor's values for `_core.Loop.push_value`.

    Args:
        value: The tensor; or a list of tensors of one shape: their sum, in their order, made on the
            first one's device.
        copy: Whether it may be changed afterwards; those of a list may.
        stream: The CUDA stream that would change it, as a number; it waits by an event. None: that
            of ``__cuda_array_interface__`` if it names one, else this call waits for the copy.

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
    """The values of a tensor: float32 in memory of their own, or numpy's view of what numpy knows.

    Raises:
        GeomxError: See `look_at`; or it cannot be read, the message says why.
    """
    tensor = look_at(value)
    if tensor.stage is None and not _plain(tensor):
        return _by_numpy(tensor)
    out = np.empty(tensor.shape, np.float32)
    stage = tensor.stage or _stage("cpu")
    stage.fetch(tensor.address, _type_of(tensor), out.reshape(-1))
    return out


def write(values: NDArray[np.float32], target: Any, stream: int | None = None) -> None:
    """Store `values` in a tensor of as many elements.

    Args:
        values: A float32 vector.
        target: The tensor.
        stream: The CUDA stream that will use it, as a number; it waits by an event. None: that of
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
    """Store a worker's last complete value of a key in a tensor of a device.

    Values of later rounds cross the bus as they are on the wire, where codecs have kernels for it.

    Args:
        loop: The worker's.
        key: As the loop knows it.
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
    """Whether a stage can move it."""
    size = _SIZES.get(tensor.type)
    if size is None:
        return False
    dense = _dense(tensor.shape, size)
    # Strides of single elements, and of none at all, say nothing.
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
    """Strides of elements of `size` bytes that follow each other."""
    return tuple(size * math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _by_numpy(tensor: Tensor) -> NDArray[Any]:
    """Numpy's view of a tensor on the host. Unlike its own, of DLPack, it can be written to."""
    if tensor.type == "bfloat16":
        _type_of(tensor)  # says what is missing: numpy does not know it
    try:
        type_ = np.dtype(tensor.type).str
    except TypeError:
        raise GeomxError(f"a tensor of {tensor.type} is not made of numbers") from None
    return np.asarray(_View(tensor, type_))


class _View:
    """What numpy asks of memory that it is to look at."""

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
    """The device of an array that has nothing but the array interface."""
    device = getattr(value, "device", 0)
    return int(getattr(device, "id", device if isinstance(device, int) else 0))


def _stage(device: str) -> _core.Stage:
    """The process's stage for a device.

    Raises:
        GeomxError: There is no such device for this build.
    """
    with _making:
        if device not in _stages:
            try:
                _stages[device] = _core.Stage(device)
            except ValueError as error:
                raise GeomxError(f"{error}; `geomx info` says what was built") from error
        return _stages[device]
