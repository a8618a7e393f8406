"""Seeds that are copies of each other are told from seeds that agree by accident."""

from __future__ import annotations

import numpy as np
import pytest

from bakeoff.results.table import Row
from bakeoff.verdicts import repeats
from bakeoff.verdicts.repeats import copied_seeds


def rows(values: np.ndarray) -> list[Row]:
    return [
        Row(arm, seed=seed, metrics={"score": float(value)})
        for arm, of_arm in zip("ab", values, strict=True)
        for seed, value in enumerate(of_arm)
    ]


def test_three_copies_of_two_short_values_are_no_accident_although_one_could_be() -> None:
    values = np.round(np.random.default_rng(4).normal(0.5, 0.15, (2, 6)), 4)
    one, three = values.copy(), values.copy()
    one[:, 3] = one[:, 0]
    three[:, 3:] = three[:, :3]
    assert copied_seeds(rows(one)) == [] == copied_seeds(rows(values))
    assert copied_seeds(rows(three)) == [(0, 3), (1, 4), (2, 5)]


def test_an_infinite_value_says_nothing_about_copies() -> None:
    values = np.random.default_rng(4).normal(0.5, 0.15, (2, 12))
    values[:, 6:] = values[:, :6]
    values[0, 2] = np.inf
    assert copied_seeds(rows(values)) == [(0, 6), (1, 7), (3, 9), (4, 10), (5, 11)]


def test_what_chance_says_about_a_place_is_asked_once_and_not_for_each_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the values of all seeds: 50,000 seeds took minutes."""
    values = np.round(np.random.default_rng(4).normal(0.5, 0.15, (2, 300)), 1)
    asked: list[float] = []
    chance = repeats._chance
    monkeypatch.setattr(repeats, "_chance", lambda found, step: asked.append(step) or chance(found, step))
    copied_seeds(rows(values))
    assert len(asked) == 2, "one metric of two arms"
