"""The test of one comparison, and other tests that can be asked for beside it.

Missing runs are put at both ends of what they could have been. The other methods (`--method`) see the units of the
design too, so none of them can turn rollouts into evidence; each gives p, an interval or both, and none decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats import binary, bootstrap, effects, permutation, ranks, ttests
from bakeoff.stats.decision import Decision
from bakeoff.stats.evidence import Bound, Interval, Test, worst_case
from bakeoff.stats.incomplete import mean_over_tasks
from bakeoff.stats.numerics import difference, is_constant
from bakeoff.text import number, percent
from bakeoff.verdicts.designs import Design, Rule, Sides
from bakeoff.verdicts.designs.cells import End

_CORNERS: tuple[tuple[End, End], ...] = (("good", "bad"), ("bad", "good"))
_MIXED: tuple[tuple[End, End], ...] = (("bad", "bad"), ("good", "good"))
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
    how = Rule(alpha, comparisons, guarded, strict)
    if (refused := design.refusal()) is not None:
        return refused
    if design.seeds_are_copies:
        return Decision("undecided", "seed_has_no_effect", n=design.units)
    if design.missing and any(not np.isfinite(end) for ends in design.ends.values() for end in ends):
        return Decision("undecided", "missing", n=design.units)

    def at(corner: tuple[End, End]) -> Test:
        values = design.arrays(*corner)
        if share is not None:
            return _against_share(design, values, share, how)
        if relative is None:
            return design.test(values, how, margin)
        evidence = design.test(values, how).evidence
        about_margin = replace(how, alpha=how.level, comparisons=1, guarded=True)
        lower, upper = (_against_share(design, values, end, about_margin).evidence for end in (-relative, relative))
        return Test(evidence, Bound(lower, 0.0), Bound(upper, 0.0))

    tests = [at(corner) for corner in (_CORNERS if design.missing else _CORNERS[:1])]
    if design.missing and not all(test.monotone for test in tests):
        tests += [at(corner) for corner in _MIXED]
    return worst_case(tests)


def arm_mean(side: Sequence[Array]) -> float:
    """Return the mean of one arm's arrays: every task weighs the same, as it does in the test."""
    return float(np.mean([mean_over_tasks(part) for part in side]))


def _against_share(design: Design, values: Sides, share: float, how: Rule) -> Test:
    """B - (1 + share) A. The share is one of |A|, read from the sign of A's mean."""
    a, b = values
    centre = arm_mean(a)
    if centre == 0.0:
        raise UsageError("a share of the control means nothing where the control's mean is 0; give an absolute margin")
    target = [part + share * np.sign(centre) * part for part in a]
    # A share of an outcome is not an outcome, so binary data are compared by their means here.
    return replace(design, binary=False).test((target, b), how)


def exact_p(design: Design, test: Test | Decision, comparisons: int = 1) -> float | None:
    """The p of the exact test with ties in full, the largest over what missing runs could have been.

    None where nothing was tested, where tasks and seeds are both samples or cells are absent (there is no exact test), and where
    random rearrangements beside the verdict's own test would take long: in large families and for many fixed tasks.
    """
    if isinstance(test, Decision) or not design.has_exact_test:
        return None
    counted = (binary.PairedBinary, binary.UnpairedBinary, permutation.Rearranged, permutation.Unpaired)
    known = [corner.evidence.p_exact for corner in test.corners or (test,) if isinstance(corner.evidence, counted)]
    if known:
        return max(known)
    if not design.exact_test_is_quick(comparisons):
        return None
    corners = _CORNERS if design.missing else _CORNERS[:1]
    return max(design.test(design.arrays(*corner), Rule(strict=True)).p for corner in corners)


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
        if not self.design.one_pair_a_unit:
            raise UsageError(
                f"--method {self.name} needs pairs of one kind of unit; this comparison is {self.design.shape}"
            )
        return difference(self.b[0], self.a[0])

    def samples(self) -> tuple[Array, Array]:
        """Both arms as independent samples."""
        if len(self.a) != 1 or self.a[0].ndim != 1:
            raise UsageError(f"--method {self.name} needs one kind of unit; this comparison is {self.design.shape}")
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
    a, b = known.arrays()
    lines = []
    for name in names:
        try:
            line = METHODS[name](Problem(name, known, a, b, alpha, margin, resamples))
        except (ValueError, UsageError) as error:
            line = Line(name, None, None, f"unknown: {error}")
        else:
            if design.missing:
                line = replace(line, note=f"{line.note}; {design.missing} missing runs left out")
        lines.append(line)
    return lines


def _t(q: Problem) -> Line:
    """The t test of the design, a t that ignores the pairing (Welch), or a t over clusters."""
    if q.name == "welch":
        statistic = ttests.welch_t(*q.samples())
        ignored = "; the pairing is ignored" if q.design.paired else ""
        note = f"{number(statistic.df)} df; {statistic.assumes}{ignored}"
    elif q.name == "cluster":
        groups = q.by_task()
        labels = np.repeat(np.arange(len(groups)), [group.size for group in groups])
        statistic = ttests.cluster_t(np.concatenate(groups), labels)
        note = f"cluster-robust by task, t with {number(statistic.df)} df, never z"
    else:
        statistic = q.design.t_test((q.a, q.b)) or ttests.one_sample_t(q.differences())
        note = f"{statistic.method}, {number(statistic.df)} df; {statistic.assumes}"
    return Line(q.name, statistic.p, statistic.interval(1.0 - q.alpha), note)


def _tost(q: Problem) -> Line:
    if q.margin is None:
        raise UsageError("--method tost needs --margin: the largest difference that does not matter")
    statistic = ttests.welch_t(*q.samples()) if q.design.two_samples else ttests.one_sample_t(q.differences())
    note = f"p of 'differs by {number(q.margin)} or more' by {statistic.method}; its interval has level 1 - 2 alpha"
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
    if name == "hierarchical" and q.design.both_sampled:
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
    a, b = known.arrays()
    xa, xb = covariate.without_missing().arrays()
    if not (known.one_pair_a_unit or known.two_samples):
        raise UsageError(f"--covariate needs one kind of unit; this comparison is {known.shape}")
    if [part.shape for part in (*a, *b)] != [part.shape for part in (*xa, *xb)] or len(a) != len(xa):
        raise UsageError("--covariate: it is not known for the same runs as the metric")
    if known.one_pair_a_unit:
        cuped = effects.cuped(difference(b[0], a[0]), (xa[0] + xb[0]) / 2.0)
        values = np.array(cuped.adjusted)
        if is_constant(values):
            raise UsageError(
                "--covariate: it explains the differences completely, so no spread is left to test against"
            )
        se = float(values.std(ddof=2)) / float(np.sqrt(values.size))
        statistic = ttests.TStatistic(float(values.mean()), se, values.size - 2.0, values.size)
        note = f"slope {number(cuped.slope)}, {percent(cuped.variance_reduction)} of variance removed"
    else:
        ya, yb, slope = effects.cuped_arms(a[0], b[0], xa[0], xb[0])
        plain = ttests.welch_t(ya, yb)
        statistic = ttests.TStatistic(plain.effect, plain.se, max(1.0, plain.df - 1.0), plain.n, "Welch t")
        note = f"one slope for both arms, {number(slope)}"
    return Line("cuped", statistic.p, statistic.interval(1.0 - alpha), f"t with {number(statistic.df)} df; {note}")
