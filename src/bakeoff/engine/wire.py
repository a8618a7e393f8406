"""What scheduler and worker say to each other, as MessagePack.

Jobs go through a packet socket, one packet each. The scheduler keeps the worker's end open too, so it can take back
a job that the worker has not begun: the kernel gives each packet to one reader only. Results come back as a stream
of length-prefixed frames, since a series can be large.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

_LENGTH = struct.Struct("<I")


class Job(msgspec.Struct, array_like=True):
    position: int
    run_id: str
    cell: int
    arm: str
    task: str
    seed: int
    rollout: int
    attempt: int
    flags: list[str]
    params: msgspec.Raw
    """JSON-compatible MessagePack; validated once for each cell by the worker."""


class Report(msgspec.Struct, array_like=True):
    position: int
    status: str
    started_at: float
    ended_at: float
    metrics: dict[str, float | int | bool | str | None]
    error: str | None = None
    series: bytes | None = None
    trajectory: tuple[str, int, float | None, int] | None = None
    wrote: bool = False
    """The run has a directory."""
    dirty: bool = False
    """It left threads or processes behind, so the worker must go."""


class Setup(msgspec.Struct):
    """What a worker needs to know before its first job."""

    workload: str
    base: str
    runs: str
    scratch: str
    name: str
    parent: int
    env: dict[str, str]
    time_limit: float | None
    settle_after: float


class Frames:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= 4:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if len(self._buffer) - start - 4 < length:
                break
            yield bytes(self._buffer[start + 4 : start + 4 + length])
            start += 4 + length
        del self._buffer[:start]


def frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload
