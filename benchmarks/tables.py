"""Read a CSV of 1,000,000 runs: processor time and memory up to the table that every question is asked of, and of Polars
and pandas for the file alone.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from measure import check, machine, options, publish, say, versions, workspace

ARMS, SEEDS = 4, 5
METHOD = (
    "A process for each reader reads the same file (8 columns: model, task, seed, trial, score, latency_ms, host, note). "
    "`bakeoff.results.sources.open_results` parses it, finds the columns, applies every rule that refuses misleading tables, "
    "and makes a row for each run. `polars.read_csv` and `pandas.read_csv` parse it. Processor time of all threads without "
    "imports, and peak resident memory of the process. The file was just written, so it is in the page cache."
)
READERS = {
    "bakeoff": "from bakeoff.results.sources import open_results as read\nfrom pathlib import Path",
    "polars": "from polars import read_csv as read",
    "pandas": "from pandas import read_csv as read",
}
READ = """
import resource, sys, time
{imports}
used = time.process_time()
table = {call}
used = time.process_time() - used
print(used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def make(path: Path, rows: int) -> None:
    rng = random.Random(1)
    tasks = rows // (ARMS * SEEDS)
    with path.open("w", encoding="utf-8") as file:
        file.write("model,task,seed,trial,score,latency_ms,host,note\n")
        for task in range(tasks):
            for arm in range(ARMS):
                for seed in range(SEEDS):
                    score, latency = rng.gauss(arm / 10, 1), rng.lognormvariate(5, 1)
                    file.write(f"model-{arm},task-{task},{seed},0,{score:.6f},{latency:.2f},node-{seed % 3},ok\n")


def main() -> None:
    given = options(__doc__ or "")
    rows = 100_000 if given.quick else 1_000_000
    found: dict[str, tuple[float, float]] = {}
    with workspace() as directory:
        file = directory / "table.csv"
        make(file, rows)
        for name, imports in READERS.items():
            say(f"reading {rows:,} rows with {name}")
            call = 'read([sys.argv[1]], Path("root"))' if name == "bakeoff" else "read(sys.argv[1])"
            argv = [sys.executable, "-c", READ.format(imports=imports, call=call), str(file)]
            used, peak = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
            found[name] = float(used), float(peak)
        facts = machine(directory)
    seconds, megabytes = found["bakeoff"]
    alone = ", ".join(f"{name} {found[name][0]:.1f} s" for name in ("polars", "pandas"))
    publish(
        "tables", given,
        [
            check(f"time to read {rows:,} rows", f"{seconds:.1f} s", f"the file alone: {alone}", seconds, 60, "under", "s"),
            check(f"memory to read {rows:,} rows", f"{megabytes:.0f} MB", f"polars {found['polars'][1]:.0f} MB", megabytes, 2_000, "under", "MB"),
        ],
        {name: {"seconds": used, "megabytes": peak} for name, (used, peak) in found.items()} | {"rows": rows},
        method=METHOD, facts=facts, programs=versions("polars", "pandas"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
