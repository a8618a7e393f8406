"""`bakeoff import`: results from elsewhere become an edition. Files are copied, nothing is made up.

What a database has no place for is kept in the edition's `imported.json` (`Imported`): sources with their digests, notes, and how
the source's values are read. With it `compare` gives the same verdict on the edition as on the source.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.errors import Damaged, LeaseHeld, StorageError, UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.files import read_inside
from bakeoff.records.layout import (
    STAMP,
    EditionPaths,
    atomic_write,
    editions,
    experiment_directory,
    is_held,
    new_edition,
    point_latest,
)  # fmt: skip
from bakeoff.records.run import Attempt, TrajectoryIndex
from bakeoff.records.rundir import SERIES, TRAJECTORY
from bakeoff.records.series import Series, TrajectoryWriter, read_jsonl
from bakeoff.records.transcript import read_messages
from bakeoff.results.importers.foreign import Message, Source
from bakeoff.results.importers.transcripts import message_of
from bakeoff.results.table import UNFINISHED, Results, Row, is_number
from bakeoff.spec import registry
from bakeoff.spec.experiment import ExperimentFile, Summary
from bakeoff.spec.identity import RunId, directory_digest, run_id_in, slug
from bakeoff.spec.plan import Arm, Cell, Plan, Run, Task
from bakeoff.spec.registry import NATIVE
from bakeoff.spec.workload import Step
from bakeoff.trees import copy_tree


class ImportedSource(msgspec.Struct, frozen=True):
    """A file or directory that runs were imported from."""

    path: str
    digest: str


class Imported(msgspec.Struct, frozen=True):
    """What an imported edition keeps of its source beside the runs: fields of `Results`, and how rows were changed."""

    sources: list[ImportedSource]
    tools: list[tuple[str, str]]
    notes: list[str]
    reading: dict[str, Any]
    groups: dict[str, dict[str, str]]
    repeats: str
    incidental: list[str]
    usual: list[str]
    """Metrics that get a verdict when a question names none."""
    series_summary: dict[str, Any] | None
    unstated: list[int]
    """Positions of runs whose status the source does not say."""
    by_step: list[str]
    """Metrics that the source has by step only. The last value is recorded as a metric of the run, for people."""
    levels: list[str | None] = []
    """The group of each run's task, by position; empty where no run has one."""
    runs: str = ""
    """Digest of the runs as they were read: the same files can be read with other flags."""


def identified(results: Results) -> Results:
    """Return runs of other tools as reports and databases need them: each has a status, an id, a position and a cell.

    The last value of a metric that is known by step only becomes a metric, for people.
    """
    by_step = _by_step(results)
    cells: dict[str, int] = {}
    rows: list[Row] = []
    names: set[str] = set()
    for position, row in enumerate(results.rows):
        last = {
            name: float(row.series[name][1][-1]) for name in row.series if name in by_step and len(row.series[name][1])
        }
        status = row.status or (
            "succeeded" if row.series or any(map(is_number, row.metrics.values())) else "infra_error"
        )
        run_id = _run_id(row)
        run_id = run_id if run_id not in names else RunId(f"{run_id}__{position}")
        names.add(run_id)
        key = json.dumps([row.arm, row.task, dict(row.params)], sort_keys=True, default=str)
        rows.append(
            replace(
                row,
                run_id=run_id,
                metrics={**row.metrics, **last},
                status="cancelled" if status in UNFINISHED else status,
                error="had not ended when it was imported" if status in UNFINISHED else row.error,
                base=row.base or row.arm,
                position=position,
                cell=cells.setdefault(key, len(cells)),
                settings=row.params,
            )
        )
    return replace(results, rows=rows)


def _by_step(results: Results) -> set[str]:
    """Metrics that no run has as one number."""
    return set(results.logged) - {name for row in results.rows for name in row.metrics if is_number(row.metrics[name])}


def recordable(results: Results) -> tuple[Results, Imported]:
    """Return the runs as a database takes them, and what else has to be kept to read them as the source gave them."""
    for row in results.rows:
        for name, (steps, _) in row.series.items():
            if any(step != int(step) for step in steps):
                raise UsageError(f"{row.name}: {name!r} has steps that are not whole numbers, which cannot be recorded")
    usual = results.usual(results.metrics) if results.usual is not None else ()
    ready = identified(results)
    rows = ready.rows
    imported = Imported(
        sources=[
            ImportedSource(str(path), directory_digest(path, max_levels=None) if path.exists() else "")
            for path in results.sources
        ],
        tools=list(results.tools),
        notes=list(results.notes),
        reading=dict(results.reading),
        groups={name: dict(groups) for name, groups in results.groups.items()},
        repeats=results.repeats,
        incidental=sorted(results.incidental),
        usual=list(usual),
        series_summary=results.series_summary.model_dump(mode="json") if results.series_summary is not None else None,
        unstated=[position for position, row in enumerate(results.rows) if not row.status],
        by_step=sorted(_by_step(results)),
        levels=[row.group for row in rows] if any(row.group is not None for row in rows) else [],
        runs=_digest(rows),
    )
    return replace(ready, problems=(*results.problems, *torn_lines(results))), imported


def torn_lines(results: Results) -> Iterator[str]:
    """Say which logs of runs have lines that cannot be read."""
    for row in results.rows:
        log = row.directory / SERIES if row.directory is not None else None
        if log is not None and log.is_file() and (torn := read_jsonl(log)[1]):
            yield f"{log}: {torn} line{'s' if torn > 1 else ''} left out"


def _digest(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        facts = [row.run_id, row.arm, row.task, row.seed, row.rollout, row.status, row.error, row.metrics, row.params]
        digest.update(json.dumps(facts, sort_keys=True, default=str).encode())
        for name, (steps, values) in row.series.items():
            digest.update(name.encode() + bytes(steps) + bytes(values))
    return digest.hexdigest()


def _run_id(row: Row) -> RunId:
    """A run's own id or, in a table, what it is: it becomes the name of a directory."""
    if row.run_id:
        return RunId(slug(Path(row.run_id).name if row.directory is not None else row.run_id, 200))
    if row.source is not None and row.source.member is not None:
        return RunId(slug(f"{row.source.path.stem}__{row.source.member}", 200))
    seed = "" if row.seed is None else f"__s{row.seed}"
    return RunId(slug(f"{row.arm[:80]}__{row.task[:80]}{seed}__r{row.rollout}", 200))


def as_imported(results: Results) -> Results:
    """Return the results of an imported edition as the source gave them: nothing in them was declared beforehand."""
    assert results.edition is not None
    try:
        imported = msgspec.json.decode(results.edition.paths.imported.read_bytes(), type=Imported)
    except (OSError, msgspec.DecodeError) as error:
        raise Damaged(results.edition.paths.imported, str(error)) from error
    by_step, unstated = set(imported.by_step), set(imported.unstated)
    paths, trajectories = results.edition.paths, results.edition.trajectories()
    rows = [
        replace(
            row,
            status="" if position in unstated else row.status,
            group=imported.levels[position] if imported.levels else None,
            metrics={name: value for name, value in row.metrics.items() if name not in by_step}
            if by_step
            else row.metrics,
            source=Source(paths.run(run_id_in(paths.directory, row.run_id)) / TRAJECTORY)
            if position in trajectories
            else None,
            transcript=_recorded if position in trajectories else None,
        )
        for position, row in enumerate(results.rows)
    ]
    summary = imported.series_summary
    return replace(
        results,
        rows=rows,
        usual=lambda known: imported.usual if set(imported.usual) <= set(known) else (),
        series_summary=Summary.model_validate(summary) if summary is not None else None,
        reading=imported.reading,
        groups=imported.groups,
        repeats=imported.repeats,
        incidental=frozenset(imported.incidental),
        tools=tuple(imported.tools),
        notes=(*results.notes, *imported.notes),
        declared=None,
        looks=(),
    )


def _recorded(source: Source) -> list[Message]:
    """Read what an import recorded of a run's messages. Raises Damaged."""
    try:
        return [message_of(message) for message in read_messages(source.path)]
    except (OSError, ValueError) as error:
        raise Damaged(source.path, str(error)) from error


def imported_before(imported: Imported, name: str, root: Path) -> EditionPaths | None:
    """Return the newest edition of experiment `name` that holds the same runs of files with the same content, if one does."""

    def content(record: Imported) -> tuple[str, list[str]]:
        return record.runs, sorted(source.digest for source in record.sources)

    for paths in reversed(editions(experiment_directory(root, name))):
        try:
            other = msgspec.json.decode(read_inside(paths.directory, paths.imported.name), type=Imported)
        except (OSError, msgspec.DecodeError):
            continue
        if content(other) == content(imported) and paths.database.exists():
            return paths
    return None


def import_results(results: Results, imported: Imported, name: str, root: Path, source: str) -> Edition:
    """A new edition with these runs and copies of their files. Nothing stays behind when it cannot be finished."""
    plan, runs = _plan(results, name, f"imported from {source}")
    paths = new_edition(experiment_directory(root, name))
    try:
        trajectories = {}
        for row in results.rows:
            if row.directory is not None and row.directory.is_dir():
                paths.runs.mkdir(exist_ok=True)
                copy_tree(row.directory, paths.run(run_id_in(paths.directory, row.run_id)))
            if messages := row.messages():
                trajectories[row.position] = _write_trajectory(
                    paths.run(run_id_in(paths.directory, row.run_id)), row.arm, messages
                )
        atomic_write(paths.imported, msgspec.json.format(msgspec.json.encode(imported)))
        edition = _record(plan, runs, results.rows, trajectories, paths)
    except BaseException as error:
        shutil.rmtree(paths.directory, ignore_errors=True)
        if isinstance(error, OSError):
            raise StorageError(f"{paths.directory}: files could not be copied: {error}") from error
        raise
    point_latest(paths)
    return edition


def _write_trajectory(directory: Path, arm: str, messages: Sequence[Message]) -> TrajectoryIndex:
    """Record a transcript as one step: which of its messages answer which call is not known of every tool."""
    directory.mkdir(parents=True, exist_ok=True)
    writer = TrajectoryWriter(directory / TRAJECTORY)
    writer.add(Step(messages=[message.as_recorded() for message in messages], agent=arm, done=True))
    return writer.close()


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
    begun = time.strftime("%Y%m%d-%H%M%S", time.gmtime(facts["created_at"]))
    stamp = facts["edition"] if STAMP.fullmatch(facts["edition"]) else begun
    target = EditionPaths(experiment_directory(root, name or facts["experiment"]) / stamp)
    if target.directory.exists():
        raise UsageError(f"{target.directory} exists already; --name gives the experiment another name")
    try:
        target.directory.parent.mkdir(parents=True, exist_ok=True)
        copy_tree(source.directory, target.directory)
    except OSError as error:
        shutil.rmtree(target.directory, ignore_errors=True)
        raise StorageError(f"{target.directory}: files could not be copied: {error}") from error
    point_latest(target)
    return target


def _plan(results: Results, name: str, description: str) -> tuple[Plan, list[Run]]:
    """A plan that has just these runs, in this order."""
    cells: dict[int, Cell] = {}
    runs = []
    for row in results.rows:
        if row.cell not in cells:
            arm = Arm(row.arm, {}, row.flags, base=row.base, ablation=row.ablation)
            cells[row.cell] = Cell(row.cell, arm, Task(row.task), row.params, 1, lambda seed, rollout: RunId(""))
        runs.append(Run(row.position, run_id_in(Path(name), row.run_id), cells[row.cell], row.seed, row.rollout))
    names = {row.dialect for row in results.rows}
    dialect = registry.dialect(names.pop() if len(names) == 1 else NATIVE.name)
    experiment = ExperimentFile(
        name=name,
        description=description,
        workload=results.rows[0].workload,
        seeds=sorted({run.seed for run in runs if run.seed is not None}) or [0],
        analysis=results.analysis,
    )
    return Plan(experiment, list(cells.values()), dialect=dialect.name), runs


def _record(
    plan: Plan, runs: list[Run], rows: Sequence[Row], trajectories: Mapping[int, TrajectoryIndex], paths: EditionPaths
) -> Edition:
    edition = Edition.create(plan, paths)
    paths.lease.touch()
    edition.add_cells(plan.cells, frozenset())
    edition.add_runs(runs)
    attempts = [_attempt(run, row, trajectories.get(row.position)) for run, row in zip(runs, rows, strict=True)]
    edition.finish(attempts, session=0)
    edition.end_session(0, "imported")  # there was no session; this records whether every run has an outcome
    return edition


def _attempt(run: Run, row: Row, trajectory: TrajectoryIndex | None) -> Attempt:
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
        trajectory=trajectory,
        command=row.command,
    )
