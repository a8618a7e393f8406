"""The answer of `compare`: comparisons, what the test was, other methods, exploratory metrics, the registration.

Runs that were added until it was decided are judged by their e-process instead (`verdicts/sequential/evidence_path.py`).
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import UsageError
from bakeoff.results.table import Results
from bakeoff.text import NOTHING, format_interval, format_p, number, percent
from bakeoff.verdicts.answer import (
    NOT_ENOUGH_EVIDENCE,
    Answer,
    Block,
    Notes,
    Table,
    Text,
    observe_metric,
    refuse_sequential,
)
from bakeoff.verdicts.comparison import (
    SEED,
    Comparison,
    Exploratory,
    compare,
    compare_exploratory,
    explore_metrics,
    recommendations,
)
from bakeoff.verdicts.describe import unit_values
from bakeoff.verdicts.family import (
    Change,
    Changed,
    Earlier,
    changed_analysis,
    first_analysis,
    primary_metrics,
    settings_of,
)
from bakeoff.verdicts.observations import Observations
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.questions.retries import retry_facts, retry_table, retry_warnings
from bakeoff.verdicts.ranking_table import (
    FEWEST_LINES,
    MOST_LINES,
    Advice,
    Standings,
    advice_in_words,
    advise,
    ranked_table,
    standings,
)
from bakeoff.verdicts.sequential.looks import METHOD
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.records.run import Uncounted
    from bakeoff.verdicts.sequential.evidence_path import SequentialReport
    from bakeoff.verdicts.sequential.prereg import Registration

MOST_EXPLORED = 200
ABREAST = 4
"""Comparisons beside each other in one table."""
MOST_WARNINGS, MOST_NAMED, MOST_SENTENCES = 3, 5, 4
"""On the first screen: warnings, arms that a warning names, and sentences of a sequential test."""
EXPECTED = {
    "better": ("better",),
    "worse": ("worse",),
    "equivalent": ("equivalent",),
    "not-worse": ("better", "equivalent"),
}
_AS_IS = (
    "metric", "control", "candidate", "verdict", "reason", "sentence", "population", "units", "control_mean",
    "candidate_mean", "effect", "lift", "p", "p_adjusted", "p_exact",
)  # fmt: skip
_AS_IS_TOO = ("missing", "failed", "seen_ends", "campaign", "family", "changes", "chosen")
"""Fields of a comparison that JSON has as they are, before the effect sizes and after them."""


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """The remark that metrics were not declared before results, and that there are others."""

    metrics: tuple[str, ...]
    known: int
    """All metrics that could have been chosen."""

    @property
    def sentence(self) -> str:
        return (
            f"{', '.join(self.metrics)}: {len(self.metrics)} of {self.known} metrics, and nothing says that the choice was "
            f"made before results were seen; after a look at all of them, p is at most {self.known} times as large."
        )

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"metrics": self.known}


@dataclass(frozen=True)
class CompareAnswer(Answer):
    """Everything that `compare` says. `sequential` is set where a sequential test decided about the comparisons."""

    comparisons: Sequence[Comparison]
    observations: Sequence[Observations]
    question: Compare
    exploratory: Sequence[Exploratory] = ()
    sequential: SequentialReport | None = None
    uncounted: Mapping[str, Uncounted] = field(default_factory=dict)
    """By arm, the tries that do not count."""
    registration: Registration | None = None
    """Whether this is the analysis that was registered before the first result, when one was."""
    file: Path | None = None
    """The experiment file that adds runs to these results; None where nothing can."""
    judged: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """How each primary metric was judged, those that were not asked for among them."""

    title = "Comparison"

    @property
    def exit_code(self) -> int:
        """0 decided (as expected), 1 decided otherwise than expected, 3 undecided."""
        verdicts = [comparison.verdict for comparison in self.comparisons]
        if self.question.expect is not None:
            allowed = (*EXPECTED[self.question.expect], "undecided")
            if any(verdict not in allowed for verdict in verdicts):
                return 1
        decided = "undecided" not in verdicts if self.sequential is None else self.sequential.decided
        return 0 if decided else NOT_ENOUGH_EVIDENCE

    def verdicts(self) -> dict[str, str]:
        return {f"{each.candidate} on {each.metric}": each.verdict for each in self.comparisons}

    def asked(self) -> dict[str, dict[str, Any]]:
        return dict(self.judged)

    @property
    def anytime_valid(self) -> bool:
        return self.sequential is not None or all(each.decision.method == METHOD for each in self.comparisons)

    # -- for programs

    def facts(self) -> dict[str, Any]:
        registration = self.registration
        registered = None if registration is None else {**asdict(registration), "kept": registration.kept}
        facts: dict[str, Any] = {
            "source": self.source,
            "settings": self.all_settings,
            "retries": retry_facts(self.uncounted),
            "self_reported": {each.metric: list(each.caveats.self_reported) for each in self.observations},
            "estimated": {each.metric: dict(each.caveats.estimated) for each in self.observations},
            "saved_by_caches": {each.metric: dict(each.caveats.saved) for each in self.observations},
        }
        if self.sequential is not None:
            return {**facts, "sequential": self.sequential.facts(), "registration": registered}
        return {
            **facts,
            "final": all(observations.final for observations in self.observations),
            "registration": registered,
            "next": self.next_step,
            "recommendations": recommendations(self.comparisons),
            "comparisons": [comparison_facts(comparison) for comparison in self.comparisons],
            "exploratory": [asdict(line) for line in self.exploratory],
        }

    def records(self) -> Table:
        """Every pair (or every value of each arm), then effect and interval; the settings stand in every row."""
        headers = [
            "group", "label", "value_or_control", "candidate_value_optional", "metric", "control", "candidate", "verdict",
            "p", "p_adjusted", "test", "units", "summary", "alpha", "margin", "tasks", "seeds", "seed", "version",
            "self_reported",
        ]  # fmt: skip
        settings = self.settings
        summary = _in_words(settings["summary"]) if settings["summary"] else ""
        written = {each.metric: each.caveats.self_reported for each in self.observations}
        rows: list[list[str]] = []
        for each in self.comparisons:
            arms = [arm for arm in (each.control, each.candidate) if arm in written.get(each.metric, ())]
            common = [
                each.metric, each.control, each.candidate, each.verdict, _digits(each.p), _digits(each.p_adjusted),
                each.decision.method, str(each.units), summary, str(settings["alpha"]), _digits(settings["margin"]),
                str(settings["tasks"]), str(settings["seeds"]), str(settings["seed"]), str(settings["version"]),
                ", ".join(arms),
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

    @property
    def standings(self) -> list[Standings]:
        """The arms of each metric, best first."""
        return standings(self.comparisons, self.observations, self.observations[0].analysis.units)

    @property
    def advice(self) -> Advice | None:
        """What would decide what is open."""
        if self.sequential is not None:
            return None
        return advise(self.comparisons, all(each.final for each in self.observations))

    @property
    def next_step(self) -> str:
        """The advice in words; empty if there is none."""
        advice = self.advice
        if advice is None:
            return ""
        near = "" if self.file is None else os.path.relpath(self.file)
        file = str(self.file) if near.startswith(os.pardir) else near
        return advice_in_words(advice, shlex.quote(file) if file else None)

    def screen(self) -> list[Block]:
        """The ranked arms, the sentence of a single comparison, the next step, warnings, and what was asked for."""
        tables = self.standings
        rows = max(FEWEST_LINES, MOST_LINES // max(1, len(tables)))
        blocks: list[Block] = [ranked_table(each, rows) for each in tables]
        if self.sequential is not None:
            blocks += [Text(sentence) for sentence in self.sequential.sentences[:MOST_SENTENCES]]
        elif len(self.comparisons) == 1:
            [each] = self.comparisons
            blocks.append(Text(each.sentence))
            if each.these_seeds is not None:
                blocks.append(Text(each.these_seeds.line))
        blocks += [Text(f"Note: {line}.", colour="yellow") for line in self.caveats]
        blocks += [Text(line) for line in self._not_scored()]
        if next_step := self.next_step:
            blocks.append(Text(f"Next: {next_step}."))
        if (table := retry_table(self.uncounted)) is not None:
            blocks.append(table)
        warnings = self.warnings[len(self.caveats) :]
        blocks += [Text(f"Warning: {warning}", colour="yellow") for warning in warnings[:MOST_WARNINGS]]
        if (left := len(warnings) - MOST_WARNINGS) > 0:
            blocks.append(Text(f"Warning: {left} more with --verbose."))
        if self.registration is not None:
            blocks += [Text(line) for line in (self.registration.sentence, *self.registration.deviations)]
        blocks += self._asked_for()
        blocks.append(Text(f"{self.source}; --verbose shows effect sizes, tests and settings"))
        return blocks

    def _not_scored(self) -> Iterator[str]:
        """How many runs of which arms failed, and how many are missing, by metric."""
        said = {"failed": "counted with the failure score", "missing": "counted at both ends of what they could be"}
        for observations, (state, how) in product(self.observations, said.items()):
            arms = Counter(row.arm for row in observations.rows if row.state == state)
            if arms:
                of = f" on {observations.metric}" if len(self.observations) > 1 else ""
                named = ", ".join(f"{arm} {runs}" for arm, runs in list(arms.items())[:MOST_NAMED])
                more = f" and {len(arms) - MOST_NAMED} more arms" if len(arms) > MOST_NAMED else ""
                yield f"Runs {state}{of}: {sum(arms.values())} ({named}{more}), {how}."

    def blocks(self) -> list[Block]:
        blocks: list[Block] = [ranked_table(each) for each in self.standings]
        sentences = self.sequential.sentences if self.sequential else [each.sentence for each in self.comparisons]
        blocks += [Text(sentence) for sentence in sentences]
        if next_step := self.next_step:
            blocks.append(Text(f"Next: {next_step}."))
        blocks += [*self.details(), *self._beside_the_verdict()]
        if self.registration is not None:
            blocks.append(Notes("Registration", [self.registration.sentence, *self.registration.deviations]))
        blocks += self._asked_for()
        if (table := retry_table(self.uncounted)) is not None:
            blocks.append(table)
        blocks.append(Text(f"source: {self.source}"))
        blocks.append(Text(f"settings: {settings_in_words(self.settings)}"))
        return blocks

    def details(self) -> list[Block]:
        """Every number of every comparison."""
        if self.sequential is not None:
            return [self.sequential.table()]
        starts = range(0, len(self.comparisons), ABREAST)
        return [comparison_table(self.comparisons[start : start + ABREAST]) for start in starts]

    @property
    def caveats(self) -> list[str]:
        """Who wrote the values, and how much of them is estimated, by metric."""
        return [line for each in self.observations for line in each.caveats.sentences(each.metric)]

    @property
    def warnings(self) -> list[str]:
        """What limits the values first, then the first of those that differ only in their numbers, with the arms that they are about unless it is all."""
        texts: dict[tuple[str, ...], str] = {}
        arms: dict[tuple[str, ...], list[str]] = {}
        for comparison in self.comparisons:
            for caution in comparison.cautions:
                texts.setdefault(caution.kind, caution.text)
                arms.setdefault(caution.kind, []).append(comparison.candidate)
        for kind, names in arms.items():
            if len(names) < len(self.comparisons):
                shown = list(dict.fromkeys(names))
                more = f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else ""
                texts[kind] = f"{', '.join(shown[:MOST_NAMED])}{more}: {texts[kind]}"
        return [*self.caveats, *retry_warnings(self.uncounted), *texts.values()]

    def _asked_for(self) -> list[Block]:
        """What further options ask for: other methods, and every other metric."""
        blocks: list[Block] = []
        several = len(self.comparisons) > 1
        rows = [
            [*([each.metric, each.candidate] if several else []), line.name, format_p(line.p),
             format_interval(line.interval, in_table=True), line.note]
            for each in self.comparisons
            for line in each.methods
        ]  # fmt: skip
        if rows:
            headers = [*(["metric", "candidate"] if several else []), "method", "p", "interval", "note"]
            blocks.append(Table(headers, rows, "Other methods (they do not decide)", ("p",)))
        if self.exploratory:
            headers = ["metric", "candidate", "effect", "interval", "p", "p adjusted (BH)", "note"]
            rows = [
                [line.metric, line.candidate, number(line.effect, sign=True),
                 format_interval(line.interval, in_table=True), format_p(line.p), format_p(line.p_adjusted), line.note]
                for line in self.exploratory
            ]  # fmt: skip
            blocks.append(Table(headers, rows, "Exploratory: to look into, no verdict", headers[2:6]))
        return blocks

    def _beside_the_verdict(self) -> list[Block]:
        """Which test, the other population, what the campaign tool would say, and warnings."""
        several = len(self.comparisons) > 1
        others = [
            f"{each.candidate} on {each.metric}, {other.line}" if several else other.line
            for each in self.comparisons
            for other in (each.other, each.these_seeds)
            if other is not None
        ]
        words = recommendations(self.comparisons) if self.sequential is None else {}
        # The campaign's three words have none for this: "insufficient" would contradict the verdict.
        equivalent = {each.candidate for each in self.comparisons if each.verdict == "equivalent"}
        equivalent -= {each.candidate for each in self.comparisons if each.verdict == "undecided"}
        said = {arm: word for arm, word in words.items() if arm not in equivalent}
        notes = [
            Notes("Test", list(dict.fromkeys(each.chosen for each in self.comparisons if each.chosen))),
            Notes("Other population", others),
            Notes("Recommendation", [f"{arm}: {word}" if len(words) > 1 else word for arm, word in said.items()]),
            Notes("Warnings", self.warnings),
        ]
        return [note for note in notes if note.lines]


def answer(results: Results, question: Compare) -> CompareAnswer:
    """One family over the primary metrics; with `explore`, every other metric beside it."""
    metrics = question.metrics or results.primary()
    primary = primary_metrics(results, metrics)
    question = question.model_copy(update={"unpaired": question.unpaired or results.unpaired})
    if question.editions == "all" or (results.edition is not None and results.is_sequential):
        return _sequential_answer(results, question, metrics, primary)
    observations = [observe_metric(results, name, question) for name in metrics]
    registration = _registration(results, question, metrics)
    refuse_sequential(results, "a comparison across editions")
    covariate = None
    if question.covariate is not None:
        plain = {"bounds": None, "failure_score": None, "margin": None, "relative_margin": None}
        covariate = observe_metric(
            results, question.covariate, Compare(), results.analysis.model_copy(update=plain), directed=False
        )
    exploratory: list[Exploratory] = []
    if question.explore:
        left_out = {*metrics, question.covariate, *results.incidental}
        others = [name for name in results.metrics if name not in left_out][:MOST_EXPLORED]
        # A summary is of series; numbers of a run are taken as they are.
        as_is = question.model_copy(update={"summary": None})
        declared = results.analysis.model_copy(update={"summary": None})
        exploratory = explore_metrics(
            [
                observe_metric(results, name, question, directed=False)
                if name in results.logged
                else observe_metric(results, name, as_is, declared.about(name), directed=False)
                for name in others
            ],
            question,
        )
    shown = [each for each in observations if each.metric in primary]
    not_asked = [name for name in primary if name not in metrics]
    hidden = _known(results, question, not_asked) if not_asked else []
    absent = len(not_asked) - len(hidden)
    comparisons: list[Comparison] = []
    if shown:
        comparisons = compare(shown, question, hidden=hidden, absent=absent, covariate=covariate)
    if undeclared := [each for each in observations if each.metric not in primary]:
        comparisons += compare_exploratory(undeclared, question, covariate=covariate)
    changes = [changed_analysis(each, question) for each in (*shown, *hidden)]
    late = [change for change in changes[: len(shown)] if change.number]
    changed = None
    if late:
        changed = Changed(late, "analysis", _shown_first(results, question, changes, len(shown), absent))
    settings = compare_settings(observations, question, max(each.family for each in comparisons))
    others = [name for name in results.metrics if name not in metrics and name not in results.incidental]
    chosen = bool(others) and (not results.editions() or results.analysis.metric is None)
    return CompareAnswer(
        results.label, settings, comparisons, observations, question, exploratory, uncounted=results.uncounted,
        registration=registration, file=results.file,
        judged={each.metric: settings_of(each, question) for each in [*shown, *hidden]},
    ).remarked(
        changed=changed,
        choice=MetricChoice(tuple(metrics), len(metrics) + len(others)) if chosen else None,
    )  # fmt: skip


def _sequential_answer(
    results: Results, question: Compare, metrics: Sequence[str], primary: Sequence[str]
) -> CompareAnswer:
    """Judge runs that were added until it was decided, or all editions together, by e-processes.

    No test of fixed size is valid there. Raises UsageError for flags that would change the rule.
    """
    registration = None
    judged: dict[str, dict[str, Any]] = {}
    if question.editions == "all":
        from bakeoff.verdicts.sequential.combined import combine

        if question.unpaired or question.intersect:
            raise UsageError("editions are combined pair by pair; leave --unpaired and --intersect out")
        _refuse_undeclared(metrics, primary, results)
        report, observations = combine(results, question, metrics)
    else:
        from bakeoff.verdicts.sequential import evidence_path

        observations = [observe_metric(results, name, question) for name in metrics]
        registration = _registration(results, question, metrics)
        if question.analysis(results.analysis) != results.analysis or question.unpaired or question.intersect:
            raise UsageError(
                f"{results.label} was run until it was decided, and the rule that decided was fixed when it began; "
                "leave out the flags that change alpha, margin, summary, bounds, direction or pairing"
            )
        _refuse_undeclared(metrics, primary, results)
        report = evidence_path.report(results, metrics, question)
        judged = {each.metric: settings_of(each, question) for each in observations}
    settings = compare_settings(observations, question, len(report.comparisons))
    return CompareAnswer(
        results.label, settings, report.comparisons, observations, question, sequential=report,
        uncounted=results.uncounted, registration=registration, judged=judged,
    )  # fmt: skip


def _registration(results: Results, question: Compare, metrics: Sequence[str]) -> Registration | None:
    """Return how this analysis stands to the registered one; None where none was registered."""
    if results.edition is None or not results.edition.paths.registration.exists():
        return None
    from bakeoff.verdicts.sequential import prereg

    return prereg.check(results.edition, question.analysis(results.analysis), question, metrics)


def _shown_first(
    results: Results, question: Compare, changes: Sequence[Change], shown: int, absent: int
) -> list[Earlier]:
    """Judge the family by the analysis that was shown first; of its metrics the first `shown` are asked for."""
    late = {change.metric: change for change in changes[:shown] if change.number}
    first = next(iter(late.values())).first
    asked = Compare(
        control=question.control,
        arms=question.arms,
        unpaired=bool(first.get("unpaired")),
        intersect=bool(first.get("intersect")),
    )
    try:
        earlier = [
            observe_metric(results, each.metric, asked, first_analysis(each, results.analysis.about(each.metric)))
            for each in changes
        ]
        compared = compare(earlier[:shown], asked, hidden=earlier[shown:], absent=absent, changes=0, verdict_only=True)
    except UsageError:  # only means were shown, and the declared analysis does not fit these runs
        return []
    return [
        Earlier(each.metric, each.candidate, each.verdict, each.p_adjusted) for each in compared if each.metric in late
    ]


def _known(results: Results, question: Compare, names: Sequence[str]) -> list[Observations]:
    """Those of these metrics that runs have. Primary ones share alpha with those that were asked for."""
    known = []
    for name in names:
        try:
            known.append(observe_metric(results, name, question))
        except UsageError:
            continue
    return known


def _refuse_undeclared(metrics: Sequence[str], primary: Sequence[str], results: Results) -> None:
    """An e-process has a verdict at every look, so a metric that may have been chosen by its values gets none."""
    if undeclared := [name for name in metrics if name not in primary]:
        raise UsageError(
            f"{undeclared[0]}: was not declared before the first result of {results.label}, so this test does not judge "
            f"it; leave --metric out, or start a new edition with it in analysis.primary"
        )


def compare_settings(observations: Sequence[Observations], question: Compare, comparisons: int) -> dict[str, Any]:
    """What a comparison rests on."""
    first, analysis = observations[0], observations[0].analysis
    return {
        "metrics": [each.metric for each in observations],
        "summary": analysis.summary.model_dump(exclude_none=True) if analysis.summary else None,
        "directions": {each.metric: each.analysis.direction or "maximize" for each in observations},
        "directions_assumed": [each.metric for each in observations if each.analysis.direction is None],
        "alpha": analysis.alpha,
        "margin": analysis.margin,
        "relative_margin": analysis.relative_margin,
        "bounds": list(analysis.bounds) if analysis.bounds else None,
        "failure_score": analysis.failure_score,
        "tasks": first.population,
        "seeds": analysis.seeds,
        "cluster": analysis.cluster,
        "ties": analysis.ties,
        "statistic": analysis.statistic,
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
        **asdict(comparison.sizes),
        **asdict(comparison.detectable),
        **{name: getattr(comparison, name) for name in _AS_IS_TOO},
        "other": comparison.other.line if comparison.other else "",
        "these_seeds": comparison.these_seeds.line if comparison.these_seeds else "",
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
            "effect": number(each.effect, sign=True),
            "effect is the": "" if each.design.statistic == "mean" else each.design.estimand,
            "lift": percent(each.lift, sign=True),
            "interval": format_interval(each.interval, in_table=True),
            "decision interval": format_interval(each.decision_interval, in_table=True),
            "p": format_p(each.p, decision.floor),
            "p adjusted": format_p(each.p_adjusted),
            "p exact": format_p(each.p_exact),
            "p of equivalence": format_p(decision.p_eq_adjusted),
            "interval of equivalence": format_interval(each.equivalence_interval, in_table=True),
            "bootstrap, skew check": format_interval(skew, in_table=True),
            "Cohen's d": number(each.sizes.cohens_d),
            "d of the pairs (dz)": number(each.sizes.cohens_dz),
            "Hedges' g": number(each.sizes.hedges_g),
            "P(improvement)": number(each.sizes.improvement),
            "correlation of the arms": number(each.sizes.correlation),
            "variance saved by pairing": percent(each.sizes.variance_reduction, sign=True),
            "effect detected with 80 % power": number(each.detectable.mde),
            "units for the margin": number(each.detectable.units_for_margin),
            "units": str(each.units),
            "runs missing": str(each.missing),
            "runs failed": str(each.failed),
        }
        columns.append(column)
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    title = comparisons[0].metric if not several else ""
    return Table(["", *heads], [row for row in rows if not set(row[1:]) <= {NOTHING, ""}], title, heads)


def settings_in_words(settings: Any) -> str:
    """`maximize score; alpha 0.05; tasks sample; ...`: what is not set is left out."""
    said = {
        key: value
        for key, value in settings.items()
        if key not in ("metrics", "directions", "directions_assumed", "columns")
        and value is not None
        and value is not False
        and value not in ("half", "mean")
    }
    directions = ", ".join(f"{direction} {metric}" for metric, direction in settings["directions"].items())
    return "; ".join([directions, *(f"{key} {_in_words(value)}" for key, value in said.items())])


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{item}" if key == "type" else f"{key} {item}" for key, item in value.items())
    return " to ".join(map(str, value)) if isinstance(value, list) else "yes" if value is True else str(value)


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"
