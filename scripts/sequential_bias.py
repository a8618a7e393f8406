"""Print the table of docs/sequential.md: the bias of the effect after a sequential stop, and of the estimate beside it."""

from __future__ import annotations

import numpy as np

from bakeoff.stats.sequential import SequentialRule, shrunken_mean

REPLICATES, PAIRS = 4_000, 100
EFFECTS = (0.0, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0)


def main() -> None:
    rule = SequentialRule(PAIRS)
    print("| true effect (sd) | decided | median pairs | bias of the mean | bias of the estimate | of decided ones | |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for effect in EFFECTS:
        d = np.random.default_rng(0).normal(effect, 1.0, (REPLICATES, PAIRS))
        stops, words = rule.stops(d)
        decided = words > 0
        sizes = np.minimum(stops, PAIRS)
        means = np.array([row[:n].mean() for row, n in zip(d, sizes, strict=True)])
        less = [shrunken_mean(row[:n], 40.0) for row, n in zip(d, sizes, strict=True)]
        estimates = np.where(decided, less, means)
        cells = [f"{values.mean() - effect:+.3f}" for values in (means, estimates, means[decided], estimates[decided])]
        print(f"| {effect:g} | {decided.mean():.1%} | {np.median(sizes):.0f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
