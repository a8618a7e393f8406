"""Single values of an experiment file: seeds, durations, sizes, the analysis section."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bakeoff.spec.experiment import (
    Analysis,
    ExperimentFile,
    Limits,
    Retries,
    Summary,
    parse_duration,
    parse_seeds,
    parse_size,
)
from bakeoff.spec.identity import flatten


@pytest.mark.parametrize(
    ("given_", "seeds"),
    [
        (3, [0, 1, 2]),
        ("3", [0, 1, 2]),
        ([5, -1, 7], [5, -1, 7]),
        ("1..4", [1, 2, 3, 4]),
        (" -2 .. 1 ", [-2, -1, 0, 1]),
        ("7..7", [7]),
        ({"count": 2}, [0, 1]),
        ({"count": 3, "base": 100}, [100, 101, 102]),
        ({"start": 1, "stop": 7, "step": 3}, [1, 4, 7]),
        ({"start": 1, "stop": 8, "step": 3}, [1, 4, 7]),
        ({"start": 3, "stop": 1, "step": -1}, [3, 2, 1]),
        ({"start": 2, "stop": 3}, [2, 3]),
        ([2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
    ],
)
def test_seeds_can_be_written_in_many_ways(given_: Any, seeds: list[int]) -> None:
    assert parse_seeds(given_) == seeds


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        (0, "at least one"), ([], "at least one"), ("3..1", "at least one"), ({"count": -2}, "at least one"),
        ({"start": 1, "stop": 5, "step": -1}, "at least one"), ({"start": 1, "stop": 5, "step": 0}, "step must not be 0"),
        (True, "must be a list"), ("abc", "must be a list"), (1.5, "must be a list"), (None, "must be a list"),
        ({"count": 3, "bse": 1}, "must be a list"), ({"count": True}, "must be a list"),
        ({"count": 3, "base": 1.5}, "must be a list"), ([1, True], "whole number"), ([1, 2.0], "whole number"),
        (["1"], "whole number"), ([1, 2, 1], "twice"), ([2**63], "64 bits"), (10**12, "are too many"),
        ({"start": 0, "stop": 10**12}, "are too many"),
    ],
)  # fmt: skip
def test_seeds_that_make_no_sense_are_refused(given_: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_seeds(given_)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(-1000, 1000), st.integers(1, 50), st.integers(1, 9))
def test_every_way_to_write_a_range_gives_the_same_seeds(start: int, count: int, step: int) -> None:
    stop = start + (count - 1) * step
    seeds = parse_seeds({"start": start, "stop": stop, "step": step})
    assert seeds == list(range(start, stop + 1, step)) == parse_seeds(list(range(start, stop + 1, step)))
    assert parse_seeds(f"{start}..{stop}") == parse_seeds({"count": stop - start + 1, "base": start})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(90, 90), (0.5, 0.5), ("90", 90), ("90s", 90), ("5m", 300), ("5min", 300), ("1h30m", 5400), ("1h 30m", 5400),
     ("250ms", 0.25), ("1.5h", 5400), ("2d", 172800)],
)  # fmt: skip
def test_durations_are_seconds(text: Any, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5 parsecs", "m5", "1h30", True, None, [], "-5s", -1, 0, "0s", float("nan"), float("inf")]
)
def test_what_is_no_duration_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [(1024, 1024), ("1024", 1024), ("2GB", 2 * 10**9), ("2gb", 2 * 10**9), ("2GiB", 2**31), ("2G", 2**31), ("1.5k", 1536),
     ("512 MB", 512 * 10**6), (1.5e9, 1_500_000_000)],
)  # fmt: skip
def test_sizes_are_bytes(text: Any, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "2 apples", "GB", True, None, 0, -5, "0.1b", float("nan")])
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


def test_limits_and_retries_read_durations_and_waiting_may_be_none_at_all() -> None:
    limits = Limits.model_validate({"time": "2m", "memory": "1GB", "grace": 0})
    assert (limits.time, limits.memory, limits.grace) == (120.0, 10**9, 0.0)
    assert Retries.model_validate({"backoff": 0}).backoff == 0.0
    with pytest.raises(ValidationError):
        Limits.model_validate({"time": 0})


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"margin": 1, "relative_margin": 0.1}, "not both"),
        ({"bounds": [1, 1]}, "lowest, highest"),
        ({"bounds": [2, 1]}, "lowest, highest"),
        ({"alpha": 0.5}, "less than 0.5"),
        ({"alpha": 0}, "greater than 0"),
        ({"margin": 0}, "greater than 0"),
        ({"direction": "up"}, "maximize"),
        ({"seeds": "paired"}, "nested"),
        ({"summary": {"type": "median"}}, "auc"),
        ({"summary": {"type": "time_to_threshold"}}, "needs threshold"),
        ({"summary": {"type": "percentile"}}, "needs percentile"),
        ({"summary": {"window": "some"}}, "is not a valid window"),
        ({"summary": {"smoothing": 1.0}}, "less than 1"),
    ],
)
def test_an_analysis_that_contradicts_itself_is_refused(section: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Analysis.model_validate(section)


def test_an_analysis_can_say_everything_that_a_verdict_needs() -> None:
    analysis = Analysis.model_validate(
        {
            "metric": "reward", "primary": ["cost"], "direction": "minimize", "control": "a", "seeds": "crossed",
            "tasks": "fixed", "margin": 0.1, "alpha": 0.01, "failure_score": 0, "bounds": [0, 1], "matched": ["steps"],
            "summary": {"type": "final", "last": 10, "window": "last 50%", "smoothing": 0.9},
        }
    )  # fmt: skip
    assert analysis.bounds == (0.0, 1.0) and analysis.summary is not None and analysis.summary.last == 10
    for window in ("first 20%", "last 12.5 %", "100..500"):
        assert Summary(window=window).window == window


def test_task_keys_must_be_axes_of_the_matrix() -> None:
    with pytest.raises(ValidationError, match="'sise' is not a key of"):
        ExperimentFile.model_validate({"name": "x", "matrix": {"size": [1]}, "task_keys": ["sise"]})


def test_an_axis_without_values_is_refused() -> None:
    with pytest.raises(ValidationError, match="size has no values"):
        ExperimentFile.model_validate({"name": "x", "matrix": {"size": []}})


def test_nested_axes_are_dotted_keys() -> None:
    experiment = ExperimentFile.model_validate({"name": "x", "matrix": {"optimizer": {"lr": [1, 2]}, "b": [3]}})
    assert list(experiment.matrix) == ["optimizer.lr", "b"]


trees = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.text("abc", min_size=1), inner, min_size=1), max_leaves=9
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text("abc", min_size=1), trees))
def test_flattening_keeps_every_leaf(tree: dict[str, Any]) -> None:
    def leaves(value: Any) -> int:
        return sum(map(leaves, value.values())) if isinstance(value, dict) else 1

    flat = flatten(tree)
    assert len(flat) == leaves(tree)
    assert not any(isinstance(value, dict) for value in flat.values())


def test_a_sequential_test_adds_seeds_so_they_cannot_be_fixed() -> None:
    with pytest.raises(ValidationError, match=r"analysis\.seeds cannot be 'fixed'"):
        ExperimentFile(name="x", analysis=Analysis(seeds="fixed"), sequential={})  # type: ignore[arg-type]
