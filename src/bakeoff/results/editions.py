"""Our own editions as `Results`: one with all its arms, or arms of several side by side."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import LATEST, editions, find_edition
from bakeoff.records.looks import read_looks
from bakeoff.records.lookup import find_run
from bakeoff.records.run import CellRecord, Uncounted, uncounted
from bakeoff.records.series import read_block
from bakeoff.results.table import Results, Row, Series
from bakeoff.spec.experiment import Experiment
from bakeoff.spec.identity import canonical_json


class _Blocks:
    """The series of an edition. Compressed blocks are read at once when the first is needed, and decoded one by one."""

    def __init__(self, edition: Edition) -> None:
        self._edition = edition
        self._blocks: dict[int, bytes] | None = None
        # A question asks a run for one metric after another, so the runs looked at last stay decoded.
        self.series = lru_cache(maxsize=128)(self._decode)

    def _decode(self, position: int) -> Mapping[str, Series]:
        if self._blocks is None:
            self._blocks = dict(self._edition.all_series())
        block = self._blocks.get(position)
        return {} if block is None else as_floats(read_block(block))


class _LazySeries(Mapping[str, Series]):
    """Series of one run, read from the database on first access."""

    __slots__ = ("_blocks", "_position")

    def __init__(self, blocks: _Blocks, position: int) -> None:
        self._blocks, self._position = blocks, position

    def __getitem__(self, name: str) -> Series:
        return self._blocks.series(self._position)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks.series(self._position))

    def __len__(self) -> int:
        return len(self._blocks.series(self._position))


def as_floats(columns: Mapping[str, tuple[Any, Any]]) -> dict[str, Series]:
    return {
        name: (np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64))
        for name, (steps, values) in columns.items()
    }


def edition_results(edition: Edition) -> Results:
    """Every planned run of an edition, whatever became of it. The edition stays open until `Results.close()`."""
    facts = edition.facts()
    experiment = Experiment.model_validate(facts["spec"])
    cells = {cell.number: cell for cell in edition.cells()}
    blocks = _Blocks(edition)
    looks = read_looks(edition)
    seen = sorted({look.planned for look in looks if look.kind != "too few"})
    rows = []
    for run in edition.runs():
        cell = cells[run.cell]
        rows.append(
            Row(
                arm=run.arm,
                task=run.task,
                seed=run.seed,
                rollout=run.rollout,
                status=run.status,
                metrics=run.metrics,
                series=_LazySeries(blocks, run.position),
                run_id=run.run_id,
                params=cell.columns,
                base=cell.base,
                ablation=cell.ablation,
                flags=tuple(cell.flags),
                workload=facts["workload"],
                dialect=facts["dialect"],
                command=run.command,
                started_at=run.started_at,
                ended_at=run.ended_at,
                exit_code=run.exit_code,
                error=run.error,
                stage=bisect_right(seen, run.position),
            )
        )
    return Results(
        rows=rows,
        label=f"{facts['experiment']}/{facts['edition']}",
        analysis=experiment.analysis,
        fixed_tasks=bool(experiment.task_keys) and not experiment.tasks,
        digests=_task_contents(experiment, cells.values()),
        uncounted=uncounted(edition),
        edition=edition,
        looks=looks,
    )


def _task_contents(experiment: Experiment, cells: Iterable[CellRecord]) -> dict[str, str]:
    """What each task is: the digest of its files and, where the experiment file gives it any, its parameters."""
    params = {task.name: canonical_json(task.params) for task in experiment.tasks if task.params}
    contents = {cell.task: f"{cell.task_digest or ''}{params.get(cell.task, '')}" for cell in cells}
    return {task: content for task, content in contents.items() if content}


def run_row(name: str, root: Path) -> Row:
    """One run of one of our editions, by its id. Raises UsageError when there is no such run."""
    edition, position = find_run(name, root)
    try:
        run, block = edition.run(position), edition.series(position)
        return Row(
            arm=run.arm,
            task=run.task,
            seed=run.seed,
            rollout=run.rollout,
            status=run.status,
            metrics=run.metrics,
            series=as_floats(read_block(block)) if block is not None else {},
            run_id=run.run_id,
        )
    finally:
        edition.close()


def open_edition(name: str, root: Path) -> Results:
    """Any name that `find_edition` understands."""
    return edition_results(Edition.open(find_edition(name, root)))


def open_all_editions(names: Sequence[str], root: Path) -> Results:
    """Every edition of one experiment, oldest first, as `parts`; the rows of all of them in that order."""
    if len(names) > 1 or any(":" in name for name in names):
        raise UsageError("--editions all takes one experiment by its name")
    directory = find_edition(names[0] if names else LATEST, root).directory.parent
    parts: list[Results] = []
    for paths in editions(directory):
        try:
            parts.append(edition_results(Edition.open(paths)))
        except UsageError:
            continue  # its scheduler died before it had recorded the plan
    return Results(
        rows=[row for part in parts for row in part.rows],
        label=f"{directory.name}, {len(parts)} editions",
        analysis=parts[0].analysis,
        fixed_tasks=parts[0].fixed_tasks,
        digests=parts[0].digests,
        parts=tuple(parts),
    )


def open_editions(names: Sequence[str], root: Path) -> Results:
    """`A` for all arms of an edition, or `A:arm B:arm ...` for arms of several; the first is the control."""
    if len(names) == 1 and ":" not in names[0]:
        return open_edition(names[0], root)
    if len(set(names)) < len(names):
        raise UsageError(f"an arm is named twice: {' '.join(names)}")
    opened: dict[str, Results] = {}
    parts: list[tuple[Results, str]] = []
    for name in names:
        edition, colon, arm = name.partition(":")
        if not colon or not arm:
            raise UsageError(f"{name}: say which arm of it, as in {edition}:ARM")
        if edition not in opened:
            opened[edition] = open_edition(edition, root)
        parts.append((opened[edition], arm))
    if len(parts) < 2:
        raise UsageError(f"{names[0]} is one arm; name another one beside it")
    return side_by_side(parts)


def side_by_side(parts: Sequence[tuple[Results, str]]) -> Results:
    """One arm each of several editions. What decides, and tasks of the same name, must not differ between them."""
    first = parts[0][0]
    arms = [arm for _, arm in parts]
    rows: list[Row] = []
    tries: dict[str, Uncounted] = {}
    for results, arm in parts:
        if arm not in results.arms:
            raise UsageError(f"{results.label} has no arm called {arm!r}; there are {', '.join(results.arms)}")
        for field in ("direction", "bounds", "failure_score"):
            if getattr(results.analysis, field) != getattr(first.analysis, field):
                raise UsageError(
                    f"{first.label} and {results.label} declare another direction, range or failure score; "
                    "make the two files agree"
                )
        for task in set(first.tasks) & set(results.tasks):
            if first.digests.get(task) != results.digests.get(task):
                raise UsageError(
                    f"task {task!r} is not the same in {first.label} and {results.label}: its content differs, so a "
                    "difference between the arms would say nothing; run both on the same task"
                )
        # Arms keep their names; the edition goes in front where two are called the same.
        name = arm if arms.count(arm) == 1 else f"{results.label}:{arm}"
        rows += [replace(row, arm=name) for row in results.rows if row.arm == arm]
        tries[name] = results.uncounted[arm]
    return Results(
        rows=rows,
        label=" against ".join(f"{results.label}:{arm}" for results, arm in parts),
        analysis=first.analysis.model_copy(update={"control": None}),
        fixed_tasks=any(results.fixed_tasks for results, _ in parts),
        digests=first.digests,
        uncounted=tries,
        looks=tuple(
            look for results in {id(results): results for results, _ in parts}.values() for look in results.looks
        ),
        parts=tuple({id(results): results for results, _ in parts}.values()),
    )
