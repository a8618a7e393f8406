"""The experiment file as one model. Unknown keys are refused; every default is the one a new user would want."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from bakeoff.spec.units import Duration, Size


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def parse_seeds(value: Any) -> list[int]:
    """A list, a count, a range in text (`"1..15"`, both ends in it), or `{count, base}` / `{start, stop, step}`."""
    match value:
        case bool():
            raise ValueError("seeds must be a list, a count, a range such as '1..15', or {count = 15, base = 100}")
        case int():
            seeds = list(range(value))
        case str() if (found := re.fullmatch(r"\s*(-?\d+)\s*\.\.\s*(-?\d+)\s*", value)) is not None:
            seeds = list(range(int(found[1]), int(found[2]) + 1))
        case {"count": int(count), **rest} if set(rest) <= {"base"}:
            base = int(value.get("base", 0))
            seeds = list(range(base, base + count))
        case {"start": int(start), "stop": int(stop), **rest} if set(rest) <= {"step"}:
            seeds = list(range(start, stop + 1, int(value.get("step", 1))))
        case list():
            if any(isinstance(seed, bool) or not isinstance(seed, int) for seed in value):
                raise ValueError("every seed must be a whole number")
            seeds = value
        case _:
            raise ValueError("seeds must be a list, a count, a range such as '1..15', or {count = 15, base = 100}")
    if not seeds:
        raise ValueError("at least one seed is needed")
    if len(set(seeds)) != len(seeds):
        raise ValueError("a seed stands in the list twice; the second run would only be a copy of the first")
    if any(not -(2**63) <= seed < 2**63 for seed in seeds):
        raise ValueError("a seed must fit into 64 bits")
    return seeds


Seeds = Annotated[list[int], BeforeValidator(parse_seeds)]
Rule = str | dict[str, Any]
Name = Annotated[str, Field(min_length=1, max_length=200)]


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
    """Only on these arms; all when left out."""


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
    """Limits of one run."""

    time: Duration | None = None
    """Seconds or text such as `"5m"`; a run that takes longer ends with status `timeout`."""
    memory: Size | None = None
    """Resident memory of the run's whole process tree, such as `"2GB"`; above it the run ends as `failed`."""
    grace: Duration = 5.0
    """Seconds between the polite signal and the final one."""


class Retries(Section):
    """How often a run is tried again."""

    infra: Annotated[int, Field(ge=0)] = 2
    """After infrastructure failures."""
    failed: Annotated[int, Field(ge=0)] = 0
    """After failures of the arm itself. Every retry changes what is measured, so the default is none."""
    backoff: Duration = 1.0
    """Seconds before the first retry; doubled each time."""


class Concurrency(Section):
    """How many runs that share something may be running at once."""

    by: str
    """A parameter, `arm` or `task`."""
    values: list[Any] | None = None
    """Only runs with one of these values; each value when left out."""
    limit: Annotated[int, Field(ge=1)]


class Budget(Section):
    """What the whole experiment may use; nothing more is started when it is used up."""

    runs: Annotated[int, Field(ge=1)] | None = None
    time: Duration | None = None
    """Wall time over all sessions."""
    cost: Annotated[float, Field(gt=0)] | None = None
    """Highest sum of `cost_metric` over all runs."""
    cost_metric: str = "cost_usd"


class Summary(Section):
    """How a per-step series becomes one number."""

    type: Literal["auc", "final", "mean", "best", "slope", "time_to_threshold", "percentile"] = "final"
    last: Annotated[int, Field(ge=1)] | None = None
    """`final`: how many of the last values are averaged."""
    threshold: float | None = None
    """`time_to_threshold`: the value to reach."""
    percentile: Annotated[float, Field(ge=0, le=100)] | None = None
    window: str | None = None
    """`"first 20%"`, `"last 50%"` or steps such as `"100..500"`."""
    smoothing: Annotated[float, Field(ge=0, lt=1)] | None = None


class Analysis(Section):
    """What the verdict commands read. It is fixed before the first result."""

    metric: str | None = None
    primary: list[str] = []
    """Further metrics that get a verdict; every other one is exploratory."""
    summary: Summary | None = None
    direction: Literal["maximize", "minimize"] = "maximize"
    control: str | None = None
    """The arm that the others are compared with; the first arm when left out."""
    seeds: Literal["nested", "crossed"] = "nested"
    """`crossed`: one seed is one world (or one trained policy) on every task."""
    tasks: Literal["sample", "fixed"] | None = None
    """`sample`: the verdict is about tasks like these; `fixed`: about these only."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """Differences below this do not matter; needed for the verdict `equivalent`."""
    relative_margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    failure_score: float | None = None
    """The value of a run that failed by its arm's own doing."""
    bounds: tuple[float, float] | None = None
    """Lowest and highest possible value of the metric."""
    matched: list[str] = []
    """Parameters and metrics that must be equal between arms for the comparison to be fair."""

    @model_validator(mode="after")
    def _consistent(self) -> Analysis:
        if self.margin is not None and self.relative_margin is not None:
            raise ValueError("give margin or relative_margin, not both")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError("bounds must be [lowest, highest]")
        return self


class Experiment(Section):
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
    """Which arm meets which task; all with all when left out."""
    seeds: Seeds = [0]
    rollouts: Annotated[int, Field(ge=1)] = 1
    """Exchangeable repeats inside (arm, task, seed); averaged before pairing."""
    include: list[Rule] = []
    """Keep only runs that match one of these."""
    exclude: list[Rule] = []
    """Drop runs that match one of these."""
    env: dict[str, str] = {}
    """Environment variables of every run. `${NAME}` is filled in when a run starts and is never stored."""
    editions: Literal["resume", "repeat"] = "resume"
    """What `run` does with a complete experiment: `resume` reports it, `repeat` starts a new edition."""
    jobs: Annotated[int, Field(ge=1)] | None = None
    """Runs at a time; the number of cores when left out."""
    isolation: Literal["warm", "fresh"] = "warm"
    """`fresh` gives each in-process run a process of its own."""
    limits: Limits = Limits()
    retries: Retries = Retries()
    concurrency: list[Concurrency] = []
    budget: Budget = Budget()
    analysis: Analysis = Analysis()

    @field_validator("matrix", mode="before")
    @classmethod
    def _flatten(cls, value: Any) -> Any:
        """`[matrix.optimizer] lr = [...]` means the parameter `optimizer.lr`."""
        return flatten(value) if isinstance(value, dict) else value

    @field_validator("matrix")
    @classmethod
    def _no_empty_axis(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key, values in value.items():
            if not values:
                raise ValueError(f"{key} has no values, so the product is empty")
        return value

    @model_validator(mode="after")
    def _task_keys_are_axes(self) -> Experiment:
        for key in self.task_keys:
            if key not in self.matrix:
                raise ValueError(f"task_keys names {key!r}, which is not a key of [matrix]")
        return self


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat
