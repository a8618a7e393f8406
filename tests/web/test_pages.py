"""What pages show of results, whoever ran them: disagreements, flaky cells, curves, and what a run wrote."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bakeoff.results.sources import open_results
from bakeoff.results.table import Results, Row
from bakeoff.spec.experiment import Analysis
from bakeoff.web.ansi import coloured
from bakeoff.web.contents import Contents
from bakeoff.web.curves import clocks, log_ticks, picture
from bakeoff.web.data import column
from bakeoff.web.drawing import Picture
from bakeoff.web.figure import Band, Line, Panel
from bakeoff.web.outcomes import Tasks, by_difficulty
from bakeoff.web.run import run_parts
from bakeoff.web.site import site_of

FIXTURES = Path(__file__).parent.parent / "fixtures"


def contents_of(rows: list[Row], **analysis: object) -> Contents:
    return Contents(Results(rows, "made", analysis=Analysis.model_validate(analysis)))


def solved(arm: str, task: str, *values: int | None, seed: int | None = None) -> list[Row]:
    """One rollout for each value; None for one that was lost."""
    return [
        Row(
            arm, task, seed, rollout=n, run_id=f"{arm}-{task}-{seed}-{n}", metrics={} if value is None else {"solved": value},
            status="infra_error" if value is None else "succeeded",
        )
        for n, value in enumerate(values)
    ]  # fmt: skip


def test_disagreements_are_where_arms_pass_differently_the_largest_first_and_missing_is_no_failure() -> None:
    rows = [
        *solved("a", "both", 1, 1), *solved("b", "both", 1, 1),
        *solved("a", "half", 1, 0), *solved("b", "half", 1, 1),
        *solved("a", "all", 1, 1), *solved("b", "all", 0, 0),
        *solved("a", "lost", 1, 1), *solved("b", "lost", None, None),
    ]  # fmt: skip
    tasks = Tasks(contents_of(rows, metric="solved"))
    assert [each.task for each in tasks.disagreements] == ["all", "half"]
    assert {arm: cell.text for arm, cell in tasks.outcomes.by_task()["lost"].items()} == {
        "a": "2 of 2",
        "b": "2 missing",
    }
    assert {task: cells["a"].is_flaky for task, cells in tasks.outcomes.by_task().items()} == {
        "both": False, "half": True, "all": False, "lost": False,
    }  # fmt: skip
    shown = tasks.disagreements[0].shown(3)
    assert [rows[run.at].arm for run in shown] == ["a", "b"]


def test_of_many_arms_those_are_shown_that_disagree() -> None:
    rows = [row for n in range(9) for row in solved(f"arm{n}", "t", int(n == 4))]
    (only,) = Tasks(contents_of(rows, metric="solved")).disagreements
    shown = [rows[run.at].arm for run in only.shown(3)]
    assert len(shown) == 3 and "arm4" in shown


def test_numbers_disagree_by_their_difference_and_an_arm_that_failed_comes_first() -> None:
    rows = [
        Row(arm, "t", seed, run_id=f"{arm}{seed}", metrics={} if value is None else {"loss": value}, status="failed" if value is None else "succeeded")
        for seed, values in enumerate([(1.0, 1.5), (1.0, 4.0), (1.0, None), (2.0, 2.0)])
        for arm, value in zip("ab", values, strict=True)
    ]  # fmt: skip
    tasks = Tasks(contents_of(rows, metric="loss", direction="minimize"))
    assert [each.seed for each in tasks.disagreements] == [2, 1, 0]
    assert tasks.outcomes.by_unit["t", 2]["b"].text == "- (1 failed)"


def test_tasks_stand_from_the_hardest_to_the_easiest_whichever_direction_is_better() -> None:
    rows = [
        Row("a", task, 0, run_id=task, metrics={"m": value}) for task, value in (("x", 2.0), ("y", 9.0), ("z", 5.0))
    ]
    for direction, order in (("maximize", ["x", "z", "y"]), ("minimize", ["y", "z", "x"])):
        found = Tasks(contents_of(rows, metric="m", direction=direction)).outcomes
        assert by_difficulty(found.by_task(), found.larger_is_better) == order


@pytest.mark.parametrize(("source", "word"), [("inspect/skill", "4+1"), ("harbor/models", "Transcript")])
def test_what_was_said_in_another_tools_runs_is_a_part_of_them(source: str, word: str, tmp_path: Path) -> None:
    contents = Contents(open_results([str(FIXTURES / source)], tmp_path))
    parts = [{part.title: part.html for part in run_parts(run)} for run in contents.runs]
    said = [each for each in parts if "Transcript" in each]
    assert said
    assert any(word in f"{each}" for each in said)


def test_a_source_with_only_scores_says_so(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("model,task,solved\na,x,1\nb,x,0\na,y,1\nb,y,1\n")
    site = site_of(Contents(open_results([str(tmp_path / "scores.csv")], tmp_path)))
    assert "Only scores." in site.html("disagreements") and "on 1 of 2 tasks" in site.html("disagreements")


def test_a_column_sorts_as_its_values_and_not_as_their_texts() -> None:
    made = column("m", [10.0, 9.5, None, math.nan, 100_000.0, "n/a", 9.5])
    assert made["texts"] == ["9.5", "10", "100,000", "nan", "n/a"] and made["at"] == [1, 0, -1, 3, 2, 4, 0]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("\x1b[1;31mred\x1b[0m plain", [("red", "a1 bold"), (" plain", "")]),
        ("\x1b[38;5;196mred\x1b[39m\x1b]0;title\x07!", [("red", "a1"), ("!", "")]),
        ("\x1b[38;2;0;0;250mblue", [("blue", "a4")]),
        ("\x1b[48;5;3;32mgreen\x1b[2Jstays", [("greenstays", "a2")]),
        ("cut \x1b[31", [("cut 31", "")]),
        ("a\u202eb", [("a\\u202eb", "")]),
    ],
)
def test_colours_of_a_terminal_stay_and_everything_else_goes(text: str, pieces: list[tuple[str, str]]) -> None:
    assert coloured(text) == pieces


def test_what_a_run_wrote_is_text_also_in_one_line_of_ten_million_letters(tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").write_text("<script>alert(1)</script>" + "x" * 10_000_000)
    (tmp_path / "stderr.txt").write_text("<img src=x onerror=alert(1)>\x1b[31m red \u202egnp.exe")
    parts = {part.title: part.html for part in run_parts(Row("a", run_id="r", directory=tmp_path))}
    assert len(parts["stdout.txt"]) < 30_000 and "the end of 10,000,025 bytes" in parts["stdout.txt"]
    assert "&lt;img src=x" in parts["stderr.txt"] and "\\u202e" in parts["stderr.txt"]
    assert "<img" not in parts["stderr.txt"] and '<span class="a1">' in parts["stderr.txt"]


def trainings(**more: object) -> Contents:
    """Two arms and three seeds; rewards by step, with tokens as a clock."""
    steps = np.arange(1.0, 41.0)
    rows = [
        Row(
            arm, "t", seed, run_id=f"{arm}{seed}", metrics={"final": 1.0},
            series={"reward": (steps, level * np.sqrt(steps) + seed), "tokens_seen": (steps, 100.0 * steps * level), "noise_time": (steps, -steps)},
        )
        for arm, level in (("a", 1.0), ("b", 2.0))
        for seed in range(3)
    ]  # fmt: skip
    return contents_of(rows, metric="final", **more)


def test_a_clock_is_a_series_that_never_falls() -> None:
    assert clocks(trainings(), ["reward", "tokens_seen", "noise_time"]) == ["tokens_seen"]


def test_curves_are_drawn_by_tokens_and_on_logarithmic_axes_with_ticks_that_name_values() -> None:
    drawn = picture(trainings(), "reward", "tokens_seen", "x")
    assert isinstance(drawn, Picture)
    panel = drawn.figure.panels[0]
    assert isinstance(panel, Panel)
    assert panel.x_label == "tokens_seen" and ("1000" in dict((text, at) for at, text in panel.x_ticks or ()))
    lines = [mark for mark in panel.marks if isinstance(mark, Line) and mark.label == "b"]
    assert lines[0].x.max() == pytest.approx(math.log10(8000)) and any(isinstance(mark, Band) for mark in panel.marks)


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [(0, 4, ["1", "10", "100", "1000", "10,000"]), (0, 1, ["1", "3", "10"]), (-2, 0, ["0.01", "0.1", "1"])],
)
def test_logarithmic_ticks_are_round(low: float, high: float, texts: list[str]) -> None:
    assert [text for _, text in log_ticks(low, high)] == texts


def test_a_narrow_logarithmic_axis_still_has_ticks() -> None:
    assert len(log_ticks(2.001, 2.1)) >= 3
