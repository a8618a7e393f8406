"""The arrays of a design, with missing runs at one end of what they could have been, and the test that fits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats import decision
from bakeoff.stats.binary import paired_binary, unpaired_binary
from bakeoff.stats.decision import LEAST_UNITS, Decision, seed_has_no_effect, undecided
from bakeoff.stats.evidence import Bound, Test, with_margin, worst_case
from bakeoff.verdicts.design import Cells, Design, Place

End = Literal["bad", "good"]
Sides = tuple[list[Array], list[Array]]
"""Control's and candidate's values: one array, one for each task, or one (tasks x seeds) table."""
_CORNERS: tuple[tuple[End, End], ...] = (("good", "bad"), ("bad", "good"))
_MIXED: tuple[tuple[End, End], ...] = (("bad", "bad"), ("good", "good"))


def comparison_test(
    design: Design, *, alpha: float, comparisons: int, margin: float | None, relative: float | None
) -> Test | Decision:
    """The test of one comparison, or a decision where no test is possible (too few units, copied seeds).

    `comparisons` is the size of the family. `margin` (or `relative`, a share of the control) adds equivalence. Missing
    runs are bounded from both ends.
    """

    def at(values: Sides) -> Test:
        if relative is None:
            return _run(design, values, alpha, comparisons, margin)
        evidence = _run(design, values, alpha, comparisons, None).evidence
        lower = _against_share(design, values, -relative, alpha, comparisons).evidence
        upper = _against_share(design, values, relative, alpha, comparisons).evidence
        return Test(evidence, Bound(lower, 0.0), Bound(upper, 0.0))

    return _over_corners(design, at)


def share_test(design: Design, share: float, *, alpha: float, comparisons: int) -> Test | Decision:
    """B against (1 + share) of A, so that the noise of A counts: `share` = -0.05 asks about 95 % of the control."""
    return _over_corners(design, lambda values: _against_share(design, values, share, alpha, comparisons))


def _over_corners(design: Design, at: Callable[[Sides], Test]) -> Test | Decision:
    """The test at every filling of the missing runs that could be the worst one (decision specification, section 4)."""
    units = design.units
    single_unit_stratum = design.kind in ("fixed seeds", "fixed rollouts") and any(
        size < 2 for cells in (design.control, design.candidate) for size in design.stratum_sizes(cells)
    )
    if units < LEAST_UNITS or single_unit_stratum:
        # A fixed task with a single unit has no spread, so nothing can be said on these tasks only.
        return undecided("too_few", units)
    if _seeds_are_copies(design):
        return undecided("seed_has_no_effect", units)
    if design.missing and any(not np.isfinite(end) for ends in design.ends.values() for end in ends):
        return undecided("missing", units)
    tests = [at(sides(design, *corner)) for corner in (_CORNERS if design.missing else _CORNERS[:1])]
    if design.missing and not all(test.evidence.monotone for test in tests):
        tests += [at(sides(design, *corner)) for corner in _MIXED]
    return worst_case(tests)


def sides(design: Design, control: End = "bad", candidate: End = "bad") -> Sides:
    """Both arms' values with missing runs at the given ends."""
    return _values(design, design.control, control), _values(design, design.candidate, candidate)


def _values(design: Design, cells: Cells, end: End) -> list[Array]:
    """One arm's values. Places are in order of task and seed, as the design has them."""
    ends = {task: pair[0 if end == "bad" else 1] for task, pair in design.ends.items()}
    by_task: dict[str, list[Place]] = {}
    for place in cells:
        by_task.setdefault(place[0], []).append(place)
    tasks = list(by_task)

    def mean(place: Place) -> float:
        return cells[place].mean(ends[place[0]])

    def means_by_task() -> list[Array]:
        return [np.array([mean(place) for place in places]) for places in by_task.values()]

    def rollouts_by_task() -> list[Array]:
        return [
            np.array([value for place in places for value in cells[place].filled(ends[task])])
            for task, places in by_task.items()
        ]

    def table() -> Array:
        """(tasks x seeds), in the design's order of seeds; crossed designs need every combination."""
        seeds = list(design.seeds) if design.paired else list(dict.fromkeys(seed for _, seed in cells))
        for task in tasks:
            for seed in seeds:
                if (task, seed) not in cells:
                    raise UsageError(
                        f"seeds are declared crossed, but task {task!r} has no seed {seed}; run every seed on every "
                        "task, or say analysis.seeds = 'nested' (or --seeds nested)"
                    )
        return np.array([[mean((task, seed)) for seed in seeds] for task in tasks])

    match design.kind, design.unit:
        case ("tasks", _) | ("rollouts", "task"):
            # Every task weighs the same, whatever its number of runs.
            return [np.array([means.mean() for means in means_by_task()])]
        case "seeds over tasks", _:
            return [np.asarray(table().mean(axis=0))]
        case "rollouts", "seed" if len(tasks) > 1:
            return [np.asarray(table().mean(axis=0))]
        case ("seeds", _) | ("rollouts", "seed"):
            return [np.array([mean(place) for place in cells])]
        case "rollouts", _:
            return [np.concatenate(rollouts_by_task()) if tasks else np.array([])]
        case "crossed", _:
            return [table()]
        case ("fixed seeds", _) | ("fixed rollouts", "seed"):
            return means_by_task()
        case _:
            return rollouts_by_task()


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
    # A share of an outcome is not an outcome, so binary data are compared by their means here.
    return _run(design, (target, b), alpha, comparisons, None, binary=False)


def _run(
    design: Design, values: Sides, alpha: float, comparisons: int, margin: float | None, binary: bool = True
) -> Test:
    """The test that this design gets. The choice looks at the design and never at the values."""
    a, b = values
    outcomes = design.binary and binary
    shift = 1.0 if design.turned else 0.0  # a 0/1 metric to be minimised was turned into 0/-1
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
