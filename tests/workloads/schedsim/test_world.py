"""The graph of a workflow, the evidence that ends it, token buckets and rolling quantiles."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.schedsim.world import (
    AGGREGATE,
    CHUNK,
    DECIDE,
    EMBED,
    EXTRACT,
    KINDS,
    LOAD,
    MASK,
    PLAN,
    SEARCH,
    TOKEN,
    WINDOW,
    Bucket,
    Rolling,
    evidence,
    mix,
    mix_array,
    shape,
    stops,
)


def test_evidence_has_the_published_values() -> None:
    assert evidence(1, 1, 0, 2, 4).tolist() == [[1, 3, 2, 2], [0, 3, 3, 3]]
    assert evidence(1, 2, 0, 1, 4).tolist() == [[2, 2, 2, 2]]


@given(st.lists(st.integers(0, MASK), max_size=20))
def test_many_words_are_mixed_as_one_is(values: list[int]) -> None:
    assert mix_array(np.array(values, dtype=np.uint64)).tolist() == [mix(value) for value in values]


def test_at_the_defaults_every_workflow_of_the_first_seeds_stops_after_one_iteration() -> None:
    assert all(stops(seed, w, 0, 10, 4) for seed in (1, 2, 3) for w in range(1, 101))


def test_over_fifty_seeds_ten_of_ten_thousand_workflows_go_on_once() -> None:
    went_on = sum(not stops(seed, w, 0, 10, 4) for seed in range(1, 51) for w in range(1, 201))
    assert went_on == 10


def test_small_workflows_iterate_as_often_as_published() -> None:
    used = Counter(iterations(seed, w, 2, 1) for seed in (1, 2, 3) for w in range(1, 101))
    assert used == {1: 195, 2: 63, 3: 42}


def test_without_subqueries_there_is_no_evidence_and_no_early_stop() -> None:
    assert not any(stops(seed, w, i, 10, 0) for seed in range(5) for w in range(1, 20) for i in range(3))


def iterations(seed: int, workflow: int, pdfs: int, subqueries: int) -> int:
    return next((i + 1 for i in range(2) if stops(seed, workflow, i, pdfs, subqueries)), 3)


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


@pytest.mark.slow
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300), st.floats(0, 1))
def test_rolling_quantiles_are_those_of_the_last_thousand(values: list[int], share: float) -> None:
    rolling, fed = Rolling(), values * 5
    for value in fed:
        rolling.add(value)
    kept = sorted(fed[-WINDOW:])
    assert rolling.quantile(share, -1) == kept[min(len(kept) - 1, int(share * len(kept)))]
    assert rolling.mean(0.0) == pytest.approx(sum(kept) / len(kept))
