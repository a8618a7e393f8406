"""JSON of pytest-benchmark: the median of each benchmark in a file is one run.

The rounds of a benchmark share a process, a moment and a machine, so they are no repeats: another file is. The arm is the commit, or
the file where commits are equal or unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes, read_whole_json
from bakeoff.results.importers.foreign import BY_FILE, DIRECTORY, ForeignRun, Item, Measure, Reading, Source

MEASURES = {name: Measure("minimize") for name in ("median_s", "mean_s", "min_s")}
_START = re.compile(rb'\s*\{\s*"machine_info"\s*:')


class PytestBenchmark:
    """A JSON file of pytest-benchmark, a directory with such files, or its `.benchmarks`."""

    name = "pytest-benchmark"

    def claims(self, path: Path) -> list[Path]:
        files = [path] if path.is_file() else sorted((*path.glob("*.json"), *path.glob("*CPython*/*.json")))
        return [file for file in files if file.suffix == ".json" and _START.match(first_bytes(file, 1 << 8))]

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        machines: dict[str, Path] = {}
        for path in paths:
            tree = _tree(path)
            commit = tree.get("commit_info") or {}
            known = commit.get("id") not in (None, "unversioned", "unknown")
            labels = {"commit": f"{commit['id'][:10]}{'-dirty' if commit.get('dirty') else ''}"} if known else {}
            info = tree["machine_info"]
            cpu = (info.get("cpu") or {}).get("brand_raw")
            machines.setdefault(
                " ".join(str(part) for part in (info.get("node"), cpu, info.get("python_version")) if part), path
            )
            for benchmark in tree["benchmarks"]:
                stats = benchmark.get("stats") or {}
                values = {f"{name}_s": stats[name] for name in ("median", "mean", "min") if stats.get(name) is not None}
                yield ForeignRun(
                    labels=labels | {DIRECTORY: path.name},
                    header={"commit_info": commit, "machine_info": info, **benchmark},
                    source=Source(path, member=benchmark["fullname"]),
                    task=benchmark["fullname"],
                    group=benchmark.get("group"),
                    outcome="scored" if values else "missing",
                    metrics=values,
                )
            yield Reading("pytest-benchmark", str(tree.get("version", "")), MEASURES, labels=BY_FILE)
        if len(machines) > 1:
            listed = ", ".join(f"{machine} ({path})" for machine, path in machines.items())
            yield Reading(notes=[f"files are of different machines or Python versions: {listed}"])


def _tree(path: Path) -> dict[str, Any]:
    tree = read_whole_json(path, "pytest-benchmark")
    if not tree.get("benchmarks"):
        raise UsageError(f"{path}: is a file of pytest-benchmark without a benchmark")
    return tree
