"""A training script like those of GeoMX users: MXNet only, configured by the master worker.

It trains a linear classifier on IDX files and prints its accuracy on the test files.
"""

import argparse
import os

import mxnet as mx

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--slice", type=int)
parser.add_argument("--type", default="dist_sync")
parser.add_argument("--compress", default="")
parser.add_argument("--half", action="store_true", help="with --compress, of small tensors")
parser.add_argument("--local", action="store_true", help="parameters are exchanged")
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()

net = mx.gluon.nn.Dense(10, in_units=784)
net.initialize(mx.init.Normal(0.01 * (1 + options.slice)))
store = mx.kv.create(options.type)
master = store.is_master_worker
if master and options.compress:
    store.set_gradient_compression({"type": options.compress, "threshold": 0.05})
updates = not (options.compress or options.half or options.local)
if master and updates:
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.05))
parameters = list(net.collect_params().values())
trainer = mx.gluon.Trainer(parameters, "sgd", {"learning_rate": 0.2}, kvstore=None)
small = [parameter.data().size < 1000 for parameter in parameters]
halves = [options.half and (little or not options.compress) for little in small]
kinds = ["float16" if half else "float32" for half in halves]
for key, parameter in enumerate(parameters):
    value = parameter.data().astype(kinds[key])
    store.init(key, value)
    if not master or os.environ.get("TRAINING_MASTER"):
        store.pull(key, value)
        parameter.set_data(value.astype("float32"))
if master and not os.environ.get("TRAINING_MASTER"):
    raise SystemExit

if updates:  # servers run the optimizer, so they have its states
    for call in (store.save_optimizer_states, store.load_optimizer_states):
        try:
            call("states")
        except mx.base.MXNetError as error:
            print("refused:", error)

images = mx.gluon.data.vision.MNIST(options.folder, train=True)
mine = slice(options.slice, None, store.num_all_workers)
inputs = images._data[:].astype("float32").reshape((-1, 784))[mine] / 255
labels = mx.nd.array(images._label[mine])
held_out = mx.gluon.data.vision.MNIST(options.folder, train=False)
loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
print(f"worker {store.rank} of {store.num_workers}, {store.num_all_workers} in all")
for _ in range(options.steps):
    with mx.autograd.record():
        loss = loss_of(net(inputs), labels).mean()
    loss.backward()
    if options.local:
        trainer.step(1)
    for key, parameter in enumerate(parameters):
        sent = parameter.data() / store.num_workers if options.local else parameter.grad()
        got = parameter.data() if updates or options.local else parameter.grad()
        answer = got.astype(kinds[key]) if halves[key] else got
        store.push(key, sent.astype(kinds[key]), priority=-key)
        store.pull(key, answer, priority=-key)
        if halves[key]:
            got[:] = answer.astype("float32")
    if not (updates or options.local):
        trainer.step(store.num_all_workers)
guess = net(held_out._data.astype("float32").reshape((-1, 784)) / 255).argmax(axis=1).asnumpy()
print(f"accuracy {(guess == held_out._label).mean():.3f}")
print(f"sum {sum(float(each.data().sum().asscalar()) for each in parameters):.6f}")
