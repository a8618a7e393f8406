"""The one table that every question is asked of: a `Row` for each run, and `Results` for all of them.

It does not matter who ran the runs. Our editions, sweep directories, CSV files and W&B projects all become `Results`,
so everything after this module has one path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Analysis, ExperimentFile, Summary
from bakeoff.spec.identity import run_id_in

if TYPE_CHECKING:
    from bakeoff.records.conditions import Share
    from bakeoff.records.looks import Look
    from bakeoff.records.recorded import Recorded
    from bakeoff.records.run import Uncounted
    from bakeoff.results.importers.foreign import Message, Source, Transcript
    from bakeoff.spec.workload import Scalar

Array = npt.NDArray[np.float64]
Series = tuple[Array, Array]
"""(steps, values) of one metric that a run logged by step."""
UNFINISHED = ("planned", "running")
"""Statuses of a run that may still get an outcome of its own."""
EMPTY: Mapping[str, Any] = {}
"""Shared by all runs that have no series or no parameters: a million empty tables would take 64 MB."""
NAMES_SHOWN = 20
"""How many names an error lists."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run: who it is, how it ended, and what it measured.

    `status` is one of ours (`succeeded`, `failed`, `timeout`, `cancelled`, `infra_error`, `planned`, `running`), or empty
    where a table does not say: then a value means that the run succeeded, and no value that it is missing.
    `seed` is None where runs share no seeds.
    """

    arm: str
    task: str = "default"
    seed: int | None = None
    rollout: int = 0
    status: str = "succeeded"
    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    """Scalars of the whole run."""
    series: Mapping[str, Series] = field(default_factory=lambda: EMPTY)
    """Metrics that were logged by step."""
    run_id: str = ""
    params: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    base: str = ""
    """The arm that an ablation changes; empty where nothing is known about it."""
    ablation: str = ""
    flags: tuple[str, ...] = ()
    workload: str = "command"
    dialect: str = "native"
    """The dialect of experiment files that the run belongs to (`spec/registry.py`)."""
    command: str | None = None
    directory: Path | None = None
    """For runs of other tools: where their files are, if they have any. `files` is for runs of any origin."""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    error: str | None = None
    group: str | None = None
    """A level above the task, where the source has one."""
    source: Source | None = None
    """Where the run was read from, if another tool wrote it."""
    transcript: Transcript | None = None
    """Reads what was said in the run, if the source has it; `messages` calls it."""
    stage: int = 0
    """How many smaller plans results were seen of before this run was planned."""
    position: int = 0
    """In an edition of ours: its number in the plan."""
    cell: int = 0
    """In an edition of ours: the number of its arm on its task."""
    settings: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """In an edition of ours: all its parameters, nested; `params` are those that become columns of a table."""
    tries: int = 1
    """How often it was tried; `attempts` reads them."""
    edition: Recorded | None = field(default=None, repr=False, compare=False)
    """The edition of ours that recorded it."""

    @property
    def wall_s(self) -> float | None:
        """Seconds from start to end; None where that is not known."""
        return None if self.started_at is None or self.ended_at is None else self.ended_at - self.started_at

    @property
    def files(self) -> Path | None:
        """Where the run's files are if it left any: a directory, which need not exist."""
        if self.edition is None:
            return self.directory
        return self.edition.paths.run(run_id_in(self.edition.paths.directory, self.run_id))

    def attempts(self) -> list[dict[str, Any]]:
        """Read what is recorded about each try; empty for runs of other tools."""
        return [] if self.edition is None else self.edition.attempts(self.position)

    def messages(self) -> Sequence[Message]:
        """Read what was said in the run; empty where the source does not have it. Raises UsageError for a changed source."""
        return () if self.transcript is None or self.source is None else self.transcript(self.source)

    def has(self, metric: str) -> bool:
        return metric in self.series or is_number(self.metrics.get(metric))

    @property
    def name(self) -> str:
        """What an error calls this run."""
        source = "" if self.source is None else str(self.source)
        return self.run_id or source or f"{self.arm!r}, task {self.task!r}, seed {self.seed}, rollout {self.rollout}"


@dataclass(frozen=True, slots=True)
class Declared:
    """What the file of an edition of ours fixed before results were shown."""

    analysis: Analysis
    arms: tuple[str, ...]
    """Every arm that was planned."""
    sequential: bool = False
    """Runs are added until a test that may be looked at any number of times has decided."""


@dataclass(frozen=True)
class Results:
    """Runs of several arms, and how they are to be judged. Every question in `verdicts` takes one of these."""

    rows: Sequence[Row]
    label: str
    """Where the runs come from, for people."""
    analysis: Analysis = field(default_factory=Analysis)
    """What the source declares; a question may change it."""
    unpaired: bool = False
    """The runs were given as two samples that share nothing."""
    fixed_tasks: bool = False
    """Tasks are points of a swept parameter and not a sample of anything."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Content of each task that has any: two editions can only be compared on equal content."""
    usual: Callable[[Sequence[str]], Sequence[str]] | None = None
    """From the known metrics those that such results are usually judged by, when nothing is declared."""
    series_summary: Summary | None = None
    """How a metric that is only known by step becomes one number when nobody says; None: somebody has to say."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """For a table: the column that each role was read from, the metrics, and the columns that were ignored. For runs of other
    tools: what `reading.reading_line` says."""
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For a table: columns that group its tasks and that nothing uses, as column to task to group."""
    repeats: str = ""
    """For a table: the column that numbers rollouts, if one does; elsewhere their order means nothing."""
    incidental: frozenset[str] = frozenset()
    """For a table: numbers that are no outcomes unless a question names them: times, sizes, spreads and settings."""
    sources: tuple[Path, ...] = ()
    """Files and directories of other tools that the runs were read from."""
    tools: tuple[tuple[str, str], ...] = ()
    """Names and versions of the tools that wrote the runs, where they are known."""
    notes: tuple[str, ...] = ()
    """What a reader of a verdict should know about where the values come from."""
    problems: tuple[str, ...] = ()
    """Runs that could not be read, one line each."""
    uncounted: Mapping[str, Uncounted] = field(default_factory=dict)
    """For editions of ours: by arm, the tries that do not count."""
    edition: Recorded | None = None
    """Set for one edition of ours: its registration and its sequential test are read from it."""
    file: Path | None = None
    """For one edition of ours: the experiment file that its newest session was run from, where it still is."""
    looks: tuple[Look, ...] = ()
    """For editions of ours: the means and verdicts that were shown before."""
    declared: Declared | None = None
    """For editions of ours; None where the question is the declaration."""
    shares: tuple[Share, ...] = ()
    """For editions of ours: code, packages and nodes that the runs of each arm ran with."""
    parts: tuple[Results, ...] = ()
    """The editions whose arms stand side by side here."""

    @cached_property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(row.arm for row in self.rows))

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(row.task for row in self.rows))

    @property
    def final(self) -> bool:
        """Every planned run has ended or was lost."""
        return not any(row.status in UNFINISHED for row in self.rows)

    @cached_property
    def experiment(self) -> ExperimentFile | None:
        """For one edition of ours: what was run."""
        return None if self.edition is None else ExperimentFile.model_validate(self.edition.facts()["spec"])

    @cached_property
    def metrics(self) -> list[str]:
        """Every number that a run reported, in order of first appearance; series too where they have a default summary."""
        names: dict[str, None] = {}
        for row in self.rows:
            if self.series_summary is not None:
                names |= dict.fromkeys(row.series)
            names |= dict.fromkeys(name for name, value in row.metrics.items() if is_number(value))
        return list(names)

    @cached_property
    def logged(self) -> list[str]:
        """Every metric that a run logged by step."""
        return list(dict.fromkeys(name for row in self.rows for name in row.series))

    def primary(self) -> list[str]:
        """The metrics that get a verdict when a question names none.

        Those that are declared; else those that such results are usually judged by; else the only metric that is a
        number and not a boolean, or the only boolean where there is no number. Raises UsageError where that leaves a
        choice.
        """
        if self.analysis.metrics:
            return self.analysis.metrics
        if self.usual is not None and (usual := self.usual(self.metrics)):
            return list(usual)
        flags = {
            name
            for name in self.metrics
            if all(isinstance(row.metrics.get(name, True), bool | None) and name not in row.series for row in self.rows)
        }
        outcomes = [name for name in self.metrics if name not in self.incidental]
        numbers = [name for name in outcomes if name not in flags] or outcomes
        if len(numbers) == 1:
            return numbers
        beside = f" ({', '.join(sorted(self.incidental))} only if named)" if self.incidental else ""
        raise UsageError(
            f"{self.label}: which metric? name it with --metric or analysis.metric; {self.known_metrics()}{beside}"
        )

    def known_metrics(self) -> str:
        """The end of an error about a metric: which ones there are."""
        if not self.metrics:
            return "no run reports any metric"
        more = f" and {len(self.metrics) - NAMES_SHOWN} more" if len(self.metrics) > NAMES_SHOWN else ""
        return f"runs report {', '.join(self.metrics[:NAMES_SHOWN])}{more}"

    def editions(self) -> list[Recorded]:
        """Every edition of ours that rows come from."""
        own = [] if self.edition is None else [self.edition]
        return own + [edition for part in self.parts for edition in part.editions()]

    @property
    def is_sequential(self) -> bool:
        """Whether any of the editions runs until it is decided."""
        own = self.declared is not None and self.declared.sequential
        return own or any(part.is_sequential for part in self.parts)

    def close(self) -> None:
        """Close the databases that rows were read from."""
        for edition in self.editions():
            edition.close()


def is_number(value: object) -> bool:
    """Whether a metric's value counts as a number; booleans do, as 0 and 1."""
    return isinstance(value, int | float)


def number_repeats(rows: Sequence[Row]) -> list[Row]:
    """Give runs without a seed the next free rollout number of their arm and task.

    Raises UsageError for an arm in which some runs have a seed and others do not: they could not be paired.
    """
    counts: dict[str, dict[str, int]] = {}  # nested: a million pairs as keys would take 70 MB more
    numbered = []
    for row in rows:
        if row.seed is None:
            of_arm = counts.setdefault(row.arm, {})
            rollout = of_arm.get(row.task, 0)
            of_arm[row.task] = rollout + 1
            row = replace(row, rollout=rollout) if row.rollout != rollout else row
        numbered.append(row)
    seeded = {row.arm for row in numbered if row.seed is not None}
    for row in numbered:
        if row.seed is None and row.arm in seeded:
            raise UsageError(
                f"{row.name}: its seed is not known, but other runs of {row.arm!r} have one; name it like NAME_s3, "
                "write `seed` into its metrics.jsonl or configuration, or say --seed-from or --arm-from"
            )
    return numbered
