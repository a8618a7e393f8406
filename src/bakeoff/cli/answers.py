"""What `compare` prints and writes: for people, as JSON, as Markdown and as CSV. All of them carry the settings."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from bakeoff.cli.display import NOTHING, number, print_facts, print_table, printable
from bakeoff.interop.asking import Answer
from bakeoff.stats.evidence import Interval
from bakeoff.verdicts.compare import Comparison
from bakeoff.verdicts.describe import unit_values
from bakeoff.verdicts.wording import format_level, format_p
from bakeoff.version import __version__

ABREAST = 4
"""Comparisons beside each other in one table."""
DESCRIBED = (
    "metric", "control", "candidate", "verdict", "reason", "sentence", "population", "units", "control_mean",
    "candidate_mean", "effect", "lift", "p", "p_adjusted", "p_exact", "cohens_d", "cohens_dz", "hedges_g", "improvement",
    "correlation", "variance_reduction", "mde", "units_for_margin", "missing", "failed", "seen_ends", "other", "campaign",
    "chosen",
)  # fmt: skip
"""Fields of a comparison that JSON has as they are."""


def settings(answer: Answer) -> dict[str, Any]:
    return {**answer.settings, "version": __version__}


# -- JSON


def as_json(answer: Answer) -> dict[str, Any]:
    if answer.sequential is not None:
        from bakeoff.cli.sequential import facts

        return {
            "source": answer.source,
            "settings": settings(answer),
            "sequential": facts(answer.sequential),
            "registration": _registration(answer),
        }
    return {
        "source": answer.source,
        "settings": settings(answer),
        "final": answer.final,
        "registration": _registration(answer),
        "recommendations": answer.recommendations,
        "comparisons": [_comparison(one) for one in answer.comparisons],
        "exploratory": [
            {
                "metric": one.metric, "control": one.control, "candidate": one.candidate, "effect": one.effect,
                "interval": _interval(one.interval), "p": one.p, "p_adjusted": one.p_adjusted, "note": one.note,
            }
            for one in answer.exploratory
        ],
    }  # fmt: skip


def _registration(answer: Answer) -> dict[str, Any] | None:
    """Whether this is the analysis that was registered; None when nothing was."""
    found = answer.registration
    if found is None:
        return None
    return {**asdict(found), "kept": found.kept}


def _comparison(one: Comparison) -> dict[str, Any]:
    decision = one.decision
    return {
        **{name: getattr(one, name) for name in DESCRIBED},
        "interval": _interval(one.interval),
        "decision_interval": _interval(one.decision_interval),
        "equivalence_interval": _interval(one.equivalence_interval),
        "p_eq": decision.p_eq,
        "p_eq_adjusted": decision.p_eq_adjusted,
        "differs": decision.differs,
        "floor": decision.floor,
        "method": decision.method,
        "assumes": decision.assumes,
        "skew": None if one.skew is None else {**asdict(one.skew.interval), "sensitive": one.skew.sensitive},
        "methods": [
            {"name": line.name, "p": line.p, "interval": _interval(line.interval), "note": line.note}
            for line in one.methods
        ],
        "warnings": list(one.warnings),
    }


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    """An end that is infinite is null; an open end does not belong to the interval."""
    return None if interval is None else asdict(interval)


# -- for people


def show(answer: Answer) -> None:
    if answer.sequential is not None:
        from bakeoff.cli.sequential import show as show_sequential

        for followed in answer.sequential.comparisons:
            click.echo(printable(followed.sentence))
        click.echo()
        show_sequential(answer.sequential)
        _show_notes(_registered(answer))
        return
    for one in answer.comparisons:
        click.secho(printable(one.sentence), bold=True)
    for start in range(0, len(answer.comparisons), ABREAST):
        block = answer.comparisons[start : start + ABREAST]
        click.echo()
        print_table(["", *_heads(block)], table(block), right=_heads(block))
    _show_notes(notes(answer))
    _show_methods(answer)
    _show_exploratory(answer)
    click.echo()
    print_facts({"source": answer.source, "settings": _in_words(settings(answer))})


def _show_notes(found: Iterable[tuple[str, list[str]]]) -> None:
    for heading, lines in found:
        click.echo()
        click.secho(heading, bold=True)
        for line in lines:
            click.echo(f"  {printable(line)}")


def _heads(block: Sequence[Comparison]) -> list[str]:
    """Candidates; with the metric where that differs."""
    many = len({one.metric for one in block}) > 1
    return [f"{one.candidate} on {one.metric}" if many else one.candidate for one in block]


def table(block: Sequence[Comparison]) -> list[list[str]]:
    """One line for each quantity, one column for each comparison."""
    lines: list[tuple[str, list[str]]] = [
        ("verdict", [_verdict(one) for one in block]),
        ("mean", [number(one.candidate_mean) for one in block]),
        ("mean of the control", [number(one.control_mean) for one in block]),
        ("effect", [_signed(one.effect) for one in block]),
        ("lift", [_share(one.lift) for one in block]),
        ("interval", [_shown(one.interval) for one in block]),
        ("decision interval", [_shown(one.decision_interval) for one in block]),
        ("p", [format_p(one.p, one.decision.floor) for one in block]),
        ("p adjusted", [format_p(one.p_adjusted) for one in block]),
        ("p exact", [format_p(one.p_exact) for one in block]),
        ("p of equivalence", [format_p(one.decision.p_eq_adjusted) for one in block]),
        ("interval of equivalence", [_shown(one.equivalence_interval) for one in block]),
        ("bootstrap, skew check", [_shown(one.skew.interval if one.skew else None) for one in block]),
        ("Cohen's d", [number(one.cohens_d) for one in block]),
        ("d of the pairs (dz)", [number(one.cohens_dz) for one in block]),
        ("Hedges' g", [number(one.hedges_g) for one in block]),
        ("P(improvement)", [number(one.improvement) for one in block]),
        ("correlation of the arms", [number(one.correlation) for one in block]),
        ("variance saved by pairing", [_share(one.variance_reduction) for one in block]),
        ("effect found with 80 % power", [number(one.mde) for one in block]),
        ("units for the margin", [number(one.units_for_margin) for one in block]),
        ("units", [str(one.units) for one in block]),
        ("runs missing", [str(one.missing) for one in block]),
        ("runs failed", [str(one.failed) for one in block]),
    ]
    return [[name, *cells] for name, cells in lines if set(cells) != {NOTHING}]


def notes(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """Which test, the other population, what the campaign tool would say, and what to be careful about."""
    found = answer.comparisons
    yield "Test", list(dict.fromkeys(one.chosen for one in found))
    if any(one.other for one in found):
        prefix = {id(one): f"{one.candidate} on {one.metric}, " if len(found) > 1 else "" for one in found}
        yield "Other population", [f"{prefix[id(one)]}{one.other}" for one in found if one.other]
    words = answer.recommendations
    yield "Recommendation", [f"{arm}: {word}" if len(words) > 1 else word for arm, word in words.items()]
    warnings = list(dict.fromkeys(warning for one in found for warning in one.warnings))
    if warnings:
        yield "Warnings", warnings
    yield from _registered(answer)


def _registered(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    if answer.registration is not None:
        yield "Registration", [answer.registration.sentence, *answer.registration.deviations]


def _show_methods(answer: Answer) -> None:
    if not any(one.methods for one in answer.comparisons):
        return
    click.echo()
    rows = [
        [*_who(answer, one), line.name, format_p(line.p), _shown(line.interval), line.note]
        for one in answer.comparisons
        for line in one.methods
    ]
    headers = [*_who_heads(answer), "method", "p", "interval", "note"]
    print_table(headers, rows, right=("p",), title="Other methods (they do not vote)")


def _show_exploratory(answer: Answer) -> None:
    if not answer.exploratory:
        return
    click.echo()
    rows = [
        [one.metric, one.candidate, _signed(one.effect), _shown(one.interval), format_p(one.p), format_p(one.p_adjusted), one.note]
        for one in answer.exploratory
    ]  # fmt: skip
    headers = ["metric", "candidate", "effect", "interval", "p", "p adjusted (BH)", "note"]
    print_table(headers, rows, right=headers[2:6], title="Exploratory: to look into, no verdict")


def _who_heads(answer: Answer) -> list[str]:
    return ["metric", "candidate"] if len(answer.comparisons) > 1 else []


def _who(answer: Answer, one: Comparison) -> list[str]:
    return [one.metric, one.candidate] if len(answer.comparisons) > 1 else []


def _verdict(one: Comparison) -> str:
    reason = one.reason.replace("_", " ")
    return f"{one.verdict} ({reason})" if reason and reason != "inconclusive" else one.verdict


def _signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.4g}"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:+.3g} %"


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return NOTHING
    return f"{interval.low:.4g} to {interval.high:.4g} ({format_level(interval.level)})"


def _in_words(found: dict[str, Any]) -> str:
    told = ("metrics", "directions")
    said = {k: v for k, v in found.items() if k not in told and v is not None and v is not False}
    directions = ", ".join(f"{direction} {metric}" for metric, direction in found["directions"].items())
    return "; ".join([directions, *(f"{key} {_plain(value)}" for key, value in said.items())])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{item}" if key == "type" else f"{key} {item}" for key, item in value.items())
    return " to ".join(map(str, value)) if isinstance(value, list) else "yes" if value is True else str(value)


# -- Markdown


def markdown(answer: Answer) -> str:
    out = ["# Comparison", ""]
    if answer.sequential is not None:
        out += [f"- {one.sentence}" for one in answer.sequential.comparisons]
    out += [f"- **{one.verdict}** {one.sentence}" for one in answer.comparisons]
    for start in range(0, len(answer.comparisons), ABREAST):
        block = answer.comparisons[start : start + ABREAST]
        out += ["", *table_lines(["", *_heads(block)], table(block))]
    for heading, lines in notes(answer) if answer.comparisons else _registered(answer):
        out += ["", f"## {heading}", "", *(f"- {line}" for line in lines)]
    lines_of_methods = [
        [one.metric, one.candidate, line.name, format_p(line.p), _shown(line.interval), line.note]
        for one in answer.comparisons
        for line in one.methods
    ]
    if lines_of_methods:
        out += ["", "## Other methods", "", "They do not vote.", ""]
        out += table_lines(["metric", "candidate", "method", "p", "interval", "note"], lines_of_methods)
    if answer.exploratory:
        rows = [
            [o.metric, o.candidate, _signed(o.effect), _shown(o.interval), format_p(o.p_adjusted)]
            for o in answer.exploratory
        ]
        out += ["", "## Exploratory", "", "To look into; no verdict.", ""]
        out += table_lines(["metric", "candidate", "effect", "interval", "p adjusted (BH)"], rows)
    out += ["", f"Source: {answer.source}. Settings: {_in_words(settings(answer))}.", ""]
    return "\n".join(out)


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (headers, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"|{'---|' * len(headers)}", *lines[1:]]


# -- CSV

CSV_COLUMNS = (
    "group", "label", "value_or_control", "candidate_value_optional", "metric", "control", "candidate", "verdict",
    "p", "p_adjusted", "test", "units", "summary", "alpha", "margin", "tasks", "seeds", "seed", "version",
)  # fmt: skip


def csv_text(answer: Answer) -> str:
    """Every pair (or every value of each arm), then effect and interval; the settings stand in every row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    told = settings(answer)
    summary = _plain(told["summary"]) if told["summary"] else ""
    for one in answer.comparisons:
        common = [
            one.metric, one.control, one.candidate, one.verdict, _digits(one.p), _digits(one.p_adjusted),
            one.decision.method, one.units, summary, told["alpha"], _digits(told["margin"]), told["tasks"], told["seeds"],
            told["seed"], told["version"],
        ]  # fmt: skip
        for group, label, first, second in _csv_rows(one):
            writer.writerow([group, label, _digits(first), _digits(second), *common])
    return out.getvalue()


def _csv_rows(one: Comparison) -> Iterator[tuple[str, str, float | None, float | None]]:
    assert one.design is not None
    for unit in unit_values(one.design):
        if one.design.matched:
            yield "paired", unit.label, unit.control, unit.candidate
        else:
            group, value = ("candidate", unit.candidate) if unit.control is None else ("control", unit.control)
            yield group, unit.label, value, None
    yield "result", "effect", one.effect, None
    yield "result", "ci_low", one.interval.low if one.interval else None, None
    yield "result", "ci_high", one.interval.high if one.interval else None, None


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"
