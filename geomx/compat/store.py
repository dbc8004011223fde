"""The store that ``mx.kv.create`` gives a worker of a GeoMX or MXNet script.

The same as `geomx.mxnet.KVStore`, but for three things. The job is joined with the first key, when
the master has had the chance to say what it shall be. A master that does not train introduces keys
and configures, and takes no further part. And ranks, counts and barriers are those of the party, as
they were in GeoMX.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from geomx import mxnet
from geomx.compat.membership import Attendance
from geomx.errors import ConfigError
from geomx.kv import store as kv
from geomx.kv.values import devices, optimizer_numbers, pairs
from geomx.plugin.parts import optimizer_text

NAMES = (*kv.TYPES, "dist_device_async", "dist", "dist_sync_device", "dist_async_device")
"""Every name by which MXNet and GeoMX know a distributed store."""


class CompatStore(mxnet.KVStore):
    """A worker's store; see `geomx.mxnet.KVStore`.

    Args:
        attendance: The worker's.
        type: The name it was created by.
    """

    def __init__(self, attendance: Attendance, type: str) -> None:
        self._attendance = attendance
        self._type = type
        self._joined: kv.KVStore | None = None

    rank = property(lambda self: self._attendance.rank, doc="Among the party's workers.")
    num_workers = property(lambda self: self._attendance.workers, doc="Of this party.")
    num_all_workers = property(lambda self: self._attendance.all_workers, doc="That train.")
    is_master_worker = property(lambda self: self._attendance.master, doc="Configures the job.")

    @property
    def _store(self) -> kv.KVStore:  # type: ignore[override]
        """The store itself; the job is joined when it is first asked for."""
        if self._joined is None:
            attendance = self._attendance
            member = attendance.join()
            master = attendance.master and not attendance.outside
            store = kv.KVStore(
                member, self._type, exchange=mxnet.EngineExchange(member.loop), master=master
            )
            self._joined = store
            for text in attendance.rules():
                member.loop.command(text)
            for key, value, _ in attendance.pending():
                store.init(key, value)
        return self._joined

    def init(self, key: Any, value: Any) -> None:
        """Introduce keys; the master worker's values are everyone's."""
        if self._joined is not None or not self._attendance.master:
            super().init(key, value)
            return
        for each, given in pairs(key, value):
            array = devices(given)[0]
            dtype = np.dtype(array.dtype).name
            values = np.ascontiguousarray(array.asnumpy(), np.float32)
            self._attendance.introduce(each, values, dtype)

    def set_optimizer(self, optimizer: Any) -> None:
        """Let the global servers update the weights; only the master worker's word counts."""
        if not self._attendance.master:
            return
        if self._joined is not None:
            self._joined.set_optimizer(optimizer)
            return
        self._attendance.instruct("optimizer\n" + optimizer_text(optimizer_numbers(optimizer, {})))

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Compress what parties push; only the master worker's word counts.

        Raises:
            GeomxError: The job has begun.
        """
        if self._attendance.master:
            self._attendance.wish(compression=dict(compression_params))

    def barrier(self) -> None:
        """Wait until every worker of this party has come here."""
        mxnet.mx.nd.waitall()
        self._attendance.barrier()

    _barrier = barrier

    def close(self) -> None:
        """Finish what is under way and leave the job; called when the program ends."""
        if self._joined is not None:
            super().close()


def install(attendance_of: Any) -> None:
    """Make ``mx.kv.create`` give this store for every name of a distributed one.

    Args:
        attendance_of: Makes the worker's attendance, on the first call.
    """
    made: list[CompatStore] = []

    def create(type: str) -> CompatStore:
        if not made:
            attendance = attendance_of()
            if attendance.master:
                attendance.wish(type=type)
            store = CompatStore(attendance, type)
            made.append(store)
            atexit.register(store.close)
        elif made[0].type != type:
            raise ConfigError("kvstore", type, f"this process has a {made[0].type} store already")
        return made[0]

    for name in NAMES:
        mxnet.mx.kvstore.KVStoreBase.kv_registry[name] = partial(create, name)
