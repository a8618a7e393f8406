"""`prices.html`: market prices against what was true, with the agent's trades."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bakeoff.text import figure as shown
from bakeoff.web.figure import INK, Dots, Figure, Line, Mark, Panel, Rule, Ticks
from bakeoff.web.folder import Page
from bakeoff.workloads.market.pages.parts import note, picture, section, table, text
from bakeoff.workloads.market.pages.played import HOW_TO_KEEP, Played, chosen, tasks_of
from bakeoff.workloads.market.pages.summary import mean_over_tasks

MOST_RUNS = 6
MOST_PANELS = 24
"""On the page: drawing is what takes the time. A run has six at most, half of them perpetuals."""
UP, DOWN, OUT, FORCED = 2, 1, 4, 3
"""Colours of trades that gain when the price rises, when it falls, of those that end a position, and where the venue ended it."""
SIGNS = {1: "good", 0: "none", -1: "bad"}
"""What was announced. A word at a panel's edge takes room from it, so they are short."""
MOST_WORDS, MOST_LINES = 4, 24
"""Announcements on one panel: more words would lie on each other, more lines would hide the prices."""
REFERENCES = frozenset({"kelly-bayes", "clairvoyant"})
"""Agents that know what others cannot: of interest as a measure, less as traders."""
Rows = Sequence[Mapping[str, str]]


def prices_page(played: Sequence[Played]) -> Page:
    candidates = chosen(played)
    if not candidates:
        return Page("Prices", "prices", note("No run kept prices and the truth.", HOW_TO_KEEP))
    runs = _earned_most(played, candidates)
    if not runs:
        return Page("Prices", "prices", note("No agent has traded."))
    each = min(3, MOST_PANELS // len(runs) // 2)
    told = note(
        "One run for each task: of the agent with the highest mean P&amp;L there, reference players aside, the first that "
        "kept its files.",
        f"{len(tasks_of(played)) - len(runs)} tasks are not shown." if len(runs) < len(tasks_of(played)) else "",
        "Shown are the markets that it traded most. Every run that kept its files has prices.csv, trades.csv and truth.json "
        "in its directory.",
    )
    return Page("Prices", "prices", told + "".join(_run(run, f"prices-{n}", each) for n, run in enumerate(runs)))


def _earned_most(played: Sequence[Played], candidates: Sequence[Played]) -> list[Played]:
    found = []
    for task in tasks_of(played):
        runs = [run for run in candidates if run.task == task and run.rows("trades.csv")]
        here = [run for run in played if run.task == task]
        if runs := [run for run in runs if run.agent not in REFERENCES] or runs:
            found.append(max(runs, key=lambda run: mean_over_tasks(here, run.arm, "total_pnl")[0] or 0.0))
    return found[:MOST_RUNS]


def _run(run: Played, prefix: str, most: int) -> str:
    """`most` prediction markets and as many perpetuals: those that the agent traded most."""
    prices, trades, truth = run.rows("prices.csv"), run.rows("trades.csv"), run.truth()
    questions = {row["id"]: row for row in run.rows("markets.csv")}
    outcomes = {each["id"]: each["outcome"] for each in truth.get("questions", ())}
    traded = Counter(row["target"] for row in trades)
    markets = [name for name, _ in traded.most_common() if name in questions][:most]
    perps = _perps(prices, traded)[:most]
    panels = [
        *(_market(name, prices, trades, questions[name], outcomes.get(name)) for name in markets),
        *(_perp(name, prices, trades, truth) for name in perps),
    ]
    caption = (
        "Prediction markets: the price of YES, and the outcome where it resolved. Perpetuals: mark price, index, and, where they are "
        "few enough, announcements (good, none or bad news) as upright lines. Trades stand at the price that they left behind, and on "
        "perpetuals at the index."
    )
    drawn = Figure("Prices and trades", caption, panels, columns=2 if len(panels) in (2, 4) else 3, height=0.8)
    return section(run.name, picture(drawn, prefix), _questions(questions.values(), outcomes, traded))


def _perps(prices: Rows, traded: Counter[str]) -> list[str]:
    names = dict.fromkeys(row["target"] for row in prices if row["index_price"])
    return sorted(names, key=lambda name: -traded[name])


def _market(name: str, prices: Rows, trades: Rows, question: Mapping[str, str], outcome: bool | None) -> Panel:
    ticks, values = _column(prices, name, "price")
    marks: list[Mark] = [Line(ticks, values, 0, "price of YES")]
    last = float(question["resolve_tick"])
    if outcome is not None and question["resolved"] == "True":
        marks.append(Dots(np.array([last]), np.array([float(outcome)]), INK, "outcome"))
    marks += _trades(trades, name)
    end = "" if question["resolved"] != "True" else ": YES" if outcome else ": NO"
    title = f"{name}, {question['ticker']} {question['kind']}{end}"
    shape = Panel("tick", "price of YES", tuple(marks), title, y_range=(-0.04, 1.04))
    return replace(shape, x_ticks=whole_ticks(float(question["created_tick"]), last))


def whole_ticks(first: float, last: float) -> Ticks:
    """Where a question's axis has numbers: a few, and whole ones. No question is open for longer than a story lasts."""
    step = next(step for step in (1, 2, 5) if (last - first) / step <= 5)
    return tuple((float(tick), str(tick)) for tick in range(step * math.ceil(first / step), int(last) + 1, step))


def _perp(name: str, prices: Rows, trades: Rows, truth: Mapping[str, Any]) -> Panel:
    ticks, marked = _column(prices, name, "price")
    _, index = _column(prices, name, "index_price")
    events = [each for each in truth.get("stories", ()) if each["ticker"] == name and each["event_tick"] <= ticks[-1]]
    marks: list[Mark] = [Line(ticks, index, INK, "index", "dashed"), Line(ticks, marked, 0, "mark price")]
    if len(events) <= MOST_LINES:
        words = SIGNS if len(events) <= MOST_WORDS else {}
        marks += [Rule("x", float(each["event_tick"]), words.get(each["theta"], ""), dash="dotted") for each in events]
    marks += _trades(trades, name)
    return Panel("tick", "price, dollars", tuple(marks), name)


def _column(prices: Rows, name: str, column: str) -> tuple[np.ndarray, np.ndarray]:
    rows = [row for row in prices if row["target"] == name]
    return np.array([float(row["tick"]) for row in rows]), np.array([float(row[column]) for row in rows])


def _trades(trades: Rows, name: str) -> list[Mark]:
    groups: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for row in trades:
        if row["target"] != name:
            continue
        rising = row["side"] in ("YES", "LONG")
        kind = (UP, "buys YES or goes long") if rising else (DOWN, "buys NO or goes short")
        if row["kind"] in ("sell", "close"):
            kind = (OUT, "sells or closes")
        elif row["kind"] == "liquidation":
            kind = (FORCED, "is liquidated")
        groups.setdefault(kind, []).append((float(row["tick"]), float(row["price_after"])))
    return [
        Dots(np.array([tick for tick, _ in places]), np.array([price for _, price in places]), colour, label)
        for (colour, label), places in sorted(groups.items())
    ]


def _questions(questions: Iterable[Mapping[str, str]], outcomes: Mapping[str, Any], traded: Counter[str]) -> str:
    rows = []
    for each in questions:
        outcome = outcomes.get(each["id"]) if each["resolved"] == "True" else None
        answer = "open" if outcome is None else "YES" if outcome else "NO"
        cells = (each["id"], each["question"], f"{each['created_tick']} to {each['resolve_tick']}")
        rows.append(
            "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in cells)
            + f'<td class="r">{shown(float(each["opening_price"]))}</td><td>{answer}</td>'
            f'<td class="r">{traded[each["id"]]}</td></tr>'
        )  # fmt: skip
    heads = ("market", "question", "ticks", "opened at", "outcome", "agent’s trades")
    return f"<details><summary>All {len(rows)} questions</summary>{table('', heads, rows)}</details>"
