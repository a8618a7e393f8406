"""What to start next: open runs in the order of execution, retries when they are due, within limits on concurrency.

The database is the queue: only a page of it is held, so memory stays flat for any number of runs. A page is whole blocks.

The order of execution is plan order, except that a recorded seed draws which arm goes first in each block. A block is the
runs of all arms at one (seed, rollout, task). Were an arm always first there, it alone would pay for what the first run on
a task leaves behind, such as a provider's prompt cache, a page cache or a compiled file, and two equal arms would differ.
Positions, stages and looks follow the plan; what a run computes does not depend on its turn.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby

from bakeoff.records.edition import Edition
from bakeoff.records.run import FAILED, OPEN, Attempt, RunRecord
from bakeoff.spec.identity import canonical_json, flatten
from bakeoff.spec.plan import Cell, Plan

_PAGE = 512
_HELD = 16_384
"""Runs that are held for groups that have to wait, in all."""
_MOST_ASKED_FOR = 500
"""Cells that one SQL query names; a larger group reads all runs and skips the others."""
_REMEMBERED = 64_000_000
"""Characters of parameters that are remembered as text; a cell is asked for once for each of its runs."""
Key = tuple[int, Hashable]
"""A concurrency limit (its number in the file) and the value that it counts for."""


Turn = tuple[int, int, int, int, bytes]
"""Sorts runs by seed, rollout, stretch of cells, task, and a draw among the arms."""


class Order:
    """Draws the order from a seed: the same seed gives the same order, also for the runs that a resumed edition lacks.

    A run's draw is a hash of its id, so nothing has to be stored for it. `seeds` are ranked only where runs of several
    pages are to be compared; without them `turn` orders runs of one block.
    """

    def __init__(self, cells: Sequence[Cell], order_seed: int, *, seeds: Iterable[int | None] = ()) -> None:
        self._key = order_seed.to_bytes(8, "big")
        self._seeds: Mapping[int | None, int] = {seed: rank for rank, seed in enumerate(seeds)}
        tasks = {name: rank for rank, name in enumerate(dict.fromkeys(cell.task.name for cell in cells))}
        self._task_of = {cell.index: tasks[cell.task.name] for cell in cells}
        # The shortest stretches of cells that have no task in common. A stretch is one task, unless `[[cells]]` lists tasks
        # in turns: then it is as long as it takes to hold all arms of its tasks, which would otherwise run one arm after the
        # other.
        self._stretches: dict[int, int] = {}
        last = {cell.task.name: place for place, cell in enumerate(cells)}
        number, end = 0, -1
        for place, cell in enumerate(cells):
            if place > end >= 0:
                number += 1
            end = max(end, last[cell.task.name])
            self._stretches[cell.index] = number

    def block(self, run: RunRecord) -> tuple[int | None, int, int]:
        """Tell apart runs that are adjacent in the plan and belong to different blocks."""
        return run.seed, run.rollout, self._stretches.get(run.cell, -1)

    def turn(self, run: RunRecord) -> Turn:
        """Return the key by which runs are executed."""
        return (
            self._seeds.get(run.seed, 0),
            run.rollout,
            self._stretches.get(run.cell, -1),
            self._task_of.get(run.cell, -1),
            blake2b(run.run_id.encode(), key=self._key, digest_size=8).digest(),
        )

    def blocks(self, runs: Iterable[RunRecord]) -> Iterator[list[RunRecord]]:
        """Yield the runs, which come in plan order, block by block in the order of execution."""
        for _, block in groupby(runs, self.block):
            arms = list(block)
            yield sorted(arms, key=self.turn) if len(arms) > 1 else arms


@dataclass(slots=True)
class _Group:
    """Cells under the same limits, and their next runs in the order of execution."""

    number: int
    keys: tuple[Key, ...]
    cells: list[int] = field(default_factory=list)
    page: deque[RunRecord] = field(default_factory=deque)
    turn: Turn | None = None
    """That of the first run in `page`, when the group was last considered."""
    after: int | None = None
    """Set when its page is full: it reads the database by itself from here on, and the common reader leaves it out."""


class Queue:
    """`order_seed` draws the order of arms in each block. `only` chooses runs, `retry_failed` adds those that failed.
    `claimed` are positions of runs that an earlier session handed to other machines: they are left out, and `adopt` takes
    them. The scheduler takes attempts one by one:

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
        order_seed: int,
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
        # Pages are compared only between groups.
        self._order = Order(plan.cells, order_seed, seeds=plan.experiment.seeds if len(groups) > 1 else ())
        self._after, self._dry = -1, False
        """How far the database was read."""
        # A group that has to wait holds so many runs, so that memory stays flat.
        self._held = max(16, _HELD // len(self._groups)) if self._groups else _HELD
        self._ready: list[tuple[Turn, int]] = []
        """A heap of (turn of its next run, number) of groups that may have a free place. Entries may be outdated."""
        self._waiting: dict[Key, list[tuple[Turn, int]]] = {}
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
            attempt = self._attempt(run)
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
        return self._attempt(run)

    def _attempt(self, run: RunRecord) -> Attempt:
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
        """The group that has the first run in the order of execution which may start now; None when there is none."""
        while True:
            while self._ready:
                turn, number = heapq.heappop(self._ready)
                group = self._groups[number]
                if not group.page or group.turn is not turn:
                    continue  # outdated: this run was taken
                full = self._full(group)
                if full is None:
                    return group
                heapq.heappush(self._waiting.setdefault(full, []), (turn, number))
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
                runs = self._blocks(group.after, self._held, cells)
                if not runs:
                    break
                group.after = runs[-1].position
                own = (run for run in runs if self._group_of.get(run.cell) is group and self._chosen(run))
                group.page.extend(run for block in self._order.blocks(own) for run in block)
        if group.page:
            group.turn = self._order.turn(group.page[0])
            heapq.heappush(self._ready, (group.turn, group.number))

    def _blocks(self, after: int, size: int, cells: Sequence[int] | None = None) -> list[RunRecord]:
        """Read about `size` runs behind this position, in plan order, but no block in part."""
        runs: list[RunRecord] = []
        while True:
            page = list(self._edition.runs(self._statuses, after=after, limit=size, cells=cells))
            runs += page
            if len(page) < size:
                return runs
            # The last block may go on behind this page: it is left to the next one, or read to its end.
            block, whole = self._order.block(runs[-1]), len(runs) - 1
            while whole and self._order.block(runs[whole - 1]) == block:
                whole -= 1
            if whole:
                return runs[:whole]
            after = runs[-1].position

    def _chosen(self, run: RunRecord) -> bool:
        return (self._only is None or self._only(run)) and run.position not in self._claimed

    def _read(self) -> bool:
        """Read the next page of all runs, and give each to its group. False when there are no more."""
        if self._dry:
            return False
        runs = self._blocks(self._after, _PAGE)
        if not runs:
            self._dry = True
            return False
        self._after = runs[-1].position
        for block in self._order.blocks(runs):
            first = min(run.position for run in block)
            for run in block:
                group = self._group_of.get(run.cell)
                if group is None:
                    continue  # of a cell that the plan no longer has
                if not self._chosen(run):
                    self.left_out += run.position not in self._claimed
                elif group.after is None:
                    # A group stops between blocks: inside of one, runs are not in the order of their positions.
                    if len(group.page) >= self._held and group.page[-1].position < first:
                        group.after = first - 1
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
