"""The way to a provider: a request with bounded retries, and its stream of events as they come."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

import httpx
import msgspec

# httpx-sse has a public interface only for a whole response. This decoder takes single lines, so the bytes of each
# event can go to the client unchanged while the proxy reads what they mean.
from httpx_sse._decoders import SSEDecoder

from bakeoff.workloads.tasks.proxy.providers import RETRYABLE, retry_delay
from bakeoff.workloads.tasks.proxy.records import Retry
from bakeoff.workloads.tasks.proxy.wire.base import Json, json_object

LARGEST_EVENT = 64 << 20
"""Bytes of one event of a stream."""
# A carriage return at the very end of what has come may be the first half of "\r\n": it waits for the next byte.
_LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)


class Unreachable(Exception):
    """The provider did not answer."""


class EndlessEvent(Exception):
    """An event of a stream that does not come to an end."""


@cache
def _certificates() -> ssl.SSLContext:
    """Loading certificates takes about 40 ms, so a process does it once and not for every proxy."""
    return httpx.create_ssl_context()


def open_client() -> httpx.AsyncClient:
    """The client for all providers."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    # HTTP_PROXY and its kin apply, but not on the way to this machine.
    here = {f"all://{host}": None for host in ("127.0.0.1", "localhost", "[::1]")}
    return httpx.AsyncClient(verify=_certificates(), limits=limits, mounts=here, follow_redirects=False)


@asynccontextmanager
async def post(
    client: httpx.AsyncClient,
    url: str,
    headers: dict[str, str],
    body: Json,
    *,
    silence_s: float,
    retries: int,
    on_retry: Callable[[Retry], None],
) -> AsyncIterator[httpx.Response]:
    """Send a request; gives the response with its headers read and its body still to come. Raises Unreachable.

    `silence_s` is the longest time without a byte from the provider. A retryable status or a lost connection is
    tried again up to `retries` times; `on_retry` gets each failed try.
    """
    content = msgspec.json.encode(body)
    timeout = httpx.Timeout(silence_s, connect=min(15.0, silence_s))
    response: httpx.Response | None = None
    for attempt in range(retries + 1):
        request = client.build_request("POST", url, headers=headers, content=content, timeout=timeout)
        response = None
        try:
            response = await client.send(request, stream=True)
        except httpx.HTTPError as error:
            status, reason = None, f"{type(error).__name__}: {error}".rstrip(": ")
            # After a read timeout the provider may still be at work on the request: never send it twice.
            if attempt == retries or isinstance(error, httpx.ReadTimeout):
                raise Unreachable(reason) from error
        else:
            if response.status_code not in RETRYABLE or attempt == retries:
                break
            await response.aclose()
            status, reason = response.status_code, response.reason_phrase
        seconds = retry_delay(attempt, response.headers.get("retry-after") if response is not None else None)
        await asyncio.sleep(seconds)
        on_retry(Retry(status, reason, round(seconds, 3)))
    assert response is not None
    try:
        yield response
    finally:
        await response.aclose()


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    raw: bytes
    """All its bytes, with the empty line that ends it."""
    name: str
    data: Json | None
    """None when the data is not a JSON object, as in `[DONE]` or a comment."""


class EventReader:
    """Cuts a byte stream into server-sent events, wherever the network cut it into chunks.

    The bytes of all events and of `rest` are exactly the bytes of the stream, but for `secrets`: a line that
    contains one gets `[key]` in its place.
    https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret.encode() for secret in secrets]
        self._pending = bytearray()
        """What has come since the last whole line."""
        self._searched = 0
        """Bytes of `_pending` without a line end, so that a long line is not searched again with every chunk."""
        self._lines: list[bytes] = []
        """Whole lines of the event that is coming, with their ends."""
        self._size = 0
        self._decoder = SSEDecoder()

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes. Raises EndlessEvent."""
        self._pending += chunk
        events, start = [], 0
        for end in _LINE_END.finditer(self._pending, self._searched):
            line = without(bytes(self._pending[start : end.end()]), self._secrets)
            start = end.end()
            self._lines.append(line)
            self._size += len(line)
            text = line.rstrip(b"\r\n").decode(errors="replace")
            decoded = self._decoder.decode(text)
            if not text:
                # The decoder gives nothing for an event without fields, such as a comment; its bytes go on all the
                # same.
                data = json_object(decoded.data) if decoded is not None else ""
                raw = b"".join(self._lines)
                events.append(Event(raw, decoded.event if decoded else "", data if isinstance(data, dict) else None))
                self._lines, self._size = [], 0
        del self._pending[:start]
        if self._size + len(self._pending) > LARGEST_EVENT:
            raise EndlessEvent
        # The last byte is searched again: it may be the carriage return that was put off.
        self._searched = max(0, len(self._pending) - 1)
        return events

    @property
    def rest(self) -> bytes:
        """What came after the last whole event."""
        return without(b"".join(self._lines) + self._pending, self._secrets)


def without(text: bytes, secrets: Iterable[bytes]) -> bytes:
    """`text` with `[key]` in place of each secret."""
    for secret in secrets:
        text = text.replace(secret, b"[key]")
    return text
