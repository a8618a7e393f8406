"""The report page of the gridworld: what was learnt, curves, curriculum, a replay, and what pairing by seed was worth.

The first line says whether trained arms beat the random walker, and how far they are towards the clairvoyant one. Both play
the held-out rooms of every run, so this needs no reference arm in the experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import BakeoffError
from bakeoff.results.table import Array, Row
from bakeoff.text import number, percent
from bakeoff.verdicts.answer import answer
from bakeoff.verdicts.question import Compare
from bakeoff.web.arms import Axis, Curve, curves_by_metric, mean_over_rollouts, radial, t_interval
from bakeoff.web.contents import Contents, is_finite_number
from bakeoff.web.drawing import page_element
from bakeoff.web.figure import Figure, Panel, Rule
from bakeoff.web.page import Page, WorkloadPages
from bakeoff.web.pictures import slim
from bakeoff.workloads.gridworld.levels import LEVELS
from bakeoff.workloads.gridworld.params import GridworldParams

HEARTS, SCORE = "heldout_hearts", "normalised_score"
CURVES = {HEARTS: "held-out hearts", SCORE: "normalised score", "in_context_gain": "in-context gain, hearts"}
LEVEL = "level_number"
CURRICULUM = {LEVEL: "level of the training", "curriculum_rooms": "rooms to draw from"}
UPDATES = {
    "entropy": "entropy of actions, nats",
    "kl": "KL divergence of an update",
    "clip_fraction": "clip fraction",
    "explained_variance": "explained variance",
    "value_loss": "value loss",
    "grad_norm": "norm of the gradient",
}
SPEED = "steps/s"
PLAYER = {
    f"assets/gridworld-{path.name}": path.read_text("utf-8")
    for path in sorted((Path(__file__).parent / "player").iterdir())
}
"""Script and style sheet of replays."""
MOST_LEVELS = 12
"""Levels that are drawn."""


@dataclass(frozen=True, slots=True)
class Training:
    """A run that succeeded, with its series. `level` names the task, the level or both, if the experiment has several."""

    run: Row
    params: GridworldParams
    level: str
    series: Mapping[str, Curve]

    def last(self, metric: str) -> float:
        """The last value of a series; or what the run reported; or NaN."""
        if metric == SPEED:
            steps = self.series.get("processor_s", ([0], []))[0][-1]
            return float(steps / self.reported("processor_s"))
        return float(self.series[metric][1][-1]) if metric in self.series else self.reported(metric)

    def reported(self, metric: str) -> float:
        value = self.run.metrics.get(metric)
        return float(value) if is_finite_number(value) else np.nan  # type: ignore[arg-type]

    def by_processor_time(self, metric: str) -> Curve:
        """The metric by the processor time of all updates until then."""
        steps, values = self.series[metric]
        at = np.searchsorted(self.series["processor_s"][0], steps)
        return np.cumsum(self.series["processor_s"][1])[at], values


def report_pages(contents: Contents) -> list[Page]:
    """The page `learning`; none while no run has finished."""
    runs = _trainings(contents)
    if not runs:
        return []
    trained = [run for run in runs if not run.params.is_reference]
    headline = _learnt(trained)

    def data() -> dict[str, Any]:
        return {
            "headline": headline,
            "arms": _arms(runs),
            "pictures": [page_element(slim(figure), slug) for slug, figure in _figures(contents, trained).items()],
            "replay": _replay(contents, trained),
            "pairing": _pairing(contents, trained),
        }

    template = Path(__file__).with_name("learning.html.j2")
    return [Page("Learning", "learning", template, data, headline, files=PLAYER, scripts=("gridworld-replay.js",))]


def _trainings(contents: Contents) -> list[Training]:
    """Every run that succeeded, by level and arm."""
    params = {cell.number: GridworldParams.model_validate(cell.params) for cell in contents.cells.values()}
    several = len(contents.tasks) > 1, len({each.level for each in params.values()}) > 1
    runs = []
    for run in contents.runs:
        if run.status == "succeeded" and run.series:
            names = (run.task, params[run.cell].level)
            level = ", ".join(dict.fromkeys(name for name, varies in zip(names, several, strict=True) if varies))
            series = {
                name: (steps, values) for name, (steps, values) in run.series.items() if np.isfinite(values).all()
            }
            runs.append(Training(run, params[run.cell], level, series))
    order = list(LEVELS)
    return sorted(runs, key=lambda each: (order.index(each.params.level), contents.arms.index(each.run.arm)))


def _by_arm(runs: Sequence[Training]) -> dict[str, list[Training]]:
    return {arm: [each for each in runs if each.run.arm == arm] for arm in dict.fromkeys(each.run.arm for each in runs)}


def _by_level(runs: Sequence[Training]) -> dict[str, list[Training]]:
    names = list(dict.fromkeys(each.level for each in runs))[:MOST_LEVELS]
    return {name: [each for each in runs if each.level == name] for name in names}


def _of_seeds(runs: Sequence[Training], value: Callable[[Training], float]) -> Array:
    """One value for each seed that has one: the mean of its rollouts and levels."""
    known: dict[int | None, list[float]] = {}
    for each in runs:
        if np.isfinite(value(each)):
            known.setdefault(each.run.seed, []).append(value(each))
    return np.array([np.mean(values) for values in known.values()])


# -- what was learnt


def _learnt(trained: Sequence[Training]) -> str:
    """Whether trained arms beat the random walker in the same rooms, and where they are between both walkers."""
    arms = {arm: [each for each in own if HEARTS in each.series] for arm, own in _by_arm(trained).items()}
    arms = {arm: own for arm, own in arms.items() if own}
    if not arms:
        return "No trained arm has been evaluated in held-out rooms, so it cannot be said whether anything was learnt."
    gains = [_of_seeds(own, lambda each: each.last(HEARTS) - each.reported("random_hearts")) for own in arms.values()]
    beaten = sum(t_interval(gain)[0] > 0 for gain in gains)
    if max(gain.size for gain in gains) < 3:
        text = "It takes three seeds to tell whether a trained arm beats the random walker."
    elif beaten:
        text = f"{beaten} of {len(arms)} trained arms beat the random walker on held-out hearts."
    else:
        text = "No trained arm beats the random walker on held-out hearts: differences between arms are not progress."
    scores = {arm: float(_of_seeds(own, lambda each: each.last(SCORE)).mean()) for arm, own in arms.items()}
    best = sorted(scores, key=lambda arm: -scores[arm])[:4]
    shares = ", ".join(f"{arm} {percent(scores[arm])}" for arm in best)
    return f"{text} Of the way from random to clairvoyant: {shares}."


def _arms(runs: Sequence[Training]) -> dict[str, Any]:
    """A table of all arms on each level, between the walkers that are their floor and their ceiling."""
    metrics = {
        "parameters": "parameters", "flops_per_step": "ops/step", SPEED: SPEED, HEARTS: "hearts (95 %)",
        "heldout_solved": "solved", "in_context_gain": "gain", SCORE: "score",
    }  # fmt: skip
    levels = _by_level(runs)
    rows = []
    for level, own in levels.items():
        lines = []
        for arm, theirs in _by_arm(own).items():
            policy = theirs[0].params.policy
            cells = [{"random": f"{arm} (floor)", "clairvoyant": f"{arm} (ceiling)"}.get(policy, arm)]
            cells += [level] if len(levels) > 1 else []
            cells.append(str(len({each.run.seed for each in theirs})))
            for metric in metrics:
                values = _of_seeds(theirs, lambda each, metric=metric: each.last(metric))  # type: ignore[misc]
                text = number(float(values.mean())) if values.size else "-"
                low, high = t_interval(values)
                shows_ends = metric == HEARTS and np.isfinite(low)
                cells.append(f"{text} ({number(low)} to {number(high)})" if shows_ends else text)
            lines.append((policy == "clairvoyant", policy != "random", cells))
        for is_ceiling, name in enumerate(("random", "clairvoyant")):
            if not any(each.params.policy == name for each in own):  # every run has the walkers' hearts
                hearts = _of_seeds(own, lambda each, name=name: each.reported(f"{name}_hearts"))  # type: ignore[misc]
                cells = [f"{name} ({('floor', 'ceiling')[is_ceiling]})", *([level] if len(levels) > 1 else [])]
                cells += [str(hearts.size), "-", "-", "-", number(float(hearts.mean())) if hearts.size else "-"]
                lines.append((bool(is_ceiling), bool(is_ceiling), [*cells, "-", "-", "-"]))
        rows += [cells for _, _, cells in sorted(lines, key=lambda line: line[:2])]
    headers = ["arm", *(["level"] if len(levels) > 1 else []), "seeds", *metrics.values()]
    return {"headers": headers, "rows": rows}


# -- curves


def _figures(contents: Contents, trained: Sequence[Training]) -> dict[str, Figure]:
    """By slug. Ablations are left out: they have the colour of their base."""
    runs = [each for each in trained if each.run.arm in contents.base_arms]
    clairvoyant = _of_seeds(runs, lambda each: each.reported("clairvoyant_hearts"))
    source = f"{contents.label}."
    if clairvoyant.size and len(_by_level(runs)) == 1:
        source = f"The clairvoyant walker makes {number(float(clairvoyant.mean()))} hearts. {source}"
    steps: Callable[[Training, str], Curve] = lambda each, metric: each.series[metric]  # noqa: E731
    drawn = {
        "learning-steps": _curves(contents, runs, CURVES, steps, "Learning curves by step", "step", source),
        "learning-processor": _curves(
            contents, runs, CURVES, Training.by_processor_time, "Learning curves by processor time",
            "processor seconds of training", source,
        ),
        "learning-curriculum": _curves(
            contents, [_where_it_varies(each) for each in runs], CURRICULUM, steps, "Progress of the curriculum", "step",
            f"{contents.label}.",
        ),
        "learning-levels": _radial(contents, runs),
        "learning-updates": _curves(contents, runs, UPDATES, steps, "Updates of the policy", "step", f"{contents.label}."),
    }  # fmt: skip
    return {slug: figure for slug, figure in drawn.items() if figure is not None}


def _where_it_varies(training: Training) -> Training:
    """The series of its curriculum that change at all."""
    known = {metric: training.series[metric] for metric in CURRICULUM if metric in training.series}
    return replace(training, series={metric: curve for metric, curve in known.items() if np.ptp(curve[1]) > 0})


def _curves(
    contents: Contents,
    runs: Sequence[Training],
    metrics: Mapping[str, str],
    curve: Callable[[Training, str], Curve],
    title: str,
    x_label: str,
    source: str,
) -> Figure | None:
    """One panel for each level and metric that has two values or more."""
    drawn: dict[str, dict[str, list[Curve]]] = {}
    shown = []
    for level, own in _by_level(runs).items():
        for metric, label in metrics.items():
            arms = {}
            for arm, theirs in _by_arm(own).items():
                seeds: dict[int | None, list[Curve]] = {}
                for each in theirs:
                    if metric in each.series and each.series[metric][0].size > 1:
                        seeds.setdefault(each.run.seed, []).append(curve(each, metric))
                if seeds:
                    arms[arm] = [mean_over_rollouts(rollouts) for rollouts in seeds.values()]
            if arms:
                drawn[f"{level}: {label}" if level else label] = arms
                shown.append((metric, label, own))
    if not drawn:
        return None
    colours = {arm: contents.colour(arm) for arm in contents.base_arms}
    figure = curves_by_metric(drawn, title, x_label=x_label, source=source, columns=3, colours=colours)
    panels = []
    for panel, (metric, label, own) in zip(figure.panels, shown, strict=True):
        assert isinstance(panel, Panel) and panel.y_range is not None
        low, high = panel.y_range
        panel = replace(panel, y_label=label)
        if metric == HEARTS:
            floor = float(_of_seeds(own, lambda each: each.reported("random_hearts")).mean())
            ends = min(low, 0.9 * floor), max(high, 1.1 * floor)
            panel = replace(panel, marks=(*panel.marks, Rule("y", floor, "random")), y_range=ends)
        if metric == LEVEL:
            panel = replace(
                panel, y_label="", y_ticks=tuple((at, name) for at, name in enumerate(LEVELS) if low <= at <= high)
            )
        panels.append(panel)
    return replace(figure, panels=panels)


def _radial(contents: Contents, runs: Sequence[Training]) -> Figure | None:
    """Normalised scores of arms that were evaluated on all levels; none for fewer than three levels."""
    levels, score = _by_level(runs), lambda each: each.last(SCORE)
    of_arms = {
        arm: [_of_seeds([each for each in theirs if each.level == level], score) for level in levels]
        for arm, theirs in _by_arm(runs).items()
    }
    of_arms = {arm: values for arm, values in of_arms.items() if all(value.size for value in values)}
    if len(levels) < 3 or not of_arms:
        return None
    highest = max(float(values.max()) for axes in of_arms.values() for values in axes)
    bounds = (0.0, max(0.1, np.ceil(10 * highest) / 10))
    axes = [
        Axis(name, tuple(values[at] for values in of_arms.values()), bounds=bounds) for at, name in enumerate(levels)
    ]
    return radial(
        list(of_arms), axes, title="Normalised score by level", source=f"0 is the random walker. {contents.label}."
    )


# -- a replay, and what pairing was worth


def _replay(contents: Contents, trained: Sequence[Training]) -> dict[str, Any] | None:
    """The control and another trained arm in the same room: the first held-out one of the first seed that both have.

    It is not chosen by what happened in it. None without a recording.
    """
    kept: dict[tuple[str, int | None, int], dict[str, Path]] = {}
    for each in sorted(trained, key=lambda each: each.run.arm != contents.analysis.control):
        if each.run.files is None:
            continue
        path = each.run.files / "held_out.json"
        if path.is_file() and not path.is_symlink():
            kept.setdefault((each.level, each.run.seed, each.run.rollout), {}).setdefault(each.run.arm, path)
    if not kept:
        return None
    # The first with two arms, or with one if there are no two.
    (_, seed, _), paths = max(kept.items(), key=lambda item: min(2, len(item[1])))
    try:
        from bakeoff.workloads.gridworld.episode import read_recording
        from bakeoff.workloads.gridworld.replay import as_html

        recordings = {arm: read_recording(path) for arm, path in list(paths.items())[:2]}
        first, *others = recordings.values()
        task = next(task for task in first.rooms if all(task in other.rooms for other in others))
        player = as_html([recording.replay(task, arm) for arm, recording in recordings.items()], playing=False)
    except (BakeoffError, ImportError, StopIteration) as error:
        return {"seed": seed, "refusal": str(error) or "arms were evaluated in different rooms"}
    return {"seed": seed, "player": player}


def _pairing(contents: Contents, trained: Sequence[Training]) -> dict[str, Any] | None:
    """Correlation and variance saved of every trained arm against the control, as `compare` computes them; None without any."""
    levels = _by_level([each for each in trained if HEARTS in each.series])
    rows, notes = [], []
    for level, own in levels.items():
        arms = list(_by_arm(own))
        control = contents.analysis.control if contents.analysis.control in arms else arms[0]
        cells = {(each.run.arm, each.run.task) for each in own}
        results = replace(contents.results, rows=[row for row in contents.results.rows if (row.arm, row.task) in cells])
        others = tuple(arm for arm in arms if arm != control)
        if not others or contents.results.is_sequential:
            continue
        try:
            comparisons = answer(
                results, Compare.ask(metric=HEARTS, control=control, arms=others), verb="report"
            ).comparisons
        except BakeoffError as error:
            notes.append(f"{level}: {error}" if level else str(error))
            continue
        for each in comparisons:
            saved, known = each.sizes.variance_reduction, each.design.without_missing()
            name = f"{each.candidate} against {control}"
            pairs = len(known.control.keys() & known.candidate.keys())
            worth = "-" if saved is None or saved >= 1 else number(round(pairs / (1 - saved), 1))
            cells_of_row = [number(each.sizes.correlation), percent(saved, sign=True), str(pairs), worth]
            rows.append([name, *([level] if len(levels) > 1 else []), *cells_of_row])
    if not rows and not notes:
        return None
    headers = [
        "arms",
        *(["level"] if len(levels) > 1 else []),
        "correlation",
        "variance saved",
        "pairs",
        "worth in unpaired seeds",
    ]
    return {"headers": headers, "rows": rows, "notes": notes}


pages = WorkloadPages(report_pages)
