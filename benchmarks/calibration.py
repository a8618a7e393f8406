"""Measure error rates, coverage and power of the verdict on simulated tables of runs.

    python benchmarks/calibration.py                 20,000 replicates per cell: about 15 minutes of CPU time
    python benchmarks/calibration.py --quick         2,000 replicates per cell, tables on standard output
    python benchmarks/calibration.py --only margin   only cells whose key contains a word, as JSON

Cells are kept in build/calibration as they grow, so an interrupted run continues where it was, and a later one adds
replicates. A cell starts again when its first 500 replicates come out differently with the code at hand, or with --redo.
With every cell complete, the long run also writes benchmarks/results/calibration.json, the tables in
docs/calibration.md and the figure in docs/images/. Exits with 1 if a bound does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # processes run in parallel, so one thread is enough
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "simulations"))

from calibrate import page  # noqa: E402
from calibrate.cells import CELLS  # noqa: E402
from calibrate.count import SEED  # noqa: E402
from calibrate.store import Store  # noqa: E402
from calibrate.table import ALPHA  # noqa: E402
from measure import machine, say, versions  # noqa: E402

RESULT = HERE / "results" / "calibration.json"
BUILD = HERE.parent / "build" / "calibration"
LONG, QUICK = 20_000, 2_000


def main() -> int:
    given = _arguments()
    store = Store(given.store)
    if not given.page:
        simulate(store, QUICK if given.quick else LONG, given.only, given.processes, given.redo)
    known = {row["key"]: row for row in json.loads(RESULT.read_text())["cells"]} if given.page else {}
    known |= {
        key: page.row(CELLS[key], stored.counts, stored.seconds) for key in CELLS if (stored := store.read(key)).chunks
    }
    rows = [known[key] for key in CELLS if key in known]
    result = _result(rows)
    if given.only:
        print(json.dumps([row for row in rows if given.only in row["key"]], indent=1))
    elif len(rows) == len(CELLS):
        if not given.quick:
            RESULT.write_text(json.dumps(result, indent=1) + "\n")
            page.write(result)
        print(page.tables(result))
    else:
        say(f"{len(CELLS) - len(rows)} cells are missing, so nothing is written")
    return 0 if result["holds"] else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} replicates per cell instead of {LONG:,}")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cells whose key contains this, as JSON")
    parser.add_argument("--redo", action="store_true", help="start again instead of keeping what is stored")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--store", type=Path, default=BUILD, metavar="DIR", help="where cells are kept")
    parser.add_argument(
        "--page",
        action="store_true",
        help="simulate nothing; write result and page from what is stored, and other cells as in the last result",
    )
    return parser.parse_args()


def simulate(store: Store, replicates: int, only: str, processes: int, redo: bool) -> None:
    """Complete every cell that is asked for, and say how it came out."""
    keys = [key for key in CELLS if only in key]
    for number, (key, stored) in enumerate(store.complete_all(keys, replicates, processes, redo), 1):
        row = page.row(CELLS[key], stored.counts, stored.seconds)
        state = "" if not row["bars"] else "holds" if row["holds"] else "DOES NOT HOLD"
        say(f"{number}/{len(keys)} {time.strftime('%H:%M:%S')} {key}: {row['shares']} {state} ({stored.seconds:.0f} s)")


def _result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    replicates = min((row["replicates"] for row in rows), default=0)
    return {
        "benchmark": "calibration",
        "quick": replicates < LONG,
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "replicates": replicates,
        "alpha": ALPHA,
        "seed": SEED,
        "processor_seconds": round(sum(row["seconds"] for row in rows)),
        "machine": machine(HERE),
        "versions": versions("numpy", "scipy"),
        "holds": all(row["holds"] for row in rows),
        "cells": rows,
    }


if __name__ == "__main__":
    raise SystemExit(main())
