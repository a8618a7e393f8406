"""Values that are probably not what they seem get a note, and ordinary ones do not."""

from __future__ import annotations

import numpy as np
import pytest

from bakeoff.results.table import Row
from bakeoff.verdicts.observations import Observation
from bakeoff.verdicts.plausibility import always_first, doubts


def scored(values: dict[str, list[float]]) -> list[Observation]:
    return [
        Observation(arm, f"t{number}", None, 0, "scored", value)
        for arm, column in values.items()
        for number, value in enumerate(column)
    ]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0.3, -1.0, 0.8, -1.0, 0.5], "2 values of score are -1 and all others are 0.3 or more"),
        ([12.0, 15.0, 9999.0, 9999.0], "2 values of score are 9999 and all others are 15 or less"),
    ],
)
def test_a_number_that_stands_for_no_value_is_named(values: list[float], told: str) -> None:
    [sentence] = doubts("score", scored({"a": values}))
    assert sentence.startswith(told)


@pytest.mark.parametrize(
    "values", [[-1.0, 0.0, 1.0, -1.0], [-1.0, -1.0, -2.0, 3.0], [0.5, 0.2, -1.0], [980.0, 999.0, 999.0]]
)
def test_ordinary_values_at_such_numbers_are_left_alone(values: list[float]) -> None:
    assert doubts("score", scored({"a": values})) == []


def test_shares_beside_per_cent_are_told_and_ordinary_differences_are_not() -> None:
    shares, per_cent = [0.71, 0.8, 0.64], [71.0, 80.0, 64.0]
    [sentence] = doubts("accuracy", scored({"old": shares, "new": per_cent}))
    assert "accuracy of old lies between 0 and 1 and that of new between 0 and 100" in sentence
    assert doubts("accuracy", scored({"old": shares, "new": [0.9, 0.95, 1.0]})) == []
    assert doubts("return", scored({"old": [0.1, 0.4, 0.9], "new": [2.0, 3.0, 2.5]})) == []


def attempts(rng: np.random.Generator, until_success: bool) -> list[Observation]:
    rows = []
    for task in range(30):
        for number in range(4 if until_success else int(rng.integers(1, 5))):
            success = float(rng.random() < 0.4)
            rows.append(Observation("a", f"t{task}", None, number, "scored", success))
            if until_success and success:
                break
    return rows


def test_attempts_that_stop_at_the_first_success_are_told_and_unequal_rollouts_are_not() -> None:
    rng = np.random.default_rng(0)
    [sentence] = doubts("solved", attempts(rng, until_success=True))
    assert "attempts at a task end with the first success" in sentence
    assert all(doubts("solved", attempts(rng, until_success=False)) == [] for _ in range(200))


@pytest.mark.parametrize(("late", "told"), [("b", True), (None, False)])
def test_an_arm_that_ran_before_the_others_is_told(late: str | None, told: bool) -> None:
    rng = np.random.default_rng(3)
    rows = [
        Row(arm, f"t{task}", started_at=float(rng.random()) + (100.0 if arm == late else 0.0))
        for task in range(40)
        for arm in ("a", "b")
    ]
    assert [sentence.startswith("a started before") for sentence in always_first(rows)] == ([True] if told else [])
