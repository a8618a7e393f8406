"""Regenerate the table of measured figures in docs/benchmarks.md from benchmarks/results/*.json."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: written by benchmarks/table.py -->", "<!-- end of figures -->"


def load(results: Path) -> list[dict[str, Any]]:
    """Results that are measured against a speed bar. Calibration and verdicts are on other pages."""
    found = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    return [benchmark for benchmark in found if any("bar" in check for check in benchmark.get("checks", ()))]


def row(entry: dict[str, Any]) -> str:
    unit = entry["unit"] if entry["unit"] == "x" else f" {entry['unit']}"
    value, bar = f"{round(entry['value'], 4):.3g}{unit}", f"{entry['sense']} {entry['bar']:g}{unit}"
    holds = "yes" if entry["holds"] else "**no**"
    return f"| {entry['what']} | {entry['ours']} | {entry['theirs']} | {value} | {bar} | {holds} |"


def figures(benchmarks: list[dict[str, Any]]) -> str:
    lines = ["| what | ours | the peer | measured | bar | holds |", "|---|---|---|---|---|---|"]
    lines += [row(entry) for benchmark in benchmarks for entry in benchmark["checks"]]
    lines += ["", "Where and when:", ""]
    for benchmark in benchmarks:
        machine = benchmark["machine"]
        versions = ", ".join(f"{name} {number}" for name, number in benchmark["versions"].items())
        quick = " with --quick, so the figures mean little" if benchmark["quick"] else ""
        lines.append(
            f"- `{benchmark['benchmark']}`: {benchmark['measured_at']}{quick}; {machine['cores']} cores ({machine['cpu']}), "
            f"{machine['memory_gb']} GB, {machine['filesystem']}, load average {machine['load_average'][0]} at the start; {versions}."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the page is not up to date")
    given = parser.parse_args()
    page = PAGE.read_text()
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no place for the figures: put {BEGIN} and {END} into it")
    fresh = f"{head}{BEGIN}\n{figures(load(RESULTS))}\n{END}{tail}"
    if given.check:
        sys.exit(
            0 if fresh == page else f"{PAGE} does not say what benchmarks/results/ says; run {Path(__file__).name}"
        )
    PAGE.write_text(fresh)


if __name__ == "__main__":
    main()
