"""`bakeoff report` of results that are in no edition gives the verdict that `compare` gives."""

from __future__ import annotations

import json
import random
import re
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner

from bakeoff.cli import main
from support.reports import given

COLUMNS = "arm,seed,score,latency_ms,status"


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve seeds of two systems, of which one run crashed."""
    monkeypatch.chdir(tmp_path)
    noise = random.Random(1)
    lines = [COLUMNS]
    for system in ("old", "new"):
        for seed in range(12):
            score = noise.random() + 0.6 * (system == "new")
            lines.append(f"{system},{seed},{score:.4f},{100 + seed},done")
    lines[-1] = "new,11,,,crashed"
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def invoke(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, done.output
    return done.output


def text_of(page: Path) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page.read_text())))


def test_the_report_of_a_table_has_the_verdict_of_compare(table: Path) -> None:
    asked = ("--metric", "score", "--failure-score", "0", "--control", "old")
    comparison = json.loads(invoke("compare", "scores.csv", *asked, "--json"))["comparisons"][0]
    told = json.loads(invoke("report", "scores.csv", *asked, "--json"))
    assert told["runs"] == 24 and told["problems"] == []
    assert [path.name for path in sorted(table.parent.iterdir())] == ["scores-report", "scores.csv"]
    page = text_of(table.parent / "scores-report" / "index.html")
    assert "24 planned, 23 succeeded, 1 failed, 0 missing" in page
    assert comparison["verdict"] == "better" and comparison["sentence"] in page
    assert "old__default__s0__r0" in given(table.parent / "scores-report/assets/run-ids.js")["ids"]


def test_the_report_of_a_table_says_why_there_is_no_verdict_as_compare_does(table: Path) -> None:
    reason = invoke("compare", "scores.csv", "--metric", "score", code=2).removeprefix("error: ").strip()
    assert "nothing says what a failure counts" in reason
    invoke("report", "scores.csv", "--metric", "score")
    assert reason in text_of(table.parent / "scores-report" / "index.html")


def test_columns_of_a_table_are_named_as_in_compare(table: Path) -> None:
    table.write_text(table.read_text().replace("arm", "colour", 1))
    assert "--arm-from" in invoke("report", "scores.csv", code=2)
    invoke("report", "scores.csv", "--metric", "score", "--arm-from", "colour")
    assert "2: old, new" in text_of(table.parent / "scores-report" / "index.html")


def test_a_plot_of_a_table_takes_the_names_of_its_columns_too(table: Path) -> None:
    table.write_text(table.read_text().replace("arm", "colour", 1).replace("new,11,,,crashed\n", ""))
    asked = ("scores.csv", "--metric", "score", "--arm-from", "colour", "-o", "runs.svg", "--json")
    told = json.loads(invoke("plot", "profiles", *asked))
    assert told["settings"]["arm_column"] == "colour" and "keep_duplicates" not in told["settings"]
    assert (table.parent / "runs.svg").stat().st_size > 0
