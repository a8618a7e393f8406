"""Notes about values that are probably not what they seem. They never change a verdict: only the user knows.

`observe` asks for them, so they stand with every answer, whoever made the results.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from math import comb, isfinite
from typing import TYPE_CHECKING

import numpy as np

from bakeoff.verdicts.repeats import copied_seeds

if TYPE_CHECKING:
    from bakeoff.results.table import Row
    from bakeoff.verdicts.observations import Observation

LOW_MARKS = (-1.0, -9.0, -99.0, -999.0, -9999.0)
HIGH_MARKS = (999.0, 9999.0, 99999.0, 999999.0)
"""Numbers that programs write where there is no value."""
MIN_BLOCKS, FIRST = 20, 0.9
"""An arm that started first in this share of so many blocks did not do so by chance."""
MIN_RATIO = 300.0
"""Ratio of medians from which on two arms may have different units.

None of 5,600 tables of 2 arms and 3 to 20 values with ordinary spread was labelled, nor any of 30 arms with 3 values each; of
lognormal ones with a sigma of 2, 0.6 % of 700 with 2 arms and 4.3 % with 30."""
FINE, MIN_EQUAL = 0.9, 3
"""Share of an arm's values that differ from each other, from which on equal values of two arms are no chance."""
MAX_CHANCE = 1e-4
"""Chance that any two arms agree so often, above which nothing is said."""
MAX_COMPARED = 20
"""Arms that are compared for equal values, each with each."""
MIN_RETRIED = 5
"""Tasks with retries below which nothing is said about when the retries stopped."""


def doubts(metric: str, scored: Sequence[Observation]) -> list[str]:
    """Return one sentence for each way in which the values of runs that have one look wrong."""
    scored = [row for row in scored if isfinite(row.value)]
    return [
        *_marks(metric, Counter(row.value for row in scored)),
        *_unequal_scales(metric, scored),
        *_retries_until_success(metric, scored),
    ]


def _marks(metric: str, counts: Mapping[float, int]) -> list[str]:
    """Find a number such as -1 or 9999 that stands apart from all other values, and stands there more than once."""
    sentences = []
    for mark in (*LOW_MARKS, *HIGH_MARKS):
        if counts.get(mark, 0) < 2:
            continue
        others = [value for value in counts if value != mark]
        if mark < 0:
            apart = bool(others) and min(others) >= 0 and not set(others) <= {0.0, 1.0}  # lost, drawn and won
        else:
            apart = bool(others) and max(map(abs, others)) < mark / 5
        if apart:
            sentences.append(
                f"{counts[mark]} values of {metric} are {mark:g} and all others are {min(others):g} or more"
                if mark < 0
                else f"{counts[mark]} values of {metric} are {mark:g} and all others are {max(others):g} or less"
            )
    return [
        f"{sentence}: they count as measured. If the number stands for a failure, write NaN there, and if it stands for a "
        "run that is missing, leave the cell empty"
        for sentence in sentences
    ]


def _unequal_scales(metric: str, scored: Sequence[Observation]) -> list[str]:
    """Find arms whose values are shares of 1 beside arms whose values look like per cent."""
    by_arm: dict[str, list[float]] = defaultdict(list)
    for row in scored:
        by_arm[row.arm].append(row.value)
    shares, per_cent = [], []
    for arm, values in by_arm.items():
        low, high, middle = min(values), max(values), float(np.median(values))
        if len(values) < 3 or low < 0 or high > 100:
            continue
        if high <= 1 and middle > 0 and not set(values) <= {0.0, 1.0}:
            shares.append((arm, middle))
        elif middle > 1.5:
            per_cent.append((arm, middle))
    if not shares or not per_cent or not 20 <= per_cent[0][1] / shares[0][1] <= 500:
        return _unequal_units(metric, by_arm)
    return [
        f"{metric} of {shares[0][0]} lies between 0 and 1 and that of {per_cent[0][0]} between 0 and 100: if one is a share "
        "and the other per cent, they cannot be compared before one is converted"
    ]


def _unequal_units(metric: str, by_arm: Mapping[str, Sequence[float]]) -> list[str]:
    """Find an arm all of whose values are hundreds of times as large as another's, as ms are beside s."""
    positive = {arm: values for arm, values in by_arm.items() if len(values) > 2 and min(values) > 0}
    if len(positive) < 2:
        return []
    small = min(positive, key=lambda arm: max(positive[arm]))
    large = max(positive, key=lambda arm: min(positive[arm]))
    ratio = float(np.median(positive[large]) / np.median(positive[small]))
    if ratio < MIN_RATIO or min(positive[large]) < 10 * max(positive[small]):
        return []
    return [
        f"{metric} of {large} is {ratio:.3g} times as large as that of {small}: if they are in different units, they cannot be "
        "compared before one is converted"
    ]


def _retries_until_success(metric: str, scored: Sequence[Observation]) -> list[str]:
    """Find rollouts that are attempts which stopped at the first success: their mean is not a success rate."""
    if any(row.value not in (0.0, 1.0) for row in scored):
        return []
    attempts: dict[tuple[str, str, int | None], list[tuple[int, float]]] = defaultdict(list)
    for row in scored:
        attempts[row.arm, row.task, row.seed].append((row.rollout, row.value))
    outcomes = [[value for _, value in sorted(group)] for group in attempts.values()]
    retried = [group for group in outcomes if len(group) > 1]
    solved_later = [group for group in retried if group[-1] == 1.0]
    if len(solved_later) < MIN_RETRIED or len({len(group) for group in outcomes}) < 2:
        return []
    # No success is followed by another attempt, and whoever gave up had the largest number of attempts.
    stopped = not any(earlier == 1.0 for group in retried for earlier, _ in pairwise(group))
    longest = max(map(len, outcomes))
    gave_up = all(len(group) == longest for group in outcomes if group[-1] == 0.0)
    if not stopped or not gave_up:
        return []
    return [
        f"attempts at a task end with the first success, so the mean of {metric} over attempts is not a success rate: keep "
        "the first attempt at each task, or the last one (solved within the attempts allowed)"
    ]


def copies(rows: Sequence[Row], metric: str, scored: Sequence[Observation]) -> list[str]:
    """Return a sentence for seeds of one arm, for tasks, and for arms whose values are equal where chance would differ.

    Of results from elsewhere only: what bakeoff ran itself was run. Seeds that are equal in every arm are refused before (`refuse_copies`).
    """
    sentences = []
    by_arm: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_arm[row.arm].append(row)
    for arm, of_arm in by_arm.items():
        if alike := copied_seeds(of_arm):
            named = "; ".join(" and ".join(map(str, seeds)) for seeds in alike[:3])
            sentences.append(
                f"seeds {named} of {arm} have equal values in every task and metric, and other arms differ there: if they are "
                "copies of one run, remove them"
            )
    if equal := copied_tasks(rows):
        named = "; ".join(" and ".join(group) for group in equal[:3])
        sentences.append(
            f"tasks {named} have equal values in every arm, seed and metric: if one is a copy of the other, remove it"
        )
    return sentences + _equal_pairs(metric, scored)


def copied_tasks(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return groups of tasks with equal values in every arm, seed and metric that chance does not explain."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    number = {task: place for place, task in enumerate(tasks)}
    turned = [replace(row, seed=number[row.task], task=str(row.seed)) for row in rows]
    return [tuple(tasks[place] for place in group) for group in copied_seeds(turned)]


def _equal_pairs(metric: str, scored: Sequence[Observation]) -> list[str]:
    """Return a sentence for two arms that agree to the last digit in some runs and not in others.

    Only where nearly all values of each arm differ from each other, so that agreement is no matter of few possible scores.
    """
    by_arm: dict[str, dict[tuple[str, int | None, int], float]] = defaultdict(dict)
    for row in scored:
        by_arm[row.arm][row.task, row.seed, row.rollout] = row.value
    fine = {arm: values for arm, values in by_arm.items() if len(set(values.values())) >= FINE * len(values)}
    for (arm, values), (other, others) in combinations(list(fine.items())[:MAX_COMPARED], 2):
        shared = values.keys() & others.keys()
        equal = sum(values[place] == others[place] for place in shared)
        if not MIN_EQUAL <= equal < len(shared):
            continue
        # Values of different runs agree by chance as often as those of one run would.
        counts, elsewhere = (Counter(each[place] for place in shared) for each in (values, others))
        agree = sum(count * elsewhere[value] for value, count in counts.items()) - equal
        chance = (agree + 1) / (len(shared) * (len(shared) - 1) + 1)
        if comb(len(fine), 2) * comb(len(shared), equal) * chance**equal < MAX_CHANCE:
            return [
                f"{metric} of {arm} and {other} is equal to the last digit in {equal} of {len(shared)} runs: if runs of one were "
                "copied to the other, they say nothing about it"
            ]
    return []


def always_first(rows: Sequence[Row]) -> list[str]:
    """Return a sentence if one arm started before all others nearly everywhere, as after `run --only arm=a`.

    A shared cache, or a machine that changes with time, then differs between the arms.
    """
    started: dict[tuple[str, int | None, int], list[tuple[float, str]]] = defaultdict(list)
    for row in rows:
        if row.started_at is not None:
            started[row.task, row.seed, row.rollout].append((row.started_at, row.arm))
    blocks = [min(block)[1] for block in started.values() if len(block) > 1]
    if len(blocks) < MIN_BLOCKS:
        return []
    [(arm, times)] = Counter(blocks).most_common(1)
    if times < FIRST * len(blocks):
        return []
    return [
        f"{arm} started before the other arms in {times} of {len(blocks)} combinations of task, seed and rollout: a shared "
        "cache, or a machine that changed meanwhile, can make the difference. Runs of one `bakeoff run` are mixed"
    ]
