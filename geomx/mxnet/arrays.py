"""Dense and row-sparse arrays of MXNet as arguments of the store, and MXNet's errors.

Keys are dense: a tensor is stored, summed, updated and sent as a whole. A row-sparse array is
converted to a dense one when pushed; when pulled, the requested rows are kept. All of these are
operations of MXNet's engine, so none of them blocks until a value arrives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from geomx.errors import GeomxError
from geomx.frameworks.mxnet_loader import load_mxnet
from geomx.kv.values import Key, devices, pairs

mx: Any = load_mxnet()

Method = TypeVar("Method", bound=Callable[..., Any])


class StoreError(GeomxError, mx.base.MXNetError):
    """A wrong use of the store, which scripts of MXNet may expect as MXNet's own error."""


def store_call(method: Method) -> Method:
    """Decorate a method: it raises errors as `StoreError`, and gradients are not recorded."""

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            with mx.autograd.pause(train_mode=mx.autograd.is_training()):
                return method(*arguments, **named)
        except GeomxError as error:
            if type(error) is GeomxError:
                raise StoreError(str(error)) from error
            raise

    return call  # type: ignore[return-value]


def check(key: Key, array: Any) -> Any:
    """Check that a value is an array of MXNet.

    Args:
        key: Its key, for error messages.
        array: The value.

    Returns:
        `array`; an array of ``mx.np`` as one of ``mx.nd`` with the same memory.

    Raises:
        GeomxError: It is not.
    """
    if not isinstance(array, mx.nd.NDArray):
        raise GeomxError(f"key {key!r}: {type(array).__name__} is not an array of MXNet")
    return array.as_nd_ndarray()


def dense(key: Key, array: Any) -> Any:
    """Convert an array of MXNet to a dense one.

    Args:
        key: Its key, for error messages.
        array: The array.

    Returns:
        `array` itself if it is dense.

    Raises:
        GeomxError: It is not an array of MXNet.
    """
    array = check(key, array)
    return array if array.stype == "default" else array.tostype("default")


def contributions(key: Any, value: Any) -> list[tuple[Key, list[Any]]]:
    """Return keys with the arrays that a push gives each, also where it lists a key twice.

    Args:
        key: See `pairs`.
        value: See `pairs`.

    Raises:
        GeomxError: See `pairs`.
    """
    given: dict[Key, list[Any]] = {}
    for each, values in pairs(key, value):
        given.setdefault(each, []).extend(devices(values))
    return list(given.items())


def added(arrays: list[Any]) -> Any:
    """Add up arrays of several devices, on that of the first, since operators read only one's.

    Args:
        arrays: Dense arrays of one shape.
    """
    here = arrays[0].context
    return mx.nd.add_n(*(array.as_in_context(here) for array in arrays))


def initial(key: Key, array: Any) -> np.ndarray[Any, Any]:
    """Copy a parameter to the host, even while a forward pass uses it.

    The copy is an operation of MXNet's engine. Otherwise a convolution of that pass, which changes
    the layout of its weights by an operation of its own (MKLDNNDataReorderAsync), may do so while
    they are read, which fails with "We can't generate TBlob for MKLDNN data".

    Raises:
        GeomxError: It is not an array of MXNet.
    """
    copy: np.ndarray[Any, Any] = dense(key, array).copy().asnumpy()
    return copy


def fill(value: Any, target: Any) -> None:
    """Copy a dense `value` into `target`, an array of any storage type."""
    (value if target.stype == "default" else value.tostype(target.stype)).copyto(target)


def keep_rows(key: Key, value: Any, rows: Any, target: Any) -> None:
    """Copy rows of a dense array into a row-sparse one, whose other rows become zero.

    Args:
        key: Key of the value, for error messages.
        value: An array of two or more dimensions.
        rows: Row numbers in any order and shape, possibly repeated or empty.
        target: The row-sparse array.

    Raises:
        GeomxError: `target` is not row-sparse, or a row does not exist.
    """
    if target.stype != "row_sparse":
        raise GeomxError(f"key {key!r}: rows are pulled into row-sparse arrays, not dense ones")
    numbers = np.unique(rows.asnumpy()).astype(np.int64)
    for number in numbers:
        if not 0 <= number < value.shape[0]:
            raise GeomxError(f"key {key!r} has {value.shape[0]} rows, there is no row {number}")
    if not numbers.size:
        mx.nd.sparse.zeros("row_sparse", value.shape).copyto(target)
        return
    wanted = mx.nd.array(numbers, dtype="int64")
    mx.nd.sparse.retain(value.tostype("row_sparse"), wanted).copyto(target)


def rows_wanted(key: Any, out: Any, row_ids: Any) -> Iterator[tuple[Key, list[tuple[Any, Any]]]]:
    """Yield every key with its arrays and the requested rows of each.

    Args:
        key: A key, or a list of keys.
        out: An array or a list of arrays; for a list of keys a list of such.
        row_ids: Row numbers in the form of `out`, or one array for all arrays of a key.

    Raises:
        GeomxError: The arguments do not match.
    """
    given = pairs(key, out)
    numbers = [row_ids]
    if isinstance(key, list | tuple):
        shared = isinstance(row_ids, mx.nd.NDArray)
        numbers = [row_ids] * len(given) if shared else [ids for _, ids in pairs(key, row_ids)]
    for (each, values), ids in zip(given, numbers, strict=True):
        arrays, rows = devices(values), devices(ids)
        if len(rows) == 1:
            rows *= len(arrays)
        if len(rows) != len(arrays):
            what = f"{len(arrays)} arrays need {len(arrays)} arrays of row numbers"
            raise GeomxError(f"key {each!r}: {what}, not {len(rows)}")
        yield each, [(check(each, a), check(each, r)) for a, r in zip(arrays, rows, strict=True)]
