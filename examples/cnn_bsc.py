"""Bi-Sparse: only the largest gradients of a party, and of their sum, cross the WAN.

Workers receive sums of gradients, and every worker runs Adam. On two parties of two workers,
emulated on this machine:

    geomx launch network=two_parties '+accel=[bisparse]' -- python examples/cnn_bsc.py --cpu

The fraction that is sent is an option of the job: ``accel.bisparse.ratio=0.02`` for ``-bcr 0.02``.
"""

from common import Training, arguments, mx, train_on_sums

options = arguments(
    bisparse_compression_ratio=("-bcr", {"type": float, "default": 0.01, "help": "share sent"}),
)
store = mx.kv.create("dist_sync")
store.set_gradient_compression(
    {"type": "bisparse", "ratio": options.bisparse_compression_ratio}  # must match the job
)
train_on_sums(Training(options, store), store)
