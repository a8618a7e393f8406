"""A plan: cells (one arm on one task with its parameters) times seeds times rollouts, in the order of execution.

A plan is small however many runs it has: runs are made on the fly. Order: seed, rollout, then cell, so that arms
finish the same seed together and a half-done experiment is balanced.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bakeoff.spec.identity import RunId, flatten
from bakeoff.spec.select import Test

if TYPE_CHECKING:
    from bakeoff.spec.experiment import ExperimentFile


@dataclass(frozen=True, slots=True)
class Arm:
    """One named setting that is compared with others."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    base: str = ""
    """The arm that an ablation changes; the arm itself otherwise."""
    ablation: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """What every arm is tried on."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    digest: str | None = None


class LazyTable(Mapping[str, Any]):
    """A cell's table that is made at the first access, so that a hundred thousand cells are made quickly."""

    __slots__ = ("_arm", "_make", "_table", "_task")  # with `cached_property` the first access takes half as long again

    def __init__(self, make: Callable[[Arm, Task], dict[str, Any]], arm: Arm, task: Task) -> None:
        self._make, self._arm, self._task = make, arm, task
        self._table: dict[str, Any] | None = None

    def _all(self) -> dict[str, Any]:
        if self._table is None:
            self._table = self._make(self._arm, self._task)
        return self._table

    def __getitem__(self, key: str) -> Any:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one task. `params` are complete and validated."""

    index: int
    arm: Arm
    task: Task
    params: Mapping[str, Any]
    rollouts: int
    run_id: Callable[[int, int], RunId]
    """(seed, rollout) to run id."""


class Run(NamedTuple):
    """One (arm, task, seed, rollout) of a plan: the unit that is executed, recorded and resumed.

    A named tuple, because a plan makes a hundred thousand of them on the fly.
    """

    position: int
    run_id: RunId
    cell: Cell
    seed: int | None
    """None only in a run that was imported from a table without seeds."""
    rollout: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A validated experiment, expanded. Iterate over it for its runs; `len` counts them."""

    experiment: ExperimentFile
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
    overrides: tuple[str, ...] = ()
    """What `--set` changed in the file, as `key.path=value`."""

    def __iter__(self) -> Iterator[Run]:
        for position, (cell, seed, rollout) in enumerate(self._kept()):
            yield Run(position, cell.run_id(seed, rollout), cell, seed, rollout)

    def __len__(self) -> int:
        if self.keep is None:
            return len(self.experiment.seeds) * sum(cell.rollouts for cell in self.cells)
        return sum(1 for _ in self._kept())

    def _kept(self) -> Iterator[tuple[Cell, int, int]]:
        """(cell, seed, rollout) of every run that the rules keep, in the order of execution."""
        most = max((cell.rollouts for cell in self.cells), default=0)
        keep = self.keep
        # What a rule can ask is the same for all runs of a cell, except for seed and rollout.
        known = [facts(cell, 0, 0) for cell in self.cells] if keep is not None else [{}] * len(self.cells)
        for seed in self.experiment.seeds:  # outermost, so that all arms finish a seed before the next one begins
            for rollout in range(most):
                for cell, given in zip(self.cells, known, strict=True):
                    if rollout < cell.rollouts and (keep is None or keep({**given, "seed": seed, "rollout": rollout})):
                        yield cell, seed, rollout

    @property
    def arms(self) -> list[Arm]:
        return list({cell.arm.name: cell.arm for cell in self.cells}.values())

    @property
    def tasks(self) -> list[Task]:
        return list({cell.task.name: cell.task for cell in self.cells}.values())

    @property
    def names(self) -> set[str]:
        """Every name that rules and `--only` can ask for."""
        names: set[str] = {"arm", "task", "ablation", "seed", "rollout"}
        for cell in self.cells:
            # Most cells have the same names: the tables of the others are not flattened.
            if not names.issuperset(cell.params) or any(isinstance(value, dict) for value in cell.params.values()):
                names.update(facts(cell, 0, 0))
        return names


def facts(cell: Cell, seed: int | None, rollout: int) -> dict[str, Any]:
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


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside.

    For work that makes very many objects and hardly any cycles, such as expanding a large plan: the collector would go
    through all of them again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
