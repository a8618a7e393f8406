"""Repeats and seeds that are not the separate runs that they are taken for; all of them are refused.

Numbered repeats may be rows of one curve, or one run on every task. Seeds may be ranks, or copies of each other: every
value of every arm, task and metric agrees, and chance cannot explain it.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Row, is_number
from bakeoff.spec.directions import words_of
from bakeoff.stats.numerics import Array
from bakeoff.stats.serial import neighbours_alike
from bakeoff.stats.ttests import seeds_look_crossed

if TYPE_CHECKING:
    from bakeoff.results.table import Results
    from bakeoff.verdicts.observations import Observations
    from bakeoff.verdicts.question import Question

MIN_REPEATS = 10
"""Repeats of one (arm, task, seed) from which on their order is looked at."""
ALPHA = 0.001
MAX_CHANCE = 1e-6
"""Chance that seeds agree everywhere, or that values happen to be sorted along them, above which nothing is said."""
MAX_BEND = 0.03
"""Distance from a straight line, as a share of the range, up to which values are computed from the seed.

None of 6,300 tables of 3 to 20 seeds was refused (normal, lognormal, Cauchy, 0 and 1, quarters, counts, two decimals; effects
of 0, 1 and 3 standard deviations)."""
_CLOCKS = frozenset((
    "time", "elapsed", "seconds", "secs", "sec", "s", "ms", "minutes", "hours", "runtime", "walltime", "wallclock", "timestamp",
    "latency", "duration", "fps", "sps", "speed", "throughput", "memory", "rss",
))  # fmt: skip
"""Words in names of metrics that differ between copies, too, because they were measured by a clock."""
Place = tuple[str, str, int, str]
"""Arm, task, rollout and metric of one value."""
Values = Mapping[tuple[str, int | None, int], float]
"""One arm's values by task, seed and number of the repeat."""


def refuse_curves(observations: Observations) -> None:
    """Raise UsageError where neighbouring repeats are more alike than independent ones could be.

    Only the order of a column that numbers the repeats counts. The order of rows says nothing: exports are sorted.
    """
    column = observations.repeats
    if not column:
        return
    groups: dict[tuple[str, str, int | None], list[tuple[int, float]]] = defaultdict(list)
    for row in observations.rows:
        if row.state == "scored" and np.isfinite(row.value):
            groups[row.arm, row.task, row.seed].append((row.rollout, row.value))
    curves = [np.array([value for _, value in sorted(group)]) for group in groups.values() if len(group) >= MIN_REPEATS]
    ratio = neighbours_alike(curves, ALPHA)
    if ratio is not None:
        flag = shlex.quote(column)
        raise UsageError(
            f"{observations.source}: repeats that follow each other in column {column!r} have more similar "
            f"{observations.metric!r} than independent ones could have (von Neumann ratio {ratio:.2f}, 2 expected; p < "
            f"{ALPHA:g}). Say --step-from {flag} if rows are steps of one run, or --ignore {flag} if its order means nothing"
        )


def refuse_ranks(observations: Observations) -> None:
    """Raise UsageError where the seeds of a table number the values of every arm from the largest or smallest on.

    Whoever sorts each arm's scores and numbers the rows afterwards pairs the best with the best: the differences are small
    and have one sign, and 40 to 50 % of equal arms get a verdict.
    """
    if len(observations.arms) < 2:
        return
    groups: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in observations.rows:
        if row.state == "scored" and row.seed is not None and np.isfinite(row.value):
            groups[row.arm, row.task][row.seed] = row.value
    log_chance, directions, computed = 0.0, set(), True
    for values in groups.values():
        first = min(values)
        if first not in (0, 1) or max(values) - first + 1 != len(values):
            return
        ordered = np.array([values[seed] for seed in sorted(values)])
        steps = np.diff(ordered)
        if (steps > 0).any() and (steps < 0).any():
            return
        directions |= set(np.sign(steps).tolist()) - {0.0}
        spread = float(np.ptp(ordered))
        line = np.linspace(ordered[0], ordered[-1], len(ordered))
        computed = computed and float(np.abs(ordered - line).max()) <= MAX_BEND * spread
        ties = sum(math.lgamma(count + 1) for count in Counter(values.values()).values())
        log_chance += min(0.0, math.log(2) + ties - math.lgamma(len(values) + 1))
    if len(directions) == 1 and not computed and log_chance < math.log(MAX_CHANCE):
        raise UsageError(
            f"{observations.source}: {observations.metric!r} is sorted along the seeds in every arm and task, as if rows had been "
            "numbered after they were sorted: such pairs have nothing in common. Give each row the seed that its run had, or "
            "say --unpaired"
        )


def refuse_shared_repeats(observations: Observations) -> None:
    """Raise UsageError where a repeat with one number does well or badly on every task, in one arm and not in another.

    Repeats of a task are averaged, so that the task is the unit. If `trial` 3 is one trained policy on all tasks, the tasks
    share its luck. What all arms have in common, such as better second attempts, cancels in differences and is no reason.
    """
    column, arms = observations.repeats, observations.arms
    if not column or len(arms) < 2 or len(observations.tasks) < 3:
        return
    values = {
        arm: {(row.task, row.seed, row.rollout): row.value for row in rows if row.state == "scored"}
        for arm, rows in observations.by_arm.items()
    }
    tables = [_table(values[arm], values[arms[0]]) for arm in arms[1:]]
    if not any(table.size for table in tables):  # numbers of the whole file, such as those of jobs
        tables = [_table(known) for known in values.values()]
    smallest = min((seeds_look_crossed(table) for table in tables if min(table.shape) >= 2), default=1.0)
    if smallest * len(tables) < ALPHA:
        flag = shlex.quote(column)
        raise UsageError(
            f"{observations.source}: repeats with the same number in column {column!r} do well or badly on all tasks alike (p < "
            f"{ALPHA:g}), as if each were one run or one trained policy. Say --seed-from {flag} if it is, or --ignore {flag} if "
            "rows of one task are independent repeats and their numbers mean nothing"
        )


def _table(values: Values, control: Values | None = None) -> Array:
    """One arm's values, or its differences from the control's, by (task, seed) and number of the repeat; NaN for none."""
    keys = values.keys() if control is None else values.keys() & control.keys()
    places = {place: number for number, place in enumerate(sorted({key[:2] for key in keys}, key=str))}
    numbers = {repeat: number for number, repeat in enumerate(sorted({key[2] for key in keys}))}
    table = np.full((len(places), len(numbers)), np.nan)
    for key in keys:
        table[places[key[:2]], numbers[key[2]]] = values[key] - (0.0 if control is None else control[key])
    return table


# -- seeds that are copies


def refuse_copies(results: Results, question: Question) -> None:
    """Raise UsageError for seeds that are copies of each other: a copy is not a second run."""
    if "keep" in (question.copies, results.analysis.copies):
        return
    if copies := copied_seeds(results.rows):
        named = "; ".join(" and ".join(map(str, seeds)) for seeds in copies[:3])
        raise UsageError(
            f"{results.label}: seeds {named} have equal values in every arm, task and metric, which chance does not explain: "
            'copies are not replicates. Remove them, or say --copies keep (copies = "keep" in [analysis]) if they are '
            "separate runs"
        )


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
                if name in names and is_number(value) and math.isfinite(value):  # type: ignore[arg-type]
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
    at_place: dict[Place, list[float]] = defaultdict(list)
    for each in distinct:
        for place, value in each.items():
            at_place[place].append(value)
    chances = {place: math.log(_chance(found, resolutions[place[3]])) for place, found in at_place.items()}
    expected: dict[tuple[int, ...], float] = {}
    for (key, _), seeds in classes.items():
        if len(seeds) > 1 and key:
            # Log of the number of pairs of seeds that would agree like this by chance.
            expected[tuple(sorted(seeds))] = pairs + sum(chances[place] for place, _ in key)
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
