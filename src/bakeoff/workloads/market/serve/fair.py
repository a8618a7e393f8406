"""Whose call is next: the seats of a server take turns, however many connections and batches each of them has.

Everything that costs time goes through one queue with a lane for each seat, and one more for everybody without a token.
A round takes one job of each lane. So while a job waits, every other lane gets at most one job done in the round that
is going on and one in the next: a seat that floods the server slows down itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

SLICE = 0.005
"""Seconds of jobs after which sockets, timers and signals get their turn, also within a round."""
LONGEST_HOLD = 1.0
"""Seconds after which a turn that is held is over. Only a fault in a protocol's library takes that long."""


class FairQueue:
    """Jobs by lane, done one after another on the event loop."""

    def __init__(self) -> None:
        # A dictionary keeps its order: the first lane is next, and a lane goes to the end after its turn.
        self._lanes: dict[Hashable, deque[tuple[asyncio.Future[Any], Callable[[], Any] | None]]] = {}
        self._scheduled = False
        self._held: object | None = None
        """Set while a turn is held."""

    def submit(self, lane: Hashable, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Return the future result of `job`, or its exception. A job that is cancelled before its turn is left out."""
        return self._add(lane, job)

    async def hold(self, lane: Hashable) -> Callable[[], None]:
        """Wait for the lane's turn, and return the function that ends it. For work that awaits something in between.

        Nothing else is done meanwhile, so the caller waits for no client and no disk while it holds the turn.
        """
        release: Callable[[], None] = await self._add(lane, None)
        return release

    def _add(self, lane: Hashable, job: Callable[[], Any] | None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._lanes.setdefault(lane, deque()).append((future, job))
        if not self._scheduled and self._held is None:
            # Not at once: the other requests that have arrived by now are to be in the same round.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)
        return future

    def _run(self) -> None:
        """Do the jobs of one round, or of a slice of it."""
        self._scheduled = False
        end = time.perf_counter() + SLICE
        for _ in range(len(self._lanes)):
            lane = next(iter(self._lanes))
            jobs = self._lanes.pop(lane)
            future, job = jobs.popleft()
            if jobs:
                self._lanes[lane] = jobs
            if not future.cancelled():
                self._do(future, job)
            if self._held is not None:
                return
            if time.perf_counter() > end:
                break
        if self._lanes:
            # A request takes two passes of the event loop from its socket to this queue: in the first one its bytes are
            # read, in the second its handler runs. With two passes between rounds it is in the next round but one.
            self._scheduled = True
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._run)

    def _do(self, future: asyncio.Future[Any], job: Callable[[], Any] | None) -> None:
        if job is None:
            # The token stands for this turn, so that its release does nothing to a later one.
            self._held = token = object()
            asyncio.get_running_loop().call_later(LONGEST_HOLD, self._release, token)
            future.set_result(lambda: self._release(token))
            return
        try:
            future.set_result(job())
        except Exception as error:
            future.set_exception(error)

    def _release(self, token: object) -> None:
        """End the turn that is held, unless it is over already."""
        if self._held is token:
            self._held = None
            if self._lanes:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._run)
