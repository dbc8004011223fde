"""HFA: parameters are averaged inside a party periodically, and between parties less often.

Every worker runs Adam; its party averages every k1 steps, all parties every k1 k2 steps. On two
parties of two workers, emulated on this machine:

    geomx launch network=two_parties +sync=hfa sync.k1=5 sync.k2=2 -- python examples/cnn_hfa.py -c
"""

from common import Training, arguments, mx, train_on_averages

options = arguments()
store = mx.kv.create("dist_sync")
train_on_averages(Training(options, store), store)
