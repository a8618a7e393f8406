"""The experiment file as one model, with durations and sizes as people write them: `90`, `"1h30m"`, `"2GB"`.

Unknown keys are refused. Attribute docstrings are the documentation of the keys (docs/experiment-file.md repeats them).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from bakeoff.errors import Problem, SpecError
from bakeoff.spec import formats
from bakeoff.spec.identity import flatten
from bakeoff.spec.workload import LONGEST_VARIABLE

# Units of time in seconds. Decimal units of size (kB, MB) count in thousands, binary ones (K, KiB) in 1024.
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_duration(value: Any) -> float:
    """A duration in seconds: a number, or text such as `90s`, `5m` or `1h30m`. Raises ValueError."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number or (isinstance(value, str) and re.fullmatch(r"\d{1,100}(\.\d{1,100})?", value.strip())):
        seconds = float(value)
    else:
        if len(str(value)) > LONGEST_TEXT:
            raise ValueError(f"{str(value)[:20]!r}... is not a duration")
        # All of the text has to be made of number and unit pairs: "5 minutes" must not be read as 5 m.
        parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhd])", str(value))
        if not parts or re.sub(r"[\s]", "", "".join(n + u for n, u in parts)) != re.sub(r"\s", "", str(value)):
            raise ValueError(f"{value!r} is not a duration; write seconds (90) or text such as '90s', '5m' or '1h30m'")
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 0 < seconds < float("inf"):
        raise ValueError(f"a duration must be above zero, not {value!r}")
    return seconds


def parse_pause(value: Any) -> float:
    """As `parse_duration`, and 0 is allowed."""
    return 0.0 if value in (0, "0") and not isinstance(value, bool) else parse_duration(value)


def parse_size(value: Any) -> int:
    """A size in bytes: a number, or text such as `512MB` (decimal) or `2GiB` (binary). Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
        if match is None or match[2].lower() not in _BYTES:
            raise ValueError(f"{value!r} is not a size; write bytes or text such as '512MB' or '2GiB'")
        size = int(float(match[1]) * _BYTES[match[2].lower()])
    if size <= 0:
        raise ValueError(f"a size must be above zero, not {value!r}")
    return size


Duration = Annotated[float, BeforeValidator(parse_duration, json_schema_input_type=float | str)]
Pause = Annotated[float, BeforeValidator(parse_pause, json_schema_input_type=float | str)]
Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]


class Section(BaseModel):
    """A table of an experiment file: unknown keys are errors, and values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


MOST_SEEDS = 10_000_000
"""A range with more seeds is a mistake; it would only fill the memory."""
MOST_RUNS = 10_000_000
"""Runs of a plan, before rules leave some out."""
LONGEST_TEXT = 200
"""Characters of a duration."""
_SEEDS = "seeds must be a list, a count, a range such as '1..15', {count = 15, base = 100} or {start, stop, step}"


def parse_seeds(value: Any) -> list[int]:
    """A list, a count, a range in text (`"1..15"`, both ends in it), or `{count, base}` / `{start, stop, step}`."""
    first, step, count = 0, 1, 0
    seeds: list[int] | None = None
    # Booleans are ints in Python, so `seeds = true` would mean one seed: every case excludes them.
    numbers = value.values() if isinstance(value, dict) else ()
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    match value:
        case list():
            seeds = list(value)
        case str() if (match := re.fullmatch(r"\s*(-?\d+)\s*\.\.\s*(-?\d+)\s*", value)) is not None:
            first, count = int(match[1]), int(match[2]) - int(match[1]) + 1
        case int() | str() if not isinstance(value, bool) and re.fullmatch(r"-?\d+", str(value)):
            count = int(value)
        case {"count": count, **rest} if set(rest) <= {"base"} and whole:
            first = value.get("base", 0)
        case {"start": first, "stop": stop, **rest} if set(rest) <= {"step"} and whole:
            step = value.get("step", 1)
            if step == 0:
                raise ValueError("step must not be 0")
            count = (stop - first) // step + 1
        case _:
            raise ValueError(_SEEDS)
    if seeds is None:
        if count > MOST_SEEDS:
            raise ValueError(f"{count} seeds are too many; the limit is {MOST_SEEDS}")
        seeds = [first + step * number for number in range(count)]
    if not seeds:
        raise ValueError("at least one seed is needed")
    if any(isinstance(seed, bool) or not isinstance(seed, int) for seed in seeds):
        raise ValueError("every seed must be a whole number")
    if len(set(seeds)) != len(seeds):
        raise ValueError("a seed stands twice in the list; the second run would only be a copy of the first")
    if not -(2**63) <= min(seeds) <= max(seeds) < 2**63:
        raise ValueError("a seed must fit into 64 bits")
    return seeds


Seeds = Annotated[
    list[int], BeforeValidator(parse_seeds, json_schema_input_type=list[int] | int | str | dict[str, int])
]


def _text_or_table(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ValueError("a rule is a table such as {policy = 'full'} or an expression such as \"seed < 3\"")
    return value


def _printable(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("a name has no line breaks or control characters, and no spaces around it")
    return value


Rule = Annotated[str | dict[str, Any], BeforeValidator(_text_or_table)]


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("the name of an environment variable is not empty and has no '='")
    return name


Variable = Annotated[str, AfterValidator(_variable)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class ArmEntry(Section):
    """One named setting that is compared with others."""

    name: Name
    params: dict[str, Any] = {}
    """Parameters of this arm, on top of the experiment's."""
    flags: list[str] = []
    """Extra command-line flags of this arm."""


class AblationEntry(Section):
    """A named change on top of arms; each arm also runs without it."""

    name: Name
    params: dict[str, Any] = {}
    flags: list[str] = []
    arms: list[str] | None = None
    """Only on these arms (default: all)."""


class TaskEntry(Section):
    """What every arm is tried on."""

    name: Name
    params: dict[str, Any] = {}
    path: str | None = None
    """A directory or file that is the task: its content, not its place, goes into run ids."""


class CellEntry(Section):
    """One arm on one task, where not every arm meets every task."""

    arm: str
    task: str
    rollouts: Annotated[int, Field(ge=1)] | None = None


class Limits(Section):
    """Limits of one run, and of how many may fail."""

    time: Duration | None = None
    """Seconds or text such as `"5m"`; a run that takes longer ends with status `timeout`."""
    memory: Size | None = None
    """Resident memory of the run's whole process tree, such as `"2GB"`; above it the run ends as `failed`."""
    grace: Pause = 5.0
    """Seconds between the polite signal and the final one."""
    failures: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The share of failed runs, such as `0.2`, above which a session starts nothing more once 20 of its runs have ended."""


class Resources(Section):
    """What one run needs. They decide how many runs fit beside each other, and are not part of run ids."""

    cpus: Annotated[float, Field(gt=0)] | None = None
    """Cores (default: the number of runs at a time is `jobs` alone)."""
    gpus: Annotated[float, Field(ge=0)] | None = None
    """Devices. A fraction shares one device: with `0.5`, two runs see the same one."""
    memory: Size | None = None
    """Memory, such as `"8GB"`. It only decides how many runs fit; `limits.memory` ends a run that takes more."""

    @field_validator("gpus")
    @classmethod
    def _whole_above_one(cls, value: float | None) -> float | None:
        if value is not None and value > 1 and value != int(value):
            raise ValueError("a run takes a share of one device (0.5) or whole devices (2)")
        return value


class ExecutorEntry(Section):
    """Where runs are executed. Executors of a cluster have further keys, which they check themselves."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    kind: str = "local"
    """`local` is this machine; others are installed as entry points of the group `bakeoff.executors`."""
    gpus: Annotated[int, Field(ge=0)] | None = None
    """Devices of a node (default: those that are detected)."""


class Retries(Section):
    """How often a run is tried again."""

    infra: Annotated[int, Field(ge=0)] = 2
    """After infrastructure failures."""
    lost: Annotated[int, Field(ge=0)] = 5
    """After a node was lost with the run on it: preempted, cut off or crashed. Such a run goes back at once."""
    failed: Annotated[int, Field(ge=0)] = 0
    """After failures of the arm itself. Every retry changes what is measured, so the default is none."""
    backoff: Pause = 1.0
    """Seconds before the first retry; doubled each time."""


class Resume(Section):
    """How a run that is tried again begins."""

    checkpoints: bool = True
    """It finds its `checkpoint/` as the attempt before left it. With `false`, each attempt begins with an empty one."""


class Concurrency(Section):
    """How many runs that share something may be running at once."""

    by: str
    """A parameter, `arm` or `task`."""
    values: list[Any] | None = None
    """Only runs with one of these values (default: each value)."""
    limit: Annotated[int, Field(ge=1)]


class Budget(Section):
    """What the whole experiment may use; nothing more is started when it is used up."""

    runs: Annotated[int, Field(ge=1)] | None = None
    time: Duration | None = None
    """Wall time over all sessions."""
    cost: Annotated[float, Field(gt=0)] | None = None
    """Highest sum of `cost_metric` over all runs."""
    cost_metric: str = "cost_usd"
    """By default what the workload reports (`cost` of tasks), else `cost_usd`."""
    tokens: Annotated[int, Field(gt=0)] | None = None
    """Highest sum of the metric `tokens` over all runs."""


_WINDOW = re.compile(r"(first|last)\s+\d+(\.\d+)?\s*%|\d+\s*\.\.\s*\d+")


class Summary(Section):
    """How a per-step series becomes one number."""

    type: Literal["auc", "final", "mean", "best", "slope", "time_to_threshold", "percentile"] = "final"
    last: Annotated[int, Field(ge=1)] | None = None
    """`final`: how many of the last values are averaged (default: up to 5 in the last fifth of the steps)."""
    threshold: float | None = None
    """`time_to_threshold`: the value to reach."""
    percentile: Annotated[float, Field(ge=0, le=100)] | None = None
    window: str | None = None
    """`"first 20%"`, `"last 50%"` or steps such as `"100..500"`."""
    smoothing: Annotated[float, Field(ge=0, lt=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _type_alone(cls, value: Any) -> Any:
        """`summary = "final"` is short for `summary = { type = "final" }`."""
        return {"type": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the short form, which the fields do not show."""
        table = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [table, {"enum": table["properties"]["type"]["enum"]}]}

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Summary:
        for kind, value in (("time_to_threshold", self.threshold), ("percentile", self.percentile)):
            if self.type == kind and value is None:
                raise ValueError(f"{kind} needs {kind.removeprefix('time_to_')}")
        if self.window is not None and not _WINDOW.fullmatch(self.window.strip()):
            raise ValueError(
                f"{self.window!r} is not a valid window; write 'first 20%', 'last 50%' or steps such as '100..500'"
            )
        return self


class Analysis(Section):
    """What the verdict commands read. It is fixed before the first result."""

    metric: str | None = None
    primary: list[str] = []
    """Further metrics that get a verdict; every other one is exploratory."""
    summary: Summary | None = None
    direction: Literal["maximize", "minimize"] | None = None
    """Which way is better, for the declared metrics (default: more is better). A metric whose name says otherwise, such
    as `loss` or `latency_ms`, gets no verdict without it."""
    directions: dict[str, Literal["maximize", "minimize"]] = {}
    """Which way is better, for single metrics: `{ latency_ms = "minimize" }`. They go before `direction`."""
    units: dict[str, str] = {}
    """Units of metrics, for people: `{ latency = "ms" }`."""
    control: str | None = None
    """The arm that the others are compared with (default: the first arm)."""
    candidates: list[str] = []
    """The arms that get a verdict against the control (default: all others). Alpha is shared by these alone, and other
    arms are exploratory. It has to be in the file before the first result."""
    seeds: Literal["nested", "crossed", "fixed"] = "nested"
    """`crossed`: one seed is one world (or one trained policy) on every task, a sample of such seeds; `fixed`: the
    verdict is about these seeds only."""
    tasks: Literal["sample", "fixed"] | None = None
    """`sample`: the verdict is about tasks like these; `fixed`: about these only."""
    cluster: str | None = None
    """Column of a table that groups tasks which depend on each other, such as `repo`: groups are the units then. `none`
    says that no column does (default: a verdict has to hold by task and by every column that could)."""
    copies: Literal["refuse", "keep"] = "refuse"
    """`keep`: seeds whose values are equal everywhere are separate runs all the same."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """Differences below this do not matter; needed for the verdict `equivalent`."""
    relative_margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The margin as a share of the control's mean."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Chance of any false verdict in the family of comparisons (default: 0.05)."""
    failure_score: float | None = None
    """The value of a run that failed because of its arm."""
    bounds: tuple[float, float] | None = None
    """Lowest and highest possible value of the metric."""
    ranges: dict[str, tuple[float, float]] = {}
    """Lowest and highest possible values of single metrics: `{ accuracy = [0, 1] }`. They go before `bounds`."""
    ties: Literal["half", "full"] = "half"
    """`full`: exact tests only, with ties counted in full, so that alpha is a bound and not a target (`--strict`)."""
    statistic: Literal["mean", "rank", "trimmed"] = "mean"
    """The centre that the verdict is about. `rank`: the typical difference (signed ranks or rank sums, Hodges-Lehmann);
    `trimmed`: the mean without the lowest and highest 20 %. Both are for values with rare extremes, and need 10 units."""
    final: Annotated[int, Field(ge=3)] | None = None
    """Units (seeds or tasks) at which the verdict is given: none before, at alpha there, none after. Looks and a plan that
    grows do not matter then. It has to be in the file before the first result."""
    given: str = ""
    """What all runs share, so that the verdict is about nothing else: `from this warm start`."""
    matched: list[str] | dict[str, Annotated[float, Field(ge=0, lt=1)]] = []
    """Parameters and metrics that must be equal between arms for the comparison to be fair. A table gives the share by
    which arms may differ: `{parameters = 0.05}`."""

    @model_validator(mode="after")
    def _consistent(self) -> Analysis:
        if self.margin is not None and self.relative_margin is not None:
            raise ValueError("give margin or relative_margin, not both")
        for name, ends in (
            ("bounds", self.bounds),
            *((f"ranges.{metric}", ends) for metric, ends in self.ranges.items()),
        ):
            if ends is not None and not ends[0] < ends[1]:
                raise ValueError(f"{name} must be [lowest, highest]")
        if self.ties == "full" and self.statistic != "mean":
            raise ValueError(
                f"ties = 'full' (--strict) asks for exact tests of the mean; leave out one of it and statistic = {self.statistic!r}"
            )
        return self

    @property
    def metrics(self) -> list[str]:
        """The declared metrics: `metric`, and then `primary`; none where `metric` is not declared."""
        return [] if self.metric is None else list(dict.fromkeys((self.metric, *self.primary)))

    def about(self, metric: str) -> Analysis:
        """For a metric that may be another one: direction, range, failure score and margin belong to the declared ones."""
        own: dict[str, Any] = {"direction": self.directions[metric]} if metric in self.directions else {}
        if metric in self.ranges:
            own["bounds"] = self.ranges[metric]
        if self.metric is None or metric in (self.metric, *self.primary):
            return self.model_copy(update=own) if own else self
        return self.model_copy(update={"bounds": None, "failure_score": None, "margin": None, "direction": None, **own})

    def changes(self, now: Analysis) -> list[str]:
        """Return `alpha: 0.05 became 0.1` for each key that differs in `now`."""
        old, new = self.model_dump(mode="json"), now.model_dump(mode="json")
        return [
            f"{key}: {setting_in_words(old[key])} became {setting_in_words(new[key])}"
            for key in new
            if old[key] != new[key]
        ]


def setting_in_words(value: Any) -> str:
    """Return a value of `[analysis]` for people: `not set`, or `mean, window last 50%` for a summary."""
    if isinstance(value, dict):
        return ", ".join(
            str(item) if key == "type" else f"{key} {item}" for key, item in value.items() if item is not None
        )
    return "not set" if value in (None, [], "", {}) else str(value)


class Sequential(Section):
    """Add seeds, or tasks that are a sample, in blocks until an anytime-valid test has decided. The section alone asks for
    it; {} takes defaults."""

    max_seeds: Annotated[int, Field(ge=1)] | None = None
    """Most seeds, 7 or more (default: the number of `seeds`). Beyond the list of `seeds` it counts on."""
    max_tasks: Annotated[int, Field(ge=1)] | None = None
    """Most tasks, 7 or more, where tasks are a sample and so the unit (default: all of the file)."""
    block: Annotated[int, Field(ge=1)] | None = None
    """Seeds, or tasks, between two looks (default: 4, or as many as keep every job busy)."""
    test: Literal["symmetric", "betting"] = "symmetric"
    """`symmetric`: differences between arms are as likely up as down when there is no effect. `betting` needs only
    `analysis.bounds`, and more seeds."""
    goal: Literal["control", "best"] = "control"
    """With several arms: `control` decides each against the control and stops it then; `best` stops every arm that another
    one beats, until one is left."""
    futility: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Stop undecided when the chance to decide within `max_seeds`, foreseen from the pairs so far, falls below this."""


class ExperimentFile(Section):
    """One file: what is compared, on what, how often, within which limits, and how it will be judged."""

    name: Name
    description: str = ""
    workload: str = "command"
    """What a run does: `command`, `python`, or a workload that is installed."""
    params: dict[str, Any] = {}
    """Parameters that all runs share."""
    matrix: dict[str, list[Any]] = {}
    """Cartesian product over parameters: each combination is an arm (or, for `task_keys`, a task)."""
    task_keys: list[str] = []
    """Matrix keys that make the task instead of the arm, such as a workload size."""
    arms: list[ArmEntry] = []
    ablations: list[AblationEntry] = []
    tasks: list[TaskEntry] = []
    cells: list[CellEntry] = []
    """Which arm meets which task (default: all with all)."""
    seeds: Seeds = [0]
    rollouts: Annotated[int, Field(ge=1)] = 1
    """Exchangeable repeats inside (arm, task, seed); averaged before pairing."""
    order_seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Draws which arm goes first at each (task, seed, rollout) (default: drawn once for each edition and recorded)."""
    include: list[Rule] = []
    """Keep only runs that match one of these."""
    exclude: list[Rule] = []
    """Drop runs that match one of these."""
    env: dict[Variable, str] = {}
    """Environment variables of every run. `${NAME}` is filled in when a run starts and is never stored."""
    editions: Literal["resume", "repeat"] = "resume"
    """What `run` does with a complete experiment: `resume` reports it, `repeat` starts a new edition."""
    jobs: Annotated[int, Field(ge=1)] | None = None
    """Runs at a time (default: the number of cores)."""
    isolation: Literal["warm", "fresh"] = "warm"
    """`fresh` gives each in-process run its own process."""
    limits: Limits = Limits()
    resources: Resources = Resources()
    retries: Retries = Retries()
    resume: Resume = Resume()
    concurrency: list[Concurrency] = []
    budget: Budget = Budget()
    analysis: Analysis = Analysis()
    sequential: Sequential | None = None
    executor: SerializeAsAny[ExecutorEntry] | None = None
    """Where runs are executed; on this machine by default."""

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of experiment files, for editors. What workloads and executors check is not in it."""
        schema = cls.model_json_schema()
        schema["required"].remove("name")  # the file's name by default
        schema["title"] = "bakeoff experiment file"
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}

    def environment(self) -> dict[str, str]:
        """Return `env` with `${NAME}` filled in. Called only when runs start, so that no record holds a secret.

        Raises SpecError for a variable that is not set, or longer than the system allows.
        """
        known = formats.variables()
        filled = {}
        for name, text in self.env.items():
            try:
                filled[name] = formats.expand(text, known)
            except formats.MissingVariable as missing:
                fix = f"export {missing.args[0]}=... before the run"
                raise SpecError([Problem(f"env.{name}", f"${{{missing.args[0]}}} is not set", fix)]) from missing
            if (size := len(filled[name].encode())) > LONGEST_VARIABLE:
                problem = f"its {size:,} bytes are too many for a variable"
                raise SpecError([Problem(f"env.{name}", problem, f"at most {LONGEST_VARIABLE:,}; use a file")])
        return filled

    @field_validator("matrix", mode="before", json_schema_input_type=dict[str, list[Any] | dict[str, Any]])
    @classmethod
    def _flatten(cls, value: Any) -> Any:
        """`[matrix.optimizer] lr = [...]` means the parameter `optimizer.lr`; an axis without values is an error."""
        if not isinstance(value, dict):
            return value
        axes = flatten(value)
        for key, values in axes.items():
            if isinstance(values, list | tuple) and not values:
                raise ValueError(f"{key} has no values, so the product is empty")
        return axes

    @field_validator("sequential")
    @classmethod
    def _seeds_are_a_sample(cls, value: Sequential | None, info: ValidationInfo) -> Sequential | None:
        analysis = info.data.get("analysis")
        if value is not None and analysis is not None and analysis.seeds == "fixed":
            raise ValueError("it adds seeds until it has decided, so analysis.seeds cannot be 'fixed'")
        return value

    @field_validator("name")
    @classmethod
    def _not_latest(cls, value: str) -> str:
        if value == "latest":
            raise ValueError("'latest' means the newest experiment; choose another name")
        return value

    @field_validator("task_keys")
    @classmethod
    def _task_keys_are_axes(cls, value: list[str], info: ValidationInfo) -> list[str]:
        for key in value:
            if key not in info.data.get("matrix", value):  # a matrix with errors of its own is not in `data`
                raise ValueError(f"{key!r} is not a key of [matrix]")
        return value
