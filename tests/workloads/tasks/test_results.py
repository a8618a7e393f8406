"""Rewards: files of a Harbor task, the printed summary of a terminal-bench task, and the score of rubrics.

A reward that is missing or not a number is a broken verifier and not 0.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.tasks.results import NoReward, main_reward, printed_reward, read_rewards, weighted
from workloads.tasks.tasked import write_files


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"reward.txt": "1\n"}, {"reward": 1.0}),
        ({"reward.txt": " 0.25 "}, {"reward": 0.25}),
        ({"reward.json": '{"reward": 0.5, "style": 1}'}, {"reward": 0.5, "style": 1.0}),
        ({"reward.json": '{"a": true}'}, {"a": 1.0}),
        ({"reward.json": '{"reward": 0.5}', "reward.txt": "1"}, {"reward": 0.5}),
    ],
)
def test_rewards_are_read(tmp_path: Path, files: dict[str, str], expected: dict[str, float]) -> None:
    assert read_rewards(write_files(tmp_path, files)) == expected


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"reward.txt": ""},
        {"reward.txt": "passed"},
        {"reward.txt": "nan"},
        {"reward.txt": "1 2"},
        {"reward.json": "", "reward.txt": "1"},
        {"reward.json": "1"},
        {"reward.json": "{}"},
        {"reward.json": '{"reward": "1"}'},
        {"reward.json": '{"reward": {"x": 1}}'},
        {"reward.json": '{"reward": NaN}'},
        {"reward.json": '{"reward": 1', "reward.txt": "1"},
        {"reward.json": '{"reward": 1' + "0" * 400 + "}"},
        {"reward.json": '{"reward": ' + "[" * 100_000},
    ],
)
def test_what_is_no_reward_is_an_error(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(NoReward):
        read_rewards(write_files(tmp_path, files))


def test_a_link_in_place_of_a_reward_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("1")
    (tmp_path / "reward.txt").symlink_to(tmp_path / "good")
    with pytest.raises(NoReward):
        read_rewards(tmp_path)


def test_the_main_reward_is_the_key_of_that_name_or_the_mean() -> None:
    assert main_reward({"reward": 0.2, "other": 1.0}) == 0.2
    assert main_reward({"a": 0.0, "b": 1.0}) == 0.5
    assert main_reward({}) is None


scores = st.lists(st.tuples(st.none() | st.floats(0, 1), st.floats(0.01, 10)), min_size=1, max_size=6)


@given(scores)
def test_the_score_is_a_mean_over_what_was_tested(given: list[tuple[float | None, float]]) -> None:
    tested = [score for score, _ in given if score is not None]
    found = weighted(given)
    if not tested:
        assert found is None
    else:
        assert found is not None and min(tested) - 1e-9 <= found <= max(tested) + 1e-9


SUMMARY = "=========================== short test summary info ============================\n"
BLOCK = "SWEBench results starts here\na.py::b[x<-]<-|-|-> PASSED\nc<-|-|-> {}\nSWEBench results ends here\n"


@pytest.mark.parametrize(
    ("parser", "output", "code", "reward"),
    [
        ("pytest", SUMMARY + "PASSED a.py::b\nSKIPPED [1] a.py:3: no\nXFAIL a.py::c - why\n", 0, 1.0),
        ("pytest", SUMMARY + "PASSED a.py::b\nFAILED a.py::c - assert 1\n", 0, 0.0),  # the script goes on after pytest
        ("pytest", SUMMARY + "PASSED a.py::b\n== 1 passed ==\n", 1, 1.0),  # and may fail at something else
        ("pytest", SUMMARY + "ERROR a.py - SyntaxError\n", 2, 0.0),
        ("pytest", SUMMARY + "XPASS a.py::b\n", 0, 0.0),
        ("pytest", f"PASSED told early\n{SUMMARY}FAILED a\n", 0, 0.0),
        ("pytest", "fine\n", 0, 1.0),
        ("swebench", BLOCK.format("PASSED"), 0, 1.0),
        ("swebench", BLOCK.format("FAILED"), 0, 0.0),
        ("swebench", BLOCK.format("ERROR"), 0, 0.0),
    ],
)
def test_all_that_is_listed_has_to_pass(parser: str, output: str, code: int, reward: float) -> None:
    assert printed_reward(parser, output, code) == {"reward": reward}


@pytest.mark.parametrize(
    ("parser", "output", "code"),
    [
        ("pytest", "run-tests.sh: line 3: uv: command not found\n", 127),
        ("pytest", "/usr/bin/python3: No module named pytest\n", 1),
        ("pytest", SUMMARY, 1),
        ("swebench", "fatal: unable to access the repository\n", 0),
    ],
)
def test_missing_tools_give_no_score(parser: str, output: str, code: int) -> None:
    with pytest.raises(NoReward, match="no results"):
        printed_reward(parser, output, code)
