"""Measure how many runs a race of ten arms saves against a fixed design that names the best arm as often.

    python benchmarks/race.py            1,000 races a row: about 2 minutes of CPU time
    python benchmarks/race.py --quick    200 races

One arm of ten is better by 0.8 or 0.4 standard deviations of a pair's difference, or all are equal. The fixed design runs
every arm on N seeds and names an arm when it beats all others in one-sided paired t tests at alpha / 2m, m = 9, which
has the error rate of the race; N is the smallest that names the best arm in 90 %, and in 99 %, of experiments. A race looks after
every pair here; blocks of four seeds cost two pairs more on average. Exits with 1 if a wrong arm is named too often.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from measure import machine, versions
from scipy import stats

from bakeoff.stats.sequential import race

RESULT = Path(__file__).resolve().parent / "results" / "race.json"
ARMS, ALPHA, POWERS = 10, 0.05, (0.9, 0.99)
CASES = {"0.8 sd": (0.8, 120), "0.4 sd": (0.4, 400), "no difference": (0.0, 120)}
"""Effect, and the most pairs of the race."""


def scores(rng: np.random.Generator, effect: float, pairs: int) -> np.ndarray:
    """(arms, pairs) with a difference of sd 1 between any two arms; arm 0 is the good one."""
    values = rng.normal(0.0, math.sqrt(0.5), (ARMS, pairs))
    values[0] += effect
    return values


def race_once(values: np.ndarray) -> tuple[list[int], int]:
    """Arms that are left, and runs that were needed."""
    found = race(values, values, [values.shape[1]] * ARMS, ALPHA)
    return found.survivors, int(np.where(found.left_at > 0, found.left_at, found.pairs).sum())


def fixed_size(effect: float, power: float, replicates: int) -> int:
    """Seeds an arm at which the fixed design names the good arm in this share of experiments."""
    level = ALPHA / (2 * (ARMS - 1))
    low, high = 4, 1024
    while high - low > 1:
        n = (low + high) // 2
        rng = np.random.default_rng(n)
        named = 0
        for _ in range(replicates):
            values = scores(rng, effect, n)
            d = values[0] - values[1:]
            t = d.mean(axis=1) / (d.std(axis=1, ddof=1) / math.sqrt(n))
            named += bool((stats.t.sf(t, n - 1) <= level).all())
        low, high = (low, n) if named / replicates >= power else (n, high)
    return high


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    replicates = 200 if parser.parse_args().quick else 1_000
    rows, holds = [], True
    for name, (effect, pairs) in CASES.items():
        rng = np.random.default_rng(1)
        runs, right, wrong = [], 0, 0
        for _ in range(replicates):
            left, needed = race_once(scores(rng, effect, pairs))
            runs.append(needed)
            right += left == [0] and effect > 0.0
            wrong += len(left) == 1 and (left != [0] or effect == 0.0)
        error = math.sqrt(ALPHA * (1 - ALPHA) / replicates)
        holds &= wrong / replicates <= ALPHA + 3 * error
        fixed = [ARMS * fixed_size(effect, power, replicates) for power in POWERS if effect]
        rows.append({
            "case": name, "most_pairs": pairs, "named": right / replicates, "wrong": wrong / replicates,
            "runs": float(np.mean(runs)), "fixed_runs": fixed,
        })  # fmt: skip
    heads = [
        "best arm better by",
        "most pairs",
        "best named",
        "wrong named",
        "runs",
        "fixed, 90 %",
        "fixed, 99 %",
        "saved",
    ]
    print(f"| {' | '.join(heads)} |\n|---|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        cells = ["-", "-", "-"]
        if row["fixed_runs"]:
            saved = " to ".join(f"{1 - row['runs'] / each:.0%}" for each in row["fixed_runs"])
            cells = [*map(str, row["fixed_runs"]), saved]
        named = f"{row['named']:.1%}" if row["fixed_runs"] else "-"
        start = f"| {row['case']} | {row['most_pairs']} | {named} | {row['wrong']:.1%} | {row['runs']:.0f}"
        print(f"{start} | {' | '.join(cells)} |")
    if replicates >= 1_000:
        content = {
            "replicates": replicates,
            "rows": rows,
            "machine": machine(RESULT.parent),
            "versions": versions("numpy", "scipy"),
        }
        RESULT.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
