"""Report pages of task rollouts: all tasks and each task; and what is known about one rollout.

The HTML is in `pages.html.j2`, one macro for each part; this module collects what they show. `render` calls a macro:

    render("diff", lines=diff_lines(diff))
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bakeoff.records.files import is_file_inside, open_inside, read_inside
from bakeoff.results.table import Row
from bakeoff.spec.identity import slug
from bakeoff.spec.workload import is_self_reported
from bakeoff.text import duration, number, printable
from bakeoff.web.contents import Contents
from bakeoff.web.page import TEMPLATES, Page, Part, WorkloadPages
from bakeoff.workloads.tasks.diff import LineKind, marked, readable
from bakeoff.workloads.tasks.evaluation import DIFF, RESULTS

MOST_LINES = 5_000
"""Lines of a diff."""
LONGEST = 200_000
"""Characters of a diff or a log."""


def report_pages(contents: Contents) -> list[Page]:
    """The list of tasks, and each task."""
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
        html = render("task", runs=attempts, instruction=next(filter(None, instructions), ""))
        task_pages.append(_page(task, names[task], html, listed=False))
    return [_page("Tasks", "tasks", render("overview", tasks=rows, arms=arms)), *task_pages]


def _page(title: str, slug: str, html: str, *, listed: bool = True) -> Page:
    return Page(title, slug, TEMPLATES / "plain.html.j2", lambda: {"html": Markup(html)}, listed=listed)


def run_parts(run: Row) -> list[Part]:
    """What is known about one rollout: its diff, its scores, its tests, the judge's votes, and what the agent printed."""
    directory = run.files
    if directory is None or not directory.is_dir():
        return []
    results = _results(directory)
    diff = read_inside(directory, DIFF) if is_file_inside(directory, DIFF) else b""
    parts = {
        "Rollout": render("facts", run=run, results=results),
        "Diff": render("diff", lines=diff_lines(diff), left_out=results.get("left_out") or ()),
        "Scores": render("scores", results=results),
        "Tests": render("tests", results=results),
        "Judge": render("judge", results=results),
        "Agent's output": render("printed", log=_log(directory, "logs/agent.txt")),
    }
    return [Part(title, html) for title, html in parts.items() if html.strip()]


def render(part: str, **context: Any) -> str:
    """The HTML of one macro of the template."""
    return str(getattr(_template(), part)(**context))


@cache
def _template() -> Any:
    """The template's macros as functions, compiled once. jinja2 is imported when a report is written, not before."""
    from jinja2 import Environment, FileSystemLoader, Undefined

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


pages = WorkloadPages(report_pages, run_parts)
