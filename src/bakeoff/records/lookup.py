"""Runs by the names that users write, their output, and deleting an edition.

edition, position = find_run("sorting/latest", root)
print(find_log(edition, position).path.read_text())
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import BakeoffError, LeaseHeld, UsageError
from bakeoff.records.layout import (
    DATABASE,
    LATEST,
    EditionPaths,
    Lease,
    all_editions,
    editions,
    find_edition,
    is_held,
    point_latest,
)
from bakeoff.records.recorded import Recorded
from bakeoff.records.rundir import ATTEMPTS, STDERR, STDOUT
from bakeoff.records.schema import TABLE_NAMES
from bakeoff.records.store import URL_VARIABLE, connect
from bakeoff.spec import registry
from bakeoff.spec.workload import Logging
from bakeoff.trees import remove_tree


def find_run(name: str, root: Path) -> tuple[Recorded, int]:
    """The edition and position of the run that a user's `name` means. The caller closes the edition.

    `name` is `latest`, an id, a part of an id that only one run has, or a run's directory. `experiment/run` and
    `experiment/latest` narrow it to one experiment. Raises UsageError when no run or several match.
    """
    where, _, run = name.rstrip("/").rpartition("/")
    if run == LATEST:
        edition = Recorded.open(find_edition(where or LATEST, root))
        position = edition.database.value(
            "SELECT position FROM runs WHERE edition_id = ? AND started_at IS NOT NULL ORDER BY started_at DESC LIMIT 1",
            (edition.edition_id,),
        )
        if position is None:
            edition.close()
            raise UsageError(f"{edition.paths.experiment}/{edition.paths.name}: no run has started yet")
        return edition, int(position)
    if where:
        in_runs = Path(where).is_dir() and Path(where).name == "runs"
        searched = [find_edition(str(Path(where).parent) if in_runs else where, root)]
    else:
        searched = all_editions(root.absolute())
    part = run.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    unreadable = ""
    for paths in searched:
        try:
            edition = Recorded.open(paths)
        except BakeoffError as error:
            if where:
                raise
            unreadable = f". Not searched: {error}"
            continue
        matches = edition.positions(part) or edition.positions(f"%{part}%")
        if len(matches) == 1:
            return edition, matches[0][0]
        edition.close()
        if matches:
            listed = ", ".join(run_id for _, run_id in matches[:5]) + (" ..." if len(matches) > 5 else "")
            raise UsageError(f"{run!r} could be {len(matches)} runs of {paths.experiment}/{paths.name}: {listed}")
    hint = "`bakeoff status EXPERIMENT --runs` lists them"
    raise UsageError(f"no run called {run!r} under {root.absolute()}; {hint}{unreadable}")


@dataclass(frozen=True, slots=True)
class Log:
    """Where a run's output is. It need not exist: `silence` says what it means when it does not."""

    run_id: str
    home: Path
    """The run's directory."""
    name: str
    """The file's path in it."""
    status: str
    silence: str
    pattern: str = ""
    """Where this kind of run keeps its output if it is not its standard output, as `spec.workload.Logging` says it."""

    @property
    def path(self) -> Path:
        return self.home / self.name

    def others(self) -> list[str]:
        """Files with output that is not on standard output, in order, as paths in `home`."""
        files = sorted(self.path.parent.glob(self.pattern)) if self.pattern else []
        return [str(file.relative_to(self.home)) for file in files if file.is_file() and file.stat().st_size]


def find_log(edition: Recorded, position: int, *, stderr: bool = False, attempt: int | None = None) -> Log:
    """The output of a run, by default of its last attempt. Raises UsageError when it has no such attempt."""
    run = edition.run(position)
    home = edition.paths.run(run.run_id)
    folder = ""
    if attempt is not None and attempt != run.attempts:
        numbers = [entry["attempt"] for entry in edition.attempts(position)]
        if attempt not in numbers:
            raise UsageError(
                f"{run.run_id} has no attempt {attempt}; there are {', '.join(map(str, numbers)) or 'none'}"
            )
        folder = f"{ATTEMPTS}/{int(attempt)}/"
    directory = home / folder
    stream = "standard error" if stderr else "standard output"
    # A command's metrics and series come out of files or its output, so it must have left a directory.
    reported = bool(run.metrics) or edition.series(position) is not None
    had_directory = position in edition.trajectories() or (run.command is not None and reported)
    if run.status == "running":
        silence = f"{run.run_id} has written nothing to {stream} yet"
    elif run.started_at is None:
        silence = f"{run.run_id} has not been run yet"
    elif directory.is_dir():
        silence = f"{run.run_id} wrote nothing to {stream}"
    elif had_directory:
        silence = f"{directory} was deleted by hand: the output of {run.run_id} is gone, its result is still recorded"
    else:
        silence = f"{run.run_id} has no directory: it wrote nothing, or the directory was deleted by hand"
    pattern = "" if stderr else _pattern(edition)
    return Log(run.run_id, home, folder + (STDERR if stderr else STDOUT), run.status, silence, pattern)


def _pattern(edition: Recorded) -> str:
    """Return where runs of this kind keep their output; empty for standard output and for a workload that is not installed."""
    try:
        workload = registry.workload(edition.facts()["spec"]["workload"])
    except UsageError:
        return ""
    return workload.log if isinstance(workload, Logging) else ""


def remove(paths: EditionPaths) -> None:
    """Delete an edition for good. Raises LeaseHeld while it is being run.

    Rows go first and the database file last: what an interrupted deletion leaves can still be seen and deleted again.
    """
    if is_held(paths.lease):
        raise LeaseHeld(f"{paths.experiment}/{paths.name} is being run; stop it before deleting it")
    with closing(Lease(paths.lease)):
        url = os.environ.get(URL_VARIABLE)
        if url and not paths.database.exists():
            with closing(connect(url)) as database, database.transaction() as transaction:
                of_edition = "(SELECT edition_id FROM editions WHERE experiment = ? AND edition = ?)"
                for table in TABLE_NAMES:
                    transaction.run(
                        f"DELETE FROM {table} WHERE edition_id IN {of_edition}", (paths.experiment, paths.name)
                    )
        for entry in paths.directory.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            elif not entry.name.startswith((DATABASE, paths.lease.name)):
                entry.unlink()
        remove_tree(paths.directory)
    # `latest` names the newest edition that is left; an experiment without editions has no directory.
    directory = paths.directory.parent
    link = directory / LATEST
    left = editions(directory)
    if left:
        if link.is_symlink() and not link.exists():
            point_latest(left[-1])
        return
    link.unlink(missing_ok=True)
    for entry in directory.iterdir():
        if entry.is_symlink() and not entry.exists():  # links that a dialect made through `latest`
            entry.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()
