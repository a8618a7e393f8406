"""Other tools' results become `Results`. One module for each format; the format is found by sniffing.

An importer is an object with `name`, `recognises(place)` and `read(place)`. Ours are listed here; packages add theirs
through the entry-point group `bakeoff.importers`:

    class MyTool:
        name = "mytool"

        def recognises(self, place: Path) -> bool:
            return (place / "mytool.json").is_file()

        def read(self, place: Path) -> Results:
            return Results([Row(arm="a", seed=1, metrics={"score": 0.5})], label=str(place))

| module | reads |
|---|---|
| `tables` | CSV, TSV, Parquet and JSONL, one row for each run or for each step of a run |
| `wandb_runs` | W&B runs: offline files, and runs on a server |
| `directories` | run directories with `metrics.jsonl` or `meta.json`, and training campaigns |
| `files` | small JSON and CSV files, read quickly |
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from bakeoff import plugins
from bakeoff.errors import UsageError
from bakeoff.results.importers.tables import SUFFIXES
from bakeoff.results.table import Results

GROUP = "bakeoff.importers"


class Importer(Protocol):
    """Reads one format."""

    name: str

    def recognises(self, place: Path) -> bool:
        """Whether this file or directory has the format. Looks at names and first bytes only."""

    def read(self, place: Path) -> Results:
        """Every run in it. Runs that cannot be read are lines in `problems`; UsageError when there is none at all."""


def importers() -> Iterator[Importer]:
    """Those of other packages first, so that a special format goes before the general ones."""
    for value in plugins.entry_points(GROUP).values():
        yield plugins.load(value)
    from bakeoff.results.importers import directories, wandb_runs

    yield wandb_runs.WandbFiles()
    yield directories.RunDirectories()


def read_place(place: Path) -> Results:
    """Whatever lies at `place`, by the first importer that recognises it. Tables are read by `tables.read_tables`."""
    for importer in importers():
        if importer.recognises(place):
            return importer.read(place)
    if place.is_file():
        raise UsageError(f"{place}: not a results file that bakeoff knows; tables are {', '.join(SUFFIXES)}")
    raise UsageError(f"{place}: no runs found in it; a run's directory has metrics.jsonl, metrics.json or meta.json")
