"""`bakeoff market train`: play, learn, play worlds that training never saw, and decide by a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.records.layout import experiments

Bakeoff = Callable[..., Result]
SMALL = ("--windows-per-iteration", "64", "--min-agents", "5", "--iterations", "3", "--held-out", "24")


@pytest.mark.slow
def test_the_trained_policy_beats_its_starting_point_and_momentum_in_worlds_it_never_saw(
    bakeoff: Bakeoff, tmp_path: Path
) -> None:
    result = bakeoff("market", "train", *SMALL, "--json")
    told = json.loads(result.stdout)
    assert [(one["control"], one["verdict"]) for one in told["verdicts"]] == [
        ("start", "better"),
        ("momentum", "better"),
    ]
    assert result.exit_code == 0
    assert [facts["step"] for facts in told["iterations"]] == [1, 2, 3]
    assert told["iterations"][-1]["greedy_reward"] > 0
    assert (tmp_path / "market-training/learning.svg").read_bytes().startswith(b"<?xml")
    assert (
        json.loads((tmp_path / "market-training/policy.json").read_text())["policy_version"] == told["policy_version"]
    )

    # The verdict is that of an ordinary experiment, which every other verb can look at.
    assert experiments(tmp_path / "bakeoff-runs") == [told["experiment"]]
    compared = bakeoff(
        "compare", told["experiment"], "--control", "momentum", "--arms", "trained", "--expect", "better"
    )
    assert compared.exit_code == 0

    # Again: everything is there already, and nothing is run twice.
    again = bakeoff("market", "train", *SMALL)
    assert again.exit_code == 0
    assert "continuing after iteration 3" in again.stdout and "iteration 1/3" not in again.stdout
    assert again.stdout.count("Better: trained against") == 2

    other = bakeoff("market", "train", *SMALL, "--learning-rate", "0.5")
    assert other.exit_code == 2
    assert "trained with other settings" in other.stderr


@pytest.mark.parametrize("wrong", [("--min-agents", "1"), ("--perpetuals", "0"), ("--tier", "soft")])
def test_what_cannot_be_trained_is_refused(bakeoff: Bakeoff, wrong: tuple[str, str]) -> None:
    result = bakeoff("market", "train", *wrong)
    assert result.exit_code == 2
    assert result.stderr
