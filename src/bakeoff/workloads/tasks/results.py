"""Results of verification: tests, scripts, rubrics, steps and the whole; and how a step's reward is read.

A Harbor task's tests leave `reward.json` (a flat table of numbers) or `reward.txt` (one number). A terminal-bench
task's tests print a summary. In both cases a missing or unreadable reward raises `NoReward`: the verifier broke, and
the agent did not score 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

CaseOutcome = Literal["passed", "failed", "error", "skipped"]
Status = Literal["scored", "patch_failed", "timeout", "error"]
PASS = 1.0 - 1e-9
"""Scores from here on are passes: weights may not sum to exactly 1 in floating point."""
LONGEST_REWARD = 1 << 20
"""Bytes of a reward file that we read. The file was written next to an agent's work."""

# terminal-bench's own parsers look for the same lines: `pytest -rA` prints the summary, the swebench parser the block.
_SUMMARY = re.compile(r"^=+ short test summary info =+$", re.MULTILINE)
_SUMMARY_LINE = re.compile(r"^(PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)\b", re.MULTILINE)
_BLOCK = re.compile(r"SWEBench results starts here(.*)SWEBench results ends here", re.DOTALL)
_BLOCK_LINE = re.compile(r"<-\|-\|->\s*(\w+)\s*$", re.MULTILINE)
_GOOD = frozenset({"PASSED", "SKIPPED", "XFAIL"})


class NoReward(Exception):
    """The tests left no reward, or one that cannot be read."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test."""

    name: str
    outcome: CaseOutcome
    seconds: float = 0.0
    message: str = ""
    id: str = ""
    """As pytest names it on its command line; empty for other tests."""


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """One hidden script. pytest scripts pass if a test passed and none failed; other scripts by their exit code."""

    path: str
    rubric_id: str
    passed: bool
    code: int
    seconds: float
    cases: tuple[Case, ...] = ()
    output: str = ""
    timed_out: bool = False
    memory_killed: bool = False
    marks: tuple[str, ...] = ()
    """What the runner noticed that honest work does not do."""


@dataclass(frozen=True, slots=True)
class RubricScore:
    """The share of a rubric's scripts that passed; None if it has no scripts, which is not 0."""

    id: str
    criterion: str
    weight: float
    score: float | None
    tests: int
    passed: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """One Harbor step: the rewards that its tests left, or why there are none."""

    name: str
    status: Status
    rewards: Mapping[str, float] = field(default_factory=dict)
    code: int | None = None
    seconds: float = 0.0
    output: str = ""
    error: str = ""
    gate_passed: bool = True
    """Whether every reward reached the step's `min_reward`."""
    marks: tuple[str, ...] = ()
    """What was noticed that honest work does not do."""
    discounted: tuple[str, ...] = ()
    """Start-up files that went back to the image's."""
    changed_programs: tuple[str, ...] = ()
    """Programs and libraries of the image that are not what they were when the tests ran."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The verification of one attempt.

    `score` is None unless `status` is `scored`. The status `error` means that the verifier broke: the run is tried
    again and never scored 0.
    """

    status: Status
    score: float | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    rubrics: tuple[RubricScore, ...] = ()
    scripts: tuple[ScriptResult, ...] = ()
    steps: tuple[StepResult, ...] = ()
    discounted: tuple[str, ...] = ()
    """Files of the agent that were reset to the start state, because tests are read from there."""
    seconds: float = 0.0
    error: str = ""
    tampered: tuple[str, ...] = ()
    """What the work did to its own tests; then the score is 0."""
    honeypots: tuple[str, ...] | None = None
    """Honeypots that the agent went into; None if the task has none."""

    @property
    def marks(self) -> tuple[str, ...]:
        """What was noticed in scripts and steps, each once."""
        parts: list[ScriptResult | StepResult] = [*self.scripts, *self.steps]
        return tuple(dict.fromkeys(mark for part in parts for mark in part.marks))

    @property
    def passed(self) -> bool:
        return self.score is not None and self.score >= PASS

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(case for script in self.scripts for case in script.cases)

    @property
    def untested(self) -> tuple[str, ...]:
        """Rubrics without a script."""
        return tuple(rubric.id for rubric in self.rubrics if rubric.score is None)


def weighted(scores: Iterable[tuple[float | None, float]]) -> float | None:
    """The weighted mean of (score, weight) pairs; None if no rubric has a score or their weights are 0."""
    # Rubrics without a score take no part: their weight is shared by the others.
    scored = [(score, weight) for score, weight in scores if score is not None]
    total = sum(weight for _, weight in scored)
    return sum(score * weight for score, weight in scored) / total if total > 0 else None


def main_reward(rewards: Mapping[str, float]) -> float | None:
    """The key `reward`, or else the mean of all keys; None if there are none."""
    if not rewards:
        return None
    return rewards["reward"] if "reward" in rewards else sum(rewards.values()) / len(rewards)


def read_rewards(folder: Path) -> dict[str, float]:
    """The rewards in a copy of the sandbox's `/logs/verifier`. NoReward if there are none.

    JSON comes before text, as in Harbor since 0.22. A file that is there and cannot be read is an error: the other
    one does not replace it.
    """
    for name in ("reward.json", "reward.txt"):
        file = folder / name
        # The tests ran beside an agent's files: a link could lead anywhere on this machine.
        if file.is_symlink() or not file.is_file():
            continue
        if file.stat().st_size > LONGEST_REWARD:
            raise NoReward(f"{name} is longer than {LONGEST_REWARD} bytes")
        text = file.read_text(encoding="utf-8", errors="replace").strip()
        if not text:
            raise NoReward(f"{name} is empty")
        if name == "reward.txt":
            try:
                return {"reward": _finite(float(text), name)}
            except ValueError as error:
                raise NoReward(f"{name} holds {text[:60]!r}, which is not a number") from error
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NoReward(f"{name} is not valid JSON: {error}") from error
        if not isinstance(tree, dict) or not tree:
            raise NoReward(f'{name} must be a table of numbers, such as {{"reward": 1.0}}')
        return {str(key): _finite(value, f"{name}: {key}") for key, value in tree.items()}
    raise NoReward("the tests left neither reward.json nor reward.txt in /logs/verifier")


def _finite(value: object, where: str) -> float:
    """A reward as a float. NoReward that names `where` it is if it is not a finite number."""
    try:
        # A string is not a number, even if it reads like one: json.loads also accepts NaN and Infinity.
        number = float(value) if isinstance(value, bool | int | float) else math.nan
    except OverflowError:  # JSON integers have no limit
        number = math.inf
    if not math.isfinite(number):
        raise NoReward(f"{where} is {str(value)[:60]!r}, which is not a finite number")
    return number


def printed_reward(parser: str, output: str, code: int) -> dict[str, float]:
    """The reward of a terminal-bench task from what its tests printed: 1 if every listed test passed, else 0.

    If no list was printed, a pytest script that exited with 0 has passed. One that failed has shown nothing about the
    work: its tools could not be installed, or it broke before the first test. That is `NoReward`.
    """
    outcomes: list[str] = []
    if parser == "swebench":
        if block := _BLOCK.search(output):
            outcomes = [line[1] for line in _BLOCK_LINE.finditer(block[1])]
    elif summaries := list(_SUMMARY.finditer(output)):
        # The last summary counts: code under test may print one before.
        outcomes = [line[1] for line in _SUMMARY_LINE.finditer(output, summaries[-1].end())]
    if outcomes:
        return {"reward": float(all(outcome in _GOOD for outcome in outcomes))}
    if code == 0 and parser == "pytest":
        return {"reward": 1.0}
    raise NoReward(f"the tests printed no results in the format of {parser}")
