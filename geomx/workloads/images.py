"""Labelled 28x28 images, and their distribution to workers and batches.

A batch is a pure function of (seed, step, worker, workers), so that simulated and live workers
train on the same batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.errors import ConfigError
from geomx.workloads.cache import kept

SIDE = 28
DIGITS_TRAINING = 1437
DIGITS_HELD_OUT = 360


@dataclass(frozen=True)
class Images:
    """A training set and a held-out set.

    Attributes:
        training: (samples, 28, 28); uint8 in 0..255, or float32 in 0..1.
        training_labels: (samples,), 0..9.
        held_out: Like `training`.
        held_out_labels: Like `training_labels`.
    """

    training: NDArray[Any]
    training_labels: NDArray[np.uint8]
    held_out: NDArray[Any]
    held_out_labels: NDArray[np.uint8]

    def by_class(self) -> Images:
        """Return the same sets with training samples ordered by label: slices become non-IID."""
        order = np.argsort(self.training_labels, kind="stable")
        return Images(
            self.training[order], self.training_labels[order], self.held_out, self.held_out_labels
        )


def pixels(images: NDArray[Any]) -> NDArray[np.float32]:
    """Return `images` as network input: (samples, 1, 28, 28) float32 in 0..1."""
    scale = np.float32(255 if images.dtype == np.uint8 else 1)
    return images[:, None].astype(np.float32) / scale


def own_slice(samples: int, worker: int, workers: int) -> range:
    """Return the training samples of a worker.

    Slices are contiguous, disjoint and of equal length; a remainder smaller than `workers` is
    unused.

    Args:
        samples: Size of the training set.
        worker: Rank of the worker, from 0.
        workers: Number of workers.

    Returns:
        Indices into the training set.

    Raises:
        ConfigError: There are fewer samples than workers.
    """
    length = samples // workers
    if length == 0:
        raise ConfigError(
            "network", f"{workers} workers", f"the workload has only {samples} training samples"
        )
    return range(worker * length, (worker + 1) * length)


def batch_indices(
    mine: range, batch_size: int, step: int, seed: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return the samples of a batch.

    The worker goes through its slice in a new order in every epoch, drawn from (seed, epoch). A
    batch may end one epoch and begin the next, so that every batch has exactly `batch_size`
    samples.

    Args:
        mine: The worker's slice.
        batch_size: Samples per batch.
        step: Number of the batch, from 0.
        seed: Seed of the order.

    Returns:
        Indices into the training set, int64 (batch_size,).
    """
    first = step * batch_size
    epochs, offsets = np.divmod(np.arange(first, first + batch_size), len(mine))
    parts = [
        _order(len(mine), (*seed, int(epoch)))[offsets[epochs == epoch]]
        for epoch in np.unique(epochs)
    ]
    indices: NDArray[np.int64] = np.concatenate(parts) + mine.start
    return indices


@lru_cache(maxsize=128)
def _order(length: int, seed: tuple[int, ...]) -> NDArray[np.int64]:
    """Return a permutation that depends on `seed` alone; cached for consecutive steps."""
    return np.random.default_rng(seed).permutation(length)


def load_digits() -> Images:
    """Return scikit-learn's 1,797 handwritten digits, enlarged from 8x8 to 28x28.

    Enlarged bilinearly with aligned corners; 1,437 for training and 360 held out, stratified by
    class, always the same.

    Raises:
        ConfigError: scikit-learn is not installed.
    """
    try:
        # Importing scikit-learn would take longer than most other work at the start of a worker.
        return Images(**kept(f"digits-1-{version('scikit-learn')}", lambda: vars(_made_digits())))
    except ImportError as error:
        raise ConfigError("workload", "digits_cnn", f"{error}: pip install scikit-learn") from error


def _made_digits() -> Images:
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    digits = load()
    enlarge = _bilinear(digits.images.shape[1], SIDE)
    enlarged = np.einsum("ri,nij,cj->nrc", enlarge, digits.images / 16, enlarge, optimize=True)
    training, held_out, training_labels, held_out_labels = train_test_split(
        enlarged.astype(np.float32),
        digits.target.astype(np.uint8),
        train_size=DIGITS_TRAINING,
        test_size=DIGITS_HELD_OUT,
        stratify=digits.target,
        random_state=0,
    )
    return Images(training, training_labels, held_out, held_out_labels)


def _bilinear(source: int, target: int) -> NDArray[np.float64]:
    """Return the (target, source) matrix of linear interpolation with aligned end points."""
    points = np.linspace(0, source - 1, target)
    return np.maximum(0.0, 1.0 - np.abs(points[:, None] - np.arange(source)))
