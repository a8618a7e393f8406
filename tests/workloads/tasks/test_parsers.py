"""A terminal-bench task's result is what its tests print; a script that shows nothing shows nothing about the work."""

from __future__ import annotations

import pytest

from bakeoff.workloads.tasks.parsers import printed_reward
from bakeoff.workloads.tasks.rewards import NoReward

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
def test_tools_that_cannot_be_had_are_no_score(parser: str, output: str, code: int) -> None:
    with pytest.raises(NoReward, match="no results"):
        printed_reward(parser, output, code)
