"""Measure how long it takes to make a table of 10,000 finished runs, against a loop with json and pandas.read_csv."""

from __future__ import annotations

import csv
import random
import sys
import time
from pathlib import Path
from typing import Any

from measure import BAKEOFF, check, in_turns, machine, options, publish, say, seconds, versions, workspace

PEER = Path(__file__).parent / "peers" / "pandas_collect.py"
METRICS = 10
METHOD = (
    "The runs' directories (meta.json, out/summary.csv with 10 metrics) and database are written through the same code as "
    "the engine's. Whole process: `bakeoff collect` (CSV and Parquet) against a script with the loop and to_csv, interpreter "
    "and imports included. In process: read_table() against the loop alone, imports left out. Files are in the page cache on "
    "both sides; best of the rounds, in turns. bakeoff reads its database, where metrics are since the run ended."
)
EXPERIMENT = """
name = "finished"
seeds = {seeds}
matrix.policy = ["fifo", "sjf", "srpt", "wfq", "edf"]
matrix.load = [0.5, 0.9]
[params]
command = ["simulate", "{{flags}}", "--out", "{{out}}"]
"""


def write_runs(directory: Path, count: int) -> Path:
    """Write finished runs as the engine would. Returns the edition's directory."""
    from bakeoff.records import layout
    from bakeoff.records.edition import Edition
    from bakeoff.records.run import Attempt
    from bakeoff.records.rundir import write_meta
    from bakeoff.spec import registry
    from bakeoff.spec.load import load_plan
    from bakeoff.workloads.metrics import read_metrics

    file = directory / "finished.toml"
    file.write_text(EXPERIMENT.format(seeds=count // 10))
    plan = load_plan(file)
    settings = registry.settings("command")
    paths = layout.new_edition(layout.experiment_directory(directory / "runs", "finished"))
    edition = Edition.create(plan, paths)
    edition.add_cells(plan.cells, settings)
    edition.add_runs(plan)
    session = edition.begin_session({}, count)
    chance, now = random.Random(0), time.time()
    attempts = []
    for run in plan:
        path = paths.run(run.run_id)
        summary = path / "out" / "summary.csv"
        summary.parent.mkdir(parents=True)
        with summary.open("w", newline="") as opened:
            rows = csv.writer(opened)
            rows.writerow([f"metric_{number}" for number in range(METRICS)])
            rows.writerow([chance.gauss(0, 1) for _ in range(METRICS)])
        metrics, problem = read_metrics("auto", path, None)
        assert problem is None and len(metrics) == METRICS
        attempt = Attempt.of(run, status="succeeded", started_at=now, ended_at=now + 1, exit_code=0, metrics=metrics)
        write_meta(path, meta(attempt, dict(run.cell.params)))
        attempts.append(attempt)
    edition.finish(attempts, session)
    edition.end_session(session, "done")
    edition.close()
    layout.point_latest(paths)
    return paths.directory


def meta(attempt: Any, params: dict[str, Any]) -> dict[str, Any]:
    """`meta.json` with the keys that the engine writes."""
    return {
        "run_id": attempt.run_id,
        "experiment": "finished",
        "workload": "command",
        "arm": attempt.arm,
        "task": attempt.task,
        "seed": attempt.seed,
        "rollout": attempt.rollout,
        "attempt": attempt.number,
        "params": {name: value for name, value in params.items() if name != "command"},
        "ablation_name": attempt.ablation or "baseline",
        "ablation_flags": list(attempt.flags),
        "start_time_unix_s": attempt.started_at,
        "end_time_unix_s": attempt.ended_at,
        "wall_time_s": 1.0,
        "exit_code": attempt.exit_code,
        "status": attempt.status,
        "error": attempt.error,
        "metrics": dict(attempt.metrics),
    }


def in_process(edition_directory: Path) -> dict[str, Any]:
    """Two callables that return the seconds they took, and `made`, which holds the tables that they made."""
    from bakeoff.records.edition import Edition
    from bakeoff.records.layout import EditionPaths
    from bakeoff.results.frame import read_table

    sys.path.insert(0, str(PEER.parent))
    from pandas_collect import collect

    def ours() -> float:
        began = time.perf_counter()
        edition = Edition.open(EditionPaths(edition_directory))
        frame = read_table(edition).frame
        took = time.perf_counter() - began
        edition.close()
        made["ours"] = frame
        return took

    def theirs() -> float:
        began = time.perf_counter()
        made["theirs"] = collect(edition_directory / "runs")
        return time.perf_counter() - began

    made: dict[str, Any] = {}
    return {"read_table": ours, "pandas loop": theirs, "made": made}


def assert_same(made: dict[str, Any]) -> None:
    """Exit unless both sides made the same table; otherwise the ratio would mean nothing."""
    ours = made["ours"].sort("run_id")
    theirs = made["theirs"].sort_values("run_id")
    for number in range(METRICS):
        name = f"metric_{number}"
        if ours[name].to_list() != theirs[name].to_list():
            raise SystemExit(f"the two sides disagree about {name}")


def main() -> None:
    given = options(__doc__ or "")
    count, rounds, patience = (500, 1, 0.0) if given.quick else (10_000, 3, 30.0)
    with workspace() as directory:
        facts = machine(directory)
        say(f"writing {count} finished runs")
        edition = write_runs(directory, count)
        within = in_process(edition)
        made = within.pop("made")
        loops = in_turns(within, rounds, patience)
        assert_same(made)
        made.clear()
        whole = in_turns(
            {
                "bakeoff collect": lambda: seconds(
                    [*BAKEOFF, "collect", "finished", "--root", str(directory / "runs")]
                ),
                "pandas script": lambda: seconds(
                    [sys.executable, str(PEER), str(edition / "runs"), str(directory / "x.csv")]
                ),
            },
            rounds,
            patience,
        )
    best = {name: turns.best for name, turns in {**loops, **whole}.items()}
    lines = [
        check(
            f"collect {count:,} runs, whole process: `bakeoff collect` against a script with the loop",
            f"{best['bakeoff collect']:.3g} s", f"{best['pandas script']:.3g} s",
            best["pandas script"] / best["bakeoff collect"], 30,
        ),
        check(
            f"collect {count:,} runs, in process: `read_table` against the pandas loop",
            f"{best['read_table']:.3g} s", f"{best['pandas loop']:.3g} s", best["pandas loop"] / best["read_table"], 30,
        ),
    ]  # fmt: skip
    publish(
        "collect", given, lines, {"runs": count, "turns": {**loops, **whole}},
        method=METHOD, facts=facts, programs=versions("pandas", "polars"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
