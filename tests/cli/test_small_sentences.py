"""What commands say at the moments at which a newcomer meets them: logs, tables of a gate, SQL errors, methods."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]

CURVES = """
workload = "python"
seeds = 8
params.function = "curve:work"
[[arms]]
name = "slow"
params.pace = 1
[[arms]]
name = "fast"
params.pace = 2
[analysis]
metric = "accuracy"
summary = {{ type = "{summary}", last = 1 }}
"""
CURVE = """
def work(ctx, pace):
    for step in range(1, 5):
        ctx.log(step, accuracy=pace * (step + ctx.seed / 100))
    return {"samples": 7}
"""


@pytest.fixture
def curves(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "curve.py").write_text(CURVE)
    (tmp_path / "curves.toml").write_text(CURVES.format(summary="final"))
    assert bakeoff("run", "curves.toml").exit_code == 0


@pytest.mark.usefixtures("curves")
def test_the_judged_metric_is_a_column_also_where_it_is_a_summary_of_a_series(bakeoff: Bakeoff) -> None:
    assert bakeoff("collect").exit_code == 0
    (table,) = Path("bakeoff-runs").glob("curves/2*/aggregate/runs.csv")
    with table.open() as file:
        values = {(row["arm"], int(row["seed"])): float(row["accuracy"]) for row in csv.DictReader(file)}
    assert values == pytest.approx(
        {(arm, seed): pace * (4 + seed / 100) for arm, pace in (("slow", 1), ("fast", 2)) for seed in range(8)}
    )


@pytest.mark.usefixtures("curves")
def test_compare_power_variance_and_rank_take_the_newest_experiment_and_gate_a_name(bakeoff: Bakeoff) -> None:
    for verb in ("compare", "power", "variance", "rank", "summarize"):
        done = bakeoff(verb, *(["--summary", "final"] if verb == "rank" else []))
        assert done.exit_code in (0, 3) and "accuracy" in done.stdout, f"{verb}: {done.stdout}{done.stderr}"
    refused = bakeoff("gate", "--max-regression", "accuracy=1")
    assert refused.exit_code == 2 and "name what is judged" in refused.stderr


def test_power_without_anything_to_plan_from_says_so(bakeoff: Bakeoff) -> None:
    done = bakeoff("power")
    assert (
        done.exit_code == 2
        and "a SOURCE of earlier runs, --sd, or --rate; no experiment has been run here" in done.stderr
    )


@pytest.mark.usefixtures("curves")
def test_errors_of_sql_are_one_line_without_the_plan_of_the_query(bakeoff: Bakeoff) -> None:
    for sql in ("SELECT nope FROM runs", "SELECT arm FROM run", "SELEC arm FROM runs"):
        done = bakeoff("query", sql)
        assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "plan" not in done.stderr, done.stderr
        assert done.stderr.count("the table is called runs, and its columns are experiment") == 1


@pytest.mark.usefixtures("curves")
def test_a_method_that_does_not_fit_says_why_and_the_others_are_shown(bakeoff: Bakeoff) -> None:
    done = bakeoff("compare", "--method", "cluster", "--method", "welch", "--method", "tost", "--verbose")
    assert done.exit_code in (0, 3), done.stderr
    assert "--method cluster clusters by task, so it needs several tasks" in " ".join(done.stdout.split())
    assert "welch" in done.stdout


@pytest.mark.usefixtures("curves")
def test_the_table_of_a_gate_says_what_is_allowed_and_what_was_found(bakeoff: Bakeoff) -> None:
    done = bakeoff("gate", "curves", "--max-regression", "accuracy=0.5")
    assert re.search(r"\| at least -0.5 allowed, \+[\d.]+ at worst \| holds \|", done.stdout), done.stdout
    broken = bakeoff("gate", "curves", "--control", "fast", "--max-regression", "accuracy=0.5")
    assert re.search(r"\| at least -0.5 allowed, -[\d.]+ at best \| broken \|", broken.stdout), broken.stdout


def test_summarize_takes_the_metric_that_its_error_asks_for(bakeoff: Bakeoff, tmp_path: Path) -> None:
    text = """seeds = 3\nparams.command = ['echo', '{{"first": {seed}, "second": 2}}']\n"""
    (tmp_path / "two.toml").write_text(text)
    assert bakeoff("run", "two.toml").exit_code == 0
    asked = bakeoff("summarize")
    assert asked.exit_code == 2 and "--metric" in asked.stderr
    assert "mean second" in bakeoff("summarize", "--metric", "second").stdout


TALKER = """
[params.agents.talker]
command = "echo I have looked at the task"
wire = "none"
version = "1"
"""


@pytest.mark.slow
@pytest.mark.apt
def test_logs_of_a_rollout_are_what_its_agent_wrote(bakeoff: Bakeoff, tmp_path: Path) -> None:
    bakeoff("init", "--template", "tasks")
    text = (tmp_path / "tasks.toml").read_text() + TALKER
    (tmp_path / "tasks.toml").write_text(text.replace('agent = "nop"', 'agent = "talker"'))
    small = ("--set", "rollouts=1", "--only", "arm=nop", "--only", "task=slug-words")
    assert bakeoff("run", "tasks.toml", *small).exit_code == 0
    shown = bakeoff("logs", "nop__slug-words")
    assert (shown.exit_code, shown.stdout) == (0, "I have looked at the task\n"), shown.stderr
    assert bakeoff("logs", "nop__slug-words", "--stderr").exit_code == 1
