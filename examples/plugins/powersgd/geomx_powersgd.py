"""PowerSGD: a shard, seen as a square matrix, crosses the WAN as a thin one.

Vogels, Karimireddy, Jaggi, NeurIPS 2019 (arXiv 1905.13727). A matrix M of gradients is close to
one of low rank, and subspace iteration finds it: with an orthonormal basis B of a few columns,
F = M B is sent, and F B' stands for M. The next round begins where this one led (warm start): B
becomes the orthonormal basis of what F came to, and M' takes the turn of M, so that over two rounds
both sides of the matrix have been iterated once (Zhang et al., ICDCS 2023, arXiv 2306.08881). What
is left over is added to the next M (error feedback).

For everybody's F to have one meaning, B must be the same everywhere: then the sum of what all
parties send is what would have been sent of their sum, which makes the codec *linear*. Servers add
F without looking into it. The optimizer runs at the parties, so that the sum of F is also what
comes back: from it every party takes the same sum of gradients and the same next B, and both ways
over the WAN are thin.

Where parties are answered one by one there is no common sum, and each sends both factors of its own
matrix instead (`TwoFactors`). A shard has no shape by the time it is encoded; the matrix is square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import geomx
from geomx.cluster import Cluster, Link

geomx_api = "1.1"


@dataclass(frozen=True)
class PowerSGDConfig:
    """Options of PowerSGD."""

    rank: int = 4
    """Columns of the thin matrices, 1 or more."""
    least: int = 256
    """Shards of fewer values travel as they are."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise geomx.ConfigError("rank", self.rank, "must be 1 or more")
        if self.least < 1:
            raise geomx.ConfigError("least", self.least, "must be 1 or more values")


def square(values: np.ndarray, side: int) -> np.ndarray:
    """The values as a square matrix, with zeros at its end."""
    matrix = np.zeros(side * side, np.float32)
    matrix[: len(values)] = values
    return matrix.reshape(side, side)


def orthonormal(columns: np.ndarray, seed: int) -> np.ndarray:
    """A basis of what the columns span; random directions stand in for those that add nothing.

    By Gram and Schmidt in float64, so that nodes whose linear algebra rounds otherwise agree.
    """
    draw = np.random.default_rng(seed)
    basis = np.zeros(columns.shape)
    for i in range(columns.shape[1]):
        column = columns[:, i].astype(np.float64)
        size = np.linalg.norm(column)
        for _ in range(8):
            for _ in range(2):  # once more, for what rounding left
                column = column - basis @ (basis.T @ column)
            if np.linalg.norm(column) > 1e-4 * size > 0:
                break
            column = draw.standard_normal(len(column))
            size = np.linalg.norm(column)
        basis[:, i] = column / np.linalg.norm(column)
    return basis.astype(np.float32)


class Shape:
    """What a rank makes of a number of values."""

    survives_holes = False  # every value needs all of the factors

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def shape(self, values: int) -> tuple[int, int]:
        """Side of the matrix, and the rank that is worth sending."""
        side = math.isqrt(values - 1) + 1
        return side, min(self.rank, side)


class LowRank(Shape):
    """The state of one shard on one link: what was lost, and the basis that all have in common."""

    linear = True
    whole = frozenset({"factor"})

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.residual = np.float32(0)
        self.basis: np.ndarray | None = None
        self.rounds = 0  # the matrix lies on its other side in every second one

    def layout(self, spec):
        """One thin matrix; rows that an earlier codec has chosen are no matrix, and pass."""
        if "indices" in spec:
            return {"values": (spec["values"][0], "f4")}
        side, rank = self.shape(spec["values"][0])
        return {"factor": (side * rank, "f4")}

    def encode(self, parts):
        """F of values plus what was lost before."""
        if "indices" in parts:
            return {"values": parts["values"]}
        values = parts["values"] + self.residual
        side, _ = self.shape(len(values))
        matrix = square(values, side)
        factor = (matrix.T if self.rounds % 2 else matrix) @ self.common(len(values))
        self.residual = values - self.product(factor, len(values))
        return {"factor": factor.reshape(-1)}

    def decode(self, parts, length):
        """What F stands for, of one sender or of all."""
        if "values" in parts:
            return {"values": parts["values"]}
        return {"values": self.product(parts["factor"].reshape(self.shape(length)), length)}

    def settle(self, parts):
        """All have heard what the round came to: it leads to the next basis."""
        if "factor" not in parts:
            return
        self.rounds += 1
        rank = self.basis.shape[1]
        self.basis = orthonormal(parts["factor"].reshape(-1, rank), self.rounds)

    def common(self, values: int) -> np.ndarray:
        """The basis, in the beginning a random one, the same everywhere."""
        if self.basis is None:
            side, rank = self.shape(values)
            self.basis = orthonormal(np.zeros((side, rank)), 0)
        return self.basis

    def product(self, factor: np.ndarray, values: int) -> np.ndarray:
        """F B' as a vector."""
        matrix = factor @ self.common(values).T
        return (matrix.T if self.rounds % 2 else matrix).reshape(-1)[:values]


class TwoFactors(Shape):
    """Both factors of one sender's own matrix, P Q', with what was lost and where to begin."""

    whole = frozenset({"p", "q"})

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.residual = np.float32(0)
        self.start: np.ndarray | None = None

    def layout(self, spec):
        """P and Q have as many rows as the matrix."""
        side, rank = self.shape(spec["values"][0])
        return {"p": (side * rank, "u4"), "q": (side * rank, "u4")}

    def encode(self, parts):
        """One step of subspace iteration on values plus what was lost before."""
        chosen = "indices" in parts  # an earlier codec sends other rows in every round
        values = parts["values"] + (0 if chosen else self.residual)
        side, rank = self.shape(len(values))
        matrix = square(values, side)
        if self.start is None or self.start.shape != (side, rank):
            self.start = orthonormal(np.zeros((side, rank)), 0)
        p = orthonormal(matrix @ self.start, 1)
        q = matrix.T @ p
        self.start = orthonormal(q, 2)
        if not chosen:
            self.residual = values - (p @ q.T).reshape(-1)[: len(values)]
        return {"p": p.reshape(-1).view(np.uint32), "q": q.reshape(-1).view(np.uint32)}

    def decode(self, parts, length):
        """The product."""
        p, q = (parts[name].view(np.float32).reshape(self.shape(length)) for name in "pq")
        return {"values": (p @ q.T).reshape(-1)[:length]}


class PowerSGD:
    """A thin matrix instead of a square one over the WAN; servers add without decoding."""

    def __init__(self, config: PowerSGDConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_update(self, cluster: Cluster) -> str:
        """Sums come back, from which all parties take the next basis."""
        return "party"

    @geomx.hookimpl
    def geomx_codec(self, link: Link) -> geomx.BySize | None:
        """Contributions to global servers, where a shard is large enough to have a rank.

        What is added up must be encoded alike: also what a party next door to the servers sends.
        """
        if link.summed:
            codec = LowRank(self.config.rank)
        elif link.kind == "wan" and link.carries == "contributions":
            codec = TwoFactors(self.config.rank)
        else:
            return None
        return geomx.BySize(self.config.least, small=(), large=(codec,))


@geomx.hookimpl
def geomx_register(register) -> None:
    """Announce ``accel=[powersgd]``."""
    register("accel", "powersgd", PowerSGDConfig, PowerSGD)
