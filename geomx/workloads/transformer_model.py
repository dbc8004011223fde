"""The numerics of the small transformer: a PyTorch network, batch by batch.

A decoder as in Radford et al. (2019), "Language models are unsupervised multitask learners":
normalisation before attention and before the dense layers, with residual connections.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from geomx.errors import ConfigError
from geomx.workload import TensorSpec, Workload
from geomx.workloads.images import batch_indices, own_slice
from geomx.workloads.prose import ALPHABET, HELD_OUT, prose
from geomx.workloads.transformer_config import TransformerConfig

_EVALUATION_BATCH = 256


class Block(nn.Module):
    """Causal self-attention, then two dense layers on each letter."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.gather = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """Map (batch, letters, width) to the same shape."""
        batch, letters, width = state.shape
        gathered = self.gather(self.norm1(state)).view(batch, letters, 3, self.heads, -1)
        query, key, value = gathered.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        state = state + self.attended(seen.transpose(1, 2).reshape(batch, letters, width))
        return state + self.narrow(functional.gelu(self.widen(self.norm2(state))))


class Transformer(nn.Module):
    """Maps letters to scores of the letters that follow them."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.width
        self.letters = nn.Embedding(len(ALPHABET), width)
        self.positions = nn.Embedding(config.context, width)
        self.blocks = nn.Sequential(*(Block(width, config.heads) for _ in range(config.blocks)))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, len(ALPHABET))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Map letter codes (batch, letters) to scores (batch, letters, alphabet)."""
        places = torch.arange(text.shape[1], device=text.device)
        state = self.letters(text) + self.positions(places)
        return self.scores(self.norm(self.blocks(state)))


class TransformerModel:
    """The transformer on the text; see `geomx.workload.Model` for the contract of its methods.

    Equal parameters, seed, step, worker and number of workers give bit-identical losses and
    gradients in every process on one machine's CPU: a single thread computes, since sums that
    threads share would depend on their number.

    Attributes:
        parameters: Tensors in key order, on the workload's device, updated in place.
        gradients: The tensors that `step` writes, one per parameter.
    """

    def __init__(self, config: TransformerConfig, workload: Workload, seed: int) -> None:
        self._config, self._workload = config, workload
        self._seed = seed
        self._device = _device(config.device)
        self._network = Transformer(config).to(self._device)
        self._judge: Transformer | None = None  # so that evaluation does not touch parameters
        trained = [self._network.get_parameter(tensor.name) for tensor in workload.tensors]
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        self.parameters: Sequence[torch.Tensor] = [each.detach() for each in trained]
        self.gradients: Sequence[torch.Tensor] = [each.grad for each in trained]
        numbers = {letter: number for number, letter in enumerate(ALPHABET)}
        self._text = np.array([numbers[letter] for letter in prose()], np.int64)
        draw = np.random.default_rng(seed)
        for key, tensor in enumerate(workload.tensors):
            self.set(key, _initial(tensor, draw, config.blocks))

    def step(self, step: int, worker: int, workers: int) -> float:
        """Return the mean loss of a worker's batch number `step`; see `Model.step`."""
        workload = self._workload
        mine = own_slice(workload.samples, worker, workers)
        chosen = batch_indices(mine, workload.batch_size, step, (self._seed, worker))
        for gradient in self.gradients:
            gradient.zero_()
        with _one_thread():
            text, following = self._pieces(chosen * self._config.context)
            loss = _loss(self._network(text), following)
            loss.backward()
        return float(loss.detach())

    def get(self, arrays: Sequence[torch.Tensor], key: int) -> NDArray[np.float32]:
        """Return a float32 numpy copy of ``arrays[key]``; waits for the device."""
        copy: NDArray[np.float32] = arrays[key].to("cpu", copy=True).numpy()
        return copy

    def set(self, key: int, value: NDArray[np.float32]) -> None:
        """Overwrite parameter `key`."""
        self.parameters[key].copy_(torch.from_numpy(np.array(value)))

    def evaluate(self, parameters: Sequence[NDArray[np.float32]]) -> tuple[float, float]:
        """Return the fraction of letters predicted correctly and the mean loss on held-out text."""
        workload, context = self._workload, self._config.context
        if self._judge is None:
            self._judge = Transformer(self._config).to(self._device)
        first = len(self._text) - HELD_OUT
        starts = np.arange(first, len(self._text) - context, context)
        correct, loss = 0, 0.0
        with torch.no_grad(), _one_thread():
            for tensor, value in zip(workload.tensors, parameters, strict=True):
                self._judge.get_parameter(tensor.name).copy_(torch.from_numpy(np.array(value)))
            for begin in range(0, len(starts), _EVALUATION_BATCH):
                text, following = self._pieces(starts[begin : begin + _EVALUATION_BATCH])
                scores = self._judge(text)
                correct += int((scores.argmax(2) == following).sum())
                loss += float(_loss(scores, following)) * following.numel()
        letters = len(starts) * context
        return correct / letters, loss / letters

    def _pieces(self, starts: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the pieces of text at `starts`, and the letter after each of their letters."""
        places = starts[:, None] + np.arange(self._config.context + 1)
        pieces = torch.from_numpy(self._text[places]).to(self._device)
        return pieces[:, :-1], pieces[:, 1:]


def _loss(scores: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), following.flatten())


def _initial(tensor: TensorSpec, draw: np.random.Generator, blocks: int) -> NDArray[np.float32]:
    """Return initial values, drawn by numpy since PyTorch's random state is shared by the process.

    One for the weight of a normalisation, zero for a bias, normal of deviation 0.1 for embeddings;
    of variance 1 / inputs for dense layers, less for those that end a residual branch.
    """
    name, shape = tensor.name, tensor.shape
    if len(shape) == 1:
        one = "norm" in name and name.endswith("weight")
        return np.full(shape, 1.0 if one else 0.0, np.float32)
    width = 0.1
    if name.split(".")[0] not in ("letters", "positions"):
        width = 1 / math.sqrt(shape[1])
    if name.split(".")[-2] in ("attended", "narrow"):
        width /= math.sqrt(2 * blocks)
    return (width * draw.standard_normal(shape)).astype(np.float32)


def _device(name: str) -> torch.device:
    """Return the device called `name`.

    Raises:
        ConfigError: It does not exist here.
    """
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count()
        raise ConfigError("workload.device", name, f"this machine has {there} CUDA devices")
    return device


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
