"""Experiment files of the sweep runner as plans.

    {"name": "smoke", "sim_binary": "./build/agent_sched_sim", "out_root": "bench_runs", "jobs": 2,
     "common_args": {"pdfs": 10, ...},
     "matrix": {"policy": ["fifo_cheapest", "full"], "workflows": [5], "seeds": [1, 2],
                "ablations": [{"name": "baseline"}, {"name": "no_hedge", "flags": ["--disable_hedging"]}]}}

Run ids, flags and directories come out as that tool makes them, so existing results and scripts keep their names.
If `sim_binary` is called agent_sched_sim and does not exist, the built-in simulator runs: the workload `schedsim`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bakeoff.errors import Problem, SpecError, did_you_mean
from bakeoff.spec import registry
from bakeoff.spec.experiment import ExperimentFile, Name, parse_seeds
from bakeoff.spec.identity import DIGEST_LENGTH, RunId, canonical_json
from bakeoff.spec.plan import Arm, Cell, Plan, Task
from bakeoff.spec.problems import problems
from bakeoff.workloads.schedsim.dialect import PARAMETERS, SWEEP, SWITCH, TASK_KEY, arm_name

FLOW_TIME = "flow_time_mean_ms"
"""From a workflow's arrival to its end. A makespan begins at its first attempt, so a policy that lets workflows wait
looks better by it; the sweep runner's own simulator reports nothing else."""
BUILT_IN = "schedsim"
BUILT_IN_NAME = "agent_sched_sim"
METRICS: list[Any] = [
    "out/summary.csv",
    {"file": "out/tiers.csv", "name": "{provider}_tier{tier_id}_{column}", "optional": True},
]
"""Where a simulator that runs as a command leaves its metrics."""


class Ablation(BaseModel):
    """An entry of `matrix.ablations`: flags that are added to the simulator's command line."""

    model_config = ConfigDict(extra="forbid")
    name: Name
    flags: list[str] = []


class Sweep(BaseModel):
    """An experiment file of the sweep runner. Everything has a default."""

    model_config = ConfigDict(extra="forbid")
    name: Name = "exp"
    sim_binary: Annotated[str, Field(min_length=1)] = "./build/agent_sched_sim"
    out_root: str = "bench_runs"
    common_args: dict[str, Any] = {}
    matrix: dict[str, Any] = {}
    jobs: Annotated[int, Field(ge=1)] = 1


def plan(tree: dict[str, Any], path: Path) -> Plan:
    """Return the plan of a sweep. Arms are the combinations of the matrix times the ablations; tasks are the values of `workflows`."""
    try:
        sweep = Sweep.model_validate(tree)
    except ValidationError as error:
        raise SpecError(problems(error, Sweep, given=tree), path) from error
    axes = dict(sweep.matrix)
    ablations = _ablations(axes.pop("ablations", [{"name": "baseline"}]))
    seeds = axes.pop("seeds", [sweep.common_args.get("seed", 1)])
    try:
        if not isinstance(seeds, list):
            raise ValueError("must be a list with at least one seed")
        seeds = parse_seeds(seeds)
    except ValueError as error:
        raise SpecError([Problem("matrix.seeds", str(error))]) from error
    _check_parameters(sweep.common_args, axes)
    binary = sweep.sim_binary
    built_in = Path(binary).name == BUILT_IN_NAME and shutil.which(binary) is None and not Path(binary).exists()
    cells: list[Cell] = []
    for combination in itertools.product(*(axes[key] for key in sorted(axes))):
        params = {**sweep.common_args, **dict(zip(sorted(axes), combination, strict=True))}
        params.pop("seed", None)
        settings: dict[str, Any] = {"outputs": True}  # what the simulator needs besides: to write its files
        if built_in:
            model = registry.workload(BUILT_IN).Params
            try:
                model.model_validate({**params, **settings})
            except ValidationError as error:
                raise SpecError(
                    [
                        Problem(f"{'matrix' if p.key in axes else 'common_args'}.{p.key}", p.message, p.fix)
                        for p in problems(error, model, given=dict(params))
                    ]
                ) from error
        else:
            settings = {"command": command(binary), "metrics": METRICS}
        cells += [
            _cell(len(cells) + number, params, ablation, axes, settings) for number, ablation in enumerate(ablations)
        ]
    experiment = ExperimentFile(
        name=sweep.name,
        workload=BUILT_IN if built_in else "command",
        seeds=seeds,
        jobs=sweep.jobs,
        analysis=SWEEP.analysis.model_copy(update={"metric": FLOW_TIME}) if built_in else SWEEP.analysis,
    )
    notes = (f"{binary} does not exist: the built-in simulator runs instead",) if built_in else ()
    return Plan(experiment, cells, base=Path.cwd(), dialect=SWEEP.name, root=Path(sweep.out_root), notes=notes)


def command(binary: str) -> list[str]:
    """The argv template of an external simulator, in the sweep runner's order.

    `{flags}` stands for the parameters without a place in the template, which is only the switch, and the flags of
    the ablation.
    """
    argv = [binary.replace("{", "{{").replace("}", "}}")]
    for name in PARAMETERS:
        argv += [f"--{name}", f"{{{name}}}"]
    return [*argv, "{flags}", "--out_dir", "{out}"]


def _ablations(value: Any) -> list[Ablation]:
    """The entries of `matrix.ablations`. Raises SpecError, also for names that two entries share."""
    if not isinstance(value, list) or not value:
        raise SpecError([Problem("matrix.ablations", "must be a list with at least one {name, flags}")])
    ablations: list[Ablation] = []
    for number, entry in enumerate(value):
        try:
            ablation = Ablation.model_validate(entry)
        except ValidationError as error:
            raise SpecError(problems(error, Ablation, ("matrix", "ablations", number), given=entry)) from error
        key = f"matrix.ablations.{number}.name"
        if ablation.name in {other.name for other in ablations}:
            raise SpecError([Problem(key, f"two ablations are called {ablation.name!r}")])
        _check_file_name(key, ablation.name)
        ablations.append(ablation)
    return ablations


def _check_parameters(common: Mapping[str, Any], axes: Mapping[str, Any]) -> None:
    """Raise SpecError unless every parameter is known, every required one is there, and values can name directories."""
    for key, values in axes.items():
        if key == "seed":
            raise SpecError([Problem("matrix.seed", "unknown key", "did you mean 'seeds'?")])
        if not isinstance(values, list) or not values:
            raise SpecError([Problem(f"matrix.{key}", "must be a list with at least one value")])
        texts = [str(value) for value in values]
        for text in texts:
            if texts.count(text) > 1:
                raise SpecError([Problem(f"matrix.{key}", f"{text} is in it twice")])
    missing = [name for name in PARAMETERS if name not in common and name not in axes and name != "seed"]
    if missing:
        raise SpecError(
            [Problem("common_args", f"{name} is needed", f"add {name} here or to matrix") for name in missing]
        )
    places = {**{name: f"common_args.{name}" for name in common}, **{name: f"matrix.{name}" for name in axes}}
    known = (*PARAMETERS, SWITCH)
    unknown = [name for name in places if name not in known]
    if unknown:
        otherwise = f"the simulator takes {', '.join(known)}"
        message = "is not passed to the simulator"
        raise SpecError([Problem(places[name], message, did_you_mean(name, known, otherwise)) for name in unknown])
    for value in axes.get(SWITCH, [common.get(SWITCH)]):
        if value is not None and not isinstance(value, bool):
            raise SpecError([Problem(places[SWITCH], f"must be true or false, not {value!r}")])
    for key in ("policy", TASK_KEY):  # they become part of run ids, which name directories
        for value in axes.get(key, [common.get(key)]):
            _check_file_name(places[key], str(value))


def _check_file_name(key: str, text: str) -> None:
    """Raise SpecError unless the text can be part of a run id, which is the name of a directory."""
    if not re.fullmatch(r"[\w.+=-]+", text, re.ASCII):
        message = f"{text!r} becomes part of a directory's name"
        raise SpecError([Problem(key, message, "use only letters, digits and - _ . + =")])


def _cell(
    index: int, params: dict[str, Any], ablation: Ablation, axes: Mapping[str, Any], settings: Mapping[str, Any]
) -> Cell:
    """One combination of the matrix with one ablation. `settings` are parameters that are not part of run ids."""
    # The policy alone names an arm when it is the only axis besides the size; else every axis does.
    arm_keys = [key for key in sorted(axes) if key != TASK_KEY]
    labels = [str(params[key]) if arm_keys == ["policy"] else f"{key}={params[key]}" for key in arm_keys]
    name = ",".join(labels) or str(params["policy"])
    arm = Arm(
        arm_name(name, ablation.name),
        {key: params[key] for key in arm_keys},
        tuple(ablation.flags),
        base=name,
        ablation=ablation.name,
    )
    task = Task(f"{TASK_KEY}={params[TASK_KEY]}", {TASK_KEY: params[TASK_KEY]})
    return Cell(index, arm, task, {**params, **settings}, 1, partial(_run_id, params, ablation))


def _run_id(params: Mapping[str, Any], ablation: Ablation, seed: int, rollout: int) -> RunId:
    """The sweep runner's id: readable parts, then the SHA-1 of compact, sorted, ASCII JSON. There are no rollouts."""
    identity = {
        "ablation_flags": ablation.flags,
        "ablation_name": ablation.name,
        "params": {**params, "seed": seed},
    }
    digest = hashlib.sha1(canonical_json(identity).encode()).hexdigest()[:DIGEST_LENGTH]
    return RunId(f"{params['policy']}__wf{params['workflows']}__seed{seed}__{ablation.name}__{digest}")
