"""What is known about one run, part by part: the page of a run shows the parts below each other, and the page of
disagreements shows those of several runs side by side.

Parts are: facts, error, metrics and parameters, what the workload knows (its diff, its tests), transcript, curves,
attempts, logs, files. A part that a run does not have is absent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from bakeoff.errors import BakeoffError
from bakeoff.records.files import is_file_inside, open_inside
from bakeoff.records.rundir import STDERR, STDOUT
from bakeoff.records.series import read_trajectory
from bakeoff.records.transcript import Turn, turn_of
from bakeoff.results.table import Row
from bakeoff.text import duration, number, utc
from bakeoff.trees import walk
from bakeoff.web.ansi import coloured
from bakeoff.web.figure import Line, Panel
from bakeoff.web.page import GROUP, Part, WorkloadPages, render
from bakeoff.web.svg import draw_panel

MAX_TEXT = 200_000
"""Characters of a log, and of a transcript."""
MAX_LINE = 20_000
"""Characters of one line or message; the middle of a longer one is left out."""
MAX_POINTS = 200
MAX_CURVES = 12
MAX_FILES = 40


class Said(NamedTuple):
    """A message with what is known about the call that it came from."""

    turn: Turn
    facts: str
    """Tokens and latency, for people; empty where they are not known."""


def run_parts(run: Row, place: str | None = None, *, heavy: bool = True) -> list[Part]:
    """Return everything that is known about a run. `place` is the address of its directory, if links may lead there.

    Without `heavy`, parts that may be large (what the workload knows, transcript, curves, logs) are left out.
    """
    parts = [Part("Run", render("run-facts.html", facts=_facts(run)))]
    if run.error:
        parts.append(Part("Error", _pre(run.error)))
    values = {name: number(value) for name, value in run.metrics.items()}
    if values:
        parts.append(Part("Metrics", render("run-values.html", values=values)))
    if run.params:
        params = {name: parameter(value) for name, value in run.params.items()}
        parts.append(Part("Parameters", render("run-values.html", values=params)))
    if heavy:
        parts += _of_workload(run)
        if said := _transcript(run):
            parts.append(Part("Transcript", render("run-transcript.html", said=said)))
        if curves := _curves(run):
            parts.append(Part("Curves", render("run-curves.html", curves=curves)))
    if run.tries > 1:
        parts.append(Part("Attempts", render("run-attempts.html", attempts=_attempts(run))))
    directory = run.files
    if directory is not None and directory.is_dir():
        if heavy:
            logs = ((name, _tail(directory, name)) for name in (STDOUT, STDERR))
            parts += [Part(name, _pre(text)) for name, text in logs if text]
        if files := _files(directory):
            parts.append(Part("Files", render("run-files.html", files=files, place=place, quote=quote)))
    return parts


def parameter(value: Any) -> str:
    """A parameter as text: a number, text, or a list or table as JSON."""
    return (
        number(value)
        if value is None or isinstance(value, str | bool | int | float)
        else json.dumps(value, default=str)
    )


def _facts(run: Row) -> dict[str, str]:
    facts = {
        "status": run.status,
        "arm": run.arm,
        "task": run.task,
        "seed": "" if run.seed is None else str(run.seed),
        "rollout": str(run.rollout) if run.rollout else "",
        "group": run.group or "",
        "ablation": run.ablation,
        "flags": " ".join(run.flags),
        "started": "" if run.started_at is None else utc(run.started_at),
        "time": "" if run.wall_s is None else duration(run.wall_s),
        "exit code": "" if run.exit_code is None else str(run.exit_code),
        "tries": str(run.tries) if run.tries > 1 else "",
        "command": run.command or "",
        "read from": "" if run.source is None else f"{run.source.path.name}{':' + run.source.member if run.source.member else ''}",
        "run": run.run_id,
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value}


@cache
def _added(kind: str) -> tuple[WorkloadPages, ...]:
    """Entry points of a workload: looking one up takes longer than most runs' pages."""
    return tuple(entry.load() for entry in entry_points(group=GROUP, name=kind))


def _of_workload(run: Row) -> list[Part]:
    """What the run's workload knows about it; a strange run must not cost the pages of the others."""
    try:
        return [part for added in _added(run.workload) for part in added.run(run)]
    except Exception as error:
        text = f"The files of this run cannot be shown: {type(error).__name__}: {error}"
        return [Part("Files of the workload", render("run-note.html", text=text))]


# -- what was said


def _transcript(run: Row) -> list[Said]:
    """Every message, to about MAX_TEXT characters; a last one says what is left out or could not be read."""
    said: list[Said] = []
    size = 0
    try:
        for each in _messages(run):
            size += len(each.turn.text) + sum(map(len, each.turn.calls))
            if size > MAX_TEXT:
                said.append(
                    Said(
                        Turn("bakeoff", f"The rest does not fit on a page; `bakeoff show {run.run_id}` has all.", []),
                        "",
                    )
                )
                break
            text, calls = shortened(each.turn.text), [shortened(call) for call in each.turn.calls]
            said.append(Said(Turn(each.turn.role, text, calls), each.facts))
    except (BakeoffError, OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        said.append(Said(Turn("bakeoff", f"The rest cannot be read: {error}", []), ""))
    return said


def _messages(run: Row) -> Iterator[Said]:
    home = run.files
    index = None if run.edition is None else run.edition.trajectory(run.position)
    if index is None or home is None or not is_file_inside(home, index.path):
        for message in run.messages():
            yield Said(turn_of(message.as_recorded()), "")
        return
    earlier: list[dict[str, Any]] = []
    for step in read_trajectory(home / index.path, home):
        if not step.messages:
            return
        messages = step.messages[step.info.get("copied", 0) :]
        if messages[: len(earlier)] == earlier:  # a conversation that is recorded as a whole with each answer
            messages, earlier = messages[len(earlier) :], messages
        else:
            earlier = messages
        for at, recorded in enumerate(messages):
            yield Said(
                turn_of(recorded), _call_facts(step.info, step.time_s, step.tokens) if at == len(messages) - 1 else ""
            )


def _call_facts(info: Mapping[str, Any], time_s: float | None, tokens: Any) -> str:
    """Tokens, latency and cost of one call of a model."""
    usage = info.get("usage") or {}
    read = usage.get("input_tokens") if usage else len(tokens.prompt_ids) if tokens else None
    wrote = usage.get("output_tokens") if usage else len(tokens.completion_ids) if tokens else None
    facts = []
    if time_s is not None:
        facts.append(f"at {duration(time_s)}")
    if info.get("total_s") is not None:
        facts.append(f"took {duration(info['total_s'])}")
    if info.get("first_token_s") is not None:
        facts.append(f"first token after {duration(info['first_token_s'])}")
    if read is not None or wrote is not None:
        facts.append(f"tokens: {number(read)} in, {number(wrote)} out")
    if info.get("cost"):
        facts.append(f"cost {number(info['cost'])}")
    return ", ".join(facts)


def shortened(text: str) -> str:
    """Return text without the middle of lines that nobody reads to their end: a browser needs seconds to lay one out."""
    if len(text) <= MAX_LINE:
        return text
    return "\n".join(
        line if len(line) <= MAX_LINE
        else f"{line[: MAX_LINE // 2]} … ({number(len(line) - MAX_LINE)} characters left out) … {line[-MAX_LINE // 2 :]}"
        for line in text.split("\n")
    )  # fmt: skip


# -- curves, attempts, logs, files


def _curves(run: Row) -> list[tuple[str, str]]:
    """Name and drawing of each series."""
    drawn = []
    for name, (steps, values) in list(run.series.items())[:MAX_CURVES]:
        if not np.isfinite(values).any():
            continue
        kept = np.unique(np.linspace(0, steps.size - 1, min(MAX_POINTS, steps.size)).round().astype(int))
        drawn.append((name, draw_panel(Panel("step", name, (Line(steps[kept], values[kept]),)))))
    return drawn


def _attempts(run: Row) -> list[dict[str, str]]:
    attempts = []
    for attempt in run.attempts():
        known = attempt["started_at"] is not None and attempt["ended_at"] is not None
        attempts.append(
            {
                "attempt": str(attempt["attempt"]),
                "status": attempt["status"],
                "time": duration(attempt["ended_at"] - attempt["started_at"]) if known else "-",
                "exit code": number(attempt["exit_code"]),
                "node": attempt.get("node") or "-",
                "error": (attempt["error"] or "").strip().splitlines()[-1:],
            }
        )
    return attempts


def _tail(home: Path, name: str) -> str:
    """The end of a log; "" when there is nothing."""
    try:
        with open_inside(home, name) as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - MAX_TEXT)
            file.seek(start)
            text = file.read(MAX_TEXT).decode("utf-8", "replace").strip("\n")
    except OSError:
        return ""
    return f"… (the end of {number(size)} bytes)\n{text}" if start else text


def _pre(text: str) -> str:
    """Text of a terminal as an element: colours stay, everything else that a terminal would obey goes."""
    return render("run-log.html", runs=coloured(shortened(text)))


def _files(home: Path) -> list[str]:
    paths: list[str] = []
    for place, folders, names in walk(home):
        folders.sort()
        paths += [os.path.relpath(os.path.join(place, name), home).replace(os.sep, "/") for name in sorted(names)]
        if len(paths) > MAX_FILES:
            break
    return paths[:MAX_FILES]


def directories(runs: Iterable[Row], base: Path) -> dict[int, str]:
    """Addresses of the directories that runs left, by position, relative to `base`. An edition's are listed at once."""
    left: dict[Path, set[str]] = {}
    places = {}
    for run in runs:
        if run.files is None:
            continue
        if run.edition is not None:
            place = run.edition.paths.runs
            if place not in left:
                left[place] = {entry.name for entry in os.scandir(place)} if place.is_dir() else set()
            if run.run_id not in left[place]:
                continue
        elif not run.files.is_dir():
            continue
        places[run.position] = quote(os.path.relpath(run.files.resolve(), base).replace(os.sep, "/"))
    return places
