"""Bootstrap distributions at speed: many resamples of one sample, in chunks that stay in cache.

Memory is that of the distribution itself (one double for each resample) plus one chunk, whatever the number of
resamples. Four tricks, each exact: 16-bit indices cut from 64-bit words; gathering into one reused buffer; for small
n one index that draws k values at once from a table of all n^k sums; and an interquartile mean from counts, which
needs no sort.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bakeoff.stats.vectors import Array, Seed, generator

CHUNK = 2**14
"""Elements worked on at once in fresh arrays: larger ones are handed back to the system and fault pages each time."""
SCRATCH = 2**16
"""Elements gathered at once into a reused buffer, which faults its pages only once."""
TABLE = 2**14
"""Largest table of k-tuples: it must stay in the first-level cache to pay."""
SORT_UP_TO = 64
"""Rows up to this length are sorted for the IQM; longer ones are counted."""
FEW = 100
"""Units up to which `draw_counts` looks counts up."""

Indices = NDArray[np.integer]
Statistic = Callable[[Array], Array]
"""Takes resamples of shape (rows, n), which it may overwrite, and returns one value for each row."""


def uniform_indices(below: int, shape: tuple[int, ...], rng: np.random.Generator) -> Indices:
    """Uniform whole numbers 0 <= i < below. Small ranges come four to a 64-bit word, half the time of rng.integers.

    A 16-bit piece u gives u // q with q = 65536 // below; pieces from q * below on belong to no number and are redrawn.
    """
    if not 1 < below <= 4096:
        return rng.integers(0, below, shape, dtype=np.uint16 if below <= 2**16 else np.int64)
    size = math.prod(shape)
    words = rng.integers(0, 2**64 - 1, (size + 3) // 4, dtype=np.uint64, endpoint=True)
    pieces = words.view(np.uint16)[:size]
    quotient = 2**16 // below
    fair = quotient * below
    if fair < 2**16:
        redraw = np.flatnonzero(pieces >= fair)
        pieces[redraw] = rng.integers(0, fair, redraw.size, dtype=np.uint16)
    np.floor_divide(pieces, np.uint16(quotient), out=pieces)
    return pieces.reshape(shape)


def index_chunks(n: int, resamples: int, rng: np.random.Generator, elements: int = CHUNK) -> Iterator[Indices]:
    """Uniform indices below n, in blocks of shape (rows, n) of about `elements`, `resamples` rows in all."""
    rows = max(1, elements // n)
    for start in range(0, resamples, rows):
        yield uniform_indices(n, (min(rows, resamples - start), n), rng)


def _source(
    n: int, resamples: int, seed: Seed, indices: Indices | None, elements: int = CHUNK
) -> tuple[int, Iterator[Indices]]:
    """How many resamples there will be, and blocks of their indices: fresh ones, or those of a (resamples, n) array."""
    if indices is None:
        return resamples, index_chunks(n, resamples, generator(seed), elements)
    if indices.ndim != 2 or indices.shape[1] != n:
        raise ValueError(f"indices must have shape (resamples, {n}), got {indices.shape}")
    rows = max(1, elements // n)
    return indices.shape[0], (indices[i : i + rows] for i in range(0, indices.shape[0], rows))


def statistic_distribution(
    x: Array, statistic: Statistic, resamples: int, seed: Seed = 0, indices: Indices | None = None
) -> Array:
    """`statistic` of every resample of x (shape (n,)), for any vectorised statistic. It may overwrite its rows."""
    count, blocks = _source(x.size, resamples, seed, indices, SCRATCH)
    out, done = np.empty(count), 0
    scratch = np.empty((min(count, max(1, SCRATCH // x.size)), x.size))
    for block in blocks:
        rows = scratch[: block.shape[0]]
        # 'clip' only switches off a bounds check that would copy the buffer; the indices are in range.
        x.take(block, out=rows, mode="clip")
        out[done : done + block.shape[0]] = statistic(rows)
        done += block.shape[0]
    return out


def mean_distribution(x: Array, resamples: int, seed: Seed = 0, indices: Indices | None = None) -> Array:
    """Means of resamples of x."""
    if indices is not None or tuple_size(x.size) == 1:
        ones = np.full(x.size, 1.0 / x.size)
        return statistic_distribution(x, lambda rows: rows @ ones, resamples, seed, indices)
    return _tuple_sums([x], resamples, generator(seed))[0] / x.size


def moment_distribution(
    x: Array, resamples: int, seed: Seed = 0, indices: Indices | None = None
) -> tuple[Array, Array]:
    """Means and variances (ddof 1) of resamples of x, from the same draws. x should be centred: squares are summed."""
    n = x.size
    if indices is not None or tuple_size(n) == 1:
        means, variances = [], []
        for block in _source(n, resamples, seed, indices)[1]:
            rows = x.take(block)
            means.append(rows.mean(axis=1))
            variances.append(rows.var(axis=1, ddof=1))
        return np.concatenate(means), np.concatenate(variances)
    total, squares = _tuple_sums([x, x**2], resamples, generator(seed))
    return total / n, np.maximum(squares - total**2 / n, 0.0) / (n - 1)


def tuple_size(n: int) -> int:
    """Largest k with n^k <= TABLE, at least 1 and at most n."""
    k = 1
    while k < n and n ** (k + 1) <= TABLE and n > 1:
        k += 1
    return k


def _tuple_table(x: Array, k: int) -> Array:
    """Sums of all n^k ordered k-tuples of x: a uniform index into it is k uniform draws."""
    table = np.zeros(1)
    for _ in range(k):
        table = (table[:, None] + x[None, :]).ravel()
    return table


def _tuple_sums(columns: list[Array], resamples: int, rng: np.random.Generator) -> list[Array]:
    """Sum over n draws of each column (all of length n), the same draws for every column."""
    n = columns[0].size
    k = tuple_size(n)
    whole, rest = divmod(n, k)
    tables = [_tuple_table(c, k) for c in columns]
    rest_tables = [_tuple_table(c, rest) for c in columns]
    out = [np.empty(resamples) for _ in columns]
    rows = max(1, CHUNK // (whole + 1))
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        picks = uniform_indices(n**k, (whole, stop - start), rng)
        last = uniform_indices(n**rest, (stop - start,), rng) if rest else None
        for target, table, rest_table in zip(out, tables, rest_tables, strict=True):
            part = table.take(picks).sum(axis=0)
            target[start:stop] = part if last is None else part + rest_table.take(last)
    return out


def trimmed_range(n: int) -> tuple[int, int]:
    """Ranks that the mean of the middle half keeps, a quarter cut on each side: [low, high)."""
    low = int(0.25 * n)
    return low, n - low


def iqm_distribution(x: Array, resamples: int, seed: Seed = 0, indices: Indices | None = None) -> Array:
    """Interquartile means (25 % trimmed on each side, whole ranks) of resamples of x."""
    n = x.size
    low, high = trimmed_range(n)
    if n <= SORT_UP_TO:
        weight = np.full(high - low, 1.0 / (high - low))

        def middle(rows: Array) -> Array:
            rows.sort(axis=1)
            return np.asarray(rows[:, low:high] @ weight, dtype=np.float64)

        return statistic_distribution(x, middle, resamples, seed, indices)
    order = np.argsort(x, kind="stable")
    steps, last = clip_weights(x[order], low, high)
    # Ranks in place of positions only where positions were given: drawn ones are exchangeable.
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    out = []
    for block in _source(n, resamples, seed, indices)[1]:
        ranks = rank.take(block) if indices is not None else block
        out.append(np.clip(_cumulative_counts(ranks, n), low, high) @ steps + last)
    return np.concatenate(out)


def _cumulative_counts(ranks: Indices, n: int) -> Array:
    """For each row, how many draws have rank <= r, for r = 0..n-1."""
    rows = ranks.shape[0]
    flat = ranks + (np.arange(rows, dtype=np.int64) * n)[:, None]
    counts = np.bincount(flat.ravel(), minlength=rows * n).reshape(rows, n)
    return np.cumsum(counts, axis=1, dtype=np.float64)


def clip_weights(ascending: Array, low: float, high: float) -> tuple[Array, float]:
    """Weights that turn clipped cumulative counts into a trimmed mean (summation by parts)."""
    gaps = np.append(-np.diff(ascending), ascending[-1]) / (high - low)
    # clip(cumulative[-1]) is always `high`; clip(0) = `low` belongs to the smallest value.
    return gaps, float(-low * ascending[0] / (high - low))


def count_chunks(n: int, resamples: int, rng: np.random.Generator) -> Iterator[Array]:
    """How often each of n units occurs in each resample, blocks of shape (rows, n): for `counts @ X`."""
    for block in index_chunks(n, resamples, rng):
        rows = block.shape[0]
        flat = block + (np.arange(rows, dtype=np.int64) * n)[:, None]
        yield np.bincount(flat.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def draw_counts(n: int, resamples: int, rng: np.random.Generator) -> NDArray[np.integer]:
    """How often each of n units occurs in each resample, in one block of shape (resamples, n).

    Up to `FEW` units a count fits into a byte, and one index draws k of them at once from a table of all n^k.
    """
    if n > FEW:
        return rng.multinomial(n, np.full(n, 1.0 / n), size=resamples)
    k = tuple_size(n)
    out = np.zeros((resamples, n), dtype=np.uint8)
    for size in (*[k] * (n // k), *[n % k] * (n % k > 0)):
        out += _count_table(n, size).take(uniform_indices(n**size, (resamples,), rng), axis=0)
    return out


@cache
def _count_table(n: int, k: int) -> NDArray[np.uint8]:
    """For each of the n^k ordered k-tuples of n units, how often each unit is in it: shape (n^k, n)."""
    table = np.zeros((1, n), dtype=np.uint8)
    for _ in range(k):
        table = (table[:, None, :] + np.eye(n, dtype=np.uint8)[None, :, :]).reshape(-1, n)
    return table
