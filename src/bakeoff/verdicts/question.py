"""What can be asked of results, written down once.

A question is the experiment file's `[analysis]` table with more fields: click options (`cli/questions.py`), keywords of
`bakeoff.compare`, the keys of `[analysis]` and the settings that every answer carries all come from these models. A
field that is not set means "as the results declare it"; pydantic's `model_fields_set` tells the difference.

    answer(results, Compare(metric="score", control="base", margin=0.01))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.spec.experiment import Analysis, Summary

METHODS = (
    "t", "welch", "signflip", "permutation", "bootstrap", "studentized", "percentile", "bca", "mcnemar", "fisher",
    "wilcoxon", "mannwhitney", "tost", "cluster", "hierarchical",
)  # fmt: skip
Share = Annotated[float, Field(gt=0, lt=1)]
Resamples = Annotated[int, Field(ge=100)]


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field is spelled on the command line, where `--field-name` would not do."""

    names: tuple[str, ...]
    metavar: str | None = None
    several: bool = False
    """Takes every value up to the next option, as a shell expands `run_s*`."""


class Question(Analysis):
    """What every question has: the fields of `[analysis]`, and which runs of the results are meant."""

    arms: Annotated[tuple[str, ...], Flag(("--arms",), "ARM...", several=True)] = ()
    """Only these arms besides the control (default: all). Several may follow."""
    unpaired: bool = False
    """Treat the arms as independent samples even where they share seeds."""
    strict: bool = False
    """Exact tests only, with ties counted in full: sign flips need 6 pairs to decide at 5 %."""
    intersect: bool = False
    """Where the arms' tasks and seeds differ, compare only those that both have."""

    @property
    def metrics(self) -> list[str]:
        """The metrics that the question names; empty for those that the results declare."""
        return list(dict.fromkeys(([self.metric] if self.metric else []) + self.primary))

    def analysis(self, declared: Analysis, metric: str | None = None) -> Analysis:
        """The declared analysis with what this question changes in it, checked again. Raises UsageError.

        `metric` matters where the question gives single metrics a direction. A summary is changed field by field, so
        `window` alone keeps the declared type.
        """
        fields = declared.model_dump()
        changes = {name: getattr(self, name) for name in self.model_fields_set & set(Analysis.model_fields)}
        changes = {name: value for name, value in changes.items() if value is not None and value not in ([], ())}
        if isinstance(changes.get("summary"), Summary):
            partial = changes["summary"].model_dump(exclude_unset=True)
            changes["summary"] = {**(fields["summary"] or {"type": "auc"}), **partial}
        if "margin" in changes or "relative_margin" in changes:
            fields |= {"margin": None, "relative_margin": None}  # a margin replaces one of the other kind
        if metric is not None and metric in self.directions:
            changes["direction"] = self.directions[metric]
        if self.directions:
            changes["directions"] = {**declared.directions, **self.directions}
        if self.strict:
            changes["ties"] = "full"
        for name in ("metric", "primary"):
            changes.pop(name, None)  # which metrics are judged is not part of how they are judged
        if not changes:
            return declared
        try:
            return Analysis.model_validate({**fields, **changes})
        except ValidationError as error:
            raise UsageError(_first_problem(error, "analysis")) from error

    @classmethod
    def ask(cls, **fields: Any) -> Self:
        """The question with these fields; None means not set. Raises UsageError for an unknown or wrong one.

        `metric` may be a list: the first is the metric, the others are primary. `direction` may be `METRIC=minimize`.
        Fields of a summary may stand beside the others: `window="last 25%"`, `summary="final"`.
        """
        fields = {name: value for name, value in fields.items() if value is not None}
        metrics = fields.pop("metric", ())
        metrics = [metrics] if isinstance(metrics, str) else list(metrics)
        if metrics:
            fields |= {"metric": metrics[0], "primary": metrics[1:]}
        directions = fields.pop("direction", ())
        for text in [directions] if isinstance(directions, str) else directions:
            metric, equals, direction = text.rpartition("=")
            if direction not in ("maximize", "minimize") or (not equals and "direction" in fields):
                example = f"{metric}=minimize" if equals else "maximize, minimize, or METRIC=minimize for one metric"
                raise UsageError(f"--direction {text}: write {example}")
            if equals:
                fields["directions"] = {**fields.get("directions", {}), metric: direction}
            else:
                fields["direction"] = direction
        if "final" in fields:
            raise UsageError(
                "final: belongs into the experiment file, before the first result; it cannot be asked for later"
            )
        summary = fields.pop("summary", None)
        if not isinstance(summary, Summary):
            parts = {name: fields.pop(name) for name in SUMMARY_FIELDS if name in fields}
            parts |= {"type": summary} if summary is not None else {}
            # What a summary needs may be declared elsewhere, so it is checked when the two are merged.
            summary = Summary.model_construct(_fields_set=set(parts), **parts) if parts else None
        if summary is not None:
            fields["summary"] = summary
        for name in fields:
            if name not in cls.model_fields:
                known = sorted({*cls.model_fields, *SUMMARY_FIELDS})
                hint = did_you_mean(name, known, f"there are {', '.join(known)}")
                raise UsageError(f"{name}: not an option here; {hint}")
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise UsageError(_first_problem(error, cls.__name__.lower())) from error


SUMMARY_FIELDS = tuple(name for name in Summary.model_fields if name != "type")


def _first_problem(error: ValidationError, where: str) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or where
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"


class Compare(Question):
    """Is each arm better than the control, worse, equivalent, or undecided?"""

    simultaneous: bool = False
    """Decision intervals that hold for all comparisons at once; wider than the verdicts need."""
    methods: Annotated[tuple[Literal[METHODS], ...], Flag(("--method",))] = ()  # type: ignore[valid-type]
    """One more method beside the verdict's own, which alone decides. Can be repeated."""
    covariate: Annotated[str | None, Flag(("--covariate",), "NAME")] = None
    """Something measured before the arms could act: adds a line with its share removed (CUPED)."""
    explore: bool = False
    """Show every other metric too: BH-adjusted, exploratory, no verdict."""
    resamples: Annotated[Resamples, Flag(("--resamples", "--bootstrap.n_resamples"))] = 9_999
    """Resamples of every bootstrap; the verdict itself uses none."""
    editions: Literal["all"] | None = None
    """Combine all editions of one experiment, by an e-process over their units or by the product of their e-values."""
    expect: Literal["better", "worse", "equivalent", "not-worse"] | None = None
    """Exit with 1 when a verdict is another one."""


class Gate(Question):
    """Did any metric regress by more than it may, and did those improve that must?"""

    policy: Any = None
    """The rules, a `verdicts.questions.gate.Policy`."""
    policy_name: str = "flags"
    """The file that the rules come from, for the settings."""


class Rank(Question):
    """In which order are many arms on many tasks?"""

    normalize: Annotated[tuple[str, str] | None, Flag(("--normalize", "--normalise"), "LOW HIGH")] = None
    """Scores that count 0 and 1 on each task: numbers, or names of parameters or metrics that hold them."""
    target: float | None = None
    """Score from which on more earns nothing, for the optimality gap (default: the good end of the range)."""
    success: float | None = None
    """Value from which on a run counts as a success for pass@k."""
    ks: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Flag(("-k",))] = ()
    """k of pass@k and pass^k; can be repeated (default: 1, 2, 4, ... as far as attempts go)."""
    level: Share = 0.95
    """Level of all intervals."""
    resamples: Resamples = 2_000
    """Bootstrap resamples of runs inside tasks."""
    seed: int = 0
    """Of the bootstrap."""


class Litmus(Question):
    """Do the rules of a litmus file hold between a candidate and its baseline?"""

    rules: Any = None
    """The rules, a `verdicts.questions.litmus.Rules`."""
    baseline: str | None = None
    candidate: str | None = None


class Variance(Question):
    """How precise is an arm's mean at N runs, and how many runs would be enough?"""

    precision: Annotated[float, Field(gt=0, le=1), Flag(("--threshold",))] = 0.05
    """Precision that is wanted, as a share of the mean."""
    power: Share = 0.8
    """Chance that a difference is found."""


class Power(Question):
    """How many runs does an effect need, and what can the runs at hand detect?"""

    names: tuple[str, ...] = ()
    """Where the earlier runs come from, for the settings."""
    candidate: Annotated[str | None, Flag(("--candidate",), "ARM")] = None
    """Other arm of the earlier runs (default: the first that is not the control)."""
    effect: float | None = None
    """Difference to detect, in the metric's own unit."""
    n: Annotated[int | None, Field(ge=1), Flag(("-n", "--n"))] = None
    """Units at hand, in each arm when unpaired (default: those of the earlier runs)."""
    sd: Annotated[float | None, Field(gt=0)] = None
    """Spread without earlier runs: sd of the paired differences, or inside an arm when unpaired."""
    rate: Annotated[float | None, Field(ge=0, le=1)] = None
    """Success rate of the control, for outcomes that are 0 or 1."""
    discordant: Share | None = None
    """With --rate --paired: share of pairs whose outcomes differ."""
    paired: Annotated[bool | None, Flag(("--paired/--unpaired",))] = None
    """Whether units pair up (default: as in the earlier runs; numbers are paired, rates are unpaired)."""
    power: Share = 0.8
    """Chance that the effect is detected."""
    comparisons: Annotated[int | None, Field(ge=1)] = None
    """Comparisons that the verdict will make: arms besides the control x primary metrics (default: those of the earlier runs, or 1)."""
    detect: Literal["each", "any", "all"] = "each"
    """What the power is of: a particular comparison, at least one of them, or all of them."""
    confidence: Share = 0.8
    """Confidence of the upper limit of the spread."""
    budget: Annotated[float | None, Field(gt=0)] = None
    """Divide this much among tasks, seeds and rollouts of each arm."""
    cost_task: Annotated[float, Field(ge=0)] = 0.0
    """Cost of one more task."""
    cost_seed: Annotated[float, Field(ge=0)] = 0.0
    """Cost of one more seed on a task."""
    cost_rollout: Annotated[float, Field(gt=0)] = 1.0
    """Cost of one more rollout of a seed."""
    most_tasks: Annotated[int | None, Field(ge=1)] = None
    """With --budget: the number of tasks, when no more can be had."""
    simulate: Annotated[str | None, Flag(("--simulate",), "STATISTIC")] = None
    """Simulate instead of computing: decision, t, sign-flip, wilcoxon, mann-whitney, mean, median or iqm."""
    replicates: Resamples = 2_000
    """Experiments to simulate."""
    seed: int = 0
    """Of the simulation."""


class Calibrate(Question):
    """How often would these runs lead to a wrong verdict if the arms did not differ?"""

    blocks: Literal["cluster", "task", "seed", "run"] | None = None
    """Exchange labels for whole groups of tasks, whole tasks, whole seeds or single runs only (default: everything that runs could share)."""
    policy: Any = None
    """The rules of a gate, a `verdicts.gate.Policy`, whose outcomes on arms that do not differ are counted too."""
    replicates: Resamples = 2_000
    """Relabelled experiments to judge."""
    seed: int = 0
    """Of the relabelling."""


class Summarize(Question):
    """What did each arm do on each task?"""

    goal: float | None = None
    """A run passes at this score (default: the best possible one)."""


class Plot(Question):
    """What a picture shows."""

    only_tasks: Annotated[tuple[str, ...], Flag(("--task",), "NAME")] = ()
    """Only this task; can be repeated."""
    level: Share = 0.95
    """Of bands and bootstrap intervals."""
    resamples: Resamples = 9_999
    """Of the bootstrap."""
    method: Literal["studentized", "percentile", "bca"] = "studentized"
    """Of the bootstrap's interval."""
    effect: float | None = None
    """For power: the effect to detect (default: the margin, or what the runs at hand detect)."""
