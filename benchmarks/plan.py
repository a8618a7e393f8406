"""Measure how long a plan of 100,000 runs takes to expand, and whether memory stays flat during 100,000 runs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

from measure import BAKEOFF, check, environment, machine, options, publish, say, versions, wait_for_calm, workspace

METHOD = (
    "Expansion: load_plan() and a walk over every run with its id, in process, best of the rounds. Memory: resident memory of "
    "the scheduler and of its workers, sampled ten times a second from /proc while `bakeoff run -j2` does the no-op runs; "
    "growth is the highest sample after 10 % of the runs were recorded less the mean between 10 % and 20 %."
)
HEAD = 'workload = "python"\nparams.function = "noop:noop"\n'
COMMAND = 'params.command = ["simulate", "--a", "{a}", "--seed", "{seed}", "{flags}", "--out", "{out}"]\n'
LIMIT_S = 2.0
LIMIT_MB = 8.0


def axis(name: str, count: int) -> str:
    return f"matrix.{name} = {list(range(count))}\n"


def shapes(runs: int) -> dict[str, str]:
    """Experiment files of `runs` runs each. `runs` is a multiple of 1,000."""
    some = runs // 1000
    return {
        "one arm, many seeds": f"{HEAD}seeds = {runs}\n",
        "two arms, many rollouts": f"{HEAD}rollouts = {runs // 20}\nseeds = 10\n[[arms]]\nname = 'a'\n[[arms]]\nname = 'b'\n",
        "100 arms x 10 tasks, seeds": f"{HEAD}seeds = {some}\ntask_keys = ['size']\n{axis('a', 10)}{axis('b', 10)}{axis('size', 10)}",
        "many arms, one seed": f"{HEAD}{axis('a', some)}{axis('b', 100)}{axis('c', 10)}",
        "many arms of a command": f"{COMMAND}{axis('a', some)}{axis('b', 100)}{axis('c', 10)}",
        "arms x tasks, a rule on seeds": f"{HEAD}seeds = {2 * some}\nexclude = ['seed >= {some}']\ntask_keys = ['size']\n{axis('a', 100)}{axis('size', 10)}",
        "sweep runner's dialect": sweep(some),
    }


def sweep(some: int) -> str:
    common = {"pdfs": 4, "iters": 2, "subqueries": 3, "time_scale": 1.0, "heavy_tail_prob": 0.1, "heavy_tail_mult": 4.0}
    off = [{"name": f"off{number}", "flags": [f"--off{number}"]} for number in range(4)]
    matrix = {
        "policy": [f"policy{number}" for number in range(10)],
        "workflows": list(range(1, 11)),
        "seeds": list(range(2 * some)),
        "ablations": [{"name": "baseline", "flags": []}, *off],
    }
    return json.dumps({"name": "sweep", "sim_binary": "/bin/true", "common_args": common, "matrix": matrix})


def expand(directory: Path, name: str, text: str, runs: int, rounds: int) -> tuple[float, float]:
    """(wall seconds, CPU seconds) from the file to the last run's id. CPU seconds are reliable on a busy machine."""
    from bakeoff.spec.load import load_plan

    file = directory / ("sweep.json" if text.startswith("{") else "shape.toml")
    file.write_text(text)
    taken, used = [], []
    for _ in range(rounds):
        wait_for_calm(10 if rounds > 1 else 0)
        began, busy = time.perf_counter(), time.process_time()
        plan = load_plan(file)
        ids = sum(1 for run in plan if run.run_id)
        taken.append(time.perf_counter() - began)
        used.append(time.process_time() - busy)
        if ids != runs or len(plan) != runs:
            raise SystemExit(f"{name}: {ids} runs in place of {runs}")
        del plan
    say(f"  {name}: {min(taken):.3f} s, of which CPU {min(used):.3f} s")
    return min(taken), min(used)


def megabytes(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
    except (OSError, IndexError):
        return 0.0


def below(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def watch(directory: Path, runs: int) -> list[tuple[int, float, float]]:
    """Sample (runs recorded, scheduler's MB, workers' MB) repeatedly while the experiment runs."""
    (directory / "noop.py").write_text('def noop(seed):\n    return {"score": seed}\n')
    file = directory / "noop.toml"
    file.write_text(f"{HEAD}seeds = {runs}\n")
    argv = [*BAKEOFF, "run", str(file), "-j2", "--fresh", "--yes", "--root", str(directory / "runs")]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(argv, cwd=directory, env=environment(), **quiet)
    samples: list[tuple[int, float, float]] = []
    database: sqlite3.Connection | None = None
    while process.poll() is None:
        time.sleep(0.1)
        if database is None:
            found = list((directory / "runs").glob("noop/*/experiment.db"))
            database = sqlite3.connect(f"file:{found[0]}?mode=ro", uri=True) if found else None
            continue
        try:
            done = database.execute("SELECT MAX(rowid) FROM attempts").fetchone()[0] or 0
        except sqlite3.OperationalError:
            continue  # the tables do not exist yet
        samples.append((done, megabytes(process.pid), sum(map(megabytes, below(process.pid)))))
    if process.returncode != 0:
        raise SystemExit(f"the no-op experiment ended with exit code {process.returncode}")
    # The last samples are from a process that is exiting and has already freed memory.
    return [sample for sample in samples if sample[1] > 0 and sample[0] < runs]


def growth(samples: list[tuple[int, float, float]], runs: int, column: int) -> tuple[float, float]:
    """(MB early on, MB gained afterwards)."""
    early = [sample[column] for sample in samples if 0.1 * runs <= sample[0] < 0.2 * runs]
    late = [sample[column] for sample in samples if sample[0] >= 0.1 * runs]
    if not early:
        raise SystemExit("the experiment was over before it could be watched")
    base = sum(early) / len(early)
    return base, round(max(late) - base, 2)


def main() -> None:
    given = options(__doc__ or "")
    runs, rounds = (10_000, 1) if given.quick else (100_000, 5)
    lines: list[dict[str, Any]] = []
    with workspace() as directory:
        facts = machine(directory)
        say(f"expanding plans of {runs:,} runs")
        both = {name: expand(directory, name, text, runs, rounds) for name, text in shapes(runs).items()}
        taken, used = ({name: pair[number] for name, pair in both.items()} for number in (0, 1))
        slowest = max(taken, key=lambda name: taken[name])
        lines.append(
            check(
                f"a plan of {runs:,} runs expands (slowest of {len(taken)} shapes: {slowest})",
                f"{taken[slowest]:.3g} s", "-", taken[slowest], LIMIT_S, "under", "s",
            )
        )  # fmt: skip
        say(f"watching memory while {runs:,} runs are done")
        samples = watch(directory, runs)
        base, gained = growth(samples, runs, 1)
        workers, workers_gained = growth(samples, runs, 2)
        lines.append(
            check(
                f"the scheduler's memory grows from 10 % to 100 % of {runs:,} no-op runs",
                f"{gained:+.1f} MB on {base:.0f} MB", "-", gained, LIMIT_MB, "under", "MB",
            )
        )  # fmt: skip
    step = max(1, len(samples) // 20)
    publish(
        "plan", given, lines,
        {
            "runs": runs,
            "expand_s": taken,
            "expand_cpu_s": used,
            "scheduler_mb": base,
            "scheduler_growth_mb": gained,
            "workers_mb": workers,
            "workers_growth_mb": workers_gained,
            "samples_done_scheduler_workers": samples[::step],
        },
        method=METHOD, facts=facts, programs=versions("pydantic", "msgspec"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
