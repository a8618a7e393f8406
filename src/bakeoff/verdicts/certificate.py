"""A certificate of a comparison: rows, question and decisions, from which others can recompute every number.

`scripts/verify.py` does so with the standard library alone; docs/certificates.md defines each field and each number. A
certificate has the whole family, whichever part of it was printed, because the level of each comparison depends on all
of them. It has facts and no sentences.

    write_certificate(results, answer, Path("v.json"))
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import UsageError
from bakeoff.results.table import Results
from bakeoff.stats.evidence import Interval
from bakeoff.verdicts.answer import observe_metric
from bakeoff.verdicts.comparison import Comparison, compare
from bakeoff.verdicts.family import changed_analysis, choose_arms, planned_family, primary_metrics
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Compare
from bakeoff.version import __version__

if TYPE_CHECKING:
    from bakeoff.verdicts.questions.compare import CompareAnswer

VERSION = 1
COLUMNS = ("arm", "task", "seed", "rollout", "outcome", "value")
"""Of each row. `value` is null unless the outcome is `scored`."""


def write_certificate(results: Results, answer: CompareAnswer, path: Path) -> None:
    """Write the certificate of an answer. Raises UsageError where there is none."""
    path.write_text(json.dumps(certificate(results, answer), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def certificate(results: Results, answer: CompareAnswer) -> dict[str, Any]:
    """Return the certificate of an answer. Raises UsageError where a comparison of its family cannot be judged."""
    if answer.sequential is not None:
        raise UsageError("--certificate: a sequential test has none; --output writes its evidence path")
    question = answer.question.model_copy(update={"arms": (), "methods": (), "covariate": None})
    asked = question.metrics or results.primary()
    primary = primary_metrics(results, asked)
    known = {each.metric: each for each in answer.observations}
    observed = [known.get(name) or observe_metric(results, name, question) for name in primary if _has(results, name)]
    if not observed:
        raise UsageError(f"--certificate: {', '.join(asked)} was not declared, so it has no verdict to certify")
    comparisons = compare(observed, question, absent=len(primary) - len(observed), verdict_only=True)
    judged = [each for each in comparisons if each.reason != "exploratory"]
    facts = {
        "certificate": VERSION,
        "bakeoff": __version__,
        "sources": _sources(results),
        "question": _question(observed, question, primary),
        "groups": {name: dict(groups) for name, groups in observed[0].groups.items()},
        "columns": list(COLUMNS),
        "rows": {each.metric: [_row(row) for row in each.rows] for each in observed},
        "decisions": [decision_facts(each) for each in judged],
    }
    return {**facts, "sha256": digest(facts)}


def digest(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a certificate without its own digest, as canonical JSON: sorted keys, no spaces, ASCII."""
    body = {name: value for name, value in facts.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def _has(results: Results, metric: str) -> bool:
    return any(row.has(metric) for row in results.rows)


def _sources(results: Results) -> list[dict[str, str]]:
    """Name the files that the runs were read from, with their digests; a directory or an edition has none."""
    files = [path for path in results.sources if path.is_file()]
    return [{"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in files]


def _question(observed: Sequence[Observations], question: Compare, primary: Sequence[str]) -> dict[str, Any]:
    """Return what was fixed before results, and what was asked."""
    first = observed[0]
    family, declared = planned_family(first, question, len(primary)), first.declared
    arms = list(declared.arms) if declared is not None else first.arms
    control = choose_arms(first, question)[0]
    planned = control if declared is None else declared.analysis.control or arms[0]
    return {
        "control": control,
        "planned": {"control": planned, "arms": arms, "candidates": list(family.candidates)},
        "primary": list(primary),
        "unpaired": question.unpaired,
        "intersect": question.intersect,
        "simultaneous": question.simultaneous,
        "metrics": {each.metric: _metric(each, question) for each in observed},
    }


def _metric(observations: Observations, question: Compare) -> dict[str, Any]:
    """Return how one metric is judged. A failure score and a range are those of the number that is compared."""
    analysis, change = observations.analysis, changed_analysis(observations, question)
    return {
        "direction": "maximize" if observations.larger_is_better else "minimize",
        "alpha": change.alpha if change.number else analysis.alpha,
        "margin": analysis.margin,
        "relative_margin": analysis.relative_margin,
        "bounds": None if observations.bounds is None else list(observations.bounds),
        "failure_score": observations.failure_score,
        "tasks": observations.population,
        "seeds": analysis.seeds,
        "cluster": analysis.cluster,
        "ties": analysis.ties,
        "statistic": analysis.statistic,
        "registered_units": analysis.final,
        "final": observations.final,
        "changes": change.number,
        "looks": observations.stages,
    }


def _row(row: Observation) -> list[Any]:
    value = row.value if row.state == "scored" else None
    return [row.arm, row.task, row.seed, row.rollout, row.state, value]


def decision_facts(comparison: Comparison) -> dict[str, Any]:
    """Return one decision; effect and intervals are B - A in the metric's own unit."""
    decision = comparison.decision
    return {
        "metric": comparison.metric,
        "control": comparison.control,
        "candidate": comparison.candidate,
        "verdict": comparison.verdict,
        "reason": comparison.reason,
        "differs": decision.differs,
        "method": decision.method,
        "unit": comparison.design.unit,
        "units": comparison.units,
        "missing": comparison.missing,
        "family": comparison.family,
        "effect": None if decision.effect is None else comparison.design.sign * decision.effect,
        "p": decision.p,
        "p_adjusted": decision.p_adjusted,
        "p_eq": decision.p_eq,
        "p_eq_adjusted": decision.p_eq_adjusted,
        "interval": _ends(comparison.interval),
        "decision_interval": _ends(comparison.decision_interval),
        "equivalence_interval": _ends(comparison.equivalence_interval),
    }


def _ends(interval: Interval | None) -> dict[str, float | None] | None:
    """Return an interval as JSON can have it: an infinite end is null."""
    if interval is None:
        return None
    low, high = (end if math.isfinite(end) else None for end in (interval.low, interval.high))
    return {"low": low, "high": high, "level": interval.level}
