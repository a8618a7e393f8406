"""Advantages and token weights against the published formulas, literally transcribed."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from bakeoff.workloads.language.advantages import advantages, expected_informative, informative
from bakeoff.workloads.language.backpressure import BackPressure
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.trainer import pass_at
from bakeoff.workloads.language.transforms import Pooling, row_variances, token_advantages

rewards = arrays(np.float64, (3, 5), elements=st.sampled_from([0.0, 1.0, 0.5]))


@given(rewards)
def test_advantages_are_those_of_the_published_code(r: np.ndarray) -> None:
    for group, grpo, dr, maxrl in zip(r, *(advantages(n, r) for n in ("grpo", "dr_grpo", "maxrl")), strict=True):
        mean = sum(group) / len(group)
        for value, by_trl, by_retrain, by_maxrl in zip(group, grpo, dr, maxrl, strict=True):
            assert by_trl == pytest.approx((value - mean) / (statistics.stdev(group) + 1e-4), abs=1e-6)
            assert by_retrain == pytest.approx(value - mean, abs=1e-12)
            assert by_maxrl == pytest.approx((value - mean) / (mean + 1e-6) if mean > 1e-6 else 0, abs=1e-9)
    assert advantages("reinforce", r) == pytest.approx(r - r.mean())


def test_maxrl_of_k_right_of_n_is_what_the_paper_says() -> None:
    r = np.array([[1.0] + [0.0] * 15])
    assert advantages("maxrl", r)[0, :2] == pytest.approx([15, -1], rel=1e-4)
    with pytest.raises(ValueError, match="needs rewards of 0 or more"):
        advantages("maxrl", r - 0.5)


def test_informative_groups_and_their_expectation() -> None:
    r = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    assert informative(r).tolist() == [False, True, False, True]
    assert expected_informative(r) == 0.5


def literal(
    name: str, advantage: float, surprisal: list[float], planning: list[bool], beta: float, alpha: float, share: float
) -> list[float]:
    """Token by token, after retrain's pure Python."""
    execution = [s for s, plan in zip(surprisal, planning, strict=True) if not plan]
    if name == "gtpo_sepa" and execution and share > 0:
        pool = sum(execution) / len(execution)
        surprisal = [s if p else share * pool + (1 - share) * s for s, p in zip(surprisal, planning, strict=True)]
    mean = sum(surprisal) / len(surprisal)
    if name == "none" or beta == 0 or mean < 1e-7:
        values = [advantage] * len(surprisal)
    else:
        values = [advantage * max(0.0, 1 + beta * (s / (mean + 1e-8) - 1)) for s in surprisal]
    if name == "gtpo_hicra":
        values = [v + alpha * abs(v) if p else v for v, p in zip(values, planning, strict=True)]
    return values


@given(
    st.sampled_from(["none", "gtpo", "gtpo_hicra", "gtpo_sepa"]),
    st.lists(st.tuples(st.floats(0, 50), st.booleans()), min_size=1, max_size=6),
    st.floats(-15, 15),
    st.sampled_from([0.0, 0.1, 1.0, 3.0]),
    st.floats(0, 1),
)
def test_token_advantages_are_a_literal_transcription(
    name: str, tokens: list[tuple[float, bool]], advantage: float, beta: float, share: float
) -> None:
    surprisal, planning = map(list, zip(*tokens, strict=True))
    padding = 7 - len(tokens)  # what follows an answer must not count
    values = token_advantages(
        name,
        np.array([advantage]),
        np.array([[*surprisal, *[9.0] * padding]]),
        np.array([[True] * len(tokens) + [False] * padding]),
        np.array([[*planning, *[False] * padding]]),
        beta=beta,
        alpha=0.2,
        pooling=share,
    )
    expected = literal(name, advantage, surprisal, planning, beta, 0.2, share)
    assert values[0, : len(tokens)] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert not values[0, len(tokens) :].any()


def test_every_transform_changes_what_is_trained() -> None:
    surprisal, written = np.array([[0.5, 1.0, 0.1, 0.3]]), np.ones((1, 4), dtype=bool)
    planning = np.array([[True, True, False, False]])
    seen = {
        token_advantages(name, np.array([1.0]), surprisal, written, planning, pooling=0.5).tobytes()
        for name in ("none", "gtpo", "gtpo_hicra", "gtpo_sepa")
    }
    assert len(seen) == 4


def test_pooling_follows_its_schedule_behind_delay_and_gate() -> None:
    linear = Pooling(steps=10, delay=5, gate=0.1)
    assert linear.at(9) == 0, "the gate is closed"
    linear.observe(0.05, np.array([]))
    assert linear.at(9) == 0
    linear.observe(0.1, np.array([]))
    linear.observe(0.0, np.array([]))
    assert [linear.at(step) for step in (0, 5, 9, 15, 99)] == [0, 0, 0.4, 1, 1], "once open, it stays open"
    assert Pooling(steps=0, gate=0).at(100) == 0


def test_auto_pooling_rises_when_the_variance_of_execution_falls() -> None:
    auto = Pooling("auto", steps=1000, delay=1000, gate=0, warmup=50)
    auto.observe(1.0, np.full(49, 2.0))
    assert auto.at(0) == 0 and auto.reference is None
    auto.observe(1.0, np.array([2.0]))
    assert auto.reference == pytest.approx(2.0) and auto.at(0) == 0
    average = 2.0
    for _ in range(200):
        auto.observe(1.0, np.array([0.0]))
        average *= 0.99
    assert auto.at(0) == pytest.approx(1 - min(average / 2.0 / 0.2, 1))
    assert Pooling(**asdict(auto)) == auto
    variances = row_variances(
        np.array([[1.0, 3.0, 9.0], [5.0, 5.0, 5.0]]), np.array([[True, True, False], [False] * 3])
    )
    assert variances.tolist() == [1.0], "a row without execution tokens has no variance"


def test_back_pressure_finds_the_peak_of_a_known_law() -> None:
    sigma, kappa, rate = 0.05, 0.0004, 1000.0
    pressure = BackPressure(True, group_size=4, warmup_steps=8, largest=64)
    size, sizes = 4, []
    for _ in range(30):
        p = 4 * size
        throughput = rate * p / (1 + sigma * (p - 1) + kappa * p * (p - 1))
        size = pressure.observe(size, 1000, 1000 / throughput)
        sizes.append(size)
    peak = math.sqrt((1 - sigma) / kappa)
    assert pressure.sigma == pytest.approx(sigma, rel=1e-3) and pressure.kappa == pytest.approx(kappa, rel=1e-3)
    assert pressure.peak == pytest.approx(peak, rel=1e-3)
    assert sizes[:8] == [2, 4, 8, 16, 32, 64, 1, 2], "sizes in turn while it warms up"
    assert sizes[-1] == int(0.85 * peak / 4) and pressure.action == "hold"
    assert BackPressure().observe(16, 100, 1.0) == 16


@given(st.integers(0, 8), st.integers(1, 8))
def test_pass_at_k_is_the_share_of_samples_of_k_with_a_right_answer(right: int, k: int) -> None:
    import itertools

    row = [1.0] * right + [0.0] * (8 - right)
    subsets = list(itertools.combinations(row, k))
    assert pass_at(np.array([row]), k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"advantage": "maxrl", "wrong_reward": -0.5}, "maxrl needs rewards of 0 or more"),
        ({"group_size": 1}, "greater than or equal to 2"),
        ({"width": 30}, "cannot be divided into 4 heads"),
        ({"phrases": ["first add"]}, "phrases are used with planning = 'phrases' only"),
        ({"learning_rate": math.nan}, "finite"),
        ({"model": "some/directory", "width": 32}, "width is for the small GPT; leave it out"),
        ({"shots": 2}, "shots are for a model by path"),
    ],
)
def test_parameters_that_cannot_work_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LanguageParams(**params)


def test_the_formula_names_its_constants() -> None:
    params = LanguageParams(advantage="grpo", transform="gtpo_hicra", beta=0.3)  # type: ignore[arg-type]
    for part in ("(sd + 1e-4)", "n - 1", "0.3", "0.2 * abs(A)", "informative tokens"):
        assert part in params.formula
    assert LanguageParams(transform="entropy_weighted").transform == "gtpo"  # type: ignore[arg-type]
