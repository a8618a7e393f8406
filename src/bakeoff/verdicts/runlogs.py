"""What runs logged, whole: every series and every number of each run, from an edition or from directories.

For questions that need more of a run than one metric. A run that cannot be read is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition, find_run
from bakeoff.records.layout import find_edition
from bakeoff.records.series import read_block, read_jsonl
from bakeoff.spec.experiment import Analysis, Experiment
from bakeoff.verdicts.observations import Observation, Observations, state_of
from bakeoff.verdicts.reduce import reduce_all
from bakeoff.verdicts.units import Array

LOGS = ("metrics.jsonl", "emergence/steps.jsonl")
"""Where a run's directory has its steps; what stands in both is taken from the first."""
Column = tuple[Array, Array]


@dataclass(frozen=True, slots=True)
class RunLog:
    """One run. `series` has (steps, values) of each metric that was logged by step, `numbers` the run's scalars."""

    name: str
    arm: str
    task: str
    seed: int | None
    rollout: int
    status: str
    series: Mapping[str, Column] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many different steps were logged."""
        known = [steps for steps, _ in self.series.values()]
        return int(np.unique(np.concatenate(known)).size) if known else 0

    def has(self, metric: str) -> bool:
        return metric in self.series or metric in self.numbers

    def total(self, metric: str) -> float | None:
        """The sum of a series, or the number; None when the run has neither."""
        if metric in self.series:
            steps, values = self.series[metric]
            last = {float(step): float(value) for step, value in zip(steps, values, strict=True)}  # resumed runs repeat
            return float(sum(last.values()))
        return self.numbers.get(metric)


@dataclass(frozen=True, slots=True)
class Logs:
    """Runs with how they are to be judged."""

    runs: Sequence[RunLog]
    analysis: Analysis = field(default_factory=Analysis)
    source: str = ""
    """The experiment's name; empty for runs that were named one by one."""
    fixed_tasks: bool = False
    final: bool = True

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(run.arm for run in self.runs))


def open_experiment(name: str, root: Path) -> Logs:
    """Everything that the newest (or the named) edition of an experiment logged."""
    edition = Edition.open(find_edition(name, root))
    try:
        facts = edition.facts()
        experiment = Experiment.model_validate(facts["spec"])
        runs = of_edition(edition)
        return Logs(
            runs=runs,
            analysis=experiment.analysis,
            source=f"{facts['experiment']}/{facts['edition']}",
            fixed_tasks=bool(experiment.task_keys) and not experiment.tasks,
            final=not any(run.status in ("planned", "running") for run in runs),
        )
    finally:
        edition.close()


def of_edition(edition: Edition) -> list[RunLog]:
    """Every planned run, whatever became of it."""
    blocks = {position: read_block(block) for position, block in edition.all_series()}
    return [
        RunLog(
            name=run.run_id,
            arm=run.arm,
            task=run.task,
            seed=run.seed,
            rollout=run.rollout,
            status=run.status,
            series=_columns(blocks.get(run.position, {})),
            numbers=_numbers(run.metrics),
        )
        for run in edition.runs()
    ]


def is_run_directory(directory: Path) -> bool:
    return any((directory / log).is_file() for log in LOGS)


def of_run(name: str, root: Path) -> RunLog:
    """A run by its directory or by its id."""
    directory = Path(name)
    if is_run_directory(directory):
        return of_directory(directory)
    try:
        edition, position = find_run(name, root)
    except UsageError as error:
        if directory.is_dir():
            raise UsageError(
                f"{name}: the directory has no {' and no '.join(LOGS)}, so there is nothing to read"
            ) from None
        raise UsageError(f"{name}: neither a directory with metrics.jsonl nor a run ({error})") from error
    try:
        run, block = edition.run(position), edition.series(position)
        return RunLog(
            name=run.run_id,
            arm=run.arm,
            task=run.task,
            seed=run.seed,
            rollout=run.rollout,
            status=run.status,
            series=_columns(read_block(block)) if block is not None else {},
            numbers=_numbers(run.metrics),
        )
    finally:
        edition.close()


def of_directory(directory: Path) -> RunLog:
    """A run that somebody else's program logged: its steps, and the seed that its name ends in (`_s42`, `seed42`)."""
    columns: dict[str, Column] = {}
    found = False
    for log in LOGS:
        path = directory / log
        if not path.is_file():
            continue
        found = True
        try:
            series, _ = read_jsonl(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
        columns = {**_columns(read_block(series.block())), **columns}
    if not found:
        raise UsageError(f"{directory}: no run can be read there; a run's directory has {' or '.join(LOGS)}")
    if not columns:
        raise UsageError(f"{directory}: its logs hold no numbers")
    seed = re.search(r"(?:^|[_.\-])s(?:eed)?_?(\d+)$", directory.resolve().name)
    return RunLog(
        name=str(directory),
        arm=re.sub(r"[_.\-]?s(?:eed)?_?\d+$", "", directory.resolve().name) or directory.resolve().name,
        task="default",
        seed=int(seed[1]) if seed else None,
        rollout=0,
        status="succeeded",
        series=columns,
    )


def named(logs: Sequence[RunLog], arm: str) -> list[RunLog]:
    """Runs as one arm on one task. Seeds that some lack, or that two share, tell nothing: the runs are rollouts then."""
    seeds = [log.seed for log in logs]
    told = None not in seeds and len(set(seeds)) == len(seeds)
    one = [replace(log, arm=arm, task="default") for log in logs]
    return one if told else [replace(log, seed=None, rollout=number) for number, log in enumerate(one)]


def has_series(logs: Iterable[RunLog], metric: str) -> bool:
    return any(metric in log.series for log in logs)


def known_metrics(logs: Iterable[RunLog]) -> list[str]:
    return list(dict.fromkeys(name for log in logs for name in (*log.series, *log.numbers)))


def observe(logs: Sequence[RunLog], metric: str, analysis: Analysis, *, fixed_tasks: bool = False) -> Observations:
    """One metric of these runs; a summary reduces its series, otherwise it is the run's number."""
    if analysis.summary is not None:
        # How far a failed run came is no score, and its early end no horizon.
        ended = [(number, log) for number, log in enumerate(logs) if log.status == "succeeded"]
        curves = {number: log.series[metric] for number, log in ended if metric in log.series}
        try:
            values: Mapping[int, float] = reduce_all(
                curves, analysis.summary, larger_is_better=analysis.direction == "maximize"
            )
        except UsageError as error:
            raise UsageError(_with_name(str(error), logs)) from error
    else:
        values = {number: log.numbers[metric] for number, log in enumerate(logs) if metric in log.numbers}
    rows = []
    for number, log in enumerate(logs):
        state, value = state_of(log.status, values.get(number))
        rows.append(Observation(log.arm, log.task, log.seed, log.rollout, state, value, log.name))
    return Observations(metric, rows, analysis, fixed_tasks=fixed_tasks)


def _with_name(message: str, logs: Sequence[RunLog]) -> str:
    """`run 3: ...` with the run's own name."""
    found = re.match(r"run (\d+): ", message)
    return f"{logs[int(found[1])].name}: {message[found.end() :]}" if found else message


def _columns(columns: Mapping[str, tuple[object, object]]) -> dict[str, Column]:
    return {
        name: (np.asarray(s, dtype=np.float64), np.asarray(v, dtype=np.float64)) for name, (s, v) in columns.items()
    }


def _numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
