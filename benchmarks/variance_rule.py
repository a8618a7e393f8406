"""Compare rules for 'enough runs' on simulated data: `python benchmarks/variance_rule.py [--json]`.

15 runs are drawn many times from a normal distribution with a known coefficient of variation (CV). Four rules answer
how many runs are enough for a precision of 5 %:

* first CV below 5 %: the first n at which the CV of the first n runs is below 5 %
* CV settles: the first n at which that CV changes by less than 5 % from the one before
* bootstrap CV settles: the same for the CV averaged over resamples of size n
* relative error: `bakeoff variance`, the n at which sd / sqrt(n) / |mean| is at most 5 %

A rule that measures precision must answer (CV / 5 %)^2: 16 times as many runs for 4 times the noise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math

import numpy as np

from bakeoff.stats.power import units_for_relative_error

RUNS, THRESHOLD, RESAMPLES = 15, 0.05, 400
NOISE = (0.02, 0.05, 0.10, 0.20, 0.40)


def cumulative_cv(x: np.ndarray) -> list[float]:
    return [float(abs(x[:n].std(ddof=1) / x[:n].mean())) for n in range(2, x.size + 1)]


def first_below(x: np.ndarray, rng: np.random.Generator) -> int | None:
    return next((n for n, cv in enumerate(cumulative_cv(x), start=2) if cv < THRESHOLD), None)


def settles(curve: list[float]) -> int | None:
    steps = itertools.pairwise(curve)
    return next((n for n, (old, new) in enumerate(steps, start=3) if abs(new - old) / old < THRESHOLD), None)


def cv_settles(x: np.ndarray, rng: np.random.Generator) -> int | None:
    return settles(cumulative_cv(x))


def bootstrap_cv_settles(x: np.ndarray, rng: np.random.Generator) -> int | None:
    curve = []
    for n in range(2, x.size + 1):
        drawn = x[rng.integers(0, x.size, (RESAMPLES, n))]
        curve.append(float(np.mean(np.abs(drawn.std(axis=1, ddof=1) / drawn.mean(axis=1)))))
    return settles(curve)


def relative_error(x: np.ndarray, rng: np.random.Generator) -> int | None:
    return units_for_relative_error(x, THRESHOLD)


RULES = {
    "first CV below 5 %": first_below,
    "CV settles": cv_settles,
    "bootstrap CV settles": bootstrap_cv_settles,
    "relative error (ours)": relative_error,
}


def ask(rule: str, noise: float, replicates: int, seed: int) -> dict[str, object]:
    rng = np.random.default_rng([seed, round(1000 * noise)])
    answers = [RULES[rule](rng.normal(1.0, noise, RUNS), rng) for _ in range(replicates)]
    known = [answer for answer in answers if answer is not None]
    low, middle, high = (float(q) for q in np.quantile(known, [0.1, 0.5, 0.9])) if known else (math.nan,) * 3
    two = sum(answer == 2 for answer in known) / replicates
    return {"rule": rule, "cv": noise, "median": middle, "low": low, "high": high, "says_two": two,
            "no_answer": 1 - len(known) / replicates, "needed": max(2, math.ceil((noise / THRESHOLD) ** 2 - 1e-9))}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = []
    for rule in RULES:
        replicates = min(asked.replicates, 300) if rule.startswith("bootstrap") else asked.replicates
        found += [ask(rule, noise, replicates, asked.seed) for noise in NOISE]
    if asked.json:
        print(json.dumps({"runs": RUNS, "threshold": THRESHOLD, "seed": asked.seed, "rows": found}, indent=2))
        return
    print("| rule | true CV | runs that a 5 % error takes | median answer (10 % .. 90 %) | says 2 | no answer |")
    print("|---|---|---|---|---|---|")
    for row in found:
        answer = "-" if row["no_answer"] == 1 else f"{row['median']:.0f} ({row['low']:.0f} .. {row['high']:.0f})"
        shares = f"{row['says_two']:.0%} | {row['no_answer']:.0%}"
        print(f"| {row['rule']} | {row['cv']:.0%} | {row['needed']} | {answer} | {shares} |")


if __name__ == "__main__":
    main()
