"""Half precision on the wire: half the bytes on every link, sums in full precision.

Sums of gradients come back, and every worker runs Adam by itself. On two parties of two workers,
emulated on this machine:

    geomx launch network=two_parties '+accel=[fp16]' -- python examples/cnn_fp16.py --cpu
"""

from common import Training, arguments, mx, train_on_sums

options = arguments()
store = mx.kv.create("dist_sync")
store.set_gradient_compression({"type": "fp16"})  # as the job was launched
train_on_sums(Training(options, store), store)
