"""Which figures there are: each kind of `bakeoff plot` from results, and the pictures of a report's front page.

    figure = draw("curves", results, Plot(metric="reward"))

Numbers come from the same answers as the verbs'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.results.table import Results
from bakeoff.stats import curves as series
from bakeoff.stats.bootstrap import bootstrap
from bakeoff.stats.resample import mean_distribution
from bakeoff.stats.sequential import LEAST_PLANNED
from bakeoff.text import format_level
from bakeoff.verdicts.answer import answer, observe_metric
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.observations import Observations, observe
from bakeoff.verdicts.question import Compare, Plot, Power, Rank
from bakeoff.verdicts.questions.compare import CompareAnswer
from bakeoff.verdicts.questions.variance import draw_sample, precision
from bakeoff.verdicts.ranking_table import Standings
from bakeoff.verdicts.sequential import evidence_path
from bakeoff.web import arms as of_arms
from bakeoff.web import comparisons as of_comparisons
from bakeoff.web.arms import Axis, Curve, Lane, Point
from bakeoff.web.comparisons import Differences, Effect, Resampled
from bakeoff.web.contents import Ablations, Contents, is_finite_number
from bakeoff.web.drawing import NoPicture, Picture, page_element
from bakeoff.web.figure import INK, Band, Figure, Line, Mark, Panel

MOST_PANELS = 12


def draw(kind: str, results: Results, plot: Plot) -> Figure:
    """The figure of that kind, a key of KINDS. Raises UsageError when the results have nothing of the kind."""
    for noun, names, known in (("arm", plot.arms, results.arms), ("task", plot.only_tasks, results.tasks)):
        for name in names:
            if name not in known:
                raise UsageError(f"no {noun} called {name!r}; there are {', '.join(known)}")
    if plot.only_tasks:
        results = replace(results, rows=[row for row in results.rows if row.task in plot.only_tasks])
    return KINDS[kind](results, plot)


def _directions(plot: Plot) -> Plot:
    """Only what the question says about directions: everything else is as declared."""
    return Plot.ask(
        direction=[*([plot.direction] if plot.direction else []), *(f"{m}={d}" for m, d in plot.directions.items())]
    )


def _curves(results: Results, plot: Plot) -> Figure:
    """Learning curves: the metric by step. Rollouts are averaged first: they are not units."""
    logged = results.logged
    if not logged:
        raise UsageError("no run logged anything by step")
    named = plot.metric or results.analysis.metric
    metric = named or logged[0]
    if metric not in logged:
        raise UsageError(f"no series called {metric!r}; there are {', '.join(logged[:20])}. Name one with --metric")
    choice = (
        ""
        if named or len(logged) == 1
        else f" {metric} is the first of {len(logged)} logged metrics; --metric names another."
    )
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
        task: {
            arm: [of_arms.mean_over_rollouts(rollouts) for rollouts in seeds.values()] for arm, seeds in arms.items()
        }
        for task, arms in runs.items()
    }
    return of_arms.learning_curves(tasks, metric, source=f"{results.label}.{choice}", level=plot.level)


def _compare(results: Results, plot: Plot) -> CompareAnswer:
    """The comparisons that a picture of differences shows."""
    control = plot.control or results.analysis.control or results.arms[0]
    arms = tuple(arm for arm in plot.arms if arm != control)
    return answer(results, Compare.ask(metric=plot.metric, control=control, arms=arms), verb="plot")


def _differences(results: Results, plot: Plot) -> Figure:
    """Paired differences: one dot for each unit, the effect and its interval."""
    if results.edition is None or not results.is_sequential:
        verdict = _compare(results, plot)
        pairs = _pairs(verdict, verdict.comparisons)
        return of_comparisons.paired_differences(pairs, source=f"{results.label}.")
    report = evidence_path.report(results, plot.metrics[:1], plot)
    if not report.pairs:
        raise UsageError("no pair has ended yet")
    shown = []
    for each in report.comparisons:
        assert each.interval is not None and each.evidence_path is not None
        level = f"{format_level(each.interval.level)} confidence sequence, {each.decision.method}"
        seeds = tuple(str(seed) for seed in each.evidence_path.seeds)
        shown.append(
            Differences(
                each.metric, each.control, each.candidate, "seed", seeds, each.evidence_path.differences, each.effect or 0.0,
                each.interval, level, each.verdict, report.analysis.margin,
            )
        )  # fmt: skip
    return of_comparisons.paired_differences(shown, source=f"{results.label}.")


def _pairs(verdict: CompareAnswer, comparisons: Sequence[Comparison]) -> list[Differences]:
    """The pairs behind comparisons, B - A in the metric's own direction, and the intervals that decided.

    Pairs of which an arm is missing are left out. Raises UsageError where arms share no seeds, or no pair is left.
    """
    margins = {observations.metric: observations.analysis.margin for observations in verdict.observations}
    differences = []
    for comparison in comparisons:
        assert comparison.design is not None
        about = (comparison.metric, comparison.control, comparison.candidate)
        if not comparison.design.paired:
            raise UsageError(f"{about[2]} and {about[1]} share no seeds, so there are no pairs to draw")
        design = comparison.design.without_missing()
        parts = [design.sign * (y - x).ravel() for x, y in zip(*design.arrays(), strict=True)]
        if not any(part.size for part in parts):
            raise UsageError(f"no pair of {about[2]} and {about[1]} is known")
        unit, names = design.named_pairs()
        values = np.concatenate(parts)
        interval = comparison.deciding_interval
        kind = f"{format_level(interval.level)} interval, {comparison.decision.method}" if interval else "no interval"
        mean, margin = float(values.mean()), margins[comparison.metric]
        differences.append(Differences(*about, unit, names, values, mean, interval, kind, comparison.verdict, margin))
    return differences


def _bootstrap(results: Results, plot: Plot) -> Figure:
    """Bootstrap distribution of the mean difference."""
    if results.edition is not None and results.is_sequential:
        raise UsageError(
            "a bootstrap needs a fixed number of runs, and this edition stopped when it saw its results; see `plot differences`"
        )
    verdict = _compare(results, plot)
    if any(each.design is None or not each.design.one_pair_a_unit for each in verdict.comparisons):
        raise UsageError("the bootstrap is drawn where one unit is one pair: a seed, or a task; see `plot differences`")
    shown = []
    for pairs in _pairs(verdict, verdict.comparisons):
        if pairs.values.size < 2:
            raise UsageError(f"one {pairs.unit} cannot be resampled")
        interval = bootstrap(pairs.values, method=plot.method, resamples=plot.resamples, level=plot.level)
        shown.append(Resampled(pairs, mean_distribution(pairs.values, plot.resamples), interval))
    return of_comparisons.bootstrap_distribution(shown, source=f"{results.label}.")


def _variance(results: Results, plot: Plot) -> Figure:
    """Precision of each arm's mean against the number of units."""
    observations = observe_metric(results, plot.metric or results.primary()[0], _directions(plot))
    alpha = observations.analysis.alpha
    try:
        precisions = [
            precision(draw_sample(observations, arm), observations.metric, alpha=alpha, level=plot.level)
            for arm in (plot.arms or observations.arms)
        ]
    except ValueError as error:
        raise UsageError(str(error)) from error
    return of_comparisons.precision_by_units(precisions)


def _power(results: Results, plot: Plot) -> Figure:
    """Chance to detect an effect against the number of units."""
    effect = plot.effect or results.analysis.margin
    candidate = next(iter(plot.arms), None)
    question = Power.ask(metric=plot.metric, control=plot.control, candidate=candidate, effect=effect)
    planned = answer(results, question)
    if planned.plan is None:
        raise UsageError(str(planned.numbers["reason"]))
    return of_comparisons.power_by_units(planned.plan)


def _profiles(results: Results, plot: Plot) -> Figure:
    """Performance profiles of all arms."""
    question = Rank.ask(metric=plot.metric, arms=plot.arms, level=plot.level)
    return of_arms.profiles(answer(results, question).ranking)


def _radial(results: Results, plot: Plot) -> Figure:
    """Arms over tasks, or over metrics, around a circle, with the table."""
    observed = [
        observe_metric(results, metric, _directions(plot)) for metric in (plot.metrics or results.primary()[:1])
    ]
    arms = list(plot.arms) or observed[0].arms
    for observations in observed:
        reporting = {row.arm for row in observations.rows if row.state == "scored"}
        if silent := [arm for arm in arms if arm not in reporting]:
            raise UsageError(
                f"no run of {silent[0]!r} reports {observations.metric!r}, so it has no place on that axis; leave out the "
                "metric or the arm"
            )
    axes = [
        _axis(observations, task, arms, len(observed) > 1) for observations in observed for task in observations.tasks
    ]
    if len(axes) < 3:
        raise UsageError(
            f"a circle needs three axes or more, and there are {len(axes)}: give --metric three times or run more tasks"
        )
    what = observed[0].metric if len(observed) == 1 else f"{len(observed)} metrics"
    over = f" over {len(observed[0].tasks)} tasks" if len(observed[0].tasks) > 1 else ""
    title = f"{what}{over}: {of_arms.versus(arms)}"
    return of_arms.radial(arms, axes, title=title, source=f"{results.label}.", level=plot.level)


def _axis(observations: Observations, task: str, arms: list[str], by_metric: bool) -> Axis:
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
    return Axis(name, tuple(values), observations.larger_is_better, bounds)


def _e_process(results: Results, plot: Plot) -> Figure:
    """Evidence of a sequential test, pair by pair."""
    report = evidence_path.report(results, plot.metrics, plot)
    if not report.pairs:
        raise UsageError(f"no pair has ended yet; {LEAST_PLANNED} or more are needed to decide anything")
    return of_comparisons.e_process(report)


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


# -- pictures of a report's front page

MOST_DRAWN_ARMS = 40
MOST_POINTS = 6_000
"""Of all curves in one figure."""
_COLOURS = {"better": 2, "worse": 1, "equivalent": 0, "undecided": INK}
"""Verdicts in the palette: green, vermilion, blue, ink."""


def pictures(contents: Contents, section: str) -> list[Picture | NoPicture]:
    """Every picture of a section of the front page, or the reason why there is none."""
    drawn: list[Picture | NoPicture] = []
    for slug, make in _planned(contents, section):
        try:
            drawn.append(page_element(slim(make()), slug))
        except BakeoffError as error:
            drawn.append(NoPicture(slug, str(error)))
    return drawn


def slim(figure: Figure) -> Figure:
    """Curves with fewer points where many of them would make the page heavy; their ends stay."""
    curves = [m for p in figure.panels if isinstance(p, Panel) for m in p.marks if isinstance(m, Line | Band)]
    stride = -(-sum(mark.x.size for mark in curves) // MOST_POINTS)
    if stride < 2:
        return figure
    panels = []
    for panel in figure.panels:
        if isinstance(panel, Panel):
            marks: list[Mark] = []
            for mark in panel.marks:
                if isinstance(mark, Line | Band) and mark.x.size >= 12:
                    kept = np.unique(np.append(np.arange(0, mark.x.size, stride), mark.x.size - 1))
                    if isinstance(mark, Line):
                        mark = replace(mark, x=mark.x[kept], y=mark.y[kept])
                    else:
                        mark = replace(mark, x=mark.x[kept], low=mark.low[kept], high=mark.high[kept])
                marks.append(mark)
            panel = replace(panel, marks=tuple(marks))
        panels.append(panel)
    return replace(figure, panels=panels)


def _planned(contents: Contents, section: str) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Slug, and the function that makes the figure. It raises BakeoffError where there is nothing to draw."""
    verdict, main = contents.verdict, contents.main
    if section == "forest" and isinstance(verdict, CompareAnswer):
        for standing in verdict.standings:
            if any(line.effect is not None for line in standing.lines):
                yield f"effects-{standing.metric}", partial(_effects, contents, standing)
        if verdict.sequential is not None and verdict.sequential.pairs and verdict.sequential.race is None:
            yield "narrowing", partial(of_comparisons.narrowing, verdict.sequential)
    if section == "pairs" and isinstance(verdict, CompareAnswer) and verdict.sequential is not None:
        if verdict.sequential.pairs:
            yield "e-process", partial(of_comparisons.e_process, verdict.sequential)
            yield "differences", partial(draw, "differences", contents.results, Plot())
    elif section == "pairs" and isinstance(verdict, CompareAnswer):
        for observations in verdict.observations:
            make = partial(_verdict_pairs, contents, verdict, observations.metric)
            yield f"differences-{observations.metric}", make
    if section == "values":
        for metric in main[:3]:
            yield f"distribution-{metric}", partial(_distribution, contents, metric)
    if section == "cost" and contents.cost_metric and main:
        yield "cost-quality", partial(_cost, contents, contents.cost_metric, main[0])
    if section == "ablations":
        for group in contents.ablations[:3]:
            if any(delta.line.effect is not None for delta in group.deltas):
                yield f"ablations-{group.metric}", partial(_ablation_effects, contents, group)


def _effects(contents: Contents, standing: Standings) -> Figure:
    """The lines of the ranked table, in its order."""
    lines = [line for line in standing.lines if line.effect is not None]
    effects = [
        Effect(
            line.arm, line.effect or 0.0, line.interval, _COLOURS[line.verdict],
            "" if line.verdict == "undecided" else line.verdict,
        )
        for line in lines[:MOST_DRAWN_ARMS]
    ]  # fmt: skip
    kind = "confidence sequences" if standing.sequential else "the intervals that decided"
    better = "right" if standing.larger_is_better else "left"
    left = f" The first {MOST_DRAWN_ARMS} of {len(lines)} arms." if len(lines) > MOST_DRAWN_ARMS else ""
    caption = (
        f"Effect of each arm against {standing.control}, best first. Lines: {kind}. Better is to the {better}.{left} "
        f"{contents.label}."
    )
    unit = f" ({standing.unit})" if standing.unit else ""
    title = f"{standing.metric}: effects against {standing.control}"
    return of_comparisons.forest(
        [("", effects)], f"arm minus control{unit}", title, caption, span=standing.span()
    )  # fmt: skip


def _verdict_pairs(contents: Contents, verdict: CompareAnswer, metric: str) -> Figure:
    """Ablations have pictures of their own when there is little room."""
    comparisons = [each for each in verdict.comparisons if each.metric == metric]
    if len(comparisons) > 4:
        comparisons = [each for each in comparisons if each.candidate not in contents.ablated] or comparisons
    pairs = _pairs(verdict, comparisons[:MOST_PANELS])
    return of_comparisons.paired_differences(pairs, source=f"{contents.label}.")


def _distribution(contents: Contents, metric: str) -> Figure:
    observations = observe(contents.results, metric)
    arms = contents.arms if len(contents.arms) <= MOST_DRAWN_ARMS else contents.base_arms[:MOST_DRAWN_ARMS]
    states: dict[tuple[str, str], list[str]] = {}
    scores: dict[tuple[str, str], list[float]] = {}
    for row in observations.rows:
        states.setdefault((row.task, row.arm), []).append(row.state)
        if row.state == "scored" and np.isfinite(row.value):
            scores.setdefault((row.task, row.arm), []).append(row.value)
    tasks: dict[str, list[Lane]] = {task: [] for task in observations.tasks[:MOST_PANELS]}
    for task, lanes in tasks.items():
        for arm in arms:
            if (task, arm) in states:
                values, ended = np.array(scores.get((task, arm), [])), states[task, arm]
                low, high = of_arms.t_interval(values)
                lost = ended.count("failed"), ended.count("missing")
                lanes.append(Lane(arm, values, low, high, *lost, contents.colour(arm)))
    return of_arms.distribution(tasks, metric, source=f"{contents.label}.")


def _cost(contents: Contents, cost: str, metric: str) -> Figure:
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in contents.runs:
        price, value = run.metrics.get(cost), run.metrics.get(metric)
        if run.status == "succeeded" and is_finite_number(price) and is_finite_number(value):
            pairs.setdefault((run.task, run.arm), []).append((float(price), float(value)))  # type: ignore[arg-type]
    tasks: dict[str, list[Point]] = {}
    for task in contents.tasks[:MOST_PANELS]:
        for arm in contents.base_arms:  # names stand beside the dots, and those of ablations would lie on each other
            if (task, arm) in pairs:
                prices, values = np.array(pairs[task, arm]).T
                tasks.setdefault(task, []).append(Point(arm, prices, values, contents.colour(arm)))
    larger = contents.analysis.about(metric).direction != "minimize"
    return of_arms.cost_against_quality(tasks, cost, metric, larger_is_better=larger, source=f"{contents.label}.")


def _ablation_effects(contents: Contents, ablations: Ablations) -> Figure:
    """One panel for each base arm."""
    by_base: dict[str, list[Effect]] = {}
    for delta in ablations.deltas:
        if delta.line.effect is not None:
            note = "changes nothing" if delta.same else ""
            effect = Effect(delta.ablation, delta.line.effect, delta.line.interval, contents.colour(delta.base), note)
            by_base.setdefault(delta.base, []).append(effect)
    caption = (
        "What each ablation changes against its own base arm, paired over what both were run on. Lines: 95 % "
        f"intervals, each on its own. {contents.label}."
    )
    title = f"Ablations: change of {ablations.metric} against the base arm"
    groups = list(by_base.items())[:MOST_PANELS]
    return of_comparisons.forest(groups, f"change of {ablations.metric}", title, caption)
