"""The arrays of a design, the test that decides about them, and other tests that can be asked for beside it.

Missing runs are put at both ends of what they could have been. The other methods (`--method`) see the units of the
design too, so none of them can turn rollouts into evidence; each gives p, an interval or both, and none decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats import binary, bootstrap, decision, effects, permutation, ranks, ttests
from bakeoff.stats.decision import Decision, seed_has_no_effect
from bakeoff.stats.evidence import LEAST_UNITS, Bound, Interval, Test, with_margin, worst_case
from bakeoff.stats.numerics import difference, is_constant
from bakeoff.verdicts.design import ONE_PAIR_A_UNIT, Design

End = Literal["bad", "good"]
Sides = tuple[list[Array], list[Array]]
"""Control's and candidate's values: one array, one for each task, or one (tasks x seeds) table."""
_CORNERS: tuple[tuple[End, End], ...] = (("good", "bad"), ("bad", "good"))
_MIXED: tuple[tuple[End, End], ...] = (("bad", "bad"), ("good", "good"))
MOST_EXACT = 100
"""Comparisons up to which an exact p by random rearrangements is added to tests that are not exact."""
UNDER_COVERS = "under-covers with few units (84 / 89 / 92 % at 5 / 8 / 15)"


def comparison_test(
    design: Design,
    *,
    alpha: float,
    comparisons: int,
    margin: float | None = None,
    relative: float | None = None,
    share: float | None = None,
    guarded: bool = False,
    strict: bool = False,
) -> Test | Decision:
    """The test of one comparison, or a decision where no test is possible (too few units, copied seeds).

    `comparisons` is the size of the family. `margin` (or `relative`, a share of the control) adds equivalence. With
    `share` B is tested against (1 + share) of A, so that the noise of A counts: -0.05 asks about 95 % of the control.
    `guarded` asks the studentized bootstrap too, as equivalence does (`decision.paired_test`). `strict` uses exact tests
    only, with ties in full, and raises UsageError where there is none.
    The test is made at every filling of the missing runs that could be the worst one (decision specification, section 4).
    """
    units = design.units
    how = Rule(alpha, comparisons, guarded, strict)
    single_unit_stratum = design.kind in ("fixed seeds", "fixed rollouts") and any(
        size < 2 for cells in (design.control, design.candidate) for size in design.stratum_sizes(cells)
    )
    # Two crossed seeds, or tasks, are tested with one degree of freedom.
    crossed = design.kind == "crossed" and units == 2 and max(len(design.tasks), len(design.seeds)) >= LEAST_UNITS
    if (units < LEAST_UNITS and not crossed) or single_unit_stratum:
        # A fixed task with a single unit has no spread, so nothing can be said on these tasks only.
        return Decision("undecided", "too_few", n=units)
    if _seeds_are_copies(design):
        return Decision("undecided", "seed_has_no_effect", n=units)
    if design.missing and any(not np.isfinite(end) for ends in design.ends.values() for end in ends):
        return Decision("undecided", "missing", n=units)

    def at(corner: tuple[End, End]) -> Test:
        values = sides(design, *corner)
        if share is not None:
            return _against_share(design, values, share, how)
        if relative is None:
            return _run(design, values, how, margin)
        evidence = _run(design, values, how).evidence
        lower, upper = (
            _against_share(design, values, end, replace(how, guarded=True)).evidence for end in (-relative, relative)
        )
        return Test(evidence, Bound(lower, 0.0), Bound(upper, 0.0))

    tests = [at(corner) for corner in (_CORNERS if design.missing else _CORNERS[:1])]
    if design.missing and not all(test.monotone for test in tests):
        tests += [at(corner) for corner in _MIXED]
    return worst_case(tests)


def sides(design: Design, control: End = "bad", candidate: End = "bad") -> Sides:
    """Both arms' values with missing runs at the given ends. Places are in order of task and seed, as in the design.

    Raises UsageError where a crossed design lacks a combination of task and seed.
    """
    arms: list[list[Array]] = []
    for cells, end in ((design.control, control), (design.candidate, candidate)):
        ends = {task: good if end == "good" else bad for task, (bad, good) in design.ends.items()}
        by_task: dict[str, list[float]] = {task: [] for task, _ in cells}
        if design.kind in ("rollouts", "fixed rollouts") and design.unit == "rollout":
            for (task, _), cell in cells.items():
                by_task[task] += cell.filled(ends[task])
            rollouts = [np.array(values) for values in by_task.values()]
            if design.kind == "rollouts":
                rollouts = [np.concatenate(rollouts) if rollouts else np.array([])]
            arms.append(rollouts)
            continue
        means = {place: cell.mean(ends[place[0]]) for place, cell in cells.items()}
        for (task, _), mean in means.items():
            by_task[task].append(mean)
        if design.unit == "task":
            # Every task weighs the same, whatever its number of runs.
            arms.append([np.array([v[0] if len(v) == 1 else np.array(v).mean() for v in by_task.values()])])
        elif design.kind in ("fixed seeds", "fixed rollouts"):
            arms.append([np.array(values) for values in by_task.values()])
        elif design.kind == "seeds" or (design.kind == "rollouts" and len(by_task) < 2):
            arms.append([np.array(list(means.values()))])
        else:
            # A (tasks x seeds) table, in the design's order of seeds.
            seeds = list(design.seeds) if design.paired else list(dict.fromkeys(seed for _, seed in cells))
            for task, seed in product(by_task, seeds):
                if (task, seed) not in means:
                    raise UsageError(
                        f"seeds are declared crossed, but task {task!r} has no seed {seed}; run every seed on every "
                        "task, or say analysis.seeds = 'nested' (or --seeds nested)"
                    )
            table = np.array([[means[task, seed] for seed in seeds] for task in by_task])
            arms.append([table if design.kind == "crossed" else np.asarray(table.mean(axis=0))])
    return arms[0], arms[1]


def _seeds_are_copies(design: Design) -> bool:
    """Every arm gives the same value on every replicate of every task: copies are not replicates.

    Outcomes of 0 and 1 are left alone: a run that always succeeds does not show that the same run was counted twice.
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


@dataclass(frozen=True, slots=True)
class Rule:
    """How a comparison is tested: alpha and the size of the family choose the test, the flags make it more careful."""

    alpha: float = 0.05
    comparisons: int = 1
    guarded: bool = False
    strict: bool = False


def _against_share(design: Design, values: Sides, share: float, how: Rule) -> Test:
    """B - (1 + share) A. The share is one of |A|, read from the sign of A's mean."""
    a, b = values
    centre = float(np.mean([part.mean() for part in a]))
    if centre == 0.0:
        raise UsageError("a share of the control means nothing where the control's mean is 0; give an absolute margin")
    target = [part + share * np.sign(centre) * part for part in a]
    # A share of an outcome is not an outcome, so binary data are compared by their means here.
    return _run(replace(design, binary=False), (target, b), how)


def _run(design: Design, values: Sides, how: Rule, margin: float | None = None) -> Test:
    """The test that this design gets. The choice looks at the design and never at the values."""
    a, b = values
    shift = 1.0 if design.sign < 0 else 0.0  # a 0/1 metric to be minimised was turned into 0/-1
    family, careful = (how.alpha, how.comparisons), {"guarded": how.guarded, "strict": how.strict}
    match design.kind:
        case "rollouts" if design.binary:
            return with_margin(binary.unpaired_binary(a[0] + shift, b[0] + shift, how.strict), margin)
        case "rollouts":
            return decision.unpaired_test(a[0], b[0], *family, margin, **careful)
        case "seeds" | "tasks" if design.binary:
            return with_margin(binary.paired_binary(a[0] + shift, b[0] + shift, how.strict), margin)
        case "seeds" | "tasks" | "seeds over tasks":
            return decision.paired_test(difference(b[0], a[0]), *family, margin, **careful)
        case "fixed seeds":
            pairs = [difference(y, x) for x, y in zip(a, b, strict=True)]
            return decision.stratified_paired_test(pairs, margin, **careful)
        case "fixed rollouts":
            return decision.stratified_test(a, b, margin, **careful)
        case "crossed" if how.strict:
            raise UsageError(
                "--strict: there is no exact test where tasks and seeds are both samples; say --tasks fixed or --seeds fixed"
            )
        case "crossed":
            return decision.crossed_test(difference(b[0], a[0]), margin, guarded=how.guarded)


def exact_p(design: Design, test: Test | Decision, comparisons: int = 1) -> float | None:
    """The p of the exact test with ties in full, the largest over what missing runs could have been.

    None where nothing was tested, where tasks and seeds are both samples (there is no exact test of that), and where
    random rearrangements beside the verdict's own test would take long: in large families and for many fixed tasks.
    """
    if isinstance(test, Decision) or design.kind == "crossed":
        return None
    counted = (binary.PairedBinary, binary.UnpairedBinary, permutation.Rearranged, permutation.Unpaired)
    known = [corner.evidence.p_exact for corner in test.corners or (test,) if isinstance(corner.evidence, counted)]
    if known:
        return max(known)
    many = design.kind == "fixed rollouts" and len(design.tasks) > decision.MOST_GUARDED_TASKS
    if many or (design.units > permutation.EXACT_UNITS and comparisons > MOST_EXACT):
        return None
    corners = _CORNERS if design.missing else _CORNERS[:1]
    return max(_run(design, sides(design, *corner), Rule(strict=True)).p for corner in corners)


# -- other methods


@dataclass(frozen=True, slots=True)
class Line:
    """One method's answer, larger being better. Either number may be missing: not every method has both."""

    name: str
    p: float | None
    interval: Interval | None
    note: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What every method is given: the design where both arms are known, its units, and the level asked for."""

    name: str
    """The method, for errors."""
    design: Design
    a: list[Array]
    b: list[Array]
    alpha: float
    margin: float | None
    resamples: int

    def differences(self) -> Array:
        """B - A of each unit."""
        if self.design.kind not in ONE_PAIR_A_UNIT:
            raise UsageError(
                f"--method {self.name} needs pairs of one kind of unit; this comparison is {_shape(self.design)}"
            )
        return difference(self.b[0], self.a[0])

    def samples(self) -> tuple[Array, Array]:
        """Both arms as independent samples."""
        if len(self.a) != 1 or self.a[0].ndim != 1:
            raise UsageError(f"--method {self.name} needs one kind of unit; this comparison is {_shape(self.design)}")
        return self.a[0], self.b[0]

    def by_task(self) -> list[Array]:
        """Differences inside each task: of pairs where seeds are shared, else the one of the task's means."""
        design = self.design
        if len(design.tasks) < 2 or not design.paired:
            raise UsageError(f"--method {self.name} clusters by task, so it needs several tasks that both arms share")
        if not design.matched:
            return [np.array([value]) for value in difference(self.b[0], self.a[0])]
        differences: dict[str, list[float]] = {task: [] for task in design.tasks}
        for place, cell in design.control.items():
            differences[place[0]].append(design.candidate[place].mean(np.nan) - cell.mean(np.nan))
        return [np.array(values) for values in differences.values()]


def other_methods(
    names: Sequence[str], design: Design, *, alpha: float, margin: float | None, resamples: int
) -> list[Line]:
    """The named methods' lines, in the order asked for. A method that the values do not allow says why in its note."""
    known = design.without_missing()
    if not names or not known.control or not known.candidate:
        return []
    a, b = sides(known)
    lines = []
    for name in names:
        try:
            line = METHODS[name](Problem(name, known, a, b, alpha, margin, resamples))
        except ValueError as error:
            line = Line(name, None, None, f"unknown: {error}")
        else:
            if design.missing:
                line = replace(line, note=f"{line.note}; {design.missing} missing runs left out")
        lines.append(line)
    return lines


def _shape(design: Design) -> str:
    return {
        "crossed": "over tasks and seeds at once",
        "fixed seeds": "stratified by task",
        "fixed rollouts": "stratified by task and unpaired",
        "rollouts": "unpaired",
    }.get(design.kind, "paired")


def _t(q: Problem) -> Line:
    """The t test of the design, a t that ignores the pairing (Welch), or a t over clusters."""
    match q.name, q.design.kind:
        case "welch", _:
            statistic = ttests.welch_t(*q.samples())
            ignored = "; the pairing is ignored" if q.design.paired else ""
            note = f"{statistic.df:.4g} df; {statistic.assumes}{ignored}"
        case "cluster", _:
            groups = q.by_task()
            labels = np.repeat(np.arange(len(groups)), [group.size for group in groups])
            statistic = ttests.cluster_t(np.concatenate(groups), labels)
            note = f"cluster-robust by task, t with {statistic.df:g} df, never z"
        case _, kind:
            if kind == "crossed":
                statistic = ttests.crossed_t(difference(q.b[0], q.a[0]))
            elif kind == "fixed seeds":
                statistic = ttests.stratified_paired_t([difference(y, x) for x, y in zip(q.a, q.b, strict=True)])
            elif kind == "fixed rollouts":
                statistic = ttests.stratified_t(q.a, q.b)
            else:
                statistic = ttests.one_sample_t(q.differences())
            note = f"{statistic.method}, {statistic.df:.4g} df; {statistic.assumes}"
    return Line(q.name, statistic.p, statistic.interval(1.0 - q.alpha), note)


def _tost(q: Problem) -> Line:
    if q.margin is None:
        raise UsageError("--method tost needs --margin: the largest difference that does not matter")
    unpaired = q.design.kind == "rollouts"
    statistic = ttests.welch_t(*q.samples()) if unpaired else ttests.one_sample_t(q.differences())
    note = f"p of 'differs by {q.margin:g} or more' by {statistic.method}; its interval has level 1 - 2 alpha"
    return Line("tost", statistic.p_equivalent(q.margin), statistic.interval(1.0 - 2.0 * q.alpha), note)


def _rearrangements(q: Problem) -> Line:
    """Sign flips, splits, and the two rank tests."""
    ignored = "; the pairing is ignored" if q.design.paired else ""
    random = f"Monte Carlo, {permutation.DRAWS:,} draws"
    if q.name == "signflip":
        d = q.differences()
        flips = permutation.SignFlip(d)
        exact = d.size <= permutation.EXACT_COUNT_UNITS
        p = permutation.exact_tails(d).p if exact else flips.p
        return Line(q.name, p, flips.interval(1.0 - q.alpha), f"{'exact' if exact else random}; {flips.ties}")
    if q.name == "permutation":
        splits = permutation.permutation_mean(*q.samples())
        return Line(q.name, splits.p, None, f"{'exact' if splits.exact else random}, of the mean difference{ignored}")
    paired = q.name == "wilcoxon"
    test = ranks.wilcoxon(q.differences()) if paired else ranks.mann_whitney(*q.samples())
    how = "exact" if test.exact else "normal approximation"
    return Line(
        q.name, test.p, None, f"{how}; about ranks, not about the mean{'; zeros dropped' if paired else ignored}"
    )


def _outcomes(q: Problem) -> Line:
    """Exact tests of outcomes that are 0 or 1."""
    paired = q.design.paired
    if q.name == "mcnemar" and not paired:
        raise UsageError("--method mcnemar needs one pair for each unit; fisher compares unpaired outcomes")
    if not q.design.binary:
        raise UsageError(f"--method {q.name} needs outcomes of 0 and 1, one for each unit; here the values are others")
    shift = 1.0 if q.design.sign < 0 else 0.0
    a, b = q.a[0] + shift, q.b[0] + shift
    if q.name == "mcnemar":
        pairs = binary.paired_binary(a, b)
        note = f"exact p; {pairs.b_only} units where only B succeeds, {pairs.a_only} where only A does; Tango interval"
        return Line(q.name, pairs.p_exact, pairs.interval(1.0 - q.alpha), note)
    counts = binary.unpaired_binary(a, b)
    note = f"exact p; {counts.wins_b}/{counts.n_b} against {counts.wins_a}/{counts.n_a}; Miettinen-Nurminen interval"
    ignored = "; the pairing is ignored" if paired else ""
    return Line(q.name, counts.p_exact, counts.interval(1.0 - q.alpha), note + ignored)


def _bootstrap(q: Problem) -> Line:
    """Resampled units, or tasks and the runs inside them."""
    level = 1.0 - q.alpha
    name = q.name
    if name == "hierarchical" and q.design.kind == "crossed":
        interval = bootstrap.bootstrap_crossed(q.b[0] - q.a[0], q.resamples, level)
        note = "tasks and seeds resampled independently"
    elif name == "hierarchical":
        interval = bootstrap.bootstrap_two_level(q.by_task(), q.resamples, level)
        note = "tasks, then runs inside them, resampled; over-covers"
    else:
        method: bootstrap.Method = "bca" if name == "bca" else "percentile" if name == "percentile" else "studentized"
        q = replace(q, name=method)
        if q.design.paired:
            interval = bootstrap.bootstrap(q.differences(), method=method, resamples=q.resamples, level=level)
        else:
            interval = bootstrap.bootstrap_difference(*q.samples(), method=method, resamples=q.resamples, level=level)
        about = {"bootstrap": "studentized", "studentized": "the same as bootstrap"}.get(name, UNDER_COVERS)
        note = f"{interval.resamples:,} resamples of units; {about}"
    open_ends = not np.isfinite(interval.low), not np.isfinite(interval.high)
    return Line(q.name, None, Interval(interval.low, interval.high, interval.level, *open_ends), note)


METHODS: dict[str, Callable[[Problem], Line]] = {
    **dict.fromkeys(("t", "welch", "cluster"), _t),
    **dict.fromkeys(("signflip", "permutation", "wilcoxon", "mannwhitney"), _rearrangements),
    **dict.fromkeys(("bootstrap", "studentized", "percentile", "bca", "hierarchical"), _bootstrap),
    **dict.fromkeys(("mcnemar", "fisher"), _outcomes),
    "tost": _tost,
}
"""Every method by the name it is asked for with."""


def adjusted(design: Design, covariate: Design, alpha: float) -> Line:
    """t after taking out what a covariate explains (CUPED). The slope costs one degree of freedom."""
    known = design.without_missing()
    a, b = sides(known)
    xa, xb = sides(covariate.without_missing())
    if [part.shape for part in (*a, *b)] != [part.shape for part in (*xa, *xb)] or len(a) != len(xa):
        raise UsageError("--covariate: it is not known for the same runs as the metric")
    if known.kind in ONE_PAIR_A_UNIT:
        cuped = effects.cuped(difference(b[0], a[0]), (xa[0] + xb[0]) / 2.0)
        values = np.array(cuped.adjusted)
        if is_constant(values):
            raise UsageError(
                "--covariate: it explains the differences completely, so no spread is left to test against"
            )
        se = float(values.std(ddof=2)) / float(np.sqrt(values.size))
        statistic = ttests.TStatistic(float(values.mean()), se, values.size - 2.0, values.size)
        note = f"slope {cuped.slope:.3g}, {cuped.variance_reduction:.0%} of variance removed"
    elif known.kind == "rollouts":
        ya, yb, slope = effects.cuped_arms(a[0], b[0], xa[0], xb[0])
        plain = ttests.welch_t(ya, yb)
        statistic = ttests.TStatistic(plain.effect, plain.se, max(1.0, plain.df - 1.0), plain.n, "Welch t")
        note = f"one slope for both arms, {slope:.3g}"
    else:
        raise UsageError(f"--covariate needs one kind of unit; this comparison is {_shape(known)}")
    return Line("cuped", statistic.p, statistic.interval(1.0 - alpha), f"t with {statistic.df:.4g} df; {note}")
