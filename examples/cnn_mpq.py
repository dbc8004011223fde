"""Mixed precision: small tensors in half precision, of large ones the largest entries.

Sums of gradients come back, and every worker runs Adam by itself. On two parties of two workers,
emulated on this machine:

    geomx launch network=two_parties '+accel=[mpq]' -- python examples/cnn_mpq.py --cpu

What is large, and the share that is sent, belong to the job: ``accel.mpq.size_lower_bound=5000``,
and ``accel.mpq.ratio=0.02`` with ``-bcr 0.02``.
"""

from common import Training, arguments, mx, train_on_sums

options = arguments(
    bisparse_compression_ratio=("-bcr", {"type": float, "default": 0.01, "help": "share sent"}),
)
store = mx.kv.create("dist_sync")
store.set_gradient_compression(
    {"type": "mpq", "ratio": options.bisparse_compression_ratio}  # as the job was launched
)
train_on_sums(Training(options, store), store)
