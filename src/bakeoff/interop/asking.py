"""A source, and what is asked of it, become an answer. The command line and the Python door both ask here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from bakeoff.errors import UsageError
from bakeoff.interop.editions import Across, OneEdition
from bakeoff.interop.source import Source
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts import prereg, sequential
from bakeoff.verdicts.compare import SEED, Comparison, Options, compare, population, recommendation
from bakeoff.verdicts.explore import Exploratory, explore
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.prereg import Check
from bakeoff.verdicts.sequential import SequentialReport

MOST_EXPLORED = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What flags say; everything that they leave out is as the source declares it."""

    metrics: Sequence[str] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `analysis` that differ; `summary` holds only those of its own fields that do."""
    directions: Mapping[str, str] = field(default_factory=dict)
    """Direction of single metrics."""
    options: Options = field(default_factory=Options)
    covariate: str | None = None
    explore: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that `compare` says."""

    source: str
    comparisons: Sequence[Comparison]
    observations: Sequence[Observations]
    options: Options
    exploratory: Sequence[Exploratory] = ()
    sequential: SequentialReport | None = None
    """Set when the runs were added until it was decided: then it speaks, and `comparisons` is empty."""
    registration: Check | None = None
    """Whether this is the analysis that was registered before the first result, when one was."""

    @property
    def final(self) -> bool:
        return all(seen.final for seen in self.observations)

    @property
    def recommendations(self) -> dict[str, str]:
        """The campaign word for each candidate, over all primary metrics."""
        arms = dict.fromkeys(one.candidate for one in self.comparisons)
        return {arm: recommendation([one for one in self.comparisons if one.candidate == arm]) for arm in arms}

    @property
    def settings(self) -> dict[str, Any]:
        """What produced it, for every output."""
        first = self.observations[0]
        analysis = first.analysis
        return {
            "metrics": [seen.metric for seen in self.observations],
            "summary": analysis.summary.model_dump(exclude_none=True) if analysis.summary else None,
            "directions": {seen.metric: seen.analysis.direction for seen in self.observations},
            "alpha": analysis.alpha,
            "margin": analysis.margin,
            "relative_margin": analysis.relative_margin,
            "bounds": list(analysis.bounds) if analysis.bounds else None,
            "failure_score": analysis.failure_score,
            "tasks": population(first, self.options),
            "seeds": analysis.seeds,
            "unpaired": self.options.unpaired,
            "intersect": self.options.intersect,
            "simultaneous": self.options.simultaneous,
            "comparisons": len(self.comparisons),
            "resamples": self.options.resamples,
            "seed": SEED,
        }


def answer(source: Source, asked: Asked) -> Answer:
    """One family over the metrics that are primary; with `explore`, every other metric beside it."""
    names = list(dict.fromkeys(asked.metrics or source.declared()))
    analysis = judged(source.analysis, asked.changes)
    options = replace(asked.options, unpaired=asked.options.unpaired or source.unpaired)
    seen = [source.observe(name, _about(source.analysis, asked, name)) for name in names]
    registration = None
    if isinstance(source, OneEdition):
        registration = prereg.check(source.edition, analysis, asked.options, names)
    if (followed := _followed(source, names, options, analysis)) is not None:
        return Answer(source.label, [], seen, options, sequential=followed, registration=registration)
    if asked.covariate is not None:
        plain = {"bounds": None, "failure_score": None, "margin": None, "relative_margin": None}
        explains = source.observe(asked.covariate, analysis.model_copy(update=plain))
        options = replace(options, covariate=explains)
    others: list[Exploratory] = []
    if asked.explore:
        rest = [name for name in source.metrics() if name not in (*names, asked.covariate)][:MOST_EXPLORED]
        others = explore([source.observe(name, _about(source.analysis, asked, name)) for name in rest], options)
    return Answer(source.label, compare(seen, options), seen, options, others, registration=registration)


def _about(declared: Analysis, asked: Asked, metric: str) -> Analysis:
    """How one metric is judged."""
    direction = {"direction": asked.directions[metric]} if metric in asked.directions else {}
    return judged(declared.about(metric), {**asked.changes, **direction})


def _followed(source: Source, metrics: Sequence[str], options: Options, analysis: Analysis) -> SequentialReport | None:
    """Runs that were added until it was decided are judged by the e-process: no test of fixed size is valid there."""
    if isinstance(source, OneEdition) and sequential.applies(source.edition):
        if analysis != source.analysis or options.unpaired or options.intersect:
            raise UsageError(
                f"{source.label} was run until it was decided, and the rule that decided was fixed when it began; "
                "leave out the flags that change alpha, margin, summary, bounds, direction or pairing"
            )
        return sequential.report(source.edition, metrics, options.control, options.candidates)
    refuse_sequential(source, "a comparison across editions")
    return None


def refuse_sequential(source: Source, what: str) -> None:
    """For questions that a sequential test does not answer."""
    parts = [part for part, _ in source.parts] if isinstance(source, Across) else [source]
    if any(isinstance(part, OneEdition) and sequential.applies(part.edition) for part in parts):
        raise UsageError(
            f"{source.label} was run until it was decided, so no test of a fixed number of runs is valid on it, and "
            f"{what} needs one; `bakeoff compare` on that edition alone says what its own test found"
        )


def judged(declared: Analysis, changes: Mapping[str, Any]) -> Analysis:
    """The declared analysis, changed by flags and checked again."""
    given = declared.model_dump()
    wanted = {key: value for key, value in changes.items() if value is not None and value != {}}
    if "summary" in wanted:
        wanted["summary"] = {**(given["summary"] or {"type": "auc"}), **wanted["summary"]}
    if "margin" in wanted or "relative_margin" in wanted:
        given |= {"margin": None, "relative_margin": None}  # a margin by flag replaces the other kind too
    try:
        return Analysis.model_validate({**given, **wanted})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "analysis"
        raise UsageError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from error
