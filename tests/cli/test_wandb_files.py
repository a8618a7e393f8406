"""Files that W&B's client wrote offline (scripts/make-fixtures-trackers.py), read without its package."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.results.importers.foreign import ForeignRun
from bakeoff.results.importers.wandb_runs import Wandb
from bakeoff.results.sources import open_results

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "wandb"
METRIC = ("--metric", "eval/reward", "--failure-score", "0", "--direction", "maximize")


@pytest.fixture(autouse=True)
def _without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)


def test_arm_task_seed_and_outcome_are_those_of_group_configuration_and_exit_record(tmp_path: Path) -> None:
    rows = open_results([str(FIXTURES)], tmp_path).rows
    statuses = {(row.arm, row.task, row.seed): row.status for row in rows}
    expected = {(arm, "maze", seed): "succeeded" for arm in ("old", "new") for seed in range(4)}
    assert statuses == expected | {("new", "maze", 3): "failed", ("old", "maze", 3): "infra_error"}


def test_the_means_are_those_of_arithmetic_and_what_was_lost_is_said(bakeoff: Bakeoff) -> None:
    # The reward is step/10 + seed/4 at steps 0 to 40, so its mean over steps is 2 + seed/4; `new` has 0.5 + seed/8 more.
    # The resumed run has 9 more before step 20: (9.5 + 10.5)/2, (10.5 + 2.5)/2, 3 and 4 in its four intervals.
    answer = json.loads(bakeoff("compare", FIXTURES, *METRIC, "--json").stdout)
    [comparison] = answer["comparisons"]
    assert comparison["control_mean"] == pytest.approx((2 + 2.25 + (10 + 6.5 + 3 + 4) / 4) / 3)
    assert (comparison["units"], comparison["missing"], comparison["failed"]) == (4, 1, 1)
    shown = bakeoff("compare", FIXTURES, *METRIC).stdout
    assert "1 of 8 runs have no exit record" in shown and "1 of 8 runs were resumed" in shown


def test_every_series_is_read_with_its_steps_and_nan(tmp_path: Path) -> None:
    [run] = [row for row in open_results([str(FIXTURES)], tmp_path).rows if (row.arm, row.seed) == ("new", 1)]
    assert sorted(run.series) == ["eval/reward", "inner/x", "loss"]
    steps, values = run.series["eval/reward"]
    assert list(steps) == [0, 10, 20, 30, 40] and list(values) == [step / 10 + 0.25 + 0.625 for step in steps]
    assert [value != value for value in run.series["loss"][1]] == [False, False, False, True, False]


def one_file(seed: int = 0) -> Path:
    for path in sorted(FIXTURES.glob("*/*.wandb")):
        run = next(iter(Wandb().read([path])))
        if isinstance(run, ForeignRun) and (run.seed, run.labels["arm"]) == (seed, "old"):
            return path
    raise AssertionError("no such run")


def test_a_file_that_grows_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    content = one_file().read_bytes()
    growing = tmp_path / "run.wandb"
    lengths = []
    for size in (len(content) * 3 // 4, len(content)):
        growing.write_bytes(content[:size])
        [row] = open_results([str(growing)], tmp_path).rows
        lengths.append((len(row.series["loss"][0]), row.status))
    assert lengths[0][0] < 5 and lengths == [(lengths[0][0], "infra_error"), (5, "succeeded")]


@pytest.mark.parametrize(("change", "reason"), [
    (lambda content: b"", "not a file that wandb wrote"), (lambda content: b'{"a": 1}' * 20, "not a file that wandb wrote"),
    (lambda content: content[:60], "has no run in it"),
    (lambda content: content[:900] + bytes([content[900] ^ 1]) + content[901:], "a checksum does not match"),
])  # fmt: skip
def test_a_damaged_file_is_one_line_and_exit_2(
    bakeoff: Bakeoff, tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    (tmp_path / "run.wandb").write_bytes(change(one_file().read_bytes()))
    result = bakeoff("compare", "run.wandb")
    assert result.exit_code == 2 and result.stderr.splitlines() == [result.stderr.strip()]
    assert "run.wandb" in result.stderr and reason in result.stderr


def test_the_directory_in_which_runs_were_started_is_read_as_well(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES, tmp_path / "project" / "wandb")
    assert len(open_results([str(tmp_path / "project")], tmp_path).rows) == 8


def test_curves_are_drawn_without_an_option_and_say_which_metric(bakeoff: Bakeoff) -> None:
    drawn = bakeoff("plot", "curves", FIXTURES, "-o", "curves.html", "--json")
    assert drawn.exit_code == 0, drawn.stderr
    assert "eval/reward is the first of 3 logged metrics" in json.loads(drawn.stdout)["caption"]
