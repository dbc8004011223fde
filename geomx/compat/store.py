"""The store that ``mx.kv.create`` returns in a worker of a GeoMX or MXNet script.

It differs from `geomx.mxnet.KVStore` in three respects. The worker joins the job with the first
key, after the master had a chance to configure it. A master that does not train initialises keys
and configures, and does nothing else. And ranks, counts and barriers are those of the party, as in
GeoMX.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from geomx import mxnet
from geomx.compat.membership import Membership
from geomx.errors import ConfigError
from geomx.kv import states
from geomx.kv import store as kv
from geomx.kv.ending import at_end
from geomx.kv.values import devices, pairs
from geomx.live.mxnet_exchange import EngineExchange
from geomx.mxnet.arrays import initial, mx, store_call


class CompatStore(mxnet.KVStore):
    """A worker's store; see `geomx.mxnet.KVStore`.

    Args:
        membership: The worker's membership in the job.
        type: The name it was created by.
    """

    def __init__(self, membership: Membership, type: str) -> None:
        self._membership = membership
        self._type = type
        self._joined: kv.KVStore | None = None

    rank = property(lambda self: self._membership.rank, doc="Rank in the party.")
    num_workers = property(lambda self: self._membership.workers, doc="Workers of this party.")
    num_all_workers = property(lambda self: self._membership.all_workers, doc="Training workers.")
    is_master_worker = property(lambda self: self._membership.master, doc="Configures the job.")

    @property
    def _store(self) -> kv.KVStore:  # type: ignore[override]
        """The store itself; its first use joins the job."""
        if self._joined is None:
            membership = self._membership
            member = membership.join()
            master = membership.master and not membership.outside
            store = kv.KVStore(
                member, self._type, exchange=EngineExchange(member.loop), master=master
            )
            self._joined = store
            for text in membership.optimizers():
                store.run_optimizer(text)
            for key, value, _ in membership.pending():
                store.init(key, value)
        return self._joined

    def init(self, key: Any, value: Any) -> None:
        """Initialise keys; the master worker's values are used everywhere.

        Args:
            key: A key, or a list of keys.
            value: An NDArray, or for a list of keys a list of NDArrays.
        """
        if self._joined is not None or not self._membership.master:
            super().init(key, value)
            return
        for each, given in pairs(key, value):
            array = devices(given)[0]
            dtype = np.dtype(array.dtype).name
            values = np.ascontiguousarray(initial(each, array), np.float32)
            self._membership.introduce(each, values, dtype)

    def set_optimizer(self, optimizer: Any) -> None:
        """Let the global servers update the weights.

        The master worker tells them; all workers take note of what they are told.

        Args:
            optimizer: An optimizer of MXNet.
        """
        if self._membership.master and self._joined is not None:
            self._joined.set_optimizer(optimizer)
        elif self._membership.master:
            self._membership.run_optimizer(states.text_of(optimizer))
        self._note(optimizer)

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Compress pushes of parties; has an effect in the master worker only.

        Args:
            compression_params: ``type`` and options, as for MXNet and GeoMX.

        Raises:
            GeomxError: The job has begun.
        """
        if self._membership.master:
            self._membership.wish(compression=dict(compression_params))

    @store_call
    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Save the state of the optimizers; see `geomx.mxnet.KVStore.save_optimizer_states`.

        Raises:
            GeomxError: As there, or the master worker does not train.
        """
        self._membership.check_states()
        super().save_optimizer_states(fname, dump_optimizer)

    @store_call
    def load_optimizer_states(self, fname: str) -> None:
        """Continue from saved states; see `geomx.mxnet.KVStore.load_optimizer_states`.

        Raises:
            GeomxError: As there, or the master worker does not train.
        """
        self._membership.check_states()
        super().load_optimizer_states(fname)

    def barrier(self) -> None:
        """Wait until every worker of this party has reached the barrier."""
        mx.nd.waitall()
        self._membership.barrier()

    _barrier = barrier

    def close(self) -> None:
        """Finish what is under way and leave the job; called when the program ends."""
        if self._joined is not None:
            self._membership.note_failure()
            super().close()


def install(membership_of: Any) -> None:
    """Make ``mx.kv.create`` return this store for all names of distributed stores.

    A later call with another name raises a ConfigError.

    Args:
        membership_of: Creates the worker's membership, on the first call.
    """
    made: list[CompatStore] = []

    def create(type: str) -> CompatStore:
        if not made:
            membership = membership_of()
            if membership.master:
                membership.wish(type=type)
            store = CompatStore(membership, type)
            made.append(store)
            at_end(store.close)
        elif made[0].type != type:
            raise ConfigError("kvstore", type, f"this process has a {made[0].type} store already")
        return made[0]

    for name in mxnet.NAMES:
        mx.kvstore.KVStoreBase.kv_registry[name] = partial(create, name)
