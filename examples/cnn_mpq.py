"""Mixed precision: small tensors in half precision, and the largest entries of large ones.

Workers receive sums of gradients, and every worker runs Adam. On two parties of two workers,
emulated on this machine:

    geomx launch network=two_parties '+accel=[mpq]' -- python examples/cnn_mpq.py --cpu

The size limit and the fraction that is sent are options of the job:
``accel.mpq.size_lower_bound=5000``, and ``accel.mpq.ratio=0.02`` for ``-bcr 0.02``.
"""

from common import Training, arguments, mx, train_on_sums

options = arguments(
    bisparse_compression_ratio=("-bcr", {"type": float, "default": 0.01, "help": "share sent"}),
)
store = mx.kv.create("dist_sync")
store.set_gradient_compression(
    {"type": "mpq", "ratio": options.bisparse_compression_ratio}  # must match the job
)
train_on_sums(Training(options, store), store)
