"""Code shared by the examples: flags, network, data and output."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from geomx.mxnet import mx
from geomx.workloads.idx import load_idx
from geomx.workloads.images import load_digits, own_slice, pixels

EVALUATION_BATCH = 500


def arguments(**more: tuple[str, dict[str, Any]]) -> argparse.Namespace:
    """Parse the flags of GeoMX's examples.

    Args:
        more: Further flags by long name: the short flag and options of `add_argument`.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("-lr", "--learning-rate", type=float, default=0.01)
    parser.add_argument("-bs", "--batch-size", type=int, default=32)
    parser.add_argument("-ds", "--data-slice-idx", type=int, help="default: by rank")
    parser.add_argument("-ep", "--epoch", type=int, default=5)
    parser.add_argument("-sc", "--split-by-class", action="store_true")
    parser.add_argument("-c", "--cpu", action="store_true", help="even where there is a GPU")
    parser.add_argument("--data", default="~/data/mnist", help="folder of IDX files")
    for name, (short, options) in more.items():
        parser.add_argument(short, f"--{name.replace('_', '-')}", **options)
    return parser.parse_args()


class Training:
    """One worker's network and data.

    Args:
        options: The flags.
        store: The key-value store.

    Attributes:
        net: The network with its initial values.
        parameters: The trained parameters, by key.
        steps: Number of steps of all epochs.
    """

    def __init__(self, options: argparse.Namespace, store: Any) -> None:
        self.options = options
        self._store = store
        gpu = not options.cpu and mx.context.num_gpus() > 0
        self._context = mx.gpu(0) if gpu else mx.cpu()
        self._loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        self.net = net = mx.gluon.nn.HybridSequential()
        net.add(
            mx.gluon.nn.Conv2D(16, 5, activation="relu"),
            mx.gluon.nn.MaxPool2D(2, 2),
            mx.gluon.nn.Conv2D(32, 5, activation="relu"),
            mx.gluon.nn.MaxPool2D(2, 2),
            mx.gluon.nn.Dense(256, activation="relu"),
            mx.gluon.nn.Dense(128, activation="relu"),
            mx.gluon.nn.Dense(10),
        )
        net.initialize(mx.init.Xavier(), ctx=self._context)
        net(mx.nd.zeros((1, 1, 28, 28), ctx=self._context))
        found = net.collect_params().values()
        self.parameters = [each for each in found if each.grad_req != "null"]

        folder = Path(options.data).expanduser()
        images = load_idx(str(folder)) if folder.is_dir() else load_digits()
        images = images.by_class() if options.split_by_class else images
        slice_of = store.global_rank if options.data_slice_idx is None else options.data_slice_idx
        mine = own_slice(len(images.training), slice_of, store.num_all_workers)
        self._inputs = pixels(images.training[mine.start : mine.stop])
        self._labels = images.training_labels[mine.start : mine.stop]
        self._held_out = pixels(images.held_out), images.held_out_labels
        self._batches = -(-len(mine) // options.batch_size)
        self.steps = options.epoch * self._batches
        self._began_s = time.time()

    def start(self) -> None:
        """Print the start of training, and start its clock."""
        workers, rank = self._store.num_all_workers, self._store.rank
        print(f"Start training on {workers} workers, my rank is {rank}.", flush=True)
        self._began_s = time.time()

    def batches(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield (iteration from 1, inputs, labels) of every batch of every epoch, in order."""
        self.start()
        for iteration in range(1, self.steps + 1):
            yield iteration, *self.batch(iteration)

    def batch(self, iteration: int) -> tuple[Any, Any]:
        """Return inputs and labels of one iteration's batch."""
        size = self.options.batch_size
        first = (iteration - 1) % self._batches * size
        part = slice(first, first + size)
        return tuple(
            mx.nd.array(array, ctx=self._context)
            for array in (self._inputs[part], self._labels[part])
        )

    def gradients(self, inputs: Any, labels: Any) -> int:
        """Compute gradients, summed over the batch; return its size."""
        with mx.autograd.record():
            loss = self._loss(self.net(inputs), labels)
        loss.backward()
        return len(labels)

    def log(self, iteration: int) -> None:
        """Evaluate on held-out data, and print the result in the format of GeoMX's examples."""
        inputs, labels = self._held_out
        right = 0
        for first in range(0, len(labels), EVALUATION_BATCH):
            part = slice(first, first + EVALUATION_BATCH)
            guess = self.net(mx.nd.array(inputs[part], ctx=self._context)).argmax(axis=1)
            right += int(np.sum(guess.asnumpy() == labels[part]))
        epoch = (iteration - 1) // self._batches
        seconds = time.time() - self._began_s
        line = f"[Time {seconds:.3f}][Epoch {epoch}][Iteration {iteration}]"
        print(f"{line} Test Acc {right / len(labels):.4f}", flush=True)


def introduce(training: Training, store: Any) -> None:
    """Initialise all workers with the master's values."""
    for key, parameter in enumerate(training.parameters):
        store.init(key, parameter.data())
        store.pull(key, parameter.data())


def local_trainer(training: Training) -> Any:
    """Return an Adam trainer on this worker, for examples in which servers only add."""
    options = {"learning_rate": training.options.learning_rate}
    return mx.gluon.Trainer(training.parameters, "adam", options, kvstore=None)


def train_on_sums(training: Training, store: Any) -> None:
    """Train with gradients up and their sum down; every worker makes the same update."""
    introduce(training, store)
    trainer = local_trainer(training)
    for iteration, inputs, labels in training.batches():
        samples = training.gradients(inputs, labels)
        for key, parameter in enumerate(training.parameters):
            store.push(key, parameter.grad() / samples, priority=-key)
            store.pull(key, parameter.grad(), priority=-key)
        trainer.step(store.num_all_workers)
        training.log(iteration)


def train_on_averages(training: Training, store: Any) -> None:
    """Train with updates on every worker; the job decides when to average parameters."""
    introduce(training, store)
    trainer = local_trainer(training)
    training.start()
    rhythm = store.rhythm(training.steps)
    for step in rhythm:
        trainer.step(training.gradients(*training.batch(step + 1)))
        mx.nd.waitall()
        if rhythm.due():
            for key, parameter in enumerate(training.parameters):
                store.push(key, parameter.data() * rhythm.scale, priority=-key)
                store.pull(key, parameter.data(), priority=-key)
            rhythm.exchanged()
            training.log(step + 1)
