"""SignSGD satisfies geomx's laws of codecs, at one thirty-second of the size of floats."""

import numpy as np
from geomx_signsgd import Signs

from geomx.testing import check_plugin


def test_laws() -> None:
    check_plugin("signsgd")


def test_what_signs_lose_comes_later() -> None:
    draw = np.random.default_rng(1)
    gradient = draw.standard_normal(1000, dtype=np.float32)
    codec, sent = Signs(feedback=True), np.zeros(1000)
    for _ in range(1000):
        sent += codec.decode(codec.encode({"values": gradient}), 1000)["values"]
    assert np.linalg.norm(sent / 1000 - gradient) < 0.05 * np.linalg.norm(gradient)


def test_a_value_is_a_bit() -> None:
    promised = Signs(feedback=True).layout({"values": (1000, "<f4")})
    assert promised == {"bits": (125, "u1"), "scale": (1, "u4")}
