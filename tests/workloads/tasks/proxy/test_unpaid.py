"""No call that was sent is free: not for a client that hangs up, nor where the provider breaks off or counts nonsense."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from bakeoff.workloads.tasks.proxy.openai import ChatAssembler
from bakeoff.workloads.tasks.proxy.providers import Budget
from bakeoff.workloads.tasks.proxy.records import Call
from bakeoff.workloads.tasks.proxy.server import GatewayLimits
from bakeoff.workloads.tasks.proxy.spending import LONGEST_ANSWER
from bakeoff.workloads.tasks.proxy.wire import Usage
from support.processes import eventually
from workloads.tasks.proxied import PATHS, WIRES, Lab, lab, request
from workloads.tasks.scripted import Failure, Use, say

BILLED = Use(input=2_360, output=80_000)
LIMITS = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
IMPATIENT = GatewayLimits(drain_s=0.05)


def hang_up(here: Lab, wire: str, *, stream: bool, **more: Any) -> Call:
    """Ask, leave once the provider has the question, and give the call that is recorded."""
    body = json.dumps(request(wire, "hi", stream=stream, **more)).encode()
    token = here.run.token
    head = f"POST {PATHS[wire]} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {len(body)}\r\n\r\n"
    host, port = here.client.base_url.host, here.client.base_url.port
    with socket.create_connection((host, port or 80)) as client:
        client.sendall(head.encode() + body)
        if stream:
            client.recv(1)
        else:
            eventually(lambda: here.model.requests, "the provider has the question")
    [call] = eventually(here.calls, "the call is recorded")
    return call


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", WIRES)
def test_a_client_that_hangs_up_pays_what_the_provider_counts(wire: str, stream: bool, tmp_path: Path) -> None:
    turn = say("one two three", use=BILLED, pause_s=0.02, wait_s=0.05)
    with lab(tmp_path, [turn], side=None) as here:
        call = hang_up(here, wire, stream=stream)
        totals = here.run.close()
    assert (call.end, call.error) == ("client", "the client hung up")
    assert (totals.tokens, totals.estimated, totals.calls) == (82_360, False, 0)
    assert totals.cost == pytest.approx((2_360 + 2 * 80_000) / 1e6)


@pytest.mark.parametrize(("limit", "charged"), [(700, 700), (None, LONGEST_ANSWER)])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_on_a_slow_provider_pays_the_reservation(
    stream: bool, limit: int | None, charged: int, tmp_path: Path
) -> None:
    more = {} if limit is None else {"max_completion_tokens": limit}
    turn = say("word " * 100, use=BILLED, pause_s=0.05, wait_s=0.2)
    with lab(tmp_path, [turn], limits=IMPATIENT, side=None) as here:
        call = hang_up(here, "chat", stream=stream, **more)
        totals = here.run.close()
    assert call.usage is not None and call.usage.estimated and call.usage.output == charged
    assert totals.tokens_estimated == totals.tokens == call.usage.total
    assert totals.cost_estimated == totals.cost == call.cost


def test_hanging_up_again_and_again_uses_up_the_budget(tmp_path: Path) -> None:
    turn = say("word " * 100, use=BILLED, pause_s=0.02)
    with lab(tmp_path, [turn], limits=IMPATIENT, budget=Budget(tokens=3_000), side=None) as here:
        for done in range(1, 4):
            with here.client.stream(
                "POST", PATHS["chat"], json=request("chat", "hi", stream=True, max_completion_tokens=1_000)
            ) as answer:
                next(answer.iter_raw(), None)
            eventually(lambda done=done: len(here.calls()) >= done, "the call is recorded")  # type: ignore[misc]
        totals = here.run.close()
        ends = [call.end for call in here.calls()]
        asked = len(here.model.requests)
    assert asked < 4 and totals.tokens <= 3_000 and ends[0] == "client"


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_breaks_off_is_charged_as_if_it_had_been_as_long_as_it_could(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("one two three four", use=BILLED, cut=True)], side=None) as here:
        with pytest.raises(httpx.RemoteProtocolError):
            here.ask(wire, stream=True, **{LIMITS[wire]: 90_000})
        totals = here.run.close()
    assert totals.output_tokens == 90_000 and totals.estimated


def test_a_call_that_never_reached_its_provider_is_free(tmp_path: Path) -> None:
    with lab(tmp_path, [say("never")], failures=[Failure(503)] * 50) as here:
        with suppress(httpx.ReadTimeout):
            here.client.post(PATHS["chat"], json=request("chat", "hi"), timeout=0.5)
        eventually(here.calls, "it is recorded")
        totals = here.run.close()
    assert (totals.tokens, totals.cost, totals.estimated) == (0, 0.0, False)


def answer_of(used: Any) -> Failure:
    message = {"role": "assistant", "content": "hi" * 50}
    return Failure(200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": used})


@pytest.mark.parametrize(
    "used",
    [
        {"prompt_tokens": -5_000, "completion_tokens": -5_000},
        {"prompt_tokens": "NaN", "completion_tokens": None, "cost": -3.0},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 1e300, "completion_tokens": 5},
        {"prompt_tokens": 12, "completion_tokens": 0},
        None,
    ],
)
def test_usage_that_cannot_be_true_is_estimated(used: Any, tmp_path: Path) -> None:
    with lab(tmp_path, [say("")], failures=[answer_of(used)], provider={"prices": {}}) as here:
        here.ask()
        totals = here.run.close()
    assert totals.estimated and totals.input_tokens > 0 and totals.output_tokens > 0
    assert totals.cost is None  # and no cost below 0


def test_an_error_that_says_what_it_used_is_paid(tmp_path: Path) -> None:
    used = {"prompt_tokens": 900, "completion_tokens": 40}
    failure = Failure(400, {"error": {"message": "no"}, "usage": used})
    with lab(tmp_path, [say("")], failures=[failure]) as here:
        here.ask()
        [call] = here.calls()
    assert call.end == "refused" and call.usage == Usage(input=900, output=40)


def test_of_several_reports_in_a_stream_the_largest_counts() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    reports = [{"prompt_tokens": 500, "completion_tokens": count} for count in (10, 900, 1)]
    assembler = ChatAssembler()
    for event in [{**chunk, "usage": reports[0]}, {**chunk, "usage": reports[1]}, {**end, "usage": reports[2]}]:
        assembler.feed("", event)
    assert assembler.body()["usage"] == reports[1]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/batches"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/audio/speech"),
        ("POST", "/v1/completions"),
        ("GET", "/v1/realtime"),
        ("GET", "/v1/responses/resp_1"),
        ("OPTIONS", "/v1/chat/completions"),
        ("HEAD", "/v1/chat/completions"),
        ("PUT", "/v1/chat/completions"),
    ],
)
def test_no_other_address_reaches_the_provider(method: str, path: str, tmp_path: Path) -> None:
    upgrade = {"connection": "upgrade", "upgrade": "websocket"} if path.endswith("realtime") else {}
    with lab(tmp_path, [say("hi")]) as here:
        here.client.request(method, path, json=request("chat", "hi"), headers=upgrade)
        assert here.model.requests == []


def test_requests_that_are_sent_at_once_on_one_connection_are_all_counted(tmp_path: Path) -> None:
    body = json.dumps(request("chat", "hi", max_completion_tokens=50)).encode()
    with lab(tmp_path, [say("hi", use=Use(input=100, output=10))], budget=Budget(calls=3)) as here:
        head = f"POST {PATHS['chat']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {here.run.token}\r\n"
        one = head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body
        with socket.create_connection((here.client.base_url.host, here.client.base_url.port or 80)) as client:
            client.sendall(one * 5)
            eventually(lambda: len(here.calls()) == 5, "all are recorded")
        totals = here.run.close()
    assert (len(here.model.requests), totals.calls, totals.tokens) == (3, 3, 330)
