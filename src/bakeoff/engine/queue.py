"""What to start next: open runs in plan order, retries when they are due, within the limits on concurrency.

The database is the queue: only a page of it is held, so memory stays flat for any number of runs.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from bakeoff.records.edition import Edition
from bakeoff.records.run import FAILED, OPEN, Attempt, RunRecord
from bakeoff.spec.identity import canonical_json, flatten
from bakeoff.spec.plan import Plan

_PAGE = 512
_MOST_ASKED_FOR = 500
"""Cells that one SQL query names; a larger group reads all runs and skips the others."""
_CELLS = 1000
"""Of how many cells the parameters are remembered as text."""
Key = tuple[int, Hashable]
"""A concurrency limit (its number in the file) and the value that it counts for."""


@dataclass(slots=True)
class _Group:
    """Cells under the same limits. Each group reads the database by itself, so one that has to wait stops no other."""

    keys: tuple[Key, ...]
    cells: list[int] = field(default_factory=list)
    after: int = -1
    page: deque[RunRecord] = field(default_factory=deque)
    dry: bool = False


class Queue:
    """`only` chooses runs, `retry_failed` adds those that failed. The scheduler takes attempts one by one:

    attempt = queue.take()
    ...
    queue.ended(attempt)        # its slot in the concurrency limits is free again
    queue.again(attempt, 2.0)   # and it is to be retried in two seconds
    """

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
        self._statuses = (*OPEN, *FAILED) if retry_failed else OPEN
        self._limits = {number: entry.limit for number, entry in enumerate(plan.experiment.concurrency)}
        self._group_of: dict[int, _Group] = {}
        groups: dict[tuple[Key, ...], _Group] = {}
        for cell in plan.cells:
            keys: tuple[Key, ...] = ()  # the limits that count runs of this cell
            if plan.experiment.concurrency:
                facts = {**cell.params, **flatten(dict(cell.params)), "arm": cell.arm.name, "task": cell.task.name}
                keys = tuple(
                    (number, canonical_json(facts[entry.by]))
                    for number, entry in enumerate(plan.experiment.concurrency)
                    if entry.by in facts and (entry.values is None or facts[entry.by] in entry.values)
                )
            group = self._group_of[cell.index] = groups.setdefault(keys, _Group(keys))
            group.cells.append(cell.index)
        self._groups = list(groups.values())
        # With many groups each holds a smaller page, so that memory stays flat.
        self._page = max(16, _PAGE // len(self._groups)) if self._groups else _PAGE
        self._running: Counter[Key] = Counter()
        self._front: list[Attempt] = []
        self._later: list[tuple[float, int, Attempt]] = []
        self._params: dict[int, str] = {}
        self.left_out = 0
        """Runs that `only` did not choose."""

    def take(self) -> Attempt | None:
        """The next attempt that may start now; it counts as running from here on."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:  # retries whose time has come
            _, _, attempt = heapq.heappop(self._later)
            self._front.append(attempt)
        for number, attempt in enumerate(self._front):
            if self._may_run(self._group_of[attempt.cell]):
                del self._front[number]
                break
        else:
            able = [group for group in self._groups if self._may_run(group) and self._filled(group)]
            if not able:
                return None
            run = min(able, key=lambda group: group.page[0].position).page.popleft()
            cell = self._cells[run.cell]
            params = self._params.get(run.cell)
            if params is None:
                if len(self._params) >= _CELLS:
                    self._params.clear()
                params = self._params[run.cell] = json.dumps(dict(cell.params))
            attempt = run.next_attempt(flags=cell.arm.flags, ablation=cell.arm.ablation, params=params)
        self._running.update(self._group_of[attempt.cell].keys)
        return attempt

    def _may_run(self, group: _Group) -> bool:
        return all(self._running[key] < self._limits[key[0]] for key in group.keys)

    def _filled(self, group: _Group) -> bool:
        """Whether the group has a run; reads the next page when it has none."""
        narrow = len(self._groups) > 1 and len(group.cells) <= _MOST_ASKED_FOR
        while not group.page and not group.dry:
            cells = group.cells if narrow else None
            runs = list(self._edition.runs(self._statuses, after=group.after, limit=self._page, cells=cells))
            if not runs:
                group.dry = True
                break
            group.after = runs[-1].position
            for run in runs:
                if self._group_of.get(run.cell) is not group:
                    continue  # of another group, or of a cell that the plan no longer has
                if self._only is not None and not self._only(run):
                    self.left_out += 1
                    continue
                group.page.append(run)
        return bool(group.page)

    def ended(self, attempt: Attempt) -> None:
        """The attempt no longer counts as running."""
        self._running.subtract(self._group_of[attempt.cell].keys)

    def give_back(self, attempt: Attempt) -> None:
        """It was taken and did not begin: it goes to the front."""
        self.ended(attempt)
        self._front.append(attempt)

    def again(self, attempt: Attempt, delay: float) -> None:
        """One more attempt of the same run, after `delay` seconds."""
        heapq.heappush(self._later, (time.monotonic() + delay, attempt.position, attempt.again()))

    def reopen(self) -> None:
        """Further runs were planned; those that were lost get another try with them."""
        for group in self._groups:
            group.dry, group.after = False, -1

    def empty(self) -> bool:
        return not self._front and not self._later and not any(self._filled(group) for group in self._groups)
