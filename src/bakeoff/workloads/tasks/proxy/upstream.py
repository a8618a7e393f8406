"""The way to a provider: real key, bounded retries, answers in pieces as they come."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import msgspec

from bakeoff.workloads.tasks.proxy.calls import Retry
from bakeoff.workloads.tasks.proxy.wire.face import Json

TRY_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 522, 524, 529})
NOT_THE_AGENT = TRY_AGAIN | {401, 402, 403, 404}
"""Answers that say nothing about the agent: overload, a wrong key, an unknown model."""
LONGEST_WAIT = 20.0
PASSED_ON = ("accept", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta")
"""Of the client's headers. Everything else stays here, so nothing that it says can change who we are."""
PASSED_BACK = re.compile(
    r"content-type|retry-after(-ms)?|(x-)?request-id|openai-processing-ms|x-ratelimit-.*|anthropic-ratelimit-.*"
)
_KEY_LIKE = re.compile(r"\b(sk|pk|key)-[\w*.-]{6,}")


class Unreachable(Exception):
    """No answer from the provider."""


@asynccontextmanager
async def asked(
    client: httpx.AsyncClient,
    url: str,
    headers: dict[str, str],
    body: Json,
    *,
    silence_s: float,
    retries: int,
    note: Callable[[Retry], None],
) -> AsyncIterator[httpx.Response]:
    """The provider's answer with its headers read and its body still to come."""
    content = msgspec.json.encode(body)
    timeout = httpx.Timeout(silence_s, connect=min(15.0, silence_s))
    response: httpx.Response | None = None
    for attempt in range(retries + 1):
        request = client.build_request("POST", url, headers=headers, content=content, timeout=timeout)
        try:
            response = await client.send(request, stream=True)
        except httpx.HTTPError as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            if attempt == retries or isinstance(error, httpx.ReadTimeout):  # it may be at work still: never ask twice
                raise Unreachable(reason) from error
            await _wait(attempt, None, Retry(None, reason, 0.0), note)
            continue
        if response.status_code not in TRY_AGAIN or attempt == retries:
            break
        await response.aclose()
        said = Retry(response.status_code, response.reason_phrase, 0.0)
        await _wait(attempt, response.headers.get("retry-after"), said, note)
    assert response is not None
    try:
        yield response
    finally:
        await response.aclose()


def pause(attempt: int, told: str | None) -> float:
    """Seconds, as many as the provider says, within reason; else half a second, doubling, with jitter."""
    try:
        seconds = float(told) if told else 0.5 * 2**attempt * random.uniform(0.75, 1.25)
    except ValueError:  # a date
        seconds = 1.0
    return min(max(0.0, seconds), LONGEST_WAIT)


async def _wait(attempt: int, told: str | None, retry: Retry, note: Callable[[Retry], None]) -> None:
    seconds = pause(attempt, told)
    await asyncio.sleep(seconds)
    note(msgspec.structs.replace(retry, waited_s=round(seconds, 3)))


def without_secrets(text: str, secrets: list[str]) -> str:
    """Providers like to repeat the key that they did not accept."""
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return _KEY_LIKE.sub("[key]", text)
