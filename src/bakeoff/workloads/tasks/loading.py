"""A directory becomes a Task, whichever format it is in."""

from __future__ import annotations

from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.workloads.tasks import harbor, overrides, prepared, terminal_bench
from bakeoff.workloads.tasks.model import Task


def load_task(directory: Path, *, overrides_file: Path | None = None, apply_overrides: bool = True) -> Task:
    """The task with its overrides: `overrides_file` if given, else the directory's own `overrides.json` if it has one."""
    directory = directory.absolute()
    task = read_task(directory)
    if not apply_overrides:
        return task
    file = overrides_file or directory / overrides.FILE
    if overrides_file is None and not file.is_file():
        return task
    return overrides.apply(task, overrides.read(file), file)


def read_task(directory: Path) -> Task:
    """The task as it stands, without overrides."""
    if (directory / prepared.FILE).is_file():
        return prepared.read(directory)
    if (directory / harbor.FILE).is_file():
        return harbor.read(directory)
    for name in terminal_bench.FILES:
        if (directory / name).is_file():
            return terminal_bench.read(directory, directory / name)
    known = f"{prepared.FILE} (prepared), {harbor.FILE} (Harbor) or {terminal_bench.FILES[0]} (terminal-bench)"
    if not directory.is_dir():
        raise UsageError(f"{directory}: there is no such task directory\n  fix: correct the path")
    raise UsageError(f"{directory}: this is no task\n  fix: give a directory that holds {known}")


def find_tasks(place: Path) -> list[Path]:
    """`place` itself if it is a task, else the tasks in it, by name."""
    files = (prepared.FILE, harbor.FILE, *terminal_bench.FILES)
    if any((place / name).is_file() for name in files) or not place.is_dir():
        return [place]
    return sorted(folder for folder in place.iterdir() if any((folder / name).is_file() for name in files))
