"""Everything that says something about one random table, side by side: renderers, Python, `gate`, `rank` and `litmus`."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from random_tables import RandomTable

import bakeoff
from bakeoff.cli import main
from bakeoff.errors import UsageError
from bakeoff.verdicts.answer import answer, as_csv, as_html, as_json, as_markdown, as_text
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.question import Compare, Gate, Litmus, Rank
from bakeoff.verdicts.questions.compare import CompareAnswer
from bakeoff.verdicts.questions.gate import policy
from bakeoff.verdicts.questions.litmus import Rules

TABLE_ROW = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.DOTALL)


def disagreements(table: RandomTable) -> Iterator[str] | None:
    """Yield what does not agree about one table; None where `compare` refuses it."""
    try:
        answered = answer(table.results(), table.question(Compare))
    except UsageError:
        return None
    return _disagreements(table, answered)


def _disagreements(table: RandomTable, answered: CompareAnswer) -> Iterator[str]:
    facts = json.loads(as_json(answered))["comparisons"]
    for each, fact in zip(answered.comparisons, facts, strict=True):
        for name in ("verdict", "reason", "p", "p_adjusted", "units", "effect"):
            if fact[name] != getattr(each, name):
                yield f"JSON: {name} {fact[name]} and {getattr(each, name)}"
    shown = [_in_table(each) for each in answered.comparisons]
    text = [line.split() for line in as_text(answered, verbose=True).splitlines() if line.startswith("verdict ")]
    if " ".join(word for line in text for word in line[1:]) != " ".join(shown):
        yield f"text: {text} and {shown}"
    markdown = [line.split("|")[2:-1] for line in as_markdown(answered).splitlines() if line.startswith("| verdict ")]
    if [cell.strip() for line in markdown for cell in line] != shown:
        yield f"Markdown: {markdown} and {shown}"
    html = [[unescape(cell) for cell in TABLE_ROW.findall(row)] for row in as_html(answered).split("<tr")]
    if [cell for row in html if row[:1] == ["verdict"] for cell in row[1:]] != shown:
        yield f"HTML: {[row for row in html if row[:1] == ['verdict']]} and {shown}"
    yield from _csv(answered)
    yield from _python(table, answered)
    for each in answered.comparisons:
        if not table.asked.get("strict"):
            yield from _gate(table, each)
    if len(answered.comparisons) == 1 and not each.missing and not each.failed:
        yield from _litmus(table, each)
        yield from _rank(table, each)


def _in_table(each: Comparison) -> str:
    reason = each.reason.replace("_", " ")
    return f"{each.verdict} ({reason})" if reason and reason != "inconclusive" else each.verdict


def _csv(answered: CompareAnswer) -> Iterator[str]:
    said = {}
    for row in csv.DictReader(io.StringIO(as_csv(answered))):
        said[row["metric"], row["candidate"]] = row["verdict"], row["p"], row["p_adjusted"]
    for each in answered.comparisons:
        numbers = [f"{p:.9g}" if p is not None else "" for p in (each.p, each.p_adjusted)]
        if said[each.metric, each.candidate] != (each.verdict, *numbers):
            yield f"CSV: {said[each.metric, each.candidate]} and {each.verdict}, {numbers}"


def _python(table: RandomTable, answered: CompareAnswer) -> Iterator[str]:
    """Yield where Python, which reads the rows as a table of its own, has another verdict."""
    try:
        verdicts = bakeoff.compare(table.rows, **table.asked)
    except UsageError:  # the columns of a small table can be ambiguous
        return
    for each, other in zip(answered.comparisons, verdicts, strict=True):
        if (each.verdict, each.reason) != (other.verdict, other.reason) or not _close(each.p, other.p):
            yield f"Python: {other.verdict} {other.reason} {other.p} and {each.verdict} {each.reason} {each.p}"


def _gate(table: RandomTable, each: Comparison) -> Iterator[str]:
    """Yield where a gate passes or fails an improvement of which `compare` says the opposite."""
    [direction] = [text.partition("=")[2] for text in table.asked["direction"] if text.startswith(f"{each.metric}=")]
    rules = policy({"metrics": {each.metric: {"must_improve": True, "direction": direction}}})
    others = ("metric", "direction", "margin", "relative_margin", "strict")
    asked = {name: value for name, value in table.asked.items() if name not in others}
    [check] = answer(table.results(), Gate.ask(**asked, arms=(each.candidate,), policy=rules)).checks
    if (check.outcome == "pass" and each.verdict == "worse") or (check.outcome == "fail" and each.verdict == "better"):
        yield f"gate: {check.outcome} and {each.verdict}"


def _litmus(table: RandomTable, each: Comparison) -> Iterator[str]:
    """Yield where a rule that asks for the verdict says something else."""
    margin = table.asked.get("margin")
    if "relative_margin" in table.asked or table.asked.get("bounds"):
        return
    rule: dict[str, Any] = {"metric": each.metric, "direction": table.asked["direction"][0].partition("=")[2]}
    rule |= {"verdict": "better"} if margin is None else {"verdict": "equivalent", "margin": margin}
    rules = Rules.model_validate({"alpha": table.asked["alpha"], "rules": [rule]})
    others = ("metric", "direction", "margin", "control", "alpha", "failure_score")
    asked = {name: value for name, value in table.asked.items() if name not in others}
    try:
        found = answer(table.results(), Litmus.ask(**asked, rules=rules, baseline="A", candidate=each.candidate))
    except UsageError:  # it also shows the mean of each arm, which needs as many runs on every task
        return
    wanted = None if each.verdict == "undecided" else each.verdict == rule["verdict"]
    if found.checks[0].verdict != each.verdict or found.checks[0].passed != wanted:
        yield f"litmus: {found.checks[0].verdict} {found.checks[0].passed} and {each.verdict}"


def _rank(table: RandomTable, each: Comparison) -> Iterator[str]:
    """Yield where the means that a ranking shows differ by something else than the effect."""
    if "holes" in table.design or each.effect is None or each.design.unmatched is not None:
        return
    question = Rank.ask(metric=each.metric, direction=table.asked["direction"], resamples=100)
    means = {arm.arm: arm.mean.estimate for arm in answer(table.results(), question).ranking.arms}
    if not _close(means[each.candidate] - means[each.control], each.effect):
        yield f"rank: {means} and effect {each.effect}"


def _close(x: float | None, y: float | None) -> bool:
    return x == y or (x is not None and y is not None and math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9))


def on_the_command_line(table: RandomTable, path: Path) -> Iterator[str] | None:
    """Yield where `bakeoff compare FILE --json` says something else; None where it refuses the file."""
    table.write(path)
    command = ["compare", str(path), "--json"]
    for name, value in table.asked.items():
        option = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        for each in values:
            command += [option] if each is True else [option, *map(str, each if isinstance(each, tuple) else (each,))]
        if value is False:
            command = command[:-2]
    result = CliRunner().invoke(main, command)
    if result.exit_code == 2:
        return None
    told = json.loads(result.stdout)
    answered = answer(table.results(), table.question(Compare))
    pairs = zip(told["comparisons"], answered.comparisons, strict=True)
    return iter(
        f"command line: {fact['verdict']} {fact['p']} and {each.verdict} {each.p}"
        for fact, each in pairs
        if fact["verdict"] != each.verdict or not _close(fact["p"], each.p) or result.exit_code != answered.exit_code
    )
