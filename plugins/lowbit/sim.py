"""Execution times of the codec of integers on an endpoint, for the simulator.

Encoding reads the values, and reads and writes the errors; decoding expands integers to values.
"""

from __future__ import annotations

from geomx.options.costs import CodecCosts

COSTS = CodecCosts(
    encode_message_s=1.494e-06,
    encode_byte_s=7.848e-11,
    decode_message_s=1.137e-06,
    decode_byte_s=1.747e-11,
    basis="geomx calibrate: AMD EPYC, 2 cores, 2026-11-25, processor time",
)
