"""Runs of other tools are exported where their source holds what was said in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bakeoff.export.exporting import export
from bakeoff.export.rollouts import Filters
from bakeoff.results.importers.foreign import Message, Source, Transcript
from bakeoff.results.table import Results, Row


def said(answer: str) -> Transcript:
    return lambda _: [Message("user", "What is 6 x 7?"), Message("assistant", answer)]


@pytest.fixture
def results() -> Results:
    answers = {("small", 0): "41", ("small", 1): "42", ("large", 0): "42", ("large", 1): "42"}
    source = Source(Path("evals.json"))
    rows = [
        Row(
            arm,
            "arithmetic",
            rollout=rollout,
            metrics={"score": float(answer == "42")},
            source=source,
            transcript=said(answer),
        )
        for (arm, rollout), answer in answers.items()
    ]
    return Results([*rows, Row("large", "arithmetic", rollout=2, metrics={"score": 1.0})], "evals.json")


def test_what_was_said_becomes_conversations_and_runs_without_it_are_counted(results: Results, tmp_path: Path) -> None:
    summary = export(results, "trl-sft", Filters(success=True), output=tmp_path / "sft.jsonl")
    assert (summary.experiment, summary.edition, summary.rollouts) == ("evals.json", "", 3)
    assert summary.dropped["no trajectory"] == 1
    lines = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text().splitlines()]
    assert {line["arm"] for line in lines} == {"small", "large"}
    assert {line["completion"][0]["content"] for line in lines} == {"42"}


def test_rollouts_of_two_arms_are_never_one_group(results: Results, tmp_path: Path) -> None:
    summary = export(results, "trl-grpo", Filters(), output=tmp_path / "grpo.jsonl")
    assert (summary.groups, summary.rollouts, summary.equal_groups) == (2, 4, 1)
