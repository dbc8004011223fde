"""JAX and optax on the same store, which accepts JAX's arrays through DLPack.

    pip install jax optax
    python examples/jax_train.py --plain                                    # without geomx
    geomx launch network=two_parties -- python examples/jax_train.py        # four workers

The store sums gradients; every worker passes their mean to optax, so any of its optimizers works.
(JAX computes a step as a whole: nothing is sent before all gradients exist.)
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import geomx.kv

BATCH = 128  # of all workers together


def scores(parameters: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """Map (samples, 64) pixels to (samples, 10) scores."""
    hidden = jax.nn.relu(inputs @ parameters["hidden"] + parameters["bias"])
    return hidden @ parameters["output"]


def loss_of(parameters: dict[str, jax.Array], inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the mean cross-entropy."""
    each = optax.softmax_cross_entropy_with_integer_labels(scores(parameters, inputs), targets)
    return each.mean()


def main() -> None:
    """Train, and print the loss over all digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plain", action="store_true", help="JAX alone, without geomx")
    options = parser.parse_args()

    digits = load_digits()
    inputs = jnp.asarray(digits.data / 16, jnp.float32)
    targets = jnp.asarray(digits.target)
    keys = jax.random.split(jax.random.key(0), 2)
    parameters = {
        "hidden": jax.random.normal(keys[0], (64, 128)) / 8,
        "bias": jnp.zeros(128),
        "output": jax.random.normal(keys[1], (128, 10)) / 11,
    }
    optimizer = optax.sgd(0.1, momentum=0.9)
    state = optimizer.init(parameters)

    names = list(parameters)
    rank, workers, store = 0, 1, None
    if not options.plain:
        store = geomx.kv.create("dist_sync")
        rank, workers = store.global_rank, store.num_all_workers
        store.init(names, [parameters[name] for name in names])
        first = map(jnp.asarray, store.pull(names))
        parameters = dict(zip(names, first, strict=True))

    step = jax.jit(jax.grad(loss_of))
    order = np.random.default_rng(1)
    for _ in range(options.steps):
        mine = order.integers(len(inputs), size=BATCH)[rank::workers]
        gradients = step(parameters, inputs[mine], targets[mine])
        if store is not None:
            store.push(names, [gradients[name] for name in names])
            sums = map(jnp.asarray, store.pull(names))
            gradients = {name: total / workers for name, total in zip(names, sums, strict=True)}
        updates, state = optimizer.update(gradients, state)
        parameters = optax.apply_updates(parameters, updates)

    print(f"loss {loss_of(parameters, inputs, targets):.6f}", flush=True)


if __name__ == "__main__":
    main()
