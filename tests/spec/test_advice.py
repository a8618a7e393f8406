"""Mistakes in a plan that could run are said before anything does."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.spec.advice import advice
from bakeoff.spec.load import load_plan

TWO_ARMS = '[[arms]]\nname = "a"\nparams = {{ lr = {0} }}\n[[arms]]\nname = "b"\nparams = {{ lr = {1} }}\n'
DIFFERENT = TWO_ARMS.format(0.1, 0.2)


def said(place: Path, text: str, **files: str) -> str:
    """What is said of an experiment file, with these files beside it."""
    for name, content in files.items():
        (place / f"{name}.py").write_text(content)
    (place / "x.toml").write_text(text)
    return "\n".join(advice(load_plan(place / "x.toml")))


def of_command(place: Path, command: str, arms: str = DIFFERENT, seeds: str = "8", **files: str) -> str:
    return said(place, f"seeds = {seeds}\nparams.command = {command}\n{arms}", **files)


def of_function(place: Path, source: str, arms: str = DIFFERENT, seeds: str = "8", **files: str) -> str:
    text = f'workload = "python"\nseeds = {seeds}\nparams.function = "w:work"\n{arms}'
    return said(place, text, w=source, **files)


GOOD = '["python3", "t.py", "{lr}", "{seed}"]'


def test_nothing_is_said_of_a_plan_that_uses_all_it_has(tmp_path: Path) -> None:
    assert of_command(tmp_path, GOOD) == ""
    assert of_function(tmp_path, "def work(ctx, lr):\n    return lr + ctx.rng().random()\n") == ""


def test_a_single_run_of_each_arm_is_told_to_have_seeds(tmp_path: Path) -> None:
    assert "every arm has a single run" in of_command(tmp_path, GOOD, seeds="[3]")
    assert "set seeds" not in of_command(tmp_path, GOOD, seeds="[3]\nrollouts = 2")


def test_seeds_and_parameters_without_a_placeholder_are_named(tmp_path: Path) -> None:
    text = of_command(tmp_path, '"tool train"')
    assert "the seed is not used: the command has no {seed}, and no script here reads the variable BAKEOFF_SEED" in text
    assert "8 seeds repeat the same run" in text
    assert "the parameter lr is not used: the command has no {lr}" in text


@pytest.mark.parametrize(
    "script",
    [
        "import os\nos.environ['BAKEOFF_SEED'], os.environ['BAKEOFF_PARAM_LR']\n",
        "import os, json\njson.load(open(os.environ['BAKEOFF_PARAMS_FILE']))\n",
        "import os\ndef value(name):\n    return os.environ['BAKEOFF_' + name]\n",
    ],
)
@pytest.mark.parametrize("module", ["t", "beside"])
def test_scripts_that_read_variables_use_them(tmp_path: Path, script: str, module: str) -> None:
    assert of_command(tmp_path, '"python3 t.py"', **{"t": "import beside\n", module: script}) == ""


def test_flags_are_all_parameters_and_not_the_seed(tmp_path: Path) -> None:
    text = of_command(tmp_path, '["tool", "{flags}"]')
    assert "parameter" not in text and "the seed is not used" in text


def test_identical_arms_are_named_unless_the_command_knows_its_arm(tmp_path: Path) -> None:
    same = TWO_ARMS.format(0.1, 0.1)
    assert "arms a and b are identical" in of_command(tmp_path, GOOD, same)
    assert "identical" not in of_command(tmp_path, '["tool", "{arm}", "{lr}", "{seed}"]', same)
    assert "identical" in of_function(tmp_path, "def work(seed, lr):\n    return lr * seed\n", same)
    assert "identical" not in of_function(tmp_path, "def work(ctx, lr):\n    return ctx.arm, ctx.seed, lr\n", same)


def test_arguments_that_a_function_never_reads_are_named(tmp_path: Path) -> None:
    text = of_function(tmp_path, "def work(lr):\n    return 1\n")
    assert "the parameter lr is not used: the function has an argument lr and never reads it" in text
    assert "the seed is not used: the function reads neither ctx.seed nor an argument seed" in text


@pytest.mark.parametrize(
    "source",
    [
        "import random\ndef work(lr):\n    return lr + random.random()\n",
        "from beside import draw\ndef work(lr):\n    return lr + draw()\n",
        "import numpy as np\ndef work(lr):\n    return lr\n",
        "def work(ctx, lr):\n    return helper(ctx, lr)\n",
        "def work(**settings):\n    return settings\n",
        "work = print\n",
    ],
)
def test_nothing_is_said_where_a_function_may_depend_on_its_seed(tmp_path: Path, source: str) -> None:
    assert of_function(tmp_path, source, beside="import random\ndef draw():\n    return random.random()\n") == ""


def test_a_context_that_is_used_for_logs_alone_is_no_seed(tmp_path: Path) -> None:
    assert "the seed is not used" in of_function(tmp_path, "def work(ctx, lr):\n    ctx.log(1, x=lr)\n")


def test_shipped_workloads_take_notice_of_everything(tmp_path: Path) -> None:
    arms = '[[arms]]\nname = "a"\nparams.agent = "null"\n[[arms]]\nname = "b"\nparams.agent = "{}"\n'
    assert said(tmp_path, 'workload = "market"\nseeds = 4\n' + arms.format("random")) == ""
    assert "arms a and b are identical" in said(tmp_path, 'workload = "market"\nseeds = 4\n' + arms.format("null"))
