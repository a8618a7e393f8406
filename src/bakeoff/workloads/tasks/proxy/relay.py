"""One model call from end to end: checked, forwarded with bounded retries, read while it passes, recorded.

The order matters. What a call can use is reserved before it is sent, and it is charged for what it used, however it
ends: after a client has hung up, the proxy reads on alone until the provider has counted, for a while; then the
reservation is charged, marked as `estimated`. A call is written to disk after the last event or the whole body has arrived, and before the client
gets the end of its answer. So a client that has its answer, and whoever waits for that client, finds the call recorded.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
from httpx_sse._decoders import SSEDecoder
from starlette.exceptions import HTTPException

from bakeoff.errors import UsageError
from bakeoff.workloads.tasks.proxy.nonce import unshared
from bakeoff.workloads.tasks.proxy.powers import denied, passed_on
from bakeoff.workloads.tasks.proxy.providers import (
    LETTERS_PER_TOKEN,
    NOT_THE_AGENT,
    RETRYABLE,
    Limit,
    Patience,
    Provider,
    Route,
    redact,
    retry_delay,
)
from bakeoff.workloads.tasks.proxy.records import Call, End, Retry
from bakeoff.workloads.tasks.proxy.shared import Hold, Rates
from bakeoff.workloads.tasks.proxy.spending import Asked, Reservation, longest_within
from bakeoff.workloads.tasks.proxy.wire import (
    Assembler,
    BadRequest,
    Json,
    ModelRequest,
    Reply,
    Usage,
    Wire,
    json_object,
)

if TYPE_CHECKING:
    from bakeoff.workloads.tasks.proxy.http import Exchange
    from bakeoff.workloads.tasks.proxy.server import ProxiedRun


# httpx-sse has a public interface only for a whole response. This decoder takes single lines, so the bytes of each
# event can go to the client unchanged while the proxy reads what they mean.


UNPACKED_AT_ONCE = 1 << 20
# A carriage return at the very end of what has come may be the first half of "\r\n": it waits for the next byte.
_LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)


class Unreachable(Exception):
    """The provider did not answer."""


class TooLong(Exception):
    """The provider's answer is longer than an answer may be."""


class Left(Exception):
    """Nobody waits for the answer any more; says why."""


async def pieces(response: httpx.Response, most: int) -> AsyncIterator[bytes]:
    """The body of a response, unpacked. Raises TooLong after `most` bytes, and httpx.HTTPError.

    No compression is asked for, and some servers compress all the same. httpx would unpack a whole chunk at once, and
    64 kB can become gigabytes; here at most a megabyte is unpacked at a time.
    """
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("identity", "", "gzip", "deflate"):
        raise httpx.DecodingError(f"the answer is compressed with {packing!r}, which was not asked for")
    # 32 makes zlib look for a gzip or a zlib header: https://zlib.net/manual.html#Advanced (inflateInit2)
    unpacker = zlib.decompressobj(32 + zlib.MAX_WBITS) if packing in ("gzip", "deflate") else None
    size = 0
    async for chunk in response.aiter_raw():
        while chunk:
            try:
                piece = unpacker.decompress(chunk, UNPACKED_AT_ONCE) if unpacker is not None else chunk
            except zlib.error as error:
                raise httpx.DecodingError(f"the answer is not valid {packing}: {error}") from error
            chunk = unpacker.unconsumed_tail if unpacker is not None else b""
            size += len(piece)
            if size > most:
                raise TooLong(f"the provider's answer is longer than {most} bytes")
            yield piece


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


@dataclass(slots=True)
class Admission:
    """The waiting of one call for room within its provider's rates. Each try counts as a request."""

    rates: Rates | None
    expected: float
    """Tokens."""
    patience: Patience
    used: int | None = None
    """What the call used, set when it is known."""
    sent: bool = False
    """The provider has the request and may be at work on it, or has answered."""
    last: bool = False
    """No further try is made."""
    _number: int | None = None

    async def wait(self) -> None:
        if self.rates is None:
            return
        if self._number is not None:
            await self.rates.correct(self._number, 0.0)  # the try before this one failed
        self.patience.begin(time.monotonic())  # the time of waiting is not the agent's
        try:
            self._number = await self.rates.enter(self.expected)
        finally:
            self.patience.end()

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        if self.rates is not None and self._number is not None and self.used is not None:
            await self.rates.correct(self._number, self.used)


@asynccontextmanager
async def post(
    client: httpx.AsyncClient,
    provider: Provider,
    wire: Wire,
    headers: dict[str, str],
    body: Json,
    retried: list[Retry],
    patience: Patience,
    admission: Admission,
) -> AsyncIterator[httpx.Response]:
    """Send a request; gives the response with its headers read and its body still to come. Raises Unreachable.

    A retryable status or a lost connection is tried again until `patience` or `provider.retries` is used up; `retried`
    gets each failed try. Each try waits for its `admission`.
    """
    content = msgspec.json.encode(wire.content(body))
    url = provider.url(wire, body)
    timeout = httpx.Timeout(provider.timeout_s, connect=min(15.0, provider.timeout_s))
    response: httpx.Response | None = None
    began = time.monotonic()
    for attempt in count():
        await admission.wait()
        request = client.build_request("POST", url, headers=headers, content=content, timeout=timeout)
        response = None
        try:
            admission.sent = True
            response = await client.send(request, stream=True)
        except httpx.HTTPError as error:
            status, reason = None, f"{type(error).__name__}: {error}".rstrip(": ")
            # After a read timeout the provider may still be at work on the request: never send it twice.
            admission.sent = isinstance(error, httpx.ReadTimeout)
            if admission.sent or admission.last or _given_up(attempt, began, provider, patience):
                raise Unreachable(reason) from error
        else:
            refused = response.status_code in RETRYABLE
            if not refused or admission.last or _given_up(attempt, began, provider, patience):
                break
            admission.sent = False
            await response.aclose()
            status, reason = response.status_code, response.reason_phrase
        seconds = retry_delay(attempt, response.headers.get("retry-after") if response is not None else None)
        seconds = min(seconds, max(0.0, began + patience.seconds - time.monotonic()))
        retried.append(Retry(status, reason, round(seconds, 3)))
        patience.begin(began)  # the failed tries do not count as the agent's time either
        try:
            await asyncio.sleep(seconds)
        finally:
            patience.end()
    assert response is not None
    try:
        yield response
    finally:
        await response.aclose()


def _given_up(attempt: int, began: float, provider: Provider, patience: Patience) -> bool:
    """Whether a call that began at `began` and failed `attempt + 1` times is not tried again."""
    spent = provider.retries is not None and attempt >= provider.retries
    return spent or time.monotonic() >= began + patience.seconds


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
        self._decoder = SSEDecoder()

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes."""
        self._pending += chunk
        events, start = [], 0
        for end in _LINE_END.finditer(self._pending, self._searched):
            line = without(bytes(self._pending[start : end.end()]), self._secrets)
            start = end.end()
            self._lines.append(line)
            text = line.rstrip(b"\r\n").decode(errors="replace")
            decoded = self._decoder.decode(text)
            if not text:
                # The decoder gives nothing for an event without fields, such as a comment; its bytes go on all the
                # same.
                data = json_object(decoded.data) if decoded is not None else ""
                raw = b"".join(self._lines)
                events.append(Event(raw, decoded.event if decoded else "", data if isinstance(data, dict) else None))
                self._lines = []
        del self._pending[:start]
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


REFUSALS = (429, 403, 401)
"""Statuses for a run without budget: first, second and later calls. Some clients repeat a 429 for minutes, some a
403."""
FINAL = {"x-should-retry": "false"}
"""The vendors' own client libraries obey this header and give up at once."""
PASSED_ON = ("accept", "user-agent", "anthropic-version")
"""Headers of the client that go to the provider. No other does, so no client can change who is asking."""
BETAS = ("anthropic-beta", "openai-beta")
"""Headers that switch on what a provider does not offer to everybody. Each of their values has to be allowed."""
PASSED_BACK = re.compile(
    r"content-type|retry-after(-ms)?|(x-)?request-id|openai-processing-ms|x-ratelimit-.*|anthropic-ratelimit-.*"
)
"""Headers of the provider that go to the client."""


class Relay:
    """One call of `run` on its way through the proxy. `serve` does everything."""

    def __init__(self, exchange: Exchange, run: ProxiedRun, wire: Wire, found: Json, client: httpx.AsyncClient) -> None:
        """`found` is what the wire found in the address of the request."""
        self.exchange, self.run, self.wire, self.found, self.client = exchange, run, wire, found, client
        self.began = time.monotonic()
        self.call = Call(number=0, wire=wire.name, end="answered", time_s=round(self.began - run.began, 4))
        """The record, which is filled in as the call goes on."""
        self.reply = Reply()
        self._reserved: Reservation | None = None
        self._hold: Hold | None = None
        """What is reserved in the experiment's budget."""
        self._admission: Admission | None = None
        self._assembler: Assembler | None = None
        self._answering: asyncio.Future[None] | None = None
        """The call to the provider."""
        self._alone = False
        """Nobody waits for the answer; it is read for its usage."""
        self._whole = False
        """The provider has sent the end of its answer."""
        self._finish: Callable[[], Awaitable[None]] | None = None
        """Sends the end of the answer. It runs once the call is on disk."""

    async def serve(self) -> None:
        """Answer the request and record the call.

        Raises what `Exchange.body` raises, and OSError if nothing is recorded.
        """
        try:
            body = json_object(await self.exchange.body())
            if isinstance(body, dict):
                self.exchange.check_size(body)
        except HTTPException as refusal:  # `Server` answers
            self.call.status = refusal.status_code
            self._failed("client", refusal.detail)
            self._record(None, None)
            raise
        try:
            if isinstance(body, str):
                raise BadRequest(body)
            body = self.wire.arrived(body, self.found)
            request = self.wire.read(body)
        except BadRequest as error:
            self._refuse(400, "invalid_request", str(error), "client")
            self._record(None, None)
        else:
            route = self.run.route(request.model)
            if names := denied(self.wire.name, body, self.run.allowed):
                self._deny(names)
                self._record(request, route)
            else:
                scoped = passed_on(self.wire.name, body, self.run.allowed, self.run.scoped)
                await self._ask(scoped, request, route)
        if self._finish is not None:
            await self._finish()

    async def _ask(self, body: Json, request: ModelRequest, route: Route) -> None:
        """Forward the request if the budget allows it; record the call however it ends."""
        sent = self.wire.outgoing(body, route.model, route.provider.request)
        if not self.run.share_cache:
            sent = unshared(self.wire.name, sent, self.run.scoped("nonce")[:16])
        asked = Asked.of(self.wire, sent)
        answered = False
        try:
            try:
                await self._while_wanted(self._pay(body, sent, asked, route))
            except Left as left:
                # Many clients hang up at the last event of a stream. They have the whole answer, so the call counts.
                answered = self._assembler is not None and self._assembler.ended
                self._alone = True
                if self._sent:
                    await self._drain()
                self._finish = None
                if not answered:
                    self._left(str(left))
        except asyncio.CancelledError:
            if not answered and self.reply.finish is None:
                self._left("the run was over")
            raise
        except Exception as error:  # whatever happens, the call is recorded and the proxy lives
            self._failed("upstream", f"proxy: {type(error).__name__}: {error}")
            raise
        finally:
            await self._stop()
            usage = self._used(asked)
            self.call.usage, self.call.cost = usage, usage.dollars(route.price) if usage else None
            self.call.cost_uncached = usage.uncached_dollars(route.price) if usage else None
            if self._reserved is not None:
                self.run.spending.end(self._reserved, asked, usage, self.call.cost)
            try:
                self._record(request, route)
            finally:  # what it held would keep the calls of other runs waiting
                if self.run.together is not None and self._hold is not None:
                    await self.run.together.settle(self._hold, self.call.cost or 0.0, usage.total if usage else 0)

    async def _pay(self, body: Json, sent: Json, asked: Asked, route: Route) -> None:
        """Reserve what the call can use, which may take until other calls end, and forward it."""
        limit: Limit | None = "record" if self.run.record_full else await self._reserve(asked, route)
        if limit is not None or self._reserved is None:
            self._over_budget(limit or "record")
            return
        if self._reserved.capped:
            sent = self.wire.capped(sent, self._reserved.output)
        await self._forward(body, sent, route, self._reserved.needs[1])

    async def _reserve(self, asked: Asked, route: Route) -> Limit | None:
        """Reserve what the call can use, in the budgets of the run and of the experiment, or say which has no room."""
        spending, together = self.run.spending, self.run.together
        while (reserved := spending.reserve(asked, route.price)) is None:
            await spending.settled()
        if not isinstance(reserved, Reservation):
            return reserved
        self._reserved = reserved
        if together is None:
            return None
        self.run.patience.begin(time.monotonic())  # waiting for the calls of other runs is not the agent's time
        try:
            self._hold = await together.hold(reserved.needs, (reserved.cost, float(reserved.tokens)))
        finally:
            self.run.patience.end()
        if self._hold is None:
            spending.take_back(reserved)
            self._reserved = None
            return "experiment"
        left = longest_within(
            self._hold.tokens if together.tokens is not None else None,
            self._hold.cost if together.cost is not None else None,
            reserved.input,
            route.price,
        )
        if left is not None and left < reserved.output:
            reserved.output, reserved.capped = left, True
        return None

    @property
    def _sent(self) -> bool:
        """The provider has the request."""
        return self._admission is not None and self._admission.sent

    def _used(self, asked: Asked) -> Usage | None:
        """What the call used: as the provider counts it, else estimated. No call that was sent is free."""
        reserved, usage, message = self._reserved, self.reply.usage, self.reply.message
        if reserved is None or not self._sent or self.found.get("count"):
            return usage
        if not self._whole:
            return reserved.unsettled(usage)
        if message is None:
            return usage
        if asked.answers > 1 and not (usage and usage.output):  # only the first answer is recorded
            return reserved.unsettled(usage)
        written = len(msgspec.json.encode(message)) // LETTERS_PER_TOKEN
        silent = not (message.get("content") or message.get("tool_calls"))
        usage = usage or Usage()
        if usage.input and (usage.output or silent):
            return usage
        # The provider did not count, and no request has 0 tokens.
        return Usage(input=usage.input or reserved.input, output=usage.output or written, estimated=True)

    def _left(self, why: str) -> None:
        """Note that the client has gone without its answer."""
        if self.call.retries and self.exchange.status is None and not self._sent:
            # The agent did not outwait its provider.
            tries = f"the provider failed {len(self.call.retries)} times: {self.call.retries[-1].reason}"
            self._failed("upstream", f"{why} after {tries}")
        else:
            self._failed("client", why)

    async def _while_wanted(self, answering: Coroutine[Any, Any, None]) -> None:
        """Wait for the answer, or for the run's deadline, whichever comes first.

        Raises Left when the client has hung up, or its run is over. The answer still comes then: see `_drain`.
        """
        self._answering = asyncio.ensure_future(answering)
        leaving = asyncio.ensure_future(self.exchange.gone())
        over = asyncio.ensure_future(self.run.over.wait())
        try:
            waited = {self._answering, leaving, over}
            done, _ = await asyncio.wait(waited, timeout=self._left_s(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in (leaving, over):
                waiting.cancel()
            await asyncio.gather(leaving, over, return_exceptions=True)
        if self._answering in done:
            return self._answering.result()
        if done:
            raise Left("the client hung up" if leaving in done else "the run was over")
        await self._stop()
        self._over_budget("deadline")

    def _left_s(self) -> float | None:
        """Seconds until the run's deadline."""
        deadline = self.run.spending.budget.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    async def _drain(self) -> None:
        """Read the answer to its end without a client, for the usage at its end. What it costs is reserved already."""
        if self._answering is None or self._admission is None:
            return
        self._admission.last = True
        limits = [self.run.drain_s, self._left_s()]
        await asyncio.wait({self._answering}, timeout=min(limit for limit in limits if limit is not None))

    async def _stop(self) -> None:
        """End the call to the provider, if it still runs."""
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)

    async def _forward(self, body: Json, sent: Json, route: Route, tokens: float) -> None:
        """Send `sent` to the provider and pass its answer to the client, who sent `body`.

        The call is expected to use so many `tokens`, for which the provider's rates must have room.
        """
        environment = self.run.providers.environment
        try:
            if self.wire.name not in route.provider.wire_api:
                raise UsageError(f"{route.provider_name} does not speak the {self.wire.name} API")
            headers = {name: self.exchange.headers[name] for name in PASSED_ON if name in self.exchange.headers}
            # Not compressed: the bytes of the answer are read and passed on as they are.
            headers |= {"content-type": "application/json", "accept-encoding": "identity"} | self._betas()
            headers |= route.headers(self.wire, environment)
        except UsageError as error:
            self._refuse(400, "misconfigured", str(error), "upstream")
            return
        secrets = route.secrets(environment)
        admission = self._admission = Admission(route.rates, tokens, self.run.patience)
        try:
            async with (
                admission,
                post(
                    self.client,
                    route.provider,
                    self.wire,
                    headers,
                    sent,
                    self.call.retries,
                    self.run.patience,
                    admission,
                ) as response,
            ):
                back = {name: value for name, value in response.headers.items() if PASSED_BACK.fullmatch(name)}
                if response.status_code >= 300:
                    await self._pass_error(response, back, secrets)
                # Some servers ignore `stream` and answer with one JSON body.
                elif body.get("stream") is True and "json" not in response.headers.get("content-type", ""):
                    await self._pass_stream(response, back, body, secrets)
                else:
                    await self._pass_whole(response, back, secrets)
                admission.used = self.reply.usage.total if self.reply.usage else None
        except Unreachable as error:
            self._refuse(502, "upstream_unreachable", f"no answer from the provider: {error}", "upstream")
        except TooLong as error:
            self.run.met("answer")
            self._refuse(502, "upstream_too_long", str(error), "upstream")

    async def _body(self, response: httpx.Response) -> bytes:
        """The whole body of a response. Raises TooLong and httpx.HTTPError."""
        return b"".join([piece async for piece in pieces(response, self.run.answer_bytes)])

    def _betas(self) -> dict[str, str]:
        """Beta headers with the values that the run may use; the others are left out and recorded."""
        kept = {}
        for name in BETAS:
            values = [value.strip() for value in self.exchange.headers.get(name, "").split(",") if value.strip()]
            if use := [value for value in values if value in self.run.allowed]:
                kept[name] = ",".join(use)
            self.call.left_out += [f"{name}: {value}" for value in values if value not in use]
        return kept

    async def _pass_error(self, response: httpx.Response, headers: dict[str, str], secrets: list[str]) -> None:
        """Pass on an answer that is not a success, and decide whether the agent or the provider is to blame for it."""
        try:
            text = (await self._body(response)).decode(errors="replace")
        except httpx.HTTPError:
            text = ""
        text = redact(text, secrets)
        # An error is free, unless it says what it used.
        found = json_object(text)
        self.reply = Reply(usage=self.wire.reply(found).usage) if isinstance(found, dict) else Reply()
        self._whole = True
        bad_request = 400 <= response.status_code < 500 and response.status_code not in NOT_THE_AGENT
        error = f"{response.status_code} {response.reason_phrase}: {text[:2000]}"
        self._failed("refused" if bad_request else "upstream", error)
        self._answer(response.status_code, text.encode(), headers)

    async def _pass_whole(self, response: httpx.Response, headers: dict[str, str], secrets: list[str]) -> None:
        """Pass on an answer in one piece, if it is JSON."""
        try:
            text = without(await self._body(response), [secret.encode() for secret in secrets])
        except httpx.HTTPError as error:
            self._refuse(502, "upstream_broke", f"the provider broke off: {type(error).__name__}", "upstream")
            return
        answer = json_object(text)
        if isinstance(answer, str):
            self._refuse(502, "upstream_broke", "the provider's answer is not JSON", "upstream")
            return
        self.call.first_token_s = self._elapsed()
        if self.found.get("count"):  # the number of tokens of a request: not an answer of the model
            self.call.end = "counted"
            self._answer(response.status_code, text, headers)
            return
        self.reply, self._whole = self.wire.reply(answer), True
        if self.reply.message is None:  # some gateways put an error into a body with status 200
            shown = text[:400].decode(errors="replace")
            self._failed("upstream", f"the provider's answer has no message: {shown}")
        self._answer(response.status_code, text, headers)

    async def _pass_stream(
        self, response: httpx.Response, headers: dict[str, str], body: Json, secrets: list[str]
    ) -> None:
        """Pass on every event at once, but for those that only the proxy asked for.

        Once an answer has begun, its status cannot change any more. A stream that goes wrong after that is left without
        an end: HTTP's chunked encoding has a last chunk (RFC 9112, 7.1), and a client that misses it knows.
        """
        reader, assembler = EventReader(secrets), self.wire.assembler()
        self._assembler = assembler
        self.call.status = response.status_code
        await self.exchange.start(response.status_code, {**headers, "cache-control": "no-cache"})
        complete = False
        try:
            async for chunk in pieces(response, self.run.answer_bytes):
                shown = []
                for event in reader.feed(chunk):
                    if event.data is not None:
                        self.call.first_token_s = self.call.first_token_s or self._elapsed()
                        assembler.feed(event.name, event.data)
                    elif b"[DONE]" in event.raw:
                        assembler.ended = complete = True
                    if event.data is None or not self.wire.hidden(body, event.data):
                        shown.append(event.raw)
                if shown and not self._alone:
                    await self.exchange.send(b"".join(shown))
            complete = True
        except httpx.HTTPError as error:
            assembler.error = f"the provider broke off: {type(error).__name__}"
        except TooLong as error:
            self.run.met("answer")
            assembler.error = str(error)
        finally:
            self.reply = self.wire.reply(assembler.body())
            # Chat completions are counted in an event after the last one of the model. The first of several answers may
            # have ended long before the others.
            counted = complete or self.reply.usage is not None or self.wire.answers(body) == 1
            self._whole = assembler.ended and counted
        if assembler.error is None and not assembler.ended:
            assembler.error = "the provider's stream ended early"
        if assembler.error is not None:
            self._failed("upstream", assembler.error)
            return
        self._finish = lambda: self.exchange.send(reader.rest, more=False)

    def _over_budget(self, limit: Limit) -> None:
        """Refuse the call because of this limit."""
        status = REFUSALS[min(self.run.refusals, len(REFUSALS) - 1)]
        self.run.refusals += 1
        self.run.limit = self.call.limit = limit
        if limit == "record":
            self.run.met(limit)
        self._refuse(status, "budget_exceeded", f"this run's {limit} budget is used up", "budget")

    def _deny(self, names: list[str]) -> None:
        """Refuse a request that asks the provider for more than an answer."""
        self.call.denied = names
        message = (
            f"this run may not use {', '.join(names)} of the provider; "
            f"the experiment file can allow it: allow_provider_tools = {msgspec.json.encode(names).decode()}"
        )
        self._refuse(400, "not_allowed", message, "denied")

    def _answer(self, status: int, body: Json | bytes, headers: dict[str, str]) -> None:
        """Set the answer that is sent once the call is recorded."""
        self.call.status = status
        self._finish = lambda: self.exchange.answer(status, body, headers)

    def _refuse(self, status: int, code: str, message: str, end: End) -> None:
        """Answer with an error in the shape of the API; in the middle of a stream, with an event and a cut."""
        self._failed(end, message)
        body = self.wire.error(status, code, message)
        if self.exchange.status is None:
            self._answer(status, body, FINAL if end in ("budget", "denied") else {})
        else:
            event = msgspec.json.encode({"type": "error", **body})
            self._finish = lambda: self.exchange.send(b"event: error\ndata: " + event + b"\n\n")

    def _record(self, request: ModelRequest | None, route: Route | None) -> None:
        """Write the call to disk. `request` is None where the body was not a request."""
        call, reply = self.call, self.reply
        if call.end == "answered" and reply.message is None:
            self._failed("upstream", "the provider's answer has no message")
        call.reply, call.finish, call.tokens = reply.message, reply.finish, reply.tokens
        call.total_s = self._elapsed()
        self.run.write(call, request, route, reply.id)

    def _elapsed(self) -> float:
        return round(time.monotonic() - self.began, 4)

    def _failed(self, end: End, error: str) -> None:
        self.call.end, self.call.error = end, error
