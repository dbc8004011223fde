"""Execution times of SparseLoCo's codec on an endpoint, for the simulator.

Encoding reads the values, and reads and writes the errors; decoding writes the selected values to
zeros.
"""

from __future__ import annotations

from geomx.options.costs import CodecCosts

COSTS = CodecCosts(
    encode_message_s=2.165e-06,
    encode_byte_s=1.886e-10,
    decode_message_s=1.472e-06,
    decode_byte_s=2.113e-11,
    basis="geomx calibrate: AMD EPYC, 2 cores, 2026-11-25, processor time",
)
