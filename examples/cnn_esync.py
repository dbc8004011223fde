"""ESync: parameters, averaged when the slowest worker is there; others make more steps meanwhile.

Every worker runs Adam by itself, and hears from a state server how many steps to make. On two
parties of two workers, emulated on this machine:

    geomx launch network=two_parties +sync=esync -- python examples/cnn_esync.py --cpu

The epochs are those of the slowest worker.
"""

from common import Training, arguments, mx, train_on_averages

options = arguments()
store = mx.kv.create("dist_sync")
train_on_averages(Training(options, store), store)
