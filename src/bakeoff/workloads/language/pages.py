"""The report page of a training campaign: what was learnt, learning curves, entropies, and answers side by side.

The first line says whether any arm beats `start`, the arm that trains nothing. Next to every difference stands that of the
A/A pair, two arms that differ only in their random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bakeoff.results.table import Row
from bakeoff.stats.binary import UnpairedBinary
from bakeoff.text import number
from bakeoff.web.arms import Curve, curves_by_metric, learning_curves, t_interval
from bakeoff.web.contents import Contents
from bakeoff.web.drawing import page_element
from bakeoff.web.figure import Figure, Panel
from bakeoff.web.page import Page, WorkloadPages
from bakeoff.web.pictures import slim
from bakeoff.workloads.language.params import COMPLETIONS, LanguageParams

METRIC = "heldout_accuracy"
SHOWN_PROMPTS, SHOWN_ANSWERS = 4, 6
ENTROPIES = {
    "exec_entropy_mean": "execution surprisal, nats",
    "plan_entropy_mean": "planning surprisal, nats",
    "sepa_lambda": "lambda of sepa",
    "sepa_gate_open": "gate of sepa (1 is open)",
}
GREEDY = "heldout_greedy"
CURVES = {
    METRIC: "held-out accuracy, sampled",
    GREEDY: "held-out accuracy, greedy",
    "heldout_pass_at_4": "held-out pass@4",
    "correct_rate": "training correct rate",
}
BESIDE = {GREEDY: "greedy", "heldout_pass_at_4": "pass@4"}
"""What stands beside the accuracy of sampled answers."""
CLOCKS = {"tokens": "sampled tokens", "processor_s": "processor seconds"}
GROUPS = {"informative_groups": "informative groups", "informative_groups_expected": "expected from the correct rate"}

Series = Mapping[str, Curve]


@dataclass(frozen=True, slots=True)
class Training:
    """A run that succeeded, with its series."""

    run: Row
    series: Series

    @property
    def final(self) -> float:
        return float(self.series[METRIC][1][-1])


def report_pages(contents: Contents) -> list[Page]:
    """The page `training`; none while no run has finished."""
    trained = [
        Training(run, dict(run.series)) for run in contents.runs if run.status == "succeeded" and METRIC in run.series
    ]
    if not trained:
        return []
    by_arm = {arm: [t for t in trained if t.run.arm == arm] for arm in contents.base_arms}
    by_arm = {arm: list(own) for arm, own in by_arm.items() if own}
    params = {cell.arm: LanguageParams.model_validate(cell.params) for cell in contents.cells.values()}
    start = next((arm for arm in by_arm if params[arm].steps == 0), None)
    learnt, noise = f"{_learnt(by_arm, start)}{_fallen(by_arm, params)}", _noise(by_arm, params)

    def data() -> dict[str, Any]:
        return {
            "learnt": learnt,
            **_summary(by_arm, params, start, noise),
            "pooled": _pooled(by_arm, params),
            "pictures": [page_element(slim(figure), slug) for slug, figure in _figures(contents, by_arm).items()],
            "answers": _answers(by_arm),
        }

    aside = f" On single seeds, the two equal arms of the A/A pair differ by {noise}." if noise else ""
    return [Page("Training", "training", Path(__file__).with_name("training.html.j2"), data, learnt + aside)]


# -- what was learnt


def _learnt(by_arm: Mapping[str, Sequence[Training]], start: str | None) -> str:
    """Whether any arm beats the one that trains nothing."""
    if start is None:
        return "There is no arm with steps = 0, so it cannot be said whether any arm learnt something."
    others = [own for arm, own in by_arm.items() if arm != start]
    winners = sum(t_interval(_paired(own, by_arm[start]))[0] > 0 for own in others)
    if winners:
        return f"{winners} of {len(others)} arms beat {start}, which trains nothing."
    return f"No arm beats {start}, which trains nothing: differences between the others are not progress."


def _fallen(by_arm: Mapping[str, Sequence[Training]], params: Mapping[str, LanguageParams]) -> str:
    """The arms whose most likely answers are right less often after the training than before it, as far as seeds can tell.

    Sampled accuracy also rises when a model only becomes surer of its answers, and then it hides this.
    """
    fallen = []
    for arm, own in by_arm.items():
        pairs = [
            (float(before), float(t.series[GREEDY][1][-1]))
            for t in own
            if params[arm].steps and (before := t.run.metrics.get("start_greedy")) is not None and GREEDY in t.series
        ]
        if pairs:
            before, after = np.array(pairs).T
            _, high = t_interval(after - before)
            if (after - before).mean() < 0 and not 0 <= high < np.inf:
                fallen.append(f"from {before.mean():.2f} to {after.mean():.2f} in {arm}")
    return f" Greedy accuracy fell {', '.join(fallen)}." if fallen else ""


def _summary(
    by_arm: Mapping[str, Sequence[Training]], params: Mapping[str, LanguageParams], start: str | None, noise: str
) -> dict[str, Any]:
    """What the template shows of the last evaluations: a table of arms, warm starts, temperatures, warnings and formulas."""
    rows = []
    for arm, own in by_arm.items():
        cells = [arm, str(len(own)), number(float(np.mean([training.final for training in own])))]
        for metric in BESIDE:
            last = [float(t.series[metric][1][-1]) for t in own if metric in t.series]
            cells.append(number(float(np.mean(last))) if last else "-")
        if start is not None:
            text = ""
            if arm != start:
                low, high = t_interval(_paired(own, by_arm[start]))
                text = f"{number(float(_paired(own, by_arm[start]).mean()), sign=True)}"
                text += f" ({number(low)} to {number(high)})" if np.isfinite(low) else ""
            cells.append(text)
        rows.append([*cells, noise or "-"])
    against = [f"against {start} (95 %)"] if start else []
    trained = [training for own in by_arm.values() for training in own]
    return {
        "heads": ["arm", "seeds", CURVES[METRIC], *BESIDE.values(), *against, "A/A pair"],
        "rows": rows,
        "warm_starts": sorted({str(t.run.metrics.get("warm_start")) for t in trained}),
        "temperatures": [f"{each:g}" for each in sorted({params[arm].eval_temperature for arm in by_arm})],
        "warnings": sorted(
            {f"{t.run.arm}: {t.run.metrics['warning']}" for t in trained if t.run.metrics.get("warning")}
        ),
        "trained": {arm: params[arm] for arm in by_arm if params[arm].steps},
    }


class Pooled(NamedTuple):
    """Right answers of an arm's last evaluations, over all seeds."""

    arm: str
    right: int
    answers: int
    design_effect: float
    """The variance between seeds over that of independent answers."""
    p: float = 1.0
    """Fisher's exact test against the first arm."""


def _pooled(by_arm: Mapping[str, Sequence[Training]], params: Mapping[str, LanguageParams]) -> list[Pooled]:
    """Fisher's exact test on all answers of the last evaluation, as the original's guide suggests it.

    Answers of one training are alike, so it claims too much; the design effect says by how much.
    """
    counts: list[Pooled] = []
    for arm in (arm for arm in by_arm if params[arm].steps):
        each = params[arm].eval_prompts * params[arm].eval_samples
        right = np.array([round(training.final * each) for training in by_arm[arm]])
        rate = right.sum() / (each * right.size)
        expected = rate * (1 - rate) / each
        effect = float((right / each).var(ddof=1) / expected) if right.size > 1 and expected > 0 else float("nan")
        own = Pooled(arm, int(right.sum()), each * right.size, effect)
        if counts:
            first = counts[0]
            own = own._replace(p=UnpairedBinary(first.right, first.answers, own.right, own.answers).p_exact)
        counts.append(own)
    return counts


def _paired(own: Sequence[Training], other: Sequence[Training]) -> Any:
    """Differences on the seeds and tasks that both have."""
    known = {(t.run.task, t.run.seed, t.run.rollout): t.final for t in other}
    keys = [(t, (t.run.task, t.run.seed, t.run.rollout)) for t in own]
    return np.array([t.final - known[key] for t, key in keys if key in known])


def _noise(by_arm: Mapping[str, Sequence[Training]], params: Mapping[str, LanguageParams]) -> str:
    """The mean and the largest difference between two arms whose parameters differ in `own_sampling` only."""
    arms = list(by_arm)
    for place, arm in enumerate(arms):
        for other in arms[place + 1 :]:
            alike = params[arm].model_copy(update={"own_sampling": params[other].own_sampling})
            if alike == params[other] and params[arm].steps:
                differences = np.abs(_paired(by_arm[arm], by_arm[other]))
                if differences.size:
                    return f"{differences.mean():.3f} on average, {differences.max():.3f} at most"
    return ""


# -- curves


def _figures(contents: Contents, by_arm: Mapping[str, Sequence[Training]]) -> dict[str, Figure]:
    trained = {
        arm: own
        for arm, own in by_arm.items()
        if any(t.series[METRIC][0].size > 1 or t.series[METRIC][0][-1] > 0 for t in own)
    }
    if not trained:
        return {}
    source = f"{contents.label}."
    drawn = {"language-curves": _by_step(trained, CURVES, "Learning curves", source)}
    for clock, label in CLOCKS.items():
        timed = {arm: [_against(t.series, METRIC, clock) for t in own] for arm, own in trained.items()}
        figure = learning_curves({"": timed}, CURVES[METRIC], source=source)
        panels = [replace(panel, x_label=label) for panel in figure.panels if isinstance(panel, Panel)]
        drawn[f"language-{clock.replace('_', '-')}"] = replace(
            figure, title=f"Held-out accuracy by {label}", panels=panels
        )
    drawn["language-entropy"] = _by_step(trained, ENTROPIES, "Entropies and pooling", source)
    drawn["language-groups"] = _by_step(trained, GROUPS, "Informative groups", source)
    return drawn


def _by_step(by_arm: Mapping[str, Sequence[Training]], metrics: Mapping[str, str], title: str, source: str) -> Figure:
    """One panel for each metric that runs have."""
    tasks = {}
    for metric, label in metrics.items():
        curves = {arm: [t.series[metric] for t in own if metric in t.series] for arm, own in by_arm.items()}
        if any(curves.values()):
            tasks[label] = {arm: own for arm, own in curves.items() if own}
    return curves_by_metric(tasks, title, source=source)


def _against(series: Series, metric: str, clock: str) -> Curve:
    """The metric by what the clock showed at the same step."""
    steps, values = series[metric]
    at = np.searchsorted(series[clock][0], steps)
    return np.asarray(series[clock][1][at], dtype=float), values


# -- answers


class Answer(NamedTuple):
    """A sampled answer, as pieces of text: the space before each, the piece, and whether it belongs to the plan."""

    is_right: bool
    pieces: Sequence[tuple[str, str, bool]]


class Group(NamedTuple):
    """What one arm answered to one prompt."""

    right: int
    size: int
    answers: Sequence[Answer]
    """The first of them."""


def _answers(by_arm: Mapping[str, Sequence[Training]]) -> dict[str, Any] | None:
    """The last step's answers of two arms to the same prompts, for the first seed that both have; None without any."""
    trained = [arm for arm, own in by_arm.items() if own[0].series[METRIC][0][-1] > 0]
    kept: dict[str, pl.DataFrame] = {}
    for arm in (trained[:1] + trained[-1:]) if len(trained) > 1 else trained:
        files = by_arm[arm][0].run.files
        path = None if files is None else files / COMPLETIONS
        if path is not None and path.is_file() and not path.is_symlink():
            frame = pl.read_parquet(path)
            kept[arm] = frame.filter(pl.col("step") == frame["step"].max())
    if not kept:
        return None
    shared = [
        prompt
        for prompt in next(iter(kept.values()))["prompt_id"].unique(maintain_order=True)
        if all((frame["prompt_id"] == prompt).any() for frame in kept.values())
    ][:SHOWN_PROMPTS]
    return {
        "seed": next(iter(by_arm.values()))[0].run.seed,
        "most": SHOWN_ANSWERS,
        "arms": list(kept),
        "groups": {
            prompt: [_group(frame.filter(pl.col("prompt_id") == prompt)) for frame in kept.values()]
            for prompt in shared
        },
    }


def _group(frame: pl.DataFrame) -> Group:
    answers = []
    for row in frame.head(SHOWN_ANSWERS).iter_rows(named=True):
        pieces = row.get("pieces") or [f" {word}" for word in row["completion"].split()]
        split = [(" " if piece[:1] == " " else "", piece.removeprefix(" ")) for piece in pieces]
        marked = [(space, text, plan) for (space, text), plan in zip(split, row["planning"], strict=False)]
        answers.append(Answer(row["reward"] > 0.5, marked))
    return Group(int((frame["reward"] > 0.5).sum()), frame.height, answers)


pages = WorkloadPages(report_pages)
