"""Make a table of runs from simulated values, and a verdict from the table, on the same path as a user's runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.compare import Comparison, compare
from bakeoff.verdicts.observations import Observation, Observations
from calibrate.laws import Array, Rng

Counts = dict[str, Array]
"""For each outcome one number per replicate: 1 or 0, or a number of pairs."""
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """Many replicates at once. `metrics[name][arm]` has the shape (replicates, tasks, seeds, rollouts)."""

    metrics: Mapping[str, Mapping[str, Array]]
    effect: float = 0.0
    """The true value of B - A."""

    @property
    def replicates(self) -> int:
        return len(next(iter(next(iter(self.metrics.values())).values())))

    def arm(self, name: str) -> Array:
        return self.metrics["score"][name]


def two_arms(control: Array, candidate: Array, effect: float = 0.0) -> Batch:
    return Batch({"score": {"A": control, "B": candidate}}, effect)


@dataclass(frozen=True, slots=True)
class Judge:
    """How tables are judged, and whether arms share seeds."""

    analysis: Analysis = field(default_factory=Analysis)
    seeds_shared: bool = True

    def tables(self, batch: Batch) -> Iterator[list[Observations]]:
        """Yield one family of tables for each replicate."""
        for r in range(batch.replicates):
            yield [
                Observations(name, list(self._rows({arm: values[r] for arm, values in arms.items()})), self.analysis)
                for name, arms in batch.metrics.items()
            ]

    def _rows(self, arms: Mapping[str, Array]) -> Iterator[Observation]:
        for arm, values in arms.items():
            many = values.shape[0] > 1
            for (task, seed, rollout), value in np.ndenumerate(values):
                place = f"task {task:02}" if many else "default"
                yield Observation(arm, place, seed if self.seeds_shared else None, rollout, "scored", float(value))

    def count(self, batch: Batch) -> Counts:
        """The verdict of `compare` for every replicate."""
        found: dict[str, list[bool]] = {name: [] for name in _OUTCOMES}
        for family in self.tables(batch):
            comparisons = compare(family, verdict_only=True)
            for name, outcome in _OUTCOMES.items():
                found[name].append(outcome(comparisons, batch.effect))
        return {name: np.array(values, dtype=np.float64) for name, values in found.items()}


def _any_interval_misses(family: list[Comparison], effect: float) -> bool:
    return any(one.decision.interval is None or one.decision.interval.excludes(effect) for one in family)


_OUTCOMES: dict[str, Callable[[list[Comparison], float], bool]] = {
    "decided": lambda family, effect: any(one.verdict in ("better", "worse") for one in family),
    "equivalent": lambda family, effect: any(one.verdict == "equivalent" for one in family),
    "covered": lambda family, effect: not _any_interval_misses(family, effect),
    "unadjusted": lambda family, effect: any(one.p is not None and one.p <= ALPHA for one in family),
}


Draw = Callable[[Rng, int], Batch]
