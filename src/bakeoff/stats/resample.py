"""Bootstrap distributions at speed: many resamples of one sample, in chunks that stay in cache.

Memory is that of the distribution itself (one double for each resample) plus one chunk, whatever the number
of resamples. Four tricks, none of which approximates: 16-bit indices cut from 64-bit words; gathering into
one reused buffer; for small n one index that draws k values at once from a table of all n^k sums; and an
interquartile mean from counts, which needs no sort. `bootstrap` and `aggregates` turn distributions into
intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bakeoff.stats.numerics import Array, Seed, generator

CHUNK = 2**14
"""Elements worked on at once in fresh arrays: larger ones go back to the system and fault their pages each time."""
SCRATCH = 2**16
"""Elements gathered at once into a reused buffer, which faults its pages only once."""
TABLE = 2**14
"""Largest table of k-tuples: it must stay in the first-level cache to be worth it."""
SORT_UP_TO = 64
"""Rows up to this length are sorted for the IQM; longer ones are counted."""
FEW = 100
"""Units up to which `draw_counts` looks counts up in a table."""

Indices = NDArray[np.integer]
Statistic = Callable[[Array], Array]
"""Takes resamples of shape (rows, n), which it may overwrite, and returns one value for each row."""


def uniform_indices(below: int, shape: tuple[int, ...], rng: np.random.Generator) -> Indices:
    """Uniform whole numbers 0 <= i < below.

    Small ranges come four to a 64-bit word, in half the time of rng.integers. A 16-bit piece u gives u // q
    with q = 65536 // below. Pieces from q * below on would favour small numbers and are drawn again, so
    every number has exactly the same chance.
    """
    if not 1 < below <= 4096:
        return rng.integers(0, below, shape, dtype=np.uint16 if below <= 2**16 else np.int64)
    size = math.prod(shape)
    words = rng.integers(0, 2**64 - 1, (size + 3) // 4, dtype=np.uint64, endpoint=True)
    # Read the same memory as 16-bit numbers: one random word gives four.
    pieces = words.view(np.uint16)[:size]
    quotient = 2**16 // below
    fair = quotient * below
    if fair < 2**16:
        redraw = np.flatnonzero(pieces >= fair)
        pieces[redraw] = rng.integers(0, fair, redraw.size, dtype=np.uint16)
    np.floor_divide(pieces, np.uint16(quotient), out=pieces)
    return pieces.reshape(shape)


def _index_blocks(n: int, resamples: int, seed: Seed, indices: Indices | None, elements: int) -> Iterator[Indices]:
    """Indices below n in blocks of shape (rows, n) of about `elements`: those of `indices`, else fresh ones.

    `indices` has shape (resamples, n); any other shape is a ValueError.
    """
    rows = max(1, elements // n)
    if indices is not None:
        if indices.ndim != 2 or indices.shape[1] != n:
            raise ValueError(f"indices must have shape (resamples, {n}), got {indices.shape}")
        yield from (indices[i : i + rows] for i in range(0, indices.shape[0], rows))
        return
    rng = generator(seed)
    for start in range(0, resamples, rows):
        yield uniform_indices(n, (min(rows, resamples - start), n), rng)


def statistic_distribution(
    x: Array, statistic: Statistic, resamples: int, seed: Seed = 0, indices: Indices | None = None
) -> Array:
    """`statistic` of every resample of x (shape (n,)), for any vectorised statistic, which may overwrite its rows.

    `indices` of shape (resamples, n) replaces the random draws, here and in the functions below.
    """
    count = resamples if indices is None else indices.shape[0]
    out, done = np.empty(count), 0
    scratch = np.empty((min(count, max(1, SCRATCH // x.size)), x.size))
    for block in _index_blocks(x.size, resamples, seed, indices, SCRATCH):
        rows = scratch[: block.shape[0]]
        # 'clip' only switches off a bounds check that would copy the buffer; the indices are in range.
        x.take(block, out=rows, mode="clip")
        out[done : done + block.shape[0]] = statistic(rows)
        done += block.shape[0]
    return out


def mean_distribution(x: Array, resamples: int, seed: Seed = 0, indices: Indices | None = None) -> Array:
    """Means of resamples of x (shape (n,)), shape (resamples,)."""
    if indices is not None or tuple_size(x.size) == 1:
        # A product with equal weights is the mean, and BLAS does it.
        weights = np.full(x.size, 1.0 / x.size)
        return statistic_distribution(x, lambda rows: rows @ weights, resamples, seed, indices)
    return _tuple_sums([x], resamples, generator(seed))[0] / x.size


def moment_distribution(
    x: Array, resamples: int, seed: Seed = 0, indices: Indices | None = None
) -> tuple[Array, Array]:
    """Means and variances (ddof 1) of resamples of x, from the same draws.

    x must be centred: squares are summed.
    """
    n = x.size
    if indices is not None or tuple_size(n) == 1:
        means, variances = [], []
        for block in _index_blocks(n, resamples, seed, indices, CHUNK):
            rows = x.take(block)
            means.append(rows.mean(axis=1))
            variances.append(rows.var(axis=1, ddof=1))
        return np.concatenate(means), np.concatenate(variances)
    # Sum of squares minus n mean^2 is safe because x is centred.
    total, squares = _tuple_sums([x, x**2], resamples, generator(seed))
    return total / n, np.maximum(squares - total**2 / n, 0.0) / (n - 1)


def portable_indices(n: int, rows: int, rng: np.random.Generator) -> Indices:
    """Uniform whole numbers below n, shape (rows, n), in a form that any language can reproduce (docs/certificates.md).

    Each row takes ceil(n / 2) outputs of PCG64, each of which has two 32-bit halves h, the low one first; h gives
    h n >> 32. No number is favoured by more than n / 2^32.
    """
    words = rng.integers(0, 2**64 - 1, (rows, (n + 1) // 2), dtype=np.uint64, endpoint=True)
    halves = np.stack((words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)), axis=2).reshape(rows, -1)[:, :n]
    return np.asarray(halves * np.uint64(n) >> np.uint64(32), dtype=np.intp)


def portable_moments(x: Array, resamples: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Means and variances (ddof 1) of resamples of x by `portable_indices`: of a verdict, so that others can verify it."""
    means, variances = np.empty(resamples), np.empty(resamples)
    step = max(1, CHUNK // x.size)
    for start in range(0, resamples, step):
        rows = x.take(portable_indices(x.size, min(step, resamples - start), rng))
        means[start : start + step] = centre = rows.mean(axis=1)
        rows -= centre[:, None]
        variances[start : start + step] = np.einsum("rn,rn->r", rows, rows) / (x.size - 1)
    return means, variances


def tuple_size(n: int) -> int:
    """Largest k with n^k <= TABLE, at least 1 and at most n: how many values one table lookup draws."""
    k = 1
    while k < n and n ** (k + 1) <= TABLE and n > 1:
        k += 1
    return k


def _tuple_sums(columns: Sequence[Array], resamples: int, rng: np.random.Generator) -> list[Array]:
    """Sum over n draws of each column (all of length n), the same draws for every column.

    Shapes (resamples,). A uniform index into the sums of all n^k ordered k-tuples is k uniform draws.
    """

    def table_of(x: Array, size: int) -> Array:
        table = np.zeros(1)
        for _ in range(size):
            table = (table[:, None] + x[None, :]).ravel()
        return table

    n = columns[0].size
    k = tuple_size(n)
    whole, rest = divmod(n, k)
    tables = [(table_of(column, k), table_of(column, rest)) for column in columns]
    out = [np.empty(resamples) for _ in columns]
    rows = max(1, CHUNK // (whole + 1))
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        # n draws are `whole` lookups of k draws each, and one of the rest.
        picks = uniform_indices(n**k, (whole, stop - start), rng)
        last = uniform_indices(n**rest, (stop - start,), rng) if rest else None
        for target, (table, rest_table) in zip(out, tables, strict=True):
            part = table.take(picks).sum(axis=0)
            target[start:stop] = part if last is None else part + rest_table.take(last)
    return out


def trimmed_range(n: int) -> tuple[int, int]:
    """Ranks [low, high) that the interquartile mean keeps: a quarter, in whole ranks, is cut on each side."""
    low = int(0.25 * n)
    return low, n - low


def iqm_distribution(x: Array, resamples: int, seed: Seed = 0, indices: Indices | None = None) -> Array:
    """Interquartile means (25 % trimmed on each side, whole ranks) of resamples of x, shape (resamples,)."""
    n = x.size
    low, high = trimmed_range(n)
    if n <= SORT_UP_TO:
        weight = np.full(high - low, 1.0 / (high - low))

        def middle(rows: Array) -> Array:
            rows.sort(axis=1)
            return np.asarray(rows[:, low:high] @ weight, dtype=np.float64)

        return statistic_distribution(x, middle, resamples, seed, indices)
    order = np.argsort(x, kind="stable")
    steps, first = clip_weights(x[order], low, high)
    # Positions become ranks only where positions were given: drawn ones are exchangeable.
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    out = []
    for block in _index_blocks(n, resamples, seed, indices, CHUNK):
        counts = _row_counts(rank.take(block) if indices is not None else block, n)
        out.append(np.clip(np.cumsum(counts, axis=1, dtype=np.float64), low, high) @ steps + first)
    return np.concatenate(out)


def clip_weights(ascending: Array, low: float, high: float) -> tuple[Array, float]:
    """Weights w and constant c, so that clip(cumulative counts, low, high) @ w + c is the mean of ranks [low, high).

    Summation by parts over the sorted values, shape (n,): value i is kept clip(C_i) - clip(C_(i-1)) times.
    The last cumulative count is always clipped to `high`, and clip(0) = `low` belongs to the smallest
    value.
    """
    gaps = np.append(-np.diff(ascending), ascending[-1]) / (high - low)
    return gaps, float(-low * ascending[0] / (high - low))


def _row_counts(drawn: Indices, n: int) -> NDArray[np.int64]:
    """How often each of n units occurs in each row of indices, shape (rows, n)."""
    rows = drawn.shape[0]
    # One bincount for all rows: row r counts in bins r n to r n + n - 1.
    flat = drawn + (np.arange(rows, dtype=np.int64) * n)[:, None]
    return np.bincount(flat.ravel(), minlength=rows * n).reshape(rows, n)


def count_matrix(n: int, resamples: int, rng: np.random.Generator) -> Array:
    """How often each of n units occurs in each resample, shape (resamples, n), as doubles for `counts @ X`."""
    blocks = _index_blocks(n, resamples, rng, None, CHUNK)
    return np.concatenate([_row_counts(block, n).astype(np.float64) for block in blocks])


def portable_counts(n: int, resamples: int, rng: np.random.Generator) -> Array:
    """`count_matrix` by `portable_indices`."""
    return _row_counts(portable_indices(n, resamples, rng), n).astype(np.float64)


def draw_counts(n: int, resamples: int, rng: np.random.Generator) -> NDArray[np.integer]:
    """How often each of n units occurs in each resample, shape (resamples, n), in bytes where n is at most `FEW`.

    One index draws k units at once from a table of all n^k.
    """
    if n > FEW:
        # Too many units for a table of bytes.
        return np.stack([np.bincount(row, minlength=n) for row in rng.integers(0, n, (resamples, n), dtype=np.uint32)])
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
