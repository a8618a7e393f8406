"""Tables that would give a false verdict are refused or labelled, with the reason and the flag that repairs it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]
RNG = np.random.default_rng(1)


def write(rows: Sequence[dict[str, Any]], name: str = "t.csv") -> None:
    with Path(name).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("name", ["train_epoch", "Step", "time_s"])
def test_rows_of_one_training_are_not_repeats(bakeoff: Bakeoff, name: str) -> None:
    write([{"arm": arm, name: 1.5 * i, "acc": i + 9 * (arm == "b")} for arm in "ab" for i in range(20)])
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 3
    assert f"step from {name}" in result.stdout and "area under its curve" in result.stdout


def test_a_time_of_each_run_is_a_metric_that_needs_a_direction(bakeoff: Bakeoff) -> None:
    write([{"arm": arm, "seed": s, "time_s": RNG.random() + (arm == "b")} for arm in "ab" for s in range(9)])
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2
    assert "--direction time_s=minimize or --direction time_s=maximize" in result.stderr
    assert "Worse: b" in bakeoff("compare", "t.csv", "--direction", "minimize").stdout


@pytest.mark.parametrize("name", ["trial", "job"])
def test_repeats_that_are_one_policy_on_every_task_are_refused(bakeoff: Bakeoff, name: str) -> None:
    rng = np.random.default_rng(5)
    luck = {(arm, trial): rng.normal() for arm in "ab" for trial in range(5)}
    rows = [
        {"arm": arm, "task": f"t{task}", name: trial + 7 * (name == "job" and arm == "b"), "score": luck[arm, trial] + 0.2 * rng.normal()}
        for arm in "ab" for trial in range(5) for task in range(12)
    ]  # fmt: skip
    write(rows)
    call = ("compare", "t.csv", "--metric", "score")
    refused = bakeoff(*call, "--rollout-from", name)
    assert refused.exit_code == 2 and f"Say --seed-from {name} if it is" in refused.stderr
    if name == "trial":
        assert bakeoff(*call).stderr == refused.stderr, "the name alone says that it numbers repeats"
        assert "seeds like these 5" in bakeoff(*call, "--seed-from", name).stdout
    assert "unit: task" in bakeoff(*call, "--ignore", name).stdout
    write([row | {"score": row[name] % 7 + rng.normal()} for row in rows])  # later repeats are better in both arms
    assert bakeoff(*call, "--rollout-from", name).exit_code == (3 if name == "trial" else 2)


def test_an_unknown_counter_is_refused_with_both_spellings(bakeoff: Bakeoff) -> None:
    write([{"arm": arm, "tokens_seen": 1000.0 * i, "acc": RNG.random()} for arm in "ab" for i in range(20)])
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2
    assert "--step-from tokens_seen" in result.stderr and "--rollout-from tokens_seen" in result.stderr


def test_rows_of_one_checkpoint_are_not_independent(bakeoff: Bakeoff) -> None:
    write([
        {"arm": arm, "checkpoint": f"{arm}{run}", "task": f"t{task}", "score": RNG.random() + run}
        for arm in "ab" for run in range(4) for task in range(12)
    ])  # fmt: skip
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2 and "column 'checkpoint' names runs" in result.stderr
    fixed = bakeoff(
        "compare", "t.csv", "--seed-from", "checkpoint", "--seeds", "crossed", "--unpaired", "--tasks", "fixed"
    )
    assert fixed.exit_code == 3 and "unit: seed, N = 4 per arm" in fixed.stdout
    both = ("--seed-from", "checkpoint", "--seeds", "crossed", "--unpaired")
    judged = bakeoff("compare", "t.csv", *both)
    assert judged.exit_code == 3 and "for tasks like these 12 and runs like these, 4 per arm" in judged.stdout
    calibrated = bakeoff("calibrate", "t.csv", *both)
    assert calibrated.exit_code == 0 and "8 runs" in calibrated.stdout


def test_one_checkpoint_for_each_arm_is_labelled(bakeoff: Bakeoff) -> None:
    write([{"arm": arm, "checkpoint": arm, "task": f"t{t}", "score": RNG.random()} for arm in "ab" for t in range(12)])
    assert "the verdict is about these runs only" in bakeoff("compare", "t.csv").stdout


@pytest.mark.parametrize(
    ("verb", "metric"),
    [("compare", "val_loss"), ("compare", "latency_ms"), ("compare", "costUSD"), ("rank", "error_rate")],
)
def test_less_of_it_may_be_better_and_nobody_said_so(bakeoff: Bakeoff, verb: str, metric: str) -> None:
    write([{"arm": arm, "seed": s, metric: RNG.random()} for arm in "ab" for s in range(6)])
    result = bakeoff(verb, "t.csv")
    assert result.exit_code == 2 and f"--direction {metric}=minimize" in result.stderr
    assert bakeoff(verb, "t.csv", "--direction", f"{metric}=minimize").exit_code in (0, 3)


def test_a_rate_per_second_is_better_when_larger(bakeoff: Bakeoff) -> None:
    write([{"arm": arm, "seed": s, "tokens_per_s": RNG.random()} for arm in "ab" for s in range(6)])
    assert "more tokens_per_s is better (assumed)" in bakeoff("compare", "t.csv").stdout


def test_copied_seeds_are_refused_and_a_deterministic_arm_is_not(bakeoff: Bakeoff) -> None:
    rows = [{"arm": arm, "seed": s, "score": RNG.random()} for arm in "ab" for s in range(6)]
    write([*rows, *({**row, "seed": row["seed"] + 6} for row in rows)])
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2 and "seeds 0 and 6; 1 and 7; 2 and 8 have equal values" in result.stderr
    assert bakeoff("compare", "t.csv", "--copies", "keep").exit_code != 2
    write([{"arm": arm, "seed": s, "score": RNG.random() if arm == "b" else 0.5} for arm in "ab" for s in range(6)])
    assert bakeoff("compare", "t.csv").exit_code != 2
    write(
        [{"arm": arm, "task": t, "seed": s, "success": int(t < 3)} for arm in "ab" for t in range(5) for s in range(6)]
    )
    assert bakeoff("compare", "t.csv").exit_code != 2


def test_a_verdict_has_to_hold_by_groups_of_tasks_too(bakeoff: Bakeoff) -> None:
    shift = [1.0, 1.2, -0.6, 0.9, -0.5, 1.1, 0.8, -0.4]
    write([
        {"arm": arm, "task": f"t{t}", "repo": f"r{t // 8}", "score": RNG.normal(0, 0.1) + shift[t // 8] * (arm == "b")}
        for arm in "ab" for t in range(64)
    ])  # fmt: skip
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 3 and "(cluster)" in bakeoff("compare", "t.csv", "--verbose").stdout
    assert "8 groups by 'repo'" in result.stdout
    assert "Better: b" in bakeoff("compare", "t.csv", "--cluster", "none").stdout
    assert bakeoff("compare", "t.csv", "--cluster", "repo").exit_code == 3


def test_a_column_that_numbers_rows_inside_a_prompt_is_not_proposed_as_the_task(bakeoff: Bakeoff) -> None:
    rows = [
        {"model": arm, "testIdx": 3 * q + k, "prompt": f"p{q}", "score": RNG.random(), "error": "rate limit" if k else ""}
        for arm in "ab" for q in range(8) for k in range(3)
    ]  # fmt: skip
    write(rows)
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2 and "--task-from prompt --rollout-from testIdx" in result.stderr
    fixed = bakeoff("compare", "t.csv", "--task-from", "prompt", "--rollout-from", "testIdx")
    assert "32 of 48 rows have a value in column 'error'" in fixed.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("{nope", "is not JSON"), ('{"a": 1}', "is a JSON object with 'a'"),
     ('{"results": [{"x": 1}]}', "holds lists of objects under 'results' (1)")],
)  # fmt: skip
def test_a_json_file_is_looked_into(bakeoff: Bakeoff, text: str, message: str) -> None:
    Path("r.json").write_text(text)
    result = bakeoff("compare", "r.json")
    assert result.exit_code == 2 and message in result.stderr


def test_a_json_list_of_rows_is_a_table(bakeoff: Bakeoff) -> None:
    Path("r.json").write_text('[{"arm": "a", "seed": 1, "score": 1}, {"arm": "b", "seed": 1, "score": 2}]')
    assert "arm from arm, seed from seed" in bakeoff("compare", "r.json").stdout


# -- repeats that are rows of one curve


def curves(steps: int, groups: int = 4) -> list[dict[str, Any]]:
    """Random walks that return to their mean: neighbours are alike, and nothing in the table says so."""
    rows = []
    for arm in "ab":
        for seed in range(groups):
            value = 0.0
            for trial in range(steps):
                value = 0.9 * value + RNG.normal()
                rows.append({"arm": arm, "seed": seed, "trial": trial, "score": value})
    return rows


@pytest.mark.parametrize("verb", ["compare", "rank", "variance", "power", "summarize"])
def test_repeats_that_are_a_curve_are_refused_with_the_fix(bakeoff: Bakeoff, verb: str) -> None:
    write(curves(30))
    result = bakeoff(verb, "t.csv")
    assert result.exit_code == 2 and "Say --step-from trial" in result.stderr and "--ignore trial" in result.stderr
    assert "step from trial" in bakeoff("compare", "t.csv", "--step-from", "trial").stdout
    assert bakeoff("compare", "t.csv", "--ignore", "trial").exit_code != 2


def test_the_order_of_rows_says_nothing_and_independent_repeats_are_not_refused(bakeoff: Bakeoff) -> None:
    rows = curves(30)
    RNG.shuffle(rows)  # type: ignore[arg-type]
    write(sorted(rows, key=lambda row: row["score"]))
    assert "Say --step-from trial" in bakeoff("compare", "t.csv").stderr
    rows = [
        {"arm": a, "seed": s, "trial": t, "success": RNG.integers(2)} for a in "ab" for s in range(4) for t in range(20)
    ]
    write(sorted(rows, key=lambda row: row["success"]))
    assert bakeoff("compare", "t.csv").exit_code == 3


# -- rows that are no runs


@pytest.mark.parametrize(("name", "statistic"), [("Average", np.mean), ("macro avg", np.mean), ("total", np.sum)])
def test_a_row_that_is_the_mean_of_the_others_is_not_a_task(
    bakeoff: Bakeoff, name: str, statistic: Callable[..., float]
) -> None:
    scores = {arm: RNG.random(8).round(3) for arm in "ab"}
    rows = [{"arm": arm, "task": f"t{i}", "score": value} for arm in "ab" for i, value in enumerate(scores[arm])]
    summary = [{"arm": arm, "task": name, "score": round(float(statistic(scores[arm])), 3)} for arm in "ab"]
    write(rows + summary)
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2 and f"Remove the rows with task = {name}" in result.stderr
    write([*rows, *({**row, "score": 0.111} for row in summary)])
    assert f"task '{name}' is called like a summary" in bakeoff("compare", "t.csv").stdout


def test_a_mean_over_seeds_is_not_a_seed(bakeoff: Bakeoff) -> None:
    scores = {(arm, task): RNG.random(4).round(3) for arm in "ab" for task in "xyz"}
    rows = [
        {"arm": arm, "task": task, "seed": seed, "score": value}
        for (arm, task), values in scores.items()
        for seed, value in [*((str(i), v) for i, v in enumerate(values)), ("mean", round(float(values.mean()), 4))]
    ]
    write(rows)
    assert "seed 'mean' is not a run" in bakeoff("compare", "t.csv").stderr


# -- columns that split the rows of a run


def evenly(column: str, levels: Sequence[Any], value: str = "score") -> list[dict[str, Any]]:
    return [
        {"arm": arm, "task": f"t{task}", column: level, value: RNG.random()}
        for arm in "ab" for task in range(6) for level in levels
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "levels", "value", "fix"),
    [
        ("split", ["train", "test"], "score", "Keep the rows of one value, or say --ignore split"),
        ("judge", ["gpt", "claude"], "score", "or say --ignore judge"),
        ("few_shot", [True, False], "score", "or say --ignore few_shot"),
        ("temperature", [0.0, 0.7], "score", "or say --ignore temperature"),
        ("metric_name", ["acc", "loss"], "value", "rename the column to 'metric'"),
        ("scorer", ["acc", "f1", "loss"], "score", "rename the column to 'metric', and say --value-from score"),
        ("metric", ["acc", "loss"], "score", "say --value-from score"),
    ],
)
def test_a_setting_that_splits_every_run_is_not_averaged_over(
    bakeoff: Bakeoff, column: str, levels: list[Any], value: str, fix: str
) -> None:
    write(evenly(column, levels, value))
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2 and f"column '{column}'" in result.stderr and fix in result.stderr
    assert (
        bakeoff("compare", "t.csv", "--ignore", column, "--value-from", value).exit_code in (0, 3) or column == "metric"
    )


def test_outcomes_with_two_values_are_not_settings(bakeoff: Bakeoff) -> None:
    rows = [
        {"arm": arm, "task": f"t{task}", "verdict": "AB"[k], "parsed": ["yes", "no"][k], "host": f"n{RNG.integers(2)}",
         "ok": bool(RNG.integers(2)), "score": RNG.random()}
        for arm in "ab" for task in range(8) for k in range(2)
    ]  # fmt: skip
    write(rows)
    assert bakeoff("compare", "t.csv").exit_code == 3


def test_two_values_of_one_run_name_the_columns_in_which_they_differ(bakeoff: Bakeoff) -> None:
    rows = [
        {"arm": arm, "seed": seed, "source": source, "score": RNG.random()}
        for arm in "ab" for seed in range(6) for source in ("log", "table")[: 1 + seed % 2]
    ]  # fmt: skip
    write(rows)
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2
    assert "'a' has 2 values for seed 1: the rows differ in 'source' (log, table)" in result.stderr
    assert "--ignore source" in result.stderr and bakeoff("compare", "t.csv", "--ignore", "source").exit_code != 2


# -- numbers that are no outcomes


@pytest.mark.parametrize("column", ["created_at", "ts", "x"])
def test_a_time_is_judged_only_if_it_is_named(bakeoff: Bakeoff, column: str) -> None:
    rows = [{"arm": arm, "seed": s, column: 1.7e9 + 1000 * s + 500 * (arm == "b")} for arm in "ab" for s in range(10)]
    write(rows)
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 2 and f"{column} only if named" in result.stderr
    write([{**row, "acc": RNG.random()} for row in rows])
    assert f"metrics acc; not judged unless named {column}" in bakeoff("compare", "t.csv").stdout


def test_sizes_and_spreads_beside_means_are_noted_and_not_judged(bakeoff: Bakeoff) -> None:
    write([
        {"arm": arm, "task": f"t{t}", "mean": RNG.random(), "acc_stderr": 0.1, "num_examples": 10 * t + 10}
        for arm in "ab" for t in range(8)
    ])  # fmt: skip
    result = bakeoff("compare", "t.csv")
    assert "on mean" in result.stdout and "column 'num_examples' is not used as a weight" in result.stdout
    assert "rows look like means of several runs (column 'acc_stderr')" in result.stdout
    assert "on num_examples" in bakeoff("compare", "t.csv", "--metric", "num_examples").stdout


def test_counts_out_of_unequal_totals_are_noted(bakeoff: Bakeoff) -> None:
    write([{"arm": arm, "task": t, "correct": 3 + t % 4, "total": 20 + t} for arm in "ab" for t in range(8)])
    assert "column 'correct' counts out of 'total'" in bakeoff("compare", "t.csv").stdout


def test_folds_share_training_data(bakeoff: Bakeoff) -> None:
    write([{"arm": arm, "cv_fold": fold, "score": RNG.random()} for arm in "ab" for fold in range(10)])
    result = bakeoff("compare", "t.csv", "--seed-from", "cv_fold")
    assert "they share training data" in result.stdout and "Nadeau and Bengio" in result.stdout


@pytest.mark.parametrize("metric", ["bits_per_byte", "num_errors", "hallucination_rate", "memory_mb", "p95", "ttft"])
def test_more_names_of_which_less_may_be_better(bakeoff: Bakeoff, metric: str) -> None:
    write([{"arm": arm, "seed": s, metric: RNG.random()} for arm in "ab" for s in range(6)])
    assert f"--direction {metric}=minimize" in bakeoff("compare", "t.csv").stderr


@pytest.mark.parametrize("metric", ["speed", "throughput_mb_s", "samples_per_second", "mean_reciprocal_rank", "tok_s"])
def test_rates_and_reciprocal_ranks_need_no_direction(bakeoff: Bakeoff, metric: str) -> None:
    write([{"arm": arm, "seed": s, metric: RNG.random()} for arm in "ab" for s in range(6)])
    assert f"more {metric} is better (assumed)" in bakeoff("compare", "t.csv").stdout


@pytest.mark.parametrize("verb", ["rank", "variance", "power"])
def test_copies_can_be_kept_wherever_they_are_refused(bakeoff: Bakeoff, verb: str) -> None:
    rows = [
        {"arm": arm, "seed": s, "step": t, "score": RNG.random()} for arm in "ab" for s in range(6) for t in range(4)
    ]
    write([*rows, *({**row, "seed": row["seed"] + 6} for row in rows)])
    result = bakeoff(verb, "t.csv")
    assert result.exit_code == 2 and "seeds 0 and 6" in result.stderr
    assert bakeoff(verb, "t.csv", "--copies", "keep").exit_code != 2


def test_an_epoch_is_a_step_and_the_answer_says_how_to_make_it_a_repeat(bakeoff: Bakeoff) -> None:
    rows = [
        {"model": model, "task": "gpqa", "sample_id": f"q{q}", "epoch": epoch, "score": RNG.integers(2)}
        for model in "ab" for q in range(12) for epoch in (1, 2, 3)
    ]  # fmt: skip
    write(rows)
    assert "--task-from sample_id" in bakeoff("compare", "t.csv").stderr
    read = bakeoff("compare", "t.csv", "--task-from", "sample_id")
    assert "steps of one run (assumed; --rollout-from epoch if it numbers repeats)" in read.stdout
    repeats = bakeoff("compare", "t.csv", "--task-from", "sample_id", "--rollout-from", "epoch")
    assert "rollout from epoch" in repeats.stdout and repeats.exit_code == 3


# -- healthy tables


def healthy() -> dict[str, list[dict[str, Any]]]:
    runs = [(arm, seed) for arm in "ab" for seed in range(6)]
    return {
        "reinforcement learning": [
            {"policy": arm, "env": env, "seed": seed, "return": RNG.normal(100, 20)}
            for arm, seed in runs for env in ("CartPole", "Hopper", "Ant")
        ],
        "language model": [
            {"model": model, "question": f"q{q}", "subject": "xyz"[q % 3], "predicted": "ABCD"[RNG.integers(4)],
             "gold": "ABCD"[q % 4], "correct": RNG.integers(2), "tokens": RNG.integers(900)}
            for model in "ab" for q in range(40)
        ],
        "W&B export": [
            {"Name": f"sunny-{i}", "State": "finished", "Created": f"2026-01-01T10:{i}0:00Z", "Notes": "", "model": arm,
             "lr": [0.1, 0.01][arm == "b"], "batch_size": 32, "seed": seed, "accuracy": RNG.random(), "_timestamp": 1.7e9 + 57 * i}
            for i, (arm, seed) in enumerate(runs)
        ],
        "pandas": [{"": i, "arm": arm, "seed": seed, "score": RNG.random()} for i, (arm, seed) in enumerate(runs)],
        "benchmark": [
            {"method": method, "dataset": d, "accuracy": round(RNG.uniform(60, 90), 1)}
            for method in "ab" for d in ("mnist", "cifar", "svhn", "stl", "usps", "emnist", "kmnist")
        ],
        "repeats": [
            {"arm": arm, "task": t, "seed": seed, "attempt": k, "score": RNG.random(), "verdict": ["pass", "fail"][k % 2]}
            for arm, seed in runs for t in range(3) for k in range(10)
        ],
    }  # fmt: skip


@pytest.mark.parametrize("name", healthy())
def test_ordinary_tables_are_not_refused(bakeoff: Bakeoff, name: str) -> None:
    write(healthy()[name])
    result = bakeoff("compare", "t.csv")
    assert result.exit_code in (0, 3), result.stderr


def test_a_run_until_decided_says_where_in_the_file_the_direction_goes(bakeoff: Bakeoff) -> None:
    arms = "".join(f'[[arms]]\nname = "{arm}"\nparams = {{ command = "echo {arm}" }}\n' for arm in "ab")
    Path("e.toml").write_text(f'workload = "command"\n{arms}[analysis]\nmetric = "latency_ms"\n')
    result = bakeoff("run", "e.toml", "--until-decided")
    assert result.exit_code == 2 and 'Set directions = { latency_ms = "minimize" }' in result.stderr
    assert "--direction" not in result.stderr
