"""Measure false verdicts over all looks at experiments whose plan grows, through `run` and `compare`.

    python benchmarks/looks.py                    300 experiments a strategy: about 15 minutes of CPU time
    python benchmarks/looks.py --replicates 20    a few, to see that it works

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from measure import machine, say, versions, workspace
from scipy import stats

import bakeoff

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--only", default="", metavar="STRATEGY")
    given = parser.parse_args()
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
