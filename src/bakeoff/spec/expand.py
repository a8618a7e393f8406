"""An experiment becomes a plan: matrix, arms, ablations, tasks and rules are multiplied out and validated."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bakeoff.errors import Problem, SpecError, UsageError
from bakeoff.spec import registry
from bakeoff.spec.experiment import AblationEntry, Experiment, Rule
from bakeoff.spec.identity import RunIds, directory_digest
from bakeoff.spec.plan import Arm, Cell, Plan, Task, facts
from bakeoff.spec.problems import problems
from bakeoff.spec.select import Test, rule


def expand(experiment: Experiment, *, base: Path, **more: Any) -> Plan:
    """Everything that can be wrong with a plan is found here, before anything starts."""
    params, revision = _workload(experiment.workload)
    arms = _arms(experiment)
    tasks = _tasks(experiment, base)
    _check_names("arms", arms)
    _check_names("tasks", tasks)
    cells: list[Cell] = []
    for arm, task, rollouts in _pairs(experiment, arms, tasks):
        cells.append(_cell(experiment, len(cells), arm, task, rollouts, params, revision))
    plan = _filtered(Plan(experiment, cells, base=base, **more))
    _check_references(plan)
    return plan


def _workload(kind: str) -> tuple[type[BaseModel], str]:
    try:
        found = registry.workload(kind)
    except UsageError as error:
        raise SpecError([Problem("workload", str(error))]) from error
    return found.Params, found.revision


def _arms(experiment: Experiment) -> list[Arm]:
    combos = _combinations(experiment, [key for key in experiment.matrix if key not in experiment.task_keys])
    arms = []
    for entry in experiment.arms or (None,):
        for label, values in combos:
            given = {**(entry.params if entry else {}), **values}
            name = ",".join(part for part in (entry.name if entry else "", label) if part) or "default"
            arms.append(Arm(name, given, tuple(entry.flags) if entry else (), base=name))
    return [changed for arm in arms for changed in (arm, *_ablated(arm, experiment.ablations))]


def _ablated(arm: Arm, ablations: Iterable[AblationEntry]) -> list[Arm]:
    return [
        Arm(
            f"{arm.name}+{entry.name}",
            {**arm.params, **entry.params},
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
    for entry in experiment.tasks or (None,):
        path = base / entry.path if entry and entry.path else None
        if path is not None and not path.exists():
            raise SpecError([Problem("tasks", f"{path} does not exist")])
        digest = directory_digest(path) if path is not None else None
        for label, values in combos:
            name = ",".join(part for part in (entry.name if entry else "", label) if part) or "default"
            tasks.append(Task(name, {**(entry.params if entry else {}), **values}, path, digest))
    return tasks


def _combinations(experiment: Experiment, keys: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """(label, parameters) for each point of the product over `keys`; one key is labelled by its value alone."""
    combos = []
    for values in itertools.product(*(experiment.matrix[key] for key in keys)):
        chosen = dict(zip(keys, values, strict=True))
        if len(keys) == 1 and keys[0] not in experiment.task_keys:
            label = _text(values[0])
        else:
            label = ",".join(f"{key}={_text(value)}" for key, value in chosen.items())
        combos.append((label, chosen))
    return combos


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pairs(experiment: Experiment, arms: list[Arm], tasks: list[Task]) -> Iterable[tuple[Arm, Task, int]]:
    if not experiment.cells:
        return ((arm, task, experiment.rollouts) for task in tasks for arm in arms)
    by_arm, by_task = {arm.name: arm for arm in arms}, {task.name: task for task in tasks}
    pairs = []
    for number, entry in enumerate(experiment.cells):
        for noun, name, known in (("arm", entry.arm, by_arm), ("task", entry.task, by_task)):
            if name not in known:
                raise SpecError([Problem(f"cells.{number}.{noun}", f"no {noun} called {name!r}", _one_of(known))])
        pairs.append((by_arm[entry.arm], by_task[entry.task], entry.rollouts or experiment.rollouts))
    return pairs


def _cell(
    experiment: Experiment, index: int, arm: Arm, task: Task, rollouts: int, model: type[BaseModel], revision: str
) -> Cell:
    both = sorted(set(arm.params) & set(task.params))
    if both:
        fix = "set it in one of the two, or two arms would not meet the same task"
        raise SpecError([Problem("params", f"arm {arm.name!r} and task {task.name!r} both set {both[0]!r}", fix)])
    merged = merge(merge(experiment.params, arm.params), task.params)
    try:
        checked = model.model_validate(merged)
    except ValidationError as error:
        raise SpecError(
            [
                Problem(f"params.{p.key}", f"arm {arm.name!r}, task {task.name!r}: {p.message}", p.fix)
                for p in problems(error, model)
            ]
        ) from error
    identity = checked.model_dump(mode="json", exclude_defaults=True)
    if arm.flags:
        identity["flags"] = list(arm.flags)
    ids = RunIds(
        workload=experiment.workload,
        revision=revision,
        arm=arm.name,
        task=task.name,
        task_digest=task.digest,
        params=identity,
    )
    return Cell(index, arm, task, checked.model_dump(mode="json"), identity, rollouts, ids.run_id)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, table by table; a dotted key reaches into tables."""
    merged = dict(below)
    for key, value in above.items():
        first, dot, rest = key.partition(".")
        if dot:
            inner = merged.get(first)
            merged[first] = merge(inner if isinstance(inner, dict) else {}, {rest: value})
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _filtered(plan: Plan) -> Plan:
    """Apply include and exclude: to cells when no rule asks for seed or rollout, else to each run."""
    experiment = plan.experiment
    if not experiment.include and not experiment.exclude:
        return plan
    include, exclude = [rule(r) for r in experiment.include], [rule(r) for r in experiment.exclude]

    def keep(given: Mapping[str, Any]) -> bool:
        return (not include or any(test(given) for test in include)) and not any(test(given) for test in exclude)

    test: Test = keep
    try:
        if any(_asks_for_seed(r) for r in (*experiment.include, *experiment.exclude)):
            cells = [c for c in plan.cells if any(test(facts(c, s, r)) for s in experiment.seeds for r in range(c.rollouts))]
            return Plan(experiment, cells, keep=test, base=plan.base, dialect=plan.dialect, root=plan.root)
        kept = [cell for cell in plan.cells if test(facts(cell, 0, 0))]
    except UsageError as error:
        raise SpecError([Problem("include" if experiment.include else "exclude", str(error))]) from error
    return Plan(experiment, kept, base=plan.base, dialect=plan.dialect, root=plan.root)


def _asks_for_seed(text_or_table: Rule) -> bool:
    if isinstance(text_or_table, str):
        try:
            names = {node.id for node in ast.walk(ast.parse(text_or_table)) if isinstance(node, ast.Name)}
        except SyntaxError:
            names = {text_or_table.partition("=")[0].strip()}
    else:
        names = set(text_or_table)
    return bool(names & {"seed", "rollout"})


def _check_names(section: str, entries: Sequence[Arm | Task]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise SpecError([Problem(section, f"two {section} are called {entry.name!r}", "give each its own name")])
        seen.add(entry.name)


def _check_references(plan: Plan) -> None:
    """Names that other sections use must exist."""
    experiment = plan.experiment
    arms = {arm.name for arm in plan.arms}
    control = experiment.analysis.control
    if plan.cells and control is not None and control not in arms:
        raise SpecError([Problem("analysis.control", f"no arm called {control!r}", _one_of(arms))])
    for number, entry in enumerate(experiment.ablations):
        for name in entry.arms or ():
            if name not in {arm.base for arm in plan.arms}:
                raise SpecError([Problem(f"ablations.{number}.arms", f"no arm called {name!r}", _one_of(arms))])
    for number, limit in enumerate(experiment.concurrency):
        if not any(limit.by in facts(cell, 0, 0) for cell in plan.cells[:1000]):
            raise SpecError([Problem(f"concurrency.{number}.by", f"no run has a parameter {limit.by!r}")])


def _one_of(names: Iterable[str]) -> str:
    listed = sorted(names)
    return f"one of {', '.join(listed[:20])}" + (" ..." if len(listed) > 20 else "")
