"""How often the verdict is wrong, how wide its intervals are and what it finds, counted on simulated tables of runs.

    python benchmarks/calibration.py            20,000 replicates a cell; hours of one core, shared by all cores
    python benchmarks/calibration.py --quick    2,000 replicates a cell

One JSON object goes into benchmarks/results/calibration.json (or --out), the tables into docs/calibration.md and the
figure into docs/images/; with --quick or --only, or with another --out, the page and the figure stay as they are. The
tables are printed too. Exit code 1 when a bound does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one thread a process: the processes are the parallelism
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "simulations"))

from calibrate import page  # noqa: E402
from calibrate.cells import CELLS  # noqa: E402
from calibrate.count import SEED, replicate_all  # noqa: E402
from calibrate.table import ALPHA  # noqa: E402
from measure import machine, say, versions  # noqa: E402

RESULT = HERE / "results" / "calibration.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 replicates a cell instead of 20,000")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cells whose key contains this")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: every core")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"the JSON object goes here (default {RESULT.name})")
    parser.add_argument("--page", action="store_true", help="simulate nothing; write the page from the result at hand")
    given = parser.parse_args()
    whole = not given.quick and not given.only
    out = given.out or (RESULT if whole else None)
    if given.page:
        page.write(json.loads(RESULT.read_text()))
        return 0
    result = simulate(2_000 if given.quick else 20_000, given.only, given.processes, given.quick)
    print(page.tables(result) if not given.only else json.dumps(result, indent=2))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
    if out == RESULT:
        page.write(result)
    return 0 if result["holds"] else 1


def simulate(replicates: int, only: str, processes: int, quick: bool) -> dict[str, object]:
    cells = [cell for key, cell in CELLS.items() if only in key]
    began, rows = time.perf_counter(), []
    for number, (cell, counts, seconds) in enumerate(replicate_all(cells, replicates, processes), 1):
        row = page.row(cell, counts, seconds)
        rows.append(row)
        state = "" if not row["bars"] else "holds" if row["holds"] else "DOES NOT HOLD"
        say(f"{number}/{len(cells)} {cell.key}: {row['shares']} {state} ({seconds:.0f} s)")
    return {
        "benchmark": "calibration",
        "quick": quick,
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "replicates": replicates,
        "alpha": ALPHA,
        "seed": SEED,
        "seconds": round(time.perf_counter() - began),
        "processor_seconds": round(sum(row["seconds"] for row in rows)),
        "machine": machine(HERE),
        "versions": versions("numpy", "scipy"),
        "holds": all(row["holds"] for row in rows),
        "cells": rows,
    }


if __name__ == "__main__":
    raise SystemExit(main())
