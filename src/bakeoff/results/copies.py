"""Seeds that are copies of each other: every value of every arm, task and metric agrees, and chance cannot explain it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from bakeoff.results.table import Row, is_number
from bakeoff.spec.directions import words_of

MAX_CHANCE = 1e-6
"""Chance that two of the seeds agree everywhere, above which they are not called copies."""
_CLOCKS = frozenset((
    "time", "elapsed", "seconds", "secs", "sec", "s", "ms", "minutes", "hours", "runtime", "walltime", "wallclock", "timestamp",
    "latency", "duration", "fps", "sps", "speed", "throughput", "memory", "rss",
))  # fmt: skip
"""Words in names of metrics that differ between copies, too, because they were measured by a clock."""
Place = tuple[str, str, int, str]
"""Arm, task, rollout and metric of one value."""


def copied_seeds(rows: Sequence[Row]) -> list[tuple[int, ...]]:
    """Groups of seeds with equal values everywhere that chance does not explain; empty when all seeds are equal.

    What a clock measured differs between copies too, so it does not count where there is anything else.

    The chance of one agreement is the resolution of the metric over the spread of the place's values between seeds; the
    share of agreeing seeds where the metric is coarser than that. A place where all seeds agree says nothing. A series
    agrees as a whole, and its mean says how likely that is: neighbouring values of a curve are no evidence of their own.
    """
    values: dict[int, dict[Place, float]] = defaultdict(dict)
    names = {name for row in rows for name, value in row.metrics.items() if is_number(value)}
    clocks = {name for name in names if _CLOCKS & set(words_of(name))}
    names = names - clocks or clocks
    for row in rows:
        if row.seed is not None:
            for name, value in row.metrics.items():
                if name in names and is_number(value) and not math.isnan(value):  # type: ignore[arg-type]
                    values[row.seed][row.arm, row.task, row.rollout, name] = float(value)  # type: ignore[arg-type]
    seeds_known = {row.seed for row in rows if row.seed is not None}
    if len({frozenset(own.items()) for own in values.values()}) == len(seeds_known):
        return []  # no two agree, so there is no need to read their series
    curves: dict[int, set[tuple[Place, bytes]]] = defaultdict(set)
    for row in rows:
        if row.seed is None:
            continue
        for name, (steps, logged) in row.series.items():
            if np.isfinite(logged).any() and not _CLOCKS & set(words_of(name)):
                place = (row.arm, row.task, row.rollout, f"{name} by step")
                values[row.seed][place] = float(logged[np.isfinite(logged)].mean())
                curves[row.seed].add((place, steps.tobytes() + logged.tobytes()))
    classes: dict[tuple[frozenset[tuple[Place, float]], frozenset[tuple[Place, bytes]]], list[int]] = defaultdict(list)
    for seed, own in values.items():
        classes[frozenset(own.items()), frozenset(curves[seed])].append(seed)
    if len(classes) < 2 or len(classes) == len(values):
        return []
    distinct = [dict(key) for key, _ in classes]
    resolutions = _resolutions(distinct)
    pairs = math.log(len(values) * (len(values) - 1) / 2)
    expected: dict[tuple[int, ...], float] = {}
    for (key, _), seeds in classes.items():
        if len(seeds) > 1 and key:
            # Log of the number of pairs of seeds that would agree like this by chance.
            expected[tuple(sorted(seeds))] = pairs + sum(
                math.log(_chance([each[place] for each in distinct if place in each], resolutions[place[3]]))
                for place, _ in key
            )
    # Three copies of two values with three digits are no accident, although one of them could be: k agreements where
    # a few are expected have Poisson's chance, at most expected^k / k!.
    rare = {seeds: log for seeds, log in expected.items() if log < 0.0}
    agreements = sum(len(seeds) - 1 for seeds in rare)
    together = sum((len(seeds) - 1) * log for seeds, log in rare.items()) - math.lgamma(agreements + 1.0)
    limit = math.log(MAX_CHANCE)
    return sorted(seeds for seeds, log in expected.items() if log < limit or (seeds in rare and together < limit))


def _chance(values: Sequence[float], step: float) -> float:
    """Chance that two seeds agree at a place, from the values that different seeds have there."""
    low, high = np.percentile(values, [25, 75])
    if 0.0 < step < high - low:
        return float(step / (high - low))
    counts = np.unique(values, return_counts=True)[1]
    pairs = len(values) * (len(values) - 1) / 2
    return float(((counts * (counts - 1) / 2).sum() + 1.0) / (pairs + 1.0))


def _resolutions(seeds: Sequence[dict[Place, float]]) -> dict[str, float]:
    """The smallest step of each metric: of its last digit, or the smallest gap where values are simple fractions."""
    by_metric: dict[str, set[float]] = defaultdict(set)
    for own in seeds:
        for (_, _, _, metric), value in own.items():
            by_metric[metric].add(value)
    steps = {}
    for metric, found in by_metric.items():
        ordered = np.array(sorted(found))
        gaps = np.diff(ordered)
        gap = float(gaps[gaps > 1e-9 * max(1e-300, float(np.abs(ordered).max()))].min(initial=math.inf))
        simple = sum(abs(float(Fraction(v).limit_denominator(1000)) - v) <= 1e-9 * abs(v) for v in found)
        digits = max(len(repr(value).partition(".")[2]) if "e" not in repr(value) else 12 for value in found)
        steps[metric] = gap if 2 * simple >= len(found) else min(gap, 10.0 ** -min(digits, 12))
    return steps
