"""What to start next: open runs in plan order, retries when they are due, within the limits on concurrency.

The database is the queue: only a page of it is held, so memory stays flat for any number of runs.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from bakeoff.engine.executors.base import Start
from bakeoff.records.edition import Edition
from bakeoff.records.run import RunRecord
from bakeoff.spec.experiment import Concurrency, flatten
from bakeoff.spec.identity import canonical_json
from bakeoff.spec.plan import Cell, Plan

_PAGE = 512
_MOST_ASKED_FOR = 500
Key = tuple[int, Hashable]


@dataclass(slots=True)
class _Group:
    """Cells under the same limits, with a reading position of their own: a group that has to wait stops no other."""

    keys: tuple[Key, ...]
    cells: list[int] = field(default_factory=list)
    after: int = -1
    page: deque[RunRecord] = field(default_factory=deque)
    dry: bool = False


class Queue:
    def __init__(
        self,
        plan: Plan,
        edition: Edition,
        *,
        only: Callable[[RunRecord], bool] | None = None,
        retry_failed: bool = False,
    ) -> None:
        self._cells = {cell.index: cell for cell in plan.cells}
        self._edition = edition
        self._only = only
        self._retry_failed = retry_failed
        self._limits = {number: entry.limit for number, entry in enumerate(plan.experiment.concurrency)}
        self._group_of: dict[int, _Group] = {}
        groups: dict[tuple[Key, ...], _Group] = {}
        for cell in plan.cells:
            keys = tuple(_keys(cell, plan.experiment.concurrency))
            group = self._group_of[cell.index] = groups.setdefault(keys, _Group(keys))
            group.cells.append(cell.index)
        self._groups = list(groups.values())
        self._page = max(16, _PAGE // len(self._groups)) if self._groups else _PAGE
        self._running: Counter[Key] = Counter()
        self._front: list[Start] = []
        self._later: list[tuple[float, int, Start]] = []
        self.left_out = 0

    def take(self) -> Start | None:
        """The next run that may start now; it counts as running from here on."""
        start = self._due()
        if start is None:
            start = self._next_in_plan()
        if start is not None:
            self._running.update(self._group_of[start.cell.index].keys)
        return start

    def _due(self) -> Start | None:
        for number, start in enumerate(self._front):
            if self._may_run(self._group_of[start.cell.index]):
                return self._front.pop(number)
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            start = heapq.heappop(self._later)[2]
            if self._may_run(self._group_of[start.cell.index]):
                return start
            self._front.append(start)
        return None

    def _next_in_plan(self) -> Start | None:
        able = [group for group in self._groups if self._may_run(group) and self._filled(group)]
        if not able:
            return None
        pending = min(able, key=lambda group: group.page[0].position).page.popleft()
        cell = self._cells[pending.cell]
        return Start(pending.position, pending.run_id, cell, pending.seed, pending.rollout, pending.attempts + 1)

    def _may_run(self, group: _Group) -> bool:
        return all(self._running[key] < self._limits[key[0]] for key in group.keys)

    def _filled(self, group: _Group) -> bool:
        while not group.page and not group.dry:
            rows = self._edition.pending(
                group.after, self._page, retry_failed=self._retry_failed, cells=self._asked_for(group)
            )
            if not rows:
                group.dry = True
                break
            group.after = rows[-1].position
            for row in rows:
                if self._group_of.get(row.cell) is not group:
                    continue
                if self._only is not None and not self._only(row):
                    self.left_out += 1
                    continue
                group.page.append(row)
        return bool(group.page)

    def _asked_for(self, group: _Group) -> list[int] | None:
        """Cells by which the database looks for the group's runs; None when reading all of them is better."""
        return group.cells if len(self._groups) > 1 and len(group.cells) <= _MOST_ASKED_FOR else None

    def ended(self, start: Start) -> None:
        self._running.subtract(self._group_of[start.cell.index].keys)

    def give_back(self, start: Start) -> None:
        """It was taken and did not begin."""
        self.ended(start)
        self._front.append(start)

    def again(self, start: Start, delay: float) -> None:
        """One more try, later."""
        following = Start(start.position, start.run_id, start.cell, start.seed, start.rollout, start.attempt + 1)
        heapq.heappush(self._later, (time.monotonic() + delay, start.position, following))

    def reopen(self) -> None:
        """Further runs were planned; those that were lost get another try with them."""
        for group in self._groups:
            group.dry, group.after = False, -1

    def empty(self) -> bool:
        return not self._front and not self._later and not any(self._filled(group) for group in self._groups)


def _keys(cell: Cell, limits: list[Concurrency]) -> Iterator[Key]:
    facts = {**cell.params, **flatten(dict(cell.params)), "arm": cell.arm.name, "task": cell.task.name}
    for number, entry in enumerate(limits):
        value = facts.get(entry.by)
        if entry.by in facts and (entry.values is None or value in entry.values):
            yield number, canonical_json(value)
