"""A plan: cells (one arm on one task with its parameters) times seeds times rollouts, in the order of execution.

A plan is small however many runs it has: runs are made on the fly. Order: seed, rollout, then cell, so that arms
finish the same seed together and a half-done experiment is balanced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bakeoff.spec.experiment import Experiment, flatten
from bakeoff.spec.select import Test


@dataclass(frozen=True, slots=True)
class Arm:
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    base: str = ""
    """The arm that an ablation changes; the arm itself otherwise."""
    ablation: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one task. `params` are complete and validated; `identity` are those that differ from defaults."""

    index: int
    arm: Arm
    task: Task
    params: Mapping[str, Any]
    identity: Mapping[str, Any]
    rollouts: int
    run_id: Callable[[int, int], str]
    """(seed, rollout) to run id."""


class RunSpec(NamedTuple):
    """The unit that is executed, recorded and resumed."""

    position: int
    run_id: str
    cell: Cell
    seed: int
    rollout: int


@dataclass(frozen=True, slots=True)
class Plan:
    experiment: Experiment
    cells: Sequence[Cell]
    keep: Test | None = None
    """Include and exclude rules that need the seed or rollout; those about arms and tasks are applied already."""
    base: Path = field(default_factory=Path.cwd)
    """The directory of the experiment file: relative paths and modules start here."""
    dialect: str = "native"
    root: Path | None = None
    """Where the dialect's users expect results, when it is not the usual root."""
    notes: tuple[str, ...] = ()
    """What the user should know before running."""

    def __iter__(self) -> Iterator[RunSpec]:
        position = 0
        most = max((cell.rollouts for cell in self.cells), default=0)
        for seed in self.experiment.seeds:
            for rollout in range(most):
                for cell in self.cells:
                    if rollout >= cell.rollouts or (self.keep and not self.keep(facts(cell, seed, rollout))):
                        continue
                    yield RunSpec(position, cell.run_id(seed, rollout), cell, seed, rollout)
                    position += 1

    def __len__(self) -> int:
        if self.keep is None:
            return len(self.experiment.seeds) * sum(cell.rollouts for cell in self.cells)
        return sum(1 for _ in self)

    @property
    def arms(self) -> list[Arm]:
        return list({cell.arm.name: cell.arm for cell in self.cells}.values())

    @property
    def tasks(self) -> list[Task]:
        return list({cell.task.name: cell.task for cell in self.cells}.values())


def facts(cell: Cell, seed: int, rollout: int) -> dict[str, Any]:
    """What rules and `--only` can ask about a run."""
    return {
        **cell.params,
        **flatten(dict(cell.params)),
        "arm": cell.arm.name,
        "task": cell.task.name,
        "ablation": cell.arm.ablation,
        "seed": seed,
        "rollout": rollout,
    }
