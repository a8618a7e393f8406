"""The answer of `compare`: comparisons, what the test was, other methods, exploratory metrics, the registration.

Runs that were added until it was decided are judged by their e-process instead (`verdicts/sequential.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bakeoff.errors import UsageError
from bakeoff.results.table import Results
from bakeoff.text import NOTHING, number
from bakeoff.verdicts.answer import (
    NOT_ENOUGH_EVIDENCE,
    Answer,
    Block,
    Notes,
    Table,
    Text,
    is_sequential,
    observe_metric,
    refuse_sequential,
)
from bakeoff.verdicts.compare import SEED, Comparison, Exploratory, compare, explore_metrics, recommendations
from bakeoff.verdicts.describe import format_interval, format_p, signed, unit_values
from bakeoff.verdicts.looks import METHOD
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.retries import retry_facts, retry_table, retry_warnings
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.records.run import Uncounted
    from bakeoff.verdicts.prereg import Registration
    from bakeoff.verdicts.sequential import SequentialReport

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
    "correlation", "variance_reduction", "mde", "units_for_margin", "missing", "failed", "seen_ends", "other", "these_seeds",
    "campaign",
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
    uncounted: Mapping[str, Uncounted] = field(default_factory=dict)
    """By arm, the tries that do not count."""
    registration: Registration | None = None
    """Whether this is the analysis that was registered before the first result, when one was."""

    title = "Comparison"

    @property
    def exit_code(self) -> int:
        """0 decided (as expected), 1 decided otherwise than expected, 3 undecided."""
        comparisons = self.comparisons if self.sequential is None else self.sequential.comparisons
        verdicts = [comparison.verdict for comparison in comparisons]
        if self.question.expect is not None:
            allowed = (*EXPECTED[self.question.expect], "undecided")
            if any(verdict not in allowed for verdict in verdicts):
                return 1
        decided = "undecided" not in verdicts if self.sequential is None else self.sequential.decided
        return 0 if decided else NOT_ENOUGH_EVIDENCE

    def verdicts(self) -> dict[str, str]:
        comparisons = self.comparisons if self.sequential is None else self.sequential.comparisons
        return {f"{each.candidate} on {each.metric}": each.verdict for each in comparisons}

    @property
    def anytime_valid(self) -> bool:
        return self.sequential is not None or all(each.decision.method == METHOD for each in self.comparisons)

    # -- for programs

    def facts(self) -> dict[str, Any]:
        registration = self.registration
        registered = None if registration is None else {**asdict(registration), "kept": registration.kept}
        facts: dict[str, Any] = {
            "source": self.source,
            "settings": self.settings,
            "retries": retry_facts(self.uncounted),
        }
        if self.sequential is not None:
            return {**facts, "sequential": self.sequential.facts(), "registration": registered}
        return {
            **facts,
            "final": all(observations.final for observations in self.observations),
            "registration": registered,
            "recommendations": recommendations(self.comparisons),
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
            blocks = [Text(sentence, strong=True) for sentence in self.sequential.sentences]
            blocks.append(self.sequential.table())
            if warnings := retry_warnings(self.uncounted):
                blocks.append(Notes("Warnings", warnings))
        else:
            blocks = [Text(comparison.sentence, strong=True) for comparison in self.comparisons]
            for start in range(0, len(self.comparisons), ABREAST):
                blocks.append(comparison_table(self.comparisons[start : start + ABREAST]))
            blocks += self._beside_the_verdict()
        if (table := retry_table(self.uncounted)) is not None:
            blocks.append(table)
        if self.registration is not None:
            blocks.append(Notes("Registration", [self.registration.sentence, *self.registration.deviations]))
        if self.exploratory:
            headers = ["metric", "candidate", "effect", "interval", "p", "p adjusted (BH)", "note"]
            rows = [
                [line.metric, line.candidate, signed(line.effect), format_interval(line.interval, in_table=True),
                 format_p(line.p), format_p(line.p_adjusted), line.note]
                for line in self.exploratory
            ]  # fmt: skip
            blocks.append(Table(headers, rows, "Exploratory: to look into, no verdict", headers[2:6]))
        if self.sequential is None:
            blocks.append(Text(f"source: {self.source}"))
            blocks.append(Text(f"settings: {settings_in_words(self.settings)}"))
        return blocks

    def _beside_the_verdict(self) -> list[Block]:
        """Which test, the other population, what the campaign tool would say, warnings, and other methods."""
        several = len(self.comparisons) > 1
        others = [
            f"{each.candidate} on {each.metric}, {line}" if several else line
            for each in self.comparisons
            for line in (each.other, each.these_seeds)
            if line
        ]
        words = recommendations(self.comparisons)
        notes = [
            Notes("Test", list(dict.fromkeys(each.chosen for each in self.comparisons))),
            Notes("Other population", others),
            Notes("Recommendation", [f"{arm}: {word}" if len(words) > 1 else word for arm, word in words.items()]),
            Notes(
                "Warnings",
                list(
                    dict.fromkeys(
                        [*retry_warnings(self.uncounted), *(w for each in self.comparisons for w in each.warnings)]
                    )
                ),
            ),
        ]
        blocks: list[Block] = [note for note in notes if note.lines]
        rows = [
            [*([each.metric, each.candidate] if several else []), line.name, format_p(line.p),
             format_interval(line.interval, in_table=True), line.note]
            for each in self.comparisons
            for line in each.methods
        ]  # fmt: skip
        if rows:
            headers = [*(["metric", "candidate"] if several else []), "method", "p", "interval", "note"]
            blocks.append(Table(headers, rows, "Other methods (they do not decide)", ("p",)))
        return blocks


def answer(results: Results, question: Compare) -> CompareAnswer:
    """One family over the primary metrics; with `explore`, every other metric beside it.

    Runs that were added until it was decided are judged by the e-process: no test of fixed size is valid there.
    """
    metrics = question.metrics or results.primary()
    question = question.model_copy(update={"unpaired": question.unpaired or results.unpaired})
    if question.editions == "all":
        from bakeoff.verdicts.combined import combine

        if question.unpaired or question.intersect:
            raise UsageError("editions are combined pair by pair; leave --unpaired and --intersect out")
        report, observations = combine(results, question, metrics)
        settings = compare_settings(observations, question, len(report.comparisons))
        return CompareAnswer(
            results.label, settings, [], observations, question, sequential=report, uncounted=results.uncounted
        )
    observations = [observe_metric(results, name, question) for name in metrics]
    registration = None
    edition = results.edition
    if edition is not None and edition.paths.registration.exists():
        from bakeoff.verdicts import prereg

        registration = prereg.check(edition, question.analysis(results.analysis), question, metrics)
    if edition is not None and is_sequential(edition):
        from bakeoff.verdicts import sequential

        if question.analysis(results.analysis) != results.analysis or question.unpaired or question.intersect:
            raise UsageError(
                f"{results.label} was run until it was decided, and the rule that decided was fixed when it began; "
                "leave out the flags that change alpha, margin, summary, bounds, direction or pairing"
            )
        report = sequential.report(results, metrics, question)
        settings = compare_settings(observations, question, len(report.comparisons))
        return CompareAnswer(
            results.label, settings, [], observations, question, sequential=report, uncounted=results.uncounted,
            registration=registration,
        )  # fmt: skip
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
    settings = compare_settings(observations, question, len(comparisons))
    return CompareAnswer(
        results.label, settings, comparisons, observations, question, exploratory, uncounted=results.uncounted,
        registration=registration,
    )  # fmt: skip


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
        "ties": analysis.ties,
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
    intervals = {name: getattr(comparison, name) for name in ("interval", "decision_interval", "equivalence_interval")}
    return {
        **{name: getattr(comparison, name) for name in _AS_IS},
        **{name: asdict(interval) if interval else None for name, interval in intervals.items()},
        "p_eq": decision.p_eq,
        "p_eq_adjusted": decision.p_eq_adjusted,
        "differs": decision.differs,
        "floor": decision.floor,
        "method": decision.method,
        "assumes": decision.assumes,
        "skew": None if skew is None else {**asdict(skew.interval), "sensitive": skew.sensitive},
        "unmatched": asdict(comparison.design.unmatched) if comparison.design.unmatched else None,
        "methods": [asdict(line) for line in comparison.methods],
        "warnings": list(comparison.warnings),
    }


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """One line for each quantity, one column for each comparison; quantities that nobody has are left out."""
    several = len({each.metric for each in comparisons}) > 1
    heads = [f"{each.candidate} on {each.metric}" if several else each.candidate for each in comparisons]
    columns = []
    for each in comparisons:
        decision, reason = each.decision, each.reason.replace("_", " ")
        skew = each.skew.interval if each.skew else None
        column = {
            "verdict": f"{each.verdict} ({reason})" if reason and reason != "inconclusive" else each.verdict,
            "mean": number(each.candidate_mean),
            "mean of the control": number(each.control_mean),
            "effect": signed(each.effect),
            "lift": signed(each.lift, percent=True),
            "interval": format_interval(each.interval, in_table=True),
            "decision interval": format_interval(each.decision_interval, in_table=True),
            "p": format_p(each.p, decision.floor),
            "p adjusted": format_p(each.p_adjusted),
            "p exact": format_p(each.p_exact),
            "p of equivalence": format_p(decision.p_eq_adjusted),
            "interval of equivalence": format_interval(each.equivalence_interval, in_table=True),
            "bootstrap, skew check": format_interval(skew, in_table=True),
            "Cohen's d": number(each.cohens_d),
            "d of the pairs (dz)": number(each.cohens_dz),
            "Hedges' g": number(each.hedges_g),
            "P(improvement)": number(each.improvement),
            "correlation of the arms": number(each.correlation),
            "variance saved by pairing": signed(each.variance_reduction, percent=True),
            "effect detected with 80 % power": number(each.mde),
            "units for the margin": number(each.units_for_margin),
            "units": str(each.units),
            "runs missing": str(each.missing),
            "runs failed": str(each.failed),
        }
        columns.append(column)
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return Table(["", *heads], [row for row in rows if set(row[1:]) != {NOTHING}], right=heads)


def settings_in_words(settings: Any) -> str:
    """`maximize score; alpha 0.05; tasks sample; ...`: what is not set is left out."""
    said = {
        key: value
        for key, value in settings.items()
        if key not in ("metrics", "directions", "columns", "looks")
        and value is not None
        and value is not False
        and value != "half"
    }
    directions = ", ".join(f"{direction} {metric}" for metric, direction in settings["directions"].items())
    return "; ".join([directions, *(f"{key} {_in_words(value)}" for key, value in said.items())])


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{item}" if key == "type" else f"{key} {item}" for key, item in value.items())
    return " to ".join(map(str, value)) if isinstance(value, list) else "yes" if value is True else str(value)


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"
