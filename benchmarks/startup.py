"""Measure `bakeoff --help` against the bare interpreter, and what `bakeoff try` adds to commands that take no time.

Whole processes are measured, entry-point script included.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import BAKEOFF, check, environment, machine, options, publish, say, versions, wait_for_calm, workspace

METHOD = (
    "Whole processes of the same interpreter, started with posix_spawn, output to /dev/null, one after the other in "
    "turns; the ratio compares the minima, the ratio of the medians is beside it. "
    "The installed entry-point script is what is started."
)


def spawn(argv: list[str], null: int, env: dict[str, str]) -> float:
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - began
    if status:
        raise SystemExit(f"{' '.join(argv)} failed")
    return took


TRY = ["try", "true", "true ", "--seeds", "4"]
MAX_TRY_S = 0.4


def try_once(parent: Path, env: dict[str, str]) -> float:
    """Return the seconds of a whole trial of eight runs, in a directory of its own."""
    directory = tempfile.mkdtemp(dir=parent)
    began = time.perf_counter()
    done = subprocess.run([*BAKEOFF, *TRY], cwd=directory, env=env, capture_output=True)
    took = time.perf_counter() - began
    if done.returncode not in (0, 3):
        raise SystemExit(f"bakeoff {' '.join(TRY)} failed: {done.stderr.decode()}")
    return took


def main() -> None:
    given = options(__doc__ or "")
    rounds = 10 if given.quick else 60
    sides = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "bakeoff --help": [*BAKEOFF, "--help"],
        "bakeoff --version": [*BAKEOFF, "--version"],
        "python -c 'import click'": [sys.executable, "-c", "import click"],
    }
    env, null = environment(), os.open(os.devnull, os.O_WRONLY)
    taken: dict[str, list[float]] = {name: [] for name in sides}
    wait_for_calm(0 if given.quick else 30)
    for _ in range(rounds):
        for name, argv in sides.items():
            taken[name].append(spawn(argv, null, env))
    best = {name: 1e3 * min(times) for name, times in taken.items()}
    typical = {name: 1e3 * statistics.median(times) for name, times in taken.items()}
    for name in sides:
        say(f"  {name}: minimum {best[name]:.1f} ms, median {typical[name]:.1f} ms of {rounds}")
    ratio = best["bakeoff --help"] / best["python -c pass"]
    with workspace() as directory:
        facts = machine(directory)
        trials = [try_once(directory, env) for _ in range(3 if given.quick else 20)]
    say(
        f"  bakeoff {' '.join(TRY)}: minimum {min(trials):.3f} s, median {statistics.median(trials):.3f} s of {len(trials)}"
    )
    publish(
        "startup", given,
        [
            check(
                "`bakeoff --help` against `python -c pass`", f"{best['bakeoff --help']:.1f} ms",
                f"{best['python -c pass']:.1f} ms", ratio, 6, "under",
            ),
            check(
                "`bakeoff try` of eight runs of `true`, against 0.4 s", f"{min(trials):.3f} s", f"{MAX_TRY_S} s",
                min(trials) / MAX_TRY_S, 1, "under",
            ),
        ],
        {
            "minimum_ms": best,
            "median_ms": typical,
            "ratio_of_medians": typical["bakeoff --help"] / typical["python -c pass"],
            "rounds": rounds,
            "try_s": {"minimum": min(trials), "median": statistics.median(trials), "rounds": len(trials)},
        },
        method=METHOD, facts=facts, programs=versions("click"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
