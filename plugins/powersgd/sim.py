"""Execution times of PowerSGD's codec on an endpoint, for the simulator.

Encoding multiplies the matrix by a basis of eight columns, and what is sent by that basis to
subtract it; decoding is the second of the two. Where each party sends both matrices of its own,
encoding takes about a third longer.
"""

from __future__ import annotations

from geomx.options.costs import CodecCosts

COSTS = CodecCosts(
    encode_message_s=7.76e-07,
    encode_byte_s=4.91e-10,
    decode_message_s=1.019e-06,
    decode_byte_s=2.506e-10,
    basis="geomx calibrate: AMD EPYC, 2 cores, 2026-11-26, processor time",
)
