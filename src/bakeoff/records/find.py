"""Names that users type become editions and runs: `latest`, `sorting`, `sorting/20260101-120000`, a path, a run id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bakeoff.errors import BakeoffError, UsageError, did_you_mean
from bakeoff.records.edition import Edition
from bakeoff.records.layout import DATABASE, LATEST, EditionPaths, editions, experiment_directory


def experiments(root: Path) -> list[str]:
    """Names of experiments with at least one edition."""
    if not root.is_dir():
        return []
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and editions(entry))


def all_editions(root: Path) -> list[EditionPaths]:
    """Newest first."""
    found = [paths for name in experiments(root) for paths in editions(root / name)]
    return sorted(found, key=lambda paths: (paths.name, paths.experiment), reverse=True)


def find_edition(name: str, root: Path) -> EditionPaths:
    """The edition that `name` means; an experiment's name means its newest one."""
    root = root.absolute()
    if name == LATEST:
        newest = all_editions(root)
        if not newest:
            raise UsageError(f"no experiment has been run under {root}")
        return newest[0]
    experiment, _, edition = name.rstrip("/").partition("/")
    named = experiment not in ("", ".", "..")
    known = named and (editions(experiment_directory(root, experiment)) or editions(root / experiment))
    if not known:  # a name goes before a directory that happens to be called the same
        return _from_path(Path(name), experiment, root)
    if edition in ("", LATEST):
        return known[-1]
    for paths in known:
        if paths.name == edition:
            return paths
    listed = ", ".join(paths.name for paths in known[-5:])
    raise UsageError(f"{experiment} has no edition {edition!r}; there are {listed}")


def _from_path(path: Path, experiment: str, root: Path) -> EditionPaths:
    if path.is_dir() or path.name == DATABASE:
        return _from_directory(path.parent if path.name == DATABASE else path)
    if path.is_file():
        raise UsageError(f"{path}: is a file, not an experiment; compare, gate, rank, variance and power read tables")
    hint = did_you_mean(experiment, experiments(root), "`bakeoff ls` lists what is there")
    raise UsageError(f"no experiment called {experiment!r} under {root}; {hint}")


def is_edition(directory: Path) -> bool:
    return (directory / DATABASE).exists() or (directory / ".lease").exists()


def _from_directory(directory: Path) -> EditionPaths:
    directory = directory.resolve()
    if is_edition(directory):
        return EditionPaths(directory)
    inside = editions(directory)
    if not inside:
        raise UsageError(f"{directory}: holds no experiment of ours; `bakeoff import {directory}` takes in others")
    return inside[-1]


def find_run(name: str, root: Path) -> tuple[Edition, int]:
    """The run that `name` means: `latest`, an id, a part of one that only one run has, or a run's directory.

    `experiment/run` and `experiment/latest` narrow it to one experiment.
    """
    where, _, run = name.rstrip("/").rpartition("/")
    if run == LATEST:
        return _latest_run(where or LATEST, root)
    unreadable = ""
    for paths in _search(where, root):
        try:
            edition = Edition.open(paths)
        except BakeoffError as error:
            if where:
                raise
            unreadable = f". Not searched: {error}"
            continue
        found = edition.positions(_escape(run)) or edition.positions(f"%{_escape(run)}%")
        if len(found) == 1:
            return edition, found[0][0]
        edition.close()
        if found:
            listed = ", ".join(run_id for _, run_id in found[:5]) + (" ..." if len(found) > 5 else "")
            raise UsageError(f"{run!r} could be {len(found)} runs of {paths.experiment}/{paths.name}: {listed}")
    hint = "`bakeoff status EXPERIMENT --runs` lists them"
    raise UsageError(f"no run called {run!r} under {root.absolute()}; {hint}{unreadable}")


def _latest_run(where: str, root: Path) -> tuple[Edition, int]:
    edition = Edition.open(find_edition(where, root))
    position = edition.latest_run()
    if position is None:
        edition.close()
        raise UsageError(f"{edition.paths.experiment}/{edition.paths.name}: no run has started yet")
    return edition, position


def _search(where: str, root: Path) -> Iterator[EditionPaths]:
    if where:
        in_runs = Path(where).is_dir() and Path(where).name == "runs"
        yield find_edition(str(Path(where).parent) if in_runs else where, root)
    else:
        yield from all_editions(root.absolute())


def _escape(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
