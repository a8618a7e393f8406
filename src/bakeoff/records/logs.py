"""Where a run's output is, and what it means when there is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.rundir import ATTEMPTS, STDERR, STDOUT


@dataclass(frozen=True, slots=True)
class Log:
    run_id: str
    path: Path
    status: str
    silence: str
    """What to say when there is no such file."""


def find_log(edition: Edition, position: int, *, stderr: bool = False, attempt: int | None = None) -> Log:
    run = edition.run(position)
    directory = edition.paths.run(run["run_id"])
    if attempt is not None and attempt != run["attempts"]:
        tries = [entry["attempt"] for entry in edition.attempts(position)]
        if attempt not in tries:
            raise UsageError(
                f"{run['run_id']} has no attempt {attempt}; there are {', '.join(map(str, tries)) or 'none'}"
            )
        directory = directory / ATTEMPTS / str(attempt)
    name = STDERR if stderr else STDOUT
    return Log(run["run_id"], directory / name, run["status"], _silence(edition, position, directory, name))


def _silence(edition: Edition, position: int, directory: Path, name: str) -> str:
    run = edition.run(position)
    stream = "standard error" if name == STDERR else "standard output"
    if run["status"] == "running":
        return f"{run['run_id']} has written nothing to {stream} yet"
    if run["started_at"] is None:
        return f"{run['run_id']} has not been run yet"
    if directory.is_dir():
        return f"{run['run_id']} wrote nothing to {stream}"
    if _had_directory(edition, position):
        return f"{directory} was deleted by hand: what {run['run_id']} wrote is gone, its result is still recorded"
    return f"{run['run_id']} wrote nothing"


def _had_directory(edition: Edition, position: int) -> bool:
    """A command's metrics and series come out of files or its output, so it must have left a directory."""
    run = edition.run(position)
    spoke = bool(run["metrics"]) or edition.series(position) is not None
    indexed = edition.database.one(
        "SELECT 1 FROM trajectories WHERE edition_id = ? AND position = ?", (edition.edition_id, position)
    )
    return indexed is not None or (run["command"] is not None and spoke)
