"""PowerSGD: a shard, viewed as a square matrix, crosses the WAN as a thin matrix.

Vogels, Karimireddy, Jaggi, NeurIPS 2019 (arXiv 1905.13727). A matrix M of gradients is close to
one of low rank, which subspace iteration finds: with an orthonormal basis B of a few columns,
F = M B is sent, and F B' approximates M. The next round continues from this one (warm start): B
becomes the orthonormal basis of the summed F, and M' takes the place of M, so that both sides of
the matrix are iterated once in two rounds (Zhang et al., ICDCS 2023, arXiv 2306.08881). The
remainder is added to the next M (error feedback).

B must be the same for all parties: then the sum of what they send equals what would be sent for
their sum, which makes the codec *linear*. Servers add F without decoding it. The optimizer runs at
the parties, which therefore receive the sum of F: every party derives the same sum of gradients and
the same next B from it, and the WAN carries thin matrices in both directions.

If parties are answered one by one there is no common sum, and each sends both factors of its own
matrix instead (`TwoFactors`). A shard has no shape when it is encoded; the matrix is square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import geomx
from geomx.cluster import Cluster, Link

geomx_api = "2.0"


@dataclass(frozen=True)
class PowerSGDConfig:
    """Options of PowerSGD."""

    rank: int = 4
    """Columns of the thin matrices, 1 or more."""
    least: int = 256
    """Shards with fewer values are not encoded."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise geomx.ConfigError("rank", self.rank, "must be 1 or more")
        if self.least < 1:
            raise geomx.ConfigError("least", self.least, "must be 1 or more values")


def square(values: np.ndarray, side: int) -> np.ndarray:
    """Return the values as a square matrix, padded with zeros."""
    matrix = np.zeros(side * side, np.float32)
    matrix[: len(values)] = values
    return matrix.reshape(side, side)


def orthonormal(columns: np.ndarray, seed: int) -> np.ndarray:
    """Return a basis of the columns' span; random directions replace linearly dependent columns.

    Uses Gram-Schmidt in float64, so that nodes with different linear algebra libraries agree.
    """
    draw = np.random.default_rng(seed)
    basis = np.zeros(columns.shape)
    for i in range(columns.shape[1]):
        column = columns[:, i].astype(np.float64)
        size = np.linalg.norm(column)
        for _ in range(8):
            for _ in range(2):  # repeated to remove rounding errors
                column = column - basis @ (basis.T @ column)
            if np.linalg.norm(column) > 1e-4 * size > 0:
                break
            column = draw.standard_normal(len(column))
            size = np.linalg.norm(column)
        basis[:, i] = column / np.linalg.norm(column)
    return basis.astype(np.float32)


class Shape:
    """The dimensions of matrices for a rank."""

    survives_holes = False  # every value depends on the whole factors

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def shape(self, values: int) -> tuple[int, int]:
        """Return the side of the matrix, and the rank to send."""
        side = math.isqrt(values - 1) + 1
        return side, min(self.rank, side)


class LowRank(Shape):
    """The state of one shard on one link: the residual, and the basis shared by all parties."""

    linear = True
    whole = frozenset({"factor"})

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.residual = np.float32(0)
        self.basis: np.ndarray | None = None
        self.rounds = 0  # the matrix is transposed in every second round

    def layout(self, spec):
        """Describe one thin matrix; rows selected by an earlier codec are passed unchanged."""
        if "indices" in spec:
            return {"values": (spec["values"][0], "f4")}
        side, rank = self.shape(spec["values"][0])
        return {"factor": (side * rank, "f4")}

    def encode(self, parts):
        """Return F of the values plus the residual."""
        if "indices" in parts:
            return {"values": parts["values"]}
        values = parts["values"] + self.residual
        side, _ = self.shape(len(values))
        matrix = square(values, side)
        factor = (matrix.T if self.rounds % 2 else matrix) @ self.common(len(values))
        self.residual = values - self.product(factor, len(values))
        return {"factor": factor.reshape(-1)}

    def decode(self, parts, length):
        """Return the approximation for F of one sender or for the sum of all."""
        if "values" in parts:
            return {"values": parts["values"]}
        return {"values": self.product(parts["factor"].reshape(self.shape(length)), length)}

    def settle(self, parts):
        """Derive the next basis from the sum of the round, which all parties have received."""
        if "factor" not in parts:
            return
        self.rounds += 1
        rank = self.basis.shape[1]
        self.basis = orthonormal(parts["factor"].reshape(-1, rank), self.rounds)

    def residual_norm(self) -> float:
        """Return the norm of what earlier values have left, for metrics."""
        return float(np.linalg.norm(self.residual))

    def common(self, values: int) -> np.ndarray:
        """Return the basis, which is initially random and the same everywhere."""
        if self.basis is None:
            side, rank = self.shape(values)
            self.basis = orthonormal(np.zeros((side, rank)), 0)
        return self.basis

    def product(self, factor: np.ndarray, values: int) -> np.ndarray:
        """Return F B' as a vector."""
        matrix = factor @ self.common(values).T
        return (matrix.T if self.rounds % 2 else matrix).reshape(-1)[:values]


class TwoFactors(Shape):
    """Both factors of one sender's own matrix, P Q', with the residual and the starting basis."""

    whole = frozenset({"p", "q"})

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.residual = np.float32(0)
        self.start: np.ndarray | None = None

    def layout(self, spec):
        """Describe P and Q, which have as many rows as the matrix."""
        side, rank = self.shape(spec["values"][0])
        return {"p": (side * rank, "u4"), "q": (side * rank, "u4")}

    def encode(self, parts):
        """Return one step of subspace iteration on the values plus the residual."""
        chosen = "indices" in parts  # an earlier codec selects different rows in every round
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

    def residual_norm(self) -> float:
        """Return the norm of the residual, for metrics."""
        return float(np.linalg.norm(self.residual))

    def decode(self, parts, length):
        """Return the product."""
        p, q = (parts[name].view(np.float32).reshape(self.shape(length)) for name in "pq")
        return {"values": (p @ q.T).reshape(-1)[:length]}


class PowerSGD:
    """A thin matrix instead of a square one over the WAN; servers add without decoding."""

    def __init__(self, config: PowerSGDConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_update(self, cluster: Cluster) -> str:
        """Let parties receive sums, from which they derive the next basis."""
        return "party"

    @geomx.hookimpl
    def geomx_codec(self, link: Link) -> geomx.BySize | None:
        """Encode contributions to global servers, if a shard is large enough.

        All summands must be encoded alike, including those of a party at the servers' site.
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
    """Register ``accel=[powersgd]``."""
    register("accel", "powersgd", PowerSGDConfig, PowerSGD)
