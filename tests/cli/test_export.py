"""export: recorded trajectories as training data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.cli import export as verb
from bakeoff.export.exporting import FORMATS
from bakeoff.records.edition import Edition
from support.experiments import run_talks

Bakeoff = Callable[..., Result]


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_talks(tmp_path_factory.mktemp("talks"))


def test_the_choice_of_formats_is_what_can_be_written() -> None:
    assert set(verb.FORMATS) == set(FORMATS)


@pytest.mark.slow
def test_export_says_what_it_wrote_and_what_it_left_out(bakeoff: Bakeoff, talks: Path, tmp_path: Path) -> None:
    result = bakeoff("export", "talks", "--root", talks, "--format", "trl-sft", "-o", tmp_path / "sft.jsonl")
    assert result.exit_code == 0
    first, *others = result.stdout.splitlines()
    assert first == f"wrote: {tmp_path / 'sft.jsonl'} rows=83 rollouts=36 groups=8"
    assert "left out: 12 runs, no LLM messages (--render writes observations and actions as a conversation)" in others


def test_export_as_json_is_a_summary_and_nothing_else(bakeoff: Bakeoff, talks: Path, tmp_path: Path) -> None:
    asked = ["--format", "jsonl", "--arms", "chat", "numeric", "--tasks", "add", "--reward-quantile", "0.2:0.9"]
    result = bakeoff("export", "--root", talks, *asked, "--output", tmp_path / "steps.jsonl", "--json")
    told = json.loads(result.stdout)
    assert told["filters"]["quantile"] == [0.2, 0.9]
    assert told["rows"] == len((tmp_path / "steps.jsonl").read_text().splitlines()) > 0
    assert told["dropped"]["another arm"] == 24 and told["dropped"]["another task"] == 12
    assert told["rollouts"] + sum(told["dropped"].values()) == 48


def test_nothing_left_is_an_exit_code(bakeoff: Bakeoff, talks: Path, tmp_path: Path) -> None:
    result = bakeoff(
        "export", "talks", "--root", talks, "--format", "art", "--min-group", 7, "-o", tmp_path / "a.jsonl"
    )
    assert result.exit_code == 1
    assert "nothing is left to export" in result.stderr
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize("wrong", ["best", "0.9:0.1", "-1", "0.5:2"])
def test_quantiles_that_are_none_are_refused(bakeoff: Bakeoff, talks: Path, wrong: str) -> None:
    result = bakeoff("export", "talks", "--root", talks, "--format", "jsonl", f"--reward-quantile={wrong}")
    assert result.exit_code == 2 and "quantile" in result.stderr


def test_an_experiment_without_trajectories_has_nothing_to_export(
    bakeoff: Bakeoff, make_edition: Callable[..., Edition]
) -> None:
    make_edition("sorting")
    result = bakeoff("export", "sorting", "--format", "jsonl")
    assert result.exit_code == 1
    assert "left out: 6 runs, no trajectory" in result.stdout
