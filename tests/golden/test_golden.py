"""The examples still give the run ids, numbers, JSON keys and exit codes that are on file (see make.py)."""

from __future__ import annotations

import json

import pytest

from golden import make

SLOW = {"market"}  # compiles the world's kernels when the cache is empty


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in make.CASES]
)
def test_examples_give_what_is_on_file(case: str) -> None:
    expected = json.loads(make.fixture_path(case).read_text())
    lines = list(make.differences(expected, make.record(case)))
    if lines:
        more = f"\n... and {len(lines) - 40} more" if len(lines) > 40 else ""
        pytest.fail(f"{case} changed:\n" + "\n".join(lines[:40]) + more, pytrace=False)


def test_a_changed_value_and_a_missing_key_are_differences() -> None:
    expected = {"effect": 0.5, "verdict": "better", "rows": [1, 2]}
    actual = {"effect": 0.5 + 1e-12, "rows": [1, 3], "more": True}
    assert list(make.differences(expected, actual)) == ["verdict: was 'better', is missing", "rows[1]: was 2, is 3"]
