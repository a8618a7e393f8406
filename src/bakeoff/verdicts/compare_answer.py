"""The answer of `compare`: comparisons, what the test was, other methods, exploratory metrics, the registration.

Runs that were added until it was decided are judged by their e-process instead (`verdicts/sequential.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.table import Results
from bakeoff.stats.evidence import Interval
from bakeoff.text import NOTHING, number
from bakeoff.verdicts import prereg, sequential
from bakeoff.verdicts.answer import (
    NOT_ENOUGH_EVIDENCE,
    Answer,
    Block,
    Notes,
    Table,
    Text,
    observe_all,
    observe_metric,
    refuse_sequential,
)
from bakeoff.verdicts.compare import SEED, Comparison, Exploratory, compare, explore_metrics, recommendation
from bakeoff.verdicts.describe import unit_values
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.prereg import Registration
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.sequential import SequentialReport
from bakeoff.verdicts.wording import format_level, format_p
from bakeoff.version import __version__

MOST_EXPLORED = 200
ABREAST = 4
"""Comparisons beside each other in one table."""
EXPECTED = {
    "better": ("better",),
    "worse": ("worse",),
    "equivalent": ("equivalent",),
    "not-worse": ("better", "equivalent"),
}
_AS_IS = (
    "metric", "control", "candidate", "verdict", "reason", "sentence", "population", "units", "control_mean",
    "candidate_mean", "effect", "lift", "p", "p_adjusted", "p_exact", "cohens_d", "cohens_dz", "hedges_g", "improvement",
    "correlation", "variance_reduction", "mde", "units_for_margin", "missing", "failed", "seen_ends", "other", "campaign",
    "chosen",
)  # fmt: skip
"""Fields of a comparison that JSON has as they are."""


@dataclass(frozen=True)
class CompareAnswer(Answer):
    """Everything that `compare` says. `sequential` speaks where it is set, and `comparisons` is empty then."""

    comparisons: Sequence[Comparison]
    observations: Sequence[Observations]
    question: Compare
    exploratory: Sequence[Exploratory] = ()
    sequential: SequentialReport | None = None
    registration: Registration | None = None
    """Whether this is the analysis that was registered before the first result, when one was."""

    title = "Comparison"

    @property
    def final(self) -> bool:
        return all(observations.final for observations in self.observations)

    @property
    def recommendations(self) -> dict[str, str]:
        """The campaign word for each candidate, over all primary metrics."""
        arms = dict.fromkeys(comparison.candidate for comparison in self.comparisons)
        return {arm: recommendation([c for c in self.comparisons if c.candidate == arm]) for arm in arms}

    @property
    def exit_code(self) -> int:
        """0 decided (as expected), 1 decided otherwise than expected, 3 undecided."""
        comparisons = self.comparisons if self.sequential is None else self.sequential.comparisons
        verdicts = [comparison.verdict for comparison in comparisons]
        if self.question.expect is not None:
            allowed = (*EXPECTED[self.question.expect], "undecided")
            if any(verdict not in allowed for verdict in verdicts):
                return 1
        return NOT_ENOUGH_EVIDENCE if "undecided" in verdicts else 0

    # -- for programs

    def facts(self) -> dict[str, Any]:
        registration = self.registration
        registered = None if registration is None else {**asdict(registration), "kept": registration.kept}
        if self.sequential is not None:
            return {
                "source": self.source,
                "settings": self.settings,
                "sequential": self.sequential.facts(),
                "registration": registered,
            }
        return {
            "source": self.source,
            "settings": self.settings,
            "final": self.final,
            "registration": registered,
            "recommendations": self.recommendations,
            "comparisons": [comparison_facts(comparison) for comparison in self.comparisons],
            "exploratory": [asdict(line) for line in self.exploratory],
        }

    def records(self) -> Table:
        """Every pair (or every value of each arm), then effect and interval; the settings stand in every row."""
        headers = [
            "group", "label", "value_or_control", "candidate_value_optional", "metric", "control", "candidate", "verdict",
            "p", "p_adjusted", "test", "units", "summary", "alpha", "margin", "tasks", "seeds", "seed", "version",
        ]  # fmt: skip
        settings = self.settings
        summary = _in_words(settings["summary"]) if settings["summary"] else ""
        rows: list[list[str]] = []
        for each in self.comparisons:
            common = [
                each.metric, each.control, each.candidate, each.verdict, _digits(each.p), _digits(each.p_adjusted),
                each.decision.method, str(each.units), summary, str(settings["alpha"]), _digits(settings["margin"]),
                str(settings["tasks"]), str(settings["seeds"]), str(settings["seed"]), str(settings["version"]),
            ]  # fmt: skip
            assert each.design is not None
            for unit in unit_values(each.design):
                if each.design.matched:
                    cells = ["paired", unit.label, _digits(unit.control), _digits(unit.candidate)]
                else:
                    group, value = ("candidate", unit.candidate) if unit.control is None else ("control", unit.control)
                    cells = [group, unit.label, _digits(value), ""]
                rows.append([*cells, *common])
            low, high = (each.interval.low, each.interval.high) if each.interval else (None, None)
            for label, value in (("effect", each.effect), ("ci_low", low), ("ci_high", high)):
                rows.append(["result", label, _digits(value), "", *common])
        return Table(headers, rows)

    # -- for people

    def blocks(self) -> list[Block]:
        blocks: list[Block]
        if self.sequential is not None:
            blocks = [Text(each.sentence, strong=True) for each in self.sequential.comparisons]
            blocks.append(self.sequential.table())
        else:
            blocks = [Text(comparison.sentence, strong=True) for comparison in self.comparisons]
            for start in range(0, len(self.comparisons), ABREAST):
                blocks.append(comparison_table(self.comparisons[start : start + ABREAST]))
            blocks += self._notes()
            blocks += self._other_methods()
        if self.registration is not None:
            blocks.append(Notes("Registration", [self.registration.sentence, *self.registration.deviations]))
        if self.exploratory:
            headers = ["metric", "candidate", "effect", "interval", "p", "p adjusted (BH)", "note"]
            rows = [
                [line.metric, line.candidate, signed(line.effect), shown(line.interval), format_p(line.p),
                 format_p(line.p_adjusted), line.note]
                for line in self.exploratory
            ]  # fmt: skip
            blocks.append(Table(headers, rows, "Exploratory: to look into, no verdict", headers[2:6]))
        if self.sequential is None:
            blocks.append(Text(f"source: {self.source}"))
            blocks.append(Text(f"settings: {settings_in_words(self.settings)}"))
        return blocks

    def _notes(self) -> list[Block]:
        """Which test, the other population, what the campaign tool would say, and what to be careful about."""
        several = len(self.comparisons) > 1
        others = [
            f"{each.candidate} on {each.metric}, {each.other}" if several else each.other
            for each in self.comparisons
            if each.other
        ]
        words = self.recommendations
        notes = [
            Notes("Test", list(dict.fromkeys(each.chosen for each in self.comparisons))),
            Notes("Other population", others),
            Notes("Recommendation", [f"{arm}: {word}" if len(words) > 1 else word for arm, word in words.items()]),
            Notes("Warnings", list(dict.fromkeys(w for each in self.comparisons for w in each.warnings))),
        ]
        return [note for note in notes if note.lines]

    def _other_methods(self) -> list[Block]:
        if not any(each.methods for each in self.comparisons):
            return []
        several = len(self.comparisons) > 1
        headers = [*(["metric", "candidate"] if several else []), "method", "p", "interval", "note"]
        rows = [
            [*([each.metric, each.candidate] if several else []), line.name, format_p(line.p), shown(line.interval), line.note]
            for each in self.comparisons
            for line in each.methods
        ]  # fmt: skip
        return [Table(headers, rows, "Other methods (they do not decide)", ("p",))]


def answer(results: Results, question: Compare) -> CompareAnswer:
    """One family over the primary metrics; with `explore`, every other metric beside it."""
    metrics = question.metrics or results.primary()
    question = question.model_copy(update={"unpaired": question.unpaired or results.unpaired})
    observations = observe_all(results, question)
    registration = None
    if results.edition is not None:
        registration = prereg.check(results.edition, question.analysis(results.analysis), question, metrics)
        if sequential.applies(results.edition):
            report = _sequential(results, question, metrics)
            settings = compare_settings(observations, question, len(report.comparisons))
            return CompareAnswer(
                results.label, settings, [], observations, question, sequential=report, registration=registration
            )
    refuse_sequential(results, "a comparison across editions")
    covariate = None
    if question.covariate is not None:
        plain = {"bounds": None, "failure_score": None, "margin": None, "relative_margin": None}
        covariate = observe_metric(results, question.covariate, Compare(), results.analysis.model_copy(update=plain))
    exploratory: list[Exploratory] = []
    if question.explore:
        others = [name for name in results.metrics if name not in (*metrics, question.covariate)][:MOST_EXPLORED]
        exploratory = explore_metrics([observe_metric(results, name, question) for name in others], question)
    comparisons = compare(observations, question, covariate=covariate)
    return CompareAnswer(
        results.label,
        compare_settings(observations, question, len(comparisons)),
        comparisons,
        observations,
        question,
        exploratory,
        registration=registration,
    )


def _sequential(results: Results, question: Compare, metrics: Sequence[str]) -> SequentialReport:
    """Runs that were added until it was decided are judged by the e-process: no test of fixed size is valid there."""
    assert results.edition is not None
    if question.analysis(results.analysis) != results.analysis or question.unpaired or question.intersect:
        raise UsageError(
            f"{results.label} was run until it was decided, and the rule that decided was fixed when it began; "
            "leave out the flags that change alpha, margin, summary, bounds, direction or pairing"
        )
    return sequential.report(results, metrics, question)


def compare_settings(observations: Sequence[Observations], question: Compare, comparisons: int) -> dict[str, Any]:
    """What a comparison rests on."""
    first, analysis = observations[0], observations[0].analysis
    return {
        "metrics": [each.metric for each in observations],
        "summary": analysis.summary.model_dump(exclude_none=True) if analysis.summary else None,
        "directions": {each.metric: each.analysis.direction for each in observations},
        "alpha": analysis.alpha,
        "margin": analysis.margin,
        "relative_margin": analysis.relative_margin,
        "bounds": list(analysis.bounds) if analysis.bounds else None,
        "failure_score": analysis.failure_score,
        "tasks": first.population,
        "seeds": analysis.seeds,
        "unpaired": question.unpaired,
        "intersect": question.intersect,
        "simultaneous": question.simultaneous,
        "comparisons": comparisons,
        "resamples": question.resamples,
        "seed": SEED,
        "version": __version__,
    }


def comparison_facts(comparison: Comparison) -> dict[str, Any]:
    """One comparison as JSON shows it. An interval's end that is infinite is null there."""
    decision, skew = comparison.decision, comparison.skew
    return {
        **{name: getattr(comparison, name) for name in _AS_IS},
        "interval": as_dict(comparison.interval),
        "decision_interval": as_dict(comparison.decision_interval),
        "equivalence_interval": as_dict(comparison.equivalence_interval),
        "p_eq": decision.p_eq,
        "p_eq_adjusted": decision.p_eq_adjusted,
        "differs": decision.differs,
        "floor": decision.floor,
        "method": decision.method,
        "assumes": decision.assumes,
        "skew": None if skew is None else {**asdict(skew.interval), "sensitive": skew.sensitive},
        "methods": [asdict(line) for line in comparison.methods],
        "warnings": list(comparison.warnings),
    }


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """One line for each quantity, one column for each comparison; quantities that nobody has are left out."""
    several = len({each.metric for each in comparisons}) > 1
    heads = [f"{each.candidate} on {each.metric}" if several else each.candidate for each in comparisons]
    lines: list[tuple[str, list[str]]] = [
        ("verdict", [_verdict(each) for each in comparisons]),
        ("mean", [number(each.candidate_mean) for each in comparisons]),
        ("mean of the control", [number(each.control_mean) for each in comparisons]),
        ("effect", [signed(each.effect) for each in comparisons]),
        ("lift", [_share(each.lift) for each in comparisons]),
        ("interval", [shown(each.interval) for each in comparisons]),
        ("decision interval", [shown(each.decision_interval) for each in comparisons]),
        ("p", [format_p(each.p, each.decision.floor) for each in comparisons]),
        ("p adjusted", [format_p(each.p_adjusted) for each in comparisons]),
        ("p exact", [format_p(each.p_exact) for each in comparisons]),
        ("p of equivalence", [format_p(each.decision.p_eq_adjusted) for each in comparisons]),
        ("interval of equivalence", [shown(each.equivalence_interval) for each in comparisons]),
        ("bootstrap, skew check", [shown(each.skew.interval if each.skew else None) for each in comparisons]),
        ("Cohen's d", [number(each.cohens_d) for each in comparisons]),
        ("d of the pairs (dz)", [number(each.cohens_dz) for each in comparisons]),
        ("Hedges' g", [number(each.hedges_g) for each in comparisons]),
        ("P(improvement)", [number(each.improvement) for each in comparisons]),
        ("correlation of the arms", [number(each.correlation) for each in comparisons]),
        ("variance saved by pairing", [_share(each.variance_reduction) for each in comparisons]),
        ("effect detected with 80 % power", [number(each.mde) for each in comparisons]),
        ("units for the margin", [number(each.units_for_margin) for each in comparisons]),
        ("units", [str(each.units) for each in comparisons]),
        ("runs missing", [str(each.missing) for each in comparisons]),
        ("runs failed", [str(each.failed) for each in comparisons]),
    ]
    return Table(["", *heads], [[name, *cells] for name, cells in lines if set(cells) != {NOTHING}], right=heads)


def _verdict(comparison: Comparison) -> str:
    reason = comparison.reason.replace("_", " ")
    return f"{comparison.verdict} ({reason})" if reason and reason != "inconclusive" else comparison.verdict


def settings_in_words(settings: Any) -> str:
    """`maximize score; alpha 0.05; tasks sample; ...`: what is not set is left out."""
    said = {
        key: value
        for key, value in settings.items()
        if key not in ("metrics", "directions") and value is not None and value is not False
    }
    directions = ", ".join(f"{direction} {metric}" for metric, direction in settings["directions"].items())
    return "; ".join([directions, *(f"{key} {_in_words(value)}" for key, value in said.items())])


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{item}" if key == "type" else f"{key} {item}" for key, item in value.items())
    return " to ".join(map(str, value)) if isinstance(value, list) else "yes" if value is True else str(value)


def as_dict(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else asdict(interval)


def shown(interval: Interval | None) -> str:
    """`0.1 to 0.3 (95 %)`."""
    if interval is None:
        return NOTHING
    return f"{interval.low:.4g} to {interval.high:.4g} ({format_level(interval.level)})"


def signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.4g}"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:+.3g} %"


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"
