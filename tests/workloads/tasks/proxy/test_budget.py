"""A call that does not fit into the budget is refused before it is paid for, and an answer is cut to what is left."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from bakeoff.errors import UsageError
from bakeoff.workloads.tasks.proxy.http import WIRES as WIRES_OF
from bakeoff.workloads.tasks.proxy.prices import PriceList
from bakeoff.workloads.tasks.proxy.providers import Budget
from bakeoff.workloads.tasks.proxy.records import Call, read_calls
from bakeoff.workloads.tasks.proxy.spending import LONGEST_ANSWER, Asked, Reservation, Spending
from bakeoff.workloads.tasks.proxy.wire import Price, Usage
from workloads.tasks.proxied import (
    MODEL,
    PATHS,
    WIRES,
    error_of,
    events,
    headers,
    lab,
    request,
)
from workloads.tasks.scripted import Use, say

LIMITS = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(calls=2), "calls"),
        (Budget(tokens=250), "tokens"),
        (Budget(cost=2.5 * 120e-6), "cost"),
    ],
)
def test_the_call_that_would_exceed_a_budget_is_refused(wire: str, budget: Budget, limit: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi", use=Use(input=100, output=10))], budget=budget) as here:
        answers = [here.ask(wire) for _ in range(6)]
        met = here.run.limit
        totals = here.run.close()
        ends = [(call.end, call.limit) for call in here.calls()]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 403, 401, 401]
    assert "budget is used up" in error_of(answers[2])["message"]
    assert error_of(answers[2])["code"] == "budget_exceeded"
    assert answers[2].headers["x-should-retry"] == "false"
    assert ends == [("answered", None)] * 2 + [("budget", limit)] * 4
    assert (met, totals.limit, totals.calls, totals.broken) == (limit, limit, 2, None)


def test_a_call_that_would_not_fit_any_more_is_refused_before_it_is_paid(tmp_path: Path) -> None:
    """250 tokens are left, but a question three times as long as the first would take 330."""
    with lab(tmp_path, [say("hi", use=Use(input=100, output=10))], budget=Budget(tokens=360)) as here:
        statuses = [here.ask(text="word " * count).status_code for count in (100, 300, 100)]
    assert statuses == [200, 429, 200]


def test_calls_at_the_same_time_share_one_budget(tmp_path: Path) -> None:

    with lab(tmp_path, [say("hi", use=Use(input=100, output=10), wait_s=0.2)], budget=Budget(tokens=500)) as here:
        here.ask()  # from here on the proxy knows what such a question takes
        with ThreadPoolExecutor(10) as pool:
            statuses = sorted(answer.status_code for answer in pool.map(lambda _: here.ask(), range(10)))
        totals = here.run.close()
    assert statuses.count(200) == 3  # 110 are spent, and 110 more for each that is under way
    assert totals.tokens == 440


@pytest.mark.parametrize("limit", [None, 500])
def test_first_calls_at_the_same_time_stay_within_the_budget(limit: int | None, tmp_path: Path) -> None:
    """Nothing is known about what a call takes. Calls that might not fit beside the others wait for them."""
    more = {} if limit is None else {"max_completion_tokens": limit}
    with lab(tmp_path, [say("hi", use=Use(input=40, output=60), wait_s=0.02)], budget=Budget(tokens=3000)) as here:
        with ThreadPoolExecutor(100) as pool:
            statuses = [answer.status_code for answer in pool.map(lambda _: here.ask(**more), range(100))]
        totals = here.run.close()
    assert statuses.count(200) == 30  # as many as the budget has room for, and no more
    assert totals.tokens == 3000 and not totals.estimated


def test_a_call_that_might_not_fit_beside_another_waits_and_then_gets_what_is_left() -> None:
    spending, price = Spending(Budget(tokens=4000)), Price(input=1.0, output=2.0)
    first = spending.reserve(Asked(400, limit=3000), price)
    assert isinstance(first, Reservation) and (first.input, first.output) == (100, 3000)
    assert spending.reserve(Asked(400, limit=3000), price) is None
    beside = spending.reserve(Asked(400, limit=100), price)
    assert isinstance(beside, Reservation)
    spending.end(first, Asked(400), Usage(input=100, output=1900), 0.0)
    spending.end(beside, Asked(400), None, None)
    alone = spending.reserve(Asked(400, limit=3000), price)
    assert isinstance(alone, Reservation) and alone.output == 1900
    assert Spending(Budget(tokens=1000)).reserve(Asked(40_000), price) == "tokens"  # the first one, too


def test_a_reservation_counts_all_answers_pictures_and_texts_that_look_like_pictures() -> None:
    chat, gemini, encoded = WIRES_OF["chat"], WIRES_OF["gemini"], "QUJD" * 1000
    text = {"model": "m", "messages": [{"role": "user", "content": encoded}], "n": 3, "best_of": 5, "max_tokens": 7}
    asked = Asked.of(chat, text)
    assert asked.letters > 4000 and asked.media == 0 and asked.longest == 35
    assert chat.capped(text, 20)["max_tokens"] == 4
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}
    pictured = Asked.of(chat, {"model": "m", "messages": [{"role": "user", "content": [part]}], "max_tokens": -1})
    assert pictured.letters < 200 and pictured.media == 1 and pictured.longest == LONGEST_ANSWER
    config = {"generation_config": {}, "generationConfig": {"candidate_count": 2, "max_output_tokens": 50}}
    assert Asked.of(gemini, {"model": "m", "contents": [], **config}).longest == 100
    assert gemini.capped({"model": "m", **config}, 40)["generationConfig"]["maxOutputTokens"] == 20


def test_a_reservation_is_as_large_as_any_server_may_read_the_request() -> None:
    """Servers know one of two limits, and take numbers that are written as text."""
    chat, gemini = WIRES_OF["chat"], WIRES_OF["gemini"]
    two = {"model": "m", "messages": [], "max_completion_tokens": 10, "max_tokens": 90_000}
    assert Asked.of(chat, two).longest == 90_000
    assert Asked.of(chat, {**two, "max_tokens": -1}).longest == LONGEST_ANSWER
    assert chat.capped({**two, "max_tokens": -1}, 5_000).get("max_tokens") is None
    texts = {"model": "m", "messages": [], "n": "8", "max_tokens": "1000"}
    assert Asked.of(chat, texts).longest == 8_000
    assert chat.capped(texts, 4_000)["max_tokens"] == 500
    config = {"generationConfig": {"candidateCount": "4", "maxOutputTokens": "9000"}}
    assert Asked.of(gemini, {"model": "m", "contents": [], **config}).longest == 36_000
    assert gemini.capped({"model": "m", **config}, 20_000)["generationConfig"]["maxOutputTokens"] == 5_000


TEXT = "data:" + "many words " * 1000
READ_AS_TEXT: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": TEXT}]}]}),
    ("chat", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"url": TEXT}}}]}),
    ("responses", {"input": TEXT}),
    ("responses", {"input": [{"type": "local_shell_call", "action": {"env": {"file_data": TEXT}}}]}),
    ("messages", {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"url": TEXT}}]}]}),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": TEXT}}]}]}),
    ("messages", {"tools": [{"name": "f", "input_schema": {"data": TEXT}}]}),
    ("gemini", {"contents": [{"parts": [{"functionCall": {"name": "f", "args": {"data": TEXT}}}]}]}),
    ("gemini", {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {"image_url": TEXT}}}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "body"), READ_AS_TEXT)
def test_text_that_looks_like_media_is_paid_as_text_wherever_the_model_reads_it(
    wire: str, body: dict[str, Any]
) -> None:
    asked = Asked.of(WIRES_OF[wire], {"model": "m", **body})
    assert asked.media == 0 and asked.letters > len(TEXT)


ENCODED = "QUJD" * 1000
PICTURES: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ENCODED}}]}]}),
    ("chat", {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": "data:," + ENCODED}}]}]}),
    ("responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:," + ENCODED}]}]}),
    ("responses", {"input": [{"type": "function_call_output", "output": [{"type": "input_file", "file_data": ENCODED}]}]}),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [
        {"type": "image", "source": {"type": "base64", "data": ENCODED}}]}]}]}),
    ("gemini", {"contents": [{"parts": [{"inlineData": {"data": ENCODED}}]}]}),
    ("gemini", {"contents": [{"parts": [{"function_response": {"parts": [{"inline_data": {"data": ENCODED}}]}}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "body"), PICTURES)
def test_pictures_and_documents_are_counted_as_media_in_every_api(wire: str, body: dict[str, Any]) -> None:
    asked = Asked.of(WIRES_OF[wire], {"model": "m", **body})
    assert asked.media == 1 and asked.letters < 200


def test_more_answers_than_the_budget_has_room_for_are_refused_before_they_are_paid(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi", use=Use(input=100, output=10))], budget=Budget(tokens=1000)) as here:
        statuses = [here.ask(n=5000).status_code, here.ask().status_code, here.ask(n=5000).status_code]
        assert len(here.model.requests) == 1
    assert statuses == [429, 200, 403]


def test_gemini_sends_the_number_of_answers_that_was_reserved_for() -> None:
    gemini = WIRES_OF["gemini"]
    config = {"candidateCount": 8, "candidate_count": 2}
    body = gemini.arrived({"contents": [], "generation_config": config}, {"model": "m"})
    assert body["generationConfig"] == {"candidateCount": 2} and Asked.of(gemini, body).answers == 2


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("budget", [Budget(tokens=1000), Budget(cost=2000e-6)])
def test_an_answer_may_be_as_long_as_the_budget_has_room_for(wire: str, budget: Budget, tmp_path: Path) -> None:
    """The price of a word is 1 where it is asked and 2 where it is answered."""
    with lab(tmp_path, [say("hi", use=Use(input=100, output=10))], budget=budget) as here:
        for limit in (5000, 5000, 20):
            here.ask(wire, **{LIMITS[wire]: limit})
        sent = [request.body[LIMITS[wire]] for request in here.model.requests]
    left = 1000 - 110 - 100 if budget.tokens else (2000 - 120 - 100) // 2
    assert left <= sent[0] <= 1000 and sent[1:] == [left, 20]


@pytest.mark.parametrize("wire", WIRES)
def test_a_limit_that_the_client_did_not_set_is_added_only_when_little_is_left(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi", use=Use(input=100, output=10))], budget=Budget(tokens=4250)) as here:
        body = request(wire, "word " * 20)
        body.pop("max_tokens", None)
        for _ in range(2):
            here.client.post(PATHS[wire], json=body)
        sent = [asked.body.get(LIMITS[wire]) for asked in here.model.requests]
    assert sent == [None, 4250 - 110 - 100]


def test_thinking_is_kept_below_a_lowered_limit(tmp_path: Path) -> None:
    thinking = {"type": "enabled", "budget_tokens": 31_999}
    with lab(tmp_path, [say("hi", use=Use(input=100, output=500))], budget=Budget(tokens=2500)) as here:
        for _ in range(3):
            here.ask("messages", max_tokens=32_000, thinking=thinking)
        sent = [asked.body for asked in here.model.requests]
    assert sent[1]["max_tokens"] == 1800 and sent[1]["thinking"] == {"type": "enabled", "budget_tokens": 1799}
    assert sent[2]["max_tokens"] == 1200 and sent[2]["thinking"]["budget_tokens"] == 1199


def test_nothing_is_answered_after_the_deadline(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")], budget=Budget(deadline=time.monotonic() - 1)) as here:
        answer = here.ask()
        asked = len(here.model.requests)
    assert (answer.status_code, asked) == (429, 0)


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_is_under_way_at_the_deadline_is_cut(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("word " * 1000, pause_s=0.01)]) as here:
        text, budget = b"", Budget(deadline=time.monotonic() + 2.0)
        run = here.proxy.open(here.providers, MODEL, record=tmp_path / "cut.jsonl", budget=budget)
        body = request(wire, "hi", stream=True)
        asked = here.client.stream("POST", PATHS[wire], json=body, headers=headers(run))
        with asked as answer, pytest.raises(httpx.RemoteProtocolError):
            for piece in answer.iter_raw():
                text += piece
        run.close()
        [call] = read_calls(run.record)
    assert "deadline budget" in events(text.decode())[-1]["error"]["message"]
    assert isinstance(call, Call) and (call.end, call.limit) == ("budget", "deadline")


def test_a_cost_budget_without_a_price_is_an_error_and_not_silently_off(tmp_path: Path) -> None:
    priceless = lab(tmp_path, [say("hi")], provider={"prices": {}})
    with priceless as here, pytest.raises(UsageError, match=r'prices."test-model"'):
        here.proxy.open(here.providers, MODEL, record=tmp_path / "c.jsonl", budget=Budget(cost=1.0))


def test_an_unknown_price_is_a_missing_cost(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")], provider={"prices": {}}) as here:
        here.ask()
        assert here.run.close().cost is None


def test_cached_and_written_input_have_their_own_prices_and_an_unknown_price_gives_no_cost() -> None:
    usage = Usage(input=1_000_000, cached=600_000, cache_write=100_000, output=200_000)
    assert usage.dollars(Price(input=1, output=10)) == pytest.approx(1 + 2)
    assert usage.dollars(Price(input=1, output=10, cached=0.1, cache_write=2)) == pytest.approx(0.3 + 0.06 + 0.2 + 2)
    assert usage.dollars(None) is None
    hourly = msgspec.structs.replace(usage, cache_write_1h=40_000)
    assert hourly.dollars(Price(input=1, output=10, cached=0.1, cache_write=2)) == pytest.approx(2.56)
    assert hourly.dollars(Price(input=1, output=0, cached=0, cache_write=2, cache_write_1h=3)) == pytest.approx(
        0.3 + 0.12 + 0.12
    )
    assert Usage(input=5, cost=0.25).dollars(None) == 0.25  # the provider said so


def test_what_a_cache_keeps_for_an_hour_has_its_own_price() -> None:
    """https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching"""
    used = {
        "input_tokens": 50,
        "cache_creation_input_tokens": 1_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600},
        "output_tokens": 7,
    }
    usage = WIRES_OF["messages"].reply({"content": [], "usage": used}).usage
    assert usage == Usage(input=1_050, cache_write=1_000, cache_write_1h=600, output=7)
    price = PriceList.read().price("anthropic", "https://api.anthropic.com", "claude-haiku-4-5")
    assert price is not None
    assert usage.dollars(price) == pytest.approx((50 * 1 + 400 * 1.25 + 600 * 2 + 7 * 5) / 1e6)
    reserved = Spending(Budget(cost=1.0)).reserve(Asked(4_000, limit=100), price)
    assert isinstance(reserved, Reservation) and reserved.cost == pytest.approx((1_000 * 2 + 100 * 5) / 1e6)
