"""Execution times of the cast on an endpoint, for the simulator.

Encoding reads four bytes and writes two per value, and decoding the reverse.
"""

from __future__ import annotations

from geomx.options.costs import CodecCosts

COSTS = CodecCosts(
    encode_message_s=1.682e-06,
    encode_byte_s=4.945e-11,
    decode_message_s=1.646e-06,
    decode_byte_s=3.539e-11,
    basis="geomx calibrate: AMD EPYC, 2 cores, 2026-11-23, processor time",
)
