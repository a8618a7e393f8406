"""Our own editions as `Results`: one with all its arms, or arms of several side by side.

Until means or a verdict were shown, `[analysis]` of the experiment file may be changed, and `bakeoff compare FILE` uses it.
After that it is a change, which the verdict counts and shows (`verdicts.family`). `bakeoff compare NAME` uses what the
edition has on record, and says so where the file has changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.records.conditions import Share, read_shares
from bakeoff.records.layout import LATEST, EditionPaths, editions, experiment_directory, find_edition
from bakeoff.records.looks import LEAST_RUNS, Look, read_growths, read_looks
from bakeoff.records.lookup import find_run
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import CellRecord, RunRecord, Uncounted, uncounted
from bakeoff.records.series import read_block
from bakeoff.results.table import Declared, Results, Row, Series
from bakeoff.spec import formats
from bakeoff.spec.experiment import Analysis
from bakeoff.spec.identity import canonical_json

GROWTH = "growth"
"""The verb of a look that nobody recorded: the plan grew after all its runs had ended."""


class _Blocks:
    """The series of an edition. Compressed blocks are read at once when the first is needed, and decoded one by one."""

    def __init__(self, edition: Recorded) -> None:
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


def edition_results(edition: Recorded) -> Results:
    """Every planned run of an edition, whatever became of it. The edition stays open until `Results.close()`."""
    facts, sessions = edition.facts(), edition.sessions()
    spec = facts["spec"]  # validating all of it would take longer than reading a hundred runs
    analysis = Analysis.model_validate(spec.get("analysis", {}))
    source = sessions[-1]["provenance"].get("experiment") if sessions else None
    cells = {cell.number: cell for cell in edition.cells()}
    blocks = _Blocks(edition)
    runs = list(edition.runs())
    looks = read_looks(edition)
    tasks, sequential = spec.get("tasks", []), spec.get("sequential") is not None
    costless = {"too few"}
    if sequential:  # such a test grows by itself, and may be watched
        costless.add("sequential")
    else:
        looks = tuple(sorted((*looks, *_ended_plans(edition, runs)), key=lambda look: look.at))
    seen = sorted({look.planned for look in looks if look.kind not in costless})
    rows = [
        _row(edition, facts, run, cells[run.cell], _LazySeries(blocks, run.position), bisect_right(seen, run.position))
        for run in runs
    ]
    # What each task is: the digest of its files and, where the experiment file gives it any, its parameters.
    params = {task["name"]: canonical_json(task["params"]) for task in tasks if task.get("params")}
    contents = {cell.task: f"{cell.task_digest or ''}{params.get(cell.task, '')}" for cell in cells.values()}
    results = Results(
        rows=rows,
        label=f"{facts['experiment']}/{facts['edition']}",
        analysis=analysis,
        fixed_tasks=bool(spec.get("task_keys")) and not tasks,
        digests={task: content for task, content in contents.items() if content},
        uncounted=uncounted(edition),
        edition=edition,
        file=Path(source) if source and Path(source).is_file() else None,
        looks=looks,
        shares=read_shares(edition, sessions),
        declared=Declared(analysis, tuple(dict.fromkeys(row.arm for row in rows)), sequential),
    )
    if edition.paths.imported.exists():
        from bakeoff.results.importing import as_imported

        return as_imported(results)
    return results


def _row(
    edition: Recorded,
    facts: Mapping[str, Any],
    run: RunRecord,
    cell: CellRecord,
    series: Mapping[str, Series],
    stage: int = 0,
) -> Row:
    """A run of an edition as a row. `facts` are the edition's; `stage` is for verdicts."""
    return Row(
        arm=run.arm,
        task=run.task,
        seed=run.seed,
        rollout=run.rollout,
        status=run.status,
        metrics=run.metrics,
        series=series,
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
        stage=stage,
        position=run.position,
        cell=run.cell,
        settings=cell.params,
        tries=run.attempts,
        edition=edition,
    )


def edition_row(edition: Recorded, position: int) -> Row:
    """One run of an open edition, without reading the others. Raises UsageError when there is no such run."""
    run, block = edition.run(position), edition.series(position)
    series = {} if block is None else as_floats(read_block(block))
    return _row(edition, edition.facts(), run, edition.cells(run.cell)[0], series)


def _ended_plans(edition: Recorded, runs: Sequence[RunRecord]) -> Iterator[Look]:
    """A look for each plan that had ended when it grew: its means could be seen, by whatever means."""
    for growth in read_growths(edition):
        by_arm = Counter(run.arm for run in runs if run.position < growth.before)
        if growth.open == 0 and len(by_arm) > 1 and sorted(by_arm.values())[-2] >= LEAST_RUNS:
            yield Look(growth.at, GROWTH, "means", growth.before, growth.before, "", {})


def run_row(name: str, root: Path) -> Row:
    """One run of one of our editions, by its id. Raises UsageError when there is no such run."""
    edition, position = find_run(name, root)
    with closing(edition):
        return replace(edition_row(edition, position), edition=None)


def open_edition(paths: EditionPaths) -> Results:
    """All arms of an edition, with a note where its experiment file judges otherwise by now."""
    results = edition_results(Recorded.open(paths))
    changed = _changed_file(results)
    return replace(results, notes=(*results.notes, changed)) if changed else results


@dataclass(frozen=True, slots=True)
class SameEditions:
    """Every edition of the same plan and code, oldest first, and which of them this is."""

    names: tuple[str, ...]
    aborted: tuple[str, ...]
    """Those whose runs have not all ended."""
    number: int
    """Of this one, from 1."""

    @property
    def sentence(self) -> str:
        open_ = f", {len(self.aborted)} of them aborted or unfinished" if self.aborted else ""
        return (
            f"Edition {self.number} of {len(self.names)} of the same plan and code{open_} ({', '.join(self.names)}); the "
            "verdict is about this one alone, and --editions all combines them where their seeds differ."
        )

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"number": self.number, "editions": self.names, "aborted": self.aborted}


def same_editions(edition: Recorded) -> SameEditions | None:
    """The editions of the experiment that repeat this one; None when it is the only one."""
    siblings = editions(edition.paths.directory.parent)
    if len(siblings) < 2:
        return None
    from bakeoff.records.provenance import code_change  # not for the only edition

    names, aborted = [], []
    plan, code = _plan(edition), _code(edition)
    for paths in siblings:
        if paths.name == edition.paths.name:
            names.append(paths.name)
            continue
        try:
            with closing(Recorded.open(paths)) as other:
                if _plan(other) == plan and code_change(code, _code(other)) is None:
                    names.append(paths.name)
                    if not other.complete:
                        aborted.append(paths.name)
        except BakeoffError:
            continue  # its scheduler died before it had recorded the plan, or it cannot be read
    if len(names) < 2 or edition.paths.name not in names:
        return None
    return SameEditions(tuple(names), tuple(aborted), names.index(edition.paths.name) + 1)


def _plan(edition: Recorded) -> list[tuple[str, ...]]:
    """What two editions have in common when one repeats the other; seeds may differ."""
    return sorted((cell.arm, cell.task, cell.task_digest or "", str(cell.params)) for cell in edition.cells())


def _code(edition: Recorded) -> dict[str, Any]:
    """Provenance of the first session."""
    return next((session["provenance"] for session in edition.sessions()), {})


def open_all_editions(names: Sequence[str], root: Path) -> Results:
    """Every edition of one experiment, oldest first, as `parts`; the rows of all of them in that order."""
    if len(names) > 1 or any(":" in name for name in names):
        raise UsageError("--editions all takes one experiment by its name")
    directory = find_edition(names[0] if names else LATEST, root).directory.parent
    parts: list[Results] = []
    for paths in editions(directory):
        try:
            parts.append(edition_results(Recorded.open(paths)))
        except UsageError:
            continue  # its scheduler died before it had recorded the plan
    return Results(
        rows=[row for part in parts for row in part.rows],
        label=f"{directory.name}, {len(parts)} editions",
        analysis=parts[0].analysis,
        fixed_tasks=parts[0].fixed_tasks,
        digests=parts[0].digests,
        shares=tuple(share for part in parts for share in part.shares),
        parts=tuple(parts),
    )


def open_editions(names: Sequence[str], root: Path) -> Results:
    """`A` for all arms of an edition, or `A:arm B:arm ...` for arms of several; the first is the control."""
    if len(names) == 1 and ":" not in names[0]:
        return open_edition(find_edition(names[0], root))
    if len(set(names)) < len(names):
        raise UsageError(f"an arm is named twice: {' '.join(names)}")
    opened: dict[str, Results] = {}
    parts: list[tuple[Results, str]] = []
    for name in names:
        edition, colon, arm = name.partition(":")
        if not colon or not arm:
            raise UsageError(f"{name}: say which arm of it, as in {edition}:ARM")
        if edition not in opened:
            opened[edition] = edition_results(Recorded.open(find_edition(edition, root)))
        parts.append((opened[edition], arm))
    if len(parts) < 2:
        raise UsageError(f"{names[0]} is one arm; name another one beside it")
    return side_by_side(parts)


def side_by_side(parts: Sequence[tuple[Results, str]]) -> Results:
    """One arm each of several editions. What decides, and tasks of the same name, must not differ between them."""
    first = parts[0][0]
    arms = [arm for _, arm in parts]
    rows: list[Row] = []
    shares: list[Share] = []
    tries: dict[str, Uncounted] = {}
    for results, arm in parts:
        if arm not in results.arms:
            raise UsageError(f"{results.label} has no arm called {arm!r}; there are {', '.join(results.arms)}")
        for field, default in (("direction", "maximize"), ("bounds", None), ("failure_score", None)):
            if (getattr(results.analysis, field) or default) != (getattr(first.analysis, field) or default):
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
        shares += [replace(share, arm=name) for share in results.shares if share.arm == arm]
        tries[name] = results.uncounted[arm]
    return Results(
        rows=rows,
        label=" against ".join(f"{results.label}:{arm}" for results, arm in parts),
        analysis=first.analysis.model_copy(update={"control": None}),
        fixed_tasks=any(results.fixed_tasks for results, _ in parts),
        digests=first.digests,
        uncounted=tries,
        shares=tuple(shares),
        looks=tuple(
            look for results in {id(results): results for results, _ in parts}.values() for look in results.looks
        ),
        parts=tuple({id(results): results for results, _ in parts}.values()),
        # Arms of one edition, named one by one, are of its family.
        declared=first.declared if all(results is first for results, _ in parts) else None,
    )


# -- what the experiment file says now


def open_by_file(path: Path, root: Path) -> Results | None:
    """The newest edition of the experiment that the file describes, judged as the file says now.

    None when it is not an experiment file or nothing was run of it.
    """
    if path.suffix.lower() not in formats.SUFFIXES or not path.is_file() or not isinstance(_read(path), dict):
        return None
    from bakeoff.spec.load import load_plan  # not for `compare NAME`

    try:
        plan = load_plan(path)
    except BakeoffError:
        return None
    known = editions(experiment_directory(root, plan.experiment.name))
    if not known:
        return None
    results = edition_results(Recorded.open(known[-1]))
    assert results.declared is not None
    before = results.declared.analysis
    now = plan.experiment.analysis.model_copy(update={"final": before.final})
    changes = before.changes(now)
    if not changes:
        return replace(results, notes=())
    what = f"{path}: [analysis] is not that of {results.label} ({'; '.join(changes)})"
    if results.declared.sequential:
        results.close()
        raise UsageError(
            f"{what}, and the rule of a sequential test is fixed when it begins; restore the file, or ask for "
            f"{plan.experiment.name!r}"
        )
    if any(look.kind != "too few" for look in results.looks):
        note = f"{what}; results had been shown before, so this is a changed analysis"
        return replace(results, analysis=now, notes=(note,))
    note = f"{what}; no result had been shown, so the file counts"
    return replace(results, analysis=now, declared=replace(results.declared, analysis=now), notes=(note,))


def _changed_file(results: Results) -> str:
    """A sentence about the edition's experiment file, if its `[analysis]` is another one by now; else empty."""
    path = results.file
    if path is None or results.edition is None or results.declared is None:
        return ""
    places = (results.edition.paths.frozen(path.suffix), path)
    try:
        if places[0].read_bytes() == places[1].read_bytes():
            return ""
    except OSError:
        return ""
    tables = [_read(place) for place in places]
    before, now = (tree.get("analysis") or {} if isinstance(tree, dict) else None for tree in tables)
    if not isinstance(before, dict) or not isinstance(now, dict) or before == now:
        return ""
    try:
        # `run` takes over a change as long as nothing was shown.
        parsed = Analysis.model_validate(now).model_dump(mode="json")
    except ValueError:
        return ""
    recorded = results.declared.analysis.model_dump(mode="json")
    keys = [
        key
        for key in dict.fromkeys((*before, *now))
        if before.get(key) != now.get(key) and parsed.get(key) != recorded.get(key)
    ]
    if not keys:
        return ""
    said = ", ".join(f"{key} = {now[key]}" if key in now else f"no {key}" for key in keys)
    return (
        f"{path.name} now says {said}; this uses the [analysis] that the edition has on record, and "
        f"`bakeoff compare {path}` uses the file's"
    )


def _read(path: Path) -> Any:
    """The nested tables of a file; None when it cannot be read."""
    try:
        return formats.read(path.read_text(encoding="utf-8"), path.suffix.lower())
    except (OSError, ValueError, BakeoffError):
        return None
