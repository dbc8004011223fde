"""Execution times of MPQ's codecs on an endpoint, for the simulator.

Measured with tensors of 64 elements (half precision) and of 4,096 to 524,288 (Bi-Sparse).
"""

from __future__ import annotations

from geomx.options.costs import CodecCosts

COSTS = CodecCosts(
    encode_message_s=2.399e-06,
    encode_byte_s=1.891e-10,
    decode_message_s=1.967e-06,
    decode_byte_s=1.809e-11,
    basis="geomx calibrate: AMD EPYC, 2 cores, 2026-11-23, processor time",
)
