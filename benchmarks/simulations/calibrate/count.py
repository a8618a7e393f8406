"""Run replicates in chunks. The numbers depend only on a cell's key and the chunk, not on the process."""

from __future__ import annotations

import ctypes
import time
import zlib
from collections.abc import Iterable

import numpy as np

from calibrate.cells import CELLS
from calibrate.table import Counts

CHUNK = 500
SEED = 20_000


def keep_freed_memory() -> None:
    """Let malloc reuse memory (glibc only). Fresh pages for each large array would cost as much as the arithmetic."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for what in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            mallopt(what, 2**30)


def chunk(key: str, number: int) -> tuple[Counts, float]:
    """The outcomes of CHUNK replicates, and the seconds of CPU time they took."""
    rng = np.random.default_rng([SEED, zlib.crc32(key.encode()), number])
    began = time.process_time()
    counts = CELLS[key].count(rng, CHUNK)
    return counts, time.process_time() - began


def joined(parts: Iterable[Counts]) -> Counts:
    found = list(parts)
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def replicate(key: str, replicates: int) -> Counts:
    """Run one cell in this process."""
    return joined(chunk(key, number)[0] for number in range(replicates // CHUNK))
