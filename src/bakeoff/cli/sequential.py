"""How verbs show what a sequential test says."""

from __future__ import annotations

import math
from typing import Any

from bakeoff.cli.display import number, print_table
from bakeoff.stats.evidence import Interval
from bakeoff.verdicts.sequential import SequentialComparison, SequentialReport, show_e


def facts(found: SequentialReport) -> dict[str, Any]:
    """Everything about it, as JSON has it."""
    return {
        "decided": found.decided,
        "stopped": found.stopped,
        "alpha": found.analysis.alpha,
        "margin": found.analysis.margin,
        **found.settings.model_dump(),
        "comparisons": [_comparison(one) for one in found.comparisons],
    }


def _comparison(one: SequentialComparison) -> dict[str, Any]:
    return {
        "metric": one.metric,
        "control": one.control,
        "candidate": one.candidate,
        "verdict": one.verdict,
        "reason": one.reason or None,
        "pairs": one.pairs,
        "decided_at": one.decided_at,
        "effect": one.effect,
        "confidence_sequence": [one.interval.low, one.interval.high],
        "level": one.interval.level,
        "p": one.p,
        "p_adjusted": one.p_adjusted,
        "e_better": [math.exp(min(value, 700.0)) for value in one.paths.better],
        "e_worse": [math.exp(min(value, 700.0)) for value in one.paths.worse],
        "threshold": one.threshold,
        "lost": one.lost,
        "failed": one.failed,
        "test": one.test,
        "assumes": one.assumes,
        "population": one.population,
        "sentence": one.sentence,
    }


def show(found: SequentialReport) -> None:
    """A line for each comparison, and a sentence."""
    headers = [
        "candidate",
        "metric",
        "verdict",
        "pairs",
        "effect",
        "confidence sequence",
        "e better",
        "e worse",
        "needed",
    ]
    rows = [
        [
            one.candidate, one.metric, one.verdict, f"{one.pairs} of {one.planned}", number(one.effect),
            _interval(one.interval), _e(one.paths.better), _e(one.paths.worse), f"{one.threshold:g}",
        ]
        for one in found.comparisons
    ]  # fmt: skip
    print_table(headers, rows, right=headers[3:])


def _e(path: Any) -> str:
    return show_e(float(path[-1])) if len(path) and math.isfinite(path[-1]) else "-"


def _interval(interval: Interval) -> str:
    return f"{interval.low:.4g} to {interval.high:.4g}"
