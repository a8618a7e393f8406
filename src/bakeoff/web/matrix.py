"""Two pages about single tasks: the matrix of tasks and arms, and the disagreements side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bakeoff.text import number, printable
from bakeoff.web.contents import Contents
from bakeoff.web.data import column, script
from bakeoff.web.outcomes import MAX_BESIDE, Cell, Disagreement, Outcomes, Tasks, by_difficulty
from bakeoff.web.page import TEMPLATES, Page

MAX_DISAGREEMENTS = 10_000


# -- task x arm


def matrix_page(contents: Contents, about: Tasks) -> Page:
    """Return the page with a line for each task and a column for each arm."""

    def data() -> dict[str, Any]:
        found = about.outcomes
        flaky = sum(cell.is_flaky for arms in found.by_task().values() for cell in arms.values())
        return {"found": found, "flaky": flaky, "contents": contents}

    return Page(
        "Tasks and arms", "matrix", TEMPLATES / "matrix.html.j2", data, listed=len(contents.tasks) > 1,
        files={"assets/matrix.js": lambda: script("matrix", matrix_table(contents.arms, about.outcomes))},
        scripts=("table.js", "matrix-page.js", "matrix.js"),
    )  # fmt: skip


def matrix_table(arms: list[str], found: Outcomes) -> dict[str, Any]:
    """Return the matrix as a table, the hardest task first. A cell's `shade` is its place between worst and best."""
    tasks = found.by_task()
    order = by_difficulty(tasks, found.larger_is_better)
    every = [cell.score for cells in tasks.values() for cell in cells.values() if cell.score is not None]
    low, high = (0.0, 1.0) if found.is_pass_fail else (min(every, default=0.0), max(every, default=1.0))
    columns = [column("task", [printable(task) for task in order], str, kind="task")]
    for arm in arms:
        cells = [tasks[task].get(arm) for task in order]
        scores = [None if cell is None else cell.score for cell in cells]
        columns.append(
            {
                **column(arm, scores),
                "kind": "cell",
                "own": ["" if cell is None else cell.text for cell in cells],
                "flaky": [at for at, cell in enumerate(cells) if cell is not None and cell.is_flaky],
                "shade": [
                    -1 if score is None else _shade(score, low, high, found.larger_is_better) for score in scores
                ],
            }
        )
    spread = [_spread(tasks[task]) for task in order]
    columns.append(column("difference", spread))
    return {
        "columns": columns,
        "shown": [each["name"] for each in columns],
        "rows": len(order),
        "total": f"{number(len(order))} task{'' if len(order) == 1 else 's'}",
    }


def _shade(score: float, low: float, high: float, larger_is_better: bool) -> int:
    """A step of five from worst to best."""
    share = (score - low) / (high - low) if high > low else 1.0
    return int(np.clip(round(4 * (share if larger_is_better else 1 - share)), 0, 4))


def _spread(cells: Mapping[str, Cell]) -> float | None:
    """The difference between the best and the worst arm."""
    scores = [cell.score for cell in cells.values() if cell.score is not None]
    return max(scores) - min(scores) if len(scores) > 1 else None


# -- disagreements


def disagreements_page(contents: Contents, about: Tasks) -> Page:
    """Return the page that shows runs of different arms side by side."""

    def data() -> dict[str, Any]:
        found = about.outcomes
        return {
            "found": found, "count": len(about.disagreements), "units": len(found.by_unit), "arms": contents.arms,
            "limit": MAX_DISAGREEMENTS, "contents": contents, "only_scores": _has_only_scores(contents),
            "seeds": any(seed is not None for _, seed in found.by_unit),
        }  # fmt: skip

    return Page(
        "Disagreements", "disagreements", TEMPLATES / "disagreements.html.j2", data, listed=len(contents.arms) > 1,
        files={"assets/disagreements.js": lambda: script("disagreements", disagreements_table(contents, about.disagreements))},
        scripts=("table.js", "disagreements-page.js", "run-ids.js", "disagreements.js"),
    )  # fmt: skip


def _has_only_scores(contents: Contents) -> bool:
    """Whether the source has nothing about its runs that could be read beside each other."""
    return not any(
        run.transcript is not None or run.series or run.error or (run.files is not None and run.files.is_dir())
        for run in contents.runs
    )


def disagreements_table(contents: Contents, listed: list[Disagreement]) -> dict[str, Any]:
    """Return the list as a table, and for each line its runs: number, arm, and how it ended."""
    listed = listed[:MAX_DISAGREEMENTS]
    columns = [column("task", [printable(each.task) for each in listed], str, kind="task")]
    if any(each.seed is not None for each in listed):
        columns.append(column("seed", [each.seed for each in listed], str))
    for arm in contents.arms:
        cells = [each.arms.get(arm) for each in listed]
        scores = [None if cell is None else cell.score for cell in cells]
        columns.append(
            {**column(arm, scores), "kind": "cell", "own": ["" if cell is None else cell.text for cell in cells]}
        )
    columns.append(column("difference", [each.gap for each in listed]))
    return {
        "columns": columns,
        "shown": [each["name"] for each in columns],
        "rows": len(listed),
        "total": f"{number(len(listed))} disagreement{'' if len(listed) == 1 else 's'}",
        "runs": [[[run.at, _said(contents, run.at, cell)] for cell in each.arms.values() for run in cell.runs] for each in listed],
        "beside": [[run.at for run in each.shown(MAX_BESIDE)] for each in listed],
    }  # fmt: skip


def _said(contents: Contents, at: int, cell: Cell) -> str:
    """What the choice of a run says about it."""
    run = contents.runs[at]
    ended = next(each for each in cell.runs if each.at == at)
    rollout = f", rollout {run.rollout}" if len(cell.runs) > 1 else ""
    if ended.state != "scored":
        word = run.status or ended.state
    elif cell.is_pass_fail:
        word = "passed" if ended.value >= 1.0 else "did not pass"
    else:
        word = number(ended.value)
    return printable(f"{run.arm}{rollout}: {word}")
