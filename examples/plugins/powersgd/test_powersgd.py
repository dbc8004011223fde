"""PowerSGD keeps geomx's laws of codecs, and finds a matrix of low rank."""

import numpy as np
from geomx_powersgd import LowRank

from geomx.testing import check_plugin


def sent(codec: LowRank, matrix: np.ndarray) -> np.ndarray:
    return codec.decode(codec.encode({"values": matrix.reshape(-1)}), matrix.size)["values"]


def test_laws() -> None:
    check_plugin("powersgd")


def test_a_matrix_of_that_rank_arrives_whole() -> None:
    draw = np.random.default_rng(2)
    matrix = (draw.standard_normal((30, 3)) @ draw.standard_normal((3, 30))).astype(np.float32)
    assert np.allclose(sent(LowRank(3), matrix), matrix.reshape(-1), atol=1e-4)


def test_a_warm_start_finds_the_best_matrix_of_its_rank() -> None:
    """After some rounds without feedback, as good as the singular value decomposition."""
    draw = np.random.default_rng(3)
    matrix = (draw.standard_normal((30, 30)) * 0.8 ** np.arange(30)).astype(np.float32)
    codec = LowRank(4)
    for _ in range(40):
        codec.residual = np.float32(0)
        error = np.linalg.norm(sent(codec, matrix) - matrix.reshape(-1))
    best = np.sqrt((np.linalg.svd(matrix, compute_uv=False)[4:] ** 2).sum())
    assert best <= error * 1.0001
    assert error < 1.02 * best


def test_bytes_are_those_of_two_thin_matrices() -> None:
    promised = LowRank(4).layout({"values": (10_000, "<f4")})
    assert promised == {"p": (400, "u4"), "q": (400, "u4")}
