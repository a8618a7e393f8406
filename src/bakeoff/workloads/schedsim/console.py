"""What `bakeoff schedsim` prints: the settings, the main figures and the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bakeoff.workloads.schedsim.params import SchedsimParams
from bakeoff.workloads.schedsim.summary import Value

_FIRST = ("workflows", "pdfs", "iters", "subqueries", "policy")
_LAST = ("enable_model_routing", "disable_hedging", "disable_escalation", "disable_dag_priority")
_FIGURES = ("makespan_mean_ms", "makespan_p95_ms", "cost_mean")


def told(
    params: SchedsimParams, seed: int, out_dir: Path, figures: Mapping[str, Value], files: Mapping[str, Path]
) -> Iterator[str]:
    settings = {
        **{name: getattr(params, name) for name in _FIRST},
        "seed": seed,
        "time_scale": params.time_scale,
        "out_dir": out_dir,
        **{name: getattr(params, name) for name in _LAST},
    }
    yield "agent_sched_sim config:"
    for name, value in settings.items():
        yield f"  {name}={str(value).lower() if isinstance(value, bool) else value}"
    yield "summary:"
    for name in _FIGURES:
        yield f"  {name}={figures[name]}"
    for name, path in files.items():
        yield f"  {name}={path}"
