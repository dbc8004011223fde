"""Execution times of the 2-bit codec on an endpoint, for the simulator.

Encoding reads the gradient, and reads and writes the residual; decoding expands bytes to values.
"""

from __future__ import annotations

from geomx.options.costs import CodecCosts

COSTS = CodecCosts(
    encode_message_s=1.961e-06,
    encode_byte_s=1.257e-10,
    decode_message_s=1.745e-06,
    decode_byte_s=3.774e-11,
    basis="geomx calibrate: AMD EPYC, 2 cores, 2026-11-23, processor time",
)
