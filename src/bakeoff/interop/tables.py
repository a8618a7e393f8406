"""CSV, Parquet and JSONL with one row for each run (or each step of a run) become observations.

Columns are found by their usual names unless flags name them. An empty value is missing; NaN is a failure of the arm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.verdicts.observations import Observation, Observations, State, state_of
from bakeoff.verdicts.reduce import reduce_all

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
USUAL = {
    "arm": ("arm", "condition", "variant", "model", "policy", "agent", "architecture", "algorithm", "method", "group"),
    "task": ("task", "task_id", "example_id", "env", "environment", "scenario", "problem", "question", "dataset"),
    "seed": ("seed",),
    "rollout": ("rollout", "trial", "repeat", "sample", "epoch", "attempt"),
    "status": ("status",),
    "step": ("step", "_step"),
    "value": (),
}
"""For each role the column names that are taken for it, in this order, when no flag names one."""
Key = tuple[str, str, int | None, int]
"""(arm, task, seed, rollout)."""
VALUES = ("value", "score", "reward", "success", "correct", "accuracy")
"""Columns that are taken for the metric when none is named."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names that flags give; None means the usual one, if it is there."""

    arm: str | None = None
    task: str | None = None
    seed: str | None = None
    rollout: str | None = None
    value: str | None = None
    """Column of the values in a long table, whose `metric` column names them."""


@dataclass(frozen=True)
class Table:
    """One table as a source of runs."""

    frame: pl.DataFrame
    label: str
    columns: Columns = field(default_factory=Columns)
    unpaired: bool = False

    @cached_property
    def _roles(self) -> dict[str, str]:
        """Role to column, for the roles that the table has."""
        found = {}
        for role, usual in USUAL.items():
            given = getattr(self.columns, role, None)
            if given is not None and given not in self.frame.columns:
                raise UsageError(f"{self.label}: no column {given!r}; there are {', '.join(self.frame.columns)}")
            name = given or next(iter(_called(usual, self.frame.columns)), None)
            if name is not None:
                found[role] = name
        if "arm" not in found:
            names = ", ".join(self.frame.columns)
            raise UsageError(f"{self.label}: which column names the arm? say --arm-column; there are {names}")
        return found

    @property
    def _is_long(self) -> bool:
        """Values of several metrics below each other, named by a `metric` column."""
        return "metric" in self.frame.columns and ("value" in self._roles or "value" in self.frame.columns)

    @cached_property
    def analysis(self) -> Analysis:
        """Seeds are crossed where every seed stands on every task: then one may be one policy or one world."""
        roles = self._roles
        if not {"task", "seed"} <= set(roles):
            return Analysis()
        pairs = self.frame.select(roles["task"], roles["seed"]).unique()
        tasks, seeds = (pairs[roles[role]].n_unique() for role in ("task", "seed"))
        return Analysis(seeds="crossed" if pairs.height == tasks * seeds else "nested")

    def close(self) -> None:
        """Nothing is held open."""

    def metrics(self) -> list[str]:
        if self._is_long:
            return [str(name) for name in self.frame["metric"].unique(maintain_order=True).drop_nulls()]
        taken = set(self._roles.values()) - {self._roles.get("value")}
        return [name for name, kind in self.frame.schema.items() if name not in taken and _is_number(kind)]

    def declared(self) -> list[str]:
        if not self._is_long and self.columns.value is not None:
            return [self.columns.value]
        known = self.metrics()
        usual = _called(VALUES, known)
        if len(known) == 1 or usual:
            return [usual[0] if usual else known[0]]
        raise UsageError(
            f"{self.label}: which metric? say --metric; numbers are {', '.join(known[:20]) or 'in no column'}"
        )

    def observe(self, metric: str, analysis: Analysis) -> Observations:
        frame, column = self._of_metric(metric)
        roles = self._roles
        if analysis.summary is not None and "step" not in roles:
            raise UsageError(f"{self.label}: a summary needs a column `step`; without one each row is a whole run")
        keys = list(zip(*(self._key(frame, role) for role in ("arm", "task", "seed", "rollout")), strict=True))
        values = frame[column].to_list()
        statuses = frame[roles["status"]].to_list() if "status" in roles else None
        if "step" in roles and len(set(keys)) < len(keys):
            analysis = analysis if analysis.summary else analysis.model_copy(update={"summary": Summary(type="auc")})
            rows = _reduced(keys, frame[roles["step"]].to_list(), values, statuses, analysis)
        else:
            rows = _plain(_as_rollouts(keys) if not {"seed", "rollout"} & set(roles) else keys, values, statuses)
        return Observations(metric, rows, analysis, self.label)

    def _of_metric(self, metric: str) -> tuple[pl.DataFrame, str]:
        """The rows and the column that hold a metric."""
        if self._is_long:
            import polars as pl

            if metric not in self.metrics():
                raise UsageError(f"{self.label}: no metric {metric!r}; there are {', '.join(self.metrics()[:20])}")
            return self.frame.filter(pl.col("metric") == metric), self._roles.get("value", "value")
        if metric not in self.frame.columns:
            raise UsageError(f"{self.label}: no column {metric!r}; there are {', '.join(self.frame.columns)}")
        if not _is_number(self.frame.schema[metric]):
            raise UsageError(f"{self.label}: column {metric!r} holds {self.frame.schema[metric]}, not numbers")
        return self.frame, metric

    def _key(self, frame: pl.DataFrame, role: str) -> list[Any]:
        name = self._roles.get(role)
        if name is None:
            return [{"task": "default", "seed": None}.get(role, 0)] * frame.height
        values = frame[name].to_list()
        if any(value is None for value in values):
            raise UsageError(f"{self.label}: column {name!r} has empty cells; every run needs its {role}")
        if role in ("arm", "task"):
            return [str(value) for value in values]
        return [self._numbers[role][value] for value in values]

    @cached_property
    def _numbers(self) -> dict[str, dict[Any, int]]:
        """Seeds and rollouts as whole numbers; other labels are counted through, the same for all arms."""
        found: dict[str, dict[Any, int]] = {}
        for role in ("seed", "rollout"):
            if role in self._roles:
                labels = self.frame[self._roles[role]].drop_nulls().unique().sort().to_list()
                whole = all(
                    isinstance(label, int) or (isinstance(label, float) and label.is_integer()) for label in labels
                )
                found[role] = {label: int(label) if whole else number for number, label in enumerate(labels)}
        return found


def _called(usual: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns with one of these names, in this order; `Model` is `model`."""
    plain = {name.strip().lower(): name for name in reversed(columns)}
    return [plain[name] for name in usual if name in plain]


def _is_number(kind: pl.DataType) -> bool:
    import polars as pl

    return kind.is_numeric() or kind == pl.Boolean


def _as_rollouts(keys: Sequence[Key]) -> list[Key]:
    """Without seeds and rollouts every row of an arm on a task is one more rollout."""
    counts: dict[tuple[str, str], int] = {}
    out = []
    for arm, task, seed, _ in keys:
        number = counts.get((arm, task), 0)
        counts[(arm, task)] = number + 1
        out.append((arm, task, seed, number))
    return out


def _plain(keys: Sequence[Key], values: Sequence[Any], statuses: Sequence[Any] | None) -> list[Observation]:
    rows = []
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        state: State
        if statuses is not None and statuses[i] is not None:
            state, number = state_of(str(statuses[i]), value)
        else:
            state, number = state_of("succeeded" if value is not None else "cancelled", value)
        rows.append(Observation(*key, state, number))
    return rows


def _reduced(
    keys: Sequence[Key], steps: Sequence[Any], values: Sequence[Any], statuses: Sequence[Any] | None, analysis: Analysis
) -> list[Observation]:
    """Rows of one run are its series; steps without a value are left out, NaN is a failure of the run."""
    assert analysis.summary is not None
    curves: dict[Key, tuple[list[float], list[float]]] = {key: ([], []) for key in keys}
    for key, step, value in zip(keys, steps, values, strict=True):
        if value is not None:
            curves[key][0].append(float(step))
            curves[key][1].append(float(value))
    ended = {key: "succeeded" if curve[0] else "cancelled" for key, curve in curves.items()}
    if statuses is not None:
        ended |= {key: str(status) for key, status in zip(keys, statuses, strict=True) if status is not None}
    known = {key: (np.array(s), np.array(v)) for key, (s, v) in curves.items() if s and ended[key] == "succeeded"}
    numbers = reduce_all(known, analysis.summary, larger_is_better=analysis.direction == "maximize")
    return [Observation(*key, *state_of(ended[key], numbers.get(key))) for key in curves]


def read_table(paths: Sequence[Path], columns: Columns) -> Table:
    """One table, or several of the same shape below each other."""
    import polars as pl

    frames = []
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
        try:
            frames.append(_read(path))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UsageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    label = ", ".join(str(path) for path in paths)
    return Table(pl.concat(frames, how="diagonal_relaxed"), label, columns)


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    match path.suffix:
        case ".parquet":
            return pl.read_parquet(path)
        case ".jsonl" | ".ndjson":
            return pl.read_ndjson(path, infer_schema_length=None)
        case ".tsv":
            return pl.read_csv(path, separator="\t", infer_schema_length=None)
        case _:
            return _read_csv(path)


def _read_csv(path: Path) -> pl.DataFrame:
    """With commas; or with semicolons, as spreadsheets write where a comma is the decimal point."""
    import polars as pl

    with path.open("rb") as file:
        header, rest = file.readline(), file.read(1 << 16)
    if header.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(f"{path}: is UTF-16; save it as UTF-8")
    if header.count(b";") <= header.count(b","):
        return pl.read_csv(path, infer_schema_length=None)
    decimal_comma = re.search(rb"(^|;)-?\d+,\d+(;|\r?$)", rest, re.MULTILINE) is not None
    return pl.read_csv(path, separator=";", decimal_comma=decimal_comma, infer_schema_length=None)


def of_frame(data: Any, columns: Columns | None = None) -> Table:
    """A Polars frame, a pandas one, or anything that Polars makes a frame of (rows as dicts, columns as lists)."""
    import polars as pl

    if not isinstance(data, pl.DataFrame):
        named = hasattr(data, "columns") and hasattr(data, "to_dict")
        data = pl.DataFrame({str(name): list(data[name]) for name in data.columns} if named else data)
    return replace(Table(data, "table"), columns=columns or Columns())
