"""Measure `bakeoff compare` as whole processes: 30 runs against `import scipy.stats`, 10,000 arms, and 10,000 tasks."""

from __future__ import annotations

import os
import resource
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from measure import BAKEOFF, check, environment, machine, options, publish, say, seconds, versions, workspace
from startup import spawn

METHOD = (
    "An experiment of 2 arms and 15 seeds is run to its end first. Then whole processes of the same interpreter, started "
    "with posix_spawn, output to /dev/null, one after the other in turns; the ratio compares the minima, the ratio of the "
    "medians is beside it. The installed entry-point script is what is started, and it reads the experiment's database. "
    "The large tables are CSV files of normal values without an effect; from reading the file to the printed text, the "
    "processor time (user and system) of one process is counted, start-up included."
)
LARGE = {
    "10,000 arms x 8 seeds": (10_000, 1, 8, 60.0),
    "2 arms x 10,000 tasks": (2, 10_000, 1, 10.0),
    "2 arms x 10,000 tasks, outcomes of 0 and 1": (2, 10_000, 1, 10.0),
}
"""Arms, tasks and seeds of a table, and the processor seconds that comparing it may take."""
EXPERIMENT = """\
name = "thirty"
workload = "python"
seeds = "1..15"
[params]
function = "score:run"
[[arms]]
name = "old"
params = { lift = 0.0 }
[[arms]]
name = "new"
params = { lift = 0.5 }
[analysis]
metric = "score"
"""
SCORE = """\
def run(lift, ctx):
    return {"score": ctx.rng("world").normal() + 0.3 * ctx.rng("noise", own=True).normal() + lift}
"""


def prepare(place: Path) -> Path:
    (place / "score.py").write_text(SCORE)
    (place / "thirty.toml").write_text(EXPERIMENT)
    seconds([*BAKEOFF, "run", "thirty.toml"], cwd=place)
    return place / "bakeoff-runs"


def write_table(path: Path, arms: int, tasks: int, seeds: int, outcomes: bool) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(arms, tasks, seeds))
    with path.open("w") as file:
        file.write("arm,task,seed,score\n")
        for (arm, task, seed), value in np.ndenumerate(values > 0 if outcomes else values):
            file.write(f"arm{arm},task{task},{seed},{float(value):.6g}\n")


def large_tables(place: Path, quick: bool) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """One check for each large table (with --quick a tenth of it, without a bar), and its processor seconds."""
    checks, figures = [], {}
    for name, (arms, tasks, seeds, bar) in LARGE.items():
        path = place / "large.csv"
        arms, tasks = (max(2, arms // 10), max(1, tasks // 10)) if quick else (arms, tasks)
        write_table(path, arms, tasks, seeds, outcomes="outcomes" in name)
        before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        seconds([*BAKEOFF, "compare", str(path)], cwd=place, allowed=(0, 3))
        figures[name] = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
        say(f"  {name}{' (a tenth)' if quick else ''}: {figures[name]:.1f} s of processor time")
        if not quick:
            used = figures[name]
            checks.append(check(f"`bakeoff compare` of {name}", f"{used:.1f} s", "-", used, bar, "under", "s"))
    return checks, figures


def main() -> None:
    given = options(__doc__ or "")
    rounds = 5 if given.quick else 30
    with workspace() as place:
        root = prepare(place)
        sides = {
            "bakeoff compare": [*BAKEOFF, "compare", "thirty", "--root", str(root)],
            "import scipy.stats": [sys.executable, "-c", "import scipy.stats"],
            "python -c pass": [sys.executable, "-c", "pass"],
        }
        null, taken = os.open(os.devnull, os.O_WRONLY), {name: list[float]() for name in sides}
        for _ in range(rounds):
            for name, argv in sides.items():
                taken[name].append(spawn(argv, null, environment()))
        large, figures = large_tables(place, given.quick)
        facts = machine(place)
    best = {name: 1e3 * min(times) for name, times in taken.items()}
    typical = {name: 1e3 * statistics.median(times) for name, times in taken.items()}
    for name in sides:
        say(f"  {name}: minimum {best[name]:.0f} ms, median {typical[name]:.0f} ms of {rounds}")
    ours, theirs = "bakeoff compare", "import scipy.stats"
    publish(
        "compare", given,
        [
            check(
                "`bakeoff compare` on 30 runs against `python -c 'import scipy.stats'`", f"{best[ours]:.0f} ms",
                f"{best[theirs]:.0f} ms", best[ours] / best[theirs], 1, "under",
            ),
            *large,
        ],
        {
            "minimum_ms": best,
            "median_ms": typical,
            "ratio_of_medians": typical[ours] / typical[theirs],
            "rounds": rounds,
            "large_tables_processor_seconds": figures,
        },
        method=METHOD, facts=facts, programs=versions("numpy", "scipy", "pydantic"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
