"""Options that say which runs a verdict is about and how they are judged; `compare` and `gate` share them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.options import F, Several
from bakeoff.errors import UsageError

if TYPE_CHECKING:
    from bakeoff.interop.source import Source
    from bakeoff.interop.sources import Pair

SUMMARIES = ("auc", "final", "mean", "best", "slope", "time_to_threshold", "percentile")
COLUMNS = ("arm", "task", "seed", "rollout", "value")
DIRECTIONS = ("maximize", "minimize")

_RUNS = [
    click.argument("names", nargs=-1, metavar="[SOURCE]..."),
    click.option("--baseline", cls=Several, metavar="RUN...", help="Runs of the control: directories, patterns or ids; several may follow."),
    click.option("--candidate", cls=Several, metavar="RUN...", help="Runs of the candidate, likewise."),
    click.option("--control-run-ids", cls=Several, metavar="RUN...", help="Like --baseline, but two independent samples unless both arms have the same seeds."),
    click.option("--candidate-run-ids", cls=Several, metavar="RUN...", help="Runs of the candidate beside --control-run-ids."),
    click.option("--pairs", cls=Several, metavar="JSON...", help='Pairs of runs: {"control": RUN, "candidate": RUN, "seed": N}, several of them or one list; seed may be left out.'),
]  # fmt: skip

_COLUMNS = [
    click.option(f"--{role}-column", metavar="NAME", help=f"Column of a table that holds the {role}; found by its usual names when left out.")
    for role in COLUMNS
]  # fmt: skip

_JUDGED = [
    click.option("--summary", "--summary.type", "summary", type=click.Choice(SUMMARIES), help="How a series becomes one number; auc when a metric is a series and nothing else says."),
    click.option("--window", metavar="PART", help="Part of a series: 'last 25%', 'first 20%' or steps such as '100..500'."),
    click.option("--last", type=click.IntRange(min=1), help="With final: how many of the last values are averaged."),
    click.option("--threshold", type=float, help="With time_to_threshold: the value to reach."),
    click.option("--percentile", type=click.FloatRange(0, 100), help="With percentile: which one."),
    click.option("--smoothing", type=click.FloatRange(0, 1, max_open=True), help="Exponential smoothing of a series first: what the past keeps."),
    click.option("--direction", "directions", multiple=True, metavar="[METRIC=]maximize|minimize", help="Which way is better; for one metric alone with METRIC=. Can be repeated."),
    click.option("--failure-score", type=float, help="What a run counts that failed by its arm's own doing."),
    click.option("--bounds", nargs=2, type=float, metavar="LOW HIGH", help="Lowest and highest possible value of the metric."),
    click.option("--tasks", type=click.Choice(["sample", "fixed"]), help="Whether the verdict is about tasks like these, or about these only."),
    click.option("--seeds", type=click.Choice(["nested", "crossed"]), help="Whether a seed means something within one task only, or is one policy or world on all of them."),
    click.option("--unpaired", is_flag=True, help="Take the arms as independent samples even where they share seeds."),
    click.option("--intersect", is_flag=True, help="Where the arms' tasks and seeds differ, compare those that both have."),
]  # fmt: skip


def run_options(function: F) -> F:
    """Which runs."""
    for option in reversed([*_RUNS, *_COLUMNS]):
        function = option(function)
    return function


def column_options(function: F) -> F:
    """What a table calls its columns, for verbs that take any source of runs by its name alone."""
    for option in reversed(_COLUMNS):
        function = option(function)
    return function


def columns(asked: Mapping[str, Any]) -> dict[str, str | None]:
    return {role: asked[f"{role}_column"] for role in COLUMNS}


def judging_options(function: F) -> F:
    """How they are judged."""
    for option in reversed(_JUDGED):
        function = option(function)
    return function


def open_runs(asked: Mapping[str, Any], root: Path) -> Source:
    """The source that names and flags mean; one way of naming runs at a time."""
    from bakeoff.interop import sources

    ways = {
        "names": bool(asked["names"]),
        "--baseline and --candidate": bool(asked["baseline"] or asked["candidate"]),
        "--control-run-ids and --candidate-run-ids": bool(asked["control_run_ids"] or asked["candidate_run_ids"]),
        "--pairs": bool(asked["pairs"]),
    }
    if sum(ways.values()) > 1:
        raise UsageError(f"name runs in one way: {' or '.join(way for way, used in ways.items() if used)}")
    if ways["--pairs"]:
        return sources.open_pairs(parse_pairs(asked["pairs"]), root)
    if ways["--baseline and --candidate"]:
        arms = ("baseline", "candidate")
        return sources.open_sides(asked["baseline"], asked["candidate"], root, arms, as_samples=False)
    if ways["--control-run-ids and --candidate-run-ids"]:
        sides = (asked["control_run_ids"], asked["candidate_run_ids"])
        return sources.open_sides(*sides, root, ("control", "candidate"), as_samples=True)
    return sources.open_source(asked["names"], root, columns(asked))


def parse_pairs(texts: tuple[str, ...]) -> list[Pair]:
    """Objects one by one, or lists of them."""
    from bakeoff.interop.sources import Pair

    found = []
    for text in texts:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise UsageError(f"--pairs: {text[:60]!r} is no JSON: {error}") from error
        for entry in value if isinstance(value, list) else [value]:
            known = isinstance(entry, dict) and set(entry) <= {"control", "candidate", "seed"}
            if not known or not all(isinstance(entry.get(side), str) for side in ("control", "candidate")):
                raise UsageError(f'--pairs: {json.dumps(entry)[:80]} should be {{"control": RUN, "candidate": RUN}}')
            seed = entry.get("seed")
            if seed is not None and not isinstance(seed, int):
                raise UsageError(f"--pairs: the seed {seed!r} is no whole number")
            found.append(Pair(entry["control"], entry["candidate"], seed))
    return found


def changes(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `analysis` that flags set."""
    summary = {key: asked[key] for key in ("window", "last", "threshold", "percentile", "smoothing")}
    summary["type"] = asked["summary"]
    plain = {
        key: asked.get(key)
        for key in ("failure_score", "bounds", "tasks", "seeds", "margin", "relative_margin", "alpha")
    }
    everywhere = [text for text in asked["directions"] if "=" not in text]
    if len(everywhere) > 1 or any(text not in DIRECTIONS for text in everywhere):
        raise UsageError(f"--direction {everywhere[-1]}: write maximize or minimize, or METRIC=minimize for one metric")
    direction = everywhere[0] if everywhere else None
    return {**plain, "direction": direction, "summary": {k: v for k, v in summary.items() if v is not None}}


def directions(asked: Mapping[str, Any]) -> dict[str, str]:
    """Directions of single metrics."""
    found = {}
    for text in asked["directions"]:
        metric, equals, direction = text.rpartition("=")
        if equals:
            if direction not in DIRECTIONS:
                raise UsageError(f"--direction {text}: write {metric}=maximize or {metric}=minimize")
            found[metric] = direction
    return found
