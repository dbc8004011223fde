"""Half precision on the wire: half the bytes on every link, sums in full precision.

Workers receive sums of gradients, and every worker runs Adam. On two parties of two workers,
emulated on this machine:

    geomx launch network=two_parties '+accel=[fp16]' -- python examples/cnn_fp16.py --cpu
"""

from common import Training, arguments, mx, train_on_sums

options = arguments()
store = mx.kv.create("dist_sync")
store.set_gradient_compression({"type": "fp16"})  # must match the job
train_on_sums(Training(options, store), store)
