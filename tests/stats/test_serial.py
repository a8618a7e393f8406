"""Curves are told from independent repeats by their order, whatever the values are."""

from __future__ import annotations

import numpy as np
import pytest

from bakeoff.stats.serial import neighbours_alike

RNG = np.random.default_rng(4)
ALPHA = 0.001


def walk(steps: int, correlation: float) -> np.ndarray:
    values = [RNG.normal()]
    for _ in range(steps - 1):
        values.append(correlation * values[-1] + np.sqrt(1 - correlation**2) * RNG.normal())
    return np.array(values)


@pytest.mark.parametrize(("groups", "steps", "share"), [(10, 10, 0.75), (6, 20, 0.75), (2, 50, 0.75)])
def test_curves_are_found(groups: int, steps: int, share: float) -> None:
    found = [neighbours_alike([walk(steps, 0.8) for _ in range(groups)], ALPHA) is not None for _ in range(8)]
    assert np.mean(found) >= share


def test_learning_to_succeed_is_found() -> None:
    chance = np.linspace(0.0, 1.0, 30)
    assert neighbours_alike([(RNG.random(30) < chance).astype(float) for _ in range(8)], ALPHA) is not None


@pytest.mark.parametrize("kind", ["normal", "success", "rare", "quarters"])
def test_independent_repeats_are_hardly_ever_taken_for_a_curve(kind: str) -> None:
    def draw() -> np.ndarray:
        match kind:
            case "normal":
                return RNG.normal(size=12)
            case "success":
                return (RNG.random(12) < 0.5).astype(float)
            case "rare":
                return (RNG.random(12) < 0.1).astype(float)
        return RNG.integers(0, 5, 12) / 4

    found = sum(neighbours_alike([draw() for _ in range(6)], ALPHA) is not None for _ in range(300))
    assert found <= 3  # 0.3 are expected


def test_constant_groups_say_nothing() -> None:
    assert neighbours_alike([np.ones(20), np.full(12, 0.1)], ALPHA) is None
    assert neighbours_alike([], ALPHA) is None


def test_alternating_values_are_not_a_curve() -> None:
    assert neighbours_alike([np.tile([0.0, 1.0], 10)] * 4, ALPHA) is None
