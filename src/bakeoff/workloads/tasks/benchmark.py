"""Files of the task benchmark as plans.

The file has `name`, `parallel` and `[[tasks]]` with `prepared_dir`, `model`, `rollouts` and overrides. Each entry is one
model on one task, so models become arms and prepared directories become tasks.
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
from bakeoff.spec.experiment import Analysis, ExperimentFile, Name
from bakeoff.spec.identity import RunIds, canonical_json, directory_digest
from bakeoff.spec.plan import Arm, Cell, Plan, Task
from bakeoff.spec.problems import problems
from bakeoff.workloads.tasks.dialect import TASKS
from bakeoff.workloads.tasks.schema import HostPath, Variables

WORKLOAD = "tasks"
AGENT = "codex"
"""The agent if a file names none."""
_SHARED_IDENTITY = ("judge", "metrics", "network", "host_paths", "allow_provider_tools", "share_provider_cache")
"""Keys for all entries that change what a run is, and so its id."""
LIMITS = ("timeout", "token_budget", "cost_budget")


class Entry(BaseModel):
    """One entry of `[[tasks]]`."""

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

    @property
    def place(self) -> str:
        """The prepared directory in its shortest spelling."""
        return os.path.normpath(self.prepared_dir)

    @property
    def limits(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LIMITS if getattr(self, name) is not None}

    @property
    def way(self) -> str:
        """How overrides are used, if that is not the default."""
        return "no-overrides" if not self.apply_overrides else "overrides" if self.overrides else ""


class Benchmark(BaseModel):
    """The whole file: its own keys, and ours for all entries: agents, providers, a judge, metrics, a network."""

    model_config = ConfigDict(extra="forbid")
    name: Name
    parallel: Annotated[int, Field(ge=1)] = 1
    tasks: Annotated[list[Entry], Field(min_length=1)]
    agent: Name = AGENT
    agents: dict[str, dict[str, Any]] = {}
    providers: dict[str, dict[str, Any]] = {}
    provider_patience: float | None = None
    gateway_limits: dict[str, Any] = {}
    allow_provider_tools: list[str] = []
    share_provider_cache: bool = True
    require_isolation: bool = False
    sandbox: dict[str, Any] = {}
    prices: str | None = None
    judge: dict[str, Any] | None = None
    metrics: list[str] = []
    network: bool | dict[str, list[str]] = False
    host_paths: list[HostPath] = []


def plan(tree: dict[str, Any], path: Path) -> Plan:
    """Return the plan of a benchmark file. The same entry twice means more rollouts."""
    given = {"name": path.stem, **tree}
    try:
        benchmark = Benchmark.model_validate(given)
    except ValidationError as error:
        raise SpecError(problems(error, Benchmark, given=given), path) from error
    # Paths start at the working directory, as in the benchmark's own runner, and not at the file's directory.
    base = Path.cwd()
    for entry in benchmark.tasks:
        entry.agent = entry.agent or benchmark.agent
    shared = benchmark.model_dump(
        include={
            "agents",
            "providers",
            "prices",
            *_SHARED_IDENTITY,
            "provider_patience",
            "gateway_limits",
            "require_isolation",
            "sandbox",
        },
        exclude_defaults=True,
    )
    arms, tasks = _arm_names(benchmark.tasks), _task_names(benchmark.tasks)
    # Entries with the same arm and task become one cell; their rollouts are added up.
    pairs: dict[tuple[str, str], Entry] = {}
    rollouts: dict[tuple[str, str], int] = {}
    for entry, arm in zip(benchmark.tasks, arms, strict=True):
        pair = (arm, tasks[entry.place])
        pairs.setdefault(pair, entry)
        rollouts[pair] = rollouts.get(pair, 0) + entry.rollouts
    experiment = ExperimentFile(
        name=benchmark.name,
        workload=WORKLOAD,
        editions="repeat",
        jobs=benchmark.parallel,
        analysis=Analysis(metric="total_score", bounds=(0.0, 1.0), failure_score=0.0),
    )
    digests = {place: _digest(base / place) for place in tasks}
    cells = []
    for index, ((arm, name), entry) in enumerate(pairs.items()):
        task = Task(name, {"prepared_dir": entry.prepared_dir}, base / entry.place, digests[entry.place])
        cells.append(_cell(index, arm, task, entry, rollouts[arm, name], base, shared))
    _validate(cells, [benchmark.tasks.index(entry) for entry in pairs.values()], path)
    places = dict.fromkeys(entry.prepared_dir for entry in benchmark.tasks)
    missing = [place for place in places if not (base / place).is_dir()]
    notes = tuple(f"prepared_dir {name} does not exist; it is needed to run, not to plan" for name in missing)
    return Plan(experiment, cells, base=base, dialect=TASKS.name, notes=notes)


def _validate(cells: Sequence[Cell], entries: Sequence[int], path: Path) -> None:
    """Validate every cell by the workload's parameters. SpecError with the keys of this file."""
    model = registry.workload(WORKLOAD).Params
    for cell, number in zip(cells, entries, strict=True):
        try:
            model.model_validate(cell.params)
        except ValidationError as error:
            located = []
            for problem in problems(error, model, given=cell.params):
                in_entry = problem.key.partition(".")[0] in Entry.model_fields
                located.append(replace(problem, key=f"tasks.{number}.{problem.key}" if in_entry else problem.key))
            raise SpecError(located, path) from error


def _task_names(entries: Sequence[Entry]) -> dict[str, str]:
    """A name for each prepared directory: as many of its last parts as are needed to tell it from the others."""
    places = list(dict.fromkeys(entry.place for entry in entries))
    names: dict[str, str] = {}
    for place in places:
        parts = Path(place).parts
        # The shortest suffix of the path that no other directory has.
        for length in range(1, len(parts) + 1):
            name = "/".join(parts[-length:])
            if sum(Path(other).parts[-length:] == parts[-length:] for other in places) == 1:
                break
        names[place] = name
    return names


def _arm_names(entries: Sequence[Entry]) -> list[str]:
    """A name for each entry's arm that says no more than needed and does not depend on the order of entries.

    Model, variables and limits always; the agent if there are several; overrides only if the same model runs with and
    without them, and which file only if one task is tried with several.
    """
    agents = {entry.agent for entry in entries}
    models = []
    for entry in entries:
        model = entry.model if len(agents) == 1 else f"{entry.agent}/{entry.model}"
        settings = (*sorted(entry.environment_variables.items()), *entry.limits.items())
        models.append(",".join([model, *(f"{name}={value}" for name, value in settings)]))
    files: dict[tuple[str, str], set[str]] = {}
    ways: dict[str, set[str]] = {}
    for model, entry in zip(models, entries, strict=True):
        ways.setdefault(model, set()).add(entry.way)
        if entry.way == "overrides":
            files.setdefault((model, entry.place), set()).add(entry.overrides or "")
    with_several_files = {model for (model, _), overrides in files.items() if len(overrides) > 1}
    names = []
    for model, entry in zip(models, entries, strict=True):
        if entry.way == "overrides" and model in with_several_files:
            names.append(f"{model},overrides={entry.overrides}")
        else:
            names.append(f"{model},{entry.way}" if entry.way and len(ways[model]) > 1 else model)
    return names


def _digest(path: Path) -> str | None:
    return directory_digest(path) if path.exists() else None


def _cell(index: int, arm: str, task: Task, entry: Entry, rollouts: int, base: Path, shared: Mapping[str, Any]) -> Cell:
    """One arm on one task. `identity` holds what makes the run another one; it goes into run ids, so it must not change."""
    params = {**entry.model_dump(exclude={"prepared_dir", "rollouts", *LIMITS}), **entry.limits, **shared}
    identity: dict[str, Any] = {"model": entry.model, **entry.limits}
    if entry.agent != AGENT:
        identity["agent"] = entry.agent
    # Defaults are left out of the identity, so that files which do not name them keep their run ids.
    if entry.agent in shared.get("agents", {}):
        identity["agents"] = {entry.agent: shared["agents"][entry.agent]}
    identity |= {name: value for name, value in shared.items() if name in _SHARED_IDENTITY}
    if entry.environment_variables:
        identity["environment_variables"] = entry.environment_variables
    if not entry.apply_overrides:
        identity["apply_overrides"] = False
    elif entry.overrides:  # by content, like the task: the same file elsewhere makes the same run
        identity["overrides"] = _digest(base / entry.overrides) or entry.overrides
    ids = RunIds(
        workload=WORKLOAD, revision="1", arm=arm, task=task.name, task_digest=task.digest,
        params=canonical_json(identity),
    )  # fmt: skip
    settings = {"model": entry.model}
    return Cell(index, Arm(arm, settings, base=arm), task, {**params, **task.params}, rollouts, ids.run_id)
