"""The same data, analysed by what others do and by `bakeoff compare`: `python benchmarks/side_by_side.py [--quick]`.

Six kinds of data with a known truth. For one data set of each kind every method's answer is shown, and for many data
sets how often the method says that the arms differ: the false positive rate where they do not, the power where they do.
The tables go into docs/other-analyses.md.

rliable's procedure (Agarwal et al. 2021) is implemented here from its publication, because its package does not install
beside a current pandas: the IQM over all runs of all tasks, resampled inside tasks (stratified bootstrap, 500 resamples),
the 95 % percentile interval of the difference of two arms, and 'different' where it excludes 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.comparison import compare
from bakeoff.verdicts.observations import Observation, Observations

PAGE = Path(__file__).resolve().parents[1] / "docs" / "other-analyses.md"
BEGIN, END = "<!-- tables: written by benchmarks/side_by_side.py -->", "<!-- end of tables -->"
ALPHA, RESAMPLES = 0.05, 500


@dataclass(frozen=True)
class Data:
    """(tasks x runs) or (seeds x answers) scores of two arms; NaN is a run that was lost."""

    a: np.ndarray
    b: np.ndarray
    seeds: bool = False
    """Rows are seeds of one task and not tasks."""


@dataclass(frozen=True)
class Said:
    """What a method says: the interval of B - A, p, and whether the arms differ."""

    differs: bool
    low: float | None = None
    high: float | None = None
    p: float | None = None
    word: str = ""

    def __str__(self) -> str:
        interval = "" if self.low is None else f"{self.low:+.2f} to {self.high:+.2f}"
        p = "" if self.p is None else f"p = {self.p:.3g}"
        return "; ".join(
            part for part in (self.word or ("differ" if self.differs else "no difference"), interval, p) if part
        )


# -- the data: ten tasks with four runs of each arm, unless said otherwise


def clustered(rng: np.random.Generator) -> Data:
    """No effect on average over tasks like these, but one on each task (sd 1, as large as the noise of a run)."""
    level, effect = rng.normal(0, 2, (10, 1)), rng.normal(0, 1, (10, 1))
    return Data(level + rng.normal(size=(10, 4)), level + effect + rng.normal(size=(10, 4)))


def real(rng: np.random.Generator) -> Data:
    """As before with an average effect of 1.2."""
    data = clustered(rng)
    return Data(data.a, data.b + 1.2)


def skewed(rng: np.random.Generator) -> Data:
    """No effect: both arms from one very skewed distribution (lognormal, sigma 1)."""
    return Data(rng.lognormal(0, 1, (10, 4)), rng.lognormal(0, 1, (10, 4)))


def lost(rng: np.random.Generator) -> Data:
    """No effect, one task, 15 seeds; runs of B below -0.5 are lost in two of three cases, as slow runs are at a time limit."""
    a, b = rng.normal(size=(15, 1)), rng.normal(size=(15, 1))
    return Data(a, np.where((b < -0.5) & (rng.random(b.shape) < 2 / 3), np.nan, b), seeds=True)


def trained(rng: np.random.Generator) -> Data:
    """No effect: 8 trained policies of each arm (sd 0.5) with 25 answers each (sd 1)."""
    a, b = (rng.normal(0, 0.5, (8, 1)) + rng.normal(size=(8, 25)) for _ in range(2))
    return Data(a, b, seeds=True)


def identical(rng: np.random.Generator) -> Data:
    """No effect at all: ten tasks of different difficulty, outcomes of 0 and 1, the same rates for both arms."""
    rates = rng.beta(1, 1, (10, 1))
    return Data((rng.random((10, 4)) < rates).astype(float), (rng.random((10, 4)) < rates).astype(float))


KINDS: dict[str, Callable[[np.random.Generator], Data]] = {
    "clustered tasks, no effect": clustered,
    "clustered tasks, effect 1.2": real,
    "skewed scores, no effect": skewed,
    "0/1 scores, no effect": identical,
    "answers of 8 policies, no effect": trained,
    "lost runs, no effect": lost,
}


# -- the methods


def seen(data: Data) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The runs of each task that are there: what a script that drops NaN sees."""
    return [x[~np.isnan(x)] for x in data.a], [x[~np.isnan(x)] for x in data.b]


def iqm_difference(data: Data, rng: np.random.Generator) -> Said:
    """rliable's procedure."""

    def drawn(tasks: list[np.ndarray]) -> np.ndarray:
        parts = [x[rng.integers(0, x.size, (RESAMPLES, x.size))] for x in tasks if x.size]
        return stats.trim_mean(np.concatenate(parts, axis=1), 0.25, axis=1)

    a, b = seen(data)
    if data.seeds:  # its table has one number for each run of a task: a seed's mean
        a, b = ([np.array([x.mean() for x in side if x.size])] for side in (a, b))
    low, high = np.quantile(drawn(b) - drawn(a), [0.025, 0.975])
    return Said(not low <= 0 <= high, float(low), float(high))


def pooled_t(data: Data, rng: np.random.Generator) -> Said:
    """scipy's t test on all runs at once (Welch)."""
    a, b = (np.concatenate(side) for side in seen(data))
    if a.std() + b.std() == 0:
        return Said(False)
    test = stats.ttest_ind(b, a, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return Said(bool(test.pvalue <= ALPHA), float(low), float(high), float(test.pvalue))


def percentile(data: Data, rng: np.random.Generator) -> Said:
    """Percentile bootstrap of the difference of means, runs resampled."""
    a, b = (np.concatenate(side) for side in seen(data))
    means = [x[rng.integers(0, x.size, (RESAMPLES, x.size))].mean(axis=1) for x in (a, b)]
    low, high = np.quantile(means[1] - means[0], [0.025, 0.975])
    return Said(not low <= 0 <= high, float(low), float(high))


def cluster_z(data: Data, rng: np.random.Generator) -> Said:
    """Standard error clustered by task (or seed), normal quantile."""
    d = np.array([y.mean() - x.mean() for x, y in zip(*seen(data), strict=True) if x.size and y.size])
    centre, error = float(d.mean()), float(d.std(ddof=0)) / np.sqrt(d.size)
    low, high = centre - 1.96 * error, centre + 1.96 * error
    return Said(not low <= 0 <= high, low, high)


def ours(data: Data, rng: np.random.Generator) -> Said:
    """`bakeoff compare` with its defaults."""
    rows = []
    for arm, values in (("a", data.a), ("b", data.b)):
        for task, runs in enumerate(values):
            for run, value in enumerate(runs):
                state = "missing" if np.isnan(value) else "scored"
                place = ("t", task) if data.seeds else (f"t{task}", None)
                rows.append(Observation(arm, *place, run, state, float(value)))
    (found,) = compare([Observations("score", rows, Analysis(control="a"))], verdict_only=True)
    ends = found.decision_interval
    low, high = (ends.low, ends.high) if ends is not None else (None, None)
    return Said(found.verdict in ("better", "worse"), low, high, found.p_adjusted, found.verdict)


METHODS: dict[str, Callable[[Data, np.random.Generator], Said]] = {
    "rliable's procedure (IQM, stratified bootstrap)": iqm_difference,
    "scipy t test on all runs": pooled_t,
    "percentile bootstrap of all runs": percentile,
    "interval clustered by task or seed, z": cluster_z,
    "`bakeoff compare`": ours,
}


def tables(replicates: int) -> str:
    header = "| method | " + " | ".join(KINDS) + " |\n|---|" + "---|" * len(KINDS)
    example, counted = [], []
    sets = {kind: [draw(np.random.default_rng([7, i])) for i in range(replicates)] for kind, draw in KINDS.items()}
    for name, method in METHODS.items():
        cells, shares = [], []
        for data in sets.values():
            rng = np.random.default_rng(1)
            answers = [method(each, rng) for each in data]
            cells.append(str(answers[0]))
            shares.append(f"{np.mean([answer.differs for answer in answers]):.1%}")
        example.append(f"| {name} | {' | '.join(cells)} |")
        counted.append(f"| {name} | {' | '.join(shares)} |")
    return "\n".join(
        ["One data set of each kind:", "", header, *example, "",
         f"How often each method says that the arms differ, over {replicates:,} data sets of each kind (nominal: 5 % "
         "without an effect):", "", header, *counted]
    )  # fmt: skip


def main() -> None:
    quick = "--quick" in sys.argv
    text = tables(60 if quick else 500)
    print(text)
    if not quick:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
