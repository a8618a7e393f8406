"""`social.html`: what agents said, who answered, and what they could read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bakeoff.text import figure as shown
from bakeoff.web.figure import Figure, Line, Panel, dash
from bakeoff.web.folder import Page
from bakeoff.web.kinds import MOST_PANELS
from bakeoff.workloads.market.pages.parts import note, picture, section, table, text
from bakeoff.workloads.market.pages.played import HOW_TO_KEEP, Played, arms_of, chosen, tasks_of
from bakeoff.workloads.market.pages.summary import mean_over_tasks

METRICS = (
    ("posts", "posts"), ("engagement", "likes and comments"), ("messages", "messages"), ("groups_joined", "chats joined"),
    ("reputation", "reputation at the end"),
)  # fmt: skip
MOST_BYTES = 400_000
"""Of feeds and chats on the page."""
CLAIMS = {"1": "favourable", "0": "nothing new", "-1": "unfavourable", "": ""}


def social_page(played: Sequence[Played]) -> Page:
    done = [run for run in played if run.status == "succeeded"]
    runs = chosen(played)
    parts = [_means(done)]
    if runs:
        parts += [_reputation(runs), *_feeds(runs)]
    else:
        parts.append(note("No run kept the feed.", HOW_TO_KEEP))
    return Page("Social", "social", "".join(parts))


def _means(done: Sequence[Played]) -> str:
    rows = []
    for arm in arms_of(done):
        cells = "".join(f'<td class="r">{shown(mean_over_tasks(done, arm, metric)[0])}</td>' for metric, _ in METRICS)
        n = sum(run.arm == arm for run in done)
        rows.append(f'<tr><th scope="row">{text(arm)}</th><td class="r">{n}</td>{cells}</tr>')
    told = "Means of a run. Likes and comments are those of the agent’s own posts, as it last saw them."
    heads = ["agent", "n", *(name for _, name in METRICS)]
    return section("What agents did", table(told, heads, rows, right=1, kind="numbers"))


def _reputation(runs: Sequence[Played]) -> str:
    """Only agents whose reputation ever moved have a line."""
    colours = {arm: number for number, arm in enumerate(arms_of(runs))}
    panels = []
    for task in tasks_of(runs)[:MOST_PANELS]:
        lines = []
        for run in (run for run in runs if run.task == task):
            values = [float(row["reputation"]) for row in run.rows("equity.csv") if row.get("reputation")]
            if len(set(values)) > 1:
                number = colours[run.arm]
                lines.append(Line(np.arange(len(values), dtype=float), np.array(values), number, run.arm, dash(number)))
        if lines:
            panels.append(Panel("tick", "reputation", tuple(lines), task))
    if not panels:
        return note("Nobody’s reputation moved: it does when an agent states a probability and the market resolves.")
    caption = (
        "The first run of each agent that kept its files, where it moved at all. It starts at 50 and stays in 0 to 100."
    )
    return picture(Figure("Reputation", caption, panels, columns=3, height=0.8), "reputation")


def _feeds(runs: Sequence[Played]) -> list[str]:
    """The feed of one world is the same for all agents but for what they posted, so it stands once for each task."""
    told: list[str] = []
    left = MOST_BYTES
    for task in tasks_of(runs):
        here = [run for run in runs if run.task == task]
        parts = [_feed(here[0]), *(_own_posts(run) for run in here), *(_chats(run) for run in here)]
        html = section(task or "Feed and chats", *parts)
        left -= len(html)
        if left < 0 and told:
            return [*told, note(f"Tasks from {text(task)} on do not fit here: posts.csv and messages.csv have them.")]
        told.append(html)
    return told


def _feed(run: Played) -> str:
    rows = [row for row in run.rows("posts.csv") if row["kind"] != "seat"]
    return _folded(f"Feed that {run.arm} read ({run.label}): {len(rows)} posts", rows, _post, POST)


def _own_posts(run: Played) -> str:
    rows = [row for row in run.rows("posts.csv") if row["kind"] == "seat"]
    return _folded(f"Posts by {run.arm} ({run.label}): {len(rows)}", rows, _post, POST)


def _chats(run: Played) -> str:
    rows = run.rows("messages.csv")
    return _folded(f"Chats that {run.arm} had joined ({run.label}): {len(rows)} messages", rows, _message, MESSAGE)


POST = ("tick", "by", "post", "says", "likes", "comments")
MESSAGE = ("tick", "chat", "by", "message", "says")


def _folded(
    title: str, rows: Sequence[Mapping[str, str]], line: Callable[[Mapping[str, str]], str], heads: Sequence[str]
) -> str:
    if not rows:
        return ""
    return f"<details><summary>{text(title)}</summary>{table('', heads, map(line, rows))}</details>"


def _post(row: Mapping[str, str]) -> str:
    return _cells(row["tick"], row["author"], row["content"], _claim(row), row["likes"], row["comments"])


def _message(row: Mapping[str, str]) -> str:
    return _cells(row["tick"], row["chat"], row["author"], row["content"], _claim(row))


def _claim(row: Mapping[str, str]) -> str:
    said = CLAIMS.get(row["claim"], row["claim"])
    return f"{row['ticker']} {said}" if said else ""


def _cells(*values: str) -> str:
    return "<tr>" + "".join(f"<td>{text(value)}</td>" for value in values) + "</tr>"
