"""`timeline.html`: when each agent did what."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bakeoff.text import figure as shown
from bakeoff.web.figure import INK, Dots, Figure, Mark, Panel
from bakeoff.web.folder import Page
from bakeoff.web.kinds import MOST_PANELS
from bakeoff.workloads.market.pages.parts import count, note, picture, section, table, text
from bakeoff.workloads.market.pages.played import HOW_TO_KEEP, Played, arms_of, chosen, tasks_of

KINDS: dict[str, tuple[str, frozenset[str]]] = {
    "buys or sells shares": ("market", frozenset({"buyShares", "sellShares"})),
    "opens or closes a perpetual": ("perpetual", frozenset({"openPosition", "closePosition"})),
    "posts or writes": ("social", frozenset({"createPost", "sendMessage", "joinGroup"})),
}
FAILED = "did not succeed"
MOST_DOTS = 60
"""Side by side: as many as there is room for. In longer worlds one stands for several ticks."""
MOST_ARMS = 20
"""In the picture; later ones are left out, and it says so."""


def timeline_page(played: Sequence[Played]) -> Page:
    runs = chosen(played)
    if not runs:
        return Page("Timeline", "timeline", note("No run kept its actions.", HOW_TO_KEEP))
    arms, tasks = arms_of(runs), tasks_of(runs)
    drawn_arms, drawn_tasks = arms[:MOST_ARMS], tasks[:MOST_PANELS]
    logs = {(run.task, run.arm): run.rows("actions.csv") for run in runs}
    if not any(logs.values()):
        return Page("Timeline", "timeline", note("No agent did anything."))
    span = math.ceil(max(_ticks(runs, task) for task in drawn_tasks) / MOST_DOTS)
    panels = [
        _panel(task, drawn_arms, {arm: logs.get((task, arm), []) for arm in drawn_arms}, _ticks(runs, task), span)
        for task in drawn_tasks
    ]
    left = len(arms) - len(drawn_arms), len(tasks) - len(drawn_tasks)
    caption = (
        "Each dot: an action in that tick; actions of several kinds in one tick stand above each other; one "
        f"is marked as failed where all of its kind were refused or failed. {count(len(runs), 'run')}: of every agent on every task the first that kept its files."
        + (f" A dot stands for {span} ticks." if span > 1 else "")
        + (f" {left[0]} agents and {left[1]} tasks are left out." if any(left) else "")
    )
    figure = Figure("Actions by tick", caption, panels, height=max(0.7, 0.13 * len(drawn_arms)))
    html = picture(figure, "timeline") + _counts(played)
    more = note('What each action was: <a href="detailed.html">the action log</a>.')
    return Page("Timeline", "timeline", html + more)


def _kind(action: str) -> str:
    return next((kind for kind, (_, names) in KINDS.items() if action in names), "something else")


def _ticks(runs: Sequence[Played], task: str) -> float:
    return max((run.number("ticks") or 1.0) for run in runs if run.task == task)


def _panel(task: str, arms: Sequence[str], logs: dict[str, list[dict[str, str]]], ticks: float, span: int) -> Panel:
    """A dot for every `span` ticks in which an arm did something of a kind."""
    kinds = [*KINDS, "something else"]
    places: dict[str, set[tuple[float, float]]] = {kind: set() for kind in [*kinds, FAILED]}
    for lane, arm in enumerate(reversed(arms)):
        for row in logs[arm]:
            kind = _kind(row["type"].removeprefix("a2a."))
            height = lane + 0.2 * (kinds.index(kind) - 1)
            tick = int(row["tick"]) // span * span + (span - 1) / 2
            places[kind if row["success"] == "True" else FAILED].add((tick, height))
    places[FAILED].difference_update(*(places[kind] for kind in kinds))  # or they would cover what did succeed
    marks: list[Mark] = []
    for colour, kind in [*enumerate(kinds), (INK, FAILED)]:
        if places[kind]:
            spots = np.array(sorted(places[kind]))
            marks.append(Dots(spots[:, 0], spots[:, 1], colour, kind))
    names = tuple((float(lane), arm) for lane, arm in enumerate(reversed(arms)))
    shape = Panel("tick", "", tuple(marks), task, y_ticks=names)
    return replace(shape, y_range=(-0.7, len(arms) - 0.3), x_range=(-0.6, ticks - 0.4))


def _counts(played: Sequence[Played]) -> str:
    """Over all runs that kept a log, not only those drawn."""
    kept = [run for run in played if run.kept]
    counts: dict[str, Counter[str]] = {arm: Counter() for arm in arms_of(kept)}
    for run in kept:
        counts[run.arm].update(row["type"].removeprefix("a2a.") or row["conduct"] for row in run.rows("actions.csv"))
    names = sorted({name for each in counts.values() for name in each})
    if not names:
        return ""
    rows = []
    for arm, each in counts.items():
        runs = sum(run.arm == arm for run in kept)
        cells = "".join(f'<td class="r">{shown(each[name] / runs)}</td>' for name in names)
        rows.append(f'<tr><th scope="row">{text(arm)}</th><td class="r">{runs}</td>{cells}</tr>')
    told = "Actions in a run, on average over n runs that kept their files."
    return section("How often", table(told, ["agent", "n", *names], rows, right=1, kind="numbers"))
