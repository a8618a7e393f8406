"""Print the table of docs/sequential.md: how soon each sequential test decides, and how often it is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bakeoff.spec.experiment import Analysis, Sequential
from bakeoff.verdicts.sequential.evidence_path import sequential_rule

REPLICATES, PAIRS = 4_000, 200
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def shifted(mean: float, sd: float) -> Draw:
    """Normal differences, clipped to [-1, 1]."""
    return lambda rng, shape: np.clip(rng.normal(mean, sd, shape), -1.0, 1.0)


def successes(old: float, new: float) -> Draw:
    """Differences of two independent successes with these rates: -1, 0 or 1."""
    return lambda rng, shape: (rng.random(shape) < new).astype(float) - (rng.random(shape) < old)


LAWS: dict[str, Draw] = {
    "scores in [0, 1], difference 0.1, sd 0.1": shifted(0.1, 0.1),
    "scores in [0, 1], difference 0.2, sd 0.2": shifted(0.2, 0.2),
    "successes, 30 % against 60 %": successes(0.3, 0.6),
    "successes, 10 % against 90 %": successes(0.1, 0.9),
    "no effect: equal arms": shifted(0.0, 0.1),
    "no effect: successes, 50 % against 50 %": successes(0.5, 0.5),
    "no effect on average: +0.9 once in ten, else -0.1": lambda rng, s: np.where(rng.random(s) < 0.1, 0.9, -0.1),
}


def main() -> None:
    analysis = Analysis(metric="score", bounds=(0.0, 1.0))
    print("| differences of the pairs | symmetric: decided | median pairs | betting: decided | median pairs |")
    print("|---|--:|--:|--:|--:|")
    for name, draw in LAWS.items():
        d = draw(np.random.default_rng(0), (REPLICATES, PAIRS))
        cells = []
        for test in ("symmetric", "betting"):
            settings = Sequential.model_validate({"max_seeds": PAIRS, "test": test})
            stops, words = sequential_rule(analysis, settings, 1).stops(d)
            share = float((words > 0).mean())
            cells += [f"{share:.1%}", f"{np.median(stops):.0f}" if share > 0.5 else "-"]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
