"""Many replicates at once get the answers that each of them gets from the tests of `decision`."""

from __future__ import annotations

import numpy as np
import pytest

from bakeoff.stats.decision import paired_test, unpaired_test
from bakeoff.stats.evidence import monotone_tails
from bakeoff.stats.many import Each, Many, ManyPairs, ManySamples

REPLICATES = 24
POINTS = (-0.7, 0.0, 0.25)


def laws(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Continuous, skewed, and two lattices: many ties, and nothing but ties."""
    return {
        "normal": rng.normal(0.4, 1.0, shape),
        "exponential": rng.exponential(1.0, shape) - 0.6,
        "quarters": rng.integers(-2, 4, shape) / 4.0,
        "wins and losses": rng.choice([-1.0, 1.0], shape, p=[0.25, 0.75]),
    }


def one_by_one(tests: list, x: float, level: float) -> list[list[bool]]:
    tails = [monotone_tails(test.evidence, x) for test in tests]
    return [[t.greater <= level * (1 + 1e-12) for t in tails], [t.less <= level * (1 + 1e-12) for t in tails]]


def assert_same(many: Many, tests: list, guarded: list, margin: float) -> None:
    for x in POINTS:
        for level in (0.025, 0.005):
            assert [side.tolist() for side in many.rejects(x, level)] == one_by_one(tests, x, level), (x, level)
        assert many.covers(x, 0.95).tolist() == [test.interval(0.95).contains(x) for test in tests], x
    assert [s.tolist() for s in many.rejects(-0.7, 0.05, guarded=True)] == one_by_one(guarded, -0.7, 0.05)
    equivalent = [test.p_eq <= 0.05 * (1 + 1e-12) for test in guarded]
    assert many.equivalent(margin, 0.05).tolist() == equivalent


@pytest.mark.parametrize("units", [4, 7, 9, 14])
@pytest.mark.parametrize("law", ["normal", "exponential", "quarters", "wins and losses"])
def test_pairs_are_rejected_and_covered_as_one_by_one(units: int, law: str) -> None:
    d = laws(np.random.default_rng(units), (REPLICATES, units))[law]
    d[0] = 0.5  # no spread
    tests = [paired_test(row) for row in d]
    guarded = [paired_test(row, margin=1.2, guarded=True) for row in d]
    assert_same(ManyPairs(d), tests, guarded, 1.2)


@pytest.mark.parametrize("sizes", [(4, 4), (8, 9)])
@pytest.mark.parametrize("law", ["normal", "exponential", "quarters"])
def test_samples_are_rejected_and_covered_as_one_by_one(sizes: tuple[int, int], law: str) -> None:
    rng = np.random.default_rng(sum(sizes))
    a, b = (laws(rng, (REPLICATES // 3, n))[law] for n in sizes)
    a[0], b[0] = 0.5, 1.0  # no spread
    pairs = list(zip(a, b, strict=True))
    tests = [unpaired_test(x, y) for x, y in pairs]
    guarded = [unpaired_test(x, y, margin=1.5, guarded=True) for x, y in pairs]
    assert_same(ManySamples(a, b), tests, guarded, 1.5)


def test_a_family_is_tested_at_its_own_level_and_by_its_own_test() -> None:
    d = np.random.default_rng(3).normal(0.8, 1.0, (REPLICATES, 8))
    tests = [paired_test(row, comparisons=3) for row in d]
    many = ManyPairs(d, comparisons=3)
    assert [side.tolist() for side in many.rejects(0.0, 0.05 / 6)] == one_by_one(tests, 0.0, 0.05 / 6)


def test_tests_that_are_asked_one_by_one_answer_for_themselves() -> None:
    tests = [paired_test(row) for row in np.random.default_rng(4).normal(0.5, 1.0, (9, 5))]
    many = Each(tests)
    assert many.size == 9
    assert [side.tolist() for side in many.rejects(0.0, 0.025)] == one_by_one(tests, 0.0, 0.025)
    assert many.covers(0.5, 0.9).tolist() == [test.interval(0.9).contains(0.5) for test in tests]


def test_more_units_than_can_be_counted_are_settled_by_the_same_random_signs() -> None:
    d = np.random.default_rng(5).normal(0.4, 1.0, (8, 24))
    tests = [paired_test(row) for row in d]
    assert [side.tolist() for side in ManyPairs(d).rejects(0.0, 0.025)] == one_by_one(tests, 0.0, 0.025)
