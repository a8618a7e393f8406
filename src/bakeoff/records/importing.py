"""Results from elsewhere become an edition: directories are read, copied and recorded, and nothing is made up.

Three kinds of run directories are understood:
    ours    meta.json with `arm` and `workload`
    sweep   meta.json with `params` and `ablation_name`, metrics in out/summary.csv
    plain   metrics.json, metrics.jsonl or out/summary.csv; arm and seed from a name such as `full_s3`, or from
            `condition` and `seed` in metrics.jsonl
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from bakeoff.errors import LeaseHeld, StorageError, UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.foreign import number, read_bytes, read_csv, read_json
from bakeoff.records.layout import EditionPaths, experiment_directory, new_edition, point_latest
from bakeoff.records.lease import is_held
from bakeoff.records.run import Attempt, RunRecord
from bakeoff.records.rundir import META, SERIES
from bakeoff.records.series import read_jsonl
from bakeoff.spec import registry
from bakeoff.spec.experiment import Experiment, flatten
from bakeoff.spec.identity import slug
from bakeoff.spec.plan import Arm, Cell, Plan, Run, Task
from bakeoff.spec.workload import Scalar, Status

_NAME = re.compile(r"(?P<arm>.+?)[_.\-]+(?:seed|s)[_=\-]?(?P<seed>\d+)", re.IGNORECASE)
_STATUSES = get_args(Status)
_METRIC_FILES = ("metrics.json", "out/metrics.json", "out/summary.csv", "summary.csv")


@dataclass(slots=True)
class FoundRun:
    """One run directory as it was understood."""

    directory: Path
    run_id: str
    arm: str
    seed: int
    dialect: str = "native"
    task: str = "default"
    rollout: int = 0
    base: str = ""
    ablation: str = ""
    flags: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    status: Status = "succeeded"
    exit_code: int | None = None
    error: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    metrics: dict[str, Scalar] = field(default_factory=dict)
    series: bytes | None = None
    command: str | None = None
    workload: str = "command"
    plain: bool = False
    """It has metrics and nothing that says how it ended."""


@dataclass(frozen=True, slots=True)
class Findings:
    runs: list[FoundRun]
    problems: list[str]
    """What could not be read, one line each."""


class Unreadable(ValueError):
    """A run directory that cannot be understood; says why."""


def read_directory(directory: Path) -> Findings:
    """Every run directory in `directory/runs`, or in `directory` itself."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory")
    home = directory / "runs" if (directory / "runs").is_dir() else directory
    runs: list[FoundRun] = []
    problems: list[str] = []
    seen: dict[str, Path] = {}
    for entry in sorted(entry for entry in home.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        try:
            run = read_run(entry)
        except (OSError, ValueError, TypeError, KeyError) as error:
            problems.append(f"{entry}: {error}")
            continue
        if run.run_id in seen:
            problems.append(f"{entry}: has the run id of {seen[run.run_id]}")
            continue
        seen[run.run_id] = entry
        runs.append(run)
        problems += _take_series(run)
    if not runs and not problems:
        raise UsageError(f"{home}: no run directories are in it")
    return Findings(runs, problems)


def _take_series(run: FoundRun) -> list[str]:
    path = run.directory / SERIES
    if not path.is_file():
        return []
    series, torn = read_jsonl(path)
    run.series = series.block() if series else None
    return [f"{path}: {torn} line{'s' if torn > 1 else ''} left out"] if torn else []


def read_run(directory: Path) -> FoundRun:
    meta = read_json(str(directory / META))
    if meta is None:
        return _plain(directory)
    for dialect in registry.dialects():
        run: FoundRun | None = dialect.read_run(directory, meta)
        if run is not None:
            return run
    if "arm" in meta and "workload" in meta:
        return read_ours(directory, meta)
    raise Unreadable("meta.json is of a kind that is not known: neither `arm` nor `ablation_name` is in it")


def read_ours(directory: Path, meta: Mapping[str, Any]) -> FoundRun:
    if meta.get("status") not in _STATUSES:
        raise Unreadable("meta.json says no status: the run had not ended")
    arm, seed, params = str(meta["arm"]), int(meta["seed"]), dict(meta.get("params") or {})
    ablation = str(meta.get("ablation_name") or "")
    return FoundRun(
        directory,
        run_id=run_id_of(meta, directory),
        arm=arm,
        seed=seed,
        task=str(meta.get("task", "default")),
        rollout=int(meta.get("rollout", 0)),
        base=arm.removesuffix(f"+{ablation}"),
        ablation=ablation if ablation != "baseline" else "",
        flags=tuple(meta.get("ablation_flags") or ()),
        params=params,
        status=meta["status"],
        exit_code=meta.get("exit_code"),
        error=meta.get("error"),
        started_at=meta.get("start_time_unix_s"),
        ended_at=meta.get("end_time_unix_s"),
        metrics=dict(meta.get("metrics") or {}),
        command=command_of(meta),
        workload=str(meta["workload"]),
    )


def ending(exit_code: Any) -> tuple[Status, str | None]:
    """What the sweep runner's exit code says about a run."""
    if exit_code is None:
        return "cancelled", "had not ended when it was imported"
    if exit_code == 127:
        return "infra_error", "exit code 127: the command could not be started"
    return ("succeeded", None) if exit_code == 0 else ("failed", f"exit code {exit_code}")


def _plain(directory: Path) -> FoundRun:
    metrics, lines = _plain_metrics(directory), _lines(directory / SERIES)
    if metrics is None and not lines:
        raise Unreadable(f"none of {', '.join((META, SERIES, *_METRIC_FILES))} is in it")
    named = seed_in_name(directory.name)
    if named is not None:
        arm, seed = named
    elif lines and {"condition", "seed"} <= set(lines[0]):
        arm, seed = str(lines[0]["condition"]), int(lines[0]["seed"])
    else:
        raise Unreadable("its seed is not known: name it NAME_s3, or write `condition` and `seed` into metrics.jsonl")
    found = metrics if metrics is not None else _scalars(lines[-1])
    return FoundRun(directory, run_id=slug(directory.name, 200), arm=arm, seed=seed, plain=True, metrics=found)


def seed_in_name(name: str) -> tuple[str, int] | None:
    """(`full`, 3) of `full_s3`, `full.seed3` and the like: the arm and the seed that a run's name ends in."""
    found = _NAME.fullmatch(name)
    return (found["arm"], int(found["seed"])) if found else None


def _plain_metrics(directory: Path) -> dict[str, Scalar] | None:
    found: dict[str, Scalar] | None = None
    for name in _METRIC_FILES:
        path = str(directory / name)
        if name.endswith(".json"):
            table = read_json(path)
            values = None if table is None else _scalars(table)
        else:
            rows = read_csv(path)
            values = {key: number(value) for key, value in rows[-1].items()} if rows else None
        if values is not None:
            found = {**(found or {}), **values}
    return found


def _scalars(table: Mapping[str, Any]) -> dict[str, Scalar]:
    flat = flatten(dict(table))
    return {key: value for key, value in flat.items() if value is None or isinstance(value, bool | int | float | str)}


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in (read_bytes(str(path)) or b"").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def run_id_of(meta: Mapping[str, Any], directory: Path) -> str:
    name = str(meta.get("run_id") or directory.name)
    if slug(name, 255) != name:
        raise Unreadable(f"{name!r} cannot be a run id")
    return name


def command_of(meta: Mapping[str, Any]) -> str | None:
    command = meta.get("cmd")
    return shlex.join(map(str, command)) if isinstance(command, list) else None


# -- recording what was found


def take_in(findings: Findings, name: str, root: Path, source: Path) -> Edition:
    """A new edition with these runs; their files are copied. Nothing is left behind when it cannot be finished."""
    plan, runs = _plan(findings.runs, name, f"imported from {source}")
    paths = new_edition(experiment_directory(root, name))
    try:
        for run in findings.runs:
            shutil.copytree(run.directory, paths.run(run.run_id), symlinks=True)
        edition = _record(plan, runs, findings.runs, paths)
    except BaseException as error:
        shutil.rmtree(paths.directory, ignore_errors=True)
        if isinstance(error, shutil.Error | OSError):
            raise StorageError(f"{paths.directory}: files could not be copied: {error}") from error
        raise
    point_latest(paths)
    return edition


def look_at(findings: Findings, name: str, scratch: Path) -> Edition:
    """An edition in `scratch` for as long as somebody looks at it: files stay where they are, behind links."""
    plan, runs = _plan(findings.runs, name, "")
    started = min((run.started_at for run in findings.runs if run.started_at is not None), default=0.0)
    paths = new_edition(experiment_directory(scratch, name), now=started)
    paths.runs.mkdir()
    for run in findings.runs:
        if run.directory.is_dir():
            paths.run(run.run_id).symlink_to(run.directory.resolve())
    return _record(plan, runs, findings.runs, paths, place=str(paths.database))


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
    target = EditionPaths(experiment_directory(root, name or facts["experiment"]) / facts["edition"])
    if target.directory.exists():
        raise UsageError(f"{target.directory} is there already; --name gives the experiment another name")
    try:
        shutil.copytree(source.directory, target.directory, symlinks=True)
    except (shutil.Error, OSError) as error:
        shutil.rmtree(target.directory, ignore_errors=True)
        raise StorageError(f"{target.directory}: files could not be copied: {error}") from error
    point_latest(target)
    return target


def _record(
    plan: Plan, runs: list[Run], found: list[FoundRun], paths: EditionPaths, place: str | None = None
) -> Edition:
    edition = Edition.create(plan, paths, place)
    paths.lease.touch()
    edition.add_cells(plan.cells, frozenset())
    edition.add_runs(runs)
    edition.finish([_attempt(run, seen) for run, seen in zip(edition.runs(), found, strict=True)], session=0)
    edition.end_session(0, "imported")  # there was no session; this says whether every run has an outcome
    return edition


def _attempt(run: RunRecord, found: FoundRun) -> Attempt:
    return run.next_attempt(
        status=found.status,
        started_at=found.started_at,
        ended_at=found.ended_at,
        exit_code=found.exit_code,
        error=found.error,
        metrics=found.metrics,
        series=found.series,
        command=found.command,
    )


def _plan(found: list[FoundRun], name: str, description: str) -> tuple[Plan, list[Run]]:
    """A plan that has just these runs, in this order."""
    cells: dict[str, Cell] = {}
    runs = []
    for position, run in enumerate(found):
        key = json.dumps([run.arm, run.task, run.params], sort_keys=True)
        if key not in cells:
            arm = Arm(run.arm, {}, run.flags, base=run.base or run.arm, ablation=run.ablation)
            cells[key] = Cell(len(cells), arm, Task(run.task), run.params, {}, 1, lambda seed, rollout: "")
        runs.append(Run(position, run.run_id, cells[key], run.seed, run.rollout))
    names = {run.dialect for run in found}
    dialect = registry.dialect(names.pop() if len(names) == 1 else "native")
    experiment = Experiment(
        name=name,
        description=description,
        workload=found[0].workload,
        seeds=sorted({run.seed for run in found}),
        analysis=dialect.analysis,
    )
    return Plan(experiment, list(cells.values()), dialect=dialect.name), runs
