"""Tests that can be asked for beside the one that decides. Each gives p, an interval or both, and a note.

None of them decides. They see the units of the design, so none of them can turn rollouts into evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array
from bakeoff.stats import binary, effects, permutation, ranks, ttests
from bakeoff.stats.bootstrap import (
    BootstrapInterval,
    bootstrap,
    bootstrap_crossed,
    bootstrap_difference,
    bootstrap_two_level,
)
from bakeoff.stats.evidence import Interval
from bakeoff.stats.numerics import is_constant
from bakeoff.verdicts.design import ONE_PAIR_A_UNIT, Design
from bakeoff.verdicts.testing import sides

UNDER_COVERS = "under-covers with few units (84 / 89 / 92 % at 5 / 8 / 15)"


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

    design: Design
    a: list[Array]
    b: list[Array]
    alpha: float
    margin: float | None
    resamples: int

    @property
    def level(self) -> float:
        return 1.0 - self.alpha

    def differences(self, name: str) -> Array:
        """B - A of each unit."""
        if self.design.kind not in ONE_PAIR_A_UNIT:
            raise UsageError(
                f"--method {name} needs pairs of one kind of unit; this comparison is {_shape(self.design)}"
            )
        return self.b[0] - self.a[0]

    def samples(self, name: str) -> tuple[Array, Array]:
        """Both arms as independent samples."""
        if len(self.a) != 1 or self.a[0].ndim != 1:
            raise UsageError(f"--method {name} needs one kind of unit; this comparison is {_shape(self.design)}")
        return self.a[0], self.b[0]

    def outcomes(self, name: str) -> tuple[Array, Array]:
        """Both arms as 0 and 1."""
        if not self.design.binary:
            raise UsageError(
                f"--method {name} needs outcomes of 0 and 1, one for each unit; here the values are others"
            )
        shift = 1.0 if self.design.turned else 0.0
        return self.a[0] + shift, self.b[0] + shift

    def by_task(self, name: str) -> list[Array]:
        """Differences inside each task: of pairs where seeds are shared, else the one of the task's means."""
        design = self.design
        if len(design.tasks) < 2 or not design.paired:
            raise UsageError(f"--method {name} clusters by task, so it needs several tasks that both arms share")
        if not design.matched:
            return [np.array([difference]) for difference in self.b[0] - self.a[0]]
        found: dict[str, list[float]] = {task: [] for task in design.tasks}
        for place, cell in design.control.items():
            found[place[0]].append(design.candidate[place].mean(np.nan) - cell.mean(np.nan))
        return [np.array(values) for values in found.values()]


def ask(names: Sequence[str], design: Design, *, alpha: float, margin: float | None, resamples: int) -> list[Line]:
    """The named methods' lines, in the order asked for."""
    known = design.without_missing()
    if not names or not known.control or not known.candidate:
        return []
    question = Problem(known, *sides(known), alpha, margin, resamples)
    return [_line(name, question, design.missing) for name in names]


def _line(name: str, question: Problem, missing: int) -> Line:
    try:
        found = METHODS[name](question)
    except ValueError as error:
        return Line(name, None, None, f"cannot be told: {error}")
    return replace(found, note=f"{found.note}; {missing} missing runs left out") if missing else found


def _shape(design: Design) -> str:
    return {
        "crossed": "over tasks and seeds at once",
        "fixed seeds": "stratified by task",
        "fixed rollouts": "stratified by task and unpaired",
        "rollouts": "unpaired",
    }.get(design.kind, "paired")


def _t(q: Problem) -> Line:
    match q.design.kind:
        case "crossed":
            found = ttests.crossed_t(q.b[0] - q.a[0])
        case "fixed seeds":
            found = ttests.stratified_paired_t([y - x for x, y in zip(q.a, q.b, strict=True)])
        case "fixed rollouts":
            found = ttests.stratified_t(q.a, q.b)
        case _:
            found = ttests.one_sample_t(q.differences("t"))
    return Line("t", found.p, found.interval(q.level), f"{found.method}, {found.df:.4g} df; {found.assumes}")


def _welch(q: Problem) -> Line:
    found = ttests.welch_t(*q.samples("welch"))
    ignored = "; the pairing is ignored" if q.design.paired else ""
    return Line("welch", found.p, found.interval(q.level), f"{found.df:.4g} df; {found.assumes}{ignored}")


def _signflip(q: Problem) -> Line:
    d = q.differences("signflip")
    found = permutation.SignFlip(d)
    if d.size <= permutation.EXACT_COUNT_UNITS:
        return Line("signflip", permutation.exact_tails(d).p, found.interval(q.level), "exact; ties count half")
    return Line(
        "signflip", found.p, found.interval(q.level), f"Monte Carlo, {permutation.DRAWS:,} draws; ties count half"
    )


def _permutation(q: Problem) -> Line:
    found = permutation.permutation_mean(*q.samples("permutation"))
    how = "exact" if found.exact else f"Monte Carlo, {permutation.DRAWS:,} draws"
    ignored = "; the pairing is ignored" if q.design.paired else ""
    return Line("permutation", found.p, None, f"{how}, of the mean difference{ignored}")


def _bootstrap(method: Literal["studentized", "percentile", "bca"], note: str) -> Callable[[Problem], Line]:
    def line(q: Problem) -> Line:
        if q.design.paired:
            found = bootstrap(q.differences(method), method=method, resamples=q.resamples, level=q.level)
        else:
            found = bootstrap_difference(*q.samples(method), method=method, resamples=q.resamples, level=q.level)
        return Line(method, None, _interval(found), f"{found.resamples:,} resamples of units; {note}")

    return line


def _interval(found: BootstrapInterval) -> Interval:
    open_ends = not np.isfinite(found.low), not np.isfinite(found.high)
    return Interval(found.low, found.high, found.level, *open_ends)


def _mcnemar(q: Problem) -> Line:
    if not q.design.paired:
        raise UsageError("--method mcnemar needs one pair for each unit; fisher compares unpaired outcomes")
    found = binary.paired_binary(*q.outcomes("mcnemar"))
    note = f"exact p; {found.b_only} units where only B succeeds, {found.a_only} where only A does; Tango interval"
    return Line("mcnemar", found.p_exact, found.interval(q.level), note)


def _fisher(q: Problem) -> Line:
    found = binary.unpaired_binary(*q.outcomes("fisher"))
    ignored = "; the pairing is ignored" if q.design.paired else ""
    note = f"exact p; {found.wins_b}/{found.n_b} against {found.wins_a}/{found.n_a}; Miettinen-Nurminen interval"
    return Line("fisher", found.p_exact, found.interval(q.level), note + ignored)


def _wilcoxon(q: Problem) -> Line:
    found = ranks.wilcoxon(q.differences("wilcoxon"))
    return Line("wilcoxon", found.p, None, f"{_how(found.exact)}; about ranks, not about the mean; zeros dropped")


def _mannwhitney(q: Problem) -> Line:
    found = ranks.mann_whitney(*q.samples("mannwhitney"))
    ignored = "; the pairing is ignored" if q.design.paired else ""
    return Line("mannwhitney", found.p, None, f"{_how(found.exact)}; about ranks, not about the mean{ignored}")


def _how(exact: bool) -> str:
    return "exact" if exact else "normal approximation"


def _tost(q: Problem) -> Line:
    if q.margin is None:
        raise UsageError("--method tost needs --margin: the largest difference that does not matter")
    if q.design.kind == "rollouts":
        found = ttests.welch_t(*q.samples("tost"))
    else:
        found = ttests.one_sample_t(q.differences("tost"))
    interval = found.interval(1.0 - 2.0 * q.alpha)
    note = f"p of 'differs by {q.margin:g} or more' by {found.method}; its interval has level 1 - 2 alpha"
    return Line("tost", found.p_equivalent(q.margin), interval, note)


def _cluster(q: Problem) -> Line:
    groups = q.by_task("cluster")
    labels = np.repeat(np.arange(len(groups)), [group.size for group in groups])
    found = ttests.cluster_t(np.concatenate(groups), labels)
    return Line("cluster", found.p, found.interval(q.level), f"cluster-robust by task, t with {found.df:g} df, never z")


def _hierarchical(q: Problem) -> Line:
    if q.design.kind == "crossed":
        found = bootstrap_crossed(q.b[0] - q.a[0], q.resamples, q.level)
        return Line("hierarchical", None, _interval(found), "tasks and seeds resampled independently")
    found = bootstrap_two_level(q.by_task("hierarchical"), q.resamples, q.level)
    return Line("hierarchical", None, _interval(found), "tasks, then runs inside them, resampled; over-covers")


METHODS: dict[str, Callable[[Problem], Line]] = {
    "t": _t,
    "welch": _welch,
    "signflip": _signflip,
    "permutation": _permutation,
    "bootstrap": _bootstrap("studentized", "studentized"),
    "studentized": _bootstrap("studentized", "the same as bootstrap"),
    "percentile": _bootstrap("percentile", UNDER_COVERS),
    "bca": _bootstrap("bca", UNDER_COVERS),
    "mcnemar": _mcnemar,
    "fisher": _fisher,
    "wilcoxon": _wilcoxon,
    "mannwhitney": _mannwhitney,
    "tost": _tost,
    "cluster": _cluster,
    "hierarchical": _hierarchical,
}
"""Every method by the name it is asked for with."""


def adjusted(design: Design, covariate: Design, alpha: float) -> Line:
    """t after taking out what a covariate explains (CUPED). The slope costs one degree of freedom."""
    known, explains = design.without_missing(), covariate.without_missing()
    a, b = sides(known)
    xa, xb = sides(explains)
    if any(
        len(u) != len(v) or any(p.shape != q.shape for p, q in zip(u, v, strict=True)) for u, v in ((a, xa), (b, xb))
    ):
        raise UsageError("--covariate: it is not known for the same runs as the metric")
    if known.kind in ONE_PAIR_A_UNIT:
        found = effects.cuped(b[0] - a[0], (xa[0] + xb[0]) / 2.0)
        values, note = (
            np.array(found.adjusted),
            f"slope {found.slope:.3g}, {found.variance_reduction:.0%} of variance removed",
        )
        statistic = _with_slope(values)
    elif known.kind == "rollouts":
        ya, yb, slope = effects.cuped_arms(a[0], b[0], xa[0], xb[0])
        plain = ttests.welch_t(ya, yb)
        statistic = ttests.TStatistic(plain.effect, plain.se, max(1.0, plain.df - 1.0), plain.n, "Welch t")
        note = f"one slope for both arms, {slope:.3g}"
    else:
        raise UsageError(f"--covariate needs one kind of unit; this comparison is {_shape(known)}")
    return Line("cuped", statistic.p, statistic.interval(1.0 - alpha), f"t with {statistic.df:.4g} df; {note}")


def _with_slope(values: Array) -> ttests.TStatistic:
    n = values.size
    if is_constant(values):
        raise UsageError("--covariate: it explains the differences completely, so no spread is left to test against")
    se = float(values.std(ddof=2)) / float(np.sqrt(n))
    return ttests.TStatistic(float(values.mean()), se, n - 2.0, n)
