"""The sweep runner's JSON files are read unchanged: the same runs, ids and commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff.errors import SpecError
from bakeoff.spec.load import load_plan
from bakeoff.spec.plan import Plan, Run
from bakeoff.workloads.command import CommandParams, CommandWorkload

COMMON: dict[str, Any] = {
    "pdfs": 10, "iters": 3, "subqueries": 4, "time_scale": 50, "enable_model_routing": True, "heavy_tail_prob": 0.02,
    "heavy_tail_mult": 50,
}  # fmt: skip
DEFAULT: dict[str, Any] = {
    "name": "default",
    "sim_binary": "./build/agent_sched_sim",
    "out_root": "bench_runs",
    "common_args": COMMON,
    "matrix": {
        "workflows": [50, 100],
        "policy": ["fifo_cheapest", "dag_cheapest", "dag_escalation", "full"],
        "seeds": [1, 2, 3],
        "ablations": [
            {"name": "baseline", "flags": []},
            {"name": "no_hedge", "flags": ["--disable_hedging"]},
            {"name": "no_escalation", "flags": ["--disable_escalation"]},
            {"name": "no_dag_priority", "flags": ["--disable_dag_priority"]},
        ],
    },
    "jobs": 2,
}
SMOKE: dict[str, Any] = {
    **DEFAULT,
    "name": "smoke",
    "matrix": {
        "workflows": [5],
        "policy": ["fifo_cheapest", "full"],
        "seeds": [1, 2],
        "ablations": DEFAULT["matrix"]["ablations"][:2],
    },
}


@pytest.fixture(autouse=True)
def _simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator is where the files say; without it the built-in one would be planned."""
    monkeypatch.chdir(tmp_path)
    binary = tmp_path / "build" / "agent_sched_sim"
    binary.parent.mkdir()
    binary.touch(0o755)


def load(directory: Path, content: dict[str, Any], *overrides: str) -> Plan:
    path = directory / "sweep.json"
    path.write_text(json.dumps(content, indent=2))
    return load_plan(path, overrides)


def argv(run: Run, directory: Path) -> list[str]:
    class Facts:
        run_id, arm, task = run.run_id, run.cell.arm.name, run.cell.task.name
        seed, rollout, attempt, flags = run.seed, run.rollout, 1, run.cell.arm.flags
        base = Path("/repo")

    Facts.path = Facts.directory = directory  # type: ignore[attr-defined]
    params = CommandParams.model_validate(dict(run.cell.params))
    return list(CommandWorkload().command(params, Facts()).argv)  # type: ignore[arg-type]


def test_the_default_experiment_is_96_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = load(tmp_path, DEFAULT)
    runs = list(plan)
    assert len(plan) == len(runs) == len({run.run_id for run in runs}) == 96
    assert plan.dialect == "sweep" and plan.root == Path("bench_runs") and plan.base == tmp_path
    assert plan.experiment.name == "default" and plan.experiment.jobs == 2
    assert [task.name for task in plan.tasks] == ["workflows=50", "workflows=100"]
    assert len(plan.arms) == 16 and [arm.name for arm in plan.arms[:2]] == ["fifo_cheapest", "fifo_cheapest+no_hedge"]
    assert {arm.base for arm in plan.arms} == {"fifo_cheapest", "dag_cheapest", "dag_escalation", "full"}


def test_the_smoke_experiment_has_the_hashes_that_the_sweep_runner_gave(tmp_path: Path) -> None:
    ids = [run.run_id for run in load(tmp_path, SMOKE)]
    assert len(ids) == 8
    assert "fifo_cheapest__wf5__seed1__baseline__c9768924ff6b" in ids
    assert "full__wf5__seed2__no_hedge__ff5d8334433a" in ids


def test_commands_are_the_sweep_runners_word_for_word(tmp_path: Path) -> None:
    plan = load(tmp_path, SMOKE)
    run = next(run for run in plan if run.run_id.endswith("ff5d8334433a"))
    assert argv(run, tmp_path / "d") == [
        "./build/agent_sched_sim", "--workflows", "5", "--pdfs", "10", "--iters", "3", "--subqueries", "4",
        "--policy", "full", "--seed", "2", "--time_scale", "50", "--heavy_tail_prob", "0.02", "--heavy_tail_mult", "50",
        "--enable_model_routing", "--disable_hedging", "--out_dir", str(tmp_path / "d" / "out"),
    ]  # fmt: skip
    off = {**SMOKE, "common_args": {**COMMON, "enable_model_routing": False}}
    assert "--enable_model_routing" not in argv(next(iter(load(tmp_path, off))), tmp_path)


def test_braces_in_the_file_stay_braces(tmp_path: Path) -> None:
    odd = {
        **SMOKE,
        "sim_binary": "./sim{seed}",
        "matrix": {**SMOKE["matrix"], "ablations": [{"name": "x", "flags": ["{out}"]}]},
    }
    words = argv(next(iter(load(tmp_path, odd))), tmp_path)
    assert words[0] == "./sim{seed}" and "{out}" in words


def test_seeds_and_ablations_have_defaults(tmp_path: Path) -> None:
    matrix = {"workflows": [5], "policy": ["full"]}
    assert [run.seed for run in load(tmp_path, {**SMOKE, "matrix": matrix})] == [1]
    (run,) = load(tmp_path, {**SMOKE, "matrix": matrix, "common_args": {**COMMON, "seed": 7}})
    assert run.seed == 7 and "__seed7__baseline__" in run.run_id
    assert run.cell.arm.ablation == "baseline" and "seed" not in run.cell.params


def test_everything_can_stand_in_common_args(tmp_path: Path) -> None:
    (run,) = load(tmp_path, {"common_args": {**COMMON, "workflows": 5, "policy": "full"}})
    assert run.cell.arm.name == "full" and run.cell.task.name == "workflows=5"


def test_other_axes_name_the_arm_too(tmp_path: Path) -> None:
    plan = load(tmp_path, {**SMOKE, "matrix": {"workflows": [5], "policy": ["full"], "iters": [1, 2]}})
    assert [arm.name for arm in plan.arms] == ["iters=1,policy=full", "iters=2,policy=full"]
    plan = load(
        tmp_path, {**SMOKE, "common_args": {**COMMON, "policy": "full"}, "matrix": {"workflows": [5], "iters": [1, 2]}}
    )
    assert [arm.name for arm in plan.arms] == ["iters=1", "iters=2"]


def test_overrides_apply_to_it_as_well(tmp_path: Path) -> None:
    plan = load(tmp_path, SMOKE, "jobs=7", "matrix.seeds=[9]", "matrix.ablations.no_hedge.flags=['--x']")
    assert plan.experiment.jobs == 7 and {run.seed for run in plan} == {9} and plan.arms[1].flags == ("--x",)


def changed(**changes: Any) -> dict[str, Any]:
    return {**SMOKE, **changes}


@pytest.mark.parametrize(
    ("content", "key", "told"),
    [
        (changed(sim_binari="x"), "sim_binari", "did you mean 'sim_binary'?"),
        (changed(jobs=0), "jobs", "greater than or equal to 1"),
        (changed(common_args={**COMMON, "pfds": 1}), "common_args.pfds", "did you mean 'pdfs'?"),
        (changed(matrix={**SMOKE["matrix"], "itres": [1]}), "matrix.itres", "did you mean 'iters'?"),
        (changed(common_args={"pdfs": 1, **{k: v for k, v in COMMON.items() if k != "iters"}}), "common_args", "iters is needed"),
        (changed(matrix={"workflows": [5], "policy": []}), "matrix.policy", "at least one value"),
        (changed(matrix={"workflows": [5], "policy": "full"}), "matrix.policy", "at least one value"),
        (changed(matrix={"workflows": [5], "policy": ["full", "full"]}), "matrix.policy", "is in it twice"),
        (changed(matrix={"workflows": [5], "policy": ["../full"]}), "matrix.policy", "part of a directory's name"),
        (changed(matrix={"workflows": [5], "policy": ["full"], "seed": [1]}), "matrix.seed", "did you mean 'seeds'?"),
        (changed(matrix={**SMOKE["matrix"], "seeds": []}), "matrix.seeds", "at least one seed"),
        (changed(matrix={**SMOKE["matrix"], "seeds": 3}), "matrix.seeds", "must be a list"),
        (changed(matrix={**SMOKE["matrix"], "seeds": [1, 1]}), "matrix.seeds", "twice"),
        (changed(matrix={**SMOKE["matrix"], "ablations": []}), "matrix.ablations", "at least one"),
        (changed(matrix={**SMOKE["matrix"], "ablations": [{"flags": []}]}), "matrix.ablations.0.name", "is needed"),
        (changed(matrix={**SMOKE["matrix"], "ablations": [{"name": "a"}, {"name": "a"}]}), "matrix.ablations.1.name", "two"),
        (changed(matrix={**SMOKE["matrix"], "ablations": [{"name": "a/b"}]}), "matrix.ablations.0.name", "directory"),
        (changed(matrix={**SMOKE["matrix"], "ablations": [{"name": "a", "flag": []}]}), "matrix.ablations.0.flag", "flags"),
        (changed(common_args={**COMMON, "enable_model_routing": "yes"}), "common_args.enable_model_routing", "true or false"),
        (changed(name=""), "name", "at least 1 character"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_key_and_line(tmp_path: Path, content: dict[str, Any], key: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, content)
    problem = caught.value.problems[0]
    assert problem.key == key and told in f"{problem.message} {problem.fix}" and problem.line is not None
