"""Gradients up, weights down: fully synchronous, or mixed with ``--mixed-sync``.

The global server runs the optimizer: Adam, or with ``--dcasgd`` one that compensates for delays.
On two parties of two workers, emulated on this machine:

    geomx launch network=two_parties -- python examples/cnn.py --cpu
    geomx launch network=two_parties +sync=mixedsync -- python examples/cnn.py --cpu -ms -lr 0.001
    geomx launch network=two_parties +sync=mixedsync -- python examples/cnn.py --cpu -ms --dcasgd

Parties that do not wait update more often, from older weights: Adam then needs a smaller step (at
0.01 a run may end with a network that always predicts the same class).

Accelerators that do not change what workers receive need no change here: ``'+accel=[dgt]'``,
``'+accel=[p3]'``, ``'+accel=[tsengine]'``, ``'+accel=[multigps]'``.
"""

from common import Training, arguments, introduce, mx

options = arguments(
    mixed_sync=("-ms", {"action": "store_true", "help": "parties do not wait for each other"}),
    dcasgd=("-dc", {"action": "store_true", "help": "an optimizer that compensates for delays"}),
)
store = mx.kv.create("dist_async" if options.mixed_sync else "dist_sync")
training = Training(options, store)

if store.is_master_worker:
    optimizer = mx.optimizer.DCASGD if options.dcasgd else mx.optimizer.Adam
    store.set_optimizer(optimizer(learning_rate=options.learning_rate))
introduce(training, store)

for iteration, inputs, labels in training.batches():
    samples = training.gradients(inputs, labels)
    for key, parameter in enumerate(training.parameters):
        store.push(key, parameter.grad() / samples, priority=-key)
        store.pull(key, parameter.data(), priority=-key)
    training.log(iteration)
