"""Zstandard compression: the standard library's from Python 3.14 on, and its backport before.

Imported by everything that compresses with zstd; imports nothing of bakeoff.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
        ZstdFile,
        get_frame_info,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
        ZstdFile,
        get_frame_info,
    )

__all__ = ["ZstdCompressor", "ZstdDecompressor", "ZstdError", "ZstdFile", "compressor", "decompress"]


def compressor() -> ZstdCompressor:
    """Make a compressor whose frames end with a checksum of their content.

    Every zstd checks it on reading (RFC 8878, section 3.1.1).
    """
    return ZstdCompressor(options={CompressionParameter.checksum_flag: True})


def decompress(frame: bytes, max_size: int) -> bytes:
    """Return the content of one whole frame, of at most `max_size` bytes.

    A frame that states a larger size is not unpacked at all, and one that states none is unpacked up to the limit.
    Raises ZstdError for a frame that is damaged, cut off, too large, or followed by something else.
    """
    stated = get_frame_info(frame).decompressed_size
    decompressor = ZstdDecompressor()
    content = b"" if stated is not None and stated > max_size else decompressor.decompress(frame, max_size + 1)
    if len(content) > max_size or (stated is not None and stated > max_size):
        raise ZstdError(f"it would have more than {max_size:,} bytes")
    if not decompressor.eof:
        raise ZstdError("it is cut off")
    if decompressor.unused_data:
        raise ZstdError("it is followed by something else")
    return content
