"""What is wrong with an edition that could not be read.

Reading finds most damage by itself: SQLite what its pages say, a run's row and every compressed block by a checksum. What
is left are values that are well-formed and nonsense, in an edition that somebody else wrote or of a version without
checksums. Code that reads such a value fails in its own way; `explained` then looks through the edition and says what
it found. So a sound edition costs nothing, and an error of our own is not taken for damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Any, NotRequired, TypedDict

import msgspec

from bakeoff.errors import BakeoffError, Damaged
from bakeoff.records.claims import NodeRecord, list_nodes
from bakeoff.records.codefiles import CodeFiles
from bakeoff.records.layout import EditionPaths
from bakeoff.records.looks import Growth, Look, read_growths, read_looks
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import CellRecord, RunRecord, Time, TrajectoryIndex
from bakeoff.records.series import read_block, read_trajectory


class _Git(TypedDict, total=False):
    commit: str | None
    branch: str | None
    dirty: bool
    diff: str
    code: str | None


class _Provenance(TypedDict, total=False):
    git: _Git | None
    packages: dict[str, str]
    env: dict[str, str]
    argv: list[str]
    set: list[str]
    cwd: str
    base: str
    experiment: str | None
    files: CodeFiles


class _Session(TypedDict):
    session: int
    started_at: Time
    seen_at: Time
    ended: str | None
    planned: int
    provenance: _Provenance


class _Attempt(TypedDict):
    attempt: int
    session: int
    status: str
    started_at: Time | None
    ended_at: Time | None
    exit_code: int | None
    error: str | None
    node: NotRequired[str | None]
    lost: NotRequired[str | None]


class _Facts(TypedDict):
    experiment: str
    edition: str
    workload: str
    dialect: str
    spec: dict[str, Any]
    created_at: Time
    complete: bool


def explained(error: Exception, editions: Iterable[EditionPaths]) -> BakeoffError:
    """The error to report: itself when it is one of ours, else the damage that one of `editions` has.

    Raises `error` again when all of them are sound: then it is ours to mend.
    """
    if isinstance(error, BakeoffError):
        return error
    for paths in dict.fromkeys(editions):
        found = find_damage(paths)
        if found is not None:
            return found
    raise error


def find_damage(paths: EditionPaths) -> BakeoffError | None:
    """The first thing in an edition that is not as the records write it; None when all of it can be read."""
    try:
        with closing(Recorded.open(paths)) as edition:
            if edition.database.engine == "sqlite":
                for (line,) in edition.database.rows("PRAGMA quick_check(1)"):
                    if line != "ok":
                        return Damaged(edition.database.label, str(line).replace("\n", " "))
            for what, check in _CHECKS.items():
                try:
                    check(edition)
                except (
                    ValueError,
                    TypeError,
                    KeyError,
                    ArithmeticError,
                    RecursionError,
                    AttributeError,
                    OSError,
                ) as error:
                    reason = str(error).partition("\n")[0]
                    return Damaged(edition.database.label, f"{what} cannot be read: {reason}")
    except BakeoffError as error:
        return error
    return None


def _check_facts(edition: Recorded) -> None:
    from bakeoff.spec.experiment import ExperimentFile

    facts = msgspec.convert(edition.facts(), _Facts)
    written = ExperimentFile.model_validate(facts["spec"]).model_dump(mode="json")
    missing = written.keys() - facts["spec"].keys()
    for section in ("analysis", "budget"):  # `status` reads these without the model
        missing |= {f"{section}.{key}" for key in written[section].keys() - facts["spec"].get(section, {}).keys()}
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))} is missing in it")


def _check_cells(edition: Recorded) -> None:
    from bakeoff.spec import registry

    kind = edition.facts()["workload"]
    model = registry.workload(kind).Params if kind in registry.kinds() else None
    for cell in edition.cells():
        msgspec.convert(msgspec.structs.asdict(cell), CellRecord)
        if model is not None:
            model.model_validate(cell.params)


def _check_runs(edition: Recorded) -> None:
    seen: set[str] = set()
    for run in edition.runs():
        msgspec.convert(msgspec.structs.asdict(run), RunRecord)
        if run.run_id in seen:
            raise ValueError(f"{run.run_id!r} stands twice")
        seen.add(run.run_id)
        msgspec.convert(edition.attempts(run.position), list[_Attempt])
    edition.counts()


def _check_series(edition: Recorded) -> None:
    for position, block in edition.all_series():
        try:
            read_block(block)
        except ValueError as error:
            raise ValueError(f"run {edition.run(position).run_id!r}: {error}") from error


def _check_trajectories(edition: Recorded) -> None:
    for position, index in edition.trajectories().items():
        index = msgspec.convert(msgspec.structs.asdict(index), TrajectoryIndex)
        home = edition.paths.run(edition.run(position).run_id)
        if (home / index.path).exists():
            for _ in read_trajectory(home / index.path, home):
                pass


def _check_looks(edition: Recorded) -> None:
    msgspec.convert([asdict(look) for look in read_looks(edition)], list[Look])
    msgspec.convert([asdict(growth) for growth in read_growths(edition)], list[Growth])


_CHECKS: dict[str, Callable[[Recorded], object]] = {
    "the experiment": _check_facts,
    "a session": lambda edition: msgspec.convert(edition.sessions(), list[_Session]),
    "a cell": _check_cells,
    "a run": _check_runs,
    "a series": _check_series,
    "a trajectory": _check_trajectories,
    "a look": _check_looks,
    "a node": lambda edition: [
        msgspec.convert(msgspec.structs.asdict(node), NodeRecord) for node in list_nodes(edition)
    ],
}
