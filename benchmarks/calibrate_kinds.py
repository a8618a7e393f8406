"""Ask `calibrate` about analyses that are wrong, and about analyses that are right: does it tell them apart?

    python benchmarks/calibrate_kinds.py              20 tables of each wrong kind, 4 of each right one
    python benchmarks/calibrate_kinds.py --tables 5   fewer tables
    python benchmarks/calibrate_kinds.py --only runs  only kinds whose name contains a word

No table has an effect on average. Of a wrong kind, the rows have something in common that the declared analysis does not
know of; `calibrate` must say so (exit code 1, with the share of wrong verdicts), refuse the table (2) or say that it
cannot tell (3), and must not say that alpha holds (0). Of a right kind it must never say that alpha does not hold. Where
the table has no level above the test's own unit, or so few blocks that chance could hide something, it says that it
cannot tell.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import bakeoff
from bakeoff.errors import UsageError

Rows = list[dict[str, Any]]
Rng = np.random.Generator
PAGE = Path(__file__).resolve().parents[1] / "docs" / "calibration.md"
BEGIN, END = "<!-- kinds: written by benchmarks/calibrate_kinds.py -->", "<!-- end of kinds -->"
ARMS = ("base", "new")
REPLICATES = 400


@dataclass(frozen=True)
class Kind:
    """One way to make tables, and how they are judged."""

    name: str
    make: Callable[[Rng], Rows]
    question: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    own_unit: bool = False
    """Nothing in the table is above the test's unit, so the right answer is that it cannot tell."""


def grid(
    rng: Rng,
    tasks: int,
    seeds: int,
    by_task: float = 0.0,
    by_seed: float = 0.0,
    absent: float = 0.0,
    column: str = "seed",
) -> Rows:
    """Arms on tasks x seeds; effects differ by task and by seed, and are 0 on average."""
    of_task, of_seed = by_task * rng.normal(size=tasks), by_seed * rng.normal(size=seeds)
    run = rng.random((tasks, seeds)) >= absent
    return [
        {"arm": arm, "task": f"t{t:02}", column: s, "score": rng.normal() + (arm == "new") * (of_task[t] + of_seed[s])}
        for arm in ARMS
        for t in range(tasks)
        for s in range(seeds)
        if run[t, s]
    ]


def epochs(rng: Rng, runs: int, length: int, names: str = "") -> Rows:
    """Training runs that differ, each with scores along its epochs; `names` numbers the runs in a column."""
    rows: Rows = []
    for arm in ARMS:
        for run in range(runs):
            level = rng.normal()
            drift = np.cumsum(0.3 * rng.normal(size=length))
            rows += [
                {"arm": arm, "epoch": e, "score": level + drift[e] + 0.3 * rng.normal()}
                | ({names: f"{arm}-{run}"} if names else {})
                for e in range(length)
            ]
    return rows


def runs(rng: Rng, tasks: int, each: int, by_run: float = 1.0, by_task: float = 0.5) -> Rows:
    """Runs that belong to one arm each, every one scored on all tasks."""
    of_task = by_task * rng.normal(size=tasks)
    rows: Rows = []
    for arm in ARMS:
        for run in range(each):
            level = by_run * rng.normal()
            rows += [
                {"arm": arm, "task": f"t{t:02}", "checkpoint": f"{arm}-{run}",
                 "score": level + (arm == "new") * of_task[t] + rng.normal()}
                for t in range(tasks)
            ]  # fmt: skip
    return rows


def clusters(rng: Rng, groups: int, size: int, by_group: float = 1.0, seeds: int = 1) -> Rows:
    """Tasks in groups; effects differ by group."""
    of_group = by_group * rng.normal(size=groups)
    return [
        {"arm": arm, "task": f"g{g:02}-{t}", "repo": f"g{g:02}", "score": rng.normal() + (arm == "new") * of_group[g]}
        | ({"seed": s} if seeds > 1 else {})
        for arm in ARMS
        for g in range(groups)
        for t in range(size)
        for s in range(seeds)
    ]


def copied(rng: Rng, distinct: int, copies: int, unit: str) -> Rows:
    """Each seed, or task, stands `copies` times under different names; or each row, without a name."""
    rows: Rows = []
    for arm in ARMS:
        values = rng.normal(size=distinct)
        for number in range(distinct * copies):
            name = {"seed": {"seed": number}, "task": {"task": f"t{number:02}"}, "row": {}}[unit]
            rows.append({"arm": arm, **name, "score": values[number % distinct]})
    return rows


NESTED, CROSSED = {"seeds": "nested"}, {"seeds": "crossed"}
RUNS = {"seed": "checkpoint"}
WRONG = (
    Kind("crossed declared nested, 20 x 8", lambda r: grid(r, 20, 8, 0.5, 1.0), NESTED),
    Kind("crossed declared nested, 12 x 12", lambda r: grid(r, 12, 12, 0.5, 1.0), NESTED),
    Kind("crossed declared nested, 20 x 8, 25 % absent", lambda r: grid(r, 20, 8, 0.5, 1.0, 0.25), NESTED),
    Kind("crossed declared nested, 40 x 3", lambda r: grid(r, 40, 3, 0.5, 1.0), NESTED),
    Kind("crossed declared nested, tasks fixed, 6 x 10", lambda r: grid(r, 6, 10, 0.0, 1.0), NESTED | {"tasks": "fixed"}),
    Kind("seeds called fixed, 20 x 8", lambda r: grid(r, 20, 8, 0.5, 1.0), {"seeds": "fixed"}),
    Kind("tasks called fixed, 12 x 8", lambda r: grid(r, 12, 8, 1.0), NESTED | {"tasks": "fixed"}),
    Kind("epochs as repeats, 1 run an arm", lambda r: epochs(r, 1, 30), columns={"rollout": "epoch"}),
    Kind("epochs as seeds, 1 run an arm", lambda r: epochs(r, 1, 30), columns={"seed": "epoch"}),
    Kind("epochs as repeats, 8 named runs an arm", lambda r: epochs(r, 8, 6, "run"), columns={"rollout": "epoch"}),
    Kind("epochs as repeats, 8 named runs, ignored", lambda r: epochs(r, 8, 6, "run"), columns={"rollout": "epoch", "ignore": ("run",)}),
    Kind("runs in a column, not declared", lambda r: runs(r, 20, 6)),
    Kind("runs in a column, ignored", lambda r: runs(r, 20, 6), columns={"ignore": ("checkpoint",)}),
    Kind("runs as nested seeds, 6 an arm", lambda r: runs(r, 20, 6), NESTED | {"unpaired": True}, RUNS),
    Kind("runs as nested seeds, 3 an arm", lambda r: runs(r, 20, 3), NESTED | {"unpaired": True}, RUNS),
    Kind("runs as nested seeds, tasks fixed", lambda r: runs(r, 8, 6, by_task=0.0), NESTED | {"unpaired": True, "tasks": "fixed"}, RUNS),
    Kind("clusters, --cluster none, 10 x 5", lambda r: clusters(r, 10, 5), {"cluster": "none"}),
    Kind("clusters, --cluster none, 8 x 6 x 4 seeds", lambda r: clusters(r, 8, 6, seeds=4), NESTED | {"cluster": "none"}),
    Kind("clusters, --cluster none, 4 x 12", lambda r: clusters(r, 4, 12), {"cluster": "none"}),
    Kind("copies of seeds", lambda r: copied(r, 8, 3, "seed")),
    Kind("copies of seeds, kept", lambda r: copied(r, 8, 3, "seed"), {"copies": "keep"}),
    Kind("copies of tasks, kept", lambda r: copied(r, 8, 3, "task"), {"copies": "keep"}),
    Kind("copies of rows, kept", lambda r: copied(r, 8, 3, "row"), {"copies": "keep"}),
)  # fmt: skip
RIGHT = (
    Kind("tasks, nested seeds, 20 x 16", lambda r: grid(r, 20, 16, 1.0), NESTED),
    Kind("tasks, nested seeds, 12 x 24", lambda r: grid(r, 12, 24, 0.5), NESTED),
    Kind("crossed, 20 x 8", lambda r: grid(r, 20, 8, 0.5, 1.0), CROSSED),
    Kind("crossed, 12 x 12, 25 % absent", lambda r: grid(r, 12, 12, 0.5, 1.0, 0.25), CROSSED),
    Kind("tasks fixed, crossed seeds, 6 x 12", lambda r: grid(r, 6, 12, 0.0, 1.0), CROSSED | {"tasks": "fixed"}, own_unit=True),
    Kind("tasks fixed, nested seeds, 6 x 24", lambda r: grid(r, 6, 24), NESTED | {"tasks": "fixed"}),
    Kind("tasks fixed, unpaired, 8 x 12", lambda r: grid(r, 8, 12, column="rollout"), {"tasks": "fixed"}),
    Kind("runs, 20 x 6 an arm", lambda r: runs(r, 20, 6), CROSSED | {"unpaired": True}, RUNS),
    Kind("runs, tasks fixed, 8 x 8 an arm", lambda r: runs(r, 8, 8, by_task=0.0), CROSSED | {"unpaired": True, "tasks": "fixed"}, RUNS, True),
    Kind("clusters declared, 12 x 5", lambda r: clusters(r, 12, 5), {"cluster": "repo"}, own_unit=True),
    Kind("clusters of no importance, 12 x 5", lambda r: clusters(r, 12, 5, 0.0), {"cluster": "none"}),
    Kind("seeds of one task, 16", lambda r: grid(r, 1, 16), own_unit=True),
)  # fmt: skip


def ask(kind: Kind, seed: int) -> tuple[int, float | None, str]:
    """Exit code, the largest share of wrong verdicts, and what was advised."""
    rows = kind.make(np.random.default_rng([len(kind.name), *kind.name.encode(), seed]))
    try:
        told = bakeoff.calibrate(rows, columns=dict(kind.columns), replicates=REPLICATES, **kind.question)
    except UsageError as refused:
        return 2, None, str(refused)
    rates = [each.false_positives for each in told.exchanged]
    lines = told.what_to_do()
    return told.exit_code, max(rates, default=None), f"{told.sentence} {lines[0] if lines else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true", help="also what was said about the first table")
    parser.add_argument("--page", action="store_true", help="write the tables into docs/calibration.md")
    given = parser.parse_args()
    held, lines = True, list[str]()
    for title, kinds, number in (("wrong", WRONG, given.tables), ("right", RIGHT, max(1, given.tables // 5))):
        lines += [
            "",
            f"| {title} analysis | exit 0 | 1 | 2 | 3 | median share of wrong verdicts |",
            "|---|---|---|---|---|---|",
        ]
        for kind in (each for each in kinds if given.only in each.name):
            told = [ask(kind, seed) for seed in range(number)]
            codes = Counter(code for code, _, _ in told)
            rates = [rate for _, rate, _ in told if rate is not None]
            median = f"{np.median(rates):.1%}" if rates else ""
            lines.append(f"| {kind.name} | {' | '.join(str(codes[code]) for code in range(4))} | {median} |")
            print(lines[-1], flush=True)
            if given.verbose:
                print(f"    {told[0][2]}")
            held = held and not (codes[0] if title == "wrong" or kind.own_unit else codes[1] + codes[2])
    if given.page:
        head, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        tables = "\n".join(lines)
        PAGE.write_text(f"{head}{begin}{tables}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
