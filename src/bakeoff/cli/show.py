"""`bakeoff show`: one run, everything that is recorded about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bakeoff.cli import display
from bakeoff.cli.options import json_option, root_option, run_argument
from bakeoff.records.edition import Edition, find_run
from bakeoff.records.series import read_block

MOST_FILES = 20


@click.command()
@run_argument
@root_option
@json_option
def command(run: str, root: Path, as_json: bool) -> None:
    """Show parameters, status, metrics, attempts, series and files of RUN.

    RUN is a run id or a part of one, EXPERIMENT/RUN, a run's directory, or `latest`.
    """
    edition, position = find_run(run, root)
    try:
        facts = gather(edition, position)
    finally:
        edition.close()
    display.print_json(facts) if as_json else _show(facts)


def gather(edition: Edition, position: int) -> dict[str, Any]:
    run = edition.run(position)
    cell = edition.cell(run.cell)
    directory = edition.paths.run(run.run_id)
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
        "series": _series(edition.series(position)),
        "directory": directory if directory.is_dir() else None,
        "files": _files(directory),
    }


def _series(block: bytes | None) -> dict[str, dict[str, Any]]:
    if block is None:
        return {}
    return {
        name: {
            "points": len(steps),
            "first": {"step": int(steps[0]), "value": float(values[0])},
            "last": {"step": int(steps[-1]), "value": float(values[-1])},
        }
        for name, (steps, values) in read_block(block).items()
    }


def _files(directory: Path) -> list[dict[str, Any]]:
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return [{"path": str(path.relative_to(directory)), "bytes": path.stat().st_size} for path in found]


def _show(facts: dict[str, Any]) -> None:
    click.secho(facts["run_id"], bold=True)
    place = f"{facts['experiment']}/{facts['edition']}"
    took = facts["ended_at"] - facts["started_at"] if facts["started_at"] and facts["ended_at"] else None
    summary = {
        "of": place,
        "arm": facts["arm"],
        "task": facts["task"],
        "seed": f"{facts['seed']}" + (f", rollout {facts['rollout']}" if facts["rollout"] else ""),
        "status": facts["status"] + (f", exit code {facts['exit_code']}" if facts["exit_code"] is not None else ""),
        "started": f"{display.moment(facts['started_at'])}, took {display.duration(took)}" if took is not None else "",
        "flags": " ".join(facts["flags"]),
        "command": facts["command"] or "",
    }
    display.print_facts({key: value for key, value in summary.items() if value})
    if facts["error"]:
        _section("Error", [[display.printable(line)] for line in facts["error"].rstrip().splitlines()])
    _section("Parameters", [[key, _value(value)] for key, value in facts["columns"].items()])
    _section("Metrics", [[key, _value(value)] for key, value in facts["metrics"].items()])
    _section("Series", [[name, _ends(entry)] for name, entry in facts["series"].items()])
    if len(facts["tries"]) > 1:
        _section("Attempts", [[str(entry["attempt"]), entry["status"], display.one_line(entry["error"])] for entry in facts["tries"]])  # fmt: skip
    _show_files(facts)


def _show_files(facts: dict[str, Any]) -> None:
    if facts["directory"] is None:
        return
    files = [[entry["path"], _size(entry["bytes"])] for entry in facts["files"]]
    more = [[f"... and {len(files) - MOST_FILES} more"]] if len(files) > MOST_FILES else []
    _section(f"Files in {facts['directory']}", files[:MOST_FILES] + more)


def _section(title: str, rows: list[list[str]]) -> None:
    if not rows:
        return
    click.echo()
    click.secho(title, bold=True)
    width = max((len(row[0]) for row in rows if len(row) > 1), default=0)
    for row in rows:
        click.echo("  " + "  ".join([row[0].ljust(width), *row[1:]]).rstrip())


def _value(value: Any) -> str:
    import json

    return display.printable(value if isinstance(value, str) else json.dumps(value))


def _ends(entry: dict[str, Any]) -> str:
    first, last = entry["first"], entry["last"]
    return (
        f"{entry['points']} points, {display.number(first['value'])} at step {first['step']} "
        f"to {display.number(last['value'])} at step {last['step']}"
    )


def _size(size: int) -> str:
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size} B"
