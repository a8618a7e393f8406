"""litmus: campaign logs as a shell expands them, experiments that really ran, and files that are wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]
SEEDS = (42, 101, 202, 303, 404, 505, 606, 707)
BASE, CANDIDATE = "maxrl+gtpo_hicra", "maxrl+gtpo_sepa"


def write_campaign(place: Path, lift: float, steps: int = 30) -> tuple[list[str], list[str]]:
    """Two conditions of a training campaign; the names of their directories, as a shell expands `*_s*`."""
    for condition, extra in ((BASE, 0.0), (CANDIDATE, lift)):
        for seed in SEEDS:
            directory = place / "logs/campaign/runs" / f"{condition}_s{seed}"
            (directory / "emergence").mkdir(parents=True)
            level, noise = 0.45 + random.Random(seed).gauss(0, 0.01) + extra, random.Random(f"{condition}{seed}")
            metrics, counts = [], []
            for step in range(steps):
                correct = sum(noise.random() < level for _ in range(64))
                metrics.append({"step": step, "condition": condition, "mean_reward": correct / 64, "loss": 1.0})
                counts.append({"step": step, "correct_count": correct, "total_count": 64, "condition": condition})
            (directory / "metrics.jsonl").write_text("\n".join(map(json.dumps, metrics)))
            (directory / "emergence/steps.jsonl").write_text("\n".join(map(json.dumps, counts)))
    return (
        sorted(str(path) for path in (place / "logs/campaign/runs").glob(f"{BASE}_s*")),
        sorted(str(path) for path in (place / "logs/campaign/runs").glob(f"{CANDIDATE}_s*")),
    )


def test_the_command_of_the_campaign_guide_works_as_it_is_written(bakeoff: Bakeoff, tmp_path: Path) -> None:
    base, candidate = write_campaign(tmp_path, 0.2)
    files = ["--output", "litmus.json", "--markdown", "litmus.md"]
    result = bakeoff("litmus", "--baseline", *base, "--candidate", *candidate, *files)
    assert result.exit_code == 0 and result.stdout.startswith("CONFIRMED")
    found = json.loads((tmp_path / "litmus.json").read_text())
    assert found["status"] == "CONFIRMED" and found["baseline"]["run_count"] == 8
    assert found["baseline"]["total_completions"] == 8 * 30 * 64
    assert {check["metric"]: check["passed"] for check in found["checks"]} == {
        "mean_reward": True,
        "correct_rate": True,
    }
    assert found["version"] and found["rules"]["evidence"]["min_steps"] == 8
    page = (tmp_path / "litmus.md").read_text()
    assert page.startswith("# Litmus `training`: CONFIRMED") and "| mean_reward |" in page
    for told in (result.stdout, page):
        assert "no run of either arm logs 'gram_entropy_delta'" in told


def test_no_lift_fails_and_short_runs_are_inconclusive(bakeoff: Bakeoff, tmp_path: Path) -> None:
    base, candidate = write_campaign(tmp_path, 0.0)
    assert bakeoff("litmus", "--baseline", *base, "--candidate", *candidate).exit_code == 1
    short = [tmp_path / "short_s1", tmp_path / "short_s2"]
    for directory in short:
        directory.mkdir()
        (directory / "metrics.jsonl").write_text('{"step": 0, "mean_reward": 1.0}\n')
    result = bakeoff("litmus", "--baseline", base[0], "--candidate", *short)
    assert result.exit_code == 3 and "1 step, 8 needed" in result.stdout


RULES = """
[evidence]
min_runs = 5
[[rules]]
metric = "mean_reward"
min_lift = 0.01
verdict = "better"
"""


def test_a_file_can_ask_for_the_paired_verdict(bakeoff: Bakeoff, tmp_path: Path) -> None:
    base, candidate = write_campaign(tmp_path, 0.05)
    (tmp_path / "rules.toml").write_text(RULES)
    result = bakeoff("litmus", "rules.toml", "--baseline", *base, "--candidate", *candidate, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["checks"][0]["verdict"] == "better"
    swapped = bakeoff("litmus", "rules.toml", "--baseline", *candidate, "--candidate", *base)
    assert swapped.exit_code == 1 and "verdict worse" in swapped.stdout
    few = bakeoff("litmus", "rules.toml", "--baseline", *base[:4], "--candidate", *candidate[:4])
    assert few.exit_code == 3 and "baseline: 4 runs, 5 needed" in few.stdout


def test_a_campaigns_directory_has_its_arms_by_name(bakeoff: Bakeoff, tmp_path: Path) -> None:
    write_campaign(tmp_path, 0.2)
    result = bakeoff("litmus", "logs/campaign", "--baseline", BASE, "--candidate", CANDIDATE)
    assert result.exit_code == 0 and f"{BASE}: 8 runs" in result.stdout


@pytest.mark.slow
def test_an_experiment_is_judged_by_its_arms(bakeoff: Bakeoff, tmp_path: Path, laboratory_root: Path) -> None:
    root = laboratory_root
    (tmp_path / "train-rules.toml").write_text(
        '[evidence]\nmin_runs = 10\nmin_steps = 20\nmin_completions = 320\n'
        '[[rules]]\nmetric = "overview/reward"\nmin_lift = 0.01\nsummary = { type = "auc" }\nverdict = "better"\n'
        '[[rules]]\nmetric = "final"\nat_least = 1.0\n'
    )  # fmt: skip
    result = bakeoff("litmus", "train-rules.toml", "train", "--root", root)
    assert result.exit_code == 0, result.output
    assert "old: 10 runs, 200 steps, 3200 completions" in result.stdout
    assert "which arm is the candidate?" in bakeoff("litmus", "bench", "--root", root).stderr
    assert "no arm called 'best'" in bakeoff("litmus", "bench", "--candidate", "best", "--root", root).stderr
    assert "no run of either arm logs 'mean_reward'" in bakeoff("litmus", "train", "--root", root).stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "which runs?"),
        (("--baseline", "x"), "which runs?"),
        (("missing.toml", "--baseline", "x", "--candidate", "y"), "no such file"),
        (("--baseline", "x", "--candidate", "y"), "x: neither a directory"),
    ],
)
def test_calls_that_name_no_runs_or_no_rules_are_told_so(
    bakeoff: Bakeoff, arguments: tuple[str, ...], told: str
) -> None:
    result = bakeoff("litmus", *arguments)
    assert result.exit_code == 2 and told in result.stderr


def test_an_unknown_key_is_told_with_its_line(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES.replace("min_lift", "min_lft"))
    result = bakeoff("litmus", "rules.toml", "--baseline", "x", "--candidate", "y")
    assert result.exit_code == 2 and "rules.toml:6" in result.stderr and "did you mean 'min_lift'?" in result.stderr


def test_the_profile_can_be_printed_and_used(bakeoff: Bakeoff, tmp_path: Path) -> None:
    base, candidate = write_campaign(tmp_path, 0.2)
    printed = bakeoff("litmus", "--print-profile")
    (tmp_path / "own.toml").write_text(printed.stdout)
    assert bakeoff("litmus", "own.toml", "--baseline", *base, "--candidate", *candidate).exit_code == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("condition", ["min_lift = 0.5", "at_least = 9.0", "at_most = -9.0"])
def test_an_undecided_verdict_leaves_its_rule_open_whatever_the_means_are(
    bakeoff: Bakeoff, tmp_path: Path, seed: int, condition: str
) -> None:
    """Nothing tells the arms apart, so a threshold that the means miss fails nobody."""
    noise = random.Random(seed)
    rows = [f"{arm},{unit},{noise.gauss(0, 1):.4f}" for unit in range(8) for arm in "ab"]
    (tmp_path / "table.csv").write_text("\n".join(["arm,seed,score", *rows]))
    rule = f'[[rules]]\nmetric = "score"\nverdict = "better"\n{condition}\n'
    (tmp_path / "rules.toml").write_text(rule)
    arguments = ["table.csv", "--baseline", "a", "--candidate", "b"]
    assert bakeoff("compare", "table.csv").exit_code == 3
    result = bakeoff("litmus", "rules.toml", *arguments)
    assert result.exit_code == 3 and result.stdout.startswith("INCONCLUSIVE")
    assert "is open" in result.stdout
    # Another rule that does not hold still fails.
    (tmp_path / "rules.toml").write_text(f'{rule}[[rules]]\nmetric = "score"\nname = "level"\nat_least = 9.0\n')
    assert bakeoff("litmus", "rules.toml", *arguments).exit_code == 1
