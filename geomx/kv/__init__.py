"""The key-value store for training scripts, with the method names of MXNet's KVStore and GeoMX.

A key is a tensor. Workers push contributions, the store **sums** them over all workers (without
dividing by their number), lets the optimizer turn the sum into new weights if one is set, and
`pull` returns the result. Where a worker's contributions travel and how their traffic is compressed
is configured when the job is launched; scripts do not change::

    store = geomx.kv.create("dist_sync")
    store.init(0, weights)          # the master's value is used everywhere
    store.push(0, gradient)
    store.pull(0, out=weights)

Sync algorithms that exchange parameters instead of gradients need another loop, in which the script
updates its parameters and `KVStore.rhythm` tells when to exchange them.

Under ``geomx launch ... -- python train.py`` the script is one of the workers. Started alone, it
gets a cluster of one worker in its own process. Arrays are numpy's, or any framework's tensors on
the CPU or a GPU (objects that support DLPack or ``__cuda_array_interface__``); `geomx.mxnet` has
the same store for MXNet. Values travel as float32; other types are converted.
"""

from geomx.imports import without_collections

with without_collections():
    from geomx.kv.joining import create
    from geomx.kv.store import KVStore
    from geomx.kv.values import Key

__all__ = ["KVStore", "Key", "create"]
