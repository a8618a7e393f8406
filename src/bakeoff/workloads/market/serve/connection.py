"""One connection to the server. Nobody has shown a token before a request's head is there: it is short, and comes soon."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 1 << 16
HEAD_TIMEOUT = 30.0


class Connection(HttpToolsProtocol):
    _size = 0
    _timer: asyncio.TimerHandle | None = None
    """Runs while a head is awaited."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._size += len(data)
        if self._timer is not None and self._size > LARGEST_HEAD:
            self.send_400_response(f"The head of a request has at most {LARGEST_HEAD} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._stop_waiting()
        self._size = 0
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
