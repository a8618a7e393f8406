"""A source of further runs: seeds, or tasks, in blocks, in plan order, until the sequential test has decided.

The plan of such an edition is a prefix of one long list of seeds, or of tasks where these are a sample, that is fixed when
it begins. Each block is added in
one transaction after everything before it has ended, so whatever is killed, the same command goes on along the same
path and comes to the same decision.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

from bakeoff.engine.session import Options, Session
from bakeoff.errors import UsageError
from bakeoff.records import layout
from bakeoff.records.edition import Edition
from bakeoff.records.run import RunRecord
from bakeoff.results.editions import edition_results
from bakeoff.spec.experiment import ExperimentFile, Sequential
from bakeoff.spec.plan import Plan, Run
from bakeoff.spec.select import Facts, Test
from bakeoff.verdicts.answer import check_direction
from bakeoff.verdicts.family import family_of
from bakeoff.verdicts.sequential.evidence_path import (
    SequentialReport,
    declared_metrics,
    report,
    sequential_rule,
    task_order,
    unit_of,
)

LEAST_BLOCK = 4


def prepare(plan: Plan, options: Options) -> Plan:
    """The plan as far as it goes by now: the runs of the edition that is resumed, or the first block of a new one.

    Everything that would make a verdict impossible or invalid is refused here, before anything starts.
    """
    if plan.experiment.sequential is None:
        return plan
    if options.only or options.retry_failed:
        raise UsageError(
            "--only and --retry-failed change which values the sequential test looks at; leave them out, "
            "or run with a fixed number of seeds"
        )
    began = _resumed(plan, options)
    known = began[1] if began else {}
    plan = _settled(plan, options, began[0] if began else None, len(known))
    _check(plan)
    units, settings = _units(plan), plan.experiment.sequential
    assert settings is not None and settings.block is not None
    # More seeds may follow those that were run; one more task would come between them.
    begun = set(units) if settings.max_tasks is None else set(units[: len(known)])
    if not known.keys() <= begun:
        raise UsageError(
            f"{unit_of(settings)}s that were run already are not the first of the file; restore it, or begin with --fresh"
        )
    every = {arm.name for arm in plan.arms}
    return _part(plan, known or dict.fromkeys(units[: settings.block], every))


def settled(plan: Plan, options: Options) -> Plan:
    """The whole plan, up to the most seeds there can be, as a new edition would have it."""
    plan = _settled(plan, options, None, 0)
    _check(plan)
    return plan


class UntilDecided:
    """Called by the scheduler when nothing is left to do: looks, and plans another block or nothing."""

    def __init__(self, session: Session) -> None:
        self._session = session
        session.edition.restate(session.plan.experiment)  # more seeds may be asked for than when it began
        self.report: SequentialReport = report(edition_results(session.edition))
        self._withdraw()
        self.looks = 0
        self._added: Counter[str] = Counter()

    def __call__(self) -> Sequence[Run]:
        """The next block of seeds, or tasks, in plan order; nothing when the test has stopped."""
        if self.look().stopped:
            return []
        plan = self._session.plan
        settings = plan.experiment.sequential
        assert settings is not None and settings.block is not None
        known = {_name(run, settings) for run in self._session.edition.runs()}
        waiting = [unit for unit in _units(plan) if unit not in known]
        block = list(_part(plan, dict.fromkeys(waiting[: settings.block], self.report.running)))
        self._added.update(run.cell.arm.name for run in block)
        return block

    def look(self) -> SequentialReport:
        self.looks += 1
        self.report = report(edition_results(self._session.edition))
        self._withdraw()
        return self.report

    def _withdraw(self) -> None:
        """Take runs that were never started out of the plan where their arm has left since they were planned."""
        settings = self._session.plan.experiment.sequential
        assert settings is not None
        pairs = {unit: place for place, unit in enumerate(_units(self._session.plan), start=1)}
        last = {arm.name: self.report.left_at(arm.name) for arm in self._session.plan.arms}
        self._session.edition.withdraw_runs([
            run.position
            for run in self._session.edition.runs(["planned"])
            if (end := last[run.arm]) is not None and pairs[_name(run, settings)] > end
        ])  # fmt: skip

    @property
    def line(self) -> str:
        return self.report.line()

    def take_added(self) -> Counter[str]:
        """How many runs each arm was given since this was last asked."""
        added, self._added = self._added, Counter()
        return added


def sequential(experiment: ExperimentFile, max_seeds: int | None = None, block: int | None = None) -> ExperimentFile:
    """The experiment as `--until-decided` asks for it: its own section, or the defaults, changed by flags."""
    given = experiment.sequential or Sequential()
    changes = {key: value for key, value in (("max_seeds", max_seeds), ("block", block)) if value is not None}
    return experiment.model_copy(update={"sequential": given.model_copy(update=changes)})


def _units(plan: Plan) -> Sequence[int | str]:
    """Everything that could become a pair, in plan order: the seeds, or the tasks in the order of their digests."""
    settings = plan.experiment.sequential
    assert settings is not None
    if settings.max_tasks is None:
        return plan.experiment.seeds
    return sorted((task.name for task in plan.tasks), key=task_order)[: settings.max_tasks]


def _name(run: RunRecord, settings: Sequential) -> int | str:
    """The seed or the task of a run."""
    assert run.seed is not None  # only imported runs have none, and an import is not sequential
    return run.seed if settings.max_tasks is None else run.task


def _resumed(plan: Plan, options: Options) -> tuple[ExperimentFile, dict[int | str, set[str]]] | None:
    """What the edition that `run` would resume was begun with, and the arms that were planned for each seed or task."""
    known = layout.editions(layout.experiment_directory(options.root, plan.experiment.name))
    if not known or options.fresh:
        return None
    try:
        edition = Edition.open(known[-1])
    except UsageError:
        return None
    try:
        if edition.complete and plan.experiment.editions == "repeat":
            return None
        began = ExperimentFile.model_validate(edition.facts()["spec"])
        if began.sequential is None:
            raise UsageError(
                f"{edition.paths.experiment}/{edition.paths.name} was begun with a fixed number of runs, and cannot "
                "become a sequential one now that results may have been seen; begin with --fresh"
            )
        arms: dict[int | str, set[str]] = {}
        for run in edition.runs():
            arms.setdefault(_name(run, began.sequential), set()).add(run.arm)
        return began, arms
    finally:
        edition.close()


def _settled(plan: Plan, options: Options, began: ExperimentFile | None, planned: int) -> Plan:
    """Seeds up to the most there can be, and the block's size: as given, as begun, or as fits the jobs."""
    given, before = plan.experiment.sequential, began.sequential if began else None
    assert given is not None
    if began is not None:
        _unchanged(plan.experiment, began)
    jobs = options.jobs or plan.experiment.jobs or os.cpu_count() or 1
    if _tasks_are_units(plan):
        return _settled_tasks(plan, given, before, jobs)
    asked = given.max_seeds or (before.max_seeds if before else None)
    most = max(asked or len(plan.experiment.seeds), planned)
    for_one_seed = max(1, sum(cell.rollouts for cell in plan.cells))
    block = given.block or (before.block if before else None) or max(LEAST_BLOCK, math.ceil(jobs / for_one_seed))
    settings = given.model_copy(update={"max_seeds": most, "block": block})
    # The file's seeds, then the whole numbers above them.
    listed = plan.experiment.seeds
    above = max(listed) + 1
    seeds = [*listed[:most], *range(above, above + most - len(listed))]
    return replace(plan, experiment=plan.experiment.model_copy(update={"sequential": settings, "seeds": seeds}))


def _tasks_are_units(plan: Plan) -> bool:
    """Whether the verdict is about tasks like these. Raises UsageError where tasks and seeds are both samples."""
    experiment, analysis = plan.experiment, plan.experiment.analysis
    swept = bool(experiment.task_keys) and not experiment.tasks
    if len(plan.tasks) < 2 or (analysis.tasks or ("fixed" if swept else "sample")) == "fixed":
        return False
    if analysis.seeds == "crossed" and len(experiment.seeds) > 1:
        raise UsageError(
            "tasks and seeds are both samples here, and no e-process knows both: results of one more seed are not independent "
            "of those on the same tasks. Run S seeds and `compare`, then 2 S and 4 S with `run --set seeds=...`: each later "
            "verdict has a quarter of the level. Or set analysis.tasks = 'fixed' for a verdict on these tasks only"
        )
    return True


def _settled_tasks(plan: Plan, given: Sequential, before: Sequential | None, jobs: int) -> Plan:
    """Tasks up to the most there can be. Their list is fixed when the first block begins."""
    if given.max_seeds is not None:
        raise UsageError(
            "more seeds say nothing about tasks beyond these: the unit is the task, so leave sequential.max_seeds (or "
            "--max-seeds) out; analysis.tasks = 'fixed' asks about these tasks only, with the seed as the unit"
        )
    most = min(given.max_tasks or len(plan.tasks), len(plan.tasks))
    if before is not None and before.max_tasks is None:
        raise UsageError("this edition was begun with the seed as the unit; begin with --fresh")
    if before is not None and before.max_tasks is not None and most < before.max_tasks:
        raise UsageError(
            f"this edition was begun with {before.max_tasks} tasks; restore the file, or begin with --fresh"
        )
    for_one_task = max(1, len(plan.experiment.seeds) * sum(cell.rollouts for cell in plan.cells) // len(plan.tasks))
    block = given.block or (before.block if before else None) or max(LEAST_BLOCK, math.ceil(jobs / for_one_task))
    settings = given.model_copy(update={"max_tasks": most, "block": block})
    return replace(plan, experiment=plan.experiment.model_copy(update={"sequential": settings}))


def _unchanged(now: ExperimentFile, began: ExperimentFile) -> None:
    """What decides is fixed when the first block begins. More seeds and other blocks may be asked for at any time."""
    assert now.sequential is not None and began.sequential is not None
    before = began.analysis.model_dump()
    changed = [
        f"analysis.{key}: {before.get(key)!r} became {value!r}"
        for key, value in now.analysis.model_dump().items()
        if before.get(key) != value and not (key == "failure_score" and before.get(key) is None)
    ]
    for key in ("test", "goal"):
        was, is_now = getattr(began.sequential, key), getattr(now.sequential, key)
        if was != is_now:
            changed.append(f"sequential.{key}: {was!r} became {is_now!r}")
    if changed:
        raise UsageError(
            f"the rule of a sequential test is fixed when it begins: {'; '.join(changed)}. "
            "Restore the file, or begin with --fresh"
        )


def _check(plan: Plan) -> None:
    experiment, analysis = plan.experiment, plan.experiment.analysis
    assert experiment.sequential is not None
    metrics = declared_metrics(analysis)
    arms = [arm.name for arm in plan.arms]
    if len(arms) < 2:
        raise UsageError("there is nothing to decide: the plan has one arm")
    if experiment.sequential.goal == "best" and len(metrics) > 1:
        raise UsageError(
            f"sequential.goal = 'best' needs one metric, and {', '.join(metrics)} are declared; empty analysis.primary"
        )
    for metric in metrics:
        check_direction(metric, analysis.about(metric), analysis, metrics, in_file=True)
    tasks = [task.name for task in plan.tasks]
    if len(plan.cells) != len(arms) * len(tasks):
        raise UsageError("a pair needs both arms on the same tasks, and not every arm meets every task")
    if experiment.sequential.max_tasks is not None and experiment.sequential.goal == "best":
        raise UsageError("sequential.goal = 'best' is for seeds: set analysis.tasks = 'fixed', or goal = 'control'")
    if experiment.sequential.max_tasks is not None and analysis.cluster not in (None, "none"):
        raise UsageError("analysis.cluster: the sequential test takes tasks as independent; run a fixed number of them")
    if analysis.statistic != "mean":
        raise UsageError(
            f"analysis.statistic = {analysis.statistic!r} is for a fixed number of runs: the sequential test bets on signs and "
            "sizes together, and extreme values hardly move it. Leave it out"
        )
    if analysis.relative_margin is not None:
        raise UsageError("a sequential test takes its margin in the metric's unit: set analysis.margin")
    try:
        family = family_of(analysis, arms, analysis.control or arms[0], len(metrics))
        sequential_rule(analysis, experiment.sequential, family.size)
    except ValueError as error:
        raise UsageError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Part:
    """Keeps runs of these arms on each seed, or task, as far as the file's own rules keep them."""

    arms: Mapping[int | str, Set[str]]
    unit: Literal["seed", "task"]
    rule: Test | None

    def __call__(self, facts: Facts) -> bool:
        return facts["arm"] in self.arms.get(facts[self.unit], ()) and (self.rule is None or self.rule(facts))


def _part(plan: Plan, arms: Mapping[int | str, Set[str]]) -> Plan:
    """The part of the whole plan that has these seeds, or tasks, each with its arms."""
    rule = plan.keep.rule if isinstance(plan.keep, _Part) else plan.keep
    assert plan.experiment.sequential is not None
    return replace(plan, keep=_Part(arms, unit_of(plan.experiment.sequential), rule))
