"""A server with an event loop of its own, in a thread that runs while the server is open."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from bakeoff.errors import BakeoffError

STARTING_S = 10.0


class ThreadedServer(ABC):
    """A context manager: entering starts the thread and returns once it serves, leaving ends it.

    Raises BakeoffError from `with` when it cannot start, or when it failed later: what it served then is not known.
    """

    title: str
    """What messages call it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name=self.title, daemon=True)

    @abstractmethod
    def _serving(self) -> AbstractAsyncContextManager[None]:
        """Listen while this is open, in the thread's event loop."""

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(STARTING_S) or self._failure is not None:
            raise BakeoffError(f"the {self.title} did not start: {self._failure or 'no answer'}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if error is None:
            self._check()

    def _check(self) -> None:
        """Raise what ended the thread, if it ended by itself."""
        if self._failure is not None:
            kind = type(self._failure).__name__
            raise BakeoffError(f"the {self.title} failed: {kind}: {self._failure}") from self._failure

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # nobody else would see what a thread raises
            self._failure = error
            self._ready.set()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._serving():
            self._ready.set()
            await self._stop.wait()
