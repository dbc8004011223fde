"""ratings: matrix factorisation, which predicts users' ratings of items from known ratings.

Every user and every item is a short vector, and a user's rating of an item is the sign of their
product. Data centres hold ratings of different users, which is the reason to train over a WAN. The
ratings are synthetic, from hidden vectors; `evaluate` uses some that are held out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import geomx
from geomx.workload import Layer, TensorSpec, Workload

geomx_api = "2.0"


@dataclass(frozen=True)
class RatingsConfig:
    """Options of ratings; ``workload.items=500`` on the command line."""

    users: int = 60
    items: int = 40
    rank: int = 3
    """Length of the vectors."""
    batch_size: int = 128
    learning_rate: float = 0.05
    iterations: int = 60
    step_ms: float = 5.0
    """Duration of a step on a worker of speed 1."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise geomx.ConfigError(name, value, "must be more than 0")


class RatingsModel:
    """The numerics of one worker at a time; parameters and gradients are updated in place."""

    def __init__(self, config: RatingsConfig, seed: int) -> None:
        draw = np.random.default_rng(seed)
        shapes = (config.users, config.rank), (config.items, config.rank)
        hidden = [draw.standard_normal(shape) for shape in shapes]
        ratings = np.sign(hidden[0] @ hidden[1].T).astype(np.float32)
        entries = draw.permutation(ratings.size)
        kept = len(entries) // 5
        self.batch_size = config.batch_size
        self.ratings = ratings.ravel()
        self.width = config.items
        self.tests, self.entries = entries[:kept], np.sort(entries[kept:])  # by user
        self.parameters = [0.3 * draw.standard_normal(shape, dtype=np.float32) for shape in shapes]
        self.gradients = [np.zeros_like(array) for array in self.parameters]

    def step(self, step, worker, workers):
        """Compute loss and gradients of this worker's batch number `step`, of its own users."""
        mine = np.array_split(self.entries, workers)[worker]
        chosen = mine[
            np.random.default_rng((worker, step)).integers(len(mine), size=self.batch_size)
        ]
        error, users, items = self._errors(self.parameters, chosen)
        for gradient, rows, others in (
            (self.gradients[0], users, self.parameters[1][items]),
            (self.gradients[1], items, self.parameters[0][users]),
        ):
            gradient[...] = 0
            np.add.at(gradient, rows, error[:, None] * others / len(chosen))
        return float((error**2).mean() / 2)

    def _errors(self, parameters, entries):
        users, items = np.divmod(entries, self.width)
        guesses = np.einsum("ij,ij->i", parameters[0][users], parameters[1][items])
        return guesses - self.ratings[entries], users, items

    def get(self, arrays, key):
        """Return a copy of one array."""
        return arrays[key].copy()

    def set(self, key, value):
        """Overwrite one parameter."""
        self.parameters[key][...] = value

    def evaluate(self, parameters):
        """Return accuracy and mean loss on the held-out ratings."""
        error, _, _ = self._errors(parameters, self.tests)
        ratings = self.ratings[self.tests]
        right = (error + ratings) * ratings > 0
        return float(right.mean()), float((error**2).mean() / 2)


@dataclass(frozen=True)
class RatingsWorkload(Workload):
    """The workload of `RatingsModel`."""

    has_numerics: bool = True
    config: RatingsConfig = RatingsConfig()

    def model(self, seed: int) -> RatingsModel:
        """Return the model with parameters drawn from `seed`."""
        return RatingsModel(self.config, seed)


def ratings(config: RatingsConfig) -> Workload:
    """Users' ratings, predicted from those of others (matrix factorisation)."""
    return RatingsWorkload(
        name="ratings",
        layers=(Layer("vectors", config.step_ms / 3e3, config.step_ms / 1.5e3),),
        tensors=(
            TensorSpec("users", (config.users, config.rank), 0),
            TensorSpec("items", (config.items, config.rank), 0),
        ),
        batch_size=config.batch_size,
        samples=config.users * config.items * 4 // 5,
        iterations=config.iterations,
        optimizer={"name": "adam", "learning_rate": config.learning_rate},
        config=config,
    )


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``workload=ratings``."""
    register("workload", "ratings", RatingsConfig, ratings)
