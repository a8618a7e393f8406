"""Break a cluster on purpose while it runs an experiment, and check that every run is recorded once.

    cluster_faults.py ray cuts --times 20          # one node's link is cut at random moments; the node is replaced
    cluster_faults.py slurm cuts --times 20        # link and shared file system are cut, and come back after 60 s
    cluster_faults.py ray kills --times 30         # pilots, hosts, raylets or slurmd, and node supervisors are killed
    cluster_faults.py ray loss --minutes 10        # 5 % of all packets are lost: no run may count as lost
    cluster_faults.py slurm pause                  # a pilot is stopped for 60 s: fenced, nothing is recorded twice
    cluster_faults.py slurm clock                  # a node's clock is an hour ahead
    cluster_faults.py ray output                   # one run writes 1 GB; how much memory the scheduler takes

Every execution of a run leaves a line in a file, so that executions and records can be counted against each other.
Prints one JSON object. Exits with 1 when an invariant is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from measure import REPOSITORY, say

sys.path.insert(0, str(REPOSITORY / "tests"))
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from cluster.ray_nodes import RayCluster
from cluster.slurm import SlurmCluster

BAKEOFF = Path(sys.executable).with_name("bakeoff")
KILLED = {
    "ray": ("executors.ray.host", "ray::Host", "raylet/raylet", "bakeoff.engine.processes"),
    "slurm": ("pilots.spool", "slurmd -D", "bakeoff.engine.processes"),
}
END_S = 25.0
"""Seconds after a cut in which the runs on that node have to end."""
AHEAD = {"LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "FAKETIME": "+1h"}


class Trial:
    """One experiment on a cluster, and the log of its executions."""

    def __init__(self, engine: str, cluster: Any, place: Path, seeds: int, seconds: float, command: str = "") -> None:
        self.engine, self.cluster, self.place = engine, cluster, place
        self.log = place / "executions"
        self.log.touch()
        line = (
            command
            or f"sh -c 'echo {{seed}} $(hostname) >> {self.log}; sleep {seconds}; echo {{seed}} > {{out}}/result'"
        )
        (place / "exp.toml").write_text(
            f'name = "faults"\nworkload = "command"\nseeds = {seeds}\n[params]\ncommand = "{line}"\n'
            f'[executor]\nkind = "{engine}"\npilots = 4\nslots = 2\nexpiry = 30\n[retries]\nlost = 100\n'
        )
        self.seeds = seeds
        self.process = cluster.start(
            BAKEOFF,
            "run",
            "exp.toml",
            "--yes",
            "--root",
            place / "results",
            cwd=place,
            stdout=sys.stderr,
            stderr=sys.stderr,
        )

    def running(self) -> bool:
        return self.process.poll() is None

    def on(self, node: str) -> int:
        """How many runs are going on at this node now."""
        return len(list(self.cluster.site[node].processes("sleep ")))

    def result(self) -> dict[str, Any]:
        """Facts, and whether every run has exactly one success."""
        code = self.process.wait()
        executed = Counter(int(line.split()[0]) for line in self.log.read_text().splitlines())
        with closing(Edition.open(find_edition("faults", self.place / "results"))) as edition:
            statuses = dict(edition.counts())
            attempts = Counter(run.attempts for run in edition.runs())
            tries = list(edition.tries())
            negative = sum((run.wall_s or 0.0) < 0 for run in edition.runs())
        files = len(list((self.place / "results").glob("faults/latest/runs/*/out/result")))
        return {
            "exit_code": code, "runs": self.seeds, "statuses": statuses, "executions": executed.total(),
            "executed_twice": sum(number > 1 for number in executed.values()),
            "attempts": {str(number): count for number, count in sorted(attempts.items())},
            "lost_tries": sum(each.status == "infra_error" for each in tries), "result_files": files,
            "negative_durations": negative,
            "holds": code == 0 and statuses == {"succeeded": self.seeds} and files == self.seeds and not negative,
        }  # fmt: skip


def wait_until(condition: Any, patience: float) -> float | None:
    """Seconds until the condition holds; None when it did not in time."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        if condition():
            return time.monotonic() - began
        time.sleep(0.1)
    return None


def cuts(trial: Trial, times: int, rng: random.Random) -> dict[str, Any]:
    """Cut one node after the other; measure when its runs end. A Ray node is replaced; one of Slurm comes back."""
    ended = []
    for number in range(times):
        node = rng.choice(trial.cluster.names)
        if wait_until(lambda node=node: trial.on(node) > 0 or not trial.running(), 180) is None or not trial.running():
            break
        time.sleep(rng.uniform(0, 5))
        trial.cluster.cut(node)
        took = wait_until(lambda node=node: trial.on(node) == 0, 90)
        ended.append(took)
        say(f"cut {number + 1}/{times} of {node}: runs ended after {took} s")
        time.sleep(max(0.0, 40 - (took or 90)))
        if trial.engine == "ray":
            trial.cluster.replace(node)
        else:
            time.sleep(20)
            trial.cluster.restore(node)
            trial.cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
    worst = max((took if took is not None else 999.0 for took in ended), default=0.0)
    return {"cuts": len(ended), "runs_ended_after_s": ended, "holds_end": worst <= END_S}


def kills(trial: Trial, times: int, rng: random.Random) -> dict[str, Any]:
    killed: Counter[str] = Counter()
    for number in range(times):
        time.sleep(rng.uniform(2, 8))
        if not trial.running():
            break
        node, program = rng.choice(trial.cluster.names), rng.choice(KILLED[trial.engine])
        victims = list(trial.cluster.site[node].processes(program))
        if not victims:
            continue
        try:
            os.kill(rng.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed[program] += 1
        say(f"kill {number + 1}/{times}: {program} on {node}")
        if program == "raylet/raylet":
            time.sleep(3)
            trial.cluster.replace(node)
        if program.startswith("slurmd"):
            time.sleep(3)
            trial.cluster.start_node(node)
    return {"killed": dict(killed)}


def loss(trial: Trial, minutes: float) -> dict[str, Any]:
    for name in trial.cluster.names:
        trial.cluster.site[name].lose(0.05)
    deadline = time.monotonic() + 60 * minutes
    while trial.running() and time.monotonic() < deadline:
        time.sleep(1)
    for name in trial.cluster.names:
        trial.cluster.site[name].lose(0)
    return {"packet_loss": 0.05}


def pause(trial: Trial) -> dict[str, Any]:
    program = KILLED[trial.engine][0]
    node = trial.cluster.site[trial.cluster.names[0]]
    wait_until(lambda: trial.on(node.name) > 0, 120)
    number = node.signal(program, signal.SIGSTOP)
    time.sleep(60)
    node.signal(program, signal.SIGCONT)
    return {"stopped": number}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("ray", "slurm"))
    parser.add_argument("fault", choices=("cuts", "kills", "loss", "pause", "clock", "output"))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--runs", type=int, default=0, help="how many runs (default: enough to last)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON object into this file")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    if given.fault == "clock" and given.engine == "ray":
        parser.error("clock is for slurm: Ray itself does not start with such a clock")
    with RayCluster() if given.engine == "ray" else SlurmCluster() as cluster:
        parent = cluster.home if given.engine == "ray" else cluster.shared
        place = Path(tempfile.mkdtemp(dir=parent))
        if given.fault == "clock":
            cluster.kill(cluster.names[0], "slurmd -D")
            cluster.start_node(cluster.names[0], env=AHEAD)
            cluster.wait_until_idle()
        seconds = 3.0
        runs = given.runs or {"cuts": 60 * given.times, "kills": 12 * given.times, "loss": int(80 * given.minutes)}.get(
            given.fault, 60
        )
        command = ""
        if given.fault == "output":
            runs = 1
            command = (
                f"sh -c 'echo {{seed}} here >> {place}/executions; head -c 1000000000 /dev/urandom > {{out}}/result'"
            )
        trial = Trial(given.engine, cluster, place, runs, seconds, command)
        facts: dict[str, Any] = {"engine": given.engine, "fault": given.fault}
        if given.fault == "output":
            facts |= watch_memory(trial)
        elif given.fault == "cuts":
            facts |= cuts(trial, given.times, rng)
        elif given.fault == "kills":
            facts |= kills(trial, given.times, rng)
        elif given.fault == "loss":
            facts |= loss(trial, given.minutes)
        elif given.fault == "pause":
            facts |= pause(trial)
        facts |= trial.result()
    if given.fault == "loss":
        facts["holds"] = facts["holds"] and facts["lost_tries"] == 0
    text = json.dumps(facts, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    sys.exit(0 if facts["holds"] and facts.get("holds_end", True) else 1)


def watch_memory(trial: Trial) -> dict[str, Any]:
    """How far the scheduler's own memory (not shared with other processes) grew while the directory came home."""
    sizes: list[int] = []
    while trial.running():
        for pid in trial.cluster.site.head.processes("bakeoff run exp.toml"):
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                private = sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))
                sizes.append(private * 1024)
            except (OSError, IndexError):
                pass
        time.sleep(0.2)
    early = sizes[len(sizes) // 10] if sizes else 0
    return {
        "scheduler_private_mb": round(max(sizes, default=0) / 1e6, 1),
        "growth_mb": round((max(sizes, default=0) - early) / 1e6, 1),
    }


if __name__ == "__main__":
    main()
