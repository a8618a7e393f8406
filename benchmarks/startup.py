"""Measure `bakeoff --help` against the bare interpreter, as whole processes, entry-point script included."""

from __future__ import annotations

import os
import statistics
import sys
import time

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
    publish(
        "startup", given,
        [
            check(
                "`bakeoff --help` against `python -c pass`", f"{best['bakeoff --help']:.1f} ms",
                f"{best['python -c pass']:.1f} ms", ratio, 6, "under",
            )
        ],
        {
            "minimum_ms": best,
            "median_ms": typical,
            "ratio_of_medians": typical["bakeoff --help"] / typical["python -c pass"],
            "rounds": rounds,
        },
        method=METHOD, facts=facts, programs=versions("click"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
