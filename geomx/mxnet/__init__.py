"""MXNet on the key-value store: after its import, MXNet's training code runs in a geomx job.

Example::

    import geomx.mxnet
    store = mx.kv.create("dist_sync")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)

Push and pull are operations of MXNet's engine: they return at once, start when the arrays that they
read have been computed, and operations that read the pulled arrays wait for them, so that the
backward pass, transmission and the next forward pass overlap. A lost node raises an exception in
the next call here, or in an operation that reads an array whose value will never arrive.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from geomx.errors import GeomxError
from geomx.imports import without_collections

with without_collections():
    from geomx.kv import joining, states
    from geomx.kv import store as kv
    from geomx.kv.ending import at_end
    from geomx.kv.keys import Entry
    from geomx.kv.values import Key, devices, pairs
    from geomx.live.mxnet_exchange import EngineExchange
    from geomx.live.sync_steps import SyncSteps
    from geomx.mxnet.arrays import (
        added,
        check,
        contributions,
        dense,
        fill,
        initial,
        keep_rows,
        mx,
        rows_wanted,
        store_call,
    )
    from geomx.mxnet.told import Told
    from geomx.virtual.mxnet_exchange import SimulatedEngineExchange


class KVStore(mx.kvstore.KVStore):
    """An `mx.kvstore.KVStore` on `geomx.kv.KVStore`, which documents the members."""

    _updater: SimpleNamespace | None = None  # Gluon reads its `optimizer`
    _told: Told | None = None  # of that optimizer, to servers that update

    def __init__(self, store: kv.KVStore, type: str) -> None:
        # MXNet's constructor, which needs a handle of its own store, is not called.
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

    @store_call
    def init(self, key: Any, value: Any) -> None:
        """Introduce keys with the master's values; see `geomx.kv.KVStore.init`.

        Args:
            key: A key, or a list of them.
            value: An NDArray, or for a list of keys a list of NDArrays; of a list per key, one for
                each device, the first counts.
        """
        given = pairs(key, value)
        arrays = [initial(each, devices(values)[0]) for each, values in given]
        self._store.init([each for each, _ in given], arrays)

    @store_call
    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Contribute once the arrays have been computed; see `geomx.kv.KVStore.push`.

        Args:
            key: A key, or a list of them; what is given for one that is listed twice is added up.
            value: An NDArray, or one for each device, which are added up; for a list of keys a
                list.
            priority: Of the operation in MXNet's engine.

        Raises:
            GeomxError: Options of the optimizer were changed after `set_optimizer`; a key was never
                initialised, or a shape differs.
        """
        for each, values in contributions(key, value):
            entry, arrays = self._entry(each, values)
            if self._told is not None:
                self._told.check(entry.key)
            arrays = [dense(each, array) for array in arrays]
            total = arrays[0] if len(arrays) == 1 else added(arrays)
            self._store.send(entry, total, priority)

    @store_call
    def pull(
        self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Fill arrays when the value has come; see `geomx.kv.KVStore.pull`.

        Args:
            key: A key, or a list of them.
            out: An NDArray, or one for each device; for a list of keys a list.
            priority: Of the operation in MXNet's engine.
            ignore_sparse: Whether sparse arrays are left alone, as MXNet does.

        Raises:
            GeomxError: There is no `out`, a key was never initialised, or a shape differs.
        """
        if out is None:
            raise GeomxError("pull needs the arrays to fill: pull(key, out=array)")
        for each, values in pairs(key, out):
            entry, arrays = self._entry(each, values)
            chosen = [a for a in arrays if a.stype == "default" or not ignore_sparse]
            if all(array.stype == "default" for array in chosen):
                self._store.fetch(entry, chosen, priority)
                continue
            value = self._pulled(entry, priority)
            for array in chosen:
                fill(value, array)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull`.

        Args:
            key: A key, or a list of them.
            value: What to push.
            out: What to fill; None to fill `value`.
            priority: See `push`.
        """
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`.

        Args:
            key: A key, or a list of them.
            value: The initial values.
            out: What to fill.
            priority: See `pull`.
        """
        self.init(key, value)
        self.pull(key, out, priority)

    @store_call
    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> None:
        """Fill row-sparse arrays with some rows of the value, when it has come.

        Args:
            key: A key, or a list of them.
            out: An array or a list of arrays; for a list of keys a list of such.
            priority: See `push`.
            row_ids: Numbers of the wanted rows in the form of `out`, or one array of them for all
                arrays of a key. All of the value crosses the network.

        Raises:
            GeomxError: A key was never initialised, an array is dense, there is no such row.
        """
        if out is None or row_ids is None:
            raise GeomxError(
                "row_sparse_pull needs the arrays to fill and the rows that are wanted"
            )
        for each, wanted in rows_wanted(key, out, row_ids):
            entry, _ = self._entry(each, [array for array, _ in wanted])
            value = self._pulled(entry, priority)
            for array, rows in wanted:
                keep_rows(each, value, rows, array)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Tell Gluon what the store can do.

        Args:
            capability: MXNet's name of it.

        Returns:
            True for ``optimizer``, which the global servers run.
        """
        return bool(capability.lower() == mx.kvstore.KVStoreBase.OPTIMIZER)

    def set_optimizer(self, optimizer: Any) -> None:
        """Update on the global servers; see `geomx.kv.KVStore.set_optimizer`.

        They are told its options now, so a later `push` raises an error if those have changed.

        Args:
            optimizer: An optimizer of MXNet.
        """
        if self._store.is_master_worker:
            self._settle()  # MXNet's engine may not have sent earlier pushes, which precede it
        self._store.set_optimizer(optimizer)
        self._note(optimizer)

    def _note(self, optimizer: Any) -> None:
        """Take note of what the global servers were told."""
        self._updater = SimpleNamespace(optimizer=optimizer)
        self._told = Told(optimizer, self._type)

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Check that the job compresses so; see `geomx.kv.KVStore.set_gradient_compression`.

        Args:
            compression_params: ``type`` and options.
        """
        self._store.set_gradient_compression(compression_params)

    def rhythm(self, steps: int) -> SyncSteps:
        """Plan when to exchange parameters; see `geomx.kv.KVStore.rhythm`.

        Args:
            steps: Local steps to make.

        Returns:
            An iterator over the numbers of the steps.
        """
        return self._store.rhythm(steps)

    @store_call
    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Save the state of the optimizers on the global servers, as after the last own push.

        Args:
            fname: The file; `load_optimizer_states` of the same job reads it.
            dump_optimizer: Ignored: the file has no code, so the script sets the optimizer.

        Raises:
            GeomxError: This is not the master worker, there are no keys, or the parties keep the
                weights.
            NodeLost: A node of the job died.
        """
        self._settle()
        master = self._store.is_master_worker
        Path(fname).write_bytes(states.fetched(self._store.member, self._entries(), master))

    @store_call
    def load_optimizer_states(self, fname: str) -> None:
        """Continue from saved states, from the next push on.

        All workers call it; those other than the master only check the file, and so does a master
        that takes the place of a lost one: servers are further than the file.

        Args:
            fname: A file of `save_optimizer_states`.

        Raises:
            GeomxError: No optimizer is set, or the file is damaged or of something else.
            NodeLost: A node of the job died.
        """
        if self._updater is None:
            raise GeomxError("set an optimizer before its states are loaded: they have no options")
        self._settle()
        content = Path(fname).read_bytes()
        master = self._store.is_master_worker and not self._store.goes_on
        text = states.text_of(self._updater.optimizer)
        states.load(self._store.member, self._entries(), text, content, master)
        self._told = Told(self._updater.optimizer, self._type)

    def _entries(self) -> list[Entry]:
        return [self._store.entry(key) for key in self._store.keys]

    def _settle(self) -> None:
        """Wait until all own pushes were answered."""
        self._store.exchange.flush()  # no other worker of this process is waited for
        for entry in self._entries():
            self._store.exchange.wait(entry.key)

    def barrier(self) -> None:
        """Wait until every worker of the job has made its pushes and reached the barrier."""
        mx.nd.waitall()
        self._store.barrier()

    _barrier = barrier

    def close(self) -> None:
        """Finish what is under way and leave the job; called when the program ends."""
        with contextlib.suppress(mx.base.MXNetError):  # from an array whose value never arrived
            mx.nd.waitall()
        self._store.close()

    @store_call
    def _set_updater(self, updater: Any) -> None:
        """Refuse: global servers run no code of scripts.

        Raises:
            GeomxError: Always.
        """
        raise GeomxError("global servers run optimizers by name: set_optimizer, or update here")

    def _entry(self, key: Key, values: Any) -> tuple[Entry, list[Any]]:
        """Return the key's entry, and its arrays, one per device, after checking their shapes."""
        entry = self._store.entry(key)
        arrays = [check(key, array) for array in devices(values)]
        for array in arrays:
            self._store.check_shape(key, array.shape)
        return entry, arrays

    def _pulled(self, entry: Entry, priority: int) -> Any:
        """Return a new array that receives the key's value."""
        value = mx.nd.empty(entry.shape)
        self._store.fetch(entry, [value], priority)
        return value


NAMES = (*kv.TYPES, "dist_device_async", "dist", "dist_sync_device", "dist_async_device")
"""All names of distributed stores in MXNet and GeoMX; `create` refuses those that are no `TYPES`.

MXNet itself would ask for another build of it.
"""

_made: list[KVStore] = []  # the last store that `create` has made


def create(type: str = kv.TYPES[0]) -> KVStore:
    """Return the key-value store of this worker; ``mx.kv.create`` does so for `geomx.kv`'s types.

    A process is one worker and has one store: a second call returns the same, with its keys.

    Args:
        type: MXNet's name: ``dist_sync``, ``dist_device_sync`` or ``dist_async``.

    Returns:
        The store, for ``gluon.Trainer`` or direct use.

    Raises:
        ConfigError: There is no such type, or the job does not synchronise that way.
        GeomxError: The job's scheduler cannot be reached, or numpy arrays are in the store already.

    Example:
        >>> store = create("dist_sync")
        >>> weights = mx.nd.zeros(3)
        >>> store.init(0, weights)
        >>> store.push(0, mx.nd.ones(3))
        >>> store.pull(0, out=weights)
        >>> weights.asnumpy()
        array([1., 1., 1.], dtype=float32)
        >>> store.close()
    """
    store = joining.create(type)
    if _made and _made[-1]._store is store:
        return _made[-1]
    if not isinstance(store.exchange, EngineExchange):
        engine = SimulatedEngineExchange if store.member.virtual else EngineExchange
        store.use(engine(store.member.loop))
    face = KVStore(store, type)
    _made[:] = [face]
    at_end(face.close)
    return face


for _type in NAMES:
    mx.kvstore.KVStoreBase.kv_registry[_type] = partial(create, _type)
