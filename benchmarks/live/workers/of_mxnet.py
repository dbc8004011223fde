"""A node of stock MXNet's ``dist_sync`` store; a worker averages arrays.

``DMLC_ROLE`` and the other variables of ps-lite say which node. Importing MXNet runs a server or
the scheduler until the workers have ended.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from typing import Any

import mxnet
import numpy as np
from rounds import measure, task


def main() -> None:
    store = mxnet.kvstore.create("dist_sync")
    arrays = [mxnet.nd.ones(size) for size in task()["sizes"]]
    for array in arrays:
        array.wait_to_read()
    began = time.monotonic()
    for key, array in enumerate(arrays):
        store.init(key, array)

    def average(arrays: Sequence[Any]) -> None:
        # The next push must not read an array that a pull still fills.
        for key, array in enumerate(arrays):
            store.push(key, array, priority=-key)
            store.pull(key, array, priority=-key)
        for array in arrays:
            array.wait_to_read()

    measure(store.rank, store._barrier, average, arrays, began, shared)


def shared(array: Any) -> Any:
    """Return the memory of an array on the host as an array of numpy."""
    memory = ctypes.c_void_p()
    mxnet.base.check_call(mxnet.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(memory)))
    pointer = ctypes.cast(memory, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, array.shape)


if __name__ == "__main__":
    main()
    sys.exit(0)
