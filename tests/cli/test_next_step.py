"""`Next:` depends on what was decided and on what the source can do, and never on words that were written before."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]

WORK = """
def play(ctx, lift=0.0, spread=0.1):
    hard = {"easy": 0.0, "hard": 5.0}.get(str(ctx.task), 0.0)
    return {"score": hard + lift + spread * float(ctx.rng("noise", own=True).normal())}
"""
FILE = """
name = "trial"
workload = "python"
jobs = 1
seeds = "{seeds}"
params = {{ function = "work:play" }}
{tasks}
[[arms]]
name = "old"
[[arms]]
name = "new"
params = {{ lift = 1.0 }}
[analysis]
metric = "score"
{analysis}
"""
TASKS = '[[tasks]]\nname = "easy"\n[[tasks]]\nname = "hard"'


def run(bakeoff: Bakeoff, seeds: str, tasks: str = "", analysis: str = "") -> None:
    Path("work.py").write_text(WORK)
    Path("trial.toml").write_text(FILE.format(seeds=seeds, tasks=tasks, analysis=analysis))
    result = bakeoff("run", "trial.toml", "--fresh")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "given",
    ["on these tasks only: undecided", "trained on 'a' (these tasks only): no verdict"],
)
def test_free_text_in_the_file_does_not_change_the_advice(bakeoff: Bakeoff, given: str) -> None:
    run(bakeoff, "1..6", TASKS, f'seeds = "nested"\ntasks = "fixed"\ngiven = "{given}"')
    told = json.loads(bakeoff("compare", "trial", "--json").stdout)
    assert [each["verdict"] for each in told["comparisons"]] == ["better"]
    population = f"for tasks like these 2, {given} (unit: task, N = 2)"
    assert told["next"] == f"{population} it is undecided (too few); more tasks would tell"


def test_a_table_with_too_few_units_is_not_told_to_run_anything(bakeoff: Bakeoff) -> None:
    Path("t.csv").write_text("arm,seed,score\na,1,1\na,2,2\nb,1,2\nb,2,4\n")
    told = json.loads(bakeoff("compare", "t.csv", "--json").stdout)
    assert told["next"] == "at least 1 more seed would be needed: fewer than 3 units decide nothing"


def test_an_edition_with_too_few_units_is_told_the_command(bakeoff: Bakeoff) -> None:
    run(bakeoff, "1..2")
    told = json.loads(bakeoff("compare", "trial", "--json").stdout)
    assert told["next"] == (
        "run at least 1 more seed: fewer than 3 units decide nothing; add them to trial.toml, then `bakeoff run trial.toml`"
    )


def test_an_edition_whose_file_is_gone_is_not_told_to_run(bakeoff: Bakeoff) -> None:
    run(bakeoff, "1..2")
    Path("trial.toml").unlink()
    assert "`bakeoff run" not in json.loads(bakeoff("compare", "trial", "--json").stdout)["next"]


def test_missing_runs_are_run_again_where_they_can_be_and_wanted_from_a_table_otherwise(bakeoff: Bakeoff) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{arm},{seed},{lift + rng.normal()}" for arm, lift in (("a", 0.0), ("b", 3.0)) for seed in range(8)]
    Path("t.csv").write_text("\n".join(["arm,seed,score", *rows[:-3]]) + "\n")
    told = json.loads(bakeoff("compare", "t.csv", "--json").stdout)
    assert told["comparisons"][0]["reason"] == "missing"
    assert told["next"] == "up to 3 missing runs keep a comparison open: their values have to be in the results"
    text = bakeoff("compare", "t.csv", "--verbose").stdout
    assert not re.search(r"^Next: .*\brun\b", text, re.MULTILINE)


def test_an_unfinished_edition_is_told_what_finishes_it(bakeoff: Bakeoff) -> None:
    run(bakeoff, "1..2")
    file = Path("trial.toml")
    file.write_text(file.read_text().replace("1..2", "1..5"))
    assert bakeoff("run", "trial.toml", "--only", "seed < 4").exit_code == 0
    told = json.loads(bakeoff("compare", "trial", "--json").stdout)
    assert told["next"] == (
        "planned runs are still open: `bakeoff run trial.toml` finishes them, and there is no verdict before that"
    )
