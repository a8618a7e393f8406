"""Which of many arms is the best: arms leave a sequential test one by one, and the last one is named.

An arm leaves when any arm that is still in has beaten it, and gets no more seeds. `left` is not `worse`: that would be a
claim about every pair of arms and needs k(k-1)/alpha, as the comparisons beside it have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bakeoff.stats.sequential import LogE, race
from bakeoff.text import number
from bakeoff.verdicts.designs import build_design
from bakeoff.verdicts.observations import Observations


@dataclass(frozen=True, slots=True)
class Runner:
    """One arm of the race."""

    arm: str
    pairs: int
    """Pairs that it took part in."""
    mean: float | None
    """Over those pairs, in the metric's own direction."""
    left_at: int | None
    left_to: str | None
    e: float
    """The strongest evidence against it at its last pair."""


@dataclass(frozen=True, slots=True)
class RaceReport:
    """Every arm, the ones that are still in first, the leader before all others."""

    metric: str
    runners: tuple[Runner, ...]
    pairs: int
    planned: int
    threshold: float
    alpha: float

    @property
    def survivors(self) -> list[str]:
        return [runner.arm for runner in self.runners if runner.left_at is None]

    @property
    def best(self) -> str | None:
        """The only arm that is left."""
        return self.survivors[0] if len(self.survivors) == 1 else None

    @property
    def stopped(self) -> bool:
        return self.best is not None or self.pairs >= self.planned

    @property
    def sentence(self) -> str:
        count = len(self.runners)
        if self.best is not None:
            last = max(runner.left_at or 0 for runner in self.runners)
            return (
                f"Best: {self.best} of {count} arms on {self.metric}, from pair {last} on; an arm is named wrongly in at "
                f"most {100 * self.alpha:g} % of such experiments."
            )
        names = ", ".join(self.survivors[:12]) + (" ..." if len(self.survivors) > 12 else "")
        where = f"the planned end of {self.planned} pairs" if self.stopped else f"{self.pairs} of {self.planned} pairs"
        return (
            f"Undecided: {len(self.survivors)} of {count} arms are left on {self.metric} at {where}: {names}. The best arm "
            f"is among them, except in at most {100 * self.alpha:g} % of such experiments."
        )

    def rows(self) -> list[list[str]]:
        """For a table: arm, pairs, mean, where it left and to whom, evidence against it."""
        return [
            [runner.arm, str(runner.pairs), number(runner.mean), "in" if runner.left_at is None else f"left at {runner.left_at}",
             runner.left_to or "", number(runner.e), f"{self.threshold:g}"]
            for runner in self.runners
        ]  # fmt: skip

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "best": self.best, "survivors": self.survivors}


def follow(
    observations: Observations | None,
    metric: str,
    arms: Sequence[str],
    ended: Mapping[str, Mapping[Any, None]],
    planned: int,
    alpha: float,
    log_e: LogE,
) -> RaceReport:
    """Where the race stands. `ended` has the leading seeds of each arm whose runs have all ended, in plan order."""
    longest = max(ended.values(), key=len)
    bad, good = (np.full((len(arms), max(1, len(longest))), np.nan) for _ in range(2))
    sign = 1.0
    for place, arm in enumerate(arms):
        if observations is None or not ended[arm]:
            continue
        rows = [row for row in observations.rows if row.arm != arm or row.seed in ended[arm]]
        fixed = observations.analysis.model_copy(update={"tasks": "fixed"})
        design = build_design(replace(observations, rows=rows, analysis=fixed), arm, arm)
        sign = design.sign
        known = len(ended[arm])
        bad[place, :known], good[place, :known] = design.seed_ends(tuple(ended[arm]))
    result = race(bad, good, [min(planned, len(ended[arm])) for arm in arms], alpha, log_e)
    runners = []
    for place, arm in enumerate(arms):
        left = int(result.left_at[place])
        pairs = left or result.pairs
        values = (bad[place, :pairs] + good[place, :pairs]) / 2.0
        mean = sign * float(np.nanmean(values)) if np.isfinite(values).any() else None
        to = arms[int(result.left_to[place])] if left else None
        e = math.exp(min(float(result.evidence[place]), 700.0))
        runners.append(Runner(arm, pairs, mean, left or None, to, e))
    # The last to leave come right behind those that are in; among equals the larger mean is first.
    runners.sort(
        key=lambda each: (-(each.left_at or planned + 1), -sign * (each.mean if each.mean is not None else 0.0))
    )
    threshold = 2.0 * (len(arms) - 1) / alpha
    return RaceReport(metric, tuple(runners), result.pairs, planned, threshold, alpha)
