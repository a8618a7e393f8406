"""Run the same experiments locally, on Ray and on Slurm, and compare what they leave, byte by byte.

    cluster_same.py                # 300 commands, 300 functions, markets and sandboxed tasks on both engines
    cluster_same.py --engine ray   # one of them

Every execution leaves a line in a file, so that executions and records can be counted against each other. In the last
part a run with checkpoints is killed three times together with its pilot, and has to end as if nothing had happened.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from measure import REPOSITORY, machine, say

sys.path.insert(0, str(REPOSITORY / "tests"))
from bakeoff.records.claims import list_nodes
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from bakeoff.records.series import read_block
from cluster import kinds
from cluster.ray_nodes import RayCluster
from cluster.slurm import SlurmCluster
from support.processes import eventually

TIMED = ("actions.csv", "metrics.json")
"""Files of a market run that say how long the agent took, so no two runs have the same."""
SCORES = {"command": "score", "python": "score", "market": "total_pnl"}
BAKEOFF = Path(sys.executable).with_name("bakeoff")
WORK = """
import os
def run(ctx):
    with open(os.environ["EXECUTIONS"], "a") as file:
        file.write(f"{ctx.arm} {ctx.seed}\\n")
    out = ctx.directory / "out"
    out.mkdir()
    (out / "draws").write_bytes(ctx.rng("draws").normal(size=200).tobytes())
    ctx.log(0, score=ctx.seed)
    return {"score": ctx.seed / 7}
"""
STEPS = 60
TRAIN = """
import json, os, platform, time
def run(ctx):
    with open(os.environ["EXECUTIONS"], "a") as file:
        file.write(f"{platform.node()}\\n")
    place, state = ctx.checkpoint / "state.json", {"step": 0, "sum": 0.0}
    if place.exists():
        state = json.loads(place.read_text())
    while state["step"] < STEPS:
        state["sum"] += float(ctx.rng(f"step {state['step']}").normal())
        ctx.log(state["step"], total=state["sum"])
        state["step"] += 1
        if state["step"] % 5 == 0:
            (ctx.checkpoint / "next").write_text(json.dumps(state))
            os.replace(ctx.checkpoint / "next", place)
            time.sleep(float(os.environ["PAUSE"]))
    return {"total": state["sum"]}
""".replace("STEPS", str(STEPS))


class Engine:
    """A cluster, or this machine (`local`), and a directory for experiments on it."""

    def __init__(self, name: str, cluster: Any, place: Path) -> None:
        self.name, self.cluster, self.place = name, cluster, place
        self.code, self.root, self.log = place / "code", place / "results", place / "executions"
        self.code.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self.env = {kinds.KEY_VARIABLE: kinds.KEY, "BAKEOFF_DATABASE_URL": "", "EXECUTIONS": str(self.log)}

    def start(self, text: str, *, expiry: float = 60, slots: int = 4, secrets: str = "") -> Any:
        kind = f'[executor]\nkind = "{self.name}"\n'
        if self.name != "local":
            kind += f"pilots = 2\nslots = {slots}\nexpiry = {expiry}\n"
        if self.name == "slurm":
            kind += 'options = ["--exclusive"]\n'  # one pilot on each node
        if self.name == "ray" and secrets:
            kind += f'secrets = ["{secrets}"]\n'
        (self.code / "exp.toml").write_text(text + kind)
        jobs = ["-j4"] if self.name == "local" else []
        argv = (BAKEOFF, "run", "exp.toml", *jobs, "--yes", "--root", self.root)
        return self.cluster.start(*argv, env=self.env, cwd=self.code, stdout=sys.stderr, stderr=sys.stderr)

    def run(self, text: str, **options: Any) -> float:
        began = time.monotonic()
        code = self.start(text, **options).wait()
        if code:
            raise SystemExit(f"{self.name}: the experiment ended with exit code {code}")
        return time.monotonic() - began

    def runs(self, name: str) -> Path:
        return self.root / name / "latest" / "runs"

    def records(self, name: str) -> dict[str, Any]:
        """Statuses, attempts, hosts and scores of an experiment."""
        with closing(Edition.open(find_edition(name, self.root))) as edition:
            hosts = {node.node: node.host for node in list_nodes(edition)}
            runs = list(edition.runs())
            used = Counter(hosts.get(edition.attempts(run.position)[-1]["node"], "") for run in runs)
            return {
                "statuses": dict(edition.counts()),
                "attempts": {run.run_id: run.attempts for run in runs},
                "hosts": dict(used),
                "scores": {run.run_id: run.metrics.get(SCORES.get(name, "total_score")) for run in runs},
            }


def contents(runs: Path, pattern: str = "*/out/*") -> dict[str, bytes]:
    return {
        str(path.relative_to(runs)): path.read_bytes()
        for path in runs.glob(pattern)
        if path.is_file() and not (path.name in TIMED and (path.parent / "prices.csv").exists())
    }


def experiments(number: int) -> dict[str, str]:
    """Name to experiment file."""
    shell = "echo {arm} {seed} >> $EXECUTIONS; seq {seed} 500 > {out}/numbers; echo {seed}"
    command = f"name = 'command'\nworkload = 'command'\nseeds = {number}\nenv.EXECUTIONS = '${{EXECUTIONS}}'\n[params]\ncommand = '{shell}'\n"
    python = f"name = 'python'\nworkload = 'python'\nseeds = {number}\nenv.EXECUTIONS = '${{EXECUTIONS}}'\n[params]\nfunction = 'work:run'\n"
    return {"command": command, "python": python, "market": kinds.MARKET.replace("seeds = 1", "seeds = 3")}


def same(local: Engine, engine: Engine, number: int) -> dict[str, Any]:
    """Run everything on both, and compare."""
    facts: dict[str, Any] = {}
    for name in ("command", "python", "market"):
        taken = {}
        for side in (local, engine):
            (side.code / "work.py").write_text(WORK)
            side.log.write_text("")
            taken[side.name] = side.run(experiments(number)[name])
        ours, theirs = engine.records(name), local.records(name)
        executed = Counter(engine.log.read_text().splitlines())
        files = contents(engine.runs(name))
        facts[name] = {
            "runs": len(ours["scores"]),
            "seconds": {side: round(value, 1) for side, value in taken.items()},
            "statuses": ours["statuses"],
            "hosts": ours["hosts"],
            "executions": executed.total() if name != "market" else None,
            "files": len(files),
            "once": set(ours["attempts"].values()) == {1} and set(executed.values()) <= {1},
            "same_files": bool(files) and files == contents(local.runs(name)),
            "same_scores": ours["scores"] == theirs["scores"],
            "both_nodes": set(ours["hosts"]) == {"n1", "n2"},
        }
        say(f"{engine.name} {name}: {json.dumps(facts[name])}")
    return facts


def coding(local: Engine, engine: Engine) -> dict[str, Any]:
    """Sandboxed tasks whose agent calls a model on the head through the gateway beside it."""
    patches = {}
    for side in (local, engine):
        calls = Path(tempfile.mkdtemp()) / "calls"
        with kinds.model_on(side.cluster.site.head, calls) as url:
            side.run(kinds.coding(side.code, url, rollouts=8), secrets=kinds.KEY_VARIABLE, slots=2)
        # The model's port is a parameter, so run ids differ between the two.
        patches[side.name] = list(contents(side.runs("coding"), "*/artifacts/diff.patch").values())
        callers = Counter(calls.read_text().splitlines())
    records = engine.records("coding")
    facts = {
        "runs": 8, "statuses": records["statuses"], "hosts": records["hosts"], "calls": dict(callers),
        "scores": sorted(set(records["scores"].values())),
        "same_files": patches[local.name] == patches[engine.name] and len(patches[local.name]) == 8,
        "right_key": all(line.endswith("True") for line in callers),
        "no_key_in_files": not kinds.files_with_key(engine.place),
        "both_nodes": set(records["hosts"]) == {"n1", "n2"},
    }  # fmt: skip
    say(f"{engine.name} coding: {json.dumps(facts)}")
    return facts


def checkpoint(local: Engine, engine: Engine) -> dict[str, Any]:
    """Kill the pilot of a run with checkpoints three times; the run ends as one that was left alone."""
    head = "name = 'train'\nworkload = 'python'\n[params]\nfunction = 'train:run'\n[resume]\ncheckpoints = true\n"
    text = head + "[env]\nEXECUTIONS = '${EXECUTIONS}'\nPAUSE = '${PAUSE}'\n"
    for side in (local, engine):
        (side.code / "train.py").write_text(TRAIN)
    local.env["PAUSE"], engine.env["PAUSE"] = "0", "3"
    local.run(text)
    engine.log.write_text("")
    scheduler = engine.start(text, expiry=12, slots=1)
    pilot = "pilots.spool" if engine.name == "slurm" else "executors.ray.host"
    for number in range(1, 4):
        eventually(
            lambda n=number: len(engine.log.read_text().split()) == n or scheduler.poll() is not None, "it runs", 300
        )
        time.sleep(6)  # a checkpoint or two further on
        if scheduler.poll() is None:
            engine.cluster.site[engine.log.read_text().split()[-1]].signal(pilot, signal.SIGKILL)
    code = scheduler.wait()
    curves = {}
    for side in (local, engine):
        with closing(Edition.open(find_edition("train", side.root))) as edition:
            block = edition.series(0)
            assert block is not None
            steps, values = read_block(block)["total"]
            run = next(iter(edition.runs()))
            curves[side.name] = (steps.tolist(), values.tolist(), run.metrics["total"])
            attempts = [(each["status"], each["node"]) for each in edition.attempts(0)]
    facts = {
        "exit_code": code, "attempts": attempts, "ran_on": engine.log.read_text().split(),
        "same_result": curves[local.name][2] == curves[engine.name][2],
        "same_curve": curves[local.name] == curves[engine.name],
        "each_step_once": curves[engine.name][0] == list(range(STEPS)),
        # It may also be lost once more without having begun, with a pilot that was killed a moment before.
        "killed_three_times": len(engine.log.read_text().split()) == 4,
    }  # fmt: skip
    say(f"{engine.name} checkpoint: {json.dumps(facts)}")
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["ray", "slurm"], help="only this one")
    parser.add_argument("--runs", type=int, default=300, help="commands, and functions")
    parser.add_argument("--part", choices=["same", "coding", "checkpoint"], help="only this one")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON object into this file")
    given = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "cluster_same", "machine": machine(REPOSITORY), "engines": {}}
    for name in [given.engine] if given.engine else ["ray", "slurm"]:
        clusters = RayCluster if name == "ray" else SlurmCluster
        with tempfile.TemporaryDirectory(prefix="same-", dir="/tmp") as place, clusters() as cluster:
            # Executions of all sides are counted in files that all machines see; the results root is hidden from Ray.
            home = Path(place) if name == "ray" else cluster.shared / "same"
            local, engine = Engine("local", cluster, home / "local"), Engine(name, cluster, home / name)
            if name == "ray":
                engine.root.mkdir()
                cluster.hide(engine.root)
            parts: dict[str, Any] = {}
            if given.part in (None, "same"):
                parts |= same(local, engine, given.runs)
            if given.part in (None, "coding"):
                parts["coding"] = coding(local, engine)
            if given.part in (None, "checkpoint"):
                parts["checkpoint"] = checkpoint(local, engine)
            result["engines"][name] = parts
    checks = [value for parts in result["engines"].values() for part in parts.values() for value in part.values()]
    result["holds"] = all(value for value in checks if isinstance(value, bool))
    text = json.dumps(result, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    sys.exit(0 if result["holds"] else 1)


if __name__ == "__main__":
    main()
