"""The sweep runner's dialect: its JSON experiment files, its files beside a run, and its table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bakeoff.spec.dialect import Dialect, IdentifiedRun
from bakeoff.spec.dialects import sweep
from bakeoff.spec.experiment import Analysis
from bakeoff.spec.plan import Plan

if TYPE_CHECKING:
    import polars as pl

    from bakeoff.records.edition import Edition
    from bakeoff.records.layout import EditionPaths
    from bakeoff.results.table import Row


class SweepDialect(Dialect):
    name: ClassVar[str] = "sweep"
    live_files: ClassVar[bool] = True
    variables: ClassVar[bool] = False
    analysis: ClassVar[Analysis] = sweep.ANALYSIS

    def recognises(self, tree: Mapping[str, Any]) -> bool:
        return sweep.recognises(tree)

    def plan(self, tree: dict[str, Any], path: Path) -> Plan:
        return sweep.plan(tree, path)

    def meta(self, params: dict[str, Any], run: IdentifiedRun) -> dict[str, Any]:
        return {**params, "seed": run.seed}

    def after_begin(self, paths: EditionPaths) -> None:
        from bakeoff.records.layout import point_through_latest

        point_through_latest(paths)

    def table(self, edition: Edition) -> pl.DataFrame:
        from bakeoff.records.sweep import frame_of_edition

        return frame_of_edition(edition)

    def read_run(self, directory: Path, meta: Mapping[str, Any]) -> Row | None:
        from bakeoff.records.sweep import read_run

        return read_run(directory, meta)


SWEEP = SweepDialect()
