"""Each kind of plot from an edition's results: what `bakeoff plot KIND` draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.series import read_block
from bakeoff.report import differences, evidence, learning, planning, ranking
from bakeoff.report.differences import Differences, Resampled
from bakeoff.report.figure import Array, Figure
from bakeoff.report.learning import Curve
from bakeoff.spec.experiment import Experiment
from bakeoff.stats import curves as series
from bakeoff.stats.bootstrap import bootstrap
from bakeoff.stats.resample import mean_distribution
from bakeoff.stats.sequential import LEAST_PLANNED
from bakeoff.verdicts import arrays, describe, power, rank, sample, sequential, variance
from bakeoff.verdicts.compare import Comparison, Options, choose_arms, compare
from bakeoff.verdicts.observations import Observations, from_edition
from bakeoff.verdicts.units import Design, failure_score

Method = Literal["studentized", "percentile", "bca"]
MOST_PANELS = 12


@dataclass(frozen=True, slots=True)
class Request:
    """What to draw. Empty fields mean what the experiment declares, or everything."""

    metrics: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    control: str | None = None
    level: float = 0.95
    resamples: int = 9_999
    method: Method = "studentized"
    effect: float | None = None

    @property
    def metric(self) -> str | None:
        return self.metrics[0] if self.metrics else None


def draw(kind: str, edition: Edition, request: Request) -> Figure:
    """The figure of that kind."""
    return KINDS[kind](edition, request)


def _curves(edition: Edition, asked: Request) -> Figure:
    """Learning curves: the metric by step."""
    experiment = Experiment.model_validate(edition.facts()["spec"])
    columns = {position: read_block(block) for position, block in edition.all_series()}
    logged = list(dict.fromkeys(name for found in columns.values() for name in found))
    metric = asked.metric or experiment.analysis.metric or (logged[0] if len(logged) == 1 else None)
    if metric not in logged:
        known = f"there are {', '.join(logged[:20])}" if logged else "no run logged anything by step"
        raise UsageError(f"no series called {metric!r}; {known}. Name one with --metric")
    runs: dict[str, dict[str, dict[int, list[Curve]]]] = {}
    for run in edition.runs():
        column = columns.get(run.position, {}).get(metric)
        arm, task = run.arm, run.task
        if column is None or not _wanted(arm, asked.arms) or not _wanted(task, asked.tasks):
            continue
        steps, values = column
        if np.isfinite(values).all():
            runs.setdefault(task, {}).setdefault(arm, {}).setdefault(run.seed, []).append(series.series(steps, values))
    if not runs:
        raise UsageError(f"no run of the arms and tasks that were asked for logged {metric!r}")
    if len(runs) > MOST_PANELS:
        raise UsageError(f"{len(runs)} tasks are too many panels; name some with --task")
    tasks = {
        task: {arm: [_over_rollouts(curves) for curves in seeds.values()] for arm, seeds in arms.items()}
        for task, arms in runs.items()
    }
    return learning.learning_curves(tasks, metric, source=_source(edition), level=asked.level)


def _wanted(name: str, chosen: Sequence[str]) -> bool:
    return not chosen or name in chosen


def _over_rollouts(curves: list[Curve]) -> Curve:
    """Rollouts are averaged first: they make no unit of their own."""
    if len(curves) == 1:
        return curves[0]
    grid, values = series.common_grid(curves)
    return grid, np.asarray(values.mean(axis=0))


def _observations(edition: Edition, asked: Request, metric: str | None = None) -> Observations:
    seen = from_edition(edition, metric or asked.metric)
    for name, known in ((arm, seen.arms) for arm in asked.arms):
        if name not in known:
            raise UsageError(f"no arm called {name!r}; there are {', '.join(known)}")
    rows = [row for row in seen.rows if _wanted(row.task, asked.tasks)]
    if not rows:
        raise UsageError(f"no such task; there are {', '.join(seen.tasks)}")
    return replace(seen, rows=rows)


def _options(seen: Observations, asked: Request) -> Options:
    control = asked.control or seen.analysis.control or seen.arms[0]
    return Options(control=control, candidates=[arm for arm in asked.arms if arm != control])


def _differences(edition: Edition, asked: Request) -> Figure:
    """Paired differences: one dot for each unit, the effect and its interval."""
    if sequential.applies(edition):
        return differences.paired_differences(_sequential(edition, asked), source=_source(edition))
    seen = _observations(edition, asked)
    found = [of_comparison(one, seen) for one in compare([seen], _options(seen, asked))]
    return differences.paired_differences(found, source=_source(edition))


def _sequential(edition: Edition, asked: Request) -> list[Differences]:
    found = sequential.report(edition, asked.metrics[:1], asked.control, asked.arms)
    if not found.pairs:
        raise UsageError("no pair has ended yet")
    return [
        Differences(
            one.metric, one.control, one.candidate, "seed", tuple(str(seed) for seed in one.seeds), one.differences,
            one.effect or 0.0, one.interval, f"{100 * one.interval.level:.4g} % confidence sequence, {one.test}", one.verdict,
            found.analysis.margin,
        )
        for one in found.comparisons
    ]  # fmt: skip


def of_comparison(one: Comparison, seen: Observations) -> Differences:
    """The pairs behind a verdict, and the interval that decided it."""
    unit, names, values = _pairs(one)
    interval = one.deciding_interval
    kind = f"{100 * interval.level:.4g} % interval, {one.decision.method}" if interval else "no interval"
    return Differences(
        one.metric, one.control, one.candidate, unit, names, values, float(values.mean()), interval, kind,
        one.verdict, seen.analysis.margin,
    )  # fmt: skip


def _pairs(one: Comparison) -> tuple[str, tuple[str, ...], Array]:
    """(unit, names, B - A) where both arms are known, in the metric's own direction."""
    assert one.design is not None
    if not one.design.paired:
        raise UsageError(f"{one.candidate} and {one.control} share no seeds, so there are no pairs to draw")
    design = describe.without_missing(one.design)
    a, b = arrays.sides(design)
    sign = -1.0 if design.turned else 1.0
    differences = [sign * (y - x).ravel() for x, y in zip(a, b, strict=True)]
    if not any(each.size for each in differences):
        raise UsageError("no pair has both of its runs")
    unit, names = _names(design)
    return unit, names, np.concatenate(differences)


def _names(design: Design) -> tuple[str, tuple[str, ...]]:
    match design.kind:
        case "tasks":
            return "task", design.tasks
        case "seeds":
            return "seed", tuple(str(seed) for _, seed in design.control)
        case "seeds over tasks":
            return "seed", tuple(str(seed) for seed in design.seeds)
        case _:
            places = [(task, seed) for task in design.tasks for seed in design.seeds if (task, seed) in design.control]
            return "seed on a task", tuple(f"{task}, seed {seed}" for task, seed in places)


def _bootstrap(edition: Edition, asked: Request) -> Figure:
    """Bootstrap distribution of the mean difference."""
    if sequential.applies(edition):
        raise UsageError(
            "a bootstrap needs a fixed number of runs, and this edition stopped when it saw its results; see `plot differences`"
        )
    seen = _observations(edition, asked)
    found = [_resampled(one, asked) for one in compare([seen], _options(seen, asked))]
    return differences.bootstrap_distribution(found, source=_source(edition))


def _resampled(one: Comparison, asked: Request) -> Resampled:
    assert one.design is not None
    if one.design.kind not in ("seeds", "tasks", "seeds over tasks"):
        raise UsageError("the bootstrap is drawn where one unit is one pair: a seed, or a task; see `plot differences`")
    unit, _, values = _pairs(one)
    if values.size < 2:
        raise UsageError(f"one {unit} cannot be resampled")
    interval = bootstrap(values, method=asked.method, resamples=asked.resamples, level=asked.level)
    samples = mean_distribution(values, asked.resamples)
    return Resampled(
        one.metric, one.control, one.candidate, samples, float(values.mean()), interval.low, interval.high,
        asked.level, f"{asked.method} bootstrap", f"{values.size} {unit}s",
    )  # fmt: skip


def _variance(edition: Edition, asked: Request) -> Figure:
    """Precision of each arm's mean against the number of units."""
    seen = _observations(edition, asked)
    try:
        found = [
            variance.precision(sample.draw(seen, arm), seen.metric, alpha=seen.analysis.alpha, level=asked.level)
            for arm in (asked.arms or seen.arms)
        ]
    except ValueError as error:
        raise UsageError(str(error)) from error
    return planning.variance(found)


def _power(edition: Edition, asked: Request) -> Figure:
    """Chance to find an effect against the number of units."""
    seen = _observations(edition, asked)
    control, candidates = choose_arms(seen, _options(seen, asked))
    try:
        pilot = power.pilot(seen, control, candidates[0])
    except power.NotAnswerable as error:
        raise UsageError(str(error)) from error
    goal = power.Goal(alpha=seen.analysis.alpha, effect=asked.effect or seen.analysis.margin, n=pilot.n)
    return planning.power(power.plan(pilot.spread, goal))


def _profiles(edition: Edition, asked: Request) -> Figure:
    """Performance profiles of all arms."""
    seen = _observations(edition, asked)
    seen = seen.of(asked.arms) if asked.arms else seen
    return ranking.profiles(rank.rank(seen, options=rank.Options(level=asked.level)))


def _radial(edition: Edition, asked: Request) -> Figure:
    """Arms over tasks, or over metrics, around a circle, with the table."""
    seen = [_observations(edition, asked, metric) for metric in (asked.metrics or (None,))]
    arms = list(asked.arms) or seen[0].arms
    axes = [_axis(one, task, arms, len(seen) > 1) for one in seen for task in one.tasks]
    if len(axes) < 3:
        raise UsageError(
            f"a circle needs three axes or more, and there are {len(axes)}: give --metric three times or run more tasks"
        )
    what = seen[0].metric if len(seen) == 1 else f"{len(seen)} metrics"
    over = f" over {len(seen[0].tasks)} tasks" if len(seen[0].tasks) > 1 else ""
    title = f"{what}{over}: {learning.versus(arms)}"
    return ranking.radial(arms, axes, title=title, source=_source(edition), level=asked.level)


def _axis(seen: Observations, task: str, arms: Sequence[str], by_metric: bool) -> ranking.Axis:
    values = []
    for arm in arms:
        by_seed: dict[int | None, list[float]] = {}
        for row in seen.rows:
            if (row.arm, row.task) == (arm, task) and row.state != "missing":
                value = row.value if row.state == "scored" else failure_score(seen)
                if value is None:
                    raise UsageError("a run failed, and nothing says what a failure counts: set analysis.failure_score")
                by_seed.setdefault(row.seed, []).append(value)
        if not by_seed:
            raise UsageError(f"{arm!r} has no value of {seen.metric} on {task!r}")
        values.append(np.array([np.mean(rollouts) for rollouts in by_seed.values()]))
    name = task if not by_metric else seen.metric if len(seen.tasks) == 1 else f"{seen.metric}, {task}"
    bounds = seen.analysis.bounds if seen.metric == seen.analysis.metric else None
    return ranking.Axis(name, tuple(values), seen.larger_is_better, bounds)


def _e_process(edition: Edition, asked: Request) -> Figure:
    """Evidence of a sequential test, pair by pair."""
    found = sequential.report(edition, asked.metrics, asked.control, asked.arms)
    if not found.pairs:
        raise UsageError(f"no pair has ended yet; {LEAST_PLANNED} or more are needed to decide anything")
    return evidence.e_process(found)


def _source(edition: Edition) -> str:
    return f"{edition.paths.experiment}/{edition.paths.name}."


KINDS: dict[str, Callable[[Edition, Request], Figure]] = {
    "curves": _curves,
    "differences": _differences,
    "bootstrap": _bootstrap,
    "variance": _variance,
    "power": _power,
    "profiles": _profiles,
    "radial": _radial,
    "e-process": _e_process,
}
