"""The task benchmark's TOML: `name`, `parallel` and `[[tasks]]` with `prepared_dir`, `model`, `rollouts` and overrides.

Each entry is one model on one task, so models become arms and prepared directories become tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bakeoff.errors import SpecError
from bakeoff.spec.experiment import Analysis, Experiment
from bakeoff.spec.identity import RunIds, directory_digest
from bakeoff.spec.plan import Arm, Cell, Plan, Task
from bakeoff.spec.problems import problems

WORKLOAD = "tasks"


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    prepared_dir: str
    model: str = "gpt-5-mini"
    rollouts: Annotated[int, Field(ge=1)] = 1
    overrides: str | None = None
    apply_overrides: bool = True
    environment_variables: dict[str, str] = {}


class Benchmark(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    parallel: Annotated[int, Field(ge=1)] = 1
    tasks: Annotated[list[Entry], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class _Pair:
    arm: Arm
    task: Task
    params: Mapping[str, Any]


def recognises(tree: Mapping[str, Any]) -> bool:
    entries = tree.get("tasks")
    listed = isinstance(entries, list) and any(isinstance(entry, dict) and "prepared_dir" in entry for entry in entries)
    return "parallel" in tree or listed


def plan(tree: dict[str, Any], path: Path) -> Plan:
    try:
        benchmark = Benchmark.model_validate({"name": path.stem, **tree})
    except ValidationError as error:
        raise SpecError(problems(error, Benchmark), path) from error
    base = Path.cwd()
    rollouts: dict[tuple[str, str], int] = {}
    pairs: dict[tuple[str, str], _Pair] = {}
    missing = []
    for entry in benchmark.tasks:
        directory = base / entry.prepared_dir
        if not directory.is_dir() and entry.prepared_dir not in missing:
            missing.append(entry.prepared_dir)
        pair = _pair(entry, directory, pairs)
        key = (pair.arm.name, pair.task.name)
        pairs.setdefault(key, pair)
        rollouts[key] = rollouts.get(key, 0) + entry.rollouts
    experiment = Experiment(
        name=benchmark.name,
        workload=WORKLOAD,
        editions="repeat",
        jobs=benchmark.parallel,
        analysis=Analysis(metric="total_score", bounds=(0.0, 1.0), failure_score=0.0),
    )
    cells = [_cell(index, pair, rollouts[key]) for index, (key, pair) in enumerate(pairs.items())]
    notes = tuple(f"prepared_dir {name} is not there; it is needed to run, not to plan" for name in missing)
    return Plan(experiment, cells, base=base, dialect="tasks", notes=notes)


def _pair(entry: Entry, directory: Path, known: Mapping[tuple[str, str], _Pair]) -> _Pair:
    """Arm names say no more than is needed to tell entries apart: model, then variables, then overrides."""
    params = entry.model_dump(exclude={"prepared_dir", "rollouts"})
    digest = directory_digest(directory) if directory.is_dir() else None
    task = Task(directory.name, {"prepared_dir": entry.prepared_dir}, directory, digest)
    name = ",".join([entry.model, *(f"{k}={v}" for k, v in sorted(entry.environment_variables.items()))])
    twin = known.get((name, task.name))
    if twin is not None and twin.params != params:
        name += ",no-overrides" if not entry.apply_overrides else f",overrides={entry.overrides or 'default'}"
    return _Pair(Arm(name, {"model": entry.model}, base=name), task, params)


def _cell(index: int, pair: _Pair, rollouts: int) -> Cell:
    identity = {key: value for key, value in pair.params.items() if value not in (None, {}, True)}
    ids = RunIds(
        workload=WORKLOAD,
        revision="1",
        arm=pair.arm.name,
        task=pair.task.name,
        task_digest=pair.task.digest,
        params=identity,
    )
    params = {**pair.params, **pair.task.params}
    return Cell(index, pair.arm, pair.task, params, identity, rollouts, ids.run_id)
