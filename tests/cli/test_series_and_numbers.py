"""Metrics that are series, numbers, or both; evaluations that are few; arms that must match."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.records.series import read_block
from bakeoff.results import editions

Bakeoff = Callable[..., Result]


def write_run(place: Path, arm: str, seed: int, steps: list[dict]) -> None:
    directory = place / "runs" / f"{arm}_s{seed}"
    directory.mkdir(parents=True)
    (directory / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


def facts(result: Result) -> dict:
    assert result.exit_code in (0, 3), result.output + result.stderr
    return json.loads(result.stdout)


EXPERIMENT = """
name = "both"
seeds = 7
[params]
command = "sh PLACE/work.sh {level} {seed} {dir}"
[[arms]]
name = "old"
[arms.params]
level = 0
parameters = 1000
[[arms]]
name = "new"
[arms.params]
level = 1
parameters = 1030
[analysis]
metric = "reward"
"""
WORK = """
for step in 0 1 2 3 4 5 6 7 8 9; do echo "{\\"step\\": $step, \\"reward\\": $1.$2$step}"; done > $3/metrics.jsonl
if [ "$1$2" = "$SILENT" ]; then number=""; else number="\\"reward\\": -$1.$2, "; fi
echo "{$number\\"tokens\\": 10$2}" > $3/metrics.json
"""


@pytest.fixture
def both(bakeoff: Bakeoff, tmp_path: Path) -> Callable[..., None]:
    """Two arms of 7 runs with a series `reward`, a number `reward` that points the other way, and a number `tokens`."""

    def run(silent: str = "none", more: str = "") -> None:
        (tmp_path / "both.toml").write_text(EXPERIMENT.replace("PLACE", str(tmp_path)) + more)
        (tmp_path / "work.sh").write_text(WORK.replace("$SILENT", silent))
        done = bakeoff("run", "both.toml")
        assert done.exit_code == 0, done.output + done.stderr

    return run


def test_exploring_beside_a_summary_takes_numbers_as_they_are(bakeoff: Bakeoff, both: Callable[..., None]) -> None:
    both()
    found = facts(bakeoff("compare", "both", "--summary", "final", "--explore", "--json"))
    assert [line["metric"] for line in found["exploratory"]] == ["tokens"]


def test_a_series_and_a_number_of_one_name_are_told_apart(bakeoff: Bakeoff, both: Callable[..., None]) -> None:
    both()
    number, series = (bakeoff("compare", "both", *how, "--json") for how in ((), ("--summary", "final")))
    effects = [facts(each)["comparisons"][0]["effect"] for each in (number, series)]
    assert effects[0] < 0 < effects[1]
    assert "the number counts here, and a summary takes the series" in number.stdout
    assert "the number counts here" not in series.stdout


def test_series_are_not_read_once_it_is_known_that_they_differ_from_the_number(
    bakeoff: Bakeoff, both: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    both()
    blocks: list[bytes] = []
    monkeypatch.setattr(editions, "read_block", lambda block: blocks.append(block) or read_block(block))
    assert bakeoff("compare", "both").exit_code == 0
    assert len(blocks) == 1


def test_a_run_that_has_only_the_series_is_not_a_failed_run(bakeoff: Bakeoff, both: Callable[..., None]) -> None:
    both(silent="13")
    mixed = bakeoff("compare", "both")
    assert mixed.exit_code == 2 and "only as a series" in mixed.stderr and "--summary" in mixed.stderr


def test_the_final_value_of_few_evaluations_is_not_averaged_with_early_ones(bakeoff: Bakeoff, tmp_path: Path) -> None:
    for arm, level in (("old", 0.0), ("new", 1.0)):
        for seed in range(6):
            # Four evaluations; the new arm is worse at first and better at the end.
            values = [level * -9, level * -3, level * -1, level * 2 + seed / 100]
            write_run(tmp_path, arm, seed, [{"step": 100 * i, "accuracy": v} for i, v in enumerate(values)])
    names = ["--baseline", *(f"runs/old_s{s}" for s in range(6)), "--candidate", *(f"runs/new_s{s}" for s in range(6))]
    how = ["compare", *names, "--metric", "accuracy", "--summary", "final", "--json"]
    assert facts(bakeoff(*how))["comparisons"][0]["effect"] == pytest.approx(2.0)
    assert facts(bakeoff(*how, "--last", "4"))["comparisons"][0]["effect"] == pytest.approx(-11 / 4)


def test_an_arm_that_never_logs_a_metric_is_named_by_the_radial_plot(bakeoff: Bakeoff, tmp_path: Path) -> None:
    rows = [f"{arm},{seed},{seed},{seed + 1},{'' if arm == 'b' else seed}" for arm in "ab" for seed in range(4)]
    (tmp_path / "table.csv").write_text("\n".join(["arm,seed,speed,score,memory", *rows]))
    metrics = [word for name in ("speed", "score", "memory") for word in ("--metric", name)]
    result = bakeoff("plot", "radial", "table.csv", *metrics, "--output", "radial.png")
    assert result.exit_code == 2
    assert "no run of 'b' reports 'memory'" in result.stderr and "failed" not in result.stderr


def test_an_equivalent_arm_is_not_called_insufficient_evidence(bakeoff: Bakeoff, tmp_path: Path) -> None:
    rows = [f"{arm},{seed},{seed + (arm == 'b') * (seed % 3 - 1) / 100}" for arm in "ab" for seed in range(12)]
    (tmp_path / "table.csv").write_text("\n".join(["arm,seed,score", *rows]))
    result = bakeoff("compare", "table.csv", "--margin", "1")
    assert "Equivalent" in result.stdout and "insufficient_statistical_evidence" not in result.stdout


@pytest.mark.parametrize(("tolerance", "fair"), [("0.05", True), ("0.01", False)])
def test_arms_may_match_within_a_share(bakeoff: Bakeoff, both: Callable[..., None], tolerance: str, fair: bool) -> None:
    both(more=f"matched = {{parameters = {tolerance}}}\n")
    text = bakeoff("compare", "both", "--json").stdout
    assert ("not a fair comparison: parameters must be matched between arms within" in text) is not fair


def test_a_metric_that_is_only_a_series_is_called_one_and_its_summary_may_be_a_word(
    bakeoff: Bakeoff, tmp_path: Path
) -> None:
    work = 'for step in 0 1 2; do echo "{\\"step\\": $step, \\"reward\\": $1.$step}"; done > $3/metrics.jsonl\n'
    (tmp_path / "work.sh").write_text(work)
    (tmp_path / "both.toml").write_text(EXPERIMENT.replace("PLACE", str(tmp_path)))
    done = bakeoff("run", "both.toml")
    assert done.exit_code == 0 and "logged 'reward' by step only; [analysis.summary] makes one number" in done.stdout
    asked = bakeoff("compare", "both")
    assert asked.exit_code == 2 and "runs log 'reward' by step only; --summary final" in asked.stderr
    for word, code in (("final", 0), ("finally", 2)):
        (tmp_path / "both.toml").write_text(EXPERIMENT.replace("PLACE", str(tmp_path)) + f'summary = "{word}"\n')
        checked = bakeoff("validate", "both.toml")
        assert checked.exit_code == code, checked.stderr
    assert "must be 'auc', 'final'" in checked.stderr
