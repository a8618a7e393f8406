"""Sums over subsets of a given size, by growing a table one value at a time. The engine of exact two-sample tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bakeoff.stats.vectors import Array

CHUNK = 2**18
"""Elements of index work held at once by `random_subsets`: bounded memory for any number of draws."""


def sums_by_size(values: Array, largest: int) -> list[Array]:
    """Entry k holds the sums of all k-subsets of the rows of `values` (shape (n, c)), shape (C(n, k), c); k <= largest."""
    width = values.shape[1]
    table = [np.zeros((1, width))] + [np.zeros((0, width)) for _ in range(largest)]
    for row in values:
        for k in range(largest, 0, -1):
            if table[k - 1].size:
                table[k] = np.concatenate((table[k], table[k - 1] + row))
    return table


def random_subsets(
    n: int, size: int, draws: int, rng: np.random.Generator
) -> Iterator[np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    """Uniform subsets of {0..n-1} of one size, as index blocks of shape (some draws, size), `draws` rows in all.

    Each row partitions n random 64-bit keys whose low bits carry the index: a partition is several times faster
    than shuffling, and the 44 or more random bits above the index make a tie between keys irrelevant.
    """
    bits = max(1, (n - 1).bit_length())
    if bits > 20:
        raise ValueError(f"random splits support up to {2**20:,} values, got {n:,}")
    mask = np.uint64((1 << bits) - 1)
    labels = np.arange(n, dtype=np.uint64)
    rows = max(1, CHUNK // n)
    done = 0
    while done < draws:
        take = min(rows, draws - done)
        keys = rng.integers(0, 2**64, (take, n), dtype=np.uint64, endpoint=False)
        keys &= ~mask
        keys |= labels
        if size < n:
            keys.partition(size - 1, axis=1)
        yield (keys[:, :size] & mask).astype(np.int64)
        done += take
