"""The order in which arms and metrics are written changes no level, verdict or p, before and after a look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.comparison import compare
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Compare, Question
from bakeoff.verdicts.questions.gate import check, policy

ARMS = ("b", "c", "d")
METRICS = ("score", "speed")
ORDERS = [(arms, metrics) for arms in permutations(ARMS) for metrics in permutations(METRICS)]


def table(arms: Sequence[str], metric: str, grown: str, seeds: int, kind: str) -> Observations:
    """b is clearly better, c a little, d is c on the other metric; one arm may have seeds that were planned after a look."""
    rows = []
    for arm in ("a", *arms):
        shift = {"b": 1.5, "c": 0.7, "d": 0.7}.get(arm, 0.0)
        for seed in range(seeds + (3 if arm == grown else 0)):
            rng = np.random.default_rng([seed, *("c" if arm == "d" else arm).encode()])
            value = shift + 0.5 * float(rng.normal()) + (0.1 * float(rng.normal()) if metric == "speed" else 0.0)
            place = ("default", seed, 0) if kind == "seeds" else ("default", None, seed)
            rows.append(Observation(arm, *place, "scored", value, stage=int(seed >= seeds)))
    return Observations(metric, rows, Analysis(metric="score", primary=["speed"], control="a", margin=0.05))


def judged(arms: Sequence[str], metrics: Sequence[str], grown: str, seeds: int, kind: str) -> dict[str, Any]:
    """Everything that could depend on the order, by arm and metric."""
    tables = [table(arms, metric, grown, seeds, kind) for metric in metrics]
    compared = {
        f"{one.candidate} {one.metric}": (
            one.verdict, one.reason, one.p, one.p_adjusted, one.decision.p_eq_adjusted, one.interval,
            one.decision_interval, one.equivalence_interval, one.family,
        )
        for one in compare(tables, Compare(unpaired=kind == "rollouts", intersect=bool(grown) and kind == "seeds"))
    }  # fmt: skip
    rules = policy({"metrics": {metric: {"max_regression": 0.2, "must_improve": True} for metric in metrics}})
    question = Question(unpaired=kind == "rollouts", intersect=bool(grown) and kind == "seeds")
    gated = {
        f"{one.candidate} {one.metric} {one.rule}": replace(one, control="a")
        for one in check(tables, rules, question)
    }  # fmt: skip
    return compared | gated


@pytest.mark.parametrize("kind", ["seeds", "rollouts"])
@pytest.mark.parametrize("seeds", [5, 9])
@pytest.mark.parametrize("grown", ["", "b", "d"])
def test_the_order_of_arms_and_metrics_changes_nothing(kind: str, seeds: int, grown: str) -> None:
    first = judged(ARMS, METRICS, grown, seeds, kind)
    assert len(first) == 6 + 12
    for arms, metrics in ORDERS[1::3]:
        assert judged(arms, metrics, grown, seeds, kind) == first
