"""ESync: parameters are averaged when the slowest worker is ready; the others make more steps.

Every worker runs Adam, and a state server tells it how many steps to make. On two parties of two
workers, emulated on this machine:

    geomx launch network=two_parties +sync=esync -- python examples/cnn_esync.py --cpu

Epochs are counted by the slowest worker.
"""

from common import Training, arguments, mx, train_on_averages

options = arguments()
store = mx.kv.create("dist_sync")
train_on_averages(Training(options, store), store)
