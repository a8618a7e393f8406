"""What changed, as it changes: one stream of events for each open page, which names the parts of it that are new.

    event: changed
    data: progress runs

A page fetches these parts again. Editions are only looked at while somebody listens, and the more an update costs the
rarer they are, so that a viewer takes little from the runs that it shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from bakeoff.errors import BakeoffError

QUIET = 0.05
"""Seconds between two looks while nothing happens."""
SHARE = 0.05
"""The share of a processor that updates may take."""
SLOWEST = 5.0
"""Seconds between two looks, however much one costs."""
HEARTBEAT = 15.0
"""Seconds of silence after which an empty line shows that the stream is alive."""

Look = Callable[[], set[str]]
"""Finds out what changed since its last call: names of parts."""


class Feed:
    """The listeners of one edition, or of the first page, and the task that looks for them."""

    def __init__(self, look: Look, quiet: float = QUIET) -> None:
        self._look, self._quiet = look, quiet
        self._listeners: dict[asyncio.Event, set[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    async def events(self) -> AsyncIterator[str]:
        """The text of the stream. The first event says `all`: whoever comes, or comes back, fetches everything."""
        wake = asyncio.Event()
        self._listeners[wake] = {"all"}
        wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            while True:
                try:
                    await asyncio.wait_for(wake.wait(), HEARTBEAT)
                except TimeoutError:
                    yield ": nothing new\n\n"
                    continue
                if self._ended:
                    return
                wake.clear()
                names, self._listeners[wake] = self._listeners[wake], set()
                yield f"event: changed\ndata: {' '.join(sorted(names))}\n\n"
        finally:
            del self._listeners[wake]
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    def end(self) -> None:
        """End the streams of all listeners: the server stops."""
        self._ended = True
        for wake in self._listeners:
            wake.set()

    async def _watch(self) -> None:
        while True:
            began = time.process_time()
            names: set[str] = set()
            with suppress(BakeoffError):  # the page that asks for the part says what is wrong
                names = await asyncio.to_thread(self._look)
            for wake, pending in self._listeners.items():
                if names:
                    pending |= names
                    wake.set()
            # All that this process did meanwhile is counted, so the pages that were fetched are, too.
            spent = time.process_time() - began
            await asyncio.sleep(min(SLOWEST, max(self._quiet, spent / SHARE)))
