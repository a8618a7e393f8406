"""`bakeoff schedsim`, the workload in an experiment, and the sweep runner's files with the built-in simulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import bakeoff
from bakeoff.cli import main
from bakeoff.errors import SpecError, UsageError
from bakeoff.records.rundir import read_meta
from bakeoff.spec.load import load_plan
from bakeoff.workloads.schedsim import outputs
from bakeoff.workloads.schedsim.workload import SchedsimParams
from support.processes import Lab
from workloads.schedsim.simulated import run

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAKEOFF_ROOT", raising=False)


def schedsim(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["schedsim", *arguments], prog_name="bakeoff")


def test_it_prints_the_settings_the_main_figures_and_the_files() -> None:
    result = schedsim("--workflows", "3", "--seed", "7", "--enable_model_routing", "--out_dir", "deep/out")
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[:13] == [
        "agent_sched_sim config:", "  workflows=3", "  pdfs=10", "  iters=3", "  subqueries=4", "  policy=full",
        "  seed=7", "  time_scale=50", "  out_dir=deep/out", "  enable_model_routing=true", "  disable_hedging=false",
        "  disable_escalation=false", "  disable_dag_priority=false",
    ]  # fmt: skip
    assert lines[13] == "summary:"
    assert [line.partition("=")[0].strip() for line in lines[14:]] == [
        "makespan_mean_ms", "makespan_p95_ms", "cost_mean", "summary", "workflows", "tiers", "trace",
    ]  # fmt: skip
    assert {path.name for path in Path("deep/out").iterdir()} == {
        "summary.csv",
        "workflows.csv",
        "tiers.csv",
        "trace.json",
    }


def test_defaults_are_the_known_ones() -> None:
    report = json.loads(schedsim("--json").stdout)
    known = {
        "workflows": 100, "pdfs": 10, "iters": 3, "subqueries": 4, "policy": "full", "seed": 1, "time_scale": 50,
        "heavy_tail_prob": 0.02, "heavy_tail_mult": 50.0, "enable_model_routing": False, "disable_hedging": False,
        "disable_escalation": False, "disable_dag_priority": False,
    }  # fmt: skip
    assert report["config"].items() >= known.items() and report["version"]
    assert report["summary"]["workflows_succeeded"] == 100 and report["files"]["summary"] == "out/summary.csv"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workflows", "0"], "greater than 0"),
        (["--pdfs", "-1"], "greater than 0"),
        (["--iters", "0"], "greater than 0"),
        (["--subqueries", "-1"], "greater than or equal to 0"),
        (["--time_scale", "0"], "greater than 0"),
        (["--workflows", "5x"], "not a whole number"),
        (["--workflows", "1_0"], "not a whole number"),
        (["--workflows", "2.0"], "not a whole number"),
        (["--seed", "-1"], "range"),
        (["--seed", "18446744073709551616"], "range"),
        (["--seed", "one"], "not a whole number"),
        (["--policy", "ful"], "did you mean 'full'?"),
        (["--policy", "none.such:Policy"], "cannot be imported"),
        (["--policy", "json:JSONDecoder"], "not a subclass of"),
        (["--heavy_tail_prob", "x"], "not a valid float"),
        (["--heavy_tail_mult", "nan"], "finite number"),
        (["--out_dir", ""], "must not be empty"),
        (["--workflow", "5"], "--workflow"),
        (["--workflows"], "requires an argument"),
        (["--tiers", "none.toml"], "cannot be read"),
    ],
)
def test_a_mistake_is_reported_with_the_usage_on_standard_error_and_exit_code_2(
    arguments: list[str], message: str
) -> None:
    result = schedsim(*arguments)
    assert result.exit_code == 2 and result.stdout == ""
    assert "Error: " in result.stderr and "Usage: bakeoff schedsim" in result.stderr and message in result.stderr
    assert not Path("out").exists()


def test_help_goes_to_standard_output() -> None:
    for flag in ("-h", "--help"):
        result = schedsim(flag)
        assert result.exit_code == 0 and "--enable_model_routing" in result.stdout


def test_when_no_workflow_succeeds_the_exit_code_is_1() -> None:
    result = schedsim("--workflows", "2", "--budget", "0.001", "--out_dir", "out")
    assert result.exit_code == 1 and "over_budget" in Path("out/workflows.csv").read_text()


def test_a_custom_policy_is_a_small_class() -> None:
    Path("mine.py").write_text(
        "from bakeoff.workloads.schedsim.policies import Policy\n"
        "class Newest(Policy):\n"
        "    tiers = 'spill'\n"
        "    def priority(self, workflow, node, kind):\n"
        "        return -workflow.number\n"
    )
    result = schedsim("--policy", "mine:Newest", "--workflows", "30", "--enable_model_routing")
    assert result.exit_code == 0, result.stderr
    ended = [row.partition(",")[0] for row in Path("out/workflows.csv").read_text().splitlines()[1:]]
    assert min(map(int, ended[:5])) > 20


def test_flags_of_ablations_are_understood_or_refused() -> None:
    params = SchedsimParams(policy="full")
    changed = params.with_flags(["--disable_hedging", "--budget", "3", "--hedge_stretch=2"])
    assert (changed.disable_hedging, changed.budget, changed.hedge_stretch) == (True, 3.0, 2.0)
    assert params.with_flags([]) is params
    for flags, told in (
        (["--no_hedge"], "no flag"),
        (["--budget"], "needs a value"),
        (["--pdfs", "0"], "greater than 0"),
    ):
        with pytest.raises(UsageError, match=told):
            params.with_flags(flags)


EXPERIMENT = """
workload = "schedsim"
seeds = 3
task_keys = ["workflows"]
[params]
enable_model_routing = true
pdfs = 3
[matrix]
workflows = [3, 5]
policy = ["fifo_cheapest", "full"]
[analysis]
metric = "flow_time_mean_ms"
direction = "minimize"
"""


@pytest.mark.slow
def test_in_an_experiment_it_runs_in_process_and_gives_the_same_metrics_whatever_the_number_of_workers(
    lab: Lab,
) -> None:
    tables = []
    for jobs in (1, 2):
        path = lab.write(f"trial{jobs}.toml", EXPERIMENT)
        experiment = bakeoff.load(path, root=lab.root)
        assert experiment.run(jobs=jobs).complete
        assert not list(lab.root.glob("*/*/runs/*")), "no files unless asked for"
        tables.append(experiment.table().sort("arm", "task", "seed").select("arm", "task", "seed", *METRICS))
    assert tables[0].equals(tables[1])
    assert tables[0].height == 12 and tables[0]["flow_time_mean_ms"].min() > 0
    assert {"llm_provider_tier1_utilization", "embed_provider_tier0_queue_wait_p95_ms"} <= set(tables[0].columns)


METRICS = list(outputs.metrics(run(trace=False)))


def test_the_command_line_and_the_workload_agree(lab: Lab) -> None:
    experiment = bakeoff.load(lab.write("trial.toml", EXPERIMENT.replace("seeds = 3", "seeds = [2]")), root=lab.root)
    experiment.run(jobs=1)
    (row,) = [row for row in experiment.table().to_dicts() if row["arm"] == "full" and row["workflows"] == 5]
    told = schedsim("--workflows", "5", "--pdfs", "3", "--seed", "2", "--enable_model_routing", "--json")
    assert json.loads(told.stdout)["summary"] == {name: row[name] for name in METRICS}


@pytest.mark.parametrize("name", ["default", "smoke"])
def test_the_sweep_examples_are_planned_for_the_built_in_simulator_with_their_own_ids(name: str) -> None:
    plan = load_plan(EXAMPLES / "sweep" / f"{name}.json")
    assert len(plan) == {"default": 96, "smoke": 8}[name]
    assert plan.experiment.workload == "schedsim" and "built-in" in plan.notes[0]
    if name == "smoke":
        assert "full__wf5__seed2__no_hedge__ff5d8334433a" in {run.run_id for run in plan}


def test_the_native_examples_plan_the_same_sweep_and_the_comparison_of_policies() -> None:
    sweep, policies = load_plan(EXAMPLES / "sweep" / "default.toml"), load_plan(EXAMPLES / "policies.toml")
    assert len(sweep) == 96 and len(policies) == 240
    assert [arm.name for arm in sweep.arms][:2] == ["fifo_cheapest", "fifo_cheapest+no_hedge"]


def test_a_simulator_that_is_there_is_started_and_one_of_another_name_always(tmp_path: Path) -> None:
    smoke = json.loads((EXAMPLES / "sweep" / "smoke.json").read_text())
    for binary in ("./build/agent_sched_sim", "./other_sim"):
        if "build" in binary:
            Path("build").mkdir()
            Path(binary).write_text("#!/bin/sh\n")
            Path(binary).chmod(0o755)
        Path("sweep.json").write_text(json.dumps({**smoke, "sim_binary": binary}))
        assert load_plan(Path("sweep.json")).experiment.workload == "command"


def test_what_the_built_in_simulator_cannot_take_is_found_before_anything_runs(tmp_path: Path) -> None:
    smoke = json.loads((EXAMPLES / "sweep" / "smoke.json").read_text())
    smoke["matrix"]["policy"] = ["fifo_cheapest", "fulll"]
    Path("sweep.json").write_text(json.dumps(smoke))
    with pytest.raises(SpecError) as caught:
        load_plan(Path("sweep.json"))
    assert caught.value.problems[0].key == "matrix.policy" and "did you mean 'full'?" in str(caught.value)


@pytest.mark.slow
def test_the_smoke_sweep_leaves_the_files_its_users_expect(call: Callable[..., Result]) -> None:
    assert call("run", "--config", EXAMPLES / "sweep" / "smoke.json", "--jobs", "2").exit_code == 0
    home = Path("bench_runs/smoke/runs")
    assert len(list(home.iterdir())) == 8
    run = home / "full__wf5__seed2__no_hedge__ff5d8334433a"
    assert {path.name for path in (run / "out").iterdir()} == {
        "summary.csv",
        "workflows.csv",
        "tiers.csv",
        "trace.json",
    }
    meta = read_meta(run)
    assert meta is not None and meta["exit_code"] == 0
    assert meta["cmd"][:4] == ["bakeoff", "schedsim", "--workflows", "5"] and "--disable_hedging" in meta["cmd"]
    assert (run / "stdout.txt").read_text().startswith("agent_sched_sim config:")
    assert {(path / "stderr.txt").read_text() for path in home.iterdir()} == {""}, "there, and empty, as the original's"
    shown = call("compare", "smoke")  # without --root, although the results are in bench_runs
    assert shown.exit_code == 3 and "flow_time_mean_ms" in shown.stdout, shown.output
    again = schedsim(*meta["cmd"][2:-1], "again")
    assert again.exit_code == 0
    for name in ("summary.csv", "workflows.csv", "tiers.csv", "trace.json"):
        assert Path("again", name).read_bytes() == (run / "out" / name).read_bytes()
    noop, baseline = (next(home.glob(f"fifo_cheapest__wf5__seed1__{name}__*")) for name in ("no_hedge", "baseline"))
    for name in ("summary.csv", "workflows.csv", "tiers.csv", "trace.json"):
        assert (noop / "out" / name).read_bytes() == (baseline / "out" / name).read_bytes()
    assert call("collect", "--exp_dir", "bench_runs/smoke").exit_code == 0
    rows = Path("bench_runs/smoke/aggregate/runs.csv").read_text().splitlines()
    assert len(rows) == 9 and "llm_provider_tier0_queue_wait_p95_ms" in rows[0]


@pytest.fixture
def call() -> Callable[..., Result]:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="bakeoff")

    return run
