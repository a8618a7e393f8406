"""The interface of importers: what they claim and what they yield. `assembly` makes `Results` of it.

`Importer.read` is a generator. It yields a `ForeignRun` for each run and, before, between or after them, a `Reading`
with what it knows about the source as a whole. Several readings are merged: none is needed, and a reader of many logs
may yield one for each. Arms are not named by importers, because only all runs together show what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from bakeoff.results.table import EMPTY, Results, Row, Series
from bakeoff.spec.experiment import Analysis
from bakeoff.spec.workload import Scalar

Outcome = Literal["scored", "failed", "missing", "running"]
STATUSES: Mapping[Outcome | None, str] = {
    None: "", "scored": "succeeded", "failed": "failed", "missing": "infra_error", "running": "running",
}  # fmt: skip
"""Outcomes as statuses of a `Row`."""
DIRECTORY = "directory"
"""The label that names an arm only where no other label tells runs apart."""
BY_FILE = {DIRECTORY: "file"}
"""`Reading.labels` where that label is the name of a file."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a run was read from."""

    path: Path
    """A file, or a run's directory, whose files `bakeoff import` copies."""
    member: str | None = None
    """The entry, line or sample inside the file, where it holds several runs."""
    digest: str | None = None
    """SHA-256 of the content; None: `bakeoff import` computes it."""

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member is not None else str(self.path)


@dataclass(frozen=True, slots=True)
class Log:
    """One execution of the other tool that many runs belong to, such as a log file or a job's directory.

    Two logs with runs of the same arm, task and seed are reruns, which `--reruns` decides about.
    """

    path: Path
    created: float | None = None
    """Seconds since the epoch; the newest of several reruns has the largest."""
    id: str = ""
    """The tool's own id of it: two logs with one id are copies."""


class Message(NamedTuple):
    """One message of a transcript."""

    role: str
    content: str
    tool_calls: Sequence[Mapping[str, Any]] = ()
    """As in the chat-completions interface: `id`, `type`, and `function` with its `name` and `arguments` as JSON text."""
    tool_call_id: str | None = None
    """The call that a message of role `tool` answers."""
    reasoning: str = ""

    def as_recorded(self) -> dict[str, Any]:
        """Return the message as steps of a trajectory have it."""
        recorded: dict[str, Any] = {"role": self.role, "content": self.content}
        for name, value in (
            ("reasoning_content", self.reasoning),
            ("tool_calls", list(self.tool_calls)),
            ("tool_call_id", self.tool_call_id),
        ):
            if value:
                recorded[name] = value
        return recorded


Transcript = Callable[[Source], Sequence[Message]]
"""Reads what was said in the run that a source names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """One run of another tool."""

    labels: Mapping[str, Any]
    """What could be the arm, the most telling first: header fields such as the model and its settings, a group, and
    `directory`. Never an id or a time, which would make each run an arm of its own."""
    source: Source
    header: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Everything that `--arm-from`, `--task-from` and `--seed-from` may name beside labels, nested as in the source."""
    log: Log | None = None
    """Set where many runs belong to one execution; None: two runs of one arm, task and seed are simply two runs."""
    task: str = "default"
    group: str | None = None
    """A level above the task, such as the repository that tasks come from."""
    seed: int | None = None
    run: str | None = None
    """The tool's own id of the run."""
    repeat: int | None = None
    """Number of the repeat of one arm, task and seed (default: counted in the order of runs without a seed)."""
    outcome: Outcome | None = None
    """`failed`: because of the arm. `missing`: lost, cancelled, never started. None where the source does not say: then
    a metric with a value is scored, and one without a value is missing."""
    error: str | None = None
    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=lambda: EMPTY)
    """Metrics that were logged by step, as (steps, values)."""
    started_at: float | None = None
    ended_at: float | None = None
    """Seconds since the epoch."""
    transcript: Transcript | None = None
    """Called with `source` when somebody opens the run, and not before. One function may serve all runs of a file; a file that
    changed since its runs were read is refused before it is called."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a source knows about one metric."""

    direction: Literal["maximize", "minimize"] | None = None
    bounds: tuple[float, float] | None = None
    """Lowest and highest possible value."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean that the tool itself reports, over the runs of a log that have these labels."""

    metric: str
    value: float
    labels: Mapping[str, Any] = field(default_factory=dict)
    log: Path | None = None
    """Path of the `Log`; None: all runs that were read."""
    group: str | None = None
    """Only runs of this group of tasks; None: of all."""
    name: str = ""
    """What the tool calls it, such as `accuracy`; the metric's name where that is empty."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source says beside its runs."""

    tool: str = ""
    version: str = ""
    metrics: Mapping[str, Measure] = field(default_factory=dict)
    """The metrics that the tool scores by. The first that runs report is the one that gets a verdict."""
    means: Sequence[Mean] = ()
    """The tool's own means: never used, shown where the runs that were read have another one."""
    notes: Sequence[str] = ()
    """What a reader of a verdict should know about where the values come from."""
    problems: Sequence[str] = ()
    """Runs that could not be read, one line each. `compare` refuses such a source, `import` lists and leaves them out."""
    analysis: Analysis | None = None
    """How results of the tool are judged, where that is known."""
    unit: str = "run"
    """What the tool calls a run, for the reading line: `sample`, `trial`."""
    remarks: Sequence[str] = ()
    """Short clauses of the reading line, such as `3 samples have an error and a score (scored)`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the reading line calls a label, where its name does not say it: `{"arm": "config.condition"}`."""


Item = ForeignRun | Row | Reading


class Importer(Protocol):
    """Reads one format."""

    name: str

    def claims(self, path: Path) -> Iterable[Path]:
        """Return what at or below `path`, a file or a directory, has this format; nothing when none of it has.

        Look at names and first bytes only: `claims` is called for every path that a user names.
        """

    def read(self, paths: Sequence[Path]) -> Iterable[Item] | Results:
        """Yield the runs in all `paths` together, lazily.

        Importers of ours yield a `Row` where they know more about a run than a `ForeignRun` holds, and give `Results` whole
        where they know how all of them are to be judged.
        """

    # An importer may also have `misses(path) -> str | None`: why a file or directory that looks like its format, and that it
    # does not claim, cannot be read. A refusal shows it.


def checked(item: object) -> Item:
    """Return what an importer of another package yielded. Raises TypeError where it would mislead a verdict."""
    if isinstance(item, Row | Reading):
        return item
    if not isinstance(item, ForeignRun):
        raise TypeError(f"yielded {type(item).__name__}, not a ForeignRun or a Reading")
    if item.outcome not in STATUSES:
        raise TypeError(f"outcome {item.outcome!r} is not one of scored, failed, missing, running")
    for name in ("seed", "repeat"):
        value = getattr(item, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{name} {value!r} is not a whole number")
    if not isinstance(item.task, str):
        raise TypeError(f"task {item.task!r} is not text")
    return item
