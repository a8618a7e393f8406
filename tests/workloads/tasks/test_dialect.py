"""The task benchmark's TOML is read unchanged: models are arms, prepared directories are tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.errors import SpecError
from bakeoff.spec.load import load_plan
from bakeoff.spec.plan import Plan

FIRST = """
name = "my_benchmark"
parallel = 4

[[tasks]]
prepared_dir = "data/tasks/prepared/task_1"
model = "gpt-4"
rollouts = 3
apply_overrides = true
overrides = "data/tasks/prepared/task_1/overrides.json"

[[tasks]]
prepared_dir = "data/tasks/prepared/task_2"
model = "claude-3-sonnet"
rollouts = 5
apply_overrides = false

[[tasks]]
prepared_dir = "data/tasks/prepared/task_3"
model = "gpt-3.5-turbo"
rollouts = 1
"""
COMPARISON = """
name = "model_comparison"
parallel = 2

[[tasks]]
prepared_dir = "data/tasks/prepared/algorithm_task"
model = "gpt-4"
rollouts = 5

[[tasks]]
prepared_dir = "data/tasks/prepared/algorithm_task"
model = "claude-3-sonnet"
rollouts = 5

[[tasks]]
prepared_dir = "data/tasks/prepared/algorithm_task"
model = "gemini-pro"
rollouts = 5
"""
PARAMETERS = """
name = "parameter_sweep"
parallel = 3

[[tasks]]
prepared_dir = "data/tasks/prepared/coding_task"
model = "gpt-4"
rollouts = 3
# Custom timeout
environment_variables = { "TIMEOUT_SEC" = "1800" }

[[tasks]]
prepared_dir = "data/tasks/prepared/coding_task"
model = "gpt-4"
rollouts = 3
# Different timeout
environment_variables = { "TIMEOUT_SEC" = 3600 }
"""
MIXED = """
name = "mixed_workloads"
parallel = 4

# Coding tasks
[[tasks]]
prepared_dir = "data/tasks/prepared/refactor_code"
model = "gpt-4"
rollouts = 3

# Algorithm tasks
[[tasks]]
prepared_dir = "data/tasks/prepared/optimize_algorithm"
model = "claude-3-sonnet"
rollouts = 3

# Documentation tasks
[[tasks]]
prepared_dir = "data/tasks/prepared/write_docs"
model = "gpt-3.5-turbo"
rollouts = 2
"""
LARGE = """
name = "large_scale_benchmark"
parallel = 16  # High parallelism for cloud

[[tasks]]
prepared_dir = "data/tasks/prepared/task_001"
model = "gpt-4"
rollouts = 5

# ... hundreds more tasks
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(text: str, name: str = "bench.toml") -> Plan:
    Path(name).write_text(text)
    return load_plan(Path(name))


@pytest.mark.parametrize(
    ("text", "jobs", "runs", "arms", "tasks"),
    [
        (FIRST, 4, 9, ["gpt-4", "claude-3-sonnet", "gpt-3.5-turbo"], ["task_1", "task_2", "task_3"]),
        (COMPARISON, 2, 15, ["gpt-4", "claude-3-sonnet", "gemini-pro"], ["algorithm_task"]),
        (PARAMETERS, 3, 6, ["gpt-4,TIMEOUT_SEC=1800", "gpt-4,TIMEOUT_SEC=3600"], ["coding_task"]),
        (
            MIXED,
            4,
            8,
            ["gpt-4", "claude-3-sonnet", "gpt-3.5-turbo"],
            ["refactor_code", "optimize_algorithm", "write_docs"],
        ),
        (LARGE, 16, 5, ["gpt-4"], ["task_001"]),
    ],
)
def test_every_documented_benchmark_is_understood(
    text: str, jobs: int, runs: int, arms: list[str], tasks: list[str]
) -> None:
    plan = load(text)
    assert plan.experiment.jobs == jobs and plan.dialect == "tasks" and plan.experiment.editions == "repeat"
    assert len(plan) == runs == len({run.run_id for run in plan})
    assert [arm.name for arm in plan.arms] == arms and [task.name for task in plan.tasks] == tasks
    assert plan.experiment.workload == "tasks" and plan.experiment.seeds == [0]
    assert all("does not exist" in note for note in plan.notes) and plan.notes


def test_entries_become_cells_with_their_own_rollouts_and_parameters() -> None:
    plan = load(FIRST)
    assert [(cell.arm.name, cell.task.name, cell.rollouts) for cell in plan.cells] == [
        ("gpt-4", "task_1", 3), ("claude-3-sonnet", "task_2", 5), ("gpt-3.5-turbo", "task_3", 1),
    ]  # fmt: skip
    assert dict(plan.cells[1].params) == {
        "model": "claude-3-sonnet", "overrides": None, "apply_overrides": False, "environment_variables": {},
        "agent": "codex", "prepared_dir": "data/tasks/prepared/task_2",
    }  # fmt: skip


def test_the_same_entry_twice_is_more_rollouts() -> None:
    entry = '[[tasks]]\nprepared_dir = "{}"\nrollouts = 2\n'
    plan = load(entry.format("a/t") + entry.format("./a/t/"))
    assert len(plan) == 4 and len(plan.cells) == 1
    assert plan.experiment.name == "bench" and plan.arms[0].name == "gpt-5-mini"


def entry(directory: str, **more: str) -> str:
    return f'[[tasks]]\nprepared_dir = "{directory}"\nmodel = "m"\n' + "".join(f"{k} = {v}\n" for k, v in more.items())


def test_a_tool_of_the_provider_that_is_allowed_makes_another_run() -> None:
    text = 'allow_provider_tools = ["web_search"]\n[[tasks]]\nprepared_dir = "t"\n'
    with_it, without = load(text), load(text.partition("\n")[2])
    assert with_it.cells[0].run_id(0, 0) != without.cells[0].run_id(0, 0)
    assert with_it.cells[0].params["allow_provider_tools"] == ["web_search"]


def test_limits_of_the_gateway_are_checked_and_make_no_other_run() -> None:
    limits = 'gateway_limits = { body = "64MiB", connections = 10 }\n'
    with_them, without = load(limits + entry("t")), load(entry("t"))
    assert with_them.cells[0].params["gateway_limits"] == {"body": "64MiB", "connections": 10}
    assert with_them.cells[0].run_id(0, 0) == without.cells[0].run_id(0, 0)
    with pytest.raises(SpecError) as raised:
        load('gateway_limits = { body = "much", conections = 10 }\n' + entry("t"))
    message = str(raised.value)
    assert "gateway_limits.body" in message and "'much' is not a size" in message
    assert "gateway_limits.conections" in message


def test_a_network_for_all_entries_is_another_run() -> None:
    with_it, without = load("network = true\n" + entry("t")), load(entry("t"))
    assert with_it.cells[0].params["network"] is True and "network" not in without.cells[0].params
    assert with_it.cells[0].run_id(0, 0) != without.cells[0].run_id(0, 0)


def ids_by_settings(plan: Plan) -> dict[str, str]:
    return {str(sorted(cell.params.items(), key=str)): cell.run_id(0, 0) for cell in plan.cells}


def test_names_and_ids_do_not_depend_on_the_order_of_entries() -> None:
    entries = [
        entry("a/t"),
        entry("a/t", apply_overrides="false"),
        entry("a/t", overrides='"x.json"'),
        entry("b/t", overrides='"y.json"'),
        entry("b/t", overrides='"z.json"'),
    ]
    forth, back = load("".join(entries)), load("".join(reversed(entries)))
    assert ids_by_settings(forth) == ids_by_settings(back) and len(forth) == 5
    assert sorted((cell.arm.name, cell.task.name) for cell in forth.cells) == [
        ("m", "a/t"), ("m,no-overrides", "a/t"), ("m,overrides=x.json", "a/t"), ("m,overrides=y.json", "b/t"),
        ("m,overrides=z.json", "b/t"),
    ]  # fmt: skip


def test_a_model_with_and_without_overrides_is_two_arms_on_every_task() -> None:
    plan = load(
        entry("t", overrides='"t/o.json"') + entry("u", overrides='"u/o.json"') + entry("t", apply_overrides="false")
    )
    assert {(cell.arm.name, cell.task.name) for cell in plan.cells} == {
        ("m,overrides", "t"), ("m,overrides", "u"), ("m,no-overrides", "t"),
    }  # fmt: skip


def test_ids_go_by_the_content_of_prepared_directories_and_overrides(here: Path) -> None:
    text = entry("one/t", overrides='"o.json"')
    Path("one/t").mkdir(parents=True)
    Path("one/t/tb_meta.json").write_text("{}")
    Path("o.json").write_text("{}")
    plan = load(text)
    first = plan.cells[0].run_id(0, 0)
    assert plan.notes == ()
    Path("one").rename("two")
    Path("o.json").rename("p.json")
    assert load(text.replace("one/", "two/").replace("o.json", "p.json")).cells[0].run_id(0, 0) == first
    Path("p.json").write_text('{"x": 1}')
    assert load(text.replace("one/", "two/").replace("o.json", "p.json")).cells[0].run_id(0, 0) != first


def test_environment_variables_keep_names_and_other_values_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "m7")
    plan = load(
        '[[tasks]]\nprepared_dir = "t"\nmodel = "${MODEL}"\nenvironment_variables = { KEY = "${NOT_SET_HERE}" }\n'
        '[providers.p]\nbase_url = "http://${MODEL}"\nheaders = { authorization = "Bearer ${NOT_SET_HERE}" }\n'
    )
    params = plan.cells[0].params
    assert (params["model"], params["providers"]["p"]["base_url"]) == ("m7", "http://m7")
    assert params["environment_variables"] == {"KEY": "${NOT_SET_HERE}"}
    assert params["providers"]["p"]["headers"] == {"authorization": "Bearer ${NOT_SET_HERE}"}


@pytest.mark.parametrize(
    ("text", "key", "told", "line"),
    [
        ("paralel = 4\n" + entry("t"), "paralel", "did you mean 'parallel'?", 1),
        (entry("t", modle='"x"'), "tasks.0.modle", "did you mean 'model'?", 4),
        ("parallel = 4\n", "tasks", "is needed", None),
        ("parallel = 4\ntasks = []\n", "tasks", "at least 1 item", 2),
        ("parallel = 4\n[[tasks]]\nmodel = 'x'\n", "tasks.0.prepared_dir", "is needed", 2),
        (entry("t", rollouts="0"), "tasks.0.rollouts", "greater than or equal to 1", 4),
        ("parallel = 0\n" + entry("t"), "parallel", "greater than or equal to 1", 1),
        (entry("t", environment_variables="{ A = [1] }"), "tasks.0.environment_variables.A", "must be text", 4),
        (entry("t", environment_variables="{ TIMEOUT_SEC = 'ten' }"), "tasks.0.environment_variables", "above 0", 4),
        (entry("t", environment_variables="{ TOKEN_LIMIT = '-5' }"), "tasks.0.environment_variables", "above 0", 4),
        (entry("t") + "[judge]\nmodel = 'j'\nvote = 2\n", "judge.vote", "did you mean 'votes'?", 6),
        (entry("t") + "[providers.p]\nbase_url = 'http://x'\nenv_kee = 'K'\n", "providers.p.env_kee", "'env_key'", 6),
        (entry("t") + "[agents.a]\ncommand = 'x'\nwires = 'chat'\n", "agents.a.wires", "did you mean 'wire'?", 6),
    ],
)
def test_errors_name_key_and_line(text: str, key: str, told: str, line: int | None) -> None:
    with pytest.raises(SpecError) as caught:
        load(text)
    (problem,) = caught.value.problems
    assert (problem.key, problem.line) == (key, line) and told in f"{problem.message} {problem.fix}"


def test_our_own_file_with_a_wrong_key_is_not_taken_for_a_benchmark() -> None:
    with pytest.raises(SpecError, match="parallel: unknown key"):
        load("parallel = 4\nworkload = 'command'\nparams.command = ['true']\n")
