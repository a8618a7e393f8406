"""The task benchmark's TOML: `name`, `parallel` and `[[tasks]]` with `prepared_dir`, `model`, `rollouts` and overrides.

Each entry is one model on one task, so models become arms and prepared directories become tasks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bakeoff.errors import SpecError
from bakeoff.spec import registry
from bakeoff.spec.experiment import Analysis, Experiment, Name
from bakeoff.spec.identity import RunIds, directory_digest
from bakeoff.spec.plan import Arm, Cell, Plan, Task
from bakeoff.spec.problems import problems

WORKLOAD = "tasks"
AGENT = "codex"
"""Who works where a file does not say."""
LIMITS = ("timeout", "token_budget", "cost_budget")
Variables = dict[str, Annotated[str, Field(coerce_numbers_to_str=True)]]
"""Of a box; `TIMEOUT_SEC = 900` is as good as `"900"`."""


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    prepared_dir: Annotated[str, Field(min_length=1)]
    model: Name = "gpt-5-mini"
    rollouts: Annotated[int, Field(ge=1)] = 1
    overrides: str | None = None
    apply_overrides: bool = True
    environment_variables: Variables = {}
    agent: Name | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None
    token_budget: Annotated[int, Field(ge=1)] | None = None
    cost_budget: Annotated[float, Field(gt=0)] | None = None


class Benchmark(BaseModel):
    """The file's own keys, and for all entries: the agent, agents and providers of one's own, a judge, metrics, a network."""

    model_config = ConfigDict(extra="forbid")
    name: Name
    parallel: Annotated[int, Field(ge=1)] = 1
    tasks: Annotated[list[Entry], Field(min_length=1)]
    agent: Name = AGENT
    agents: dict[str, dict[str, Any]] = {}
    providers: dict[str, dict[str, Any]] = {}
    judge: dict[str, Any] | None = None
    metrics: list[str] = []
    network: bool = False


def recognises(tree: Mapping[str, Any]) -> bool:
    """Entries with a prepared directory, or `parallel` and nothing that only our own files have."""
    entries = tree.get("tasks")
    listed = isinstance(entries, list) and any(isinstance(entry, dict) and "prepared_dir" in entry for entry in entries)
    ours = set(Experiment.model_fields) - set(Benchmark.model_fields)
    return listed or ("parallel" in tree and not ours & set(tree))


def plan(tree: dict[str, Any], path: Path) -> Plan:
    given = {"name": path.stem, **tree}
    try:
        benchmark = Benchmark.model_validate(given)
    except ValidationError as error:
        raise SpecError(problems(error, Benchmark, given=given), path) from error
    base = Path.cwd()
    for entry in benchmark.tasks:
        entry.agent = entry.agent or benchmark.agent
    shared = benchmark.model_dump(include={"agents", "providers", "judge", "metrics", "network"}, exclude_defaults=True)
    arms, tasks = _arm_names(benchmark.tasks), _task_names(benchmark.tasks)
    pairs: dict[tuple[str, str], Entry] = {}
    rollouts: dict[tuple[str, str], int] = {}
    for entry, arm in zip(benchmark.tasks, arms, strict=True):
        pair = (arm, tasks[_place(entry)])
        pairs.setdefault(pair, entry)
        rollouts[pair] = rollouts.get(pair, 0) + entry.rollouts
    missing = list(dict.fromkeys(e.prepared_dir for e in benchmark.tasks if not (base / e.prepared_dir).is_dir()))
    experiment = Experiment(
        name=benchmark.name,
        workload=WORKLOAD,
        editions="repeat",
        jobs=benchmark.parallel,
        analysis=Analysis(metric="total_score", bounds=(0.0, 1.0), failure_score=0.0),
    )
    digests = {place: _digest(base / place) for place in tasks}
    cells = [
        _cell(index, arm, Task(task, {"prepared_dir": entry.prepared_dir}, base / _place(entry), digests[_place(entry)]),
              entry, rollouts[arm, task], base, shared)
        for index, ((arm, task), entry) in enumerate(pairs.items())
    ]  # fmt: skip
    _validate(cells, [benchmark.tasks.index(entry) for entry in pairs.values()], path)
    notes = tuple(f"prepared_dir {name} is not there; it is needed to run, not to plan" for name in missing)
    return Plan(experiment, cells, base=base, dialect="tasks", notes=notes)


def _validate(cells: Sequence[Cell], entries: Sequence[int], path: Path) -> None:
    """What the workload itself says about every cell, told by the keys of this file."""
    model = registry.workload(WORKLOAD).Params
    for cell, number in zip(cells, entries, strict=True):
        try:
            model.model_validate(cell.params)
        except ValidationError as error:
            found = problems(error, model, given=cell.params)
            keys = [
                (f"tasks.{number}." if p.key.partition(".")[0] in Entry.model_fields else "") + p.key for p in found
            ]
            raise SpecError([replace(p, key=key) for p, key in zip(found, keys, strict=True)], path) from error


def _place(entry: Entry) -> str:
    """The prepared directory, however it is written."""
    return os.path.normpath(entry.prepared_dir)


def _task_names(entries: Sequence[Entry]) -> dict[str, str]:
    """Prepared directories by as much of their end as tells them apart."""
    places = list(dict.fromkeys(_place(entry) for entry in entries))
    names: dict[str, str] = {}
    for place in places:
        parts = Path(place).parts
        for length in range(1, len(parts) + 1):
            name = "/".join(parts[-length:])
            if sum(Path(other).parts[-length:] == parts[-length:] for other in places) == 1:
                break
        names[place] = name
    return names


def _arm_names(entries: Sequence[Entry]) -> list[str]:
    """A name for each entry that says no more than is needed and does not depend on their order.

    Model, variables and limits always; the agent where there are several; overrides only where the same model runs with and without them, and which file only
    where one task is tried with several.
    """
    agents = {entry.agent for entry in entries}
    models = [
        ",".join([entry.model if len(agents) == 1 else f"{entry.agent}/{entry.model}", *_extras(entry)])
        for entry in entries
    ]
    files: dict[tuple[str, str], set[str]] = {}
    ways: dict[str, set[str]] = {}
    for model, entry in zip(models, entries, strict=True):
        ways.setdefault(model, set()).add(_way(entry))
        if _way(entry) == "overrides":
            files.setdefault((model, _place(entry)), set()).add(entry.overrides or "")
    several = {model for (model, _), found in files.items() if len(found) > 1}
    names = []
    for model, entry in zip(models, entries, strict=True):
        way = _way(entry)
        if way == "overrides" and model in several:
            names.append(f"{model},overrides={entry.overrides}")
        else:
            names.append(f"{model},{way}" if way and len(ways[model]) > 1 else model)
    return names


def _extras(entry: Entry) -> list[str]:
    """Variables and limits that make one arm another than the next with the same model."""
    limits = {name: getattr(entry, name) for name in LIMITS if getattr(entry, name) is not None}
    return [f"{name}={value}" for name, value in (*sorted(entry.environment_variables.items()), *limits.items())]


def _way(entry: Entry) -> str:
    return "no-overrides" if not entry.apply_overrides else "overrides" if entry.overrides else ""


def _digest(path: Path) -> str | None:
    return directory_digest(path) if path.exists() else None


def _cell(index: int, arm: str, task: Task, entry: Entry, rollouts: int, base: Path, shared: Mapping[str, Any]) -> Cell:
    limits = {name: getattr(entry, name) for name in LIMITS if getattr(entry, name) is not None}
    params = {**entry.model_dump(exclude={"prepared_dir", "rollouts", *LIMITS}), **limits, **shared}
    identity: dict[str, Any] = {"model": entry.model, **limits}
    if entry.agent != AGENT:
        identity["agent"] = entry.agent
    if entry.agent in shared.get("agents", {}):
        identity["agents"] = {entry.agent: shared["agents"][entry.agent]}
    identity |= {name: value for name, value in shared.items() if name in ("judge", "metrics", "network")}
    if entry.environment_variables:
        identity["environment_variables"] = entry.environment_variables
    if not entry.apply_overrides:
        identity["apply_overrides"] = False
    elif entry.overrides:  # by content, as the task is: the same file elsewhere makes the same run
        identity["overrides"] = _digest(base / entry.overrides) or entry.overrides
    ids = RunIds(
        workload=WORKLOAD, revision="1", arm=arm, task=task.name, task_digest=task.digest, params=identity
    )  # fmt: skip
    settings = {"model": entry.model}
    return Cell(index, Arm(arm, settings, base=arm), task, {**params, **task.params}, identity, rollouts, ids.run_id)
