"""Where the noise comes from when seeds of different tasks have nothing in common."""

from __future__ import annotations

import numpy as np
import pytest

from bakeoff.stats.components import Components, allocate, nested_components, variance_components


def test_nested_components_find_what_was_put_in() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        task = rng.normal(0, 2.0, (8, 1, 1))
        seed = rng.normal(0, 1.0, (8, 5, 1))
        found.append(nested_components(task + seed + rng.normal(0, 1.5, (8, 5, 3))))
    means = [np.mean([getattr(c, part) for c in found]) for part in ("task", "cell", "rollout")]
    assert means == pytest.approx([4.0, 1.0, 2.25], rel=0.12)
    assert {c.seed for c in found} == {0.0}


def test_nested_seeds_and_their_interaction_are_one_component() -> None:
    x = np.random.default_rng(1).normal(size=(6, 4, 2))
    nested, crossed = nested_components(x), variance_components(x)
    assert nested.rollout == crossed.rollout
    assert nested_components(x[:, :, 0]).rollout == 0.0
    assert nested_components(x[:, :1, :]).cell == 0.0


def test_a_plan_for_tasks_like_these_keeps_three_of_them_even_where_tasks_show_no_variance() -> None:
    no_task_noise = Components(task=0.0, seed=0.0, cell=1.0, rollout=0.0)
    assert allocate(no_task_noise, 12).tasks == 1
    assert allocate(no_task_noise, 12, least_tasks=3).tasks == 3
