"""`bakeoff import`: results from elsewhere become an edition. Files are copied, nothing is made up.

A report of foreign results is written from the same kind of edition, in a scratch directory (`temporary_edition`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bakeoff.errors import LeaseHeld, StorageError, UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths, experiment_directory, is_held, new_edition, point_latest
from bakeoff.records.run import Attempt
from bakeoff.records.rundir import SERIES
from bakeoff.records.series import Series, read_jsonl
from bakeoff.results.importers import read_place
from bakeoff.results.importers.directories import scalars
from bakeoff.results.importers.files import read_lines
from bakeoff.results.table import Results, Row
from bakeoff.spec import registry
from bakeoff.spec.experiment import Analysis, Experiment
from bakeoff.spec.identity import NOT_IN_DIRECTORIES, slug
from bakeoff.spec.plan import Arm, Cell, Plan, Run, Task
from bakeoff.spec.registry import NATIVE


def read_directory(directory: Path) -> Results:
    """Every run in a directory that can be recorded. What cannot be is a line in `problems`."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory")
    results = read_place(directory)
    rows, problems = [], list(results.problems)
    for row in results.rows:
        if row.seed is None:
            problems.append(
                f"{row.run_id}: its seed is not known: name it NAME_s3, or write `condition` and `seed` into {SERIES}"
            )
            continue
        metrics = row.metrics
        if not metrics and row.directory is not None:
            # A run that only logged by step counts with what it logged last.
            metrics = scalars(next(reversed(list(read_lines(row.directory / SERIES))), {}))
        steps = row.directory / SERIES if row.directory is not None else None
        if steps is not None and steps.is_file() and (torn := read_jsonl(steps)[1]):
            problems.append(f"{steps}: {torn} line{'s' if torn > 1 else ''} left out")
        name = Path(row.run_id).name if row.directory is not None else row.run_id
        rows.append(replace(row, run_id=slug(name, 200), metrics=metrics))
    return replace(results, rows=rows, problems=tuple(problems))


def import_results(results: Results, name: str, root: Path, source: Path) -> Edition:
    """A new edition with these runs and copies of their files. Nothing stays behind when it cannot be finished."""
    plan, runs = _plan(results, name, f"imported from {source}")
    paths = new_edition(experiment_directory(root, name))
    try:
        for row in results.rows:
            if row.directory is not None:
                shutil.copytree(row.directory, paths.run(row.run_id), symlinks=True)
        edition = _record(plan, runs, results.rows, paths)
    except BaseException as error:
        shutil.rmtree(paths.directory, ignore_errors=True)
        if isinstance(error, shutil.Error | OSError):
            raise StorageError(f"{paths.directory}: files could not be copied: {error}") from error
        raise
    point_latest(paths)
    return edition


def temporary_edition(results: Results, name: str, scratch: Path) -> Edition:
    """An edition in `scratch`, to write a report from: files stay where they are, behind links."""
    plan, runs = _plan(results, name, "")
    started = min((row.started_at for row in results.rows if row.started_at is not None), default=0.0)
    paths = new_edition(experiment_directory(scratch, name), now=started)
    paths.linked = True
    paths.runs.mkdir()
    for row in results.rows:
        if row.directory is not None and row.directory.is_dir():
            paths.run(row.run_id).symlink_to(row.directory.resolve())
    return _record(plan, runs, results.rows, paths, place=str(paths.database))


def copy_edition(source: EditionPaths, name: str | None, root: Path) -> EditionPaths:
    """An edition of ours from elsewhere, database and all, under its own stamp."""
    if is_held(source.lease):
        raise LeaseHeld(f"{source.directory} is being run; import it when it has ended")
    if not source.database.exists():
        raise UsageError(
            f"{source.directory}: its results are in another database, so the directory alone cannot be imported"
        )
    edition = Edition.open(source)
    facts = edition.facts()
    edition.close()
    # The names are those of a database that somebody else may have written.
    stamp = slug(facts["edition"], 200, unwanted=NOT_IN_DIRECTORIES)
    target = EditionPaths(experiment_directory(root, name or facts["experiment"]) / stamp)
    if target.directory.exists():
        raise UsageError(f"{target.directory} exists already; --name gives the experiment another name")
    try:
        shutil.copytree(source.directory, target.directory, symlinks=True)
    except (shutil.Error, OSError) as error:
        shutil.rmtree(target.directory, ignore_errors=True)
        raise StorageError(f"{target.directory}: files could not be copied: {error}") from error
    point_latest(target)
    return target


def _plan(results: Results, name: str, description: str) -> tuple[Plan, list[Run]]:
    """A plan that has just these runs, in this order."""
    cells: dict[str, Cell] = {}
    runs = []
    for position, row in enumerate(results.rows):
        key = json.dumps([row.arm, row.task, dict(row.params)], sort_keys=True)
        if key not in cells:
            arm = Arm(row.arm, {}, row.flags, base=row.base or row.arm, ablation=row.ablation)
            cells[key] = Cell(len(cells), arm, Task(row.task), row.params, 1, lambda seed, rollout: "")
        assert row.seed is not None  # read_directory leaves out runs without one
        runs.append(Run(position, row.run_id, cells[key], row.seed, row.rollout))
    names = {row.dialect for row in results.rows}
    dialect = registry.dialect(names.pop() if len(names) == 1 else NATIVE.name)
    experiment = Experiment(
        name=name,
        description=description,
        workload=results.rows[0].workload,
        seeds=sorted({run.seed for run in runs}),
        analysis=dialect.analysis or Analysis(),
    )
    return Plan(experiment, list(cells.values()), dialect=dialect.name), runs


def _record(plan: Plan, runs: list[Run], rows: Sequence[Row], paths: EditionPaths, place: str | None = None) -> Edition:
    edition = Edition.create(plan, paths, place)
    paths.lease.touch()
    edition.add_cells(plan.cells, frozenset())
    edition.add_runs(runs)
    edition.finish([_attempt(run, row) for run, row in zip(runs, rows, strict=True)], session=0)
    edition.end_session(0, "imported")  # there was no session; this records whether every run has an outcome
    return edition


def _attempt(run: Run, row: Row) -> Attempt:
    series = Series()
    for name, (steps, values) in row.series.items():
        for step, value in zip(steps, values, strict=True):
            series.add(int(step), {name: float(value)})
    return Attempt.of(
        run,
        status=row.status,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        error=row.error,
        metrics=row.metrics,
        series=series.block() if series else None,
        command=row.command,
    )
