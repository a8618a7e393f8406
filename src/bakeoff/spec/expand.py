"""An experiment becomes a plan: matrix, arms, ablations, tasks and rules are multiplied out and validated."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bakeoff.errors import Problem, SpecError, UsageError, did_you_mean
from bakeoff.spec import registry
from bakeoff.spec.experiment import AblationEntry, ArmEntry, Experiment, TaskEntry, flatten
from bakeoff.spec.garbage import uncollected
from bakeoff.spec.identity import RunIds, canonical_json, directory_digest
from bakeoff.spec.plan import Arm, Cell, Lazy, Plan, Task, facts
from bakeoff.spec.problems import problems
from bakeoff.spec.select import Test, names, rule
from bakeoff.spec.workload import CommandWorkload, Workload

RESERVED = {"seed": "seeds", "rollout": "rollouts"}
"""No parameters: they say which run it is, and every workload gets them from its context."""


@uncollected()
def expand(experiment: Experiment, *, base: Path, **more: Any) -> Plan:
    """Everything that can be wrong with a plan is found here, before anything starts."""
    workload = _workload(experiment.workload)
    _check_setters(experiment)
    arms = _arms(experiment)
    tasks = _tasks(experiment, base)
    _check_names("arms", arms)
    _check_names("tasks", tasks)
    _check_ablations(experiment, arms)
    maker = _CellMaker(experiment, workload)
    cells = [maker.cell(index, *pair) for index, pair in enumerate(_pairs(experiment, arms, tasks))]
    plan = Plan(experiment, cells, base=base, **more)
    _check_concurrency(plan)
    if experiment.executor is not None and experiment.executor.kind not in (known := registry.executors()):
        kind = experiment.executor.kind
        raise SpecError([Problem("executor.kind", f"no executor called {kind!r}", _one_of(kind, known))])
    plan = _filtered(plan)
    _check_control(plan)
    return plan


def _workload(kind: str) -> Workload | CommandWorkload:
    try:
        return registry.workload(kind)
    except UsageError as error:
        raise SpecError([Problem("workload", str(error))]) from error


def _setters(experiment: Experiment, side: str) -> Iterator[tuple[str, str]]:
    """(parameter, place in the file that sets it) for the `arms` or the `tasks`."""
    for key in experiment.matrix:
        if (key in experiment.task_keys) == (side == "tasks"):
            yield key, f"matrix.{key}"
    entries: Sequence[ArmEntry | TaskEntry] = experiment.tasks if side == "tasks" else experiment.arms
    for number, entry in enumerate(entries):
        for key in flatten(entry.params):
            yield key, f"{side}.{number}.params.{key}"


def _check_setters(experiment: Experiment) -> None:
    """A parameter belongs to arms or to tasks, and to the matrix or to entries: else one would win in silence."""
    for_all = [(key, f"params.{key}") for key in flatten(experiment.params)]
    ablated = [
        (key, f"ablations.{number}.params.{key}")
        for number, entry in enumerate(experiment.ablations)
        for key in flatten(entry.params)
    ]
    of_arms, of_tasks = list(_setters(experiment, "arms")), list(_setters(experiment, "tasks"))
    found = []
    for key, place in (*for_all, *of_arms, *ablated, *of_tasks):
        if key in RESERVED:
            found.append(Problem(place, f"{key} is no parameter", f"write {RESERVED[key]} = ... at the top level"))
    arm_side = dict((*ablated, *of_arms))
    for key, place in of_tasks:
        if other := _overlap(key, arm_side):
            fix = "set it in one of the two, or two arms would not meet the same task"
            found.append(Problem(place, f"an arm sets it too ({other})", fix))
    for side in (of_arms, of_tasks):
        axes = {key: place for key, place in side if place.startswith("matrix.")}
        for key, place in side:
            if not place.startswith("matrix.") and (other := _overlap(key, axes)):
                found.append(Problem(place, f"{other} sets it too", "set it in one of the two"))
    if found:
        raise SpecError(found)


def _overlap(key: str, others: Mapping[str, str]) -> str | None:
    """The place of a setter that sets `key`, a table that it is in, or something in it."""
    if key in others:
        return others[key]
    return next((p for k, p in others.items() if k.startswith(f"{key}.") or key.startswith(f"{k}.")), None)


def _arms(experiment: Experiment) -> list[Arm]:
    combos = _combinations(experiment, [key for key in experiment.matrix if key not in experiment.task_keys])
    arms = []
    for entry in experiment.arms or (None,):
        given, flags = (merge({}, entry.params), tuple(entry.flags)) if entry else ({}, ())
        for label, values in combos:
            name = _name(entry.name if entry else "", label)
            arms.append(Arm(name, merge(given, values) if given else values, flags, name))
    if not experiment.ablations:
        return arms
    return [changed for arm in arms for changed in (arm, *_ablated(arm, experiment.ablations))]


def _ablated(arm: Arm, ablations: Iterable[AblationEntry]) -> list[Arm]:
    return [
        Arm(
            f"{arm.name}+{entry.name}",
            merge(arm.params, entry.params),
            (*arm.flags, *entry.flags),
            base=arm.name,
            ablation=entry.name,
        )
        for entry in ablations
        if entry.arms is None or arm.name in entry.arms
    ]


def _tasks(experiment: Experiment, base: Path) -> list[Task]:
    combos = _combinations(experiment, experiment.task_keys)
    tasks = []
    for number, entry in enumerate(experiment.tasks or (None,)):
        path = base / entry.path if entry and entry.path else None
        try:
            digest = directory_digest(path) if path is not None else None
        except OSError as error:
            raise SpecError([Problem(f"tasks.{number}.path", f"{path} cannot be read: {error.strerror}")]) from error
        given = merge({}, entry.params) if entry else {}
        for label, values in combos:
            tasks.append(Task(_name(entry.name if entry else "", label), merge(given, values), path, digest))
    return tasks


def _combinations(experiment: Experiment, keys: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """(label, parameters) for each point of the product over `keys`; one key of names speaks for itself."""
    alone = len(keys) == 1 and keys[0] not in experiment.task_keys
    alone = alone and all(isinstance(value, str) for value in experiment.matrix[keys[0]])
    axes = [experiment.matrix[key] for key in keys]
    labels = [
        [_text(value) if alone else f"{key}={_text(value)}" for value in values]
        for key, values in zip(keys, axes, strict=True)
    ]
    nested = any("." in key for key in keys)
    combos = []
    for label, point in zip(itertools.product(*labels), itertools.product(*axes), strict=True):
        chosen = dict(zip(keys, point, strict=True))
        combos.append((",".join(label), merge({}, chosen) if nested else chosen))
    return combos


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, float) else canonical_json(value)


def _name(entry: str, label: str) -> str:
    return f"{entry},{label}" if entry and label else entry or label or "default"


def _pairs(experiment: Experiment, arms: list[Arm], tasks: list[Task]) -> Iterable[tuple[Arm, Task, int]]:
    if not experiment.cells:
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
    """Makes the parameters of a cell out of what all cells share, its task and its arm."""

    def __init__(self, experiment: Experiment, workload: Workload | CommandWorkload) -> None:
        self._experiment = experiment
        self._shared = merge({}, experiment.params)
        self._model = workload.Params
        adapter = TypeAdapter(self._model)  # its core parts: a hundred thousand calls feel the wrappers around them
        self._validate, self._dump = adapter.validator.validate_python, adapter.serializer.to_python
        self._revision = workload.revision
        self._wants_path = "path" in self._model.model_fields
        self._below: dict[str, dict[str, Any]] = {}

    def cell(self, index: int, arm: Arm, task: Task, rollouts: int) -> Cell:
        """Validated now; its complete parameters are written out when someone looks at them."""
        ids = RunIds(
            workload=self._experiment.workload,
            revision=self._revision,
            arm=arm.name,
            task=task.name,
            task_digest=task.digest,
            params=self.identity(arm, task),
            flags=arm.flags,
        )
        return Cell(index, arm, task, Lazy(self.params, arm, task), Lazy(self.identity, arm, task), rollouts, ids)

    def params(self, arm: Arm, task: Task) -> dict[str, Any]:
        table: dict[str, Any] = self._dump(self._checked(arm, task), mode="json")
        return table

    def identity(self, arm: Arm, task: Task) -> dict[str, Any]:
        table: dict[str, Any] = self._dump(self._checked(arm, task), mode="json", exclude_defaults=True)
        if self._wants_path and task.path is not None:
            table.pop("path", None)  # the digest of what is there says more than where it lies
        return table

    def _checked(self, arm: Arm, task: Task) -> Any:
        below = self._below.get(task.name)
        if below is None:
            place = {"path": str(task.path)} if self._wants_path and task.path is not None else {}
            below = self._below[task.name] = merge(merge(self._shared, place), task.params)
        merged = merge(below, arm.params)
        try:
            return self._validate(merged)
        except ValidationError as error:
            raise SpecError(
                [
                    Problem(
                        _origin(self._experiment, arm, task, p.key),
                        f"arm {arm.name!r}, task {task.name!r}: {p.message}",
                        p.fix,
                    )
                    for p in problems(error, self._model, given=merged)
                ]
            ) from error


def _origin(experiment: Experiment, arm: Arm, task: Task, key: str) -> str:
    """Where the file sets a parameter of this cell."""
    sections: list[tuple[str, Iterable[Any], str]] = [
        ("ablations", experiment.ablations, arm.ablation),
        ("arms", experiment.arms, arm.name),
        ("tasks", experiment.tasks, task.name),
    ]
    for axis in experiment.matrix:
        if key == axis or key.startswith(f"{axis}."):
            return f"matrix.{key}"
    for section, entries, name in sections:
        for number, entry in enumerate(entries):
            named = name == entry.name or name.startswith((f"{entry.name},", f"{entry.name}+"))
            if named and key.split(".")[0] in {given.split(".")[0] for given in entry.params}:
                return f"{section}.{number}.params.{key}"
    return f"params.{key}" if key else "params"


def merge(below: Mapping[str, Any], above: Mapping[str, Any], *, reach: bool = True) -> dict[str, Any]:
    """`above` over `below`, table by table. A dotted key reaches into tables; inside of one it is a name, as of a model."""
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


def _filtered(plan: Plan) -> Plan:
    """Apply include and exclude: to cells when no rule asks for seed or rollout, else to each run."""
    experiment = plan.experiment
    if not experiment.include and not experiment.exclude:
        return plan
    known = plan.names
    include, exclude = _rules(plan, "include", known), _rules(plan, "exclude", known)

    def keep(given: Mapping[str, Any]) -> bool:
        return (not include or any(test(given) for test in include)) and not any(test(given) for test in exclude)

    by_run = any(names(r) & {"seed", "rollout"} for r in (*experiment.include, *experiment.exclude))
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


def _rules(plan: Plan, section: str, known: Collection[str]) -> list[Test]:
    tests = []
    for number, given in enumerate(getattr(plan.experiment, section)):
        try:
            tests.append(rule(given, known))
        except UsageError as error:
            raise SpecError([Problem(f"{section}.{number}", str(error))]) from error
    return tests


def _check_names(section: str, entries: Sequence[Arm | Task]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            fix = "give each its own name; in [matrix] each value may stand once"
            raise SpecError([Problem(section, f"two {section} are called {entry.name!r}", fix)])
        seen.add(entry.name)


def _check_ablations(experiment: Experiment, arms: Sequence[Arm]) -> None:
    known = {arm.base for arm in arms}
    for number, entry in enumerate(experiment.ablations):
        for name in entry.arms or ():
            if name not in known:
                raise SpecError([Problem(f"ablations.{number}.arms", f"no arm called {name!r}", _one_of(name, known))])


def _check_concurrency(plan: Plan) -> None:
    if not plan.experiment.concurrency:
        return
    known = plan.names - {"ablation", "seed", "rollout"}
    for number, limit in enumerate(plan.experiment.concurrency):
        if limit.by not in known:
            message, fix = f"no run has a parameter {limit.by!r}", _one_of(limit.by, known)
            raise SpecError([Problem(f"concurrency.{number}.by", message, fix)])


def _check_control(plan: Plan) -> None:
    control = plan.experiment.analysis.control
    if control is None or not plan.cells:
        return
    arms = {arm.name for arm in plan.arms}
    if control not in arms:
        raise SpecError([Problem("analysis.control", f"no arm called {control!r}", _one_of(control, arms))])


def _one_of(name: str, known: Iterable[str]) -> str:
    listed = sorted(known)
    return did_you_mean(name, listed, f"one of {', '.join(listed[:20])}" + (" ..." if len(listed) > 20 else ""))
