#!/usr/bin/env python3
"""Write the table of failure causes into the pages that show it, between its marks. `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from bakeoff.workloads.tasks.causes import table

PAGES = ("docs/tasks.md", "docs/rollouts.md")
BEGIN, END = "<!-- failures: scripts/failure_table.py -->\n", "<!-- end of failures -->\n"


def written(text: str) -> str:
    """A page with the table as the code has it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"there is no place for the table: write {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    root = Path(__file__).parent.parent
    stale = [page for page in PAGES if written((root / page).read_text()) != (root / page).read_text()]
    for page in stale if "--check" not in sys.argv else ():
        (root / page).write_text(written((root / page).read_text()))
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
