"""Token buckets, rolling quantiles, and the tables that a user can replace."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.errors import SpecError, UsageError
from bakeoff.workloads.schedsim.draws import DEFAULT, load_tables
from bakeoff.workloads.schedsim.world import TOKEN, WINDOW, Bucket, Rolling


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
    kept = sorted(fed[-WINDOW:])
    assert rolling.quantile(share, -1) == kept[min(len(kept) - 1, int(share * len(kept)))]
    assert rolling.mean(0.0) == pytest.approx(sum(kept) / len(kept))


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
