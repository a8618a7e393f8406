"""Plans, and editions made through the records, without running anything: quick, and the same every time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bakeoff.records import layout
from bakeoff.records.edition import Edition
from bakeoff.records.run import Attempt, TrajectoryIndex
from bakeoff.records.rundir import write_meta
from bakeoff.records.series import Series, TrajectoryWriter
from bakeoff.spec import registry
from bakeoff.spec.expand import expand
from bakeoff.spec.experiment import ExperimentFile
from bakeoff.spec.load import load_plan
from bakeoff.spec.plan import Plan
from bakeoff.spec.workload import Step

FILE = """\
name = "{name}"
seeds = "1..3"
[params]
command = ["echo", "{{seed}}", "{{size}}"]
[[arms]]
name = "small"
params = {{ size = 1 }}
[[arms]]
name = "large"
params = {{ size = 2 }}
[analysis]
metric = "score"
"""
START = 1_767_225_600.0  # 2026-01-01 00:00 UTC

Outcome = dict[str, Any] | None
"""Fields of an Attempt, and `stdout`; None leaves the run planned."""


def succeeds(arm: str, seed: int) -> Outcome:
    return {"status": "succeeded", "exit_code": 0, "metrics": {"score": len(arm) + seed / 10}}


def provenance(base: Path, **changes: Any) -> dict[str, Any]:
    return {
        "git": None,
        "packages": {"numpy": "2.0.0"},
        "python": "3.11.9",
        "platform": "Linux",
        "host": "here",
        "cores": 2,
        "argv": ["bakeoff", "run"],
        "cwd": str(base),
        "base": str(base),
        "env": {"HOME": "/root"},
        **changes,
    }


MADE: list[Edition] = []
"""Editions of the test at hand; the fixture `no_edition_stays_open` closes them after it."""


def make_edition(
    place: Path,
    name: str = "sorting",
    outcome: Callable[[str, int], Outcome] = succeeds,
    *,
    text: str | None = None,
    told: dict[str, Any] | None = None,
    files: bool = True,
    stamp: float = START,
) -> Edition:
    """An edition of two arms and three seeds under `place/bakeoff-runs`. `told` is its provenance."""
    file = place / f"{name}.toml"
    file.write_text(text or FILE.format(name=name))
    plan = load_plan(file)
    paths = layout.new_edition(layout.experiment_directory(place / "bakeoff-runs", name), now=stamp)
    paths.frozen(".toml").write_bytes(file.read_bytes())
    paths.lease.touch()
    edition = Edition.create(plan, paths)
    MADE.append(edition)
    edition.add_cells(plan.cells, registry.settings(plan.experiment.workload))
    edition.add_runs(plan)
    session = edition.begin_session(told or provenance(place), len(plan))
    for run in plan:
        became = outcome(run.cell.arm.name, run.seed)
        if became is None:
            continue
        stdout = became.pop("stdout", b"hello\n")
        if files:
            write_meta(paths.run(run.run_id), {"run_id": run.run_id})
            (paths.run(run.run_id) / "stdout.txt").write_bytes(stdout)
        times = {"started_at": stamp + run.position, "ended_at": stamp + run.position + 0.5}
        edition.finish([Attempt.of(run, **{"command": f"echo {run.seed}", **times, **became})], session)
    edition.end_session(session, "done")
    layout.point_latest(paths)
    return edition


def series(**values: list[float]) -> bytes:
    """A block with one metric for each name, at steps 0, 1, 2, ..."""
    block = Series()
    for name, numbers in values.items():
        for step, value in enumerate(numbers):
            block.add(step, {name: value})
    return block.block()


def succeeds_with_series(arm: str, seed: int) -> Outcome:
    score = len(arm) + seed / 10
    return {"status": "succeeded", "exit_code": 0, "metrics": {"score": score}, "series": series(loss=[3.0, 2.0, 1.0])}


def add_trajectories(edition: Edition) -> None:
    """A trajectory for each run that succeeded, as a workload writes it."""
    rows = []
    for run in edition.runs(["succeeded"]):
        writer = TrajectoryWriter(edition.paths.run(run.run_id) / "trajectory.jsonl.zst")
        for step in range(40):
            chat = [{"role": "user", "content": f"what is {step}?"}, {"role": "assistant", "content": f"it is {step}"}]
            writer.add(Step(messages=chat, reward=0.1, policy_version="1"))
        index: TrajectoryIndex = writer.close()
        rows.append((edition.edition_id, run.position, index.path, index.steps, index.reward, index.bytes))
    with edition.database.transaction() as transaction:
        transaction.many("INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?)", rows)


SETTINGS = frozenset({"function"})
Begin = Callable[..., Edition]
"""`begin(plan, runs=True)` makes an edition; a fixture of tests/records."""


def make_plan(**content: Any) -> Plan:
    given = {"name": "toy", "workload": "python", "matrix": {"lr": [1, 2]}, "seeds": 3, **content}
    given["params"] = {"function": "m:f", **content.get("params", {})}
    return expand(ExperimentFile.model_validate(given), base=Path("/nowhere"))


SUMMARY = (
    "makespan_mean_ms,makespan_p50_ms,makespan_p95_ms,makespan_p99_ms,cost_mean,cost_p50\n1.45522e+06,2,3,4,0.5,0.25\n"
)
TIERS = "provider,tier_id,utilization,queue_wait_p95_ms,in_flight_avg\nopenai,0,0,50,0\nopenai,1,0.5,50,0\n"
PARAMS = {
    "enable_model_routing": True, "heavy_tail_mult": 50, "heavy_tail_prob": 0.02, "iters": 3, "pdfs": 10,
    "subqueries": 4, "time_scale": 50, "workflows": 5,
}  # fmt: skip


def write_sweep_run(
    experiment: Path, policy: str, seed: int, ablation: str = "baseline", exit_code: int | None = 0
) -> Path:
    """A run directory as the sweep runner leaves it."""
    flags = [] if ablation == "baseline" else ["--disable_hedging"]
    directory = experiment / "runs" / f"{policy}__wf5__seed{seed}__{ablation}__c9768924ff6b"
    (directory / "out").mkdir(parents=True)
    meta = {
        "run_id": directory.name,
        "params": {**PARAMS, "policy": policy, "seed": seed},
        "ablation_name": ablation,
        "ablation_flags": flags,
        "cmd": ["./sim", "--seed", str(seed)],
        "cwd": "/repo",
        "start_time_unix_s": 100.0,
    }
    if exit_code is not None:
        meta |= {"end_time_unix_s": 101.5, "wall_time_s": 1.5, "exit_code": exit_code}
        (directory / "out/summary.csv").write_text(SUMMARY)
        (directory / "out/tiers.csv").write_text(TIERS)
    (directory / "meta.json").write_text(json.dumps(meta, indent=2, sort_keys=True))
    return directory
