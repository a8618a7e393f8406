"""Measure error rates, coverage and power of the verdict on simulated tables of runs.

    python benchmarks/calibration.py            20,000 replicates per cell: about 100 minutes of CPU time
    python benchmarks/calibration.py --quick    2,000 replicates per cell
    python benchmarks/calibration.py --resume   continue an interrupted run; the code must be the same

Prints the tables. The long run also writes benchmarks/results/calibration.json, the tables in docs/calibration.md and
the figure in docs/images/. Exits with 1 if a bound does not hold.
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
from calibrate.count import SEED, replicate_all  # noqa: E402
from calibrate.table import ALPHA  # noqa: E402
from measure import machine, say, versions  # noqa: E402

RESULT = HERE / "results" / "calibration.json"
BUILD = HERE.parent / "build"
LONG, QUICK = 20_000, 2_000


def main() -> int:
    given = _arguments()
    if given.page:
        page.write(json.loads(RESULT.read_text()))
        return 0
    replicates = QUICK if given.quick else LONG
    out: Path = given.out or (RESULT if not given.quick else BUILD / "calibration-quick.json")
    begun = BUILD / f"{out.stem}-begun.json"
    for directory in (out.parent, BUILD):
        directory.mkdir(parents=True, exist_ok=True)
    done = _known(begun, replicates) if given.resume else {}
    simulate(replicates, given.only, given.processes, done, begun)
    result = _result(replicates, [done[key] for key in CELLS if key in done])
    if given.only:
        print(json.dumps([row for row in result["cells"] if given.only in row["key"]], indent=1))
    if len(done) < len(CELLS):
        return 0 if result["holds"] else 1
    print(page.tables(result))
    out.write_text(json.dumps(result, indent=1) + "\n")
    begun.unlink(missing_ok=True)
    if out == RESULT:
        page.write(result)
    return 0 if result["holds"] else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} replicates per cell instead of {LONG:,}")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cells whose key contains this, as JSON")
    parser.add_argument("--resume", action="store_true", help="keep the cells that an interrupted run has finished")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the JSON object goes")
    parser.add_argument("--page", action="store_true", help="simulate nothing; write the page from the stored result")
    return parser.parse_args()


def _known(begun: Path, replicates: int) -> dict[str, dict[str, Any]]:
    """Finished cells of an interrupted run with the same number of replicates."""
    if not begun.exists():
        return {}
    found: dict[str, Any] = json.loads(begun.read_text())
    return found["cells"] if found["replicates"] == replicates else {}


def simulate(replicates: int, only: str, processes: int, done: dict[str, dict[str, Any]], begun: Path) -> None:
    """Simulate every cell that is not done yet; store each one as soon as it is finished."""
    cells = [cell for key, cell in CELLS.items() if only in key and key not in done]
    for number, (cell, counts, seconds) in enumerate(replicate_all(cells, replicates, processes), 1):
        row = done[cell.key] = page.row(cell, counts, seconds)
        begun.write_text(json.dumps({"replicates": replicates, "cells": done}))
        state = "" if not row["bars"] else "holds" if row["holds"] else "DOES NOT HOLD"
        say(f"{number}/{len(cells)} {time.strftime('%H:%M:%S')} {cell.key}: {row['shares']} {state} ({seconds:.0f} s)")


def _result(replicates: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
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
