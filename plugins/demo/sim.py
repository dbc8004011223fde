"""Execution times of DeMo's codec on an endpoint, for the simulator.

Encoding transforms the values, and transforms what is sent back to subtract it; decoding is the
second of the two.
"""

from __future__ import annotations

from geomx.options.costs import CodecCosts

COSTS = CodecCosts(
    encode_message_s=2.788e-06,
    encode_byte_s=6.471e-10,
    decode_message_s=1.394e-06,
    decode_byte_s=2.348e-10,
    basis="geomx calibrate: AMD EPYC, 2 cores, 2026-11-26, processor time",
)
