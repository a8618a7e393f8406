"""Compiled loops of the policies: sums of embeddings, the elementwise part of a GRU, attention over a window of steps.

Matrix products are torch's. What is here would be many small operations of torch for each step; the derivatives are
written out by hand and tested against automatic ones. Arrays are C-contiguous float32 unless a docstring says otherwise.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bakeoff.workloads.gridworld.capacity import WINDOW
from bakeoff.workloads.gridworld.jit import Kernels, kernel

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

KERNELS = Kernels("gridworld policy", [Path(__file__), Path(__file__).with_name("capacity.py")])
ZERO, HALF, ONE, NEVER = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(-1e30)
entry = partial(KERNELS.entry, fastmath=True)


@kernel
def tanh(x: np.float32) -> np.float32:
    """Within 3e-7 of the exact value, and vectorized, which a call of libm is not.

    The rational approximation of Eigen (MathFunctionsImpl.h, ptanh_float).
    """
    x = min(max(x, np.float32(-7.9)), np.float32(7.9))
    square = x * x
    over = np.float32(-2.76076847742355e-16)
    over = square * over + np.float32(2.00018790482477e-13)
    over = square * over + np.float32(-8.60467152213735e-11)
    over = square * over + np.float32(5.12229709037114e-08)
    over = square * over + np.float32(1.48572235717979e-05)
    over = square * over + np.float32(6.37261928875436e-04)
    over = square * over + np.float32(4.89352455891786e-03)
    under = np.float32(1.19825839466702e-06)
    under = square * under + np.float32(1.18534705686654e-04)
    under = square * under + np.float32(2.26843463243900e-03)
    under = square * under + np.float32(4.89352518554385e-03)
    return x * over / under


@kernel
def exp(x: np.float32) -> np.float32:
    """e^x for x <= 0 within 2e-7 of its value, and vectorized: 2^n by the bits of a float times a polynomial (Cephes)."""
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.44269504088896341) + HALF)
    x = x - n * np.float32(0.693359375) - n * np.float32(-2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * x + np.float32(1.3981999507e-3)
    y = y * x + np.float32(8.3334519073e-3)
    y = y * x + np.float32(4.1665795894e-2)
    y = y * x + np.float32(1.6666665459e-1)
    y = y * x + np.float32(5.0000001201e-1)
    y = y * x * x + x + ONE
    return y * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


# -- sums of embeddings


@entry
def add_rows(table: Floats, codes: Bytes, first: Ints, stride: Ints, sums: Floats) -> None:
    """sums[n] = the sum over columns c of table[first[c] + stride[c] * codes[n, c]]."""
    columns = codes.shape[1]
    for n in range(codes.shape[0]):
        total = sums[n]
        total[:] = np.float32(0.0)
        column = 0
        while column + 3 < columns:  # four at a time: the sum is loaded and stored a quarter as often
            a = table[first[column] + stride[column] * codes[n, column]]
            b = table[first[column + 1] + stride[column + 1] * codes[n, column + 1]]
            c = table[first[column + 2] + stride[column + 2] * codes[n, column + 2]]
            d = table[first[column + 3] + stride[column + 3] * codes[n, column + 3]]
            for k in range(total.size):
                total[k] += (a[k] + b[k]) + (c[k] + d[k])
            column += 4
        while column < columns:
            a = table[first[column] + stride[column] * codes[n, column]]
            for k in range(total.size):
                total[k] += a[k]
            column += 1


@entry
def spread_rows(gradient: Floats, codes: Bytes, first: Ints, stride: Ints, table: Floats) -> None:
    """The derivative of `add_rows`, added to `table`."""
    for n in range(codes.shape[0]):
        source = gradient[n]
        for column in range(codes.shape[1]):
            target = table[first[column] + stride[column] * codes[n, column]]
            for k in range(source.size):
                target[k] += source[k]


# -- a gated recurrent unit, one step of all environments at a time


@entry
def gru_step(
    step: int, gates: Floats, product: Floats, before: Floats, after: Floats, inner: Floats, keep: Floats
) -> None:
    """One step. `gates` [steps, envs, 3 * width] holds the input's part and then r, z and n; `product` [envs, 3 * width]
    is the state's part, whose last third is kept in `inner`. `before[step]` is the state, `after[step]` the new one,
    and `before[step + 1]` that one again, or zero where `keep` [steps, envs] says that an episode starts."""
    steps, width = gates.shape[0], after.shape[2]
    for env in range(product.shape[0]):
        gate, part, old, new, hidden = (
            gates[step, env],
            product[env],
            before[step, env],
            after[step, env],
            inner[step, env],
        )
        for k in range(2 * width):
            gate[k] = HALF + HALF * tanh(HALF * (gate[k] + part[k]))
        for k in range(width):
            hidden[k] = part[2 * width + k]
        for k in range(width):
            gate[2 * width + k] = tanh(gate[2 * width + k] + gate[k] * hidden[k])
        for k in range(width):
            new[k] = gate[2 * width + k] + gate[width + k] * (old[k] - gate[2 * width + k])
        if step + 1 < steps:
            following, kept = before[step + 1, env], keep[step + 1, env]
            for k in range(width):
                following[k] = kept * new[k]


@entry
def gru_step_back(
    step: int,
    gates: Floats,
    before: Floats,
    inner: Floats,
    outward: Floats,
    carry: Floats,
    gate_grad: Floats,
    part_grad: Floats,
) -> None:
    """The derivative of `gru_step`. `carry` [envs, width] is that of `after[step]` through later steps, and becomes the
    direct part of that of `before[step]`; the part through the product is `part_grad[step]` times the weights."""
    width = carry.shape[1]
    for env in range(carry.shape[0]):
        gate, old, hidden, out = gates[step, env], before[step, env], inner[step, env], outward[step, env]
        whole, input_part, state_part = carry[env], gate_grad[step, env], part_grad[step, env]
        for k in range(width):
            r, z, n = gate[k], gate[width + k], gate[2 * width + k]
            d = whole[k] + out[k]
            dn = d * (ONE - z) * (ONE - n * n)
            dz = d * (old[k] - n) * z * (ONE - z)
            dr = dn * hidden[k] * r * (ONE - r)
            input_part[k], input_part[width + k], input_part[2 * width + k] = dr, dz, dn
            state_part[k], state_part[width + k], state_part[2 * width + k] = dr, dz, dn * r
            whole[k] = d * z


# -- attention over a window of steps


@entry
def count_ages(starts: NDArray[np.bool_], past: Ints, ages: Ints) -> None:
    """ages[env, step]: steps since the episode's first one. `starts` is [steps, envs], `past` the ages before them."""
    for env in range(starts.shape[1]):
        age = past[env]
        for step in range(starts.shape[0]):
            age = 0 if starts[step, env] else age + 1
            ages[env, step] = age


@entry
def attend(
    query: Floats,
    keys: Floats,
    values: Floats,
    place: Floats,
    bias: Floats,
    ages: Ints,
    last: Ints,
    weights: Floats,
    mixed: Floats,
) -> None:
    """Causal attention over a window.

    query, mixed   [envs, steps, heads, depth]
    keys, values   [envs, heads, depth, positions]: so a window is contiguous, and every inner loop runs over it
    place, bias    [heads, depth, WINDOW], [heads, WINDOW]: relative positions; the last column is the step itself
    last           [envs]: the position of the first query; those of the others follow
    weights        [envs, steps, heads, WINDOW]: kept for the derivative

    A step attends to itself and earlier steps of its own episode, `ages` + 1 at most. The score of a step m back is
    query . (key + place[m]) + bias[m]; Transformer-XL (arXiv:1901.02860, section 3.3) makes `place` from sinusoids.
    """
    envs, steps, heads, depth = query.shape
    for env in range(envs):
        for step in range(steps):
            begin = last[env] + step + 1 - WINDOW
            unseen = max(0, WINDOW - 1 - ages[env, step])
            for head in range(heads):
                score = weights[env, step, head]
                for m in range(WINDOW):
                    score[m] = bias[head, m]
                for k in range(depth):
                    q, key, where = (
                        query[env, step, head, k],
                        keys[env, head, k, begin : begin + WINDOW],
                        place[head, k],
                    )
                    for m in range(WINDOW):
                        score[m] += q * (key[m] + where[m])
                score[:unseen] = NEVER
                highest = score[WINDOW - 1]
                for m in range(WINDOW):
                    highest = max(highest, score[m])
                for m in range(WINDOW):
                    score[m] = exp(score[m] - highest)
                score[:unseen] = ZERO  # exactly: nothing of an earlier episode comes through
                total = ZERO
                for m in range(WINDOW):
                    total += score[m]
                scale = ONE / total
                for m in range(WINDOW):
                    score[m] *= scale
                for k in range(depth):
                    value, mean = values[env, head, k, begin : begin + WINDOW], ZERO
                    for m in range(WINDOW):
                        mean += score[m] * value[m]
                    mixed[env, step, head, k] = mean


@entry
def attend_back(
    query: Floats, keys: Floats, values: Floats, place: Floats, last: Ints, weights: Floats, outward: Floats,
    query_grad: Floats, key_grad: Floats, value_grad: Floats, place_grad: Floats, bias_grad: Floats,
) -> None:  # fmt: skip
    """The derivative of `attend`, for arrays of the same shapes. It is added to the gradients, except `query_grad`."""
    envs, steps, heads, depth = query.shape
    slope = np.empty(WINDOW, np.float32)
    for env in range(envs):
        for step in range(steps):
            begin = last[env] + step + 1 - WINDOW
            for head in range(heads):
                weight, bias = weights[env, step, head], bias_grad[head]
                for m in range(WINDOW):
                    slope[m] = ZERO
                for k in range(depth):
                    d, window = outward[env, step, head, k], slice(begin, begin + WINDOW)
                    value, value_slope = values[env, head, k, window], value_grad[env, head, k, window]
                    for m in range(WINDOW):
                        slope[m] += d * value[m]
                    for m in range(WINDOW):
                        value_slope[m] += d * weight[m]
                mean = ZERO
                for m in range(WINDOW):
                    mean += weight[m] * slope[m]
                for m in range(WINDOW):
                    slope[m] = weight[m] * (slope[m] - mean)
                for m in range(WINDOW):
                    bias[m] += slope[m]
                for k in range(depth):
                    q, where, place_slope = query[env, step, head, k], place[head, k], place_grad[head, k]
                    key, key_slope = keys[env, head, k, window], key_grad[env, head, k, window]
                    total = ZERO
                    for m in range(WINDOW):
                        total += slope[m] * (key[m] + where[m])
                    query_grad[env, step, head, k] = total
                    for m in range(WINDOW):
                        key_slope[m] += q * slope[m]
                    for m in range(WINDOW):
                        place_slope[m] += q * slope[m]


# -- acting


@entry
def choose(logits: Floats, draws: Floats, actions: NDArray[np.int64], logprobs: Floats) -> None:
    """Draw an action of each environment by inverting the cumulative distribution at `draws` in [0, 1)."""
    for env in range(logits.shape[0]):
        row = logits[env]
        highest = row[0]
        for k in range(1, row.size):
            highest = max(highest, row[k])
        total = 0.0
        for k in range(row.size):
            total += np.exp(np.float64(row[k] - highest))
        point, below, action = draws[env] * total, 0.0, row.size - 1
        for k in range(row.size):
            below += np.exp(np.float64(row[k] - highest))
            if point < below:
                action = k
                break
        actions[env] = action
        logprobs[env] = np.float32(row[action] - highest - np.log(total))


@cache
def compile_kernels() -> None:
    """Compile everything, or read it from disk. Other processes wait for the first one."""

    def floats(*shape: int) -> Floats:
        return np.zeros(shape, np.float32)

    codes, numbers = np.zeros((1, 4), np.uint8), np.zeros(4, np.int64)
    ages, last = np.zeros((1, 1), np.int64), np.zeros(1, np.int64)
    one, window, wide, gates = floats(1, 1, 1, 1), floats(1, 1, 1, WINDOW), floats(1, 1, 1), floats(1, 1, 3)
    place, bias, last[0] = floats(1, 1, WINDOW), floats(1, WINDOW), WINDOW - 1
    with KERNELS.compiling_once():
        add_rows(floats(1, 1), codes, numbers, numbers, floats(1, 1))
        spread_rows(floats(1, 1), codes, numbers, numbers, floats(1, 1))
        gru_step(0, gates, floats(1, 3), wide, wide, wide, floats(1, 1))
        gru_step_back(0, gates, wide, wide, wide, floats(1, 1), gates, gates)
        count_ages(np.zeros((1, 1), np.bool_), last, ages)
        attend(one, window, window, place, bias, ages, last, window, one)
        attend_back(one, window, window, place, last, window, one, one, window, window, place, bias)
        choose(floats(1, 1), floats(1), last, floats(1))
