"""Make tables of runs from simulated values, and verdicts from the tables, on the same path as a user's runs.

The path from a table to arrays depends on labels only, and those are the same in every replicate of a cell. So it is
taken once for a cell, and the tests get all replicates as arrays (`bakeoff.stats.many`). In every chunk the first few
replicates, and all whose values are special (constant arms, only 0 and 1), go through `compare` as tables; the others
must agree with it, or the simulation stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bakeoff.spec.experiment import Analysis
from bakeoff.stats.many import Bools, Many
from bakeoff.verdicts.comparison import Comparison, compare
from bakeoff.verdicts.designs import Design, Rule, build_design
from bakeoff.verdicts.designs.replicates import Pairs, Samples
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.questions.gate import check, policy
from calibrate.laws import Array, Rng

Counts = dict[str, Array]
"""For each outcome one number per replicate: 1 or 0, or a number of pairs."""
ALPHA = 0.05
CHECKED = 5
"""Replicates of a chunk that are judged both ways."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Many replicates at once. `metrics[name][arm]` has the shape (replicates, tasks, seeds, rollouts)."""

    metrics: Mapping[str, Mapping[str, Array]]
    effect: float = 0.0
    """The true value of B - A."""

    @property
    def replicates(self) -> int:
        return len(self.arm("A"))

    def arm(self, name: str) -> Array:
        return self.metrics["score"][name]

    def only(self, rows: npt.NDArray[np.intp]) -> Batch:
        metrics = {name: {arm: v[rows] for arm, v in arms.items()} for name, arms in self.metrics.items()}
        return Batch(metrics, self.effect)

    def comparisons(self) -> list[tuple[Array, Array]]:
        """Control and candidate of every comparison of the family."""
        return [(arms["A"], values) for arms in self.metrics.values() for arm, values in arms.items() if arm != "A"]


def two_arms(control: Array, candidate: Array, effect: float = 0.0) -> Batch:
    return Batch({"score": {"A": control, "B": candidate}}, effect)


@dataclass(frozen=True, slots=True)
class Judge:
    """How tables are judged, and whether arms share seeds."""

    analysis: Analysis = field(default_factory=Analysis)
    seeds_shared: bool = True
    may_regress: float | None = None
    """Judge by `gate` instead: the regression that is allowed."""
    known: dict[tuple[bytes, float], dict[str, bool]] = field(default_factory=dict, compare=False, repr=False)
    """Outcomes of tables that were judged one by one."""

    def tables(self, batch: Batch, rows: Iterable[int] | None = None) -> Iterator[list[Observations]]:
        """Yield one family of tables for each replicate."""
        for r in rows if rows is not None else range(batch.replicates):
            yield [
                Observations(name, list(self._rows({arm: values[r] for arm, values in arms.items()})), self.analysis)
                for name, arms in batch.metrics.items()
            ]

    def _rows(self, arms: Mapping[str, Array]) -> Iterator[Observation]:
        for arm, values in arms.items():
            many = values.shape[0] > 1
            for (task, seed, rollout), value in np.ndenumerate(values):
                place = f"task {task:03}" if many else "default"
                yield Observation(arm, place, seed if self.seeds_shared else None, rollout, "scored", float(value))

    def count(self, batch: Batch) -> Counts:
        """The verdict for every replicate."""
        special = _special(batch)
        usual = np.flatnonzero(~special)
        names = _OUTCOMES if self.may_regress is None else ("passed",)
        counts = {name: np.zeros(batch.replicates, np.bool_) for name in names}
        if usual.size:
            for name, values in self._at_once(batch.only(usual)).items():
                counts[name][usual] = values
        for r in np.flatnonzero(special | (np.arange(batch.replicates) < CHECKED)):
            key = (self._key(batch, r), batch.effect)
            if key not in self.known:
                (family,) = self.tables(batch, [int(r)])
                outcomes = self.outcomes(family, batch.effect)
                if special[r]:
                    self.known[key] = outcomes
            else:
                outcomes = self.known[key]
            for name, outcome in outcomes.items():
                if special[r]:
                    counts[name][r] = outcome
                elif counts[name][r] != outcome:
                    raise AssertionError(f"replicate {r}: {name} is {counts[name][r]}, but its table gives {outcome}")
        return {name: values.astype(np.float64) for name, values in counts.items()}

    def outcomes(self, family: list[Observations], effect: float) -> dict[str, bool]:
        """What the verdict on one table counts as."""
        if self.may_regress is not None:
            rules = policy({"metrics": {"score": {"max_regression": self.may_regress}}})
            (checked,) = check(family, rules)
            return {"passed": checked.outcome == "pass"}
        comparisons = compare(family, verdict_only=True)
        return {name: outcome(comparisons, effect) for name, outcome in _OUTCOMES.items()}

    def _at_once(self, batch: Batch) -> dict[str, Bools]:
        pairs = batch.comparisons()
        alpha, family = ALPHA, len(pairs)
        (first,) = self.tables(batch, [0])
        design = build_design(first[0], "A", "B")
        many = [_many(design, a, b, alpha, family) for a, b in pairs]
        if self.may_regress is not None:
            return {"passed": many[0].rejects(-self.may_regress, alpha, guarded=True)[0]}
        rejected, unadjusted = (
            np.any([np.logical_or(*each.rejects(0.0, level / 2.0)) for each in many], axis=0)
            for level in (alpha / family, alpha)
        )
        equivalent = np.zeros(batch.replicates, np.bool_)
        if (margin := self.analysis.margin) is not None:
            equivalent = np.any([each.equivalent(margin, alpha / family) for each in many], axis=0)
        covered = np.all([each.covers(batch.effect, 1.0 - alpha) for each in many], axis=0)
        return {
            "decided": rejected & ~equivalent,
            "equivalent": equivalent,
            "covered": covered,
            "unadjusted": unadjusted,
        }

    def _key(self, batch: Batch, r: int) -> bytes:
        """Equal for replicates that differ in the order of their units only, of those with one task."""
        arms = [values[r] for each in batch.metrics.values() for values in each.values()]
        if arms[0].shape[0] > 1:
            return b"".join(arm.tobytes() for arm in arms)
        flat = [arm.ravel() for arm in arms]
        if self.seeds_shared:
            order = np.lexsort(flat)
            return b"".join(arm[order].tobytes() for arm in flat)
        return b"".join(np.sort(arm).tobytes() for arm in flat)


def _many(design: Design, a: Array, b: Array, alpha: float, family: int) -> Many:
    """All replicates of one comparison, (replicates, tasks, seeds, rollouts), as the test of its design sees them."""
    how = Rule(alpha, family)
    if design.paired:
        d = b.mean(axis=3) - a.mean(axis=3)
        tasks, seeds = np.indices(d.shape[1:]).reshape(2, -1)
        return Pairs(design, d.reshape(len(d), -1), tasks, seeds).many(how)
    return Samples(design, *(list(np.moveaxis(arm[:, :, 0], 1, 0)) for arm in (a, b))).many(how)


def _special(batch: Batch) -> Bools:
    """Replicates whose values choose another path: an arm that is constant on a task, or only 0 and 1."""
    arms = [values for each in batch.metrics.values() for values in each.values()]
    flat = [values.reshape(*values.shape[:2], -1) for values in arms]
    several = [values for values in flat if values.shape[2] > 1]
    constant = np.any([(v.max(axis=2) == v.min(axis=2)).any(axis=1) for v in several] or [[False]], axis=0)
    binary = np.all([((v == 0.0) | (v == 1.0)).all(axis=(1, 2)) for v in flat], axis=0)
    return np.asarray(constant | binary)


def _any_interval_misses(family: list[Comparison], effect: float) -> bool:
    return any(one.decision.interval is None or one.decision.interval.excludes(effect) for one in family)


_OUTCOMES: dict[str, Callable[[list[Comparison], float], bool]] = {
    "decided": lambda family, effect: any(one.verdict in ("better", "worse") for one in family),
    "equivalent": lambda family, effect: any(one.verdict == "equivalent" for one in family),
    "covered": lambda family, effect: not _any_interval_misses(family, effect),
    "unadjusted": lambda family, effect: any(one.p is not None and one.p <= ALPHA for one in family),
}


Draw = Callable[[Rng, int], Batch]
