"""Runs from the sweep runner's table, `aggregate/runs.csv`: what `collect` wrote, read back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.records.sweep import FIRST, SUMMARY, ending
from bakeoff.results.importers.files import number, read_csv
from bakeoff.results.table import Results, Row
from bakeoff.spec.dialects.sweep import PARAMETERS, SWITCH

_NEEDED = ("run_id", "policy", "workflows", "seed", "ablation_name")


def read_runs_csv(path: Path, directory: Path) -> Results:
    """Every row as a run. `directory` is the experiment's: a row without `run_dir` means `runs/<run_id>` in it."""
    rows = read_csv(str(path))
    if rows is None:
        raise UsageError(f"{path}: no such file")
    missing = [name for name in _NEEDED if rows and name not in rows[0]]
    if missing or not rows:
        raise UsageError(f"{path}: is no table of a sweep: it has no {', '.join(missing) or 'rows'}")
    return Results([_run(row, directory) for row in rows], str(path))


def _run(row: Mapping[str, str], directory: Path) -> Row:
    values: dict[str, Any] = {name: _value(text) for name, text in row.items() if text != ""}
    params = {name: values[name] for name in (*PARAMETERS, SWITCH) if name in values and name != "seed"}
    metrics = {name: value for name, value in values.items() if name in SUMMARY or name not in (*FIRST, *params)}
    status, error = ending(values.get("exit_code"))
    if status == "succeeded" and not any(name in metrics for name in SUMMARY):
        status, error = "failed", "out/summary.csv: the command wrote no such file"
    base, ablation, run_id = str(values["policy"]), str(values["ablation_name"]), str(values["run_id"])
    return Row(
        directory=Path(str(values.get("run_dir") or directory / "runs" / run_id)),
        run_id=run_id,
        arm=base if ablation == "baseline" else f"{base}+{ablation}",
        seed=int(values["seed"]),
        dialect="sweep",
        task=f"workflows={values['workflows']}",
        base=base,
        ablation=ablation,
        flags=tuple(str(values.get("ablation_flags", "")).split()),
        params=params,
        status=status,
        exit_code=values.get("exit_code"),
        error=error,
        started_at=values.get("start_time_unix_s"),
        ended_at=values.get("end_time_unix_s"),
        metrics=metrics,
    )


def _value(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), number(text))
