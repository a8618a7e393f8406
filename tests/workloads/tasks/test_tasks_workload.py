"""What is wrong on our side is told before a rollout where it can be, and is never the agent's score."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.engine.context import Context, Facts
from bakeoff.errors import InfraError, UsageError
from bakeoff.workloads.tasks.params import TasksParams
from bakeoff.workloads.tasks.proxy.providers import Provider
from bakeoff.workloads.tasks.workload import TasksWorkload
from workloads.tasks.small import write_task

HERE = Provider(base_url="http://127.0.0.1:9/v1")


def test_results_that_cannot_be_written_are_no_failure_of_the_agent(tmp_path: Path) -> None:
    write_task(tmp_path / "sums")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "logs").write_text("in the way")
    facts = Facts("r", "a", "t", 0, 0, 0, (), tmp_path, tmp_path / "run")
    with pytest.raises(InfraError, match="logs"):
        TasksWorkload().run(TasksParams(path="sums", agent="nop"), Context(facts))


def test_a_cost_budget_without_a_price_is_told_before_anything_starts(tmp_path: Path) -> None:
    write_task(tmp_path / "sums")
    params = TasksParams(path="sums", agent="builtin", model="m", cost_budget=1.0, providers={"here": HERE})
    with pytest.raises(UsageError, match="a cost budget needs the price of here/m"):
        TasksWorkload().check(params, tmp_path)


def test_a_task_whose_overrides_name_an_endpoint_needs_no_other_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    params = TasksParams(path=str(write_task(tmp_path / "sums")), agent="builtin", model="gpt-4")
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        TasksWorkload().check(params, tmp_path)
    (tmp_path / "sums" / "overrides.json").write_text(
        '{"openai": {"base_url": "http://127.0.0.1:9/v1", "api_key": "k"}}'
    )
    TasksWorkload().check(params, tmp_path)
