"""Tables with other people's column names, orders and habits: what is asked for leads to the right verdict."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]


def write(rows: Sequence[dict[str, Any]], name: str = "t.csv") -> None:
    with Path(name).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("name", ["random_seed", "replica"])
def test_a_number_that_recurs_over_tasks_may_be_the_seed(bakeoff: Bakeoff, name: str) -> None:
    rng = np.random.default_rng(1)
    luck = {(agent, seed): rng.normal() for agent in "xy" for seed in range(5)}
    write([
        {"agent": agent, "scenario": f"s{task}", name: seed, "points": round(luck[agent, seed] + 0.1 * rng.normal(), 3)}
        for agent in "xy" for task in range(12) for seed in range(5)
    ])  # fmt: skip
    refused = bakeoff("compare", "t.csv")
    assert refused.exit_code == 2 and f"--seed-from {name}" in refused.stderr and "--task-from" not in refused.stderr
    fixed = bakeoff("compare", "t.csv", "--seed-from", name)
    assert "tasks like these 12 and seeds like these 5 (units: both)" in fixed.stdout


def test_steps_are_recognised_in_any_order_of_rows(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(2)
    rows = [
        {"agent": agent, "seed": seed, "env_frames": 1000 * step, "points": round(step + rng.normal(), 3)}
        for agent in "xy" for seed in range(5) for step in range(12)
    ]  # fmt: skip
    write([rows[place] for place in rng.permutation(len(rows))])
    refused = bakeoff("compare", "t.csv")
    assert refused.exit_code == 2 and "--step-from env_frames" in refused.stderr
    assert "--task-from env_frames" not in refused.stderr


def test_seeds_that_are_ranks_are_not_pairs(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(3)
    scores = {agent: sorted(rng.normal(size=9).round(3) + (agent == "y"), reverse=True) for agent in "xy"}
    rows = [
        {"agent": agent, "seed": rank, "points": value} for agent in "xy" for rank, value in enumerate(scores[agent])
    ]
    write(rows)
    refused = bakeoff("compare", "t.csv")
    assert refused.exit_code == 2 and "'points' is sorted along the seeds in every arm" in refused.stderr
    assert "N = 9 per arm" in bakeoff("compare", "t.csv", "--unpaired").stdout
    write([row | {"seed": (5 * row["seed"]) % 9} for row in rows])  # the same pairs, in an order of their own
    assert bakeoff("compare", "t.csv").exit_code == 0


def test_one_file_given_twice_is_not_twice_as_many_runs(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(4)
    write([{"agent": agent, "correct": int(rng.random() < 0.5)} for agent in "xy" for _ in range(40)], "first.csv")
    Path("copy.csv").write_bytes(Path("first.csv").read_bytes())
    Path("link.csv").symlink_to("first.csv")
    for other, reason in (
        ("first.csv", "first.csv is read twice"),
        ("link.csv", "is read twice"),
        ("copy.csv", "copy.csv: has the same content as first.csv"),
    ):
        refused = bakeoff("compare", "first.csv", other)
        assert refused.exit_code == 2 and reason in refused.stderr
    assert "N = 80 per arm" in bakeoff("compare", "first.csv", "copy.csv", "--keep-duplicates").stdout


def test_copies_whose_times_differ_are_copies(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(5)
    points = {(agent, seed): round(rng.normal(), 4) for agent in "xy" for seed in range(8)}
    rows = [
        {"agent": agent, "seed": seed, "points": points[agent, seed % 6], "duration_s": round(60 + rng.random(), 3)}
        for agent in "xy" for seed in range(8)
    ]  # fmt: skip
    write(rows)
    refused = bakeoff("compare", "t.csv", "--metric", "points")
    assert refused.exit_code == 2 and "seeds 0 and 6; 1 and 7 have equal values" in refused.stderr
    write([{name: value for name, value in row.items() if name != "points"} for row in rows])
    assert bakeoff("compare", "t.csv", "--metric", "duration_s", "--direction", "minimize").exit_code == 3


@pytest.mark.parametrize("spelling", ["text", "float"])
def test_a_column_of_groups_may_have_empty_cells(bakeoff: Bakeoff, spelling: str) -> None:
    rng = np.random.default_rng(6)
    shared = rng.normal(size=10)
    write([
        {"agent": agent, "question": f"q{group}{'abcdef'[part]}", "book": "" if part == 5 else f"b{group}" if spelling == "text" else float(group),
         "points": round((agent == "y") * (0.45 + shared[group]) + 0.2 * rng.normal(), 3)}
        for agent in "xy" for group in range(10) for part in range(6)
    ])  # fmt: skip
    result = bakeoff("compare", "t.csv", "--metric", "points")
    assert "groups by 'book'" in result.stdout and "--cluster book" in result.stdout


def test_rows_of_one_worker_are_not_independent_without_tasks_either(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(7)
    luck = {(agent, number): rng.normal() for agent in "xy" for number in range(4)}
    write([
        {"agent": agent, "worker": f"{agent}{number}", "points": luck[agent, number] + 0.1 * rng.normal()}
        for agent in "xy" for number in range(4) for _ in range(12)
    ])  # fmt: skip
    refused = bakeoff("compare", "t.csv")
    assert refused.exit_code == 2 and "column 'worker' names runs" in refused.stderr


def test_a_measured_column_is_not_proposed_as_the_task(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(8)
    write([{"agent": agent, "seed": s % 9, "points": round(rng.normal(), 3)} for agent in "xy" for s in range(18)])
    refused = bakeoff("compare", "t.csv")
    assert refused.exit_code == 2 and "only what was measured tells the rows apart" in refused.stderr


@pytest.mark.parametrize("metric", ["price", "err_pct", "kl_div", "false_positive_rate", "co2", "bug_count", "jitter"])
def test_other_names_of_which_less_may_be_better(bakeoff: Bakeoff, metric: str) -> None:
    rng = np.random.default_rng(9)
    write([{"agent": agent, "seed": s, metric: round(5 + rng.normal(), 3)} for agent in "xy" for s in range(9)])
    refused = bakeoff("compare", "t.csv")
    assert refused.exit_code == 2 and f"is more '{metric}' better, or less?" in refused.stderr


def test_one_arm_in_other_units_is_labelled(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(10)
    write([
        {"agent": agent, "seed": s, "rt": round((0.6 if agent == "x" else 600) * (1 + 0.1 * rng.random()), 4)}
        for agent in "xy" for s in range(9)
    ])  # fmt: skip
    assert "times as large as that of x: if they are in different units" in bakeoff("compare", "t.csv").stdout


@pytest.mark.parametrize("ending", ["-seed{}", "_s{}", "/run_{}"])
def test_arms_that_are_called_like_runs_are_labelled(bakeoff: Bakeoff, ending: str) -> None:
    rng = np.random.default_rng(11)
    write([
        {"agent": agent + ending.format(run), "scenario": f"s{task}", "points": round(rng.normal(), 3)}
        for agent in ("base", "tuned") for run in range(3) for task in range(8)
    ])  # fmt: skip
    assert "are called like runs of one arm (base)" in bakeoff("compare", "t.csv").stdout
    write([{"agent": agent, "seed": s, "points": rng.normal()} for agent in ("gpt-4", "gpt-5") for s in range(8)])
    assert "called like runs" not in bakeoff("compare", "t.csv").stdout


def test_named_repeats_that_are_one_policy_on_every_task_are_refused(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(12)
    luck = {(agent, number): rng.normal() for agent in "xy" for number in range(5)}
    write([
        {"agent": agent, "scenario": f"s{task}", "run_id": f"{agent}-{number}", "points": luck[agent, number] + 0.1 * rng.normal()}
        for agent in "xy" for number in range(5) for task in range(12)
    ])  # fmt: skip
    refused = bakeoff("compare", "t.csv", "--rollout-from", "run_id")
    assert refused.exit_code == 2 and "as if each were one run" in refused.stderr


@pytest.mark.parametrize("kind", ["trials that are policies", "ranks"])
def test_litmus_refuses_what_compare_refuses(bakeoff: Bakeoff, kind: str) -> None:
    rng = np.random.default_rng(12)
    if kind == "ranks":
        scores = {agent: sorted(rng.normal(size=9).round(3) + 3 * (agent == "y")) for agent in "xy"}
        write([{"agent": agent, "seed": s, "points": scores[agent][s]} for agent in "xy" for s in range(9)])
    else:
        luck = {(agent, trial): 3 * (agent == "y") + rng.normal() for agent in "xy" for trial in range(5)}
        write([
            {"agent": agent, "task": f"t{task}", "trial": trial, "points": round(luck[agent, trial] + 0.1 * rng.normal(), 3)}
            for agent in "xy" for task in range(12) for trial in range(5)
        ])  # fmt: skip
    Path("rules.toml").write_text('[[rules]]\nmetric = "points"\nverdict = "better"\n')
    refused = bakeoff("compare", "t.csv")
    checked = bakeoff("litmus", "rules.toml", "t.csv", "--baseline", "x", "--candidate", "y")
    assert refused.exit_code == checked.exit_code == 2 and checked.stderr == refused.stderr


@pytest.mark.parametrize("name", ["question_id", "map", "number"])
def test_seeds_that_belong_to_one_question_each_are_not_the_units(bakeoff: Bakeoff, name: str) -> None:
    rng = np.random.default_rng(13)
    level = rng.normal(size=(2, 20))
    rows = [
        {"agent": agent, name: question if name == "number" else f"q{question}", "seed": 8 * question + run,
         "points": round(level[place, question] + 0.3 * rng.normal(), 3)}
        for place, agent in enumerate("xy") for question in range(20) for run in range(8)
    ]  # fmt: skip
    write(rows)
    refused = bakeoff("compare", "t.csv", "--metric", "points")
    assert refused.exit_code == 2 and f"seeds fall into 20 groups by column '{name}'" in refused.stderr
    assert "unit: task, N = 20" in bakeoff("compare", "t.csv", "--metric", "points", "--task-from", name).stdout
    assert "unit: seed, N = 160" in bakeoff("compare", "t.csv", "--metric", "points", "--ignore", name).stdout


def test_seeds_that_ran_on_one_host_each_are_labelled(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(14)
    write([
        {"agent": agent, "seed": seed, "host": f"node{seed % 3}", "points": round(rng.normal(), 3)}
        for agent in "xy" for seed in range(10)
    ])  # fmt: skip
    labelled = bakeoff("compare", "t.csv")
    assert labelled.exit_code == 3 and "seeds fall into 3 groups by column 'host'" in labelled.stdout
    assert "groups by column" not in bakeoff("compare", "t.csv", "--ignore", "host").stdout


@pytest.mark.parametrize("label", ["ep{}", "step_{}000", "checkpoint-{}.pt", "2026-05-{:02}", "{}k"])
def test_steps_in_words_are_not_proposed_as_tasks(bakeoff: Bakeoff, label: str) -> None:
    rng = np.random.default_rng(15)
    write([
        {"agent": agent, "seed": seed, "at": label.format(step), "points": round(step + rng.normal(), 3)}
        for agent in "xy" for seed in range(6) for step in range(1, 13)
    ])  # fmt: skip
    refused = bakeoff("compare", "t.csv")
    assert refused.exit_code == 2 and "--step-from at" in refused.stderr and "--task-from" not in refused.stderr


@pytest.mark.parametrize("form", ["{0}__{0}-{1}", "{0}/{1}", "{0}{1}", "bench/{0}/{1}"])
def test_groups_that_only_task_names_tell_are_asked_too(bakeoff: Bakeoff, form: str) -> None:
    rng = np.random.default_rng(16)
    shared = [1.6, -0.6, 1.4, -0.4, 1.1, 0.2, -0.9, 1.2]
    repos = ["django", "sympy", "flask", "numpy", "pandas", "astropy", "requests", "pylint"]
    write([
        {"agent": agent, "task": form.format(repo, 100 + part),
         "points": round((agent == "y") * shared[place] + 0.2 * rng.normal(), 3)}
        for agent in "xy" for place, repo in enumerate(repos) for part in range(6)
    ])  # fmt: skip
    by_both = bakeoff("compare", "t.csv")
    assert by_both.exit_code == 3 and "8 groups by 'task-prefix'" in by_both.stdout
    assert bakeoff("compare", "t.csv", "--cluster", "none").exit_code == 0
    assert "N = 8" in bakeoff("compare", "t.csv", "--cluster", "task-prefix").stdout


@pytest.mark.parametrize("form", ["HumanEval/{}", "task{}", "{}", "q-{}", "{:08x}"])
def test_names_that_number_the_tasks_are_no_groups(bakeoff: Bakeoff, form: str) -> None:
    rng = np.random.default_rng(17)
    write([
        {"agent": agent, "task": form.format(7919 * task if "x" in form else task), "points": round(rng.normal(), 3)}
        for agent in "xy" for task in range(30)
    ])  # fmt: skip
    assert "groups" not in bakeoff("compare", "t.csv", "--metric", "points").stdout


def test_groups_of_tasks_count_where_seeds_are_crossed_too(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(18)
    shared = [1.6, -0.6, 1.4, -0.4, 1.1, 0.2, -0.9, 1.2]
    write([
        {"agent": agent, "task": f"t{task}", "repo": f"r{task % 8}", "seed": seed,
         "points": round((agent == "y") * shared[task % 8] + 0.3 * rng.normal(), 3)}
        for agent in "xy" for task in range(48) for seed in range(6)
    ])  # fmt: skip
    by_both = bakeoff("compare", "t.csv")
    assert by_both.exit_code == 3 and "8 groups by 'repo'" in by_both.stdout and "by group" in by_both.stdout
    assert bakeoff("compare", "t.csv", "--cluster", "none").exit_code == 0
    assert bakeoff("calibrate", "t.csv").exit_code == 0
    alone = bakeoff("calibrate", "t.csv", "--cluster", "none")
    assert alone.exit_code == 1 and "whole groups of tasks by 'repo'" in alone.stdout


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("one arm", "seeds 0 and 5; 1 and 6; 2 and 7 of x have equal values"),
        ("tasks", "tasks t0 and t6; t1 and t7; t2 and t8 have equal values"),
        ("arms", "points of x and y is equal to the last digit in 6 of 10 runs"),
    ],
)
def test_copies_that_are_not_of_whole_seeds_are_labelled(bakeoff: Bakeoff, kind: str, label: str) -> None:
    values = np.random.default_rng(19).normal(size=(2, 12)).round(4)
    of_place = {
        "one arm": lambda place, n: values[place, n % 5 if place == 0 else n],
        "tasks": lambda place, n: values[place, n % 6],
        "arms": lambda place, n: values[0 if n < 6 else place, n],
    }[kind]
    name = ("task", "t{}") if kind == "tasks" else ("seed", "{}")
    write([
        {"agent": agent, name[0]: name[1].format(n), "points": of_place(place, n)}
        for place, agent in enumerate("xy") for n in range(12 if kind == "tasks" else 10)
    ])  # fmt: skip
    assert label in bakeoff("compare", "t.csv").stdout
    assert "have equal values" not in bakeoff("compare", "t.csv", "--copies", "keep").stdout


def test_scores_of_two_decimals_that_agree_by_chance_are_not_labelled(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(22)
    level = rng.normal(size=12)
    write([
        {"agent": f"a{arm}", "task": f"t{task}", "seed": 2 * task + run, "points": round(0.5 + 0.15 * (level[task] + rng.normal()), 2)}
        for arm in range(30) for task in range(12) for run in range(2)
    ])  # fmt: skip
    assert "equal to the last digit" not in bakeoff("compare", "t.csv", "--verbose").stdout
