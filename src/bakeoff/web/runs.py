"""The table of all runs, and the parts of each as data: a run's page loads the file that it is in.

A budget of text decides for how many runs everything is kept: first those on which arms disagree, then those that
failed, then the others. Pages of the rest name the command that shows what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from bakeoff.results.table import Row
from bakeoff.text import duration, number, one_line, printable, utc
from bakeoff.web.contents import COLUMNS, Contents, is_finite_number, session_facts
from bakeoff.web.data import column, script
from bakeoff.web.outcomes import MAX_BESIDE, Tasks
from bakeoff.web.page import ASSETS, TEMPLATES, File, Page, Part, render
from bakeoff.web.run import MAX_TEXT as MAX_OF_ONE
from bakeoff.web.run import directories, parameter, run_parts

CHUNK = 100
"""Runs in one file of parts."""
MAX_TEXT = 40_000_000
"""Characters of parts that may be large, over all runs; compressed they take about a quarter."""
MAX_COLUMNS = 60


def runs_page(contents: Contents) -> Page:
    """Return the page with the table of all runs; its data is a file."""
    data = {"assets/runs.js": lambda: script("runs", runs_table(contents))}
    return Page(
        "Runs", "runs", TEMPLATES / "runs.html.j2", lambda: {"contents": contents},
        files=data, scripts=("table.js", "runs-page.js", "runs.js"),
    )  # fmt: skip


def runs_table(contents: Contents) -> dict[str, Any]:
    """Return the table of runs, column by column; `shown` are the columns that a page shows unless its address says else."""
    runs = contents.runs
    columns = [
        column("run", [run.run_id for run in runs], str, kind="run"),
        column("arm", [run.arm for run in runs], str),
        column("task", [run.task for run in runs], str),
        column("seed", [run.seed for run in runs], str),
        column("rollout", [run.rollout for run in runs], str),
        column("status", [run.status or None for run in runs], str, kind="badge"),
        column("time", [run.wall_s for run in runs], duration),
        column("started", [run.started_at for run in runs], utc),
        column("tries", [run.tries for run in runs]),
        column("error", [one_line(run.error) or None for run in runs], str),
    ]
    metrics = [*contents.columns, *(name for name in contents.metrics if name not in contents.columns)]
    other = dict.fromkeys(name for run in runs for name in run.metrics if name not in metrics)
    for name in [*metrics, *other][:MAX_COLUMNS]:
        columns.append(column(name, [_value(run.metrics.get(name)) for run in runs], kind="metric"))
    params = dict.fromkeys(name for run in runs for name in run.params)
    for name in list(params)[: MAX_COLUMNS - len(metrics)] if len(metrics) < MAX_COLUMNS else ():
        columns.append(column(f"param {name}", [_value(run.params.get(name)) for run in runs]))
    # A column in which nothing differs says nothing.
    columns = [each for each in columns if each["texts"] and (len(each["texts"]) > 1 or each["name"] in ("run", "arm", "task", "status") or -1 in each["at"] or each.get("kind") == "metric")]  # fmt: skip
    usual = ["run", "arm", "task", "seed", "rollout", "status", "time", *contents.columns[:COLUMNS]]
    return {
        "columns": columns,
        "shown": [name for name in usual if any(name == each["name"] for each in columns)],
        "rows": len(runs),
        "total": f"{number(len(runs))} run{'' if len(runs) == 1 else 's'}",
    }


def _value(value: Any) -> Any:
    """A value that can stand in a column: a number or text."""
    if value is None or isinstance(value, str) or is_finite_number(value):
        return value
    return parameter(value)


class Details:
    """The parts of every run as files of CHUNK runs each, in the order of the results."""

    def __init__(self, contents: Contents, base: Path | None, tasks: Tasks, chunk: int = CHUNK) -> None:
        """Links lead to directories of runs from `base`. What arms disagree on is kept first."""
        self.contents, self.base, self.chunk = contents, base, chunk
        self._tasks = tasks

    def page(self) -> Page:
        return Page(
            "Run", "run", TEMPLATES / "run.html.j2", listed=False, files=self.files(),
            scripts=("run-page.js", "run-ids.js"),
        )  # fmt: skip

    def files(self) -> Mapping[str, File]:
        """Files by name: `run-ids.js`, and `details-N.js` with CHUNK runs each."""
        ids = {"ids": [printable(run.run_id) for run in self.contents.runs], "chunk": self.chunk}
        files: dict[str, File] = {f"{ASSETS}/run-ids.js": lambda: script("ids", ids)}
        for at in range(-(-len(self.contents.runs) // self.chunk)):
            files[f"{ASSETS}/details-{at}.js"] = self._maker(at)
        return files

    def _maker(self, at: int) -> Callable[[], str]:
        return lambda: script(f"details-{at}", self.parts(range(at * self.chunk, (at + 1) * self.chunk)))

    def parts(self, numbers: Iterable[int]) -> list[list[tuple[str, str]]]:
        """Return title and HTML of each part of these runs."""
        runs = self.contents.runs
        return [self._parts_of(number, runs[number]) for number in numbers if number < len(runs)]

    def _parts_of(self, at: int, run: Row) -> list[tuple[str, str]]:
        heavy = at not in self._light
        parts = run_parts(run, self._places.get(run.position), heavy=heavy)
        if facts := provenance_of(run):
            parts.append(Part("Provenance", render("run-facts.html", facts=facts)))
        if not heavy:
            text = f"This report has too many runs to hold everything; `bakeoff show {run.run_id}` has the rest."
            parts.append(Part("More", render("run-note.html", text=text)))
        return [(part.title, part.html) for part in parts]

    @cached_property
    def _places(self) -> dict[int, str]:
        return {} if self.base is None else directories(self.contents.runs, self.base)

    @cached_property
    def _light(self) -> frozenset[int]:
        """Runs whose large parts do not fit into the budget."""
        runs = self.contents.runs
        failed = [at for at, run in enumerate(runs) if run.status not in ("succeeded", "planned")]
        first = [run.at for each in self._tasks.disagreements for run in each.shown(MAX_BESIDE)]
        room, light = MAX_TEXT, set[int]()
        for at in dict.fromkeys((*first, *failed, *range(len(runs)))):
            room -= 2_000
            if room > 0:
                room -= _large(runs[at])
            if room <= 0:
                light.add(at)
        return frozenset(light)


def provenance_of(run: Row) -> dict[str, str]:
    """When, where and with which code the last attempt of a run ran; for runs of other tools, the file it was read from."""
    if run.edition is None:
        if run.source is None:
            return {}
        digest = {"SHA-256": run.source.digest} if run.source.digest else {}
        return {"read from": str(run.source), **digest}
    sessions = run.edition.sessions()
    if len(sessions) > 1:
        attempts = run.edition.attempts(run.position)
        sessions = [each for each in sessions if attempts and each["session"] == attempts[-1]["session"]]
    again = {"again": f"bakeoff reproduce {run.run_id}"}
    return {**dict(session_facts(sessions[-1])), **again} if sessions else again


def _large(run: Row) -> int:
    """About how many characters the large parts of a run have."""
    size = 4_000 * len(run.series)
    if run.transcript is not None:
        size += 20_000
    directory = run.files
    if directory is not None and directory.is_dir():
        for entry in directory.iterdir():
            size += min(MAX_OF_ONE, entry.stat(follow_symlinks=False).st_size)
    return size
