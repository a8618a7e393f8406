"""The world itself: hash vectors, the growing graph, keyed draws, latency laws and token buckets."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.errors import SpecError, UsageError
from bakeoff.workloads.schedsim import hashing
from bakeoff.workloads.schedsim.buckets import TOKEN, Bucket
from bakeoff.workloads.schedsim.draws import steps, stream, word, words
from bakeoff.workloads.schedsim.model import Model
from bakeoff.workloads.schedsim.rolling import LENGTH, Rolling
from bakeoff.workloads.schedsim.service import Service, mean_ms
from bakeoff.workloads.schedsim.tiers import DEFAULT, Tables, load_tables
from bakeoff.workloads.schedsim.workflow import (
    AGGREGATE,
    CHUNK,
    DECIDE,
    EMBED,
    EXTRACT,
    KINDS,
    LOAD,
    PLAN,
    SEARCH,
    Shape,
    shape,
)


def test_evidence_has_the_published_values() -> None:
    assert [hashing.evidence(1, 1, 0, 0, q) for q in range(4)] == [1, 3, 2, 2]
    assert [hashing.evidence(1, 1, 0, 1, q) for q in range(4)] == [0, 3, 3, 3]
    assert [hashing.evidence(1, 2, 0, 0, q) for q in range(4)] == [2, 2, 2, 2]


def test_at_the_defaults_every_workflow_of_the_first_seeds_stops_after_one_iteration() -> None:
    assert all(hashing.stops(seed, w, 0, 10, 4) for seed in (1, 2, 3) for w in range(1, 101))


def test_over_fifty_seeds_ten_of_ten_thousand_workflows_go_on_once() -> None:
    went_on = sum(not hashing.stops(seed, w, 0, 10, 4) for seed in range(1, 51) for w in range(1, 201))
    assert went_on == 10


def test_small_workflows_iterate_as_often_as_published() -> None:
    used = Counter(iterations(seed, w, 2, 1) for seed in (1, 2, 3) for w in range(1, 101))
    assert used == {1: 195, 2: 63, 3: 42}


def test_without_subqueries_there_is_no_evidence_and_no_early_stop() -> None:
    assert not any(hashing.stops(seed, w, i, 10, 0) for seed in range(5) for w in range(1, 20) for i in range(3))


def iterations(seed: int, workflow: int, pdfs: int, subqueries: int) -> int:
    return next((i + 1 for i in range(2) if hashing.stops(seed, workflow, i, pdfs, subqueries)), 3)


@given(pdfs=st.integers(1, 12), subqueries=st.integers(0, 6))
def test_an_iteration_has_the_specified_nodes_and_edges(pdfs: int, subqueries: int) -> None:
    made = shape(pdfs, subqueries)
    assert made.size == 1 + pdfs * (3 + 2 * subqueries) + 2
    count = Counter(made.kinds)
    assert count[PLAN] == count[AGGREGATE] == count[DECIDE] == 1
    assert count[LOAD] == count[CHUNK] == count[EMBED] == pdfs
    assert count[SEARCH] == count[EXTRACT] == pdfs * subqueries
    edges = {(made.kinds[a], made.kinds[b]) for a, children in enumerate(made.children) for b in children}
    chain = {(PLAN, LOAD), (LOAD, CHUNK), (CHUNK, EMBED), (AGGREGATE, DECIDE)}
    full = {(EMBED, SEARCH), (SEARCH, EXTRACT), (EXTRACT, AGGREGATE)}
    assert edges == chain | (full if subqueries else {(PLAN, AGGREGATE)})
    assert made.waits[-2] == max(1, pdfs * subqueries) and all(b > a for a, c in enumerate(made.children) for b in c)


def test_ids_go_pdf_by_pdf_as_specified() -> None:
    assert [KINDS[kind] for kind in shape(1, 2).kinds] == [
        "Plan", "LoadPDF", "Chunk", "Embed", "SimilaritySearch", "ExtractEvidence", "SimilaritySearch",
        "ExtractEvidence", "Aggregate", "DecideNext",
    ]  # fmt: skip
    assert (shape(10, 4).size, shape(10, 4).plan_tokens(0), shape(10, 4).plan_tokens(2)) == (113, 270, 320)


@given(state=st.integers(0, hashing.MASK), places=st.lists(st.integers(0, 2**44), min_size=1, max_size=50))
def test_many_draws_at_once_are_the_same_as_one_by_one(state: int, places: list[int]) -> None:
    assert words(state, steps(places)) == [word(state, place) for place in places]


def test_draws_are_uniform_and_neighbours_are_independent() -> None:
    for positions in (range(1 << 14), range(0, 1 << 34, 1 << 20)):  # next purpose, next node
        drawn = np.array(words(stream(1, 1), steps(list(positions)))) / 2.0**64
        assert stats.kstest(drawn, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / math.sqrt(len(drawn))
    firsts = np.array([word(stream(seed, 1), 0) for seed in range(4096)]) / 2.0**64
    assert stats.kstest(firsts, "uniform").pvalue > 1e-3


@given(seed=st.integers(0, hashing.MASK), workflow=st.integers(1, 10_000), later=st.booleans())
def test_first_attempts_drawn_together_are_those_drawn_alone(seed: int, workflow: int, later: bool) -> None:
    made = shape(3, 2)
    service = Model(made, load_tables()).service()
    first = made.size * later
    times, luck = service.iteration(stream(seed, workflow), first)
    alone = [service.again(stream(seed, workflow), first + p, made.kinds[p], 1) for p in range(made.size)]
    assert list(zip(times, luck, strict=True)) == alone


def draws(kind: int, count: int = 20_000) -> np.ndarray:
    service = Service(shape(10, 4), load_tables(), 0.0, 1.0)
    return np.array([service.base(stream(7, w), 1, kind, 1)[0] for w in range(count)]) / 1000


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (EXTRACT, stats.lognorm(0.8, scale=math.exp(6.0))),
        (AGGREGATE, stats.lognorm(0.8, scale=math.exp(6.0))),
        (PLAN, stats.lognorm(0.8, scale=math.exp(6.27))),
        (CHUNK, stats.uniform(45, 10)),
    ],
)
def test_latencies_follow_their_laws(kind: int, law: stats.rv_continuous) -> None:
    assert stats.kstest(draws(kind), law.cdf).pvalue > 1e-3


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


@given(
    rate=st.integers(1, 500),
    size=st.integers(1, 50),
    gaps=st.lists(st.integers(0, 2_000_000), min_size=1, max_size=80),
)
def test_a_bucket_never_gives_more_than_its_size_and_rate_allow(rate: int, size: int, gaps: list[int]) -> None:
    bucket, now, taken = Bucket(rate, size), 0, []
    for gap in gaps:
        now += gap
        wait = bucket.take(now)
        if wait == 0:
            taken.append(now)
        else:
            assert bucket.take(now + wait - 1) > 0 and bucket.take(now + wait) == 0, "the wait is exact"
            now += wait
            taken.append(now)
    for i, first in enumerate(taken):
        for j in range(i, len(taken)):
            assert (j - i + 1) * TOKEN <= size * TOKEN + (taken[j] - first) * bucket.rate


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300), st.floats(0, 1))
def test_rolling_quantiles_are_those_of_the_last_thousand(values: list[int], share: float) -> None:
    rolling, fed = Rolling(), values * 5
    for value in fed:
        rolling.add(value)
    kept = sorted(fed[-LENGTH:])
    assert rolling.quantile(share, -1) == kept[min(len(kept) - 1, int(share * len(kept)))]
    assert rolling.mean(0.0) == pytest.approx(sum(kept) / len(kept))


def test_tables_can_be_replaced_and_mistakes_are_told(tmp_path: object) -> None:
    from pathlib import Path

    own = Path(str(tmp_path)) / "mine.toml"
    own.write_text(DEFAULT.read_text().replace("concurrency = 2", "concurrency = 7"))
    assert max(tier.concurrency for tier in load_tables(own).tiers if tier.provider == "llm_provider") == 7
    for wrong, told in ((("sigma = 0.8", "sigma = -1"), "sigma"), (("[latency.Chunk]", "[latency.Chunks]"), "latency")):
        bad = Path(str(tmp_path)) / f"{told}.toml"
        bad.write_text(DEFAULT.read_text().replace(*wrong))
        with pytest.raises(SpecError, match=told):
            load_tables(bad)
    with pytest.raises(UsageError, match="cannot be read"):
        load_tables(Path(str(tmp_path)) / "none.toml")
    assert isinstance(load_tables(), Tables) and isinstance(shape(1, 1), Shape)
