"""How many times as wide an interval must be that shows equivalence below 8 units (`stats.decision.WIDER_FOR_SKEW`).

Differences have exactly the margin as their mean and a long tail that points away from 0. Printed for each number of
units, law and level: how many times its level the plain interval calls them equivalent, and the factor with which 1.8
times the level are (9 % at 5 %).

    python benchmarks/equivalence_factors.py
"""

from __future__ import annotations

import numpy as np
import scipy.special as sp

REPLICATES, BAR = 200_000, 1.8
LEVELS = (0.05, 0.025, 0.01, 0.005)


def main() -> None:
    rng = np.random.default_rng(0)
    for units in range(3, 8):
        for name in ("exponential", "lognormal, sigma .5"):
            if name == "exponential":
                d = rng.exponential(size=(REPLICATES, units)) - 1.0
            else:
                d = np.exp(0.5 * rng.normal(size=(REPLICATES, units))) - np.exp(0.125)
            t = -d.mean(axis=1) / d.std(axis=1, ddof=1) * np.sqrt(units)
            for level in LEVELS:
                ratios = t / -sp.stdtrit(units - 1.0, level)
                times, factor = np.mean(ratios > 1.0) / level, np.quantile(ratios, 1.0 - BAR * level)
                print(f"{units} {name}, level {level:g}: {times:.1f} times, factor {factor:.2f}")


if __name__ == "__main__":
    main()
