"""The sweep runner's JSON experiments: `sim_binary`, `common_args`, `matrix` with `seeds` and `ablations`, `jobs`.

Run ids and flags come out as that tool makes them, so that existing results and scripts keep their names.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bakeoff.errors import Problem, SpecError
from bakeoff.spec.experiment import Analysis, Experiment, parse_seeds
from bakeoff.spec.identity import DIGEST_LENGTH, canonical_json
from bakeoff.spec.plan import Arm, Cell, Plan, Task
from bakeoff.spec.problems import problems

PARAMETERS = (
    "workflows", "pdfs", "iters", "subqueries", "policy", "seed", "time_scale", "heavy_tail_prob", "heavy_tail_mult",
)  # fmt: skip
SWITCH = "enable_model_routing"
TASK_KEY = "workflows"


class Ablation(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    flags: list[str] = []


class Sweep(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = "exp"
    sim_binary: str = "./build/agent_sched_sim"
    out_root: str = "bench_runs"
    common_args: dict[str, Any] = {}
    matrix: dict[str, Any] = {}
    jobs: Annotated[int, Field(ge=1)] = 1


def recognises(tree: Mapping[str, Any]) -> bool:
    return bool({"sim_binary", "common_args", "out_root"} & set(tree))


def plan(tree: dict[str, Any], path: Path) -> Plan:
    try:
        sweep = Sweep.model_validate(tree)
    except ValidationError as error:
        raise SpecError(problems(error, Sweep), path) from error
    axes = dict(sweep.matrix)
    ablations = _ablations(axes.pop("ablations", [{"name": "baseline"}]))
    seeds = _seeds(axes.pop("seeds", [sweep.common_args.get("seed", 1)]))
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise SpecError([Problem(f"matrix.{key}", "must be a list with at least one value")])
    _check_parameters({*sweep.common_args, *axes})
    base = Path.cwd()
    experiment = Experiment(
        name=sweep.name,
        workload="command",
        seeds=seeds,
        jobs=sweep.jobs,
        analysis=Analysis(metric="makespan_p95_ms", direction="minimize", tasks="fixed"),
    )
    cells: list[Cell] = []
    for combo in itertools.product(*(axes[key] for key in sorted(axes))):
        params = {**sweep.common_args, **dict(zip(sorted(axes), combo, strict=True))}
        params.pop("seed", None)
        for ablation in ablations:
            cells.append(_cell(len(cells), params, ablation, axes, sweep.sim_binary))
    return Plan(experiment, cells, base=base, dialect="sweep", root=Path(sweep.out_root))


def _ablations(value: Any) -> list[Ablation]:
    if not isinstance(value, list) or not value:
        raise SpecError([Problem("matrix.ablations", "must be a list with at least one {name, flags}")])
    try:
        return [Ablation.model_validate(entry) for entry in value]
    except ValidationError as error:
        raise SpecError(problems(error, Ablation, ("matrix", "ablations"))) from error


def _seeds(value: Any) -> list[int]:
    try:
        if not isinstance(value, list):
            raise ValueError("must be a list with at least one seed")
        return parse_seeds(value)
    except ValueError as error:
        raise SpecError([Problem("matrix.seeds", str(error))]) from error


def _check_parameters(given: set[str]) -> None:
    missing = [name for name in PARAMETERS if name not in given and name != "seed"]
    unknown = sorted(given - {*PARAMETERS, SWITCH})
    if missing:
        raise SpecError([Problem("common_args", f"{name} is needed", f"add {name} here or to matrix") for name in missing])
    if unknown:
        fix = f"the simulator takes {', '.join((*PARAMETERS, SWITCH))}"
        raise SpecError([Problem("common_args", f"{name} is not passed to the simulator", fix) for name in unknown])


def _cell(index: int, params: dict[str, Any], ablation: Ablation, axes: Mapping[str, Any], binary: str) -> Cell:
    arm_keys = [key for key in sorted(axes) if key != TASK_KEY]
    values = [str(params[key]) for key in arm_keys]
    base = values[0] if len(values) == 1 else ",".join(f"{k}={v}" for k, v in zip(arm_keys, values, strict=True))
    name = base or str(params["policy"])
    arm = Arm(
        name if ablation.name == "baseline" else f"{name}+{ablation.name}",
        {key: params[key] for key in arm_keys},
        tuple(ablation.flags),
        base=name,
        ablation=ablation.name,
    )
    task = Task(f"{TASK_KEY}={params[TASK_KEY]}", {TASK_KEY: params[TASK_KEY]})
    settings = {"command": command(binary, params, ablation.flags), "metrics": METRICS}
    run_id: Callable[[int, int], str] = partial(_run_id, params, ablation)
    return Cell(index, arm, task, {**params, **settings}, dict(params), 1, run_id)


METRICS: list[Any] = ["out/summary.csv", {"file": "out/tiers.csv", "name": "{provider}_tier{tier_id}_{column}"}]


def command(binary: str, params: Mapping[str, Any], flags: list[str]) -> list[str]:
    """The argv in the sweep runner's order; `{seed}` and `{out}` are filled in for each run."""
    argv = [binary]
    for name in PARAMETERS:
        argv += [f"--{name}", "{seed}" if name == "seed" else str(params[name])]
    if params.get(SWITCH):
        argv.append(f"--{SWITCH}")
    return [*argv, *flags, "--out_dir", "{out}"]


def _run_id(params: Mapping[str, Any], ablation: Ablation, seed: int, rollout: int) -> str:
    identity = {
        "ablation_flags": ablation.flags,
        "ablation_name": ablation.name,
        "params": {**params, "seed": seed},
    }
    digest = hashlib.sha1(canonical_json(identity).encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{params['policy']}__wf{params['workflows']}__seed{seed}__{ablation.name}__{digest}"
