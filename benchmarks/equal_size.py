"""Size and power of common analyses at equal size: `python benchmarks/equal_size.py [REPLICATES]`.

A method that finds differences where there are none finds more of those that are there. So each method's threshold is
moved until it is wrong in 5 % of the data sets without an effect, and only then is its power counted. Data and methods are
those of `side_by_side.py`, with scipy's paired tests on the means of tasks. The table goes into docs/other-analyses.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy import stats
from side_by_side import ALPHA, METHODS, PAGE, Data, Said, clustered, seen, skewed, trained

BEGIN, END = "<!-- table: written by benchmarks/equal_size.py -->", "<!-- end of table -->"


def unit_means(data: Data) -> np.ndarray:
    """The difference of each task or seed, as a careful script would form it; units with a lost run are dropped."""
    a, b = seen(data)
    return np.array([y.mean() - x.mean() for x, y in zip(a, b, strict=True) if x.size and y.size])


def paired_t(data: Data, rng: np.random.Generator) -> Said:
    """scipy's paired t test on the means of tasks or seeds."""
    d = unit_means(data)
    if np.ptp(d) == 0:
        return Said(False)
    test = stats.ttest_1samp(d, 0)
    low, high = test.confidence_interval(0.95)
    return Said(bool(test.pvalue <= ALPHA), float(low), float(high), float(test.pvalue))


def wilcoxon(data: Data, rng: np.random.Generator) -> Said:
    """scipy's signed-rank test on the means of tasks or seeds."""
    d = unit_means(data)
    p = float(stats.wilcoxon(d).pvalue) if d.any() else 1.0
    return Said(p <= ALPHA, p=p)


SCIPY = {"scipy paired t test on task or seed means": paired_t, "scipy Wilcoxon on task or seed means": wilcoxon}


def better(null: Callable[[np.random.Generator], Data], by: float) -> Callable[[np.random.Generator], Data]:
    def draw(rng: np.random.Generator) -> Data:
        data = null(rng)
        return Data(data.a, data.b + by, data.seeds)

    return draw


EFFECTS = {
    "clustered tasks, 1.2": (clustered, better(clustered, 1.2)),
    "skewed scores, 1.5": (skewed, better(skewed, 1.5)),
    "8 policies, 0.8": (trained, better(trained, 0.8)),
}


def strength(said: Said) -> float:
    """How strongly a method says that the arms differ: smaller p, or an interval that is further away from 0."""
    if said.p is not None:
        return -said.p
    if said.low is None or said.high is None or said.high == said.low:
        return -1.0
    return abs(said.low + said.high) / (said.high - said.low)


def equal_size(replicates: int) -> str:
    """Size at the nominal 5 %, power there, and power at the threshold at which each method is wrong in 5 %."""
    names = [f"{name}: {what}" for name in EFFECTS for what in ("size", "power", "power at size 5 %")]
    rows = []
    for method, function in {**SCIPY, **METHODS}.items():
        cells = []
        for null, effect in EFFECTS.values():
            rng = np.random.default_rng(1)
            absent, present = (
                [function(draw(np.random.default_rng([11, i])), rng) for i in range(replicates)]
                for draw in (null, effect)
            )
            threshold = np.quantile([strength(each) for each in absent], 0.95, method="higher")
            cells += [np.mean([each.differs for each in group]) for group in (absent, present)]
            cells.append(np.mean([strength(each) > threshold for each in present]))
        rows.append(f"| {method} | {' | '.join(f'{share:.0%}' for share in cells)} |")
    header = f"| method | {' | '.join(names)} |\n|---|{'---|' * len(names)}"
    said = f"Size and power over {replicates:,} data sets without and with an effect. Power at size 5 %: a method says that the "
    said += "arms differ where it is surer than in 95 % of the data sets without an effect."
    return f"{said}\n\n{header}\n" + "\n".join(rows)


def main() -> None:
    text = equal_size(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print(text)
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
