"""Coverage of the intervals that `rank` shows: `python benchmarks/simulations/ranking.py [--quick]`.

Scores are drawn with a known truth, ranked through the same functions as in `bakeoff rank`, and it is counted how often
a nominal 95 % interval contains the truth. Prints the tables of docs/ranking.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from bakeoff.stats.aggregates import average, chance_interval, improvement, iqm, pass_at_k, pass_hat_k
from bakeoff.stats.ranks import bradley_terry_over

Laws = dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]]
LAWS: Laws = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "0 or 1, rate 0.3": lambda rng, size: (rng.random(size) < 0.3).astype(float),
}
RATES = {"alike": (5.0, 5.0), "spread": (0.5, 0.5), "mostly hard": (0.3, 1.5), "mostly easy": (1.5, 0.3)}
"""Success rates of tasks: parameters of a beta distribution."""
RESAMPLES = 400
SPREAD = 3.0
"""Tasks' own levels, and the ratio of the noisiest to the quietest task's spread."""


def scores(rng: np.random.Generator, law: str, tasks: int, runs: int) -> list[np.ndarray]:
    """Runs of each task; where the law allows it, tasks have levels and spreads of their own."""
    x = LAWS[law](rng, (tasks, runs))
    if "0 or 1" in law:
        return list(x)
    return list(x * np.linspace(1.0, SPREAD, tasks)[:, None] + np.arange(tasks)[:, None])


def aggregates(law: str, tasks: int, runs: int, replicates: int) -> dict[str, float]:
    """Coverage of mean, IQM and the chance to beat an equal arm, whose truths come from very many runs a task."""
    rng = np.random.default_rng([tasks, runs])
    many = scores(rng, law, tasks, 400_000 // tasks)
    truths = {
        "mean": float(np.mean([x.mean() for x in many])), "beats": 0.5,
        "IQM": iqm(many, resamples=2).estimate,
    }  # fmt: skip
    hits = dict.fromkeys(truths, 0)
    for _ in range(replicates):
        a, b = scores(rng, law, tasks, runs), scores(rng, law, tasks, runs)
        seed = int(rng.integers(2**31))
        of_mean, of_iqm = average(a, RESAMPLES, seed=seed), iqm(a, RESAMPLES, seed=seed)
        beats = improvement(a, b, RESAMPLES, seed=seed)
        for name, found in (("mean", of_mean), ("IQM", of_iqm), ("beats", beats)):
            hits[name] += found.low - 1e-12 <= truths[name] <= found.high + 1e-12
    return {name: count / replicates for name, count in hits.items()}


def passes(rates: str, tasks: int, attempts: int, k: int, replicates: int) -> tuple[float, float]:
    """Coverage of pass@k and pass^k."""
    rng = np.random.default_rng([tasks, attempts, k])
    many = rng.beta(*RATES[rates], 1_000_000)
    truths = 1.0 - float(np.mean((1.0 - many) ** k)), float(np.mean(many**k))
    hits = [0, 0]
    for _ in range(replicates):
        successes = rng.binomial(attempts, rng.beta(*RATES[rates], tasks))
        for i, estimate in enumerate((pass_at_k, pass_hat_k)):
            interval = chance_interval(estimate(successes, np.full(tasks, attempts), k))
            assert interval is not None
            hits[i] += interval.low <= truths[i] <= interval.high
    return hits[0] / replicates, hits[1] / replicates


def strengths(arms: int, tasks: int, replicates: int) -> float:
    """Coverage of Bradley-Terry strengths, all arms together. Arms differ by a standard deviation from first to last."""
    rng = np.random.default_rng([arms, tasks])
    levels = np.linspace(0.0, 1.0, arms)
    truth = np.array(bradley_terry_over(rng.standard_normal((50_000, arms)) + levels).strength)
    hits = 0
    for _ in range(replicates):
        blocks = rng.standard_normal((tasks, arms)) + levels
        try:
            found = bradley_terry_over(blocks)
        except ValueError:
            found = bradley_terry_over(blocks, 0.5)
        hits += int(((np.array(found.low) <= truth) & (truth <= np.array(found.high))).sum())
    return hits / replicates / arms


def main() -> None:
    replicates = 200 if "--quick" in sys.argv else 500
    print("| scores | tasks | runs | mean | IQM | beats |\n|---|---|---|---|---|---|")
    for law in LAWS:
        for tasks, runs in ((1, 5), (5, 3), (5, 5), (5, 10), (20, 3), (20, 5)):
            found = aggregates(law, tasks, runs, replicates)
            shares = " | ".join(f"{found[name]:.1%}" for name in ("mean", "IQM", "beats"))
            print(f"| {law} | {tasks} | {runs} | {shares} |", flush=True)
    print("\n| tasks' success rates | tasks | attempts | k | pass@k | pass^k |\n|---|---|---|---|---|---|")
    for rates in RATES:
        for tasks, attempts, k in (
            (5, 4, 2),
            (10, 8, 4),
            (10, 10, 8),
            (12, 8, 8),
            (20, 10, 2),
            (20, 10, 8),
            (50, 10, 8),
        ):
            shares = " | ".join(f"{share:.1%}" for share in passes(rates, tasks, attempts, k, replicates))
            print(f"| {rates} | {tasks} | {attempts} | {k} | {shares} |", flush=True)
    print("\n| arms | tasks | Bradley-Terry strength |\n|---|---|---|")
    for arms, tasks in ((2, 10), (4, 5), (4, 10), (4, 20), (8, 20), (4, 50)):
        print(f"| {arms} | {tasks} | {strengths(arms, tasks, replicates):.1%} |", flush=True)


if __name__ == "__main__":
    main()
