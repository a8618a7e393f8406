"""`bakeoff show`: everything that is recorded about one run."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_facts, print_json
from bakeoff.cli.options import json_option, root_option, run_argument
from bakeoff.records.lookup import find_run
from bakeoff.records.recorded import Recorded
from bakeoff.records.series import read_block
from bakeoff.records.transcript import run_messages, turn_of
from bakeoff.text import duration, number, one_line, printable
from bakeoff.trees import walk

MOST_FILES = 20
MOST_MESSAGES = 20


@click.command()
@run_argument
@root_option
@json_option
def command(run: str, root: Path, as_json: bool) -> None:
    """Show parameters, status, metrics, attempts, series, messages and files of RUN.

    RUN is a run id or a part of one, EXPERIMENT/RUN, a run's directory, or `latest`.
    """
    edition, position = find_run(run, root)
    with closing(edition):
        facts = gather(edition, position)
    print_json(facts) if as_json else _show(facts)


def gather(edition: Recorded, position: int) -> dict[str, Any]:
    """Everything `show` says about the run at `position` of the plan, as `--json` prints it."""
    run = edition.run(position)
    cell = edition.cells(run.cell)[0]
    directory = edition.paths.run(run.run_id)
    block = edition.series(position)
    series = {
        name: {
            "points": len(steps),
            "first": {"step": int(steps[0]), "value": float(values[0])},
            "last": {"step": int(steps[-1]), "value": float(values[-1])},
        }
        for name, (steps, values) in (read_block(block) if block is not None else {}).items()
    }
    paths = (Path(folder, name) for folder, _, names in walk(directory) for name in names)
    files = sorted(path for path in paths if os.path.isfile(path) and not os.path.islink(path))
    return {
        "experiment": edition.paths.experiment,
        "edition": edition.paths.name,
        **{key: getattr(run, key) for key in ("run_id", "arm", "task", "seed", "rollout")},
        "ablation": cell.ablation,
        "flags": cell.flags,
        **{key: getattr(run, key) for key in ("status", "error", "exit_code", "started_at", "ended_at")},
        "params": cell.params,
        "columns": cell.columns,
        "metrics": run.metrics,
        "command": run.command,
        "tries": edition.attempts(position),
        "series": series,
        "transcript": list(run_messages(edition, position)),
        "directory": directory if directory.is_dir() else None,
        "files": [{"path": str(path.relative_to(directory)), "bytes": path.stat().st_size} for path in files],
    }


def _show(facts: dict[str, Any]) -> None:
    click.secho(printable(facts["run_id"]), bold=True)
    times = ""
    if facts["started_at"] and facts["ended_at"]:
        start = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts["started_at"]))
        times = f"{start}, took {duration(facts['ended_at'] - facts['started_at'])}"
    summary = {
        "of": f"{facts['experiment']}/{facts['edition']}",
        "arm": facts["arm"],
        "task": facts["task"],
        "seed": f"{facts['seed']}" + (f", rollout {facts['rollout']}" if facts["rollout"] else ""),
        "status": facts["status"] + (f", exit code {facts['exit_code']}" if facts["exit_code"] is not None else ""),
        "started": times,
        "flags": " ".join(facts["flags"]),
        "command": facts["command"] or "",
    }
    print_facts({key: value for key, value in summary.items() if value})

    if facts["error"]:
        _section("Error", [[line] for line in facts["error"].rstrip().splitlines()])
    for title, values in (("Parameters", facts["columns"]), ("Metrics", facts["metrics"])):
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        _section(title, list(map(list, texts.items())))
    curves = []
    for name, entry in facts["series"].items():
        first, last = (f"{number(end['value'])} at step {end['step']}" for end in (entry["first"], entry["last"]))
        curves.append([name, f"{entry['points']} points, {first} to {last}"])
    _section("Series", curves)
    if len(facts["tries"]) > 1:
        _section(
            "Attempts", [[str(each["attempt"]), each["status"], one_line(each["error"])] for each in facts["tries"]]
        )
    turns = [turn_of(message) for message in facts["transcript"]]
    lines = [[turn.role, one_line(" ".join((turn.text, *turn.calls)))] for turn in turns[:MOST_MESSAGES]]
    more = len(turns) - len(lines)
    _section("Transcript", lines + ([[f"... and {more} more; `bakeoff logs` prints all of them"]] if more else []))
    if facts["directory"] is not None:
        files = [[file["path"], _size(file["bytes"])] for file in facts["files"][:MOST_FILES]]
        more = len(facts["files"]) - len(files)
        _section(f"Files in {facts['directory']}", files + ([[f"... and {more} more"]] if more else []))


def _section(title: str, rows: list[list[str]]) -> None:
    """A title and indented rows with aligned first cells; nothing when there are no rows."""
    if not rows:
        return
    click.echo()
    click.secho(printable(title), bold=True)
    rows = [[printable(cell) for cell in row] for row in rows]
    width = max((len(row[0]) for row in rows if len(row) > 1), default=0)
    for row in rows:
        click.echo("  " + "  ".join([row[0].ljust(width), *row[1:]]).rstrip())


def _size(size: int) -> str:
    """`1.5 MB` for a number of bytes."""
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size} B"
