"""Measure false verdicts over all looks at experiments whose plan grows, through `run` and `compare`.

    python benchmarks/looks.py                    300 experiments a strategy: about 15 minutes of CPU time
    python benchmarks/looks.py --replicates 20    a few, to see that it works
    python benchmarks/looks.py --simulate         2,000 experiments a row without running them: the same verdicts from
                                                  tables in memory, for more laws and plans; about 10 minutes of CPU time

Two equal arms, 24 seeds at most. Each experiment is really run and looked at by its strategy until a verdict is shown;
beside it stands what a new test of fixed size at every look would have said. Prints a table and writes
benchmarks/results/looks.json. Exits with 1 if more than 6.5 % and its Monte-Carlo error are false.

    growing     looks at 8, 12, 16, 20 and 24 seeds, and stops at the first verdict
    unpaired    the same with --unpaired, which has no e-process
    peeking     looks when all but one of the planned seeds are done: finishes only what looks decided, else plans 4 more
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from measure import machine, say, versions, workspace
from scipy import stats

import bakeoff
from bakeoff.records.looks import Look
from bakeoff.results.table import Results, Row
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.comparison import compare
from bakeoff.verdicts.observations import observe
from bakeoff.verdicts.question import Compare

RESULT = Path(__file__).resolve().parent / "results" / "looks.json"
PLANS = (8, 12, 16, 20, 24)
BAR = 0.065
FILE = """
name = "looks"
params = { command = ["cat", "{arm}-{seed}.json"] }
[[arms]]
name = "old"
[[arms]]
name = "new"
[analysis]
metric = "score"
"""


Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
LAWS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(sigma=1.0, size=shape),
    "successes": lambda rng, shape: (rng.random(shape) < 0.5).astype(float),
}


class Trial:
    """One experiment with two equal arms, in a directory of its own."""

    def __init__(self, place: Path, rng: np.random.Generator) -> None:
        self.place = place
        self.values = {arm: rng.normal(size=PLANS[-1]) for arm in ("old", "new")}
        for arm, values in self.values.items():
            for seed, value in enumerate(values):
                (place / f"{arm}-{seed}.json").write_text(json.dumps({"score": float(value)}))
        (place / "looks.toml").write_text(FILE)

    def run(self, seeds: int, only: str | None = None) -> bakeoff.Experiment:
        experiment = bakeoff.load(self.place / "looks.toml", root=self.place / "results", overrides=[f"seeds={seeds}"])
        experiment.run(jobs=2, only=only)
        return experiment

    def fixed(self, seeds: int, **question: Any) -> bool:
        """What a test of fixed size says about the first seeds alone."""
        rows = [
            {"arm": arm, "seed": seed, "score": float(self.values[arm][seed])}
            for seed in range(seeds)
            for arm in ("old", "new")
        ]
        return bakeoff.compare(rows, metric="score", resamples=100, **question)[0].verdict != "undecided"


def growing(trial: Trial, **question: Any) -> bool:
    return any(
        bakeoff.compare(trial.run(seeds), resamples=100, **question)[0].verdict != "undecided" for seeds in PLANS
    )


def peeking(trial: Trial) -> bool:
    for seeds in PLANS:
        experiment = trial.run(seeds, only=f"seed < {seeds - 1}")
        bakeoff.compare(experiment, resamples=100)
        d = (trial.values["new"] - trial.values["old"])[: seeds - 1]
        if stats.ttest_1samp(d, 0.0).pvalue <= 0.05:
            return bakeoff.compare(trial.run(seeds), resamples=100)[0].verdict != "undecided"
    return bakeoff.compare(trial.run(PLANS[-1]), resamples=100)[0].verdict != "undecided"


def peeking_fixed(trial: Trial) -> bool:
    for seeds in PLANS:
        d = (trial.values["new"] - trial.values["old"])[: seeds - 1]
        if stats.ttest_1samp(d, 0.0).pvalue <= 0.05 or seeds == PLANS[-1]:
            return trial.fixed(seeds)
    raise AssertionError


STRATEGIES: dict[str, tuple[Callable[[Trial], bool], Callable[[Trial], bool]]] = {
    "growing": (growing, lambda trial: any(trial.fixed(seeds) for seeds in PLANS)),
    "unpaired": (
        lambda trial: growing(trial, unpaired=True),
        lambda trial: any(trial.fixed(seeds, unpaired=True) for seeds in PLANS),
    ),
    "peeking": (peeking, peeking_fixed),
}


def simulated(draw: Draw, plans: Sequence[int], replicates: int, seed: int, unpaired: bool = False) -> float:
    """Share of experiments with a false verdict at any of the plans, looked at one after the other."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(replicates):
        values = draw(rng, (plans[-1], 2))
        looks: tuple[Look, ...] = ()
        for plan in plans:
            rows = [
                Row(arm, seed=number, metrics={"score": float(values[number, side])}, stage=bisect_right(plans, number))
                for number in range(plan)
                for side, arm in enumerate(("old", "new"))
            ]
            results = Results(rows, "simulated", Analysis(metric="score"), looks=looks)
            question = Compare(unpaired=unpaired)
            if compare([observe(results, "score")], question, verdict_only=True)[0].verdict != "undecided":
                wrong += 1
                break
            looks = (*looks, Look(0.0, "compare", "verdict", 2 * plan, 2 * plan, "", {}))
    return wrong / replicates


def simulate(replicates: int) -> bool:
    """Print a table of simulated experiments; whether all of them hold."""
    cases: dict[str, tuple[Draw, Sequence[int], bool]] = {
        "normal": (LAWS["normal"], PLANS, False),
        "normal, doubling": (LAWS["normal"], (8, 16, 32, 64), False),
        "lognormal": (LAWS["lognormal"], PLANS, False),
        "successes": (LAWS["successes"], PLANS, False),
        "normal, unpaired": (LAWS["normal"], PLANS, True),
        "normal, unpaired, doubling": (LAWS["normal"], (8, 16, 32, 64), True),
    }
    error = math.sqrt(BAR * (1 - BAR) / replicates)
    holds = True
    print(
        f"| simulated ({replicates:,} experiments each) | plans (seeds) | false verdicts over all looks |\n|---|---|--:|"
    )
    for number, (name, (draw, plans, unpaired)) in enumerate(cases.items()):
        share = simulated(draw, plans, replicates, number, unpaired)
        holds &= share <= BAR + 3 * error
        print(f"| {name} | {', '.join(map(str, plans))} | {share:.1%} |", flush=True)
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--only", default="", metavar="STRATEGY")
    parser.add_argument("--simulate", action="store_true")
    given = parser.parse_args()
    if given.simulate:
        return 0 if simulate(2_000 if given.replicates == 300 else given.replicates) else 1
    rows: dict[str, Any] = {}
    holds = True
    for number, (name, (honest, naive)) in enumerate(STRATEGIES.items()):
        if given.only not in name:
            continue
        wrong = fixed = 0
        for replicate in range(given.replicates):
            with workspace() as place:
                trial = Trial(place, np.random.default_rng([number, replicate]))
                wrong += honest(trial)
                fixed += naive(trial)
                shutil.rmtree(place / "results", ignore_errors=True)
            if replicate % 20 == 19:
                say(f"{name}: {replicate + 1} experiments, {wrong} false verdicts, {fixed} by new tests")
        share = wrong / given.replicates
        error = math.sqrt(BAR * (1 - BAR) / given.replicates)
        holds &= share <= BAR + 3 * error
        rows[name] = {
            "replicates": given.replicates, "false": share, "false_by_new_tests": fixed / given.replicates,
            "standard_error": math.sqrt(max(share, 1 / given.replicates) * (1 - share) / given.replicates),
        }  # fmt: skip
    if RESULT.exists():  # strategies that were measured apart
        rows = {**json.loads(RESULT.read_text())["strategies"], **rows}
    print("| strategy | experiments | false verdicts over all looks | with a new test at each look |")
    print("|---|--:|--:|--:|")
    for name, row in rows.items():
        print(f"| {name} | {row['replicates']} | {row['false']:.1%} | {row['false_by_new_tests']:.1%} |")
    if given.replicates >= 100:
        content = {"strategies": rows, "machine": machine(RESULT.parent), "versions": versions("numpy", "scipy")}
        RESULT.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
