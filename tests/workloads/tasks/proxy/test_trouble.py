"""What goes wrong at the provider, at the client and with the budget is told apart, answered and recorded."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import httpx
import pytest

from bakeoff.errors import StorageError, UsageError
from bakeoff.workloads.tasks.proxy.budget import Budget, Usage
from lab import eventually
from workloads.tasks.proxied import MODEL, PATHS, WIRES, events, headers, lab, request
from workloads.tasks.scripted import Failure, Use, say

NOW = {"retry-after": "0"}


def error_of(answer: httpx.Response) -> dict[str, str]:
    found: dict[str, str] = answer.json()["error"]
    return found


def test_a_busy_provider_is_asked_again_and_that_is_recorded(tmp_path: Path) -> None:
    failures = [Failure(503, headers=NOW), Failure(429, headers=NOW)]
    with lab(tmp_path, [say("at last")], failures=failures) as here:
        answer = here.ask()
        totals = here.run.close()
        [call] = here.calls()
    assert answer.status_code == 200
    assert [retry.status for retry in call.retries] == [503, 429]
    assert (totals.calls, totals.broken) == (1, None)


@pytest.mark.parametrize(
    ("status", "end"), [(503, "upstream"), (429, "upstream"), (401, "upstream"), (404, "upstream"), (400, "refused")]
)
def test_a_refusal_is_passed_on_and_blamed_on_whom_it_concerns(status: int, end: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")], failures=[Failure(status)], provider={"retries": 0}) as here:
        answer = here.ask()
        broken = here.run.totals().broken
        [call] = here.calls()
        here.ask()
        mended = here.run.close().broken
    assert answer.status_code == status and error_of(answer)["message"] == "scripted failure"
    assert (call.end, call.status, call.usage) == (end, status, None)
    assert (broken is not None) == (end == "upstream")
    assert mended is None  # the agent went on, so the run counts


@pytest.mark.parametrize("wire", WIRES)
def test_a_provider_that_is_not_there_makes_the_run_broken(wire: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        nowhere = {"base_url": f"http://127.0.0.1:{taken.getsockname()[1]}/v1", "retries": 0}
        with lab(tmp_path, [say("hi")], provider=nowhere) as here:
            answer = here.ask(wire, stream=True)
            totals = here.run.close()
    assert answer.status_code == 502
    assert "no answer from the provider" in error_of(answer)["message"]
    assert totals.broken is not None and "ConnectError" in totals.broken


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_breaks_off_is_no_answer(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("one two three four", cut=True)]) as here:
        with pytest.raises(httpx.RemoteProtocolError):
            here.ask(wire, stream=True)
        totals = here.run.close()
        [call] = here.calls()
    assert call.end == "upstream" and totals.calls == 0
    assert totals.broken is not None and "broke off" in totals.broken


def test_a_client_that_hangs_up_ends_its_call(tmp_path: Path) -> None:
    with lab(tmp_path, [say("word " * 400, pause_s=0.01)]) as here:
        with here.client.stream("POST", PATHS["chat"], json=request("chat", "hi", stream=True)) as answer:
            next(answer.iter_raw())
        [call] = eventually(here.calls, "it is recorded while the run goes on")
    assert (call.end, call.error) == ("client", "the client hung up")


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_that_hangs_up_at_the_last_event_has_its_answer(wire: str, tmp_path: Path) -> None:
    last = {"chat": "[DONE]", "responses": "response.completed", "messages": "message_stop"}[wire]
    with lab(tmp_path, [say("All of it.", linger_s=0.3)]) as here:
        with here.client.stream("POST", PATHS[wire], json=request(wire, "hi", stream=True)) as answer:
            next(line for line in answer.iter_lines() if last in line)
        totals = here.run.close()
        [call] = here.calls()
    assert (call.end, call.error, totals.calls) == ("answered", None, 1)
    assert call.reply is not None and call.reply["content"] == "All of it."


def test_closing_a_run_ends_its_calls(tmp_path: Path) -> None:
    with lab(tmp_path, [say("word " * 1000, pause_s=0.02)]) as here:
        with here.client.stream("POST", PATHS["chat"], json=request("chat", "hi", stream=True)) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            here.run.close()
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
        [call] = here.calls()
    assert (call.end, call.error) == ("client", "the run was over")


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


LIMITS = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}


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


@pytest.mark.parametrize(
    ("path", "key", "told"),
    [
        ("/v1/chat/completions", "another", "did not send the key of its run"),
        ("/v1beta/models/m:generateContent", None, "speaks another API: POST to one of /v1/chat/completions"),
    ],
)
def test_a_client_that_never_gets_through_makes_the_run_broken(
    path: str, key: str | None, told: str, tmp_path: Path
) -> None:
    """Its key or its API is wrong, which says nothing about a model."""
    with lab(tmp_path, [say("hi")]) as here:
        here.client.post(path, json=request("chat", "hi"), headers={"authorization": f"Bearer {key}"} if key else {})
        before = here.run.totals().broken
        here.ask()
        after = here.run.totals().broken
    assert before is not None and told in before
    assert after is None


def test_nothing_is_answered_after_the_deadline(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")], budget=Budget(deadline=time.monotonic() - 1)) as here:
        answer = here.ask()
        asked = len(here.model.requests)
    assert (answer.status_code, asked) == (429, 0)


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_is_under_way_at_the_deadline_is_cut(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("word " * 1000, pause_s=0.01)], budget=Budget(deadline=time.monotonic() + 1.0)) as here:
        text, began = b"", time.monotonic()
        asked = here.client.stream("POST", PATHS[wire], json=request(wire, "hi", stream=True))
        with asked as answer, pytest.raises(httpx.RemoteProtocolError):
            for piece in answer.iter_raw():
                text += piece
        took = time.monotonic() - began
        here.run.close()
        [call] = here.calls()
    assert took < 9  # all of it would take ten seconds
    assert "deadline budget" in events(text.decode())[-1]["error"]["message"]
    assert (call.end, call.limit) == ("budget", "deadline")


def test_a_cost_budget_without_a_price_is_an_error_and_not_silently_off(tmp_path: Path) -> None:
    priceless = lab(tmp_path, [say("hi")], provider={"prices": {}})
    with priceless as here, pytest.raises(UsageError, match=r'prices."test-model"'):
        here.proxy.open(here.providers, MODEL, record=tmp_path / "c.jsonl", budget=Budget(cost=1.0))


def test_an_unknown_price_is_a_missing_cost(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")], provider={"prices": {}}) as here:
        here.ask()
        assert here.run.close().cost is None


def test_calls_at_the_same_time_share_one_budget(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with lab(tmp_path, [say("hi", use=Use(input=100, output=10), wait_s=0.2)], budget=Budget(tokens=500)) as here:
        here.ask()  # from here on the proxy knows what such a question takes
        with ThreadPoolExecutor(10) as pool:
            statuses = sorted(answer.status_code for answer in pool.map(lambda _: here.ask(), range(10)))
        totals = here.run.close()
    assert statuses.count(200) == 3  # 110 are spent, and 110 more for each that is under way
    assert totals.tokens == 440


def test_an_api_that_the_provider_does_not_speak_is_our_mistake_and_not_the_agents(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")], provider={"wire_api": "chat"}) as here:
        answer = here.ask("responses")
        totals = here.run.close()
        with pytest.raises(UsageError, match="codex speaks the responses API"):
            here.providers.route(MODEL).check("responses", "codex")
    assert answer.status_code == 400 and "does not speak" in error_of(answer)["message"]
    assert totals.broken is not None


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_whose_calls_cannot_be_recorded_is_no_run(stream: bool, tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        run = here.proxy.open(here.providers, MODEL, record=Path("/dev/full"))
        with httpx.Client(base_url=here.proxy.url, headers=headers(run)) as client:
            if stream:
                with pytest.raises(httpx.RemoteProtocolError):
                    client.post(PATHS["chat"], json=request("chat", "hi", stream=True))
            else:
                assert client.post(PATHS["chat"], json=request("chat", "hi")).status_code == 500
        with pytest.raises(StorageError, match="No space left"):
            run.close()


def test_usage_of_a_call_that_broke_off_is_still_paid(tmp_path: Path) -> None:
    with lab(tmp_path, [say("one two three four", use=Use(input=100, output=10), cut=True)]) as here:
        with pytest.raises(httpx.RemoteProtocolError):
            here.ask("messages", stream=True)
        totals = here.run.close()
        [call] = here.calls()
    assert call.usage == Usage(input=100, output=1)  # what its first event said
    assert totals.tokens == 101


def test_arguments_that_a_server_writes_as_an_object_are_kept_as_text_and_as_steps(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    given = Failure(200, {"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    with lab(tmp_path, [say("hi")], failures=[given]) as here:
        here.ask()
        [recorded] = here.calls()
        [step] = here.run.steps()
    assert recorded.reply is not None and recorded.reply["tool_calls"][0]["function"]["arguments"] == '{"command":"ls"}'
    assert step.tool_calls == [{"id": "c", "name": "bash", "arguments": {"command": "ls"}}]


def test_an_error_in_an_answer_of_200_is_told(tmp_path: Path) -> None:
    with lab(
        tmp_path, [say("hi")], failures=[Failure(200, {"error": {"message": "the upstream is overloaded"}})]
    ) as here:
        assert here.ask().status_code == 200
        broken = here.run.close().broken
    assert broken is not None and "the upstream is overloaded" in broken


def test_a_count_that_cannot_be_one_is_estimated(tmp_path: Path) -> None:
    counted = {"prompt_tokens": -5, "completion_tokens": "ten"}
    wrong = Failure(200, {"choices": [{"message": {"role": "assistant", "content": "x" * 400}}], "usage": counted})
    with lab(tmp_path, [say("hi")], failures=[wrong]) as here:
        here.ask(text="word " * 100)
        totals = here.run.close()
    assert totals.estimated and totals.input_tokens >= 100 and totals.output_tokens >= 100
