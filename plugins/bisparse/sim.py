"""Execution times of Bi-Sparse's codec on an endpoint, for the simulator.

Selection reads the gradient once and the accumulator twice; decoding writes the selected entries to
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
