"""What each arm did on each task, and over all tasks: attempts, mean scores with intervals, passes, resources used.

No verdict: `compare` decides. The interval over tasks is a t interval of task means, since tasks are what was sampled.
pass@k is the chance that one of k attempts succeeds, pass^k that all of them do: unbiased for each task, then averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bakeoff.records.run import run_notes
from bakeoff.results.table import Array, Results
from bakeoff.spec.workload import ESTIMATED, UNCACHED, is_self_reported
from bakeoff.stats.aggregates import chance_interval, pass_at_k, pass_hat_k
from bakeoff.stats.numerics import is_constant
from bakeoff.stats.ttests import one_sample_t
from bakeoff.text import NOTHING, duration, number, percent
from bakeoff.verdicts.answer import Answer, Block, Notes, Table, Text, observe_metric
from bakeoff.verdicts.observations import Caveats, Observations, caveats_of
from bakeoff.verdicts.question import Summarize
from bakeoff.verdicts.questions.retries import retry_facts, retry_table, retry_warnings
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.records.run import Uncounted

LEVEL = 0.95
"""Of all intervals here."""
USED = ("tokens", "cost", f"cost{UNCACHED}", "seconds")
"""Metrics of resources that runs use, where they report them."""
INPUT, CACHED = "input_tokens", "input_tokens_cached"
"""Metrics of the input of models, and of the part that came out of a cache."""
MOST_OTHERS = 40
"""Rows in the table of other metrics."""
CONDUCT = ("tampered", "honeypot")
"""Metrics that are 1 for a run that broke the rules, counted where runs report them."""


@dataclass(frozen=True, slots=True)
class Chance:
    """Mean over tasks, with a t interval over tasks held within 0 and 1 (None: fewer than 2 tasks, or no spread)."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        ends = "" if self.low is None else f" ({number(self.low)} to {number(self.high)})"
        return f"{number(self.value)}{ends}"


@dataclass(frozen=True, slots=True)
class Passing:
    """One arm at one k. `attempts`: fewest on a task."""

    arm: str
    k: int
    attempts: int
    tasks: int
    at: Chance
    """At least one of k succeeds."""
    all: Chance
    """All k succeed (pass^k)."""


def is_binary(observations: Observations) -> bool:
    """Every value is 0 or 1, so a success needs no threshold."""
    known = {row.value for row in observations.rows if row.state == "scored"}
    return bool(known) and known <= {0.0, 1.0}


def passing(
    observations: Observations, ks: Iterable[int] | None = None, success: float | None = None, level: float = 0.95
) -> list[Passing]:
    """For every arm and k. A run succeeds at `success` or better (default: 1); a failed run is an attempt without success.

    Missing runs are not attempts. k above the fewest attempts on a task is left out: it has no unbiased estimate.
    """
    goal = 1.0 if success is None else success
    passes = []
    for arm in observations.arms:
        counts: dict[str, tuple[int, int]] = {}  # (successes, attempts) of each task
        for row in observations.rows:
            if row.arm == arm and row.state != "missing":
                better = row.value >= goal if observations.larger_is_better else row.value <= goal
                wins, attempts = counts.get(row.task, (0, 0))
                counts[row.task] = (wins + (row.state == "scored" and better), attempts + 1)
        if not counts:
            continue
        successes, tries = (np.array(column, dtype=np.float64) for column in zip(*counts.values(), strict=True))
        least = int(tries.min())
        doubling = {2**i for i in range(least.bit_length()) if 2**i <= least} | ({least} if least else set())
        for k in ks if ks is not None else sorted(doubling):
            if 1 <= k <= least:
                chances = []
                for values in (pass_at_k(successes, tries, k), pass_hat_k(successes, tries, k)):
                    ends: tuple[float | None, float | None] = (None, None)
                    if k == 1:
                        ends = t_interval(values, (0.0, 1.0), level)
                    elif (interval := chance_interval(values, level)) is not None:
                        ends = interval.low, interval.high
                    chances.append(Chance(float(values.mean()), *ends))
                passes.append(Passing(arm, k, least, len(counts), *chances))
    return passes


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a metric over `n` runs."""

    value: float
    n: int
    self_reported: bool = False
    """The work of some run could have written its value itself."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Tries of one arm on one task, or on all tasks. Failed ones count with the failure score, where one is declared."""

    arm: str
    task: str | None
    tries: int
    failed: int
    missing: int
    mean: float | None
    low: float | None
    high: float | None
    """A t interval: over tries for one task, over task means for all. None below two, or without spread."""
    best: float | None
    passed: int | None
    """Tries that reached the goal."""
    used: Mapping[str, float]
    """Sums over runs that reported them."""
    estimated: Mapping[str, float]
    """The part of each sum that is estimated, where there is one."""
    self_reported: bool = False
    """The work of some run could have written its score itself."""


@dataclass(frozen=True)
class SummarizeAnswer(Answer):
    """Tallies by task and arm, and by arm over all tasks."""

    metric: str
    goal: float
    by_task: Sequence[Tally]
    by_arm: Sequence[Tally]
    passing: Sequence[Passing]
    uncounted: Mapping[str, Uncounted]
    """By arm, the tries that do not count."""
    others: Mapping[str, Mapping[str, Mean]]
    """Every other metric that is a number, by name and arm."""
    notes: Sequence[str] = ()
    """What succeeded runs say about themselves."""

    title = "Summary"
    shows_means = True
    exit_code = 0

    def facts(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "source": self.source,
            "goal": self.goal,
            "by_task": [asdict(tally) for tally in self.by_task],
            "by_arm": [asdict(tally) for tally in self.by_arm],
            "passing": [asdict(each) for each in self.passing],
            "others": {name: {arm: asdict(mean) for arm, mean in arms.items()} for name, arms in self.others.items()},
            "retries": retry_facts(self.uncounted),
            "notes": list(self.notes),
            "settings": self.all_settings,
            "bakeoff": __version__,
        }

    def blocks(self) -> list[Block]:
        used = [name for name in USED if any(name in tally.used for tally in self.by_arm)]
        sums = [f"sum of {name}".replace(UNCACHED, " without cache") for name in used]
        conduct = [name for name in CONDUCT if any(tally.used.get(name) for tally in self.by_arm)]
        used += conduct
        headers = ["task", "arm", "tries", f"mean {self.metric}", "95 % interval", "best", "passed", *sums, *conduct]
        by_task = [[tally.task or "", *_cells(tally, used)] for tally in self.by_task]
        by_arm = [_cells(tally, used) for tally in self.by_arm]
        blocks: list[Block] = [
            Text(f"{self.source}: {self.metric}; a try passes at {number(self.goal)}"),
            Table(headers, by_task, right=headers[2:]),
            Table(headers[1:], by_arm, "all tasks, each with the same weight", headers[2:]),
        ]
        if any(tally.passed for tally in self.by_arm):
            heads = ["arm", "k", "pass@k", "pass^k", "tasks"]
            rows = [
                [each.arm, str(each.k), number(each.at.value), number(each.all.value), str(each.tasks)]
                for each in self.passing
            ]
            blocks.append(Table(heads, rows, "at least one of k tries passes; all k pass", heads[1:]))
        if self.others:
            arms = [tally.arm for tally in self.by_arm]
            rows = [
                [
                    name,
                    *(_marked(means[arm].value, means[arm].self_reported) if arm in means else NOTHING for arm in arms),
                ]
                for name, means in list(self.others.items())[:MOST_OTHERS]
            ]
            title = "means of other metrics, over the runs that report them"
            if len(self.others) > MOST_OTHERS:
                title += f" (the first {MOST_OTHERS} of {len(self.others)}; --json has all)"
            blocks.append(Table(["metric", *arms], rows, title, arms))
        if any(CACHED in tally.used for tally in self.by_arm):
            shares = [f"{tally.arm} {percent(_cached(tally))}" for tally in self.by_arm if tally.used.get(INPUT)]
            blocks.append(Text(f"input that came out of caches of the provider: {', '.join(shares)}"))
        if guessed := [line for tally in self.by_arm for line in _guessed(tally)]:
            text = f"~ the provider's count never arrived for a part, which is estimated: {'; '.join(guessed)}"
            blocks.append(Text(text))
        if arms := [tally.arm for tally in self.by_arm if tally.self_reported]:
            blocks += [Text(f"* {line}") for line in Caveats(tuple(arms)).sentences(self.metric)]
        elif any(mean.self_reported for means in self.others.values() for mean in means.values()):
            blocks.append(Text("* self-reported: the work could have written this value itself (docs/tasks.md)"))
        if (table := retry_table(self.uncounted)) is not None:
            blocks.append(table)
        if warnings := retry_warnings(self.uncounted):
            blocks.append(Notes("Warnings", warnings))
        if self.notes:
            blocks.append(Notes("Notes", self.notes))
        return blocks


def _cells(tally: Tally, used: Sequence[str]) -> list[str]:
    interval = NOTHING if tally.low is None else f"{number(tally.low)} to {number(tally.high)}"
    lost = [f"{tally.failed} failed"] * bool(tally.failed) + [f"{tally.missing} missing"] * bool(tally.missing)
    tries = f"{tally.tries} ({', '.join(lost)})" if lost else str(tally.tries)
    amounts = [
        duration(tally.used.get(name)) if name == "seconds" else number(tally.used.get(name)) for name in used
    ]  # fmt: skip
    amounts = [f"~{text}" if name in tally.estimated else text for name, text in zip(used, amounts, strict=True)]
    return [
        tally.arm,
        tries,
        _marked(tally.mean, tally.self_reported),
        interval,
        number(tally.best),
        str(tally.passed),
        *amounts,
    ]


def _cached(tally: Tally) -> float:
    """The share of the input that came out of a cache."""
    return tally.used.get(CACHED, 0.0) / tally.used[INPUT]


def _marked(mean: float | None, self_reported: bool) -> str:
    return number(mean) + "*" * self_reported


def _guessed(tally: Tally) -> list[str]:
    """`b: 12 % of cost`, for each sum that is estimated in part."""
    return [
        f"{tally.arm}: {percent(part / tally.used[name])} of {name}"
        for name, part in tally.estimated.items()
        if tally.used.get(name)
    ]


def answer(results: Results, question: Summarize) -> SummarizeAnswer:
    """A run passes at `question.goal` or better (default: the best possible score, or 1)."""
    observations = observe_metric(results, (question.metrics or results.primary())[0], question)
    goal = question.goal
    if goal is None:
        bounds = observations.bounds
        goal = 1.0 if bounds is None else bounds[1] if observations.larger_is_better else bounds[0]
    rows: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(observations.rows):
        rows.setdefault((row.arm, row.task), []).append(place)
    arms = observations.arms
    by_task = [
        _tally(results, observations, arm, task, rows[arm, task], goal)
        for arm, task in sorted(rows, key=lambda pair: (pair[1], arms.index(pair[0])))
    ]
    by_arm = [_over_tasks(observations, arm, [tally for tally in by_task if tally.arm == arm]) for arm in arms]
    passes = passing(observations, success=goal, level=LEVEL)
    settings = {"metric": observations.metric, "goal": goal, "version": __version__}
    return SummarizeAnswer(
        results.label, settings, observations.metric, goal, by_task, by_arm, passes, results.uncounted,
        _others(results, observations), [*results.notes, *run_notes((row.run_id, row.status, row.error) for row in results.rows)],
    )  # fmt: skip


def _others(results: Results, observations: Observations) -> dict[str, dict[str, Mean]]:
    """Means of all metrics that no other table shows, by name and arm, over the runs that have a number."""
    shown = {observations.metric, *USED, CACHED, *CONDUCT, *(f"{name}{ESTIMATED}" for name in USED)}
    values: dict[str, dict[str, list[float]]] = {}
    written: set[tuple[str, str]] = set()
    for row, observed in zip(results.rows, observations.rows, strict=True):
        for name, value in row.metrics.items():
            if name not in shown and isinstance(value, int | float) and math.isfinite(value):
                values.setdefault(name, {}).setdefault(observed.arm, []).append(float(value))
                if is_self_reported(row.metrics, name):
                    written.add((name, observed.arm))
    return {
        name: {arm: Mean(float(np.mean(each)), len(each), (name, arm) in written) for arm, each in arms.items()}
        for name, arms in values.items()
    }


def _tally(
    results: Results, observations: Observations, arm: str, task: str, numbers: Sequence[int], goal: float
) -> Tally:
    """One arm on one task; `numbers` are its rows."""
    rows = [observations.rows[each] for each in numbers]
    failure = observations.analysis.failure_score
    failed = sum(row.state == "failed" for row in rows)
    values = [row.value for row in rows if row.state == "scored"] + ([failure] * failed if failure is not None else [])
    sign = 1.0 if observations.larger_is_better else -1.0
    low, high = t_interval(values, observations.bounds)
    used: dict[str, float] = {}
    estimated: dict[str, float] = {}
    for each in numbers:
        metrics = results.rows[each].metrics
        for name in (*USED, INPUT, CACHED, *CONDUCT):
            if isinstance(value := metrics.get(name), int | float):
                used[name] = used.get(name, 0.0) + float(value)
            if name in USED and isinstance(value := metrics.get(f"{name}{ESTIMATED}"), int | float) and value:
                estimated[name] = estimated.get(name, 0.0) + float(value)
    return Tally(
        arm=arm,
        task=task,
        tries=sum(row.state != "missing" for row in rows),
        failed=failed,
        missing=sum(row.state == "missing" for row in rows),
        mean=float(np.mean(values)) if values else None,
        low=low,
        high=high,
        best=max(values, key=lambda value: sign * value, default=None),
        passed=sum(row.state == "scored" and sign * row.value >= sign * goal for row in rows),
        used=used,
        estimated=estimated,
        self_reported=bool(caveats_of([results.rows[each] for each in numbers], observations.metric).self_reported),
    )


def _over_tasks(observations: Observations, arm: str, tallies: Sequence[Tally]) -> Tally:
    """All tasks of an arm, each with the same weight."""
    means = [tally.mean for tally in tallies if tally.mean is not None]
    best = [tally.best for tally in tallies if tally.best is not None]
    sign = 1.0 if observations.larger_is_better else -1.0
    low, high = t_interval(means, observations.bounds)
    used: dict[str, float] = {}
    estimated: dict[str, float] = {}
    for tally in tallies:
        for sums, more in ((used, tally.used), (estimated, tally.estimated)):
            for name, value in more.items():
                sums[name] = sums.get(name, 0.0) + value
    return Tally(
        arm=arm,
        task=None,
        tries=sum(tally.tries for tally in tallies),
        failed=sum(tally.failed for tally in tallies),
        missing=sum(tally.missing for tally in tallies),
        mean=float(np.mean(means)) if means else None,
        low=low,
        high=high,
        best=max(best, key=lambda value: sign * value, default=None),
        passed=sum(tally.passed or 0 for tally in tallies),
        used=used,
        estimated=estimated,
        self_reported=any(tally.self_reported for tally in tallies),
    )


def t_interval(
    values: Sequence[float] | Array, bounds: tuple[float, float] | None, level: float = LEVEL
) -> tuple[float | None, float | None]:
    """A t interval, held within the bounds. None where there are fewer than two values, or no spread."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2 or is_constant(array):
        return None, None
    interval = one_sample_t(array).interval(level)
    lowest, highest = bounds or (-np.inf, np.inf)
    return max(interval.low, lowest), min(interval.high, highest)
