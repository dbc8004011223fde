"""The key-value store that training scripts call, with the names of MXNet's KVStore and GeoMX.

A key is a tensor. Workers push contributions, the store **sums** them over all workers (nothing
divides by their number), lets the optimizer turn the sum into new weights if one was set, and
`pull` returns the result. Where a worker's contributions travel, how often parties synchronise and
what compresses their traffic was decided when the job was launched; scripts do not change::

    store = geomx.kv.create("dist_sync")
    store.init(0, weights)          # the master's value becomes everyone's
    store.push(0, gradient)
    store.pull(0, out=weights)

Under ``geomx launch ... -- python train.py`` the script is one of the workers. Started alone it
gets a cluster of one worker inside its own process. Arrays are numpy's, or any framework's tensors
on the processor or a GPU (what speaks DLPack or has ``__cuda_array_interface__``); `geomx.mxnet`
has the same store for MXNet. Values travel as float32; other widths are converted on the way in and
out.
"""

from geomx.kv.joining import create
from geomx.kv.store import KVStore
from geomx.kv.values import Key

__all__ = ["KVStore", "Key", "create"]
