"""Keyed random numbers, the latency laws against those of scipy, and the tables that a user can replace."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.errors import SpecError, UsageError
from bakeoff.workloads.schedsim.draws import DEFAULT, LONGEST, Service, load_tables, mean_ms, steps, stream, word, words
from bakeoff.workloads.schedsim.engine import Model
from bakeoff.workloads.schedsim.world import AGGREGATE, CHUNK, EMBED, EXTRACT, KINDS, LOAD, MASK, PLAN, SEARCH, shape


@given(
    states=st.lists(st.integers(0, MASK), min_size=1, max_size=5),
    places=st.lists(st.integers(0, 2**44), min_size=1, max_size=50),
)
def test_many_draws_at_once_are_the_same_as_one_by_one(states: list[int], places: list[int]) -> None:
    assert words(states, steps(places)).tolist() == [[word(state, place) for place in places] for state in states]


def test_draws_are_uniform_and_neighbours_are_independent() -> None:
    for positions in (range(1 << 14), range(0, 1 << 34, 1 << 20)):  # next purpose, next node
        drawn = words([stream(1, 1)], steps(list(positions)))[0] / 2.0**64
        assert stats.kstest(drawn, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / math.sqrt(len(drawn))
    firsts = np.array([word(stream(seed, 1), 0) for seed in range(4096)]) / 2.0**64
    assert stats.kstest(firsts, "uniform").pvalue > 1e-3


@given(seeds=st.lists(st.integers(0, MASK), min_size=1, max_size=3), later=st.booleans())
def test_first_attempts_drawn_together_are_those_drawn_alone(seeds: list[int], later: bool) -> None:
    iteration = shape(3, 2)
    service = Model(iteration, load_tables()).service()
    first = iteration.size * later
    states = [stream(seed, 1) for seed in seeds]
    for state, (times, luck) in zip(states, service.iterations(states, first), strict=True):
        alone = [service.again(state, first + p, iteration.kinds[p], 1) for p in range(iteration.size)]
        assert list(zip(times, luck, strict=True)) == alone


def test_more_workflows_than_are_drawn_together_get_the_same_draws() -> None:
    service = Model(shape(2, 1), load_tables()).service()
    states = [stream(1, number) for number in range(300)]
    assert list(service.iterations(states, 0)) == [service.iteration(state, 0) for state in states]


def test_a_law_without_bounds_is_cut_to_64_bits_in_both_ways_of_drawing() -> None:
    tables = load_tables()
    endless = tables.latency["ExtractEvidence"].model_copy(update={"mu": 60.0})
    tables = tables.model_copy(update={"latency": {**tables.latency, "ExtractEvidence": endless}})
    iteration = shape(1, 1)
    service = Model(iteration, tables).service()
    node = iteration.kinds.index(EXTRACT)
    assert service.iteration(stream(1, 1), 0)[0][node] == LONGEST
    assert service.again(stream(1, 1), node, EXTRACT, 1)[0] == LONGEST


def draws(kind: int, count: int = 20_000) -> npt.NDArray[np.float64]:
    service = Service(shape(10, 4), load_tables(), 0.0, 1.0)
    return np.array([service.base(stream(7, w), 1, kind, 1)[0] for w in range(count)]) / 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (EXTRACT, stats.lognorm(0.8, scale=math.exp(6.0))),
        (AGGREGATE, stats.lognorm(0.8, scale=math.exp(6.0))),
        (PLAN, stats.lognorm(0.8, scale=math.exp(6.27))),
        (CHUNK, stats.uniform(45, 10)),
    ],
)
def test_latencies_follow_their_laws(kind: int, law: Any) -> None:
    assert stats.kstest(draws(kind), law.cdf).pvalue > 1e-3


@pytest.mark.slow
def test_latencies_with_a_slow_share_are_mixtures() -> None:
    for kind, base, share, factor in (
        (LOAD, stats.lognorm(0.8, scale=math.exp(5.0)), 0.10, 3.0),
        (EMBED, stats.gamma(4, scale=25.0), 0.05, 2.0),
    ):
        mixture = lambda x, b=base, s=share, f=factor: (1 - s) * b.cdf(x) + s * b.cdf(x / f)  # noqa: E731
        assert stats.kstest(draws(kind), mixture).pvalue > 1e-3
        law = load_tables().latency[KINDS[kind]]
        assert mean_ms(law) == pytest.approx(base.mean() * (1 + share * (factor - 1)))


def test_a_similarity_search_always_takes_120_ms() -> None:
    assert set(draws(SEARCH, 50)) == {120.0}


@pytest.mark.slow
def test_the_heavy_tail_multiplies_the_given_share() -> None:
    plain, heavy = (Service(shape(10, 4), load_tables(), p, 50.0) for p in (0.0, 0.02))
    ratios = [
        h / p
        for w in range(300)
        for h, p in zip(heavy.iteration(stream(3, w), 0)[0], plain.iteration(stream(3, w), 0)[0], strict=True)
    ]
    long = sum(ratio == pytest.approx(50) for ratio in ratios)
    assert long + sum(ratio == 1 for ratio in ratios) == len(ratios)
    assert stats.binomtest(long, len(ratios), 0.02).pvalue > 1e-3


def test_tables_can_be_replaced_and_mistakes_are_reported(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(DEFAULT.read_text().replace("concurrency = 2", "concurrency = 7"))
    assert max(tier.concurrency for tier in load_tables(own).tiers if tier.provider == "llm_provider") == 7
    mistakes = {"sigma": ("sigma = 0.8", "sigma = -1"), "latency": ("[latency.Chunk]", "[latency.Chunks]")}
    for key, (right, wrong) in mistakes.items():
        bad = tmp_path / f"{key}.toml"
        bad.write_text(DEFAULT.read_text().replace(right, wrong))
        with pytest.raises(SpecError, match=key):
            load_tables(bad)
    with pytest.raises(UsageError, match="cannot be read"):
        load_tables(tmp_path / "none.toml")
