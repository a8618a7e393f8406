"""Measure runs through pilots: no-op runs per second on Ray and on Slurm, against local runs, Ray Tune and submitit."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import REPOSITORY, Options, check, in_turns, machine, options, publish, say, steady, versions, workspace

sys.path.insert(0, str(REPOSITORY / "tests"))
from cluster.ray_nodes import RayCluster
from cluster.slurm import SlurmCluster

PEERS = Path(__file__).parent / "peers"
METHOD = (
    "All daemons and nodes are on this machine: two nodes in namespaces of their own, with four pilots of four slots each, so "
    "pilots, daemons and scheduler share the cores that local runs have for themselves. "
    "Rates leave start-up out on all sides: (N - N/5) / (time of N - time of N/5). Every result of bakeoff is in a synced "
    "SQLite transaction before it counts. local: `run -j2`. Ray Tune: one Tuner with num_samples = N, four trials at a time, "
    "a function that reports one number. submitit: one array of N no-op functions with slurm_array_parallelism = 4. Peers: N = 40."
)
KINDS = {
    "command": 'workload = "command"\n[params]\ncommand = ["/bin/true"]\n',
    "python": 'workload = "python"\n[params]\nfunction = "noop:noop"\n',
}
PILOTS, SLOTS = 4, 4
_names = itertools.count()
Run = Callable[..., str]


def timed(run: Run, *argv: str | Path, cwd: Path) -> float:
    """Seconds of a command on the head of a cluster."""
    import time

    began = time.perf_counter()
    run(*argv, cwd=cwd)
    return time.perf_counter() - began


def bakeoff(run: Run, directory: Path, kind: str, executor: str, runs: int) -> float:
    name = f"noop-{next(_names)}"
    pilots = f"pilots = {PILOTS}\nslots = {SLOTS}\nexpiry = 60\n[resources]\ncpus = {1 / SLOTS}\n"
    text = f'seeds = {runs}\n{KINDS[kind]}[executor]\nkind = "{executor}"\n{"" if executor == "local" else pilots}'
    (directory / f"{name}.toml").write_text(text)
    (directory / "noop.py").write_text('def noop(seed):\n    return {"score": seed}\n')
    program = Path(sys.executable).with_name("bakeoff")
    jobs = ["-j2"] if executor == "local" else []
    return timed(run, program, "run", f"{name}.toml", *jobs, "--yes", "--root", directory / "runs", cwd=directory)


def rates(
    given: Options, sides: dict[str, Callable[[int], float]], runs: dict[str, int]
) -> tuple[dict[str, float], Any]:
    """Runs per second without start-up, of each side."""
    calls = {}
    for name, side in sides.items():
        for part, number in (("small", runs[name] // 5), ("all", runs[name])):
            calls[f"{name}, {part}"] = lambda side=side, number=number: side(number)
    turns = in_turns(calls, 1, 0)
    return {
        name: steady((runs[name] // 5, turns[f"{name}, small"].best), (runs[name], turns[f"{name}, all"].best))
        for name in sides
    }, turns


def measure(given: Options, directory: Path, engine: str, run: Run, peer: str, argv: list[str], bar: float) -> Any:
    """One engine: both kinds of runs, locally and through pilots, and the engine's usual front-end."""
    many, few = (400 if given.quick else 10_000), 40
    sides: dict[str, Callable[[int], float]] = {}
    for kind in KINDS:
        for executor in ("local", engine):
            sides[f"{kind}, {executor}"] = lambda n, k=kind, e=executor: bakeoff(run, directory, k, e, n)
    sides[peer] = lambda n: timed(
        run, sys.executable, *argv, str(n), directory / f"{peer}-{next(_names)}", cwd=directory
    )
    runs = dict.fromkeys(sides, many) | {peer: few}
    measured, turns = rates(given, sides, runs)
    lines = []
    for kind in KINDS:
        ours, local = measured[f"{kind}, {engine}"], measured[f"{kind}, local"]
        lines.append(
            check(
                f"{kind} no-ops through {PILOTS} pilots on {engine}, against local",
                f"{ours:,.0f} runs/s",
                f"{local:,.0f} runs/s",
                ours / local,
                0.5,
            )
        )
    ours = measured[f"python, {engine}"]
    lines.append(
        check(
            f"python no-ops on {engine}, against {peer}",
            f"{ours:,.0f} runs/s",
            f"{measured[peer]:,.2f} runs/s",
            ours / measured[peer],
            bar,
        )
    )
    return lines, {"runs": runs, "runs_per_s": measured, "turns": turns}


def main() -> None:
    given = options(__doc__ or "")
    lines, details = [], {}
    with workspace() as directory:
        facts = machine(directory)
        say("Ray")
        with RayCluster() as ray:
            found, details["ray"] = measure(
                given, directory, "ray", ray.run, "Ray Tune", [str(PEERS / "tune_noop.py")], 10
            )
            lines += found
        say("Slurm")
        with SlurmCluster() as slurm:
            shared = slurm.shared / "work"
            shared.mkdir()
            found, details["slurm"] = measure(
                given, shared, "slurm", slurm.run, "submitit", [str(PEERS / "submitit_noop.py")], 5
            )
            lines += found
    publish("cluster", given, lines, details, method=METHOD, facts=facts, programs=versions("ray", "submitit"))


if __name__ == "__main__":
    main()
