"""Bi-Sparse: of a party's gradients and of their sum only the largest cross the WAN.

Sums of gradients come back, and every worker runs Adam by itself. On two parties of two workers,
emulated on this machine:

    geomx launch network=two_parties '+accel=[bisparse]' -- python examples/cnn_bsc.py --cpu

The share that is sent belongs to the job: ``accel.bisparse.ratio=0.02`` goes with ``-bcr 0.02``.
"""

from common import Training, arguments, mx, train_on_sums

options = arguments(
    bisparse_compression_ratio=("-bcr", {"type": float, "default": 0.01, "help": "share sent"}),
)
store = mx.kv.create("dist_sync")
store.set_gradient_compression(
    {"type": "bisparse", "ratio": options.bisparse_compression_ratio}  # as the job was launched
)
train_on_sums(Training(options, store), store)
