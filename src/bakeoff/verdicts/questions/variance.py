"""How precise is the mean at N runs, and how many runs would make it precise enough.

Two questions with two answers. The relative standard error asks how well one arm's mean is known; the smallest
detectable difference (MDE) asks what N runs per arm can separate, and needs far more runs. Both shrink with the root
of N. The spread itself does not, which is why a rule about the spread says nothing about N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.table import Array, Results
from bakeoff.spec.experiment import Summary
from bakeoff.stats.evidence import LEAST_UNITS, Interval
from bakeoff.stats.numerics import chi2_quantile, is_constant, mean, sd
from bakeoff.stats.power import decidable, minimum_detectable_effect, relative_error, units_for_relative_error
from bakeoff.stats.ttests import one_sample_t
from bakeoff.text import percent
from bakeoff.verdicts.answer import NOT_ENOUGH_EVIDENCE, Answer, Block, Table, Text
from bakeoff.verdicts.designs import build_design
from bakeoff.verdicts.designs.base import PlanUnit
from bakeoff.verdicts.observations import Observations, observe
from bakeoff.verdicts.question import Variance
from bakeoff.verdicts.questions.planning import Estimate, units_at
from bakeoff.verdicts.repeats import refuse_curves
from bakeoff.version import __version__

AREA, SLOPE = "AUC", "Derivative"
USUAL_SERIES = "overview/reward"
"""The metric of runs that are named one by one, when nobody names another."""

BANDS = "chi-square limits of the spread, the mean as observed; assumes roughly normal runs"
MOST_SHOWN = 1_000


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity against the number of units, with its band. Shares of |mean|; arrays of one length."""

    value: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class Precision:
    """One statistic of one arm. `relative_error` and `mde` are None where the mean may be 0: shares are undefined."""

    statistic: str
    sample: Sample
    threshold: float
    level: float
    alpha: float
    power: float
    mean: float
    sd: float
    sd_interval: Interval
    mean_interval: Interval
    n: Array
    """Units: 3, 4, ... up to those at hand, and beyond (projected). Fewer decide nothing."""
    relative_error: Curve | None
    mde: Curve | None
    """Smallest difference to another arm with this spread, unpaired, n units per arm; as a share of |mean|."""
    mde_at_hand: float
    """The same at the units at hand, in the metric's unit."""
    runs_for_error: Estimate
    """Smallest number of units for the threshold; None: undefined."""
    runs_for_mde: Estimate

    @property
    def undefined(self) -> bool:
        return self.relative_error is None

    @property
    def at_hand(self) -> int:
        return int(self.sample.values.size)

    def sentences(self) -> list[str]:
        """Both answers, in words."""
        share = f"{100 * self.threshold:.4g} %"
        units = f"{self.sample.unit}s"
        if self.undefined:
            inside = f"[{self.mean_interval.low:.4g}, {self.mean_interval.high:.4g}]"
            return [
                f"{self.statistic}: undefined. The mean, {self.mean:.4g}, may be 0 ({percent(self.level)} interval {inside}), "
                f"and a share of something that may be 0 says nothing. {self.at_hand} {units} per arm can detect "
                + (f"differences of {self.mde_at_hand:.4g} or more." if decidable(self.at_hand) else "nothing.")
            ]
        phrases = []
        for needed, what in ((self.runs_for_error, units), (self.runs_for_mde, f"{units} per arm")):
            if needed.seen is None:
                phrases.append(f"more {what} than anyone can run")
                continue
            differ = needed.upper != needed.seen
            upper = f" (up to {needed.upper} if the spread is at its upper limit)" if differ else ""
            phrases.append(f"N = {needed.seen} {what}{upper}")
        return [
            f"{self.statistic}: for a relative standard error of the mean of at most {share}: {phrases[0]}.",
            f"{self.statistic}: to detect differences of {share} of the mean or more ({percent(self.power)} power, "
            f"unpaired): {phrases[1]}.",
        ]

    def facts(self) -> dict[str, Any]:
        """As JSON shows it."""
        sample = self.sample
        curves = {
            name: None if curve is None else {part: getattr(curve, part).tolist() for part in ("value", "low", "high")}
            for name, curve in (("relative_error", self.relative_error), ("relative_mde", self.mde))
        }
        return {
            "arm": sample.arm,
            "statistic": self.statistic,
            "unit": sample.unit,
            "population": sample.population,
            "n": self.at_hand,
            "failed": sample.failed,
            "missing": list(sample.missing),
            "values": sample.values.tolist(),
            "mean": self.mean,
            "mean_interval": [self.mean_interval.low, self.mean_interval.high],
            "sd": self.sd,
            "sd_interval": [self.sd_interval.low, self.sd_interval.high],
            "undefined": self.undefined,
            "mde": self.mde_at_hand if decidable(self.at_hand) else None,
            "n_for_relative_error": {"estimate": self.runs_for_error.seen, "upper": self.runs_for_error.upper},
            "n_for_mde": {"estimate": self.runs_for_mde.seen, "upper": self.runs_for_mde.upper},
            "curve": {"n": self.n.tolist(), **curves},
            "sentences": self.sentences(),
        }

    def _shown(self) -> list[tuple[int, int]]:
        """The N of the table, each with its place in `n`."""
        wanted = {3, 5, 8, 12, 20, self.at_hand, self.runs_for_error.seen, self.runs_for_mde.seen}
        return [(place, int(n)) for place, n in enumerate(self.n) if int(n) in wanted]

    @property
    def projects(self) -> bool:
        """Whether the table goes beyond the units that were run."""
        return any(n > self.at_hand for _, n in self._shown())

    def table(self) -> Table | None:
        """A few N and what they give; None where shares are undefined."""
        if self.relative_error is None or self.mde is None:
            return None
        headers = ["N", f"{self.statistic}: relative error", "band", "detectable difference", "band "]
        rows = []
        for i, n in self._shown():
            cells = []
            for curve in (self.relative_error, self.mde):
                cells += [f"{100 * curve.value[i]:.3g} %", f"{100 * curve.low[i]:.3g} .. {100 * curve.high[i]:.3g} %"]
            rows.append([f"{n}{'*' if n > self.at_hand else ''}", *cells])
        return Table(headers, rows, right=headers)


def precision(
    sample: Sample,
    statistic: str = "value",
    *,
    threshold: float = 0.05,
    alpha: float = 0.05,
    power: float = 0.8,
    level: float = 0.95,
) -> Precision:
    """What N units say about the mean of `statistic`. Needs at least 2 values (ValueError otherwise)."""
    x = sample.values
    if x.size < 2:
        raise ValueError(f"one value has no spread: {statistic} needs at least 2 {sample.unit}s, got {x.size}")
    centre, spread = mean(x), (0.0 if is_constant(x) else sd(x))
    around = spread_interval(spread, x.size, level)
    defined = relative_error(x, level=level) is not None
    error = difference = Estimate(None, None)
    if defined:
        least = units_for_relative_error(x, threshold, level)
        upper = least
        if least is not None and spread > 0.0:
            upper = max(2, math.ceil((around.high / abs(centre) / threshold) ** 2 - 1e-9))
        error, difference = Estimate(least, upper), Estimate(LEAST_UNITS, LEAST_UNITS)
        if spread > 0.0:
            difference = units_at(threshold * abs(centre), (spread, around.high), alpha, power, "unpaired")
    n = _grid(x.size, [error.seen, error.upper, difference.seen])
    detectable = np.array([minimum_detectable_effect(1.0, float(units), alpha, power, "unpaired") for units in n])
    curves: list[Curve | None] = [None, None]
    if defined:
        spreads = (spread, around.low, around.high)
        curves = [Curve(*(unit * s / abs(centre) for s in spreads)) for unit in (1.0 / np.sqrt(n), detectable)]
    return Precision(
        statistic=statistic,
        sample=sample,
        threshold=threshold,
        level=level,
        alpha=alpha,
        power=power,
        mean=centre,
        sd=spread,
        sd_interval=around,
        mean_interval=one_sample_t(x).interval(level) if spread > 0 else Interval(centre, centre, level),
        n=n,
        relative_error=curves[0],
        mde=curves[1],
        mde_at_hand=minimum_detectable_effect(spread, x.size, alpha, power, "unpaired"),
        runs_for_error=error,
        runs_for_mde=difference,
    )


def spread_interval(spread: float, n: int, level: float = 0.95) -> Interval:
    """Chi-square interval of a standard deviation from n normal values."""
    tail = (1.0 - level) / 2.0
    ends = [spread * math.sqrt((n - 1) / chi2_quantile(n - 1, p)) for p in (1.0 - tail, tail)]
    return Interval(ends[0], ends[1], level)


def _grid(at_hand: int, wanted: Sequence[float | None]) -> Array:
    """Every number up to twice those at hand, then wider steps up to what is needed."""
    last = min(MOST_SHOWN, max(20, 2 * at_hand, *(math.ceil(1.2 * w) for w in wanted if w is not None)))
    dense = np.arange(LEAST_UNITS, min(last, max(20, 2 * at_hand), 60) + 1)
    sparse = np.unique(np.geomspace(dense[-1], last, 24).round()) if last > dense[-1] else dense[-1:]
    exact = [w for w in (at_hand, *wanted) if w is not None and LEAST_UNITS <= w <= last]
    return np.unique(np.concatenate((dense, sparse, exact))).astype(np.float64)


# -- one arm on its own: for planning, never for a verdict


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one arm, one for each independent unit, in the metric's own unit and direction, ascending."""

    arm: str
    metric: str
    values: Array
    unit: PlanUnit
    population: str
    failed: int
    missing: tuple[str, ...]
    """Runs without a value; they are not in `values`."""


def draw_sample(observations: Observations, arm: str) -> Sample:
    """The arm's values. Ascending, so that the order of runs cannot change even the last digit of what follows.

    Seeds over several fixed tasks are averaged across them: one seed is one value of the whole benchmark.
    """
    rows = [row for row in observations.rows if row.arm == arm]
    if not rows:
        raise UsageError(f"no arm called {arm!r}; there are {', '.join(observations.arms)}")
    known = [row for row in rows if row.state != "missing"]
    if not known:
        raise UsageError(f"{arm!r}: none of its {len(rows)} runs has a value of {observations.metric}")
    design = build_design(replace(observations, rows=known), arm, arm)
    values, unit = design.one_arm()
    return Sample(
        arm=arm,
        metric=observations.metric,
        values=np.sort(design.sign * values),
        unit=unit,
        population=design.population,
        failed=sum(row.state == "failed" for row in rows),
        missing=tuple(row.run_id or row.place for row in rows if row.state == "missing"),
    )


# -- the answer


@dataclass(frozen=True)
class VarianceAnswer(Answer):
    """How precise every statistic of every arm is."""

    metric: str
    runs: Sequence[str]
    """Names of runs that were given one by one; empty otherwise."""
    precisions: Sequence[Precision]
    notes: Sequence[str] = ()
    """About where the runs come from."""

    title = "Precision"
    shows_means = True

    def facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "source": self.source or list(self.runs),
            "metric": self.metric,
            "settings": self.all_settings,
            "statistics": [precision.facts() for precision in self.precisions],
            "notes": list(self.notes),
        }

    def blocks(self) -> list[Block]:
        blocks: list[Block] = [Text(f"{self.metric} of {self.source or f'{len(self.runs)} runs'}", strong=True)]
        several = len({precision.sample.arm for precision in self.precisions}) > 1
        for precision in self.precisions:
            sample = precision.sample
            if several or sample.missing or sample.failed:
                notes = [f"{sample.failed} failed, counted with their failure score"] if sample.failed else []
                if sample.missing:
                    some = ", ".join(sample.missing[:3]) + (" ..." if len(sample.missing) > 3 else "")
                    notes.append(f"{len(sample.missing)} missing and left out: {some}")
                text = f"{sample.arm}, {sample.population}" + (f" ({'; '.join(notes)})" if notes else "")
                blocks.append(Text(text))
            if (table := precision.table()) is not None:
                blocks.append(table)
                if precision.projects:
                    blocks.append(Text(f"* projected; {precision.at_hand} {sample.unit}s were run"))
            blocks += [Text(sentence) for sentence in precision.sentences()]
        unit = self.precisions[0].sample.unit
        blocks.append(Text(f"Bands: {BANDS}. Figures beyond these {unit}s are projected."))
        blocks += [Text(f"Note: {note}.") for note in self.notes]
        return blocks

    @property
    def exit_code(self) -> int:
        """3 when nothing can be said as a share of the mean, because the mean may be 0."""
        return NOT_ENOUGH_EVIDENCE if all(precision.undefined for precision in self.precisions) else 0


def answer(results: Results, question: Variance) -> VarianceAnswer:
    """A metric that was logged by step is looked at as its area under the curve and as its slope; otherwise as it is."""
    one_by_one = results.label == ""
    metric = question.metric or results.analysis.metric
    if metric is None:
        metric = USUAL_SERIES if one_by_one and USUAL_SERIES in results.metrics else results.primary()[0]
    if one_by_one and (without := [row for row in results.rows if not row.has(metric)]):
        raise UsageError(f"{without[0].name}: the run does not report {metric!r}; {results.known_metrics()}")
    analysis = question.analysis(results.analysis.about(metric), metric)
    statistics: dict[str, Summary | None] = {metric: None}
    if metric in results.logged:
        window = analysis.summary.window if analysis.summary is not None else None
        statistics = {AREA: Summary(type="auc", window=window), SLOPE: Summary(type="slope", window=window)}
    elif question.summary is not None and question.summary.window is not None:
        raise UsageError(f"--window cuts a series, and {metric!r} was not logged by step")
    if set(question.arms) <= {row.arm for row in results.rows} and question.arms:
        # Series of the others may be such that nothing can be made of them: one that is not trained has a single step.
        results = replace(results, rows=[row for row in results.rows if row.arm in question.arms])
    observed = {
        label: observe(results, metric, analysis.model_copy(update={"summary": summary}))
        for label, summary in statistics.items()
    }
    for observations in observed.values():
        refuse_curves(observations)
    precisions = []
    for arm in question.arms or next(iter(observed.values())).arms:
        for label, observations in observed.items():
            sample = draw_sample(observations, arm)
            try:
                precisions.append(
                    precision(sample, label, threshold=question.precision, alpha=analysis.alpha, power=question.power)
                )
            except ValueError as error:
                raise UsageError(f"{arm}: {error}") from error
    window = question.summary.window if question.summary is not None else None
    settings = {
        "threshold": question.precision, "alpha": analysis.alpha, "power": question.power, "window": window, "bands": BANDS,
    }  # fmt: skip
    names = [row.name for row in results.rows] if one_by_one else []
    return VarianceAnswer(results.label, settings, metric, names, precisions, results.notes)
