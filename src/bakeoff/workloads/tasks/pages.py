"""Report pages of task rollouts: all tasks, each task, each rollout, and two rollouts side by side.

The HTML is in `pages.html.j2`, one macro for each part; this module collects what they show. `render` calls a macro:

    render("diff", lines=diff_lines(diff))
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from bakeoff.records.files import is_file_inside, open_inside, read_inside
from bakeoff.records.rundir import TRAJECTORY
from bakeoff.records.transcript import Turn, read_messages, turn_of
from bakeoff.results.table import Row
from bakeoff.spec.identity import slug
from bakeoff.spec.workload import is_self_reported
from bakeoff.text import duration, number, printable
from bakeoff.web.contents import Contents
from bakeoff.web.folder import Page
from bakeoff.workloads.tasks.diff import LineKind, marked, readable
from bakeoff.workloads.tasks.evaluation import DIFF, RESULTS

MOST_BYTES = 20_000_000
"""Rollout pages of one report. Later rollouts have no page, and the task's page says so."""
MOST_OF_ONE = 2_000_000
"""Characters of one rollout's page."""
MOST_LINES = 5_000
"""Lines of a diff."""
LONGEST = 200_000
"""Characters of a diff or a log; twice as many of a transcript."""


def pages(contents: Contents) -> list[Page]:
    """The list of tasks, each task, and each rollout as far as there is room."""
    runs = contents.runs
    arms = list(dict.fromkeys(run.arm for run in runs))
    # Runs come in plan order, so tasks and arms appear as the experiment file lists them.
    by_task: dict[str, list[Row]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    names = {
        task: re.sub(r"[^a-z0-9]+", "-", slug(f"task-{index}-{task}".lower(), 80)).strip("-")
        for index, task in enumerate(by_task)
    }
    rollouts = _rollout_pages(runs, names)
    files = {position: page.slug for position, page in rollouts.items()}
    rows, task_pages = [], []
    for task, attempts in by_task.items():
        cells = {}
        for arm in arms:
            own = [run.metrics for run in attempts if run.arm == arm]
            scores = [float(metrics["total_score"] or 0.0) for metrics in own if "total_score" in metrics]
            cells[arm] = {
                "mean": sum(scores) / len(scores) if scores else None,
                "passed": sum(bool(metrics.get("passed")) for metrics in own),
                "runs": len(own),
                "tampered": sum(metrics.get("tampered") == 1 for metrics in own),
                "honeypot": sum(metrics.get("honeypot") == 1 for metrics in own),
                "self_reported": any(is_self_reported(metrics, "total_score") for metrics in own),
            }
        rows.append({"name": task, "file": names[task], "cells": cells})
        instructions = (_results(run.files).get("instruction") for run in attempts if run.files is not None)
        html = render("task", runs=attempts, files=files, instruction=next(filter(None, instructions), ""))
        task_pages.append(Page(task, names[task], html, listed=False))
    overview = Page("Tasks", "tasks", render("overview", tasks=rows, arms=arms))
    return [overview, *task_pages, *rollouts.values()]


def render(part: str, **context: Any) -> str:
    """The HTML of one macro of the template."""
    return str(getattr(_template(), part)(**context))


@cache
def _template() -> Any:
    """The template's macros as functions, compiled once. jinja2 is imported when a report is written, not before."""
    from jinja2 import Environment, FileSystemLoader, Undefined
    from markupsafe import Markup

    def known(value: Any) -> Any:
        """None for a key that a run's results lack."""
        return None if isinstance(value, Undefined) else value

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        # Whatever a run wrote loses its control characters; HTML that a macro made stays as it is.
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    environment.filters["number"] = lambda value: number(known(value))
    environment.filters["written"] = environment.tests["written"] = lambda metrics: is_self_reported(
        metrics, "total_score"
    )
    environment.filters["duration"] = lambda value: duration(known(value))
    return environment.get_template("pages.html.j2").module


def _rollout_pages(runs: Sequence[Row], names: Mapping[str, str]) -> dict[int, Page]:
    """A page for each run that left files, by position, until MOST_BYTES are reached."""
    pages: dict[int, Page] = {}
    room = MOST_BYTES
    for run in runs:
        directory = run.files
        if directory is None or not directory.is_dir():
            continue
        try:
            messages, cut = _messages(directory)
            html = render(
                "rollout",
                run=run,
                results=_results(directory),
                task_file=names[run.task],
                lines=diff_lines(read_inside(directory, DIFF) if is_file_inside(directory, DIFF) else b""),
                messages=messages,
                cut=cut,
                log=_log(directory, "logs/agent.txt"),
            )
            if len(html) > MOST_OF_ONE:
                html = render("unreadable", run=run, error=f"they make a page of {len(html):,} characters")
        except Exception as error:  # one strange run must not take the report of the others down
            html = render("unreadable", run=run, error=f"{type(error).__name__}: {error}")
        if len(html) > room:  # a report is opened from disk or mailed, so it must stay small
            continue
        room -= len(html)
        title = f"{run.arm} on {run.task}, rollout {run.rollout}"
        pages[run.position] = Page(title, f"rollout-{run.position}", html, listed=False)
    return pages


def _results(directory: Path) -> dict[str, Any]:
    """evaluation_results.json of a run; empty if it cannot be read."""
    try:
        results: dict[str, Any] = json.loads(read_inside(directory, RESULTS))
    except (OSError, ValueError, RecursionError):
        return {}
    return results if isinstance(results, dict) else {}


def diff_lines(diff: bytes) -> list[tuple[LineKind, str]]:
    """A diff's lines with their kinds, cut where it is too long; of binary files only the size."""
    if not diff.strip():
        return []
    text = readable(diff)
    lines = list(islice(marked(text[:LONGEST]), MOST_LINES))
    shown = sum(len(line) + 1 for _, line in lines)
    if shown < len(text):
        lines.append(("same", f"[cut: {len(text) - shown:,} characters more in the file]"))
    return lines


def _messages(directory: Path) -> tuple[list[Turn], bool]:
    """The messages of a run's trajectory, and whether there are more than a page shows.

    A trajectory that cannot be read ends with a message that says so: the other pages must not suffer.
    """
    messages: list[Turn] = []
    try:
        return messages, _add_messages(messages, directory)
    except FileNotFoundError:
        return messages, False
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return [*messages, Turn("bakeoff", f"The rest of the trajectory cannot be read: {error}", [])], False


def _add_messages(messages: list[Turn], directory: Path) -> bool:
    """Add what a trajectory says until a page is full; whether there is more."""
    size = 0
    for message in read_messages(directory / TRAJECTORY):
        turn = turn_of(message)
        size += len(turn.text) + sum(map(len, turn.calls))
        if size > LONGEST * 2:
            return True
        messages.append(turn)
    return False


def _log(directory: Path, name: str) -> dict[str, Any] | None:
    """The beginning of a log: agents may print more than fits into memory. None if it is empty."""
    try:
        with open_inside(directory, name) as file:
            size = os.fstat(file.fileno()).st_size
            text = file.read(LONGEST).decode(errors="replace")
    except OSError:
        return None
    if not size:
        return None
    if size > LONGEST:
        text += f"\n[cut: {size - LONGEST:,} bytes more in the file]"
    return {"size": size, "text": text}
