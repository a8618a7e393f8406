"""An experiment becomes a plan: matrix, arms, ablations, tasks and rules are multiplied out and validated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bakeoff.errors import Problem, SpecError, UsageError, did_you_mean
from bakeoff.spec import registry
from bakeoff.spec.experiment import MOST_RUNS, Analysis, ArmEntry, ExperimentFile, TaskEntry
from bakeoff.spec.identity import RunIds, canonical_json, directory_digest, flatten
from bakeoff.spec.plan import Arm, Cell, LazyTable, Plan, Task, facts, uncollected
from bakeoff.spec.problems import problems
from bakeoff.spec.select import Test, names, rule
from bakeoff.spec.workload import CommandWorkload, Directed, Judged, Priced, Workload

MOST_CELLS = 1_000_000
"""Arms times tasks."""
MOST_RULED = 1_000_000
"""Runs of a plan whose rules ask for the seed or the rollout."""
_NUMBERS = frozenset({int, float})
RESERVED = {"seed": "seeds", "rollout": "rollouts"}
"""Names that are not parameters: they say which run it is, and every workload gets them from its context."""


@uncollected()
def expand(experiment: ExperimentFile, *, base: Path, **more: Any) -> Plan:
    """The plan of an experiment. `base` is the experiment file's directory; `more` are further fields of `Plan`.

    Everything that can be wrong with a plan is found here, before anything starts, and raised as SpecError.
    """
    try:
        workload = registry.workload(experiment.workload)
    except UsageError as error:
        raise SpecError([Problem("workload", str(error))]) from error
    if isinstance(workload, Priced) and "cost_metric" not in experiment.budget.model_fields_set:
        budget = experiment.budget.model_copy(update={"cost_metric": workload.cost_metric})
        experiment = experiment.model_copy(update={"budget": budget})
    if isinstance(workload, Judged) and experiment.analysis.metric is None:
        analysis = Analysis.model_validate({**workload.analysis, **experiment.analysis.model_dump(exclude_unset=True)})
        experiment = experiment.model_copy(update={"analysis": analysis})
    experiment = _with_directions(experiment, workload)
    _check_setters(experiment)
    _check_cells(experiment)
    arms = _arms(experiment)
    tasks = _tasks(experiment, base)
    _check_entries(experiment, arms, tasks)
    maker = _CellMaker(experiment, workload)
    cells = [maker.cell(index, *pair) for index, pair in enumerate(_pairs(experiment, arms, tasks))]
    _check_measured_alike(experiment, workload, cells)
    _check_runs(experiment, cells, MOST_RUNS, "")
    plan = _filtered(Plan(experiment, cells, base=base, **more))
    control = experiment.analysis.control
    if control is not None and plan.cells:
        kept = {cell.arm.name for cell in plan.cells}
        if control not in kept:
            raise SpecError([Problem("analysis.control", f"no arm called {control!r}", _one_of(control, kept))])
    return plan


def _with_directions(experiment: ExperimentFile, workload: object) -> ExperimentFile:
    """The experiment with the directions that the workload's metrics have, where the file says nothing about them."""
    known = workload.directions if isinstance(workload, Directed) else {}
    analysis = experiment.analysis
    declared = (analysis.metric, *analysis.primary) if analysis.direction is not None else ()
    added = {metric: way for metric, way in known.items() if metric not in (*declared, *analysis.directions)}
    if not added:
        return experiment
    directed = analysis.model_copy(update={"directions": {**added, **analysis.directions}})
    return experiment.model_copy(update={"analysis": directed})


# -- checks


def _check_setters(experiment: ExperimentFile) -> None:
    """A parameter belongs to arms or to tasks, and to the matrix or to entries: else one would win silently.

    A setter is (parameter, place in the file that sets it).
    """
    for_all = [(key, f"params.{key}") for key in flatten(experiment.params)]
    ablated = [
        (key, f"ablations.{number}.params.{key}")
        for number, entry in enumerate(experiment.ablations)
        for key in flatten(entry.params)
    ]
    of_arms = [(key, f"matrix.{key}") for key in experiment.matrix if key not in experiment.task_keys]
    of_tasks = [(key, f"matrix.{key}") for key in experiment.matrix if key in experiment.task_keys]
    sides: tuple[tuple[str, Sequence[ArmEntry | TaskEntry], list[tuple[str, str]]], ...] = (
        ("arms", experiment.arms, of_arms),
        ("tasks", experiment.tasks, of_tasks),
    )
    for section, entries, setters in sides:
        for number, entry in enumerate(entries):
            setters += [(key, f"{section}.{number}.params.{key}") for key in flatten(entry.params)]
    wrong = []
    for key, place in (*for_all, *of_arms, *ablated, *of_tasks):
        if key in RESERVED:
            fix = f"write {RESERVED[key]} = ... at the top level"
            wrong.append(Problem(place, f"{key} cannot be a parameter", fix))
    arm_side = dict((*ablated, *of_arms))
    for key, place in of_tasks:
        if other := _overlap(key, arm_side):
            fix = "set it in one of the two, or two arms would not meet the same task"
            wrong.append(Problem(place, f"an arm sets it too ({other})", fix))
    for side in (of_arms, of_tasks):
        axes = {key: place for key, place in side if place.startswith("matrix.")}
        for key, place in side:
            if not place.startswith("matrix.") and (other := _overlap(key, axes)):
                wrong.append(Problem(place, f"{other} sets it too", "set it in one of the two"))
    if wrong:
        raise SpecError(wrong)


def _check_cells(experiment: ExperimentFile) -> None:
    """Arms times tasks are few enough to be made; counted before any is."""
    sizes = {False: max(1, len(experiment.arms)), True: max(1, len(experiment.tasks))}
    for key, values in experiment.matrix.items():
        sizes[key in experiment.task_keys] *= len(values)
    ablated = sizes[False] * (1 + len(experiment.ablations))
    cells = max(ablated, sizes[True], len(experiment.cells) or ablated * sizes[True])
    if cells > MOST_CELLS:
        message = f"{cells:,} combinations of arms and tasks are too many; the limit is {MOST_CELLS:,}"
        raise SpecError([Problem("matrix" if experiment.matrix else "arms", message, "make it several experiments")])


def _check_measured_alike(
    experiment: ExperimentFile, workload: Workload | CommandWorkload, cells: Sequence[Cell]
) -> None:
    """All arms on a task have equal values of `Params.measured_by`: how they are measured is not the arm's to choose."""
    measured_by: frozenset[str] = getattr(workload.Params, "measured_by", frozenset())
    wrong: dict[Problem, None] = {}
    first: dict[str, Cell] = {}
    for cell in cells if measured_by else ():
        other = first.setdefault(cell.task.name, cell)
        for key in sorted(measured_by):
            if cell.params[key] != other.params[key]:
                setter = cell if key in cell.arm.params else other
                place = origin(experiment, setter.arm, setter.task, key)
                values = " and ".join(f"{each.arm.name!r} with {each.params[key]!r}" for each in (other, cell))
                message = f"the arms are measured differently: {values}, so their results could not be compared"
                wrong[Problem(place, message, f"set {key} once for all arms, in [params] or in [[tasks]]")] = None
    if wrong:
        raise SpecError(list(wrong)[:20])


def _check_runs(experiment: ExperimentFile, cells: Sequence[Cell], most: int, when: str) -> None:
    """Seeds times rollouts times cells are few enough to be gone through. Not `len`: it takes no number of 64 bits."""
    runs = len(experiment.seeds) * sum(cell.rollouts for cell in cells)
    if runs > most:
        key = "rollouts" if runs > most * len(experiment.seeds) or experiment.rollouts > 1 else "seeds"
        fix = "ask for fewer seeds or rollouts, or make it several experiments"
        raise SpecError([Problem(key, f"{runs:,} runs are too many{when}; the limit is {most:,}", fix)])


def _overlap(key: str, others: Mapping[str, str]) -> str | None:
    """The place of a setter that sets `key`, a table that it is in, or something in it."""
    if key in others:
        return others[key]
    return next((p for k, p in others.items() if k.startswith(f"{key}.") or key.startswith(f"{k}.")), None)


def _check_entries(experiment: ExperimentFile, arms: Sequence[Arm], tasks: Sequence[Task]) -> None:
    """Names stand once, and ablations name arms that exist."""
    entries: tuple[tuple[str, Sequence[Arm | Task]], ...] = (("arms", arms), ("tasks", tasks))
    for section, named in entries:
        seen: set[str] = set()
        for entry in named:
            if entry.name in seen:
                fix = "give each its own name; in [matrix] each value may stand once"
                raise SpecError([Problem(section, f"two {section} are called {entry.name!r}", fix)])
            seen.add(entry.name)
    known = {arm.base for arm in arms}
    for number, ablation in enumerate(experiment.ablations):
        for name in ablation.arms or ():
            if name not in known:
                raise SpecError([Problem(f"ablations.{number}.arms", f"no arm called {name!r}", _one_of(name, known))])


def _one_of(name: str, known: Iterable[str]) -> str:
    """The fix for an unknown name: the one that was probably meant, or all that are known."""
    listed = sorted(known)
    return did_you_mean(name, listed, f"one of {', '.join(listed[:20])}" + (" ..." if len(listed) > 20 else ""))


# -- arms, tasks and cells


def _arms(experiment: ExperimentFile) -> list[Arm]:
    """Entries times matrix, each followed by its ablations."""
    combos = _combinations(experiment, [key for key in experiment.matrix if key not in experiment.task_keys])
    arms = []
    for entry in experiment.arms or (ArmEntry.model_construct(name=""),):
        params, flags = merge({}, entry.params), tuple(entry.flags)
        for label, values in combos:
            name = f"{entry.name},{label}" if entry.name and label else entry.name or label or "default"
            arms.append(Arm(name, merge(params, values) if params else values, flags, name))
    if not experiment.ablations:
        return arms
    ablated = []
    for arm in arms:
        ablated.append(arm)
        for ablation in experiment.ablations:
            if ablation.arms is None or arm.name in ablation.arms:
                params, flags = merge(arm.params, ablation.params), (*arm.flags, *ablation.flags)
                ablated.append(Arm(f"{arm.name}+{ablation.name}", params, flags, arm.name, ablation.name))
    return ablated


def _tasks(experiment: ExperimentFile, base: Path) -> list[Task]:
    """Entries times those axes of the matrix that are `task_keys`."""
    combos = _combinations(experiment, experiment.task_keys)
    tasks = []
    for number, entry in enumerate(experiment.tasks or (TaskEntry.model_construct(name=""),)):
        path = base / entry.path if entry.path else None
        try:
            digest = directory_digest(path) if path is not None else None
        except OSError as error:
            raise SpecError([Problem(f"tasks.{number}.path", f"{path} cannot be read: {error.strerror}")]) from error
        params = merge({}, entry.params)
        for label, values in combos:
            name = f"{entry.name},{label}" if entry.name and label else entry.name or label or "default"
            tasks.append(Task(name, merge(params, values), path, digest))
    return tasks


def _combinations(experiment: ExperimentFile, keys: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """(label, parameters) for each point of the product over `keys`.

    Labels are `lr=0.1,deep=true`; one axis of names needs no key, its values are the labels.
    """
    alone = len(keys) == 1 and keys[0] not in experiment.task_keys
    alone = alone and all(isinstance(value, str) for value in experiment.matrix[keys[0]])
    axes = [experiment.matrix[key] for key in keys]
    labels = []
    for key, axis in zip(keys, axes, strict=True):
        texts = [str(value) if isinstance(value, str | float) else canonical_json(value) for value in axis]
        labels.append(texts if alone else [f"{key}={text}" for text in texts])
    nested = any("." in key for key in keys)  # merging costs, so plain keys are taken as they are
    combos = []
    for label, point in zip(itertools.product(*labels), itertools.product(*axes), strict=True):
        values = dict(zip(keys, point, strict=True))
        combos.append((",".join(label), merge({}, values) if nested else values))
    return combos


def _pairs(experiment: ExperimentFile, arms: list[Arm], tasks: list[Task]) -> Iterable[tuple[Arm, Task, int]]:
    """(arm, task, rollouts) of every cell: those of `[[cells]]`, or all arms on all tasks."""
    if not experiment.cells:  # tasks outside: arms meet on a task before the next task begins
        return ((arm, task, experiment.rollouts) for task in tasks for arm in arms)
    by_arm, by_task = {arm.name: arm for arm in arms}, {task.name: task for task in tasks}
    pairs: dict[tuple[str, str], tuple[Arm, Task, int]] = {}
    for number, entry in enumerate(experiment.cells):
        for noun, name, known in (("arm", entry.arm, by_arm), ("task", entry.task, by_task)):
            if name not in known:
                raise SpecError([Problem(f"cells.{number}.{noun}", f"no {noun} called {name!r}", _one_of(name, known))])
        if (entry.arm, entry.task) in pairs:
            message = f"arm {entry.arm!r} on task {entry.task!r} stands twice"
            raise SpecError([Problem(f"cells.{number}", message, "use rollouts for repeats")])
        rollouts = entry.rollouts or experiment.rollouts
        pairs[entry.arm, entry.task] = (by_arm[entry.arm], by_task[entry.task], rollouts)
    return pairs.values()


class _CellMaker:
    """Makes cells: merges and validates the parameters that all share, those of the task and those of the arm."""

    def __init__(self, experiment: ExperimentFile, workload: Workload | CommandWorkload) -> None:
        self._experiment = experiment
        self._shared = merge({}, experiment.params)
        self._model = workload.Params
        # The core parts of pydantic: with a hundred thousand cells the wrappers around them cost seconds.
        adapter = TypeAdapter(self._model)
        self._validate, self._dump = adapter.validator.validate_python, adapter.serializer.to_python
        self._revision = workload.revision
        self._wants_path = "path" in self._model.model_fields
        self._below: dict[str, dict[str, Any]] = {}
        self._free: bool = getattr(self._model, "free_numbers", False) and not self._wants_path
        self._templates: dict[tuple[str, ...], str] = {}
        """Identities of cells by task and names of the arm's parameters, with a gap for each value; empty for none."""

    def cell(self, index: int, arm: Arm, task: Task, rollouts: int) -> Cell:
        """A cell whose parameters are valid; its complete table is made at the first access."""
        ids = RunIds(
            workload=self._experiment.workload,
            revision=self._revision,
            arm=arm.name,
            task=task.name,
            task_digest=task.digest,
            params=self._identity(arm, task),
            flags=arm.flags,
        )
        return Cell(index, arm, task, LazyTable(self._params, arm, task), rollouts, ids)

    def _identity(self, arm: Arm, task: Task) -> str:
        """Canonical JSON of a cell's parameters that are not defaults. Raises SpecError as `_params`.

        Where arms differ in numbers only, of which the model asks nothing, the first of them on a task is validated, and
        the text of the others is the same but for the numbers.
        """
        values = arm.params.values()
        kinds = {*map(type, values)} if self._free else {str}
        free = kinds <= _NUMBERS and (float not in kinds or all(-math.inf < value < math.inf for value in values))
        template = self._templates.get((task.name, *arm.params)) if free else None
        if template:
            return template % {name: repr(value) for name, value in arm.params.items()}
        table = self._params(arm, task, exclude_defaults=True)
        if self._wants_path and task.path is not None:
            table.pop("path", None)  # the digest of the content says more than the path
        if free and template is None:
            self._templates[task.name, *arm.params] = self._template(arm, table)
        return canonical_json(table)

    def _template(self, arm: Arm, table: Mapping[str, Any]) -> str:
        """Return canonical JSON with a gap for each value of the arm; empty where the model or a format could know one."""
        if any(name in self._model.model_fields or not name.isidentifier() for name in arm.params):
            return ""
        parts = []
        for key in sorted(table):
            text = f"{canonical_json(key)}:{'' if key in arm.params else canonical_json(table[key])}"
            parts.append(text.replace("%", "%%") + (f"%({key})s" if key in arm.params else ""))
        return f"{{{','.join(parts)}}}"

    def _params(self, arm: Arm, task: Task, *, exclude_defaults: bool = False) -> dict[str, Any]:
        """The parameters of a cell, merged and validated. Raises SpecError that names the place in the file."""
        below = self._below.get(task.name)
        if below is None:
            place = {"path": str(task.path)} if self._wants_path and task.path is not None else {}
            # Shared by all arms on this task.
            below = self._below[task.name] = merge(merge(self._shared, place), task.params)
        merged = merge(below, arm.params)
        try:
            params = self._validate(merged)
        except ValidationError as error:
            alone = arm.name == task.name == "default"
            cell = "" if alone else f"arm {arm.name!r}, task {task.name!r}: "
            wrong = []
            for problem in problems(error, self._model, given=merged):
                section = " to [params]" if problem.message == "is needed" else ""
                key = origin(self._experiment, arm, task, problem.key)
                wrong.append(Problem(key, f"{cell}{problem.message}", f"{problem.fix}{section}"))
            raise SpecError(wrong) from error
        table: dict[str, Any] = self._dump(params, mode="json", exclude_defaults=exclude_defaults)
        return table


def origin(experiment: ExperimentFile, arm: Arm, task: Task, key: str) -> str:
    """The key in the file that sets a parameter of this cell."""
    for axis in experiment.matrix:
        if key == axis or key.startswith(f"{axis}."):
            return f"matrix.{key}"
    sections: list[tuple[str, Iterable[Any], str]] = [
        ("ablations", experiment.ablations, arm.ablation),
        ("arms", experiment.arms, arm.name),
        ("tasks", experiment.tasks, task.name),
    ]
    for section, entries, name in sections:  # the last setter wins, so ablations and arms are asked before tasks
        for number, entry in enumerate(entries):
            named = name == entry.name or name.startswith((f"{entry.name},", f"{entry.name}+"))
            if named and key.split(".")[0] in {given.split(".")[0] for given in entry.params}:
                return f"{section}.{number}.params.{key}"
    return f"params.{key}" if key else "params"


def merge(below: Mapping[str, Any], above: Mapping[str, Any], *, reach: bool = True) -> dict[str, Any]:
    """`above` over `below`, table by table.

    At the top a dotted key reaches into tables; inside of a table a dot is part of a name, such as a model's.
    """
    merged = dict(below)
    for key, value in above.items():
        if reach and "." in key:
            first, _, rest = key.partition(".")
            inner = merged.get(first)
            merged[first] = merge(inner if isinstance(inner, dict) else {}, {rest: value})
        elif isinstance(value, dict):
            inner = merged.get(key)
            merged[key] = merge(inner if isinstance(inner, dict) else {}, value, reach=False)
        else:
            merged[key] = value
    return merged


# -- rules


def _filtered(plan: Plan) -> Plan:
    """Apply include and exclude: to cells when no rule asks for seed or rollout, else to each run.

    Names in rules and in [[concurrency]] are checked here, against the names that the whole plan has.
    """
    experiment = plan.experiment
    if not experiment.include and not experiment.exclude and not experiment.concurrency:
        return plan
    known = plan.names
    for number, limit in enumerate(experiment.concurrency):
        if limit.by not in known - {"ablation", "seed", "rollout"}:
            fix = _one_of(limit.by, known - {"ablation", "seed", "rollout"})
            raise SpecError([Problem(f"concurrency.{number}.by", f"no run has a parameter {limit.by!r}", fix)])
    if not experiment.include and not experiment.exclude:
        return plan
    tests: dict[str, list[Test]] = {"include": [], "exclude": []}
    for section, rules in tests.items():
        for number, given in enumerate(getattr(experiment, section)):
            try:
                rules.append(rule(given, known))
            except UsageError as error:
                raise SpecError([Problem(f"{section}.{number}", str(error))]) from error
    include, exclude = tests["include"], tests["exclude"]

    def keep(run: Mapping[str, Any]) -> bool:
        return (not include or any(test(run) for test in include)) and not any(test(run) for test in exclude)

    # Facts of a cell are the same for all its runs, so rules without seed and rollout are applied once for each cell.
    by_run = any(names(r) & {"seed", "rollout"} for r in (*experiment.include, *experiment.exclude))
    if by_run:  # each run is asked for
        _check_runs(experiment, plan.cells, MOST_RULED, " for rules about seed or rollout")
    try:
        if by_run:
            kept = [
                c for c in plan.cells if any(keep(facts(c, s, r)) for s in experiment.seeds for r in range(c.rollouts))
            ]
        else:
            kept = [cell for cell in plan.cells if keep(facts(cell, 0, 0))]
    except UsageError as error:
        raise SpecError([Problem("include" if experiment.include else "exclude", str(error))]) from error
    cells = [replace(cell, index=index) for index, cell in enumerate(kept)]
    return replace(plan, cells=cells, keep=keep if by_run else None)
