"""Each kind of plot from results: what `bakeoff plot KIND` draws. Numbers come from the same answers as the verbs'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array, Results
from bakeoff.stats import curves as series
from bakeoff.stats.bootstrap import bootstrap
from bakeoff.stats.resample import mean_distribution
from bakeoff.stats.sequential import LEAST_PLANNED
from bakeoff.verdicts import sequential
from bakeoff.verdicts.answer import answer, is_sequential, observe_metric
from bakeoff.verdicts.compare import Comparison
from bakeoff.verdicts.design import ONE_PAIR_A_UNIT
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Compare, Plot, Power, Rank
from bakeoff.verdicts.testing import sides
from bakeoff.verdicts.variance import draw_sample, precision
from bakeoff.web import arms as arm_pictures
from bakeoff.web import comparisons, planning, ranking
from bakeoff.web.arms import Curve
from bakeoff.web.comparisons import Differences, Resampled
from bakeoff.web.figure import Figure

MOST_PANELS = 12


def draw(kind: str, results: Results, plot: Plot) -> Figure:
    """The figure of that kind. Raises UsageError when the results have nothing of the kind."""
    for arm in plot.arms:
        if arm not in results.arms:
            raise UsageError(f"no arm called {arm!r}; there are {', '.join(results.arms)}")
    for task in plot.only_tasks:
        if task not in results.tasks:
            raise UsageError(f"no task called {task!r}; there are {', '.join(results.tasks)}")
    if plot.only_tasks:
        results = replace(results, rows=[row for row in results.rows if row.task in plot.only_tasks])
    return KINDS[kind](results, plot)


def _curves(results: Results, plot: Plot) -> Figure:
    """Learning curves: the metric by step. Rollouts are averaged first: they are not units."""
    logged = results.logged
    metric = plot.metric or results.analysis.metric or (logged[0] if len(logged) == 1 else None)
    if metric not in logged:
        known = f"there are {', '.join(logged[:20])}" if logged else "no run logged anything by step"
        raise UsageError(f"no series called {metric!r}; {known}. Name one with --metric")
    runs: dict[str, dict[str, dict[int | None, list[Curve]]]] = {}
    for row in results.rows:
        if metric in row.series and (not plot.arms or row.arm in plot.arms):
            steps, values = row.series[metric]
            if np.isfinite(values).all():
                seeds = runs.setdefault(row.task, {}).setdefault(row.arm, {})
                seeds.setdefault(row.seed, []).append(series.series(steps, values))
    if not runs:
        raise UsageError(f"no run of the arms and tasks that were asked for logged {metric!r}")
    if len(runs) > MOST_PANELS:
        raise UsageError(f"{len(runs)} tasks are too many panels; name some with --task")
    tasks = {
        task: {arm: [_over_rollouts(curves) for curves in seeds.values()] for arm, seeds in arms.items()}
        for task, arms in runs.items()
    }
    return arm_pictures.learning_curves(tasks, metric, source=f"{results.label}.", level=plot.level)


def _over_rollouts(curves: list[Curve]) -> Curve:
    if len(curves) == 1:
        return curves[0]
    grid, values = series.common_grid(curves)
    return grid, np.asarray(values.mean(axis=0))


def _compared(results: Results, plot: Plot) -> list[tuple[Comparison, Observations]]:
    """The comparisons that a picture of differences shows, with what was observed."""
    control = plot.control or results.analysis.control or results.arms[0]
    question = Compare.ask(
        metric=plot.metric, control=control, arms=tuple(arm for arm in plot.arms if arm != control)
    )  # fmt: skip
    verdict = answer(results, question)
    by_metric = {observations.metric: observations for observations in verdict.observations}
    return [(comparison, by_metric[comparison.metric]) for comparison in verdict.comparisons]


def _differences(results: Results, plot: Plot) -> Figure:
    """Paired differences: one dot for each unit, the effect and its interval."""
    if results.edition is None or not is_sequential(results.edition):
        pairs = [of_comparison(*each) for each in _compared(results, plot)]
        return comparisons.paired_differences(pairs, source=f"{results.label}.")
    report = sequential.report(results, plot.metrics[:1], plot)
    if not report.pairs:
        raise UsageError("no pair has ended yet")
    shown = []
    for each in report.comparisons:
        level = f"{100 * each.interval.level:.4g} % confidence sequence, {each.test}"
        seeds = tuple(str(seed) for seed in each.seeds)
        shown.append(
            Differences(
                each.metric, each.control, each.candidate, "seed", seeds, each.differences, each.effect or 0.0,
                each.interval, level, each.verdict, report.analysis.margin,
            )
        )  # fmt: skip
    return comparisons.paired_differences(shown, source=f"{results.label}.")


def of_comparison(comparison: Comparison, observations: Observations) -> Differences:
    """The pairs behind a verdict, and the interval that decided it."""
    unit, names, values = _pairs(comparison)
    interval = comparison.deciding_interval
    kind = f"{100 * interval.level:.4g} % interval, {comparison.decision.method}" if interval else "no interval"
    return Differences(
        comparison.metric, comparison.control, comparison.candidate, unit, names, values, float(values.mean()), interval,
        kind, comparison.verdict, observations.analysis.margin,
    )  # fmt: skip


def _pairs(comparison: Comparison) -> tuple[str, tuple[str, ...], Array]:
    """(unit, names, B - A) where both arms are known, in the metric's own direction."""
    assert comparison.design is not None
    if not comparison.design.paired:
        raise UsageError(
            f"{comparison.candidate} and {comparison.control} share no seeds, so there are no pairs to draw"
        )
    design = comparison.design.without_missing()
    a, b = sides(design)
    parts = [design.sign * (y - x).ravel() for x, y in zip(a, b, strict=True)]
    if not any(part.size for part in parts):
        raise UsageError(f"no pair of {comparison.candidate} and {comparison.control} is known")
    values = np.concatenate(parts)
    match design.kind:
        case "tasks":
            return "task", design.tasks, values
        case "seeds":
            return "seed", tuple(str(seed) for _, seed in design.control), values
        case "seeds over tasks":
            return "seed", tuple(str(seed) for seed in design.seeds), values
        case _:
            places = [(task, seed) for task in design.tasks for seed in design.seeds if (task, seed) in design.control]
            return "seed on a task", tuple(f"{task}, seed {seed}" for task, seed in places), values


def _bootstrap(results: Results, plot: Plot) -> Figure:
    """Bootstrap distribution of the mean difference."""
    if results.edition is not None and is_sequential(results.edition):
        raise UsageError(
            "a bootstrap needs a fixed number of runs, and this edition stopped when it saw its results; see `plot differences`"
        )
    shown = []
    for comparison, _ in _compared(results, plot):
        assert comparison.design is not None
        if comparison.design.kind not in ONE_PAIR_A_UNIT:
            raise UsageError(
                "the bootstrap is drawn where one unit is one pair: a seed, or a task; see `plot differences`"
            )
        unit, _, values = _pairs(comparison)
        if values.size < 2:
            raise UsageError(f"one {unit} cannot be resampled")
        interval = bootstrap(values, method=plot.method, resamples=plot.resamples, level=plot.level)
        samples = mean_distribution(values, plot.resamples)
        shown.append(
            Resampled(
                comparison.metric, comparison.control, comparison.candidate, samples, float(values.mean()), interval.low,
                interval.high, plot.level, f"{plot.method} bootstrap", f"{values.size} {unit}s",
            )
        )  # fmt: skip
    return comparisons.bootstrap_distribution(shown, source=f"{results.label}.")


def _observe(results: Results, plot: Plot, metric: str | None = None) -> Observations:
    return observe_metric(results, metric or plot.metric or results.primary()[0], Plot())


def _variance(results: Results, plot: Plot) -> Figure:
    """Precision of each arm's mean against the number of units."""
    observations = _observe(results, plot)
    try:
        precisions = [
            precision(
                draw_sample(observations, arm),
                observations.metric,
                alpha=observations.analysis.alpha,
                level=plot.level,
            )
            for arm in (plot.arms or observations.arms)
        ]
    except ValueError as error:
        raise UsageError(str(error)) from error
    return planning.variance(precisions)


def _power(results: Results, plot: Plot) -> Figure:
    """Chance to detect an effect against the number of units."""
    effect = plot.effect or results.analysis.margin
    question = Power.ask(
        metric=plot.metric, control=plot.control, candidate=next(iter(plot.arms), None), effect=effect
    )  # fmt: skip
    plan = answer(results, question)
    if plan.plan is None:
        raise UsageError(str(plan.numbers["reason"]))
    return planning.power(plan.plan)


def _profiles(results: Results, plot: Plot) -> Figure:
    """Performance profiles of all arms."""
    question = Rank.ask(metric=plot.metric, arms=plot.arms, level=plot.level)
    return ranking.profiles(answer(results, question).ranking)


def _radial(results: Results, plot: Plot) -> Figure:
    """Arms over tasks, or over metrics, around a circle, with the table."""
    observed = [_observe(results, plot, metric) for metric in (plot.metrics or (None,))]
    arms = list(plot.arms) or observed[0].arms
    axes = [
        _axis(observations, task, arms, len(observed) > 1) for observations in observed for task in observations.tasks
    ]
    if len(axes) < 3:
        raise UsageError(
            f"a circle needs three axes or more, and there are {len(axes)}: give --metric three times or run more tasks"
        )
    what = observed[0].metric if len(observed) == 1 else f"{len(observed)} metrics"
    over = f" over {len(observed[0].tasks)} tasks" if len(observed[0].tasks) > 1 else ""
    title = f"{what}{over}: {arm_pictures.versus(arms)}"
    return ranking.radial(arms, axes, title=title, source=f"{results.label}.", level=plot.level)


def _axis(observations: Observations, task: str, arms: list[str], by_metric: bool) -> ranking.Axis:
    values = []
    for arm in arms:
        by_seed: dict[int | None, list[float]] = {}
        for row in observations.rows:
            if (row.arm, row.task) == (arm, task) and row.state != "missing":
                by_seed.setdefault(row.seed, []).append(observations.score(row))
        if not by_seed:
            raise UsageError(f"{arm!r} has no value of {observations.metric} on {task!r}")
        values.append(np.array([np.mean(rollouts) for rollouts in by_seed.values()]))
    metric = observations.metric
    name = task if not by_metric else metric if len(observations.tasks) == 1 else f"{metric}, {task}"
    bounds = observations.analysis.bounds if metric == observations.analysis.metric else None
    return ranking.Axis(name, tuple(values), observations.larger_is_better, bounds)


def _e_process(results: Results, plot: Plot) -> Figure:
    """Evidence of a sequential test, pair by pair."""
    report = sequential.report(results, plot.metrics, plot)
    if not report.pairs:
        raise UsageError(f"no pair has ended yet; {LEAST_PLANNED} or more are needed to decide anything")
    return comparisons.e_process(report)


KINDS: dict[str, Callable[[Results, Plot], Figure]] = {
    "curves": _curves,
    "differences": _differences,
    "bootstrap": _bootstrap,
    "variance": _variance,
    "power": _power,
    "profiles": _profiles,
    "radial": _radial,
    "e-process": _e_process,
}
