"""What verification found: single tests, scripts, rubrics, steps, and the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CaseOutcome = Literal["passed", "failed", "error", "skipped"]
Status = Literal["scored", "patch_failed", "timeout", "error"]
PASS = 1.0 - 1e-9
"""A score from here on is a pass; weights that do not add up to exactly 1 are no failure."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test."""

    name: str
    outcome: CaseOutcome
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """One hidden script. It passed when pytest said so, a test passed, and none failed; or else by its exit code."""

    path: str
    rubric_id: str
    passed: bool
    code: int
    seconds: float
    cases: tuple[Case, ...] = ()
    output: str = ""
    timed_out: bool = False
    memory_killed: bool = False


@dataclass(frozen=True, slots=True)
class RubricScore:
    """The part of a rubric's scripts that passed; None where it has none, which is not 0."""

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


@dataclass(frozen=True, slots=True)
class Verification:
    """`score` is None unless `status` is `scored`. `error` means that the verifier broke: try again, never score 0."""

    status: Status
    score: float | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    rubrics: tuple[RubricScore, ...] = ()
    scripts: tuple[ScriptResult, ...] = ()
    steps: tuple[StepResult, ...] = ()
    discounted: tuple[str, ...] = ()
    """Files of the agent's that were put back to the start state, because tests are read from there."""
    seconds: float = 0.0
    error: str = ""

    @property
    def passed(self) -> bool:
        return self.score is not None and self.score >= PASS

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(case for script in self.scripts for case in script.cases)

    @property
    def untested(self) -> tuple[str, ...]:
        """Rubrics that no script spoke for."""
        return tuple(rubric.id for rubric in self.rubrics if rubric.score is None)


def weighted(rubrics: Sequence[RubricScore]) -> float | None:
    """The mean over tested rubrics by weight; None when nothing was tested."""
    tested = [(rubric.score, rubric.weight) for rubric in rubrics if rubric.score is not None]
    total = sum(weight for _, weight in tested)
    return sum(score * weight for score, weight in tested) / total if total > 0 else None


def main_reward(rewards: Mapping[str, float]) -> float | None:
    """The key `reward`, or else the mean of all keys."""
    if not rewards:
        return None
    return rewards["reward"] if "reward" in rewards else sum(rewards.values()) / len(rewards)
