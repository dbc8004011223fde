"""The memory of MXNet's arrays, past MXNet's calls for each array.

An array of MXNet on the processor that no operation rearranges keeps its memory for its life.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.frameworks.mxnet_loader import load_mxnet


def address_of(array: Any) -> int:
    """Return the address of an array's first element, when all that writes it has ended.

    Memory is taken by the first operation that writes the array, in one of MXNet's threads. An
    address that is asked for meanwhile may be that of other memory, which the array then drops.
    """
    array.wait_to_read()
    base = load_mxnet().base
    data = ctypes.c_void_p()
    base.check_call(base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(data)))
    return data.value or 0


class Overwritten:
    """A float32 array that is overwritten often, in its memory.

    MXNet's assignment passes an empty operation to MXNet's threads and waits for it, which takes
    longer than the copy of a small array. This one waits for what these threads still have to do.

    Args:
        array: The array, which this keeps alive.
    """

    def __init__(self, array: Any) -> None:
        pointer = ctypes.cast(address_of(array), ctypes.POINTER(ctypes.c_float))
        self._wait = load_mxnet().nd.waitall
        self._array = array
        self._values = np.ctypeslib.as_array(pointer, tuple(array.shape))

    def set(self, value: NDArray[np.float32]) -> None:
        """Overwrite the array; waits for all operations.

        Args:
            value: Of the array's shape.
        """
        self._wait()
        self._values[...] = value
