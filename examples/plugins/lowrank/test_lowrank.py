"""The codec satisfies geomx's laws of codecs, is linear, and recovers a matrix of low rank."""

import numpy as np
from geomx_lowrank import LowRank, orthonormal

from geomx.testing import check_plugin

DRAW = np.random.default_rng(2)


def sent(codec, vector: np.ndarray) -> np.ndarray:
    """Return what arrives from one sender."""
    parts = codec.encode({"values": vector})
    values = codec.decode(parts, len(vector))["values"]
    codec.settle(parts)
    return values


def test_laws() -> None:
    check_plugin("lowrank")


def test_what_parties_encode_adds_up_to_what_their_sum_encodes() -> None:
    parties, sum_of_all = [LowRank(3) for _ in range(4)], LowRank(3)
    for _ in range(5):
        vectors = DRAW.standard_normal((4, 500), np.float32)
        factors = [
            party.encode({"values": vector})["factor"]
            for party, vector in zip(parties, vectors, strict=True)
        ]
        together = sum_of_all.encode({"values": vectors.sum(axis=0)})["factor"]
        total = np.sum(factors, axis=0)
        assert np.allclose(total, together, atol=1e-3)
        for codec in (*parties, sum_of_all):
            codec.settle({"factor": total})


def test_a_matrix_of_that_rank_arrives_whole() -> None:
    factors = DRAW.standard_normal((2, 30, 3))
    vector = (factors[0] @ factors[1].T).astype(np.float32).reshape(-1)
    codec = LowRank(3)
    arrived = [sent(codec, vector) for _ in range(4)]
    assert np.allclose(np.sum(arrived, axis=0), 4 * vector, atol=1e-3)  # late, but all of it


def test_a_warm_start_finds_the_best_matrix_of_its_rank() -> None:
    """After some rounds without feedback, as good as the singular value decomposition."""
    scale = 0.8 ** np.arange(30)
    matrix = (DRAW.standard_normal((30, 30)) * scale).astype(np.float32)
    codec = LowRank(4)
    for _ in range(40):
        codec.residual = np.float32(0)
        error = np.linalg.norm(sent(codec, matrix.reshape(-1)) - matrix.reshape(-1))
    best = np.sqrt((np.linalg.svd(matrix, compute_uv=False)[4:] ** 2).sum())
    assert best <= error * 1.0001
    assert error < 1.02 * best


def test_a_basis_is_one_whatever_it_is_made_of() -> None:
    """Also of columns that are zero, or that depend on each other."""
    one = DRAW.standard_normal((20, 1))
    for columns in (np.zeros((20, 4)), np.hstack([one, one, 3 * one, 0 * one]), np.eye(20)[:, :4]):
        basis = orthonormal(columns)
        assert np.allclose(basis.T @ basis, np.eye(4), atol=1e-6)
        assert np.allclose(basis @ (basis.T @ columns), columns, atol=1e-5)


def test_bytes_are_those_of_thin_matrices() -> None:
    assert LowRank(4).layout({"values": (10_000, "<f4")}) == {"factor": (400, "f4")}
