"""One model call from end to end: checked, forwarded, read while it passes, recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx
import msgspec

from bakeoff.errors import UsageError
from bakeoff.workloads.tasks.proxy.budget import LETTERS_PER_TOKEN, Limit
from bakeoff.workloads.tasks.proxy.calls import Call, End, Retry
from bakeoff.workloads.tasks.proxy.decoding import json_object
from bakeoff.workloads.tasks.proxy.http import ClientLeft, Exchange
from bakeoff.workloads.tasks.proxy.providers import Route
from bakeoff.workloads.tasks.proxy.runs import Run
from bakeoff.workloads.tasks.proxy.sse import Endless, EventReader, without
from bakeoff.workloads.tasks.proxy.upstream import (
    NOT_THE_AGENT,
    PASSED_BACK,
    PASSED_ON,
    Unreachable,
    asked,
    without_secrets,
)
from bakeoff.workloads.tasks.proxy.usage import Usage, cost
from bakeoff.workloads.tasks.proxy.wire.face import Asked, BadRequest, Json, Reply, Wire

FINAL = {"x-should-retry": "false"}
"""Clients built on the vendors' own libraries heed this and give up at once."""

REFUSALS = (429, 403, 401)
"""Some clients repeat a 429 for minutes, and some of those a 403."""


@dataclass(slots=True)
class Ending:
    """What is known about a call when it ends."""

    end: End = "answered"
    status: int | None = None
    reply: Reply = field(default_factory=Reply)
    first_token: float | None = None
    error: str | None = None
    limit: str | None = None
    retries: list[Retry] = field(default_factory=list)


class Relay:
    """A call on its way. `run` is whose it is."""

    def __init__(self, exchange: Exchange, run: Run, wire: Wire, client: httpx.AsyncClient) -> None:
        self.exchange, self.run, self.wire, self.client = exchange, run, wire, client
        self.began = time.monotonic()
        self.ending = Ending()
        self._last: Callable[[], Awaitable[None]] | None = None
        """What ends the answer, done once the call is on disk: a client that is done finds it recorded."""

    async def serve(self) -> None:
        body = json_object(await self.exchange.body())
        try:
            if isinstance(body, str):
                raise BadRequest(body)
            question = self.wire.read(body)
        except BadRequest as error:
            self._refuse(400, "invalid_request", str(error), "client")
            self._record(None, None)
        else:
            await self._ask(body, question, self.run.route(question.model))
        if self._last is not None:
            await self._last()

    async def _ask(self, body: Json, question: Asked, route: Route) -> None:
        letters, spending = _letters(question), self.run.spending
        share = spending.expected(letters)
        if (limit := spending.refusal(share)) is not None:
            self._over_budget(limit)
            self._record(question, route)
            return
        sent = self.wire.outgoing(body, route.model, route.provider.request)
        if (most := spending.longest_answer(share, route.price)) is not None:
            sent = self.wire.capped(sent, most)
        spending.begin(share)
        try:
            await self._within_deadline(self._forward(body, sent, route))
        except ClientLeft:
            self._left("the client hung up")
        except asyncio.CancelledError:
            self._left("the run was over")
            raise
        except Exception as error:  # whatever happens, the call is recorded and the proxy lives
            self.ending.end, self.ending.error = "upstream", f"proxy: {type(error).__name__}: {error}"
            raise
        finally:
            usage = self._usage(letters)
            paid = cost(usage, route.price) if usage else None
            spending.end(share, letters, usage, paid)
            self._record(question, route, usage, paid)

    def _left(self, error: str) -> None:
        """Nobody listens any more. Many clients hang up at the last event of a stream: then they have the whole answer."""
        if self.ending.reply.finish is None:
            self.ending.end, self.ending.error = "client", error

    async def _within_deadline(self, forwarding: Awaitable[None]) -> None:
        """Ends with the answer, the run's deadline or the client's hanging up, whichever comes first."""
        deadline = self.run.spending.budget.deadline
        left = None if deadline is None else deadline - time.monotonic()
        answering = asyncio.ensure_future(forwarding)
        leaving = asyncio.ensure_future(self.exchange.gone())
        try:
            done, _ = await asyncio.wait({answering, leaving}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
        if answering in done:
            return answering.result()
        if leaving in done:
            raise ClientLeft
        self._over_budget("deadline")

    def _over_budget(self, limit: Limit) -> None:
        """429 the first time. A client that comes again all the same gets what fewer of them try again."""
        status = REFUSALS[min(self.run.refused, len(REFUSALS) - 1)]
        self.run.refused += 1
        self.run.limit = self.ending.limit = limit
        self._refuse(status, "budget_exceeded", f"this run's {limit} budget is used up", "budget")

    async def _forward(self, body: Json, sent: Json, route: Route) -> None:
        environment = self.run.providers.environment
        try:
            if self.wire.name not in route.provider.wire_api:
                raise UsageError(f"{route.provider_name} does not speak the {self.wire.name} API")
            headers = {name: self.exchange.headers[name] for name in PASSED_ON if name in self.exchange.headers}
            headers |= {"content-type": "application/json", "accept-encoding": "identity"}
            headers |= route.headers(self.wire, environment)
        except UsageError as error:
            self._refuse(400, "misconfigured", str(error), "upstream")
            return
        try:
            async with asked(
                self.client,
                route.provider.url(self.wire),
                headers,
                sent,
                silence_s=route.provider.timeout_s,
                retries=route.provider.retries,
                note=self.ending.retries.append,
            ) as response:
                await self._pass_back(response, body, route.secrets(environment))
        except Unreachable as error:
            self._refuse(502, "upstream_unreachable", f"no answer from the provider: {error}", "upstream")

    async def _pass_back(self, response: httpx.Response, body: Json, secrets: list[str]) -> None:
        headers = {name: value for name, value in response.headers.items() if PASSED_BACK.fullmatch(name)}
        if response.status_code >= 300:
            await self._pass_error(response, headers, secrets)
        elif body.get("stream") is True and "json" not in response.headers.get("content-type", ""):
            await self._pass_stream(response, headers, body, secrets)
        else:
            await self._pass_whole(response, headers, secrets)

    async def _pass_error(self, response: httpx.Response, headers: dict[str, str], secrets: list[str]) -> None:
        try:
            text = (await response.aread()).decode(errors="replace")
        except httpx.HTTPError:
            text = ""
        text = without_secrets(text, secrets)
        asked_wrongly = 400 <= response.status_code < 500 and response.status_code not in NOT_THE_AGENT
        self.ending.end = "refused" if asked_wrongly else "upstream"
        self.ending.error = f"{response.status_code} {response.reason_phrase}: {text[:2000]}"
        self._answer(response.status_code, text.encode(), headers)

    async def _pass_whole(self, response: httpx.Response, headers: dict[str, str], secrets: list[str]) -> None:
        try:
            text = without(await response.aread(), [secret.encode() for secret in secrets])
        except httpx.HTTPError as error:
            self._refuse(502, "upstream_broke", f"the provider broke off: {type(error).__name__}", "upstream")
            return
        answer = json_object(text)
        if isinstance(answer, str):
            self._refuse(502, "upstream_broke", "the provider's answer is not JSON", "upstream")
            return
        self.ending.first_token = time.monotonic()
        self._read(answer)
        if self.ending.reply.message is None:  # some gateways put an error into an answer of 200
            said = text[:400].decode(errors="replace")
            self.ending.end, self.ending.error = "upstream", f"the provider's answer has no message: {said}"
        self._answer(response.status_code, text, headers)

    async def _pass_stream(
        self, response: httpx.Response, headers: dict[str, str], body: Json, secrets: list[str]
    ) -> None:
        """Every event goes on at once; only one that the client did not ask for is held back."""
        reader, assembler = EventReader(secrets), self.wire.assembler()
        self.ending.status = response.status_code
        await self.exchange.start(response.status_code, {**headers, "cache-control": "no-cache"})
        try:
            async for chunk in response.aiter_bytes():
                events = reader.feed(chunk)
                if self.ending.first_token is None and any(event.data for event in events):
                    self.ending.first_token = time.monotonic()
                for event in events:
                    if event.data is not None:
                        assembler.feed(event.name, event.data)
                    elif b"[DONE]" in event.raw:
                        assembler.ended = True
                shown = [event.raw for event in events if event.data is None or not self.wire.hidden(body, event.data)]
                await self.exchange.send(b"".join(shown))
        except (httpx.HTTPError, Endless) as error:
            assembler.error = f"the provider broke off: {type(error).__name__}"
        finally:
            self._read(assembler.body())
        if assembler.error is None and not assembler.ended:
            assembler.error = "the provider's stream ended early"
        if assembler.error is not None:  # without an end of ours the client sees that it was cut off
            self.ending.end, self.ending.error = "upstream", assembler.error
            return
        await self.exchange.send(reader.rest)
        self._last = self.exchange.end

    def _read(self, answer: Json) -> None:
        self.ending.reply = self.wire.reply(answer)

    def _answer(self, status: int, body: Json | bytes, headers: dict[str, str]) -> None:
        self.ending.status = status
        self._last = lambda: self.exchange.answer(status, body, headers)

    def _refuse(self, status: int, code: str, message: str, end: End) -> None:
        """An answer of ours in the API's own shape; in the middle of a stream, an event and a cut."""
        self.ending.end, self.ending.error = end, message
        body = self.wire.error(status, code, message)
        if self.exchange.status is None:
            self._answer(status, body, FINAL if end == "budget" else {})
        else:
            event = msgspec.json.encode({"type": "error", **body})
            self._last = lambda: self.exchange.send(b"event: error\ndata: " + event + b"\n\n")

    def _usage(self, letters: int) -> Usage | None:
        """As the provider counted, or a guess: uncounted calls must not be free, and no question has no tokens."""
        reply = self.ending.reply
        if reply.message is None or (reply.usage is not None and reply.usage.input):
            return reply.usage
        written = len(msgspec.json.encode(reply.message))
        return Usage(input=letters // LETTERS_PER_TOKEN, output=written // LETTERS_PER_TOKEN, estimated=True)

    def _record(
        self, question: Asked | None, route: Route | None, usage: Usage | None = None, paid: float | None = None
    ) -> None:
        ended, ending = time.monotonic(), self.ending
        reply = ending.reply.message
        if ending.end == "answered" and reply is None:
            ending.end, ending.error = "upstream", "the provider's answer has no message"
        call = Call(
            number=self.run.next_number(),
            wire=self.wire.name,
            end=ending.end,
            time_s=round(self.began - self.run.began, 4),
            status=ending.status,
            reply=reply,
            finish=ending.reply.finish,
            usage=usage,
            tokens=ending.reply.tokens,
            cost=paid,
            first_token_s=None if ending.first_token is None else round(ending.first_token - self.began, 4),
            total_s=round(ended - self.began, 4),
            retries=ending.retries,
            limit=ending.limit,
            error=ending.error,
        )
        self.run.record(call, question, route, ending.reply.id)


def _letters(question: Asked) -> int:
    """How much text a request has; pictures would count for far too much."""
    texts = [message for message in question.messages if not isinstance(message.get("content"), list)]
    return len(msgspec.json.encode(texts)) + len(msgspec.json.encode(question.tools))
