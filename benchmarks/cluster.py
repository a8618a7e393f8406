"""Measure runs through pilots: no-op runs per second on Ray and on Slurm, against local runs, Ray Tune and submitit."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from measure import (
    REPOSITORY,
    Options,
    check,
    machine,
    options,
    publish,
    say,
    steady,
    versions,
    wait_for_calm,
    workspace,
)

from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition

sys.path.insert(0, str(REPOSITORY / "tests"))
from cluster.ray_nodes import RayCluster
from cluster.slurm import SlurmCluster

PEERS = Path(__file__).parent / "peers"
METHOD = (
    "All daemons and nodes are on this machine: two nodes in namespaces of their own, with four pilots of four slots each, so "
    "pilots, daemons and scheduler share the cores that local runs have for themselves. "
    "Every result of bakeoff is in a synced SQLite transaction before it counts. local: `run -j2`. The rate of bakeoff is that "
    "of the middle eight tenths of N runs, by the times in its record at which they ended; local and cluster take turns, and "
    "the medians of the rounds are compared. Starting sixteen workers on two cores takes as long as 10,000 short functions, "
    "so N is larger for these. Ray Tune: one Tuner with num_samples = N, four trials at a time, a function that reports one "
    "number. submitit: one array of N no-op functions with slurm_array_parallelism = 4. Peers: N = 40, one round, rates "
    "without start-up: (N - N/5) / (time of N - time of N/5)."
)
KINDS = {
    "command": 'workload = "command"\n[params]\ncommand = ["/bin/true"]\n',
    "python": 'workload = "python"\n[params]\nfunction = "noop:noop"\n',
}
RUNS = {"command": 10_000, "python": 40_000}
PILOTS, SLOTS, ROUNDS = 4, 4, 3
PEER_RUNS = 40
_names = itertools.count()
Run = Callable[..., str]


def timed(run: Run, *argv: str | Path, cwd: Path) -> float:
    """Seconds of a command on the head of a cluster."""
    began = time.perf_counter()
    run(*argv, cwd=cwd)
    return time.perf_counter() - began


def bakeoff(run: Run, directory: Path, kind: str, executor: str, runs: int) -> float:
    """Runs per second of an experiment."""
    name = f"noop-{next(_names)}"
    pilots = f"pilots = {PILOTS}\nslots = {SLOTS}\nexpiry = 60\n[resources]\ncpus = {1 / SLOTS}\n"
    text = f'seeds = {runs}\n{KINDS[kind]}[executor]\nkind = "{executor}"\n{"" if executor == "local" else pilots}'
    (directory / f"{name}.toml").write_text(text)
    (directory / "noop.py").write_text('def noop(seed):\n    return {"score": seed}\n')
    program = Path(sys.executable).with_name("bakeoff")
    jobs = ["-j2"] if executor == "local" else []
    wait_for_calm(30)
    run(program, "run", f"{name}.toml", *jobs, "--yes", "--root", directory / "runs", cwd=directory)
    with closing(Edition.open(find_edition(name, directory / "runs"))) as edition:
        ended = sorted(
            at for (at,) in edition.database.rows("SELECT ended_at FROM attempts WHERE status = 'succeeded'")
        )
    assert len(ended) == runs, f"{len(ended)} of {runs} runs succeeded"
    tenth = runs // 10
    rate = (runs - 2 * tenth) / (ended[runs - tenth - 1] - ended[tenth])
    say(f"  {kind}, {executor}: {rate:,.0f} runs/s")
    return rate


def measure(given: Options, directory: Path, engine: str, run: Run, peer: str, script: str, bar: float) -> Any:
    """One engine: both kinds of runs, locally and through pilots, and the engine's usual front-end."""
    lines, rates = [], {}
    for kind, number in RUNS.items():
        runs, rounds = (400, 1) if given.quick else (number, ROUNDS)
        sides: dict[str, list[float]] = {"local": [], engine: []}
        for _ in range(rounds):
            for executor, found in sides.items():
                found.append(bakeoff(run, directory, kind, executor, runs))
        rates[kind] = {"runs": runs, "runs_per_s": sides}
        ours, local = median(sides[engine]), median(sides["local"])
        what = f"{kind} no-ops through {PILOTS} pilots on {engine}, against local"
        lines.append(check(what, f"{ours:,.0f} runs/s", f"{local:,.0f} runs/s", ours / local, 0.5))
    ours = median(rates["python"]["runs_per_s"][engine])
    numbers = (PEER_RUNS // 5, PEER_RUNS)
    took = [
        timed(run, sys.executable, PEERS / script, str(n), directory / f"{peer}-{next(_names)}", cwd=directory)
        for n in numbers
    ]
    theirs = steady((numbers[0], took[0]), (numbers[1], took[1]))
    say(f"  {peer}: {theirs:,.2f} runs/s")
    what = f"python no-ops on {engine}, against {peer}"
    lines.append(check(what, f"{ours:,.0f} runs/s", f"{theirs:,.2f} runs/s", ours / theirs, bar))
    return lines, {**rates, peer: {"seconds": dict(zip(map(str, numbers), took, strict=True)), "runs_per_s": theirs}}


def main() -> None:
    given = options(__doc__ or "")
    lines, details = [], {}
    with workspace() as directory:
        facts = machine(directory)
        say("Ray")
        with RayCluster() as ray:
            found, details["ray"] = measure(given, directory, "ray", ray.run, "Ray Tune", "tune_noop.py", 10)
            lines += found
        say("Slurm")
        with SlurmCluster() as slurm:
            shared = slurm.shared / "work"
            shared.mkdir()
            found, details["slurm"] = measure(given, shared, "slurm", slurm.run, "submitit", "submitit_noop.py", 5)
            lines += found
    publish("cluster", given, lines, details, method=METHOD, facts=facts, programs=versions("ray", "submitit"))


if __name__ == "__main__":
    main()
