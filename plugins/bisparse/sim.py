"""What Bi-Sparse's codec takes on an endpoint, for the simulator.

Choosing reads the gradient once and the accumulator twice; decoding writes what was chosen into
zeros.
"""

from __future__ import annotations

from geomx.options.costs import CodecCosts

COSTS = CodecCosts(
    encode_message_s=1.451e-06,
    encode_byte_s=1.967e-10,
    decode_message_s=1.761e-06,
    decode_byte_s=1.871e-11,
    basis="geomx calibrate: AMD EPYC, 2 cores, 2026-11-23, processor time",
)
