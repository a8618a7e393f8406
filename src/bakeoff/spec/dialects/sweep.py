"""The sweep runner's JSON experiments: `sim_binary`, `common_args`, `matrix` with `seeds` and `ablations`, `jobs`.

Run ids and flags come out as that tool makes them, so that existing results and scripts keep their names. A
`sim_binary` called agent_sched_sim that is not there means the built-in simulator, the workload `schedsim`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bakeoff.errors import Problem, SpecError, did_you_mean
from bakeoff.spec import registry
from bakeoff.spec.experiment import Analysis, Experiment, Name, parse_seeds
from bakeoff.spec.identity import DIGEST_LENGTH, canonical_json
from bakeoff.spec.plan import Arm, Cell, Plan, Task
from bakeoff.spec.problems import problems

PARAMETERS = (
    "workflows", "pdfs", "iters", "subqueries", "policy", "seed", "time_scale", "heavy_tail_prob", "heavy_tail_mult",
)  # fmt: skip
SWITCH = "enable_model_routing"
TASK_KEY = "workflows"
BUILT_IN = "schedsim"
BUILT_IN_NAME = "agent_sched_sim"
ANALYSIS = Analysis(metric="makespan_p95_ms", direction="minimize", tasks="fixed")


class Ablation(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Name
    flags: list[str] = []


class Sweep(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Name = "exp"
    sim_binary: Annotated[str, Field(min_length=1)] = "./build/agent_sched_sim"
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
        raise SpecError(problems(error, Sweep, given=tree), path) from error
    axes = dict(sweep.matrix)
    ablations = _ablations(axes.pop("ablations", [{"name": "baseline"}]))
    seeds = _seeds(axes.pop("seeds", [sweep.common_args.get("seed", 1)]))
    _check_axes(axes)
    _check_parameters(sweep.common_args, axes)
    built_in = _is_built_in(sweep.sim_binary)
    experiment = Experiment(
        name=sweep.name,
        workload=BUILT_IN if built_in else "command",
        seeds=seeds,
        jobs=sweep.jobs,
        analysis=ANALYSIS,
    )
    cells: list[Cell] = []
    for combo in itertools.product(*(axes[key] for key in sorted(axes))):
        params = {**sweep.common_args, **dict(zip(sorted(axes), combo, strict=True))}
        params.pop("seed", None)
        settings = _built_in(params, axes) if built_in else {"command": command(sweep.sim_binary), "metrics": METRICS}
        for ablation in ablations:
            cells.append(_cell(len(cells), params, ablation, axes, settings))
    notes = (f"{sweep.sim_binary} is not there: the built-in simulator runs instead",) if built_in else ()
    return Plan(experiment, cells, base=Path.cwd(), dialect="sweep", root=Path(sweep.out_root), notes=notes)


def _is_built_in(binary: str) -> bool:
    return Path(binary).name == BUILT_IN_NAME and shutil.which(binary) is None and not Path(binary).exists()


def _built_in(params: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, Any]:
    """What the built-in simulator needs besides the parameters: to write its files. The parameters are checked."""
    model, settings = registry.workload(BUILT_IN).Params, {"outputs": True}
    try:
        model.model_validate({**params, **settings})
    except ValidationError as error:
        raise SpecError(
            [
                Problem(f"{'matrix' if found.key in axes else 'common_args'}.{found.key}", found.message, found.fix)
                for found in problems(error, model, given=dict(params))
            ]
        ) from error
    return settings


def _ablations(value: Any) -> list[Ablation]:
    if not isinstance(value, list) or not value:
        raise SpecError([Problem("matrix.ablations", "must be a list with at least one {name, flags}")])
    found: list[Ablation] = []
    for number, entry in enumerate(value):
        place = ("matrix", "ablations", number)
        try:
            ablation = Ablation.model_validate(entry)
        except ValidationError as error:
            raise SpecError(problems(error, Ablation, place, given=entry)) from error
        if ablation.name in {other.name for other in found}:
            raise SpecError([Problem(f"matrix.ablations.{number}.name", f"two ablations are called {ablation.name!r}")])
        _check_file_name(f"matrix.ablations.{number}.name", ablation.name)
        found.append(ablation)
    return found


def _seeds(value: Any) -> list[int]:
    try:
        if not isinstance(value, list):
            raise ValueError("must be a list with at least one seed")
        return parse_seeds(value)
    except ValueError as error:
        raise SpecError([Problem("matrix.seeds", str(error))]) from error


def _check_axes(axes: Mapping[str, Any]) -> None:
    for key, values in axes.items():
        if key == "seed":
            raise SpecError([Problem("matrix.seed", "unknown key", "did you mean 'seeds'?")])
        if not isinstance(values, list) or not values:
            raise SpecError([Problem(f"matrix.{key}", "must be a list with at least one value")])
        texts = [str(value) for value in values]
        for text in texts:
            if texts.count(text) > 1:
                raise SpecError([Problem(f"matrix.{key}", f"{text} stands in it twice")])


def _check_parameters(common: Mapping[str, Any], axes: Mapping[str, Any]) -> None:
    missing = [name for name in PARAMETERS if name not in common and name not in axes and name != "seed"]
    if missing:
        raise SpecError(
            [Problem("common_args", f"{name} is needed", f"add {name} here or to matrix") for name in missing]
        )
    places = {**{name: f"common_args.{name}" for name in common}, **{name: f"matrix.{name}" for name in axes}}
    known = (*PARAMETERS, SWITCH)
    unknown = [
        Problem(places[name], "is not passed to the simulator", _fix(name)) for name in places if name not in known
    ]
    if unknown:
        raise SpecError(unknown)
    for value in axes.get(SWITCH, [common.get(SWITCH)]):
        if value is not None and not isinstance(value, bool):
            raise SpecError([Problem(places[SWITCH], f"must be true or false, not {value!r}")])
    for key in ("policy", TASK_KEY):  # they become part of run ids, which name directories
        for value in axes.get(key, [common.get(key)]):
            _check_file_name(places[key], str(value))


def _fix(name: str) -> str:
    known = (*PARAMETERS, SWITCH)
    return did_you_mean(name, known, f"the simulator takes {', '.join(known)}")


def _check_file_name(place: str, text: str) -> None:
    if not re.fullmatch(r"[\w.+=-]+", text, re.ASCII):
        message = f"{text!r} becomes part of a directory's name"
        raise SpecError([Problem(place, message, "use only letters, digits and - _ . + =")])


def _cell(
    index: int, params: dict[str, Any], ablation: Ablation, axes: Mapping[str, Any], settings: Mapping[str, Any]
) -> Cell:
    arm_keys = [key for key in sorted(axes) if key != TASK_KEY]
    labels = [str(params[key]) if arm_keys == ["policy"] else f"{key}={params[key]}" for key in arm_keys]
    name = ",".join(labels) or str(params["policy"])
    arm = Arm(
        name if ablation.name == "baseline" else f"{name}+{ablation.name}",
        {key: params[key] for key in arm_keys},
        tuple(ablation.flags),
        base=name,
        ablation=ablation.name,
    )
    task = Task(f"{TASK_KEY}={params[TASK_KEY]}", {TASK_KEY: params[TASK_KEY]})
    run_id: Callable[[int, int], str] = partial(_run_id, params, ablation)
    return Cell(index, arm, task, {**params, **settings}, dict(params), 1, run_id)


METRICS: list[Any] = [
    "out/summary.csv",
    {"file": "out/tiers.csv", "name": "{provider}_tier{tier_id}_{column}", "optional": True},
]


def command(binary: str) -> list[str]:
    """The argv in the sweep runner's order. `{flags}` is the one parameter without a place of its own, which is the
    switch, and then the ablation's flags."""
    argv = [binary.replace("{", "{{").replace("}", "}}")]
    for name in PARAMETERS:
        argv += [f"--{name}", f"{{{name}}}"]
    return [*argv, "{flags}", "--out_dir", "{out}"]


def _run_id(params: Mapping[str, Any], ablation: Ablation, seed: int, rollout: int) -> str:
    identity = {
        "ablation_flags": ablation.flags,
        "ablation_name": ablation.name,
        "params": {**params, "seed": seed},
    }
    digest = hashlib.sha1(canonical_json(identity).encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{params['policy']}__wf{params['workflows']}__seed{seed}__{ablation.name}__{digest}"
