"""The pages: what each of them shows. Templates in `templates/` say how.

Every function takes the runs and returns a `Page`; templates escape whatever comes from runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bakeoff.text import number as shown
from bakeoff.web.page import Page, macro
from bakeoff.workloads.market.pages import charts
from bakeoff.workloads.market.pages.runs import (
    Mean,
    Played,
    actions_csv,
    arms_of,
    chosen,
    equity_csv,
    mean_over_tasks,
    metrics_csv,
    tasks_of,
)

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = Path(__file__).with_name("market-actions.js")
MAX_LOGS = 60
"""Up to this many runs all have their log on the page; beyond, one for each agent and task."""
MAX_LOG_BYTES = 1_500_000
MAX_FEED_BYTES = 400_000
MAX_TEXT = 300
"""Characters of an argument or a result."""
MAX_PRICE_RUNS = 6
MAX_PRICE_PANELS = 24
"""On the page: drawing takes the time. A run has six at most, half of them perpetuals."""
REFERENCES = frozenset({"kelly-bayes", "clairvoyant"})
"""Agents that know what others cannot: of interest as a measure, less as traders."""
_RESULT_KEYS = ("shares", "avgPrice", "fee", "realizedPnl", "cost", "proceeds", "postId")
_CLAIMS = {"1": "favourable", "0": "nothing new", "-1": "unfavourable"}


def _page(title: str, slug: str, files: Mapping[str, str] | None = None, **values: Any) -> Page:
    """Return a page with the template of its name; `files` are the tables that it links to."""
    return Page(title, slug, TEMPLATES / f"{slug}.html.j2", lambda: values, files=files or {})


def _part(name: str, *values: Any) -> str:
    """Render one macro alone, for parts whose size decides how many of them a page has."""
    return macro(TEMPLATES / "macros.html.j2", name, *values)


def summary_page(runs: Sequence[Played]) -> Page:
    """What each agent earned, predicted, risked, said and cost: plain means. Verdicts are in the report."""
    done = [run for run in runs if run.status == "succeeded"]
    arms, tasks = arms_of(runs), tasks_of(done)
    counts = sorted({sum(run.arm == arm for run in done) for arm in arms})
    cards = [
        {
            "arm": arm,
            "earned": mean_over_tasks(done, arm, "total_pnl"),
            "optimality": mean_over_tasks(done, arm, "optimality").value,
        }
        for arm in arms
    ]
    by_task = [
        [arm, *(_cell(mean_over_tasks([run for run in done if run.task == task], arm, "total_pnl")) for task in tasks)]
        for arm in arms
    ]
    return _page(
        "Summary",
        "summary",
        files={"metrics.csv": metrics_csv(runs)} if done else None,
        done=len(done),
        runs=len(runs),
        counts="" if not done else str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}",
        tasks=tasks,
        cards=cards,
        by_task=by_task,
        means=partial(means_table, done, arms),
        secrets=sorted({str(run.metrics["secret"]) for run in runs if "secret" in run.metrics}),
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """A number in a table, and a small note after it."""

    text: str
    note: str = ""


def _cell(mean: Mean, runs: int = -1) -> Cell:
    """Return a mean as a cell, with its n unless that is the n of the row."""
    return Cell(shown(mean.value), f"n = {mean.n}" if 0 < mean.n != runs else "")


@dataclass(frozen=True, slots=True)
class MeansTable:
    """Means of some metrics, with a row for each arm: its name, its number of runs, and the cells."""

    heads: list[str]
    rows: list[list[Any]]


def means_table(done: Sequence[Played], arms: Sequence[str], metrics: Sequence[tuple[str, str]]) -> MeansTable:
    """Return the means of `metrics`, pairs of key and title, without those that no run has."""
    known = [(key, title) for key, title in metrics if any(run.number(key) is not None for run in done)]
    rows = []
    for arm in arms:
        n = sum(run.arm == arm for run in done)
        rows.append([arm, n, *(_cell(mean_over_tasks(done, arm, key), n) for key, _ in known)])
    return MeansTable(["agent", "n", *(title for _, title in known)], rows)


def equity_page(runs: Sequence[Played], source: str = "") -> Page:
    """What each agent was worth, tick by tick."""
    logged = [run for run in runs if run.equity is not None]
    if not logged:
        return _page("Equity", "equity", picture=None)
    download = equity_csv(logged)
    return _page(
        "Equity",
        "equity",
        files={"equity.csv": download.text},
        picture=charts.drawn(charts.equity(logged, source), "equity"),
        left_out=max(0, len(tasks_of(logged)) - charts.MAX_PANELS),
        exported=download.runs,
        runs=len(logged),
    )


def prices_page(runs: Sequence[Played]) -> Page:
    """Prices against what was true, with the trades of the agent that earned most on each task."""
    candidates = chosen(runs)
    tasks = tasks_of(runs)
    best = []
    for task in tasks:
        here = [run for run in runs if run.task == task]
        traders = [run for run in candidates if run.task == task and run.rows("trades.csv")]
        if traders := [run for run in traders if run.agent not in REFERENCES] or traders:
            best.append(max(traders, key=lambda run: mean_over_tasks(here, run.arm, "total_pnl").value or 0.0))
    best = best[:MAX_PRICE_RUNS]
    # Of every run the same number of markets and of perpetuals, as many as the page has room for.
    limit = min(3, MAX_PRICE_PANELS // max(1, len(best)) // 2)
    sections = []
    for number, run in enumerate(best):
        outcomes = {question["id"]: question["outcome"] for question in run.truth().get("questions", ())}
        traded = Counter(row["target"] for row in run.rows("trades.csv"))
        questions = [
            {
                **row,
                "opened": float(row["opening_price"]),
                "answer": {None: "open", True: "YES", False: "NO"}[
                    outcomes.get(row["id"]) if row["resolved"] == "True" else None
                ],
                "trades": traded[row["id"]],
            }
            for row in run.rows("markets.csv")
        ]
        picture = charts.drawn(charts.prices(run, limit), f"prices-{number}")
        sections.append({"name": run.name, "picture": picture, "questions": questions})
    return _page("Prices", "prices", kept=bool(candidates), sections=sections, hidden=len(tasks) - len(best))


def timeline_page(runs: Sequence[Played]) -> Page:
    """When each agent did what, and how often."""
    shown_runs = chosen(runs)
    logs = {(run.task, run.arm): run.rows("actions.csv") for run in shown_runs}
    if not any(logs.values()):
        return _page("Timeline", "timeline", kept=bool(logs), picture=None)
    kept = [run for run in runs if run.kept]
    counts: dict[str, Counter[str]] = {arm: Counter() for arm in arms_of(kept)}
    for run in kept:
        counts[run.arm].update(row["type"].removeprefix("a2a.") or row["conduct"] for row in run.rows("actions.csv"))
    names = sorted({name for each in counts.values() for name in each})
    rows = []
    for arm, each in counts.items():
        n = sum(run.arm == arm for run in kept)
        rows.append([arm, n, *(Cell(shown(each[name] / n)) for name in names)])
    picture = charts.drawn(charts.timeline(shown_runs, logs), "timeline")
    return _page("Timeline", "timeline", picture=picture, heads=["agent", "n", *names], rows=rows)


def detailed_page(runs: Sequence[Played]) -> Page:
    """Everything that chosen runs did, tick by tick, with its result. Filters run in the page."""
    kept = [run for run in runs if run.kept]
    shown_runs = kept if len(kept) <= MAX_LOGS else chosen(runs)
    if not shown_runs:
        return _page("Action log", "detailed", logs=[])
    logs: list[str] = []
    actions: set[str] = set()
    left = MAX_LOG_BYTES
    for run in shown_runs:
        rows = [_action(row) for row in run.rows("actions.csv")]
        log = _part("log", run, rows, run.number("total_pnl"))
        left -= len(log)
        if left < 0 and logs:  # the first log is there whatever its size
            break
        logs.append(log)
        actions |= {row["type"] for row in rows}
    download = actions_csv(kept)
    filtered = shown_runs[: len(logs)]
    page = _page(
        "Action log",
        "detailed",
        files={"actions.csv": download.text, f"assets/{SCRIPT.name}": SCRIPT.read_text("utf-8")},
        logs=logs,
        chosen=len(shown_runs) < len(kept),
        kept=len(kept),
        runs=len(runs),
        hidden=len(shown_runs) - len(logs),
        exported=download.runs,
        arms=[arm for arm in arms_of(filtered) if arm],
        tasks=[task for task in tasks_of(filtered) if task],
        actions=sorted(actions - {""}),
    )
    return replace(page, scripts=(SCRIPT.name,))


def _action(row: Mapping[str, str]) -> dict[str, Any]:
    """Return a line of an action log for people: `marketId market-3, outcome YES` instead of JSON."""

    def readable(text: str, keys: Sequence[str] = ()) -> str:
        """Return JSON as text, only `keys` of it if it has any of them."""
        try:
            content = json.loads(text) if text else {}
        except ValueError:
            content = {"": text}
        table = content if isinstance(content, dict) else {"": content}
        # Of a result these keys are what a reader looks for; the whole answer is in actions.csv.
        table = {name: table[name] for name in keys if table.get(name)} or table
        parts = []
        for name, value in table.items():
            if isinstance(value, float):
                value = f"{value:.6g}"
            if value is not None:
                parts.append(f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
        return _cut(", ".join(part.strip() for part in parts))

    kind, good = row["type"].removeprefix("a2a."), row["success"] == "True"
    result = readable(row.get("result") or "", _RESULT_KEYS) or "done"
    return {
        "type": kind,
        "action": kind or row["conduct"],
        "good": good,
        "tick": row["tick"],
        "arguments": readable(row["params"]),
        "result": result if good else _cut(row["error"]),
    }


def _cut(text: str) -> str:
    """Shorten a text for a table."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} …"


def social_page(runs: Sequence[Played]) -> Page:
    """What agents posted, who reacted, and what they could read."""
    done = [run for run in runs if run.status == "succeeded"]
    shown_runs = chosen(runs)
    figure = charts.reputation(shown_runs) if shown_runs else None
    feeds: list[str] = []
    left, first_hidden = MAX_FEED_BYTES, None
    for task in tasks_of(shown_runs):
        section = _part("feed", task, _feeds([run for run in shown_runs if run.task == task]))
        left -= len(section)
        if left < 0 and feeds:
            first_hidden = task
            break
        feeds.append(section)
    return _page(
        "Social",
        "social",
        means=partial(means_table, done, arms_of(done)),
        kept=bool(shown_runs),
        picture=charts.drawn(figure, "reputation") if figure else None,
        feeds=feeds,
        first_hidden=first_hidden,
    )


def _feeds(runs: Sequence[Played]) -> list[dict[str, Any]]:
    """Return what the agents of one task read and wrote: the feed, the posts of each agent, the chats of each agent.

    The feed of a world is the same for all agents but for their own posts, so it is there once.
    """
    posts = {run.arm: run.rows("posts.csv") for run in runs}
    first = runs[0]
    feed = [row for row in posts[first.arm] if row["kind"] != "seat"]
    tables = [(f"Feed that {first.arm} read ({first.label}): {len(feed)} posts", "posts", feed)]
    for run in runs:
        own = [row for row in posts[run.arm] if row["kind"] == "seat"]
        tables.append((f"Posts by {run.arm} ({run.label}): {len(own)}", "posts", own))
    for run in runs:
        messages = run.rows("messages.csv")
        title = f"Chats that {run.arm} had joined ({run.label}): {len(messages)} messages"
        tables.append((title, "messages", messages))
    for _, _, rows in tables:
        for row in rows:
            claim = _CLAIMS.get(row["claim"], row["claim"])
            row["says"] = f"{row['ticker']} {claim}" if claim else ""
    return [{"title": title, "kind": kind, "rows": rows} for title, kind, rows in tables if rows]


def front_page(runs: Sequence[Played], comparison: Mapping[str, Any], directory: Path) -> Page:
    """The front page of `bakeoff market run`. `comparison` is what comparison.json has."""
    names = ("result.json", "metrics.json", "actions.csv", "trades.csv", "equity.csv", "trajectory.json")
    rows = []
    for run in runs:
        place = run.files.relative_to(directory)
        links = [(name, (place / name).as_posix()) for name in names if (run.files / name).is_file()]
        rows.append({"name": run.name, "pnl": run.number("total_pnl"), "links": links})
    title = f"{' against '.join(arms_of(runs)[:3])} on one world"
    return replace(_page(title, "front", comparison=comparison, runs=rows), slug="index")
