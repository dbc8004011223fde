"""PowerSGD: a shard, seen as a matrix, crosses the WAN as the product of two thin ones.

Vogels, Karimireddy, Jaggi, NeurIPS 2019 (arXiv 1905.13727). One step of subspace iteration per
round finds the directions that matter: P = M Q, made orthonormal, then Q = M' P, and M is sent as
P Q'. The next round starts from this Q (warm start), so that over rounds it converges to the best
matrix of that rank; what is left over is added to the next M (error feedback).

The paper adds up P over all workers before it is made orthonormal. Here every party makes its own
P and Q, because a codec sees one link: a server decodes products and adds those, which is a matrix
of higher rank than either, so nothing is lost in the sum. A shard has no shape by the time it is
encoded; the matrix is as square as it gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import geomx
from geomx.cluster import Link

geomx_api = "1.0"


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


class LowRank:
    """The state of one shard on one link: what was lost, and where to begin."""

    whole = frozenset({"p", "q"})
    survives_holes = False  # every value needs all of P and Q

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.residual = np.float32(0)
        self.start: np.ndarray | None = None

    def shape(self, values: int) -> tuple[int, int, int]:
        """Rows and columns of the matrix, and the rank that is worth sending."""
        rows = math.isqrt(values - 1) + 1
        columns = -(-values // rows)
        return rows, columns, min(self.rank, rows, columns)

    def layout(self, spec):
        """P has as many rows as the matrix, Q as many as it has columns."""
        rows, columns, rank = self.shape(spec["values"][0])
        return {"p": (rows * rank, "u4"), "q": (columns * rank, "u4")}

    def encode(self, parts):
        """One step of subspace iteration on values plus what was lost before."""
        chosen = "indices" in parts  # an earlier codec sends other rows in every round
        values = parts["values"] + (0 if chosen else self.residual)
        rows, columns, rank = self.shape(len(values))
        matrix = np.zeros(rows * columns, np.float32)
        matrix[: len(values)] = values
        matrix = matrix.reshape(rows, columns)
        start = self.start
        if start is None or start.shape != (columns, rank):
            start = np.random.default_rng(columns).standard_normal((columns, rank), np.float32)
        p, _ = np.linalg.qr(matrix @ start)
        q = matrix.T @ p
        # Where the matrix is poorer than the rank, the next start needs other directions.
        self.start = np.where(np.linalg.norm(q, axis=0) > 0, q, start).astype(np.float32)
        if not chosen:
            self.residual = values - (p @ q.T).reshape(-1)[: len(values)]
        return {"p": _bits(p), "q": _bits(q)}

    def decode(self, parts, length):
        """The product."""
        rows, columns, rank = self.shape(length)
        p = parts["p"].view(np.float32).reshape(rows, rank)
        q = parts["q"].view(np.float32).reshape(columns, rank)
        return {"values": (p @ q.T).reshape(-1)[:length]}


def _bits(array: np.ndarray) -> np.ndarray:
    """Floats as they cross the wire."""
    return np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint32)


class PowerSGD:
    """Two thin matrices instead of a thick one, on the way up over the WAN."""

    def __init__(self, config: PowerSGDConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_codec(self, link: Link) -> geomx.BySize | None:
        """Contributions that cross the WAN, where a shard is large enough to have a rank."""
        if link.kind != "wan" or link.carries != "contributions":
            return None
        return geomx.BySize(self.config.least, small=(), large=(LowRank(self.config.rank),))


@geomx.hookimpl
def geomx_register(register) -> None:
    """Announce ``accel=[powersgd]``."""
    register("accel", "powersgd", PowerSGDConfig, PowerSGD)
