"""Writes messages in the encoding of protocol buffers, without their library.

https://protobuf.dev/programming-guides/encoding: a message is a sequence of fields, each with its
number and the kind of its encoding.
"""

from __future__ import annotations

from collections.abc import Iterable

_VARINT, _LENGTH = 0, 2  # kinds of encodings: a whole number; a length and so many bytes


def varint(number: int) -> bytes:
    """Encode a whole number that is not negative: seven bits per byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def whole(field: int, number: int) -> bytes:
    """Encode a field with a whole number or a truth value; one that is 0 is left out by readers."""
    return varint(field << 3 | _VARINT) + varint(number)


def text(field: int, content: str | bytes) -> bytes:
    """Encode a field with a text, or with a message that is encoded already."""
    raw = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | _LENGTH) + varint(len(raw)) + raw


def wholes(field: int, numbers: Iterable[int]) -> bytes:
    """Encode a repeated field of whole numbers; nothing if there are none."""
    raw = b"".join(map(varint, numbers))
    return text(field, raw) if raw else b""


def delimited(message: bytes) -> bytes:
    """Return a message with its length in front, as one of many in a file."""
    return varint(len(message)) + message
