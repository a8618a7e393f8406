"""One metric of every run, as numbers that the statistics can use.

`observe` is the only way from a results table to observations. Three outcomes are kept apart: scored; failed because
of the arm; missing (lost, cancelled, never run).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.looks import Look
from bakeoff.records.run import FAILED
from bakeoff.results.summaries import reduce_all
from bakeoff.results.table import Declared, Results, Row, Series, is_number
from bakeoff.spec.experiment import Analysis
from bakeoff.spec.workload import ESTIMATED, UNCACHED, is_self_reported
from bakeoff.text import percent
from bakeoff.verdicts.plausibility import always_first, copies, doubts

State = Literal["scored", "failed", "missing"]
MAX_VALUE = 1e150
"""Larger values have squares that are no numbers, and neither mean nor spread can be computed from them."""
SHORT = 0.9
"""Runs that end before this share of the longest one get a note."""
_OTHER_UNIT = ("slope", "time_to_threshold")
"""Summaries whose number is not in the metric's unit, so the metric's range does not apply to it."""
MOST_NAMED = 5
"""Arms that a sentence names."""
UNEQUAL_CACHES = 0.1
"""Two arms of which caches of their provider saved shares that differ by more than this get a warning."""


class Observation(NamedTuple):
    """One run's value of the metric. `value` is NaN unless scored; `seed` is None where runs share no seeds."""

    arm: str
    task: str
    seed: int | None
    rollout: int
    state: State
    value: float
    run_id: str = ""
    stage: int = 0
    """How many smaller plans results were seen of before this run was planned."""

    @property
    def place(self) -> str:
        """`task t1, seed 3, rollout 2`, for sentences."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"task {self.task}{seed}, rollout {self.rollout}"


@dataclass(frozen=True, slots=True)
class Caveats:
    """By arm, what limits the values of one metric, whatever the statistics say: who wrote them, and how much is a guess.

    Both are facts of how a run was scored, which its workload reports as metrics of the run (`spec/workload.py`):
    `self_reported` names the metrics that the thing under test could have written itself, and `NAME_estimated` is the part
    of NAME that nobody counted. A verdict on such values stands, with a label.
    """

    self_reported: tuple[str, ...] = ()
    """Arms with a run whose work could have written the value itself."""
    estimated: Mapping[str, float] = field(default_factory=dict)
    """The share of the arm's sum that is estimated, for arms that have any."""
    saved: Mapping[str, float] = field(default_factory=dict)
    """The share of the arm's sum that caches of its provider saved, for all arms if it is any of one."""

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self, metric: str) -> list[str]:
        said = []
        if self.self_reported:
            said.append(
                f"{metric} of {_names(self.self_reported)} is self-reported: the work ran where its tests ran, so it could "
                "have written its own score (docs/tasks.md, Isolated and self-reported scores)"
            )
        if self.estimated:
            shares = {f"{arm} {percent(share)}": share for arm, share in self.estimated.items()}
            worst = sorted(shares, key=lambda name: -shares[name])
            said.append(
                f"a part of {metric} is estimated, because the provider's count never arrived: {_names(worst)} "
                "(docs/agents.md, Budgets)"
            )
        if self.saved and max(self.saved.values()) - min(self.saved.values()) > UNEQUAL_CACHES:
            shares = {f"{arm} {percent(share)}": share for arm, share in self.saved.items()}
            worst = sorted(shares, key=lambda name: -shares[name])
            said.append(
                f"caches of the provider saved unequal shares of {metric}, which depends on the order and the number of "
                f"runs: {_names(worst)}; {metric}{UNCACHED} is without them (docs/agents.md, Caches)"
            )
        return said


class Range(NamedTuple):
    """Smallest and largest of this number of values."""

    low: float
    high: float
    number: int


@dataclass(frozen=True)
class Observations:
    """One metric over all runs."""

    metric: str
    rows: Sequence[Observation]
    analysis: Analysis
    """How it is judged: as declared, changed by the question."""
    source: str = ""
    final: bool = True
    """Every planned run has ended or was lost."""
    fixed_tasks: bool = False
    """Tasks are points of a swept parameter and not a sample of anything."""
    notes: tuple[str, ...] = ()
    """What a reader of the verdict should know about where the values come from."""
    looks: tuple[Look, ...] = ()
    """The means and verdicts that were shown before."""
    declared: Declared | None = None
    """What an edition of ours fixed beforehand; None where the question is the declaration."""
    caveats: Caveats = field(default_factory=Caveats)
    """Who wrote the values, and how much of them is estimated."""
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Columns that group tasks, as column to task to group."""
    repeats: str = ""
    """The column that numbers rollouts, if one does."""

    @cached_property
    def by_arm(self) -> Mapping[str, Sequence[Observation]]:
        """Each arm's rows, in order of first appearance."""
        rows: dict[str, list[Observation]] = {}
        for row in self.rows:
            rows.setdefault(row.arm, []).append(row)
        return rows

    @cached_property
    def controls(self) -> dict[str, Any]:
        """Runs of control arms by task and seed, kept by `designs.build_design`: every comparison has the same control."""
        return {}

    @cached_property
    def seen(self) -> Mapping[str, Range]:
        """What was seen on each task in any arm, failures scored; a task without a value is not in it."""
        ranges: dict[str, Range] = {}
        failure = self.failure_score
        for row in self.rows:
            value = row.value if row.state == "scored" else failure if row.state == "failed" else None
            if value is not None:
                low, high, number = ranges.get(row.task, (value, value, 0))
                ranges[row.task] = Range(min(low, value), max(high, value), number + 1)
        return ranges

    @cached_property
    def stages(self) -> int:
        """Number of smaller plans whose results had been shown when the last of these runs was planned."""
        return max((row.stage for row in self.rows), default=0)

    @property
    def arms(self) -> list[str]:
        return list(self.by_arm)

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(row.task for row in self.rows))

    @property
    def population(self) -> Literal["sample", "fixed"]:
        """As declared; otherwise swept parameters are fixed tasks and listed tasks are a sample."""
        return self.analysis.tasks or ("fixed" if self.fixed_tasks else "sample")

    @property
    def larger_is_better(self) -> bool:
        """The direction of the number that is compared: less time to a threshold is better, whatever the metric."""
        if self.analysis.summary is not None and self.analysis.summary.type == "time_to_threshold":
            return False
        return self.analysis.direction != "minimize"

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Lowest and highest possible value of the number that is compared; a slope or a time has no declared ones."""
        summary = self.analysis.summary
        return None if summary is not None and summary.type in _OTHER_UNIT else self.analysis.bounds

    @property
    def failure_score(self) -> float | None:
        """What a run that failed because of its arm counts: the declared score, else the bad end of the range."""
        if self.analysis.failure_score is not None:
            return self.analysis.failure_score
        if self.bounds is not None:
            return self.bounds[0] if self.larger_is_better else self.bounds[1]
        return None

    def of(self, arms: Iterable[str]) -> Observations:
        """Only these arms. Raises UsageError for one that is not there."""
        wanted = set(arms)
        for arm in wanted - set(self.arms):
            raise UsageError(f"no arm called {arm!r}; there are {', '.join(self.arms)}")
        return replace(self, rows=[row for row in self.rows if row.arm in wanted])

    def score(self, row: Observation) -> float:
        """A run's value, failures scored. Raises UsageError where nothing says what a failure counts, or above MAX_VALUE."""
        value = row.value if row.state == "scored" else self.failure_score
        seed = "" if row.seed is None else f", seed {row.seed}"
        where = row.run_id or f"{row.arm!r}, task {row.task!r}{seed}"
        if value is None:
            raise UsageError(
                f"run {where} failed, and nothing says what a failure counts: set analysis.failure_score or "
                "analysis.bounds (or --failure-score). A mean over the survivors would answer another question"
            )
        if not abs(value) <= MAX_VALUE:
            raise UsageError(f"{where}: {self.metric} is {value}, and no mean and spread can be computed from it")
        return value


def state_of(status: str, value: object) -> tuple[State, float]:
    """What a run's status and value amount to. A value that is NaN, or absent from a run that succeeded, is a failure.

    An empty status (a table that does not say) is read from the value: absent means missing.
    """
    if status == "succeeded" or (status == "" and value is not None):
        if is_number(value) and not math.isnan(value):  # type: ignore[arg-type]
            return "scored", float(value)  # type: ignore[arg-type]
        return "failed", math.nan
    return ("failed" if status in FAILED else "missing"), math.nan


def observe(results: Results, metric: str, analysis: Analysis | None = None) -> Observations:
    """One metric of every run of `results`, judged by `analysis` (default: as declared).

    A summary reduces a series to one number; a metric that is only known by step gets the results' default summary.
    Raises UsageError when no run reports the metric, or when a summary is asked of a metric without steps.
    """
    analysis = analysis or results.analysis.about(metric)
    results, notes = _where_it_applies(results, metric)
    scalar = any(is_number(row.metrics.get(metric)) for row in results.rows)
    if analysis.summary is None and not scalar and results.series_summary and metric in results.logged:
        analysis = analysis.model_copy(update={"summary": results.series_summary})
    values: Mapping[int, object]
    notes += [*results.notes, *unmatched(analysis.matched, results.rows)]
    notes += _both_kinds(metric, results, analysis.summary is not None)
    if analysis.summary is not None:
        if scalar and metric not in results.logged:
            raise UsageError(
                f"{metric!r} is one number for each run, so there is no series to summarise; leave the summary out"
            )
        # How far a failed run came is not a score, and its early end is not a horizon.
        curves = {
            number: row.series[metric]
            for number, row in enumerate(results.rows)
            if row.status in ("succeeded", "") and metric in row.series
        }
        names = {number: results.rows[number].name for number in curves}
        values = reduce_all(curves, analysis.summary, analysis.direction != "minimize", names)
        # An arm whose runs all logged a single value, such as a model before training, has no horizon.
        steppers = {results.rows[number].arm for number, (steps, _) in curves.items() if len(steps) > 1}
        notes += unequal_lengths(metric, [c for number, c in curves.items() if results.rows[number].arm in steppers])
    else:
        values = {number: row.metrics.get(metric) for number, row in enumerate(results.rows)}
    rows = []
    for number, row in enumerate(results.rows):
        state, value = state_of(row.status, values.get(number))
        rows.append(Observation(row.arm, row.task, row.seed, row.rollout, state, value, row.run_id, row.stage))
    scored = [row for row in rows if row.state == "scored"]
    notes += [*doubts(metric, scored), *always_first(results.rows)]
    if analysis.copies != "keep" and results.declared is None:
        notes += copies(results.rows, metric, scored)
    reported = any(value is not None for value in values.values())
    # Nothing is reported yet where all planned runs of an edition are still open; anywhere else the name is wrong.
    waiting = bool(results.editions()) and all(row.state == "missing" for row in rows)
    if rows and not reported and not waiting:
        if analysis.summary is None and metric in results.logged:
            raise UsageError(
                f"{results.label}: runs log {metric!r} by step only; --summary final (or [analysis.summary]) makes one "
                "number of it"
            )
        how = " as a series, which a summary needs" if analysis.summary is not None else ""
        raise UsageError(f"{results.label}: no run reports {metric!r}{how}; {results.known_metrics()}")
    return Observations(
        metric, rows, analysis, results.label, results.final, results.fixed_tasks, tuple(dict.fromkeys(notes)),
        results.looks, results.declared, caveats_of(results.rows, metric), results.groups, results.repeats,
    )  # fmt: skip


def _where_it_applies(results: Results, metric: str) -> tuple[Results, list[str]]:
    """Leave out groups of tasks that report other metrics and never this one: its absence there is no failure.

    Raises UsageError where one arm's runs of a group are scored by this metric and another's by other metrics.
    """
    if all(row.group is None for row in results.rows):
        return results, []
    having, others = set[str | None](), set[str | None]()
    scored_by: dict[tuple[str, str | None], set[str]] = {}
    for row in results.rows:
        if row.metrics or row.series:
            (having if row.has(metric) else others).add(row.group)
        if row.status == "succeeded":
            scored_by.setdefault((row.arm, row.group), set()).update(row.metrics, row.series)
    for (arm, group), names in scored_by.items():
        if group in having and names and metric not in names:
            raise UsageError(
                f"{results.label}: {arm!r} has no {metric!r} on {group}, but {', '.join(sorted(names)[:MOST_NAMED])}; arms "
                "have to be scored alike"
            )
    lacking = sorted(str(group) for group in others - having if group is not None) if having else []
    if not lacking:
        return results, []
    rows = [row for row in results.rows if row.group not in lacking]
    left_out = f"{len(results.rows) - len(rows)} runs of {', '.join(lacking[:5])}{' ...' if len(lacking) > 5 else ''}"
    return replace(results, rows=rows), [f"{left_out} report other metrics than {metric} and are left out"]


def _both_kinds(metric: str, results: Results, summarised: bool) -> list[str]:
    """A note where a metric is a number of the run and a series that ends otherwise. Raises UsageError where runs have different ones."""
    some_number = some_series = differ = False
    unusable: Row | None = None
    for row in results.rows:  # once, because a series is read from its block when it is asked for
        value = row.metrics.get(metric)
        number = is_number(value)
        if number and differ and not summarised:
            continue  # nothing more to learn from its series, which takes a while to read
        curve = row.series.get(metric)
        logged = curve is not None
        some_number |= number
        some_series |= logged
        has, has_other = (logged, number) if summarised else (number, logged)
        if has_other and not has and unusable is None and row.status in ("succeeded", ""):
            unusable = row
        if number and curve is not None and len(curve[1]) and not differ:
            differ = not math.isclose(float(curve[1][-1]), float(value or 0.0))
    if not some_number or not some_series:
        return []
    if unusable is not None:
        kinds = ("number", "a series") if summarised else ("series", "one number")
        fix = "name one of the two otherwise" if summarised else "say how the series becomes a number (--summary)"
        raise UsageError(
            f"{unusable.name} has {metric!r} only as a {kinds[0]}, and other runs have it as {kinds[1]}; {fix}"
        )
    # A run that repeats the end of its series as a number means one thing by both, and a summary has chosen.
    if summarised or not differ:
        return []
    return [
        f"{metric} is a series and another number of the run; the number counts here, and a summary takes the series"
    ]


def unmatched(names: Sequence[str] | Mapping[str, float], rows: Sequence[Row]) -> list[str]:
    """One sentence for each parameter or metric that must be equal between arms and is not, or that no run has.

    A mapping gives the share by which the arms' means may differ.
    """
    sentences = []
    for name in names:
        tolerance = names[name] if isinstance(names, Mapping) else 0.0
        by_arm: dict[str, list[Any]] = {}
        for row in rows:
            value = row.metrics.get(name, row.params.get(name))
            if value is not None:
                by_arm.setdefault(row.arm, []).append(value)
        if not by_arm:
            sentences.append(f"{name} must be matched between arms, but no run has it")
            continue
        if tolerance and all(is_number(value) for values in by_arm.values() for value in values):
            means = [float(np.mean(values)) for values in by_arm.values()]
            if max(means) - min(means) <= tolerance * max(map(abs, means)):
                continue
        elif len({frozenset(map(str, values)) for values in by_arm.values()}) == 1:
            continue
        values = ", ".join(f"{arm} {'/'.join(sorted(set(map(str, values)))[:3])}" for arm, values in by_arm.items())
        within = f" within {100 * tolerance:g} %" if tolerance else ""
        sentences.append(f"not a fair comparison: {name} must be matched between arms{within}, and is not ({values})")
    return sentences


def caveats_of(rows: Sequence[Row], metric: str) -> Caveats:
    """What limits a metric of these runs."""
    reported: dict[str, None] = {}
    sums: dict[str, tuple[float, float]] = {}
    uncached: dict[str, float] = {}
    part, full = f"{metric}{ESTIMATED}", f"{metric}{UNCACHED}"
    for row in rows:
        if is_self_reported(row.metrics, metric):
            reported[row.arm] = None
        value, guessed = row.metrics.get(metric), row.metrics.get(part)
        total, estimated = sums.get(row.arm, (0.0, 0.0))
        total += float(value) if is_number(value) else 0.0  # type: ignore[arg-type]
        estimated += float(guessed) if is_number(guessed) else 0.0  # type: ignore[arg-type]
        sums[row.arm] = (total, estimated)
        if is_number(value):
            without = row.metrics.get(full)
            uncached[row.arm] = uncached.get(row.arm, 0.0) + float(without if is_number(without) else value)  # type: ignore[arg-type]
    saved = {arm: 1.0 - sums[arm][0] / whole for arm, whole in uncached.items() if whole > 0}
    shares = {arm: min(1.0, guess / total) for arm, (total, guess) in sums.items() if guess > 0 and total > 0}
    return Caveats(tuple(reported), shares, saved if any(saved.values()) else {})


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def unequal_lengths(metric: str, curves: Iterable[Series]) -> list[str]:
    """A run that ended early is averaged over the part that it survived, which deserves a note."""
    ends = [float(np.max(steps)) for steps, _ in curves if len(steps)]
    if not ends or min(ends) >= SHORT * max(ends):
        return []
    return [
        f"runs end at unequal steps ({min(ends):g} to {max(ends):g}), so {metric} covers different stretches; "
        "--window '0..N' compares the same steps"
    ]
