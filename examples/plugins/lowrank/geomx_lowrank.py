"""A linear codec: a shard, viewed as a square matrix, crosses the WAN as a thin matrix.

A short form of geomx's own `powersgd`, whose page has the papers. With an orthonormal basis B of a
few columns, F = M B is sent, and F B' approximates the matrix M; the remainder is added to the next
M. B is the same at all parties, so that the sum of what they send is what their sum would be sent
as. The next B is a basis of the summed F, which all parties receive (`settle`), and M' takes the
place of M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import geomx
from geomx.cluster import Cluster, Link

geomx_api = "2.0"
LEAST = 256  # values; smaller shards are not encoded


@dataclass(frozen=True)
class LowRankConfig:
    """Options of the codec."""

    rank: int = 4
    """Columns of the thin matrices, 1 to 16."""

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= math.isqrt(LEAST):
            raise geomx.ConfigError("rank", self.rank, f"must be 1 to {math.isqrt(LEAST)}")


def orthonormal(columns: np.ndarray) -> np.ndarray:
    """Return a basis of the columns' span; random directions replace linearly dependent columns.

    Uses Gram-Schmidt in float64, so that nodes with different linear algebra libraries agree.
    """
    draw = np.random.default_rng(0)
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


class LowRank:
    """The state of one shard on one link: the residual, and the basis shared by all parties."""

    linear = True
    whole = frozenset({"factor"})
    survives_holes = False  # every value depends on the whole factor

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.residual = np.float32(0)
        self.basis: np.ndarray | None = None
        self.rounds = 0  # the matrix is transposed in every second round

    def layout(self, spec):
        """Describe one thin matrix; rows selected by an earlier codec are passed unchanged."""
        if "indices" in spec:
            return {"values": (spec["values"][0], "f4")}
        return {"factor": (self.side(spec["values"][0]) * self.rank, "f4")}

    def encode(self, parts):
        """Return F of the values plus the residual."""
        if "indices" in parts:
            return {"values": parts["values"]}
        values = parts["values"] + self.residual
        matrix = np.zeros(self.side(len(values)) ** 2, np.float32)
        matrix[: len(values)] = values
        matrix = matrix.reshape(self.side(len(values)), -1)
        factor = (matrix.T if self.rounds % 2 else matrix) @ self.common(len(values))
        left = values - self.product(factor, len(values))
        self.residual = left if np.isfinite(left).all() else np.float32(0)
        return {"factor": factor.reshape(-1)}

    def decode(self, parts, length):
        """Return the approximation for F of one sender or for the sum of all."""
        if "values" in parts:
            return {"values": parts["values"]}
        return {"values": self.product(parts["factor"].reshape(-1, self.rank), length)}

    def settle(self, parts):
        """Derive the next basis from the sum of the round, which all parties have received."""
        if "factor" not in parts:
            return
        self.rounds += 1
        self.basis = orthonormal(parts["factor"].reshape(-1, self.rank))

    def residual_norm(self) -> float:
        """Return the norm of what earlier values have left, for metrics."""
        return float(np.linalg.norm(self.residual))

    def side(self, values: int) -> int:
        """Return the side of the matrix, which ends with zeros."""
        return math.isqrt(values - 1) + 1

    def common(self, values: int) -> np.ndarray:
        """Return the basis, which is initially random and the same everywhere."""
        if self.basis is None:
            self.basis = orthonormal(np.zeros((self.side(values), self.rank)))
        return self.basis

    def product(self, factor: np.ndarray, values: int) -> np.ndarray:
        """Return F B' as a vector."""
        matrix = factor @ self.common(values).T
        return (matrix.T if self.rounds % 2 else matrix).reshape(-1)[:values]


class Plugin:
    """A thin matrix instead of a square one over the WAN; servers add without decoding."""

    def __init__(self, config: LowRankConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_update(self, cluster: Cluster) -> str:
        """Let parties receive sums, from which they derive the next basis."""
        return "party"

    @geomx.hookimpl
    def geomx_codec(self, link: Link) -> geomx.BySize | None:
        """Encode what is summed, if a shard is large enough.

        All summands must be encoded alike, including those of a party at the servers' site. Parties
        that are answered one by one have no sum, and send dense values.
        """
        if not link.summed:
            return None
        return geomx.BySize(LEAST, small=(), large=(LowRank(self.config.rank),))


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[lowrank]``."""
    register("accel", "lowrank", LowRankConfig, Plugin)
