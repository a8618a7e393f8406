"""What people do with results that they have seen, and what tables look like that nobody planned: rates of wrong verdicts.

How many comparisons share alpha, and at which level each is judged, is asked of the functions that `compare` asks
(`planned_family`, `primary_metrics`, `looks.standing`); the tests then get all replicates as arrays (`bakeoff.stats.many`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from bakeoff.errors import UsageError
from bakeoff.records.looks import Look
from bakeoff.results.importers.tables import frame_results
from bakeoff.results.table import Declared, Results, Row
from bakeoff.spec.experiment import Analysis
from bakeoff.stats.decision import decide, groups_test
from bakeoff.stats.many import Bools, ManyPairs
from bakeoff.verdicts.answer import answer
from bakeoff.verdicts.comparison import compare
from bakeoff.verdicts.designs import build_design
from bakeoff.verdicts.family import planned_family, primary_metrics
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Compare, Litmus
from bakeoff.verdicts.questions.litmus import Rule, Rules, check_rule
from bakeoff.verdicts.repeats import copied_seeds
from bakeoff.verdicts.sequential import looks
from calibrate.laws import Array, Rng
from calibrate.table import ALPHA, CHECKED, Counts

PAIRS = 15
ARMS = tuple("ABCDE")
LOOKED = Look(0.0, "compare", "verdict", 0, 0, "", {}, {"score": {"alpha": ALPHA, "tasks": "sample"}})


def _differences(rng: Rng, replicates: int, columns: int, common: float = 0.5) -> Array:
    """(columns, replicates, pairs) without an effect; columns share `common` of their variance."""
    shared = rng.normal(size=(replicates, PAIRS)) * np.sqrt(common)
    return np.asarray(shared + np.sqrt(1.0 - common) * rng.normal(size=(columns, replicates, PAIRS)))


def _observations(arms: dict[str, Array], declared: bool = True, metric: str = "score") -> Observations:
    """Arms with one value for each seed, as an edition of ours has them."""
    rows = [
        Observation(arm, "default", seed, 0, "scored", float(value))
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]
    plan = Declared(Analysis(metric="score"), tuple(arms)) if declared else None
    return Observations(metric, rows, Analysis(metric="score"), looks=(LOOKED,), declared=plan)


def _rejects(d: Array, level: float, comparisons: int = 1) -> Bools:
    above, below = ManyPairs(d, level * comparisons, comparisons).rejects(0.0, level / 2.0)
    return np.asarray(above | below)


def chosen_arm(rng: Rng, replicates: int) -> Counts:
    """Four arms and a control were looked at, and then the best of them alone is asked for (`--arms`)."""
    d = _differences(rng, replicates, len(ARMS) - 1)
    best = np.abs(d.mean(axis=2) / d.std(axis=2, ddof=1)).argmax(axis=0)
    chosen = d[best, np.arange(replicates)]
    first = _observations({"A": np.zeros(PAIRS), **dict(zip(ARMS[1:], d[:, 0], strict=True))})
    size = planned_family(first, Compare(arms=("B",))).size
    decided = _rejects(chosen, ALPHA / size, size)
    for r in range(CHECKED):
        table = _observations({"A": np.zeros(PAIRS), **dict(zip(ARMS[1:], d[:, r], strict=True))})
        (one,) = compare([table], Compare(arms=(ARMS[1 + best[r]],)), verdict_only=True)
        _agree(r, bool(decided[r]), one.verdict != "undecided")
    return {"decided": decided.astype(float), "as if alone": _rejects(chosen, ALPHA).astype(float)}


def best_metric(rng: Rng, replicates: int, metrics: int = 50) -> Counts:
    """One metric was looked at, and then 49 more of the same runs; each that is primary gets a verdict."""
    names = ["score", *(f"metric {n}" for n in range(1, metrics))]
    d = _differences(rng, replicates, metrics)
    results = Results([], "", Analysis(metric="score"), looks=(LOOKED,), declared=Declared(Analysis(), ARMS[:2]))
    primary = [names.index(name) for name in primary_metrics(results, names)]
    level = ALPHA / len(primary)
    decided = np.any([_rejects(d[place], level, len(primary)) for place in primary], axis=0)
    each = np.any([_rejects(one, ALPHA) for one in d], axis=0)
    return {"decided": decided.astype(float), "each at alpha": each.astype(float)}


def changed_analysis(rng: Rng, replicates: int, changes: int = 3) -> Counts:
    """The analysis is changed three times after results were shown, until one of the four gives a verdict."""
    d = _differences(rng, replicates, changes + 1)
    table = _observations({"A": np.zeros(PAIRS), "B": d[0, 0]})
    design = build_design(table, "A", "B")
    levels = [looks.standing(table, "A", "B", design, changes=change).alpha for change in range(changes + 1)]
    decided = np.any([_rejects(one, level) for one, level in zip(d, levels, strict=True)], axis=0)
    each = np.any([_rejects(one, ALPHA) for one in d], axis=0)
    return {"decided": decided.astype(float), "each at alpha": each.astype(float)}


def litmus_rule(rng: Rng, replicates: int, pairs: int) -> Counts:
    """A rule asks for a lift of 0 or more, and there is none: how often it holds."""
    world = rng.normal(size=(replicates, pairs))
    a, b = (world + rng.normal(size=world.shape) for _ in "AB")
    holds = ManyPairs(b - a, ALPHA).rejects(0.0, ALPHA, guarded=True)[0]
    rule = Rule(metric="score", min_lift=0.0)
    for r in range(CHECKED):
        rows = [
            Row(arm=arm, task="default", seed=seed, status="succeeded", metrics={"score": float(value)})
            for arm, values in (("A", a[r]), ("B", b[r]))
            for seed, value in enumerate(values)
        ]
        checked = check_rule(rule, Rules(rules=[rule]), Results(rows, ""), "A", "B", Litmus())
        _agree(r, bool(holds[r]), checked.passed is True)
    return {"decided": holds.astype(float)}


def grouped_tasks(rng: Rng, replicates: int, sizes: tuple[int, ...], declared: bool) -> Counts:
    """Effects differ by group of tasks (`repo`) as much as by task, and are 0 on average over groups."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    d = rng.normal(size=(replicates, group.size)) + rng.normal(size=(replicates, len(sizes)))[:, group]
    by_task = _rejects(d, ALPHA)
    decided = np.zeros(replicates, np.bool_)
    # By default the verdict needs both tests, so groups are asked where tasks decide.
    for r in np.flatnonzero(by_task | declared):
        (one,) = decide([groups_test(d[r], group)], ALPHA)
        decided[r] = one.verdict != "undecided"
    for r in range(CHECKED):
        table = _grouped_table(d[r], group, declared)
        (one,) = compare([table], Compare(), verdict_only=True)
        _agree(r, bool(decided[r]), one.verdict != "undecided")
    return {"decided": decided.astype(float), "task as unit": by_task.astype(float)}


def _grouped_table(d: Array, group: npt.NDArray[np.intp], declared: bool) -> Observations:
    tasks = [f"task {n:03}" for n in range(d.size)]
    rows = [Observation("A", task, None, 0, "scored", 0.0) for task in tasks]
    rows += [Observation("B", task, None, 0, "scored", float(v)) for task, v in zip(tasks, d, strict=True)]
    groups = {"repo": {task: str(g) for task, g in zip(tasks, group, strict=True)}}
    return Observations("score", rows, Analysis(cluster="repo" if declared else None), groups=groups)


def epochs(rng: Rng, replicates: int, seeds: int = 8, steps: int = 10) -> Counts:
    """A training curve of each seed with an `epoch` column, and no effect; runs differ as much as their epochs do."""
    shape = (2, replicates, seeds)
    values = rng.normal(size=(*shape, 1)) + rng.normal(size=(*shape, steps))
    a, b = np.trapezoid(values, axis=3) / (steps - 1)
    decided = _rejects(b - a, ALPHA)
    for r in range(CHECKED):
        rows = [
            {"arm": arm, "seed": seed, "epoch": epoch, "score": float(values[place, r, seed, epoch])}
            for place, arm in enumerate("AB")
            for seed in range(seeds)
            for epoch in range(steps)
        ]
        (one,) = answer(frame_results(pl.DataFrame(rows)), Compare.ask(metric="score")).comparisons
        _agree(r, bool(decided[r]), one.verdict != "undecided")
    d = (values[1] - values[0]).reshape(replicates, -1)
    return {"decided": decided.astype(float), "epoch as unit": _rejects(d, ALPHA).astype(float)}


def named_runs(rng: Rng, replicates: int, tasks: int = 20, runs: int = 3) -> Counts:
    """Three trained runs of each arm on 20 tasks, named in a column, and no effect: such tables are refused.

    The refusal looks at names only, so tables of a few replicates show it for all.
    """
    values = rng.normal(size=(2, replicates, 1, runs)) + rng.normal(size=(2, replicates, tasks, runs))
    decided = np.zeros(replicates)
    for r in range(min(CHECKED, replicates)):
        rows = [
            {"arm": arm, "task": f"t{task}", "checkpoint": f"{arm}-{run}", "score": float(values[place, r, task, run])}
            for place, arm in enumerate("AB")
            for task in range(tasks)
            for run in range(runs)
        ]
        try:
            frame_results(pl.DataFrame(rows))
        except UsageError:
            continue
        raise AssertionError(f"replicate {r}: a table of runs that a column names was not refused")
    by_task = _rejects((values[1] - values[0]).mean(axis=2), ALPHA)
    return {"decided": decided, "task as unit": by_task.astype(float)}


def copied_runs(rng: Rng, replicates: int, step: float) -> Counts:
    """Six seeds in two arms, scores rounded to `step`; in half of the replicates seeds 4 to 6 are copies of 1 to 3."""
    values = np.round(rng.normal(0.5, 0.15, (replicates, 2, 6)) / step) * step
    copied = np.arange(replicates) % 2 == 0
    values[copied, :, 3:] = values[copied, :, :3]
    refused = np.array([bool(copied_seeds(_score_rows(each))) for each in values])
    return {"kept": (copied & ~refused).astype(float), "refused": (refused & ~copied).astype(float)}


def _score_rows(values: Array) -> list[Row]:
    return [
        Row(arm=arm, task="default", seed=seed, status="succeeded", metrics={"score": float(value)})
        for arm, of_arm in zip("AB", values, strict=True)
        for seed, value in enumerate(of_arm)
    ]


def _agree(r: int, at_once: bool, table: bool) -> None:
    if at_once != table:
        raise AssertionError(f"replicate {r}: decided is {at_once}, but its table gives {table}")
