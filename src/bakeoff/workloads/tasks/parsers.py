"""What a terminal-bench task's tests came to: its harness reads that from what they print, by `parser_name`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bakeoff.workloads.tasks.rewards import NoReward

_SUMMARY = re.compile(r"^=+ short test summary info =+$", re.MULTILINE)
_LINE = re.compile(r"^(PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)\b", re.MULTILINE)
_BLOCK = re.compile(r"SWEBench results starts here(.*)SWEBench results ends here", re.DOTALL)
_ENTRY = re.compile(r"<-\|-\|->\s*(\w+)\s*$", re.MULTILINE)
_GOOD = frozenset({"PASSED", "SKIPPED", "XFAIL"})


def printed_reward(parser: str, output: str, code: int) -> dict[str, float]:
    """1 when every test that is listed passed, else 0.

    Where no list is printed, a script that ended well has passed; one that did not has shown nothing about the work:
    its tools could not be had, or it broke before the first test.
    """
    outcomes = list(_block(output) if parser == "swebench" else _summary(output))
    if outcomes:
        return {"reward": float(all(outcome in _GOOD for outcome in outcomes))}
    if code == 0 and parser == "pytest":
        return {"reward": 1.0}
    raise NoReward(f"the tests printed no results that {parser} would print")


def _summary(output: str) -> Iterator[str]:
    """Outcomes that `pytest -rA` lists at its end; without -rA only those that are no passes."""
    found = list(_SUMMARY.finditer(output))
    return (line[1] for line in _LINE.finditer(output, found[-1].end())) if found else iter(())


def _block(output: str) -> Iterator[str]:
    """`name <-|-|-> OUTCOME`, a test a line."""
    found = _BLOCK.search(output)
    return (entry[1] for entry in _ENTRY.finditer(found[1])) if found else iter(())
