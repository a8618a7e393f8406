"""Which values are independent, for whom they speak, and the test that they get: one class for each design.

| module | what it does |
|---|---|
| `base` | `Design`: the questions that every design answers, and the answers that most share |
| `seeds` | the seed is the unit: one task, or fixed tasks that share their seeds |
| `tasks` | the task is the unit, or a group of tasks |
| `crossed` | tasks and seeds are both samples |
| `runs` | tasks and runs are both samples, and every run belongs to one arm |
| `fixed` | fixed tasks with units of their own: nested seeds, or independent runs |
| `rollouts` | two independent samples |
| `cells` | the runs of one arm by task and seed, and arrays made of them |
| `testing` | the test of one comparison at both ends of missing runs, and other tests that can be asked for |
| `replicates` | relabelled replicates of a comparison, for calibration |

`build_design` chooses the class by what is declared and by the identifiers of the runs, never by their values. It is the
only place that knows the classes: everybody else asks the design. A new design is one module here and one line there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from bakeoff.errors import UsageError
from bakeoff.verdicts.designs.base import Design, Rule, Sides, Unit
from bakeoff.verdicts.designs.cells import (
    Cell,
    Cells,
    Handling,
    Place,
    Unmatched,
    absent_combinations,
    seeds_of,
    tasks_of,
)
from bakeoff.verdicts.designs.crossed import Crossed
from bakeoff.verdicts.designs.fixed import FixedRollouts, FixedSeeds
from bakeoff.verdicts.designs.rollouts import Rollouts
from bakeoff.verdicts.designs.runs import Runs
from bakeoff.verdicts.designs.seeds import Seeds, SeedsOverSomeTasks, pair_by_seed
from bakeoff.verdicts.designs.tasks import Tasks
from bakeoff.verdicts.observations import Observations

__all__ = ["Cell", "Design", "Place", "Rule", "Sides", "build_design", "pair_by_seed"]

FEWEST_SEEN = 3
"""A task with fewer values than this does not tell what a missing run could have been; all tasks together do."""


def _shown(cells: Cells) -> str:
    """Return the first place of an arm and how many more it has, for an error."""
    task, seed = min(cells, key=_place_order)
    more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
    return f"task {task!r}" + (f" with seed {seed}" if seed is not None else "") + more


def build_design(
    observations: Observations, control: str, candidate: str, *, unpaired: bool = False, intersect: bool = False
) -> Design:
    """Return the design that the declarations ask for.

    A task and seed that one arm has and the other lacks is a missing run of the other, unless `intersect` leaves it out
    or `unpaired` ignores the pairing. Raises UsageError where the arms have none in common, a run stands twice, or a
    value is invalid.
    """
    kept = observations.controls
    if control not in kept:
        kept[control] = _cells(observations, control)
    a, b = kept[control], _cells(observations, candidate)
    unmatched = _unmatched(a, b, "unpaired" if unpaired else "set aside" if intersect else "missing")
    if unmatched is not None and not unpaired:
        common = [place for place in a if place in b]
        if not common:
            raise UsageError(
                f"{control!r} and {candidate!r} share no task and seed: one has {_shown(a)}, the other {_shown(b)}. If other "
                "fields name the arms or tasks, say --arm-from or --task-from; --unpaired compares them anyway"
            )
        if intersect:
            a, b = {place: a[place] for place in common}, {place: b[place] for place in common}
        else:
            places = sorted({*a, *b}, key=_place_order)
            # As many runs are missing as the other arm has there.
            a, b = (
                {p: one[p] if p in one else Cell((), other[p].size) for p in places} for one, other in ((a, b), (b, a))
            )
    kind, unit = _choose_unpaired(observations, a, b) if unpaired else _choose(observations, a)
    design = kind(
        unit=unit,
        control=a,
        candidate=b,
        tasks=tuple(sorted(tasks_of(a, b))),
        seeds=tuple(sorted(seeds_of(a), key=_seed_order)),
        seeds_are=observations.analysis.seeds,
        sign=1.0 if observations.larger_is_better else -1.0,
        missing=sum(cell.missing for cell in (*a.values(), *b.values())),
        failed=sum(row.state == "failed" for arm in {control, candidate} for row in observations.by_arm.get(arm, ())),
        given=observations.analysis.given,
        unmatched=unmatched,
        statistic=observations.analysis.statistic,
    ).with_groups(observations)
    outcomes = {0.0, design.sign}
    allowed = observations.bounds is None or tuple(observations.bounds) == (0.0, 1.0)
    # Every unit is one run with an outcome of 0 or 1.
    binary = (
        allowed
        and design.statistic == "mean"
        and design.one_outcome_a_unit
        and all(value in outcomes for cell in (*a.values(), *b.values()) for value in cell.values)
    )
    _refuse_statistic(design)
    ends, seen_ends = _ends(observations, design.tasks, binary)
    return replace(design, binary=binary, ends=ends, seen_ends=seen_ends, population=design.population_line())


def _choose(observations: Observations, places: Cells) -> tuple[type[Design], Unit]:
    """Return the design of paired arms: the table of units in docs/compare.md."""
    many_tasks = len(tasks_of(places)) > 1
    shared_seeds = len(seeds_of(places) - {None}) > 1
    crossed = observations.analysis.seeds == "crossed"
    if shared_seeds:
        _refuse_nothing_to_vary(observations, many_tasks)
    if not many_tasks:
        return (Seeds, "seed") if shared_seeds else (Rollouts, "rollout")
    if observations.population == "sample":
        return (Crossed, "task and seed") if shared_seeds and crossed else (Tasks, "task")
    if not shared_seeds:
        return FixedRollouts, "rollout"
    if not crossed:
        return FixedSeeds, "seed"
    return (SeedsOverSomeTasks if absent_combinations(places) else Seeds), "seed"


def _choose_unpaired(observations: Observations, a: Cells, b: Cells) -> tuple[type[Design], Unit]:
    """Return the design without pairs. Units stay what they are: rollouts of one seed, or of one task, never become units."""
    unit: Unit = "seed" if any(len(seeds_of(cells) - {None}) > 1 for cells in (a, b)) else "rollout"
    crossed = unit == "seed" and observations.analysis.seeds == "crossed"
    many_tasks, same_tasks = len(tasks_of(a, b)) > 1, tasks_of(a) == tasks_of(b)
    if unit == "seed":
        _refuse_nothing_to_vary(observations, many_tasks)
    if not many_tasks:
        return Rollouts, unit
    if observations.population == "sample" and not crossed:
        return (Tasks if same_tasks else Rollouts), "task"
    if not same_tasks:
        alone = min(tasks_of(a) ^ tasks_of(b))
        raise UsageError(
            f"both arms need the same tasks here, and only one has {alone!r}: leave out the tasks that only one arm has"
        )
    if observations.population == "sample":
        return Runs, "task and run"
    return (Rollouts if crossed else FixedRollouts), unit


def _refuse_nothing_to_vary(observations: Observations, many_tasks: bool) -> None:
    """Raise UsageError for fixed seeds unless there are several tasks that are a sample: the units are tasks then."""
    if observations.analysis.seeds == "fixed" and not (many_tasks and observations.population == "sample"):
        raise UsageError(
            "seeds 'fixed' asks about these seeds on tasks like these, so it needs several tasks that are a sample; "
            "leave --seeds fixed (or analysis.seeds) out"
        )


def _refuse_statistic(design: Design) -> None:
    """Raise UsageError where the declared statistic has no test."""
    if design.statistic == "mean":
        return
    about = f"statistic {design.statistic!r}"
    if not (design.one_pair_a_unit or design.two_samples):
        raise UsageError(
            f"{about} needs one difference for each seed or task, or two independent samples; this comparison is "
            f"{design.shape}. Leave --statistic (or analysis.statistic) out"
        )
    if design.group_columns:
        raise UsageError(
            f"{about} takes tasks as independent, and they fall into groups by {', '.join(map(repr, design.group_columns))}: "
            "say --cluster none if they are, or leave --statistic (or analysis.statistic) out"
        )


def _unmatched(a: Cells, b: Cells, handling: Handling) -> Unmatched | None:
    """Return which places only one of the arms has; None where there are none, and for independent arms that share none."""
    alone = [[place for place in one if place not in other] for one, other in ((a, b), (b, a))]
    if not alone[0] and not alone[1]:
        return None
    if handling == "unpaired" and len(alone[0]) == len(a):
        return None
    runs = [sum(cells[place].size for place in places) for cells, places in ((a, alone[0]), (b, alone[1]))]
    return Unmatched(runs[0], runs[1], (*alone[0], *alone[1])[0], handling)


def _cells(observations: Observations, arm: str) -> dict[Place, Cell]:
    """Rollouts of an arm by place, failures scored, missing ones counted. A run that stands twice is an error.

    Sorted throughout, so that the order of rows cannot change even the last digit of a result.
    """
    sign = 1.0 if observations.larger_is_better else -1.0
    bounds = observations.bounds
    values: dict[Place, list[float]] = defaultdict(list)
    missing: dict[Place, int] = defaultdict(int)
    runs: dict[Place, list[str]] = defaultdict(list)
    known: set[tuple[str, int | None, int]] = set()
    for row in observations.by_arm.get(arm, ()):
        if (row.task, row.seed, row.rollout) in known:
            raise UsageError(f"{arm!r} has two values for task {row.task!r}, seed {row.seed}, rollout {row.rollout}")
        known.add((row.task, row.seed, row.rollout))
        place = (row.task, row.seed)
        runs[place].append(row.run_id)
        if row.state == "missing":
            missing[place] += 1
            continue
        value = observations.score(row)
        if row.state == "scored" and bounds is not None and not bounds[0] <= value <= bounds[1]:
            where = row.run_id or f"{row.arm!r}, task {row.task!r}, seed {row.seed}"
            raise UsageError(
                f"{where}: {observations.metric} is {value:g}, outside the declared bounds "
                f"{bounds[0]:g} to {bounds[1]:g}; correct analysis.bounds (or --bounds)"
            )
        values[place].append(sign * value)
    places = sorted(runs, key=_place_order)
    return {place: Cell(tuple(sorted(values[place])), missing[place], tuple(runs[place])) for place in places}


def _place_order(place: Place) -> tuple[str, tuple[bool, int]]:
    return place[0], _seed_order(place[1])


def _seed_order(seed: int | None) -> tuple[bool, int]:
    return (seed is not None, seed or 0)


def _ends(
    observations: Observations, tasks: Sequence[str], binary: bool
) -> tuple[dict[str, tuple[float, float]], bool]:
    """What a missing run could have been: the declared range, or the smallest and largest value of any arm."""
    sign = 1.0 if observations.larger_is_better else -1.0
    bounds = observations.bounds or ((0.0, 1.0) if binary else None)
    if bounds is not None:
        bad, good = sorted(sign * end for end in bounds)
        return dict.fromkeys(tasks, (bad, good)), False
    known = {task: observations.seen[task] for task in tasks if task in observations.seen}
    lows, highs = [each.low for each in known.values()], [each.high for each in known.values()]
    everywhere = (min(lows), max(highs)) if known else (float("nan"), float("nan"))
    ends = {}
    for task in tasks:
        low, high = known[task][:2] if task in known and known[task].number >= FEWEST_SEEN else everywhere
        ends[task] = (low, high) if sign > 0.0 else (-high, -low)
    return ends, True
