"""What to start next: open runs in plan order, retries when they are due, within the limits on concurrency.

The database is the queue: only a page of it is held, so memory stays flat for any number of runs.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field

from bakeoff.records.edition import Edition
from bakeoff.records.run import FAILED, OPEN, Attempt, RunRecord
from bakeoff.spec.identity import canonical_json, flatten
from bakeoff.spec.plan import Plan

_PAGE = 512
_HELD = 16_384
"""Runs that are held for groups that have to wait, in all."""
_MOST_ASKED_FOR = 500
"""Cells that one SQL query names; a larger group reads all runs and skips the others."""
_REMEMBERED = 64_000_000
"""Characters of parameters that are remembered as text; a cell is asked for once for each of its runs."""
Key = tuple[int, Hashable]
"""A concurrency limit (its number in the file) and the value that it counts for."""


@dataclass(slots=True)
class _Group:
    """Cells under the same limits, and their next runs in plan order."""

    number: int
    keys: tuple[Key, ...]
    cells: list[int] = field(default_factory=list)
    page: deque[RunRecord] = field(default_factory=deque)
    after: int | None = None
    """Set when its page is full: it reads the database by itself from here on, and the common reader leaves it out."""


class Queue:
    """`only` chooses runs, `retry_failed` adds those that failed. `claimed` are positions of runs that an earlier session
    handed to other machines: they are left out, and `adopt` takes them. The scheduler takes attempts one by one:

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
        claimed: Collection[int] = (),
    ) -> None:
        self._cells = {cell.index: cell for cell in plan.cells}
        self._edition = edition
        self._only = only
        self._claimed = frozenset(claimed)
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
            group = groups.get(keys)
            if group is None:
                group = groups[keys] = _Group(len(groups), keys)
            self._group_of[cell.index] = group
            group.cells.append(cell.index)
        self._groups = list(groups.values())
        self._after, self._dry = -1, False
        """How far the database was read."""
        # A group that has to wait holds so many runs, so that memory stays flat.
        self._held = max(16, _HELD // len(self._groups)) if self._groups else _HELD
        self._ready: list[tuple[int, int]] = []
        """A heap of (position of its next run, number) of groups that may have a free place. Entries may be outdated."""
        self._waiting: dict[Key, list[tuple[int, int]]] = {}
        """Groups that wait for a place under a limit that is used up: a heap like the one above for each."""
        self._running: Counter[Key] = Counter()
        self._front: list[Attempt] = []
        self._later: list[tuple[float, int, Attempt]] = []
        self._params: dict[int, str] = {}
        self._remembered = 0
        self.left_out = 0
        """Runs that `only` did not choose."""

    def take(self) -> Attempt | None:
        """The next attempt that may start now; it counts as running from here on."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:  # retries whose time has come
            _, _, attempt = heapq.heappop(self._later)
            self._front.append(attempt)
        for number, attempt in enumerate(self._front):
            if self._full(self._group_of[attempt.cell]) is None:
                del self._front[number]
                break
        else:
            group = self._next_group()
            if group is None:
                return None
            run = group.page.popleft()
            self._offer(group)
            attempt = self._order(run)
        for key in self._group_of[attempt.cell].keys:
            self._running[key] += 1
        return attempt

    def adopt(self, position: int) -> Attempt | None:
        """The attempt of a claimed run, which counts as running from here on; None when the plan no longer has it."""
        run = self._edition.run(position)
        if run.cell not in self._cells:
            return None
        for key in self._group_of[run.cell].keys:
            self._running[key] += 1
        return self._order(run)

    def _order(self, run: RunRecord) -> Attempt:
        cell = self._cells[run.cell]
        params = self._params.get(run.cell)
        if params is None:
            params = json.dumps(dict(cell.params))
            self._remembered += len(params)
            if self._remembered > _REMEMBERED:
                self._params.clear()
                self._remembered = len(params)
            self._params[run.cell] = params
        return run.next_attempt(flags=cell.arm.flags, ablation=cell.arm.ablation, params=params)

    def _full(self, group: _Group) -> Key | None:
        """A limit that keeps the group's runs from starting now."""
        return next((key for key in group.keys if self._running[key] >= self._limits[key[0]]), None)

    def _next_group(self) -> _Group | None:
        """The group that has the first run in plan order which may start now; None when there is none."""
        while True:
            while self._ready:
                position, number = heapq.heappop(self._ready)
                group = self._groups[number]
                if not group.page or group.page[0].position != position:
                    continue  # outdated: this run was taken
                full = self._full(group)
                if full is None:
                    return group
                heapq.heappush(self._waiting.setdefault(full, []), (position, number))
                for key in group.keys:  # it leaves its place under its other limits to those that wait for one
                    self._release(key)
            if not self._read():
                return None

    def _release(self, key: Key) -> None:
        """As many groups as the limit has places now need no longer wait for it."""
        waiting = self._waiting.get(key)
        places = self._limits[key[0]] - self._running[key]
        while waiting and places > 0:
            heapq.heappush(self._ready, heapq.heappop(waiting))
            places -= 1

    def _offer(self, group: _Group) -> None:
        """The group has a new next run: read one if it reads by itself, and consider the group again."""
        if not group.page and group.after is not None:
            cells = group.cells if len(group.cells) <= _MOST_ASKED_FOR else None
            while not group.page:
                runs = list(self._edition.runs(self._statuses, after=group.after, limit=self._held, cells=cells))
                if not runs:
                    break
                group.after = runs[-1].position
                group.page.extend(run for run in runs if self._group_of.get(run.cell) is group and self._chosen(run))
        if group.page:
            heapq.heappush(self._ready, (group.page[0].position, group.number))

    def _chosen(self, run: RunRecord) -> bool:
        return (self._only is None or self._only(run)) and run.position not in self._claimed

    def _read(self) -> bool:
        """Read the next page of all runs, and give each to its group. False when there are no more."""
        if self._dry:
            return False
        runs = list(self._edition.runs(self._statuses, after=self._after, limit=_PAGE))
        if not runs:
            self._dry = True
            return False
        self._after = runs[-1].position
        for run in runs:
            group = self._group_of.get(run.cell)
            if group is None:
                continue  # of a cell that the plan no longer has
            if not self._chosen(run):
                self.left_out += run.position not in self._claimed
            elif group.after is None:
                if len(group.page) >= self._held:
                    group.after = group.page[-1].position
                    continue
                group.page.append(run)
                if len(group.page) == 1:
                    self._offer(group)
        return True

    def ended(self, attempt: Attempt) -> None:
        """The attempt no longer counts as running."""
        for key in self._group_of[attempt.cell].keys:
            self._running[key] -= 1
            self._release(key)

    def give_back(self, attempt: Attempt) -> None:
        """It was taken and did not begin: it goes to the front."""
        self.ended(attempt)
        self._front.append(attempt)

    def again(self, attempt: Attempt, delay: float) -> None:
        """One more attempt of the same run, after `delay` seconds."""
        heapq.heappush(self._later, (time.monotonic() + delay, attempt.position, attempt.again()))

    def reopen(self) -> None:
        """Further runs were planned; those that were lost get another try with them."""
        self._after, self._dry = -1, False
        for group in self._groups:
            group.after = None

    def empty(self) -> bool:
        if self._front or self._later:
            return False
        while not any(group.page for group in self._groups):
            if not self._read():
                return True
        return False
