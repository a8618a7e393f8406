"""Keep the outcomes of every cell on disk, so that an interrupted run continues and single cells can be done again.

A cell's file has the outcomes of its replicates in order. Code changes between runs; a cell is kept as long as its first
chunk comes out the same with the code at hand, and starts again otherwise.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrate.cells import CELLS
from calibrate.count import CHUNK, chunk, joined, keep_freed_memory
from calibrate.table import Counts

ROOT = Path(__file__).resolve().parents[3]
SAVED_EVERY = 8
"""Chunks between two writes."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known about a cell: outcomes, CPU seconds, and the code that its first chunk was last checked with."""

    counts: Counts
    seconds: float
    code: str

    @property
    def replicates(self) -> int:
        return next(iter(self.counts.values())).size if self.counts else 0

    @property
    def chunks(self) -> int:
        return self.replicates // CHUNK


NOTHING = Stored({}, 0.0, "")


@dataclass(frozen=True, slots=True)
class Store:
    directory: Path

    def path(self, key: str) -> Path:
        return self.directory / f"{re.sub('[^a-z0-9.+-]+', '_', key)}.npz"

    def read(self, key: str) -> Stored:
        try:
            with np.load(self.path(key)) as found:
                about = json.loads(str(found["about"]))
                counts = {name: found[name].astype(np.float64) for name in found.files if name != "about"}
        except FileNotFoundError:
            return NOTHING
        return Stored(counts, about["seconds"], about["code"])

    def write(self, key: str, stored: Stored) -> None:
        """Replace the cell's file; a reader sees the old one or the new one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        # Outcomes are 0 or 1, or a number of pairs up to 101.
        small = {name: values.astype(np.uint8) for name, values in stored.counts.items()}
        about = json.dumps({"seconds": stored.seconds, "code": stored.code})
        partial = self.path(key).with_suffix(f".{os.getpid()}")
        with partial.open("wb") as file:
            np.savez_compressed(file, about=np.array(about), **small)
        partial.replace(self.path(key))

    def complete(self, key: str, replicates: int, code: str, redo: bool = False) -> Stored:
        """The cell with at least so many replicates, simulating what is missing."""
        stored = NOTHING if redo else self.read(key)
        if stored.chunks and stored.code != code:
            first, seconds = chunk(key, 0)
            kept = set(first) == set(stored.counts) and all(
                np.array_equal(values, stored.counts[name][:CHUNK]) for name, values in first.items()
            )
            stored = Stored(stored.counts, stored.seconds, code) if kept else Stored(first, seconds, code)
            self.write(key, stored)
        while stored.replicates < replicates:
            last = min(stored.chunks + SAVED_EVERY, -(-replicates // CHUNK))
            more = [chunk(key, number) for number in range(stored.chunks, last)]
            counts = joined([*([stored.counts] if stored.counts else []), *(each for each, _ in more)])
            stored = Stored(counts, stored.seconds + sum(seconds for _, seconds in more), code)
            self.write(key, stored)
        return stored

    def complete_all(
        self, keys: list[str], replicates: int, processes: int, redo: bool
    ) -> Iterator[tuple[str, Stored]]:
        """Yield every cell as it is completed."""
        code = code_digest()
        most = {key: min(replicates, CELLS[key].most or replicates) for key in keys}
        with ProcessPoolExecutor(processes, initializer=keep_freed_memory) as pool:
            jobs = {pool.submit(self.complete, key, most[key], code, redo): key for key in keys}
            for job in as_completed(jobs):
                yield jobs[job], job.result()


def code_digest() -> str:
    """Of everything that a verdict and a simulation consist of."""
    digest = hashlib.sha256()
    for directory in ("src/bakeoff/stats", "src/bakeoff/verdicts", "benchmarks/simulations/calibrate"):
        for path in sorted((ROOT / directory).glob("*.py")):
            if path.name not in ("page.py", "store.py"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
