"""Figures of the market's pages: equity, prices with trades, actions by tick, reputation. All are static SVG."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bakeoff.stats import curves
from bakeoff.web.arms import Curve as Series
from bakeoff.web.arms import learning_curves
from bakeoff.web.drawing import Picture, page_element
from bakeoff.web.figure import INK, Dots, Figure, Line, Mark, Panel, Rule, Ticks, dash
from bakeoff.web.pictures import slim
from bakeoff.workloads.market.pages.runs import Played, Rows, arms_of, tasks_of

MAX_PANELS = 12
"""Tasks in one figure."""


def drawn(figure: Figure, slug: str) -> Picture:
    """Return a figure as the macro `picture` of the report takes it; `slug` keeps ids of drawings apart."""
    return page_element(slim(figure), slug)


# -- equity


def equity(runs: Sequence[Played], source: str = "") -> Figure:
    """Return mean equity by tick with intervals, one panel per task; rollouts of one world are averaged first."""
    tasks: dict[str, dict[str, list[Series]]] = {}
    extremes: dict[str, list[float]] = {}
    for task in tasks_of(runs)[:MAX_PANELS]:
        units: dict[tuple[str, int | None], list[Series]] = {}
        for run in runs:
            if run.task == task and run.equity is not None and np.isfinite(run.equity.values).all():
                units.setdefault((run.arm, run.unit), []).append(curves.series(run.equity.ticks, run.equity.values))
                extremes.setdefault(task, []).extend((float(run.equity.values.min()), float(run.equity.values.max())))
        for (arm, _), rollouts in units.items():
            curve = rollouts[0]
            if len(rollouts) > 1:
                grid, values = curves.common_grid(rollouts)
                curve = grid, np.asarray(values.mean(axis=0))
            tasks.setdefault(task, {}).setdefault(arm, []).append(curve)
    figure = learning_curves(tasks, "equity", source=source)
    panels = []
    for task, panel in zip(tasks, figure.panels, strict=True):
        assert isinstance(panel, Panel)
        low, high = min(extremes[task]), max(extremes[task])
        # The interval of two or three seeds is so wide that it would hide the curves, so panels show what single runs
        # reached. Tick labels of a flat line would need more digits than fit, hence the 10 dollars.
        room = max(0.04 * (high - low), 10.0)
        panels.append(replace(panel, x_label="tick", y_label="equity, dollars", y_range=(low - room, high + room)))
    caption = f"{figure.caption} Panels end at the highest and the lowest equity of any run."
    return replace(figure, title="Equity by tick", caption=caption, panels=panels)


# -- prices

UP, DOWN, OUT, FORCED = 2, 1, 4, 3
"""Colours of trades that gain when the price rises, when it falls, that end a position, and of liquidations."""
NEWS = {1: "good", 0: "none", -1: "bad"}
"""What an announcement said. Words at a panel's edge take room from it, so they are short."""
MAX_LABELLED, MAX_ANNOUNCEMENTS = 4, 24
"""Announcements of one panel: more labels would overlap, more lines would hide the prices."""


def prices(run: Played, limit: int) -> Figure:
    """Return prices and trades of the `limit` markets and as many perpetuals that the agent traded most."""
    rows, trades, truth = run.rows("prices.csv"), run.rows("trades.csv"), run.truth()
    questions = {row["id"]: row for row in run.rows("markets.csv")}
    outcomes = {question["id"]: question["outcome"] for question in truth.get("questions", ())}
    traded = Counter(row["target"] for row in trades)
    markets = [name for name, _ in traded.most_common() if name in questions][:limit]
    perps = dict.fromkeys(row["target"] for row in rows if row["index_price"])
    panels = [
        *(_market_panel(questions[name], rows, trades, outcomes.get(name)) for name in markets),
        *(perp_panel(name, rows, trades, truth) for name in sorted(perps, key=lambda name: -traded[name])[:limit]),
    ]
    caption = (
        "Prediction markets: the price of YES, and the outcome where it resolved. Perpetuals: mark price, index, and, if "
        "they are few enough, announcements (good, none or bad news) as vertical lines. Trades are drawn at the price "
        "that they left behind, and on perpetuals at the index."
    )
    return Figure("Prices and trades", caption, panels, columns=2 if len(panels) in (2, 4) else 3, height=0.8)


def _market_panel(question: Mapping[str, str], prices: Rows, trades: Rows, outcome: bool | None) -> Panel:
    """Return price, outcome and trades of one prediction market."""
    name, resolved = question["id"], question["resolved"] == "True"
    ticks, values = _column(prices, name, "price")
    first, last = float(question["created_tick"]), float(question["resolve_tick"])
    marks: list[Mark] = [Line(ticks, values, 0, "price of YES")]
    if outcome is not None and resolved:
        marks.append(Dots(np.array([last]), np.array([float(outcome)]), INK, "outcome"))
    marks += _trade_marks(trades, name)
    end = "" if not resolved else ": YES" if outcome else ": NO"
    title = f"{name}, {question['ticker']} {question['kind']}{end}"
    return Panel("tick", "price of YES", tuple(marks), title, y_range=(-0.04, 1.04), x_ticks=whole_ticks(first, last))


def whole_ticks(first: float, last: float) -> Ticks:
    """Return at most six whole numbers for a question's axis. No question is open longer than a story of 24 ticks."""
    step = next(step for step in (1, 2, 5) if (last - first) / step <= 5)
    return tuple((float(tick), str(tick)) for tick in range(step * math.ceil(first / step), int(last) + 1, step))


def perp_panel(name: str, prices: Rows, trades: Rows, truth: Mapping[str, Any]) -> Panel:
    """Return mark price, index, announcements and trades of one perpetual."""
    ticks, marked = _column(prices, name, "price")
    _, index = _column(prices, name, "index_price")
    events = [story for story in truth.get("stories", ()) if story["ticker"] == name]
    events = [story for story in events if story["event_tick"] <= ticks[-1]]
    marks: list[Mark] = [Line(ticks, index, INK, "index", "dashed"), Line(ticks, marked, 0, "mark price")]
    if len(events) <= MAX_ANNOUNCEMENTS:
        words = NEWS if len(events) <= MAX_LABELLED else {}
        marks += [Rule("x", float(each["event_tick"]), words.get(each["theta"], ""), dash="dotted") for each in events]
    return Panel("tick", "price, dollars", (*marks, *_trade_marks(trades, name)), name)


def _column(prices: Rows, name: str, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ticks and values of one market or perpetual."""
    rows = [row for row in prices if row["target"] == name]
    return np.array([float(row["tick"]) for row in rows]), np.array([float(row[column]) for row in rows])


def _trade_marks(trades: Rows, name: str) -> list[Mark]:
    """Return dots for the trades of one market or perpetual, grouped by what they did."""
    groups: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for row in trades:
        if row["target"] != name:
            continue
        if row["kind"] in ("sell", "close"):
            kind = (OUT, "sells or closes")
        elif row["kind"] == "liquidation":
            kind = (FORCED, "is liquidated")
        elif row["side"] in ("YES", "LONG"):
            kind = (UP, "buys YES or goes long")
        else:
            kind = (DOWN, "buys NO or goes short")
        groups.setdefault(kind, []).append((float(row["tick"]), float(row["price_after"])))
    return [
        Dots(np.array([tick for tick, _ in places]), np.array([price for _, price in places]), colour, label)
        for (colour, label), places in sorted(groups.items())
    ]


# -- actions

ACTION_KINDS: dict[str, frozenset[str]] = {
    "buys or sells shares": frozenset({"buyShares", "sellShares"}),
    "opens or closes a perpetual": frozenset({"openPosition", "closePosition"}),
    "posts or writes": frozenset({"createPost", "sendMessage", "joinGroup"}),
    "something else": frozenset(),
}
FAILED = "did not succeed"
MAX_DOTS = 60
"""Dots side by side, as many as there is room for. In longer worlds one stands for several ticks."""
MAX_ARMS = 20
"""Arms in the picture; the caption counts those that are left out."""


def timeline(runs: Sequence[Played], logs: Mapping[tuple[str, str], Rows]) -> Figure:
    """Return when each agent did what. `logs` has actions by (task, arm)."""
    arms, tasks = arms_of(runs), tasks_of(runs)
    shown_arms, shown_tasks = arms[:MAX_ARMS], tasks[:MAX_PANELS]
    lengths = {task: max(run.number("ticks") or 1.0 for run in runs if run.task == task) for task in shown_tasks}
    span = math.ceil(max(lengths.values()) / MAX_DOTS)
    panels = [_timeline_panel(task, shown_arms, logs, lengths[task], span) for task in shown_tasks]
    caption = (
        "Each dot: an action in that tick; actions of several kinds in one tick are above each other. A dot is marked as "
        f"failed if all actions of its kind were refused or failed. {len(runs):,} {'run' if len(runs) == 1 else 'runs'}: "
        "for every agent and task the first that kept its files."
    )
    if span > 1:
        caption += f" A dot stands for {span} ticks."
    left_arms, left_tasks = len(arms) - len(shown_arms), len(tasks) - len(shown_tasks)
    if left_arms or left_tasks:
        caption += f" {left_arms} agents and {left_tasks} tasks are left out."
    return Figure("Actions by tick", caption, panels, height=max(0.7, 0.13 * len(shown_arms)))


def _timeline_panel(
    task: str, arms: Sequence[str], logs: Mapping[tuple[str, str], Rows], ticks: float, span: int
) -> Panel:
    """Return a dot for every `span` ticks in which an arm did something of a kind; arms are lanes."""
    kinds = list(ACTION_KINDS)
    places: dict[str, set[tuple[float, float]]] = {kind: set() for kind in [*kinds, FAILED]}
    for lane, arm in enumerate(reversed(arms)):
        for row in logs.get((task, arm), ()):
            action = row["type"].removeprefix("a2a.")
            kind = next((kind for kind, names in ACTION_KINDS.items() if action in names), kinds[-1])
            height = lane + 0.2 * (kinds.index(kind) - 1)  # kinds are above each other within a lane
            tick = int(row["tick"]) // span * span + (span - 1) / 2
            places[kind if row["success"] == "True" else FAILED].add((tick, height))
    places[FAILED].difference_update(*(places[kind] for kind in kinds))  # else they would cover what did succeed
    marks: list[Mark] = []
    for colour, kind in [*enumerate(kinds), (INK, FAILED)]:
        if places[kind]:
            spots = np.array(sorted(places[kind]))  # sorted: the same results give the same bytes
            marks.append(Dots(spots[:, 0], spots[:, 1], colour, kind))
    return Panel(
        "tick",
        "",
        tuple(marks),
        task,
        y_ticks=tuple((float(lane), arm) for lane, arm in enumerate(reversed(arms))),
        y_range=(-0.7, len(arms) - 0.3),
        x_range=(-0.6, ticks - 0.4),
    )


# -- reputation


def reputation(runs: Sequence[Played]) -> Figure | None:
    """Return reputation by tick of the agents whose reputation ever moved; None if there are none."""
    colours = {arm: number for number, arm in enumerate(arms_of(runs))}
    panels = []
    for task in tasks_of(runs)[:MAX_PANELS]:
        lines = []
        for run in (run for run in runs if run.task == task):
            values = [float(row["reputation"]) for row in run.rows("equity.csv") if row.get("reputation")]
            if len(set(values)) > 1:
                number = colours[run.arm]
                lines.append(Line(np.arange(len(values), dtype=float), np.array(values), number, run.arm, dash(number)))
        if lines:
            panels.append(Panel("tick", "reputation", tuple(lines), task))
    caption = "The first run of each agent that kept its files, if its reputation moved. It starts at 50 and stays in 0 to 100."
    return Figure("Reputation", caption, panels, columns=3, height=0.8) if panels else None
