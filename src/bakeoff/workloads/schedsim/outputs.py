"""The files of a run: `summary.csv`, `workflows.csv`, `tiers.csv` and its trace. Each is whole or not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from bakeoff.records.layout import atomic_write
from bakeoff.workloads.schedsim import perfetto, summary
from bakeoff.workloads.schedsim.engine import Engine, TraceEvent
from bakeoff.workloads.schedsim.workflow import KINDS

TraceFormat = Literal["json", "chrome", "both", "none"]


def write(sim: Engine, directory: Path, trace: TraceFormat) -> dict[str, Path]:
    """The paths by what they are."""
    directory.mkdir(parents=True, exist_ok=True)
    made = {
        "summary": _write(directory / "summary.csv", _csv([summary.summary(sim)])),
        "workflows": _write(directory / "workflows.csv", _csv(summary.workflow_rows(sim))),
        "tiers": _write(directory / "tiers.csv", _csv(summary.tier_rows(sim))),
    }
    if trace in ("json", "both"):
        made["trace"] = _write(directory / "trace.json", _trace(sim.trace or ()))
    if trace in ("chrome", "both"):
        made["perfetto"] = _write(directory / "trace.perfetto.json", perfetto.lines(sim.trace or ()))
    return made


def _write(path: Path, parts: Iterable[str]) -> Path:
    def write_to(fresh: Path) -> None:
        with fresh.open("w", encoding="ascii", newline="\n") as file:
            file.writelines(parts)

    atomic_write(path, write_to)
    return path


def _csv(rows: Sequence[summary.Row]) -> Iterable[str]:
    if not rows:
        return
    yield ",".join(rows[0]) + "\n"
    for row in rows:
        yield ",".join(_text(name, value) for name, value in row.items()) + "\n"


def _text(name: str, value: summary.Value) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if name.endswith("_ms") else f"{value:.6f}"
    return str(value)


def _trace(events: Sequence[TraceEvent]) -> Iterable[str]:
    """A JSON array with one event on each line. `t_ms` is always virtual time, `dur_ms` how long something took."""
    types = [f'"type":"{kind}"' for kind in KINDS]
    yield "["
    comma = "\n"
    for event, time, workflow, node, kind, attempt, place, duration, remark in events:
        line = f'{comma}{{"ev":"{event}","t_ms":{time / 1000:.3f},"wf":{workflow},"node":{node}'
        if kind >= 0:
            line += f",{types[kind]}"
        if place:
            line += f',"attempt":{attempt},"tier":"{place}"'
        if duration:
            line += f',"dur_ms":{duration / 1000:.3f}'
        if remark:
            line += f',"extra":"{remark}"'
        yield line + "}"
        comma = ",\n"
    yield "\n]\n"
