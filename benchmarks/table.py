"""Regenerate tables of measured figures from benchmarks/results/: in docs/benchmarks.md, and in docs/clusters.md that of
benchmarks/results/cluster_faults/."""

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
CLUSTERS = HERE.parent / "docs" / "clusters.md"
FAULTS = {
    "cuts": "the link of a node is cut at random moments (on Slurm the shared file system goes with it, and both come back)",
    "kills": "kill -9 of pilots, their actors, node supervisors, raylets and slurmd",
    "adopt": "kill -9 of the scheduler with 8 attempts running, started again after 5 s",
    "adopt-late": "the same, started again after 2 min",
    "loss": "5 % of packets are lost in each direction, on all nodes",
    "delay": "every packet takes 100 ms longer in each direction, on all nodes",
    "pause": "SIGSTOP of a pilot for 60 s",
    "clock": "the clock of a node is an hour ahead",
    "upload": "the link is cut while a directory of 600 MB comes home",
    "output": "a run leaves 1 GB",
}


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


def faults(results: Path) -> str:
    """What became of experiments on clusters that were broken on purpose."""
    lines = ["| what was done | on | runs | executed | lost | late | also measured | holds |", "|" + "---|" * 8]
    for fault, what in FAULTS.items():
        for engine in ("ray", "slurm"):
            path = results / "cluster_faults" / f"{engine}-{fault}.json"
            if not path.exists():
                continue
            found = json.loads(path.read_text())
            checks, figures = found["checks"], found["figures"]
            own = checks[
                : next(n for n, check in enumerate(checks) if check["what"].startswith("runs with exactly one"))
            ]
            also = "; ".join(
                f"{check['what']}: {check['value']:g}"
                + ("" if check["sense"] == "is" else f" ({check['sense']} {check['bar']:g})")
                for check in own
            )
            figure = (figures["runs"], figures["executions"], figures["lost_attempts"], figures["late_reports"])
            cells = [f"`{fault}`: {what}", engine, *map(str, figure), also or "", "yes" if found["holds"] else "**no**"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def fill(page: Path, text: str, check: bool) -> str:
    """Put the text into its place on the page. What is wrong, if `check`; otherwise an empty text."""
    old = page.read_text()
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no place for the figures: put {BEGIN} and {END} into it")
    fresh = f"{head}{BEGIN}\n{text}\n{END}{tail}"
    if check:
        return "" if fresh == old else f"{page} does not say what benchmarks/results/ says; run {Path(__file__).name}"
    page.write_text(fresh)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is not up to date")
    given = parser.parse_args()
    wrong = [fill(PAGE, figures(load(RESULTS)), given.check), fill(CLUSTERS, faults(RESULTS), given.check)]
    sys.exit("\n".join(filter(None, wrong)) or 0)


if __name__ == "__main__":
    main()
