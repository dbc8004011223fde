"""SignSGD with error feedback: one bit per value and one scale per shard cross the WAN.

Bernstein et al., ICML 2018 (arXiv 1802.04434) send signs; Karimireddy et al., ICML 2019 (arXiv
1901.09847) show that the quantisation error must be added to the next gradient, and that training
then converges with the mean magnitude as scale. A server decodes and adds contributions; its
answer, the new weights, is sent in full precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import geomx
from geomx.cluster import Link

geomx_api = "2.0"


@dataclass(frozen=True)
class SignSGDConfig:
    """Options of SignSGD."""

    feedback: bool = True
    """Whether the quantisation error is added to the next gradient."""


class Signs:
    """The state of one shard on one link; geomx makes a deep copy for each."""

    whole = frozenset({"bits", "scale"})
    survives_holes = False  # eight values share a byte, so nothing is ever cut

    def __init__(self, feedback: bool) -> None:
        self.feedback = feedback
        self.residual = np.float32(0)

    def layout(self, spec):
        """Describe one bit per value, rounded up to bytes, and a scale."""
        return {"bits": (-(-spec["values"][0] // 8), "u1"), "scale": (1, "u4")}

    def encode(self, parts):
        """Return the signs of the values plus the residual."""
        chosen = "indices" in parts  # an earlier codec selects different rows in every round
        values = parts["values"] + (0 if chosen else self.residual)
        scale = np.abs(values).mean(dtype=np.float32)
        if self.feedback and not chosen:
            left = values - np.where(values >= 0, scale, -scale)
            self.residual = left if np.isfinite(scale) else np.float32(0)
        return {"bits": np.packbits(values >= 0), "scale": scale.reshape(1).view(np.uint32)}

    def residual_norm(self) -> float:
        """Return the norm of the residual, for metrics."""
        return float(np.linalg.norm(self.residual))

    def decode(self, parts, length):
        """Return the scale with every value's sign."""
        signs = np.unpackbits(parts["bits"], count=length).astype(bool)
        scale = parts["scale"].view(np.float32)[0]
        return {"values": np.where(signs, scale, -scale).astype(np.float32)}


class SignSGD:
    """One bit per value upwards over the WAN, with error feedback."""

    def __init__(self, config: SignSGDConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_codec(self, link: Link) -> Signs | None:
        """Encode contributions that cross the WAN."""
        if link.kind != "wan" or link.carries != "contributions":
            return None
        return Signs(self.config.feedback)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[signsgd]``."""
    register("accel", "signsgd", SignSGDConfig, SignSGD)
