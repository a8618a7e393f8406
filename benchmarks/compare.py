"""Measure `bakeoff compare` on a finished experiment of 30 runs against `import scipy.stats`, as whole processes."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

from measure import BAKEOFF, check, environment, machine, options, publish, say, seconds, versions, workspace
from startup import spawn

METHOD = (
    "An experiment of 2 arms and 15 seeds is run to its end first. Then whole processes of the same interpreter, started "
    "with posix_spawn, output to /dev/null, one after the other in turns; the ratio compares the minima, the ratio of the "
    "medians is beside it. The installed entry-point script is what is started, and it reads the experiment's database."
)
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
            )
        ],
        {
            "minimum_ms": best,
            "median_ms": typical,
            "ratio_of_medians": typical[ours] / typical[theirs],
            "rounds": rounds,
        },
        method=METHOD, facts=facts, programs=versions("numpy", "scipy", "pydantic"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
