"""Protocol buffers without their package: the fields of a message, as they are on the wire."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield number and content of each field of a message (https://protobuf.dev/programming-guides/encoding/).

    Integers are read as two's complement, and fields of a fixed size as floats. Raises ValueError, IndexError or struct.error for
    bytes that are no message.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << 64) if value >> 63 else value

    while at < len(data):
        key = varint()
        match key & 7:
            case 0:
                yield key >> 3, varint()
            case 1:
                yield key >> 3, float(struct.unpack_from("<d", data, at)[0])
                at += 8
            case 2:
                length = varint()
                if not 0 <= length <= len(data) - at:
                    raise ValueError("a field is longer than its message")
                yield key >> 3, data[at : at + length]
                at += length
            case 5:
                yield key >> 3, float(struct.unpack_from("<f", data, at)[0])
                at += 4
            case _:
                raise ValueError("not a protobuf message")
