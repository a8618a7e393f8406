"""Which comparisons share one alpha, and how often the analysis of a metric was changed after results were shown.

A family is what was planned, whatever is printed of it: every candidate of the file on every primary metric. An edition
remembers its first look, so a metric that is asked for later is exploratory, and an analysis that is changed later is
judged at a lower level. Results from elsewhere remember nothing: there the question is the declaration.

    family = planned_family(observations, question, metrics=2)
    family.size                                       # m of Holm
    change = changed_analysis(observations, question) # change.number, 0 for the analysis that was shown first
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.table import Declared, Results
from bakeoff.spec.directions import suggests_less
from bakeoff.spec.experiment import Analysis, setting_in_words
from bakeoff.text import format_p
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Question

_NOT_JUDGING = {"metric", "primary", "units", "control", "candidates", "final", "given", "matched", "alpha"}
"""Keys of `[analysis]` that do not say how a metric's values become a verdict, and alpha, which may always fall."""
_OWN_RULES = ("gate", "litmus")
"""Verbs whose rules are in a file of their own: they are held against what the same verb has shown."""
Settings = Mapping[str, Any]
"""How one metric is judged: what differs from the defaults of `[analysis]`, and alpha."""


@dataclass(frozen=True, slots=True)
class Family:
    """The comparisons that share one alpha."""

    control: str
    candidates: tuple[str, ...]
    """The arms that get a verdict."""
    arms: int
    """Comparisons of arms: one for each candidate, or one for each pair of arms where the control is not the declared one."""
    metrics: int = 1

    @property
    def size(self) -> int:
        return self.arms * self.metrics


def choose_arms(observations: Observations, question: Question) -> tuple[str, list[str]]:
    """The control (named, declared, or the first arm) and who is compared with it (named, declared, or everybody else)."""
    arms = observations.arms
    if not arms:
        raise UsageError(f"{observations.source or 'the table'}: there are no runs to compare")
    control = question.control or observations.analysis.control or arms[0]
    declared = [arm for arm in observations.analysis.candidates if arm != control]
    candidates = list(dict.fromkeys(question.arms)) or declared or [arm for arm in arms if arm != control]
    for name in (control, *candidates):
        if name not in arms:
            raise UsageError(f"no arm called {name!r}; there are {', '.join(arms)}")
    if not candidates or control in candidates:
        raise UsageError(f"there is nothing to compare {control!r} with; arms: {', '.join(arms)}")
    return control, candidates


def planned_family(observations: Observations, question: Question, metrics: int = 1) -> Family:
    """The family that the comparisons of this question belong to, whichever of them it asks for.

    A table declares nothing, so its control is the one that the question names, and its family has all its arms.
    """
    control, _ = choose_arms(observations, question)
    declared = observations.declared
    if declared is None:
        return family_of(
            observations.analysis.model_copy(update={"control": control}), observations.arms, control, metrics
        )
    return family_of(declared.analysis, declared.arms, control, metrics)


def family_of(declared: Analysis, arms: Sequence[str], control: str, metrics: int) -> Family:
    """The family of planned arms on so many primary metrics, against this control."""
    candidates = tuple(arm for arm in declared.candidates or arms if arm != control)
    usual = declared.control or arms[0]
    pairs = len(candidates) if control == usual else len(arms) * (len(arms) - 1) // 2
    return Family(control, candidates, pairs, metrics)


def primary_metrics(results: Results, asked: Sequence[str]) -> list[str]:
    """The metrics that get a verdict: those of the first look, those of the file, or those that are asked for first."""
    for look in results.looks:
        if look.kind != "too few" and look.asked and look.verb not in _OWN_RULES:
            return list(look.asked)
    declared = results.declared.analysis.metrics if results.declared is not None else []
    return declared or list(asked)


# -- an analysis that is changed after a look


@dataclass(frozen=True, slots=True)
class Change:
    """How the analysis of one metric stands to those under which results were shown before."""

    metric: str
    number: int
    """0 for the first analysis, k for the k-th change of it."""
    first: Settings
    asked: Settings
    later: bool = False
    """The rules that were checked first say nothing about the metric, and neither does the experiment file."""

    @property
    def alpha(self) -> float:
        """The level that the change starts from: a higher one cannot be asked for after a look."""
        return min(float(self.first["alpha"]), float(self.asked["alpha"]))

    def differences(self) -> Iterator[tuple[str, Any, Any]]:
        """(key, first, asked) of what differs; None is the default."""
        for key in dict.fromkeys((*self.first, *self.asked)):
            if self.first.get(key) != self.asked.get(key):
                yield key, self.first.get(key), self.asked.get(key)


def settings_of(observations: Observations, question: Question, **rule: Any) -> dict[str, Any]:
    """How a metric is judged by this question, as a look records it. `rule` has what a gate or a litmus file adds."""
    analysis = observations.analysis
    settings = analysis.model_dump(mode="json", exclude=_NOT_JUDGING, exclude_defaults=True, exclude_none=True)
    settings |= {"alpha": analysis.alpha, "tasks": observations.population}
    settings |= {name: True for name in ("unpaired", "intersect") if getattr(question, name)}
    return settings | {name: value for name, value in rule.items() if value is not None}


def changed_analysis(observations: Observations, question: Question, verb: str = "compare", **rule: Any) -> Change:
    """The number of the analysis that the question asks for, among those that were shown. Tables have no memory."""
    asked = settings_of(observations, question, **rule)
    distinct: list[Settings] = []
    for settings in [*_shown(observations, verb, asked), asked]:
        if not any(_same(settings, before) for before in distinct):
            distinct.append(settings)
    number = next(place for place, before in enumerate(distinct) if _same(asked, before))
    later = _asked_later(observations, verb) if verb in _OWN_RULES else 0
    return Change(observations.metric, number + later, distinct[0], asked, later > 0)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the analysis that was shown first says about one comparison."""

    metric: str
    candidate: str
    verdict: str
    p_adjusted: float | None

    @property
    def line(self) -> str:
        p = "" if self.p_adjusted is None else f", p = {format_p(self.p_adjusted)}"
        return f"{self.candidate} on {self.metric} {self.verdict}{p}"


@dataclass(frozen=True, slots=True)
class Changed:
    """The remark about metrics whose analysis was changed after a look, or the rule of a gate or litmus file about them."""

    changes: Sequence[Change]
    what: str
    earlier: Sequence[Earlier] = ()

    @property
    def sentence(self) -> str:
        sentences = []
        for change in self.changes:
            parts = [
                f"{key} {setting_in_words(before)} (declared) and {setting_in_words(asked)} (asked)"
                for key, before, asked in change.differences()
            ]
            level = change.alpha / 4**change.number
            happened = f"was changed after results were shown: {'; '.join(parts)}"
            if change.later:
                happened = "was added after others had been checked" + (f", and {happened}" if parts else "")
            sentences.append(
                f"The {self.what} of {change.metric} {happened}. This is change {change.number}, judged at alpha {level:g} "
                f"instead of {change.alpha:g}."
            )
        if self.earlier:
            sentences.append(
                f"By the {self.what} that was shown first: {'; '.join(each.line for each in self.earlier)}."
            )
        return " ".join(sentences)

    def facts(self) -> dict[str, Any]:
        """For JSON: both analyses of every metric, and the verdicts of the first one."""
        metrics = [
            {"metric": each.metric, "change": each.number, "declared": dict(each.first), "asked": dict(each.asked)}
            for each in self.changes
        ]
        return {"metrics": metrics, "first": [asdict(each) for each in self.earlier]}


def late_changes(changes: Sequence[Change], what: str) -> Changed | None:
    """Return what was changed after a look; None where nothing was."""
    late = [change for change in changes if change.number]
    return Changed(late, what) if late else None


def first_analysis(change: Change, declared: Analysis) -> Analysis:
    """Return the analysis that was shown first; what does not judge stays as it is declared."""
    kept = declared.model_dump(include=_NOT_JUDGING)
    return Analysis.model_validate({**kept, **{k: v for k, v in change.first.items() if k in Analysis.model_fields}})


def _shown(observations: Observations, verb: str, asked: Settings) -> Iterator[Settings]:
    """The analyses of the metric under which something was shown, oldest first; means count as the declared analysis."""
    declared = observations.declared
    if declared is None:
        return
    for look in observations.looks:
        if look.kind == "too few":
            continue
        if verb in _OWN_RULES or look.verb in _OWN_RULES:
            if look.verb == verb and observations.metric in look.asked:
                yield look.asked[observations.metric]
        elif observations.metric in look.asked:
            yield look.asked[observations.metric]
        elif not look.asked and observations.metric in declared.analysis.metrics:
            yield _as_declared(observations, declared, asked)


def _asked_later(observations: Observations, verb: str) -> int:
    """The place of the metric among those that a gate or a litmus file came to check later; 0 for the first and declared ones.

    Whoever tries one metric after another finds one that passes.
    """
    if observations.declared is None:
        return 0
    checked = [list(look.asked) for look in observations.looks if look.verb == verb and look.kind != "too few"]
    planned = {*(checked[0] if checked else [observations.metric]), *observations.declared.analysis.metrics}
    if observations.metric in planned:
        return 0
    later = dict.fromkeys(metric for each in checked[1:] for metric in each if metric not in planned)
    return list(later | {observations.metric: None}).index(observations.metric) + 1


def _as_declared(observations: Observations, declared: Declared, asked: Settings) -> Settings:
    """As the file says. A direction that we ask for before any verdict is an answer and no change: the first one counts."""
    analysis = declared.analysis.about(observations.metric)
    settings = settings_of(replace(observations, analysis=analysis), Question())
    if analysis.direction is not None or not suggests_less(observations.metric):
        return settings
    answers = (look.asked[observations.metric] for look in observations.looks if observations.metric in look.asked)
    answer = next(answers, asked)
    return settings | {key: answer[key] for key in ("direction", "directions") if key in answer}


def _same(asked: Settings, before: Settings) -> bool:
    """Whether nothing differs but an alpha that is not higher."""
    keys = {*asked, *before} - {"alpha"}
    return all(asked.get(key) == before.get(key) for key in keys) and asked["alpha"] <= before["alpha"]
