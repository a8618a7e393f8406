"""Several editions of one experiment, combined: which case applies, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from bakeoff.cli import main
from bakeoff.errors import UsageError
from bakeoff.results.editions import open_all_editions
from bakeoff.stats.sequential import symmetric_log_e
from bakeoff.verdicts.answer import answer
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.sequential.evidence_path import SequentialReport, path_of
from support import editions

SAME = {"commit": "a" * 40, "dirty": False, "diff": "", "branch": "main", "code": "1"}
OTHER = {**SAME, "commit": "b" * 40, "code": "2"}


def value(arm: str, seed: int, shift: float = 1.5) -> float:
    return shift * (arm == "new") + float(np.random.default_rng([seed, *map(ord, arm)]).normal())


def edition(
    place: Path,
    seeds: str,
    number: int,
    *,
    git: dict[str, Any] | None = SAME,
    files: dict[str, Any] | None = None,
    shift: float = 1.5,
    open_from: int = 10_000,
    more: str = "",
) -> None:
    text = (
        f"name = 'nights'\nseeds = '{seeds}'\nparams = {{ command = ['true'] }}\n[[arms]]\nname = 'old'\n"
        f"[[arms]]\nname = 'new'\nparams = {{ arguments = ['-x'] }}\n{more}[analysis]\nmetric = 'score'\n"
    )

    def became(arm: str, seed: int) -> editions.Outcome:
        if seed >= open_from and (arm == "new" or seed > open_from):
            return None
        return {"status": "succeeded", "metrics": {"score": value(arm, seed, shift)}}

    editions.make_edition(
        place, "nights", became, text=text, told=editions.provenance(place, git=git, files=files or {}), files=False,
        stamp=editions.START + 3600.0 * number,
    )  # fmt: skip


def combined(place: Path) -> tuple[SequentialReport, Comparison]:
    with closing(open_all_editions(["nights"], place / "bakeoff-runs")) as results:
        report = answer(results, Compare(editions="all")).sequential
    assert report is not None
    (comparison,) = report.comparisons
    return report, comparison


def differences(seeds: range | list[int], shift: float = 1.5) -> np.ndarray:
    return np.array([value("new", seed, shift) - value("old", seed) for seed in seeds])


def test_editions_of_the_same_code_and_plan_are_one_e_process_in_order_of_time(tmp_path: Path) -> None:
    edition(tmp_path, "10..15", 0)
    edition(tmp_path, "0..5", 1)
    report, one = combined(tmp_path)
    assert path_of(one).seeds == (*range(10, 16), *range(6))
    expected = symmetric_log_e(differences([*range(10, 16), *range(6)]))[0]
    assert path_of(one).paths.better == pytest.approx(expected)
    assert path_of(one).threshold == 40.0 and (one.verdict == "better") == (expected.max() >= math.log(40.0))
    assert "same code and plan" in report.case and report.case in report.sentences


def test_editions_of_other_code_are_multiplied_by_their_last_e_values(tmp_path: Path) -> None:
    edition(tmp_path, "0..9", 0)
    edition(tmp_path, "10..19", 1, git=OTHER, shift=3.0)
    report, one = combined(tmp_path)
    last = [float(symmetric_log_e(d)[0][-1]) for d in (differences(range(10)), differences(range(10, 20), 3.0))]
    assert path_of(one).paths.better[-1] == pytest.approx(sum(last))
    assert one.verdict == "better" and "in at least one edition" in one.sentence
    assert "commit aaaaaaaaaa became bbbbbbbbbb" in report.case and not one.interval.is_bounded


def test_outside_of_git_the_digests_of_files_tell_whether_the_code_is_the_same(tmp_path: Path) -> None:
    def code(digest: str) -> dict[str, Any]:
        return {"files": {"train.py": [digest, 0.0]}, "incomplete": False}

    edition(tmp_path, "0..7", 0, git=None, files=code("1"))
    edition(tmp_path, "8..15", 1, git=None, files=code("1"))
    assert "same code and plan" in combined(tmp_path)[0].case
    edition(tmp_path, "16..23", 2, git=None, files=code("2"))
    assert "editions that differ (train.py differs)" in combined(tmp_path)[0].case


@pytest.mark.parametrize("change", ["plan", "unknown"])
def test_another_plan_or_unknown_code_is_not_taken_for_the_same(tmp_path: Path, change: str) -> None:
    git = None if change == "unknown" else SAME
    edition(tmp_path, "0..7", 0, git=git)
    edition(tmp_path, "8..15", 1, git=git, more="[[arms]]\nname = 'third'\n" if change == "plan" else "")
    with closing(open_all_editions(["nights"], tmp_path / "bakeoff-runs")) as results:
        report = answer(results, Compare.ask(editions="all", arms=("new",))).sequential
    assert report is not None
    assert "at least one edition" in report.case
    assert path_of(report.comparisons[0]).threshold == (80.0 if change == "plan" else 40.0)


def test_repeated_seeds_are_not_combined(tmp_path: Path) -> None:
    edition(tmp_path, "0..7", 0)
    edition(tmp_path, "7..15", 1)
    result = CliRunner().invoke(
        main, ["compare", "nights", "--editions", "all", "--root", str(tmp_path / "bakeoff-runs")]
    )
    assert result.exit_code == 2 and "have both run seed 7" in result.output and "--fresh --set seeds" in result.output


def test_what_an_aborted_edition_began_counts_and_what_it_left_open_is_missing(tmp_path: Path) -> None:
    """Seed 5 has one of two runs: it may have been given up because of it. Seeds 6 and 7 were never begun."""
    edition(tmp_path, "0..7", 0, open_from=5)
    edition(tmp_path, "6..15", 1)
    _, one = combined(tmp_path)
    assert path_of(one).seeds == (*range(6), *range(6, 16)) and one.missing == 1
    assert np.isnan(path_of(one).differences[5]) and not np.isnan(path_of(one).differences[6:]).any()


def test_the_command_says_which_case_applies_in_text_and_json(tmp_path: Path) -> None:
    edition(tmp_path, "0..9", 0)
    edition(tmp_path, "10..29", 1)
    call = ["compare", "nights", "--editions", "all", "--root", str(tmp_path / "bakeoff-runs")]
    text = CliRunner().invoke(main, [*call, "--verbose"])
    said = " ".join(text.output.split())  # lines are wrapped
    assert text.exit_code == 0 and "one e-process over all their units" in said
    shown = json.loads(CliRunner().invoke(main, [*call, "--json"]).output)["sequential"]
    assert shown["case"] in said and shown["comparisons"][0]["pairs"] == 30
    refused = CliRunner().invoke(main, [*call, "--unpaired"])
    assert refused.exit_code == 2 and "pair by pair" in refused.output


def test_only_one_experiment_can_be_combined(tmp_path: Path) -> None:
    edition(tmp_path, "0..7", 0)
    with pytest.raises(UsageError, match="one experiment by its name"):
        open_all_editions(["nights:old", "nights:new"], tmp_path / "bakeoff-runs")


@pytest.mark.parametrize("case", ["same", "other"])
def test_combining_after_each_edition_keeps_the_error_rate(case: str) -> None:
    """A verdict may be read after each of five editions of 8 pairs; the functions are those of the report."""
    rng = np.random.default_rng(3)
    d = rng.normal(size=(2_000, 40))
    paths: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] = symmetric_log_e
    if case == "same":
        looks = np.stack([np.maximum(*paths(d))[:, : 8 * n].max(axis=-1) for n in range(1, 6)])
    else:
        last = np.stack([[side[:, -1] for side in paths(d[:, 8 * n : 8 * n + 8])] for n in range(5)])
        looks = np.cumsum(last, axis=0).max(axis=1)
    wrong = float((looks >= math.log(40.0)).any(axis=0).mean())
    assert wrong <= 0.05
