"""The arrays of a design, with missing runs at one end of what they could have been, and the test that fits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.stats import decision
from bakeoff.stats.binary import paired_binary, unpaired_binary
from bakeoff.stats.decision import LEAST_UNITS, Decision, seed_has_no_effect, undecided
from bakeoff.stats.evidence import Bound, Test, with_margin, worst_case
from bakeoff.verdicts.units import Array, Cells, Design, Place

End = Literal["bad", "good"]
Sides = tuple[list[Array], list[Array]]
"""Control's and candidate's values: one array, one for each task, or one (tasks x seeds) table."""
_CORNERS: tuple[tuple[End, End], ...] = (("good", "bad"), ("bad", "good"))
_MIXED: tuple[tuple[End, End], ...] = (("bad", "bad"), ("good", "good"))


def test(
    design: Design, *, alpha: float, comparisons: int, margin: float | None, relative: float | None
) -> Test | Decision:
    """One comparison. Missing runs are bounded from both ends; too few units and copied seeds are no test at all."""

    def at(values: Sides) -> Test:
        decide = _rule(design, alpha, comparisons)
        if relative is None:
            return decide(*values, margin)
        evidence = decide(*values, None).evidence
        lower = _against_share(design, values, -relative, alpha, comparisons).evidence
        upper = _against_share(design, values, relative, alpha, comparisons).evidence
        return Test(evidence, Bound(lower, 0.0), Bound(upper, 0.0))

    return _over_corners(design, at)


def test_share(design: Design, share: float, *, alpha: float, comparisons: int) -> Test | Decision:
    """B against (1 + share) of A, so that the noise of A counts: `share` = -0.05 asks about 95 % of the control."""
    return _over_corners(design, lambda values: _against_share(design, values, share, alpha, comparisons))


def _over_corners(design: Design, at: Callable[[Sides], Test]) -> Test | Decision:
    """The test at every filling of the missing runs that could be the worst one."""
    units = count(design)
    if units < LEAST_UNITS or _smallest_stratum(design) < 2:
        return undecided("too_few", units)
    if _seeds_are_copies(design):
        return undecided("seed_has_no_effect", units)
    if design.missing and any(not np.isfinite(end) for ends in design.ends.values() for end in ends):
        return undecided("missing", units)
    tests = [at(sides(design, *corner)) for corner in (_CORNERS if design.missing else _CORNERS[:1])]
    if design.missing and not all(one.evidence.monotone for one in tests):
        tests += [at(sides(design, *corner)) for corner in _MIXED]
    return worst_case(tests)


def sides(design: Design, control: End = "bad", candidate: End = "bad") -> Sides:
    """Both arms' values with missing runs at the given ends."""
    a, b = _Side(design, design.control, control), _Side(design, design.candidate, candidate)
    match design.kind:
        case "rollouts":
            return [a.sample()], [b.sample()]
        case "seeds":
            return [a.means()], [b.means()]
        case "tasks":
            return [a.by_task()], [b.by_task()]
        case "seeds over tasks":
            return [a.table().mean(axis=0)], [b.table().mean(axis=0)]
        case "crossed":
            return [a.table()], [b.table()]
        case "fixed seeds":
            return a.strata(), b.strata()
        case "fixed rollouts":
            return (a.strata(), b.strata()) if design.unit == "seed" else (a.rollouts(), b.rollouts())


class _Side:
    """One arm with its missing runs filled in. Places are in order of task and seed, as the design has them."""

    def __init__(self, design: Design, cells: Cells, end: End) -> None:
        self._design = design
        self._cells = cells
        self._tasks = list(dict.fromkeys(task for task, _ in cells))
        self._ends = {task: ends[0 if end == "bad" else 1] for task, ends in design.ends.items()}

    def _mean(self, place: Place) -> float:
        return self._cells[place].mean(self._ends[place[0]])

    def _values(self, place: Place) -> tuple[float, ...]:
        return self._cells[place].filled(self._ends[place[0]])

    def means(self) -> Array:
        return np.array([self._mean(place) for place in self._cells])

    def sample(self) -> Array:
        """One value for each unit of an unpaired arm."""
        match self._design.unit:
            case "task":
                return self.by_task()
            case "seed" if len(self._tasks) > 1:
                return np.asarray(self.table().mean(axis=0), dtype=np.float64)
            case "seed":
                return self.means()
            case _:
                return np.array([value for place in self._cells for value in self._values(place)])

    def strata(self) -> list[Array]:
        found: dict[str, list[float]] = {task: [] for task in self._tasks}
        for place in self._cells:
            found[place[0]].append(self._mean(place))
        return [np.array(means) for means in found.values()]

    def by_task(self) -> Array:
        """Every task weighs the same, whatever its number of runs."""
        return np.array([means.mean() for means in self.strata()])

    def rollouts(self) -> list[Array]:
        found: dict[str, list[float]] = {task: [] for task in self._tasks}
        for place in self._cells:
            found[place[0]].extend(self._values(place))
        return [np.array(values) for values in found.values()]

    def table(self) -> Array:
        """(tasks x seeds), in the design's order of seeds; crossed designs need every combination."""
        own = dict.fromkeys(seed for _, seed in self._cells)
        seeds = list(self._design.seeds if self._design.paired else own)
        absent = [(task, seed) for task in self._tasks for seed in seeds if (task, seed) not in self._cells]
        if absent:
            raise UsageError(
                f"seeds are declared crossed, but task {absent[0][0]!r} has no seed {absent[0][1]}; "
                "run every seed on every task, or say analysis.seeds = 'nested' (or --seeds nested)"
            )
        return np.array([[self._mean((task, seed)) for seed in seeds] for task in self._tasks])


def count(design: Design) -> int:
    """How many independent units there are (the smaller arm's, where arms differ)."""
    match design.kind:
        case "rollouts":
            return min(_arm_units(design, arm) for arm in (design.control, design.candidate))
        case "tasks":
            return len(design.tasks)
        case "crossed":
            return min(len(design.tasks), len(design.seeds))
        case "seeds" | "seeds over tasks":
            return len(design.seeds)
        case "fixed seeds":
            return len(design.control)
        case "fixed rollouts":
            return min(sum(_stratum_sizes(design, arm)) for arm in (design.control, design.candidate))


def _arm_units(design: Design, cells: Cells) -> int:
    match design.unit:
        case "task":
            return len({task for task, _ in cells})
        case "seed":
            return len({seed for _, seed in cells})
        case _:
            return sum(len(cell.values) + cell.missing for cell in cells.values())


def _stratum_sizes(design: Design, cells: Cells) -> list[int]:
    """Units of an arm in each task."""
    sizes = dict.fromkeys((task for task, _ in cells), 0)
    for (task, _), cell in cells.items():
        sizes[task] += 1 if design.unit == "seed" else len(cell.values) + cell.missing
    return list(sizes.values())


def _smallest_stratum(design: Design) -> int:
    """A fixed task with a single unit has no spread of its own, so nothing can be said on these tasks only."""
    if design.kind not in ("fixed seeds", "fixed rollouts"):
        return 2
    return min(size for arm in (design.control, design.candidate) for size in _stratum_sizes(design, arm))


def _seeds_are_copies(design: Design) -> bool:
    """Every arm gives the same value on every replicate of every task: copies are not replicates.

    Outcomes of 0 and 1 are left alone: a run that always succeeds is no sign that the same run was counted twice.
    """
    if design.unit == "task" or design.binary:
        return False
    strata = []
    for cells in (design.control, design.candidate):
        by_task: dict[str, list[float]] = {}
        for (task, _), cell in cells.items():
            by_task.setdefault(task, []).extend(cell.values)
        strata += [np.array(values) for values in by_task.values() if values]
    return bool(strata) and seed_has_no_effect(*strata)


def _against_share(design: Design, values: Sides, share: float, alpha: float, comparisons: int) -> Test:
    """B - (1 + share) A. The share is one of |A|, read from the sign of A's mean."""
    a, b = values
    centre = float(np.mean([part.mean() for part in a]))
    if centre == 0.0:
        raise UsageError("a share of the control means nothing where the control's mean is 0; give an absolute margin")
    target = [part + share * np.sign(centre) * part for part in a]
    # A share of an outcome is no outcome, so binary data are compared by their means here.
    return _rule(design, alpha, comparisons, binary=False)(target, b, None)


def _rule(
    design: Design, alpha: float, comparisons: int, binary: bool = True
) -> Callable[[list[Array], list[Array], float | None], Test]:
    """The test that this design gets; the choice looks at the design and never at the values."""
    outcomes = design.binary and binary
    shift = 1.0 if design.turned else 0.0  # a 0/1 metric to be minimised was turned into 0/-1

    def rule(a: list[Array], b: list[Array], margin: float | None) -> Test:
        match design.kind:
            case "rollouts" if outcomes:
                return with_margin(unpaired_binary(a[0] + shift, b[0] + shift), margin)
            case "rollouts":
                return decision.unpaired_test(a[0], b[0], alpha, comparisons, margin)
            case "seeds" | "tasks" if outcomes:
                return with_margin(paired_binary(a[0] + shift, b[0] + shift), margin)
            case "seeds" | "tasks" | "seeds over tasks":
                return decision.paired_test(b[0] - a[0], alpha, comparisons, margin)
            case "crossed":
                return decision.crossed_test(b[0] - a[0], margin)
            case "fixed seeds":
                return decision.stratified_paired_test([y - x for x, y in zip(a, b, strict=True)], margin)
            case "fixed rollouts":
                return decision.stratified_test(a, b, margin)

    return rule
