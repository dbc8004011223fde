"""MXNet's face of the key-value store: import it, and MXNet's own training code uses our clusters.

    import geomx.mxnet
    store = mx.kv.create("dist_sync")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)

Push and pull are operations of MXNet's engine: they return at once, start when the arrays that they
read have been computed, and what reads the pulled arrays waits for them, so that the backward pass,
transmission and the next forward pass overlap. A lost node surfaces as an exception of the next
call here, or of whatever reads an array whose value will never come.

The engine's arrays go through two buffers per key, as in MXNet's own store: one holds what is
leaving, so a pushed gradient may be overwritten by the next backward pass at once and is never
changed by us; one receives. They also undo the private layouts in which MXNet's convolutions leave
arrays.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from geomx import _core, kv
from geomx.errors import GeomxError, NodeLost
from geomx.live.member import FOREVER_S, naming_the_lost
from geomx.live.rhythm import Rhythm
from geomx.live.values import devices, pairs
from geomx.mxnet_loader import load_mxnet

mx: Any = load_mxnet()

Key = kv.Key


@dataclass
class _Buffer:
    """A float32 array of MXNet, with the address of its data, which never changes."""

    array: Any
    data: int

    @classmethod
    def of(cls, shape: Sequence[int]) -> _Buffer:
        array = mx.nd.empty(tuple(shape) or (1,), dtype="float32")
        data = ctypes.c_void_p()
        mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(data)))
        return cls(array, data.value or 0)

    @property
    def handle(self) -> int:
        """What MXNet's C functions know it by."""
        return int(self.array.handle.value)


@dataclass
class _Slot:
    """One key: what leaves, what arrives, and how often it was pushed."""

    leaving: _Buffer
    arriving: _Buffer
    elements: int
    round: int = 0


class EngineExchange:
    """`geomx.live.exchange.Exchange` for MXNet arrays; `pull` returns at once as well."""

    def __init__(self, loop: _core.Loop) -> None:
        self._loop = loop
        address = ctypes.cast(mx.base._LIB.MXEnginePushAsyncND, ctypes.c_void_p).value or 0
        self._engine = _core.MxnetEngine(loop, address)
        self._slots: dict[int, _Slot] = {}

    def declare(self, key: int, shape: Sequence[int]) -> None:
        """See `Exchange.declare`."""
        self._slots[key] = _Slot(_Buffer.of(shape), _Buffer.of(shape), math.prod(shape))

    def push(
        self,
        key: int,
        array: Any,
        *,
        priority: int = 0,
        loss: float = math.nan,
        last: bool = False,
        not_before_s: float = 0.0,
    ) -> None:
        """See `Exchange.push`."""
        self._check()
        slot = self._slots[key]
        array.copyto(slot.leaving.array)
        # Reading `arriving` keeps a push behind the pulls that were asked for before it.
        self._engine.push(
            key, slot.leaving.data, slot.elements, slot.leaving.handle, slot.arriving.handle,
            loss, last, not_before_s, priority,
        )  # fmt: skip
        slot.round += 1

    def pull(self, key: int, out: Sequence[Any], *, priority: int = 0) -> None:
        """See `Exchange.pull`."""
        self._check()
        slot = self._slots[key]
        arriving = slot.arriving
        self._engine.pull(key, slot.round, arriving.data, slot.elements, arriving.handle, priority)
        for target in out:
            arriving.array.copyto(target)

    def wait(self, key: int) -> float:
        """See `Exchange.wait`."""
        with naming_the_lost(self._loop):
            return self._loop.wait(key, self._slots[key].round, FOREVER_S)

    def settle(self, arrays: Sequence[Any]) -> None:
        """See `Exchange.settle`."""
        for array in arrays:
            array.wait_to_read()

    def copy(self, array: Any) -> Any:
        """See `Exchange.copy`; an operation of the engine like any other."""
        return array.copy()

    def _check(self) -> None:
        failure = self._loop.failure()
        if failure is not None:
            raise NodeLost(*failure)


class KVStore(mx.kvstore.KVStore):
    """`mx.kvstore.KVStore` over our store; the members' meaning is that of `geomx.kv.KVStore`."""

    def __init__(self, store: kv.KVStore, type: str) -> None:
        # MXNet's constructor wants a handle of its own store and is not called.
        self._store = store
        self._type = type

    def __del__(self) -> None:
        """There is no handle to free."""

    type = property(lambda self: self._type, doc="The name it was created by.")
    rank = property(lambda self: self._store.rank, doc="Position among the party's workers.")
    num_workers = property(lambda self: self._store.num_workers, doc="Workers in this party.")
    global_rank = property(lambda self: self._store.global_rank, doc="Position among all workers.")
    num_all_workers = property(lambda self: self._store.num_all_workers, doc="All workers.")
    is_master_worker = property(lambda self: self._store.is_master_worker, doc="The first of all.")

    def init(self, key: Any, value: Any) -> None:
        """Introduce keys with the master's values; see `geomx.kv.KVStore.init`."""
        given = pairs(key, value)
        arrays = [_dense(each, devices(values)[0]).asnumpy() for each, values in given]
        self._store.init([each for each, _ in given], arrays)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Contribute, when the arrays are there; see `geomx.kv.KVStore.push`."""
        for each, values in pairs(key, value):
            entry, arrays = self._entry(each, values)
            total = arrays[0] if len(arrays) == 1 else mx.nd.add_n(*arrays)
            self._store.exchange.push(entry.key, total, priority=priority)

    def pull(
        self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Fill `out` when the value has come; see `geomx.kv.KVStore.pull`."""
        if out is None:
            raise GeomxError("pull needs the arrays to fill: pull(key, out=array)")
        for each, values in pairs(key, out):
            entry, arrays = self._entry(each, values)
            self._store.exchange.pull(entry.key, arrays, priority=priority)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into `value` if there is none."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull` into `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> None:
        """Refuse: keys are dense.

        Raises:
            GeomxError: Always.
        """
        raise GeomxError(f"key {key!r}: row-sparse arrays cannot be pulled, keys are dense")

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Optimizers run on the global servers."""
        return bool(capability.lower() == mx.kvstore.KVStoreBase.OPTIMIZER)

    def set_optimizer(self, optimizer: Any) -> None:
        """Update on the global servers; see `geomx.kv.KVStore.set_optimizer`."""
        self._store.set_optimizer(optimizer)

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """See `geomx.kv.KVStore.set_gradient_compression`."""
        self._store.set_gradient_compression(compression_params)

    def rhythm(self, steps: int) -> Rhythm:
        """See `geomx.kv.KVStore.rhythm`."""
        return self._store.rhythm(steps)

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Refuse: the states are on the global servers.

        Raises:
            GeomxError: Always.
        """
        raise GeomxError("optimizer states live on the global servers and cannot be saved here")

    def load_optimizer_states(self, fname: str) -> None:
        """Refuse: the states are on the global servers.

        Raises:
            GeomxError: Always.
        """
        raise GeomxError("optimizer states live on the global servers and cannot be loaded here")

    def barrier(self) -> None:
        """Wait until every worker of the job has come here, its own pushes having been made."""
        mx.nd.waitall()
        self._store.barrier()

    _barrier = barrier

    def close(self) -> None:
        """Finish what is under way and leave the job; called when the program ends."""
        with contextlib.suppress(mx.base.MXNetError):  # of an array whose value never came
            mx.nd.waitall()
        self._store.close()

    def _entry(self, key: Key, values: Any) -> tuple[kv.Entry, list[Any]]:
        """The key's entry, and its arrays, one per device, each of the right shape."""
        entry = self._store.entry(key)
        arrays = [_dense(key, array) for array in devices(values)]
        for array in arrays:
            self._store.check_shape(key, array.shape)
        return entry, arrays


def _dense(key: Key, array: Any) -> Any:
    """Refuse what is not a dense array of MXNet."""
    if not isinstance(array, mx.nd.NDArray):
        raise GeomxError(f"key {key!r}: {type(array).__name__} is not an array of MXNet")
    if array.stype != "default":
        raise GeomxError(f"key {key!r}: {array.stype} arrays cannot be exchanged, keys are dense")
    return array


def create(type: str = kv.TYPES[0]) -> KVStore:
    """The key-value store of this worker; ``mx.kv.create`` returns it for the types of `geomx.kv`.

    Raises:
        ConfigError: There is no such type, or the job does not synchronise that way.
        GeomxError: The job's scheduler cannot be reached, or numpy arrays are in the store already.
    """
    store = kv.create(type)
    if not isinstance(store.exchange, EngineExchange):
        store.use(EngineExchange(store.member.loop))
    face = KVStore(store, type)
    atexit.register(face.close)
    return face


for _type in kv.TYPES:
    mx.kvstore.KVStoreBase.kv_registry[_type] = partial(create, _type)
