"""Matrix, arms, ablations, tasks, cells and rules become a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bakeoff.errors import SpecError
from bakeoff.spec.expand import expand, merge
from bakeoff.spec.experiment import ExperimentFile
from bakeoff.spec.plan import Plan, Run


def plan_of(base: Path = Path("/nowhere"), **content: Any) -> Plan:
    given = {"name": "x", "workload": "python", **content}
    given["params"] = {"function": "m:f", **content.get("params", {})}
    return expand(ExperimentFile.model_validate(given), base=base)


def problem_of(**content: Any) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        plan_of(**content)
    (problem,) = caught.value.problems
    return problem.key, f"{problem.message} | {problem.fix}"


def arms(plan: Plan) -> list[str]:
    return [arm.name for arm in plan.arms]


def tasks(plan: Plan) -> list[str]:
    return [task.name for task in plan.tasks]


def runs(plan: Plan) -> list[tuple[str, str, int, int]]:
    return [(run.cell.arm.name, run.cell.task.name, run.seed, run.rollout) for run in plan]


def test_an_experiment_with_nothing_to_compare_is_one_run() -> None:
    assert runs(plan_of()) == [("default", "default", 0, 0)]


def test_one_axis_of_names_names_arms_by_them_and_others_by_key_and_value() -> None:
    assert arms(plan_of(matrix={"policy": ["full", "fifo"]})) == ["full", "fifo"]
    assert arms(plan_of(matrix={"lr": [0.1, 1e-05]})) == ["lr=0.1", "lr=1e-05"]
    assert arms(plan_of(matrix={"lr": [0.1], "deep": [True, False]})) == ["lr=0.1,deep=true", "lr=0.1,deep=false"]
    assert arms(plan_of(matrix={"net": [{"b": 1, "a": [2]}, None]})) == ['net={"a":[2],"b":1}', "net=null"]


def test_arms_times_matrix_times_ablations() -> None:
    plan = plan_of(
        arms=[{"name": "big", "params": {"size": 2}, "flags": ["-b"]}, {"name": "small", "params": {"size": 1}}],
        matrix={"lr": [1, 2]},
        ablations=[{"name": "dry", "params": {"drop": 0}, "flags": ["-d"]}, {"name": "wet", "arms": ["big,lr=1"]}],
    )
    assert arms(plan) == ["big,lr=1", "big,lr=1+dry", "big,lr=1+wet", "big,lr=2", "big,lr=2+dry", "small,lr=1", "small,lr=1+dry", "small,lr=2", "small,lr=2+dry"]  # fmt: skip
    dry = plan.arms[1]
    assert dry.flags == ("-b", "-d") and dry.base == "big,lr=1" and dry.ablation == "dry"
    assert plan.arms[0].base == "big,lr=1" and plan.arms[0].ablation == ""
    assert dict(plan.cells[1].params) == {"function": "m:f", "size": 2, "lr": 1, "drop": 0}


def test_task_keys_make_tasks_out_of_axes() -> None:
    plan = plan_of(matrix={"policy": ["a", "b"], "size": [5, 10]}, task_keys=["size"])
    assert arms(plan) == ["a", "b"] and tasks(plan) == ["size=5", "size=10"]
    plan = plan_of(matrix={"size": [5]}, task_keys=["size"], tasks=[{"name": "easy"}, {"name": "hard"}])
    assert arms(plan) == ["default"] and tasks(plan) == ["easy,size=5", "hard,size=5"]


def test_order_is_seed_then_rollout_then_task_and_arm() -> None:
    plan = plan_of(matrix={"p": ["a", "b"]}, tasks=[{"name": "t"}, {"name": "u"}], seeds=[7, 3], rollouts=2)
    assert runs(plan)[:5] == [("a", "t", 7, 0), ("b", "t", 7, 0), ("a", "u", 7, 0), ("b", "u", 7, 0), ("a", "t", 7, 1)]
    assert [run.position for run in plan] == list(range(16)) and len(plan) == 16
    assert runs(plan)[8][2] == 3


def test_cells_say_which_arm_meets_which_task_and_how_often() -> None:
    plan = plan_of(
        arms=[{"name": "a"}, {"name": "b"}],
        tasks=[{"name": "t"}, {"name": "u"}],
        cells=[{"arm": "a", "task": "t", "rollouts": 3}, {"arm": "b", "task": "u"}],
        rollouts=2,
    )
    assert sorted(runs(plan)) == [
        ("a", "t", 0, 0),
        ("a", "t", 0, 1),
        ("a", "t", 0, 2),
        ("b", "u", 0, 0),
        ("b", "u", 0, 1),
    ]
    assert len(plan) == 5


def test_parameters_are_merged_table_by_table_and_dotted_keys_reach_in() -> None:
    plan = plan_of(
        params={"optimizer": {"name": "adam", "lr": 1, "betas": {"a": 0.9}}, "steps.max": 5},
        arms=[{"name": "x", "params": {"optimizer": {"name": "sgd"}, "net.depth": 2}}],
        matrix={"optimizer.lr": [3]},
        ablations=[{"name": "y", "params": {"optimizer": {"betas": {"a": 0}}}}],
        tasks=[{"name": "t", "params": {"steps": {"min": 1}}}],
    )
    first, second = (dict(cell.params) for cell in plan.cells)
    assert first == {
        "function": "m:f", "optimizer": {"name": "sgd", "lr": 3, "betas": {"a": 0.9}}, "steps": {"max": 5, "min": 1},
        "net": {"depth": 2},
    }  # fmt: skip
    assert second["optimizer"] == {"name": "sgd", "lr": 3, "betas": {"a": 0}}


def test_a_dot_in_a_name_inside_a_table_is_part_of_the_name() -> None:
    prices = {"gpt-4.1": 2.0, "qwen2.5-0.5b": 0.1}
    plan = plan_of(params={"prices": prices}, arms=[{"name": "x", "params": {"prices": {"gpt-4.1": 3.0}}}])
    assert plan.cells[0].params["prices"] == {**prices, "gpt-4.1": 3.0}


def test_merging_changes_neither_side() -> None:
    below, above = {"a": {"b": 1}}, {"a.c": 2, "a": {"d": 3}}
    assert merge(below, above) == {"a": {"b": 1, "c": 2, "d": 3}}
    assert below == {"a": {"b": 1}} and above == {"a.c": 2, "a": {"d": 3}}


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({"exclude": [{"p": "a"}]}, {("b", 0), ("b", 1), ("c", 0), ("c", 1)}),
        ({"include": [{"p": ["a", "b"]}], "exclude": ["p=b"]}, {("a", 0), ("a", 1)}),
        ({"include": ["p in ['a']", "p == 'c' and seed == 1"]}, {("a", 0), ("a", 1), ("c", 1)}),
        ({"exclude": [{"p": "a", "seed": 0}]}, {("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1)}),
        ({"exclude": [" seed<1"]}, {("a", 1), ("b", 1), ("c", 1)}),
        ({"include": ["arm=a", "seed=1 and arm=b"]}, {("a", 0), ("a", 1), ("b", 1)}),
        ({"exclude": ["net.depth < 5"]}, set()),
        ({"include": ["extra > 1"]}, set()),
    ],
)
def test_rules_keep_and_drop_runs(rules: dict[str, Any], kept: set[tuple[str, int]]) -> None:
    plan = plan_of(matrix={"p": ["a", "b", "c"]}, seeds=2, params={"net": {"depth": 2}, "extra": 0}, **rules)
    assert {(run.cell.arm.name, run.seed) for run in plan} == kept
    assert len(plan) == len(kept)
    assert [cell.index for cell in plan.cells] == list(range(len(plan.cells)))
    assert {cell.arm.name for cell in plan.cells} == {arm for arm, _ in kept}


def test_a_rule_may_name_a_parameter_that_only_some_arms_have() -> None:
    plan = plan_of(arms=[{"name": "a", "params": {"drop": 0.5}}, {"name": "b"}], exclude=["drop > 0.1"])
    assert arms(plan) == ["b"]


@pytest.mark.parametrize(
    ("rules", "key", "told"),
    [
        ({"exclude": [{"p": "a"}, {"polcy": 1}]}, "exclude.1", "no run has 'polcy'"),
        ({"include": ["seed <"]}, "include.0", "cannot read the expression"),
        ({"include": ["p < 3"]}, "include", "cannot compare"),
        ({"include": ["seed == 0 or polcy == 'x'"]}, "include.0", "no run has 'polcy'"),
    ],
)
def test_wrong_rules_are_found_before_anything_runs(rules: dict[str, Any], key: str, told: str) -> None:
    place, message = problem_of(matrix={"p": ["a", "b"]}, **rules)
    assert place == key and told in message


@pytest.mark.parametrize(
    ("content", "key", "told"),
    [
        ({"arms": [{"name": "a"}, {"name": "a"}]}, "arms", "two arms are called 'a'"),
        ({"tasks": [{"name": "a"}, {"name": "a"}]}, "tasks", "two tasks are called 'a'"),
        ({"matrix": {"lr": [1, "1"]}}, "arms", "two arms are called 'lr=1'"),
        ({"arms": [{"name": "a"}, {"name": "a+n"}], "ablations": [{"name": "n"}]}, "arms", "called 'a+n'"),
        (
            {"arms": [{"name": "a", "params": {"size": 1}}], "tasks": [{"name": "t", "params": {"size": 2}}]},
            "tasks.0.params.size",
            "an arm sets it too (arms.0.params.size) | set it in one of the two",
        ),
        (
            {"matrix": {"net": [{"d": 1}]}, "tasks": [{"name": "t", "params": {"net": {"w": 2}}}]},
            "tasks.0.params.net.w",
            "an arm sets it too (matrix.net)",
        ),
        (
            {"ablations": [{"name": "n", "params": {"a.b": 1}}], "tasks": [{"name": "t", "params": {"a": {"b": 2}}}]},
            "tasks.0.params.a.b",
            "ablations.0.params.a.b",
        ),
        ({"matrix": {"size": [1]}, "arms": [{"name": "a", "params": {"size": 2}}]}, "arms.0.params.size", "matrix.size"),
        ({"matrix": {"seed": [1, 2]}}, "matrix.seed", "seed cannot be a parameter | write seeds = ..."),
        ({"params": {"rollout": 1}}, "params.rollout", "rollout cannot be a parameter"),
        ({"ablations": [{"name": "n", "arms": ["ful"]}], "arms": [{"name": "full"}]}, "ablations.0.arms", "did you mean 'full'"),
        ({"analysis": {"control": "ful"}, "arms": [{"name": "full"}]}, "analysis.control", "did you mean 'full'"),
        ({"analysis": {"control": "zz"}, "arms": [{"name": "full"}]}, "analysis.control", "one of full"),
        ({"analysis": {"control": "a"}, "matrix": {"p": ["a", "b"]}, "exclude": ["p=a"]}, "analysis.control", "no arm called 'a'"),
        ({"concurrency": [{"by": "modle", "limit": 1}], "params": {"model": 1}}, "concurrency.0.by", "did you mean 'model'"),
        ({"concurrency": [{"by": "seed", "limit": 1}]}, "concurrency.0.by", "no run has a parameter 'seed'"),
        ({"cells": [{"arm": "b", "task": "default"}], "arms": [{"name": "a"}]}, "cells.0.arm", "no arm called 'b'"),
        ({"cells": [{"arm": "default", "task": "t"}]}, "cells.0.task", "no task called 't'"),
        ({"cells": [{"arm": "default", "task": "default"}] * 2}, "cells.1", "stands twice"),
        ({"tasks": [{"name": "t", "path": "gone"}]}, "tasks.0.path", "/nowhere/gone cannot be read: No such file"),
        ({"matrix": {"function": ["m"]}}, "matrix.function", "must be 'package.module:function'"),
        ({"arms": [{"name": "a", "params": {"function": 3}}]}, "arms.0.params.function", "must be text"),
        ({"ablations": [{"name": "a", "params": {"function": 3}}]}, "ablations.0.params.function", "must be text"),
        ({"tasks": [{"name": "a", "params": {"function": 3}}]}, "tasks.0.params.function", "must be text"),
        ({"params": {"function": 3}}, "params.function", "must be text"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(content: dict[str, Any], key: str, told: str) -> None:
    place, message = problem_of(**content)
    assert place == key and told in message


@pytest.mark.parametrize("by", ["arm", "task", "model", "net.depth"])
def test_concurrency_goes_by_any_parameter(by: str) -> None:
    arms_ = [{"name": "a"}, {"name": "b", "params": {"model": "x", "net": {"depth": 1}}}]
    assert len(plan_of(arms=arms_, concurrency=[{"by": by, "limit": 2}])) == 2


def test_references_are_fine_in_a_plan_that_rules_have_emptied() -> None:
    plan = plan_of(
        matrix={"p": ["a"]}, exclude=["p=a"], concurrency=[{"by": "p", "limit": 1}], analysis={"control": "a"},
        ablations=[{"name": "n", "arms": ["a"]}],
    )  # fmt: skip
    assert len(plan) == 0 and list(plan) == []


def test_names_are_all_that_any_run_can_be_asked_for() -> None:
    plan = plan_of(arms=[{"name": "a", "params": {"net": {"x": 1}}}, {"name": "b", "params": {"net": {"y": 1}}}])
    assert plan.names == {"arm", "task", "ablation", "seed", "rollout", "function", "net", "net.x", "net.y"}


def test_runs_are_made_on_the_fly() -> None:
    plan = plan_of(seeds={"count": 1_000_000})
    first = next(iter(plan))
    assert isinstance(first, Run) and len(plan) == 1_000_000
