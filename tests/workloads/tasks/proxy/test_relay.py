"""One call from end to end: passed on unchanged, retried, recorded whole, and blamed on whoever made it fail."""

from __future__ import annotations

import json
import re
import socket
import threading
from pathlib import Path

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.spec.workload import Tokens
from bakeoff.workloads.tasks.proxy.providers import Patience
from bakeoff.workloads.tasks.proxy.records import ToolSet, read_calls
from bakeoff.workloads.tasks.proxy.relay import EventReader
from bakeoff.workloads.tasks.proxy.server import GatewayLimits
from bakeoff.workloads.tasks.proxy.spending import MEDIA_TOKENS
from bakeoff.workloads.tasks.proxy.wire import Usage
from support.processes import eventually
from workloads.tasks.proxied import (
    KEY,
    MODEL,
    PATHS,
    WIRES,
    error_of,
    events,
    lab,
    request,
)
from workloads.tasks.scripted import Failure, Use, say, shell

USE = Use(input=1000, cached=400, output=50, reasoning=0)
COST = (600 * 1.0 + 400 * 0.1 + 50 * 2.0) / 1e6


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_a_call_is_recorded_as_it_was_asked_and_answered(wire: str, stream: bool, tmp_path: Path) -> None:
    with lab(tmp_path, [shell("ls -l", text="I look.", use=USE)]) as here:
        answer = here.ask(wire, "What is here?", stream=stream, tools=True)
        [call] = here.calls()
        tool_sets = [record for record in read_calls(here.run.record) if isinstance(record, ToolSet)]
    assert answer.status_code == 200
    assert (call.wire, call.end, call.status, call.stream) == (wire, "answered", 200, stream)
    assert call.messages == [{"role": "user", "content": "What is here?"}]
    assert call.reply is not None
    assert call.reply["content"] == "I look."
    [made] = call.reply["tool_calls"]
    assert made["function"] == {"name": "bash", "arguments": made["function"]["arguments"]}
    assert msgspec.json.decode(made["function"]["arguments"]) == {"command": "ls -l"}
    assert call.usage == Usage(input=1000, cached=400, output=50)
    assert call.cost == pytest.approx(COST)
    assert [tool["function"]["name"] for tool in tool_sets[0].tools] == ["bash"]
    assert call.first_token_s is not None and 0 < call.first_token_s <= call.total_s


@pytest.mark.parametrize("wire", WIRES)
def test_the_client_gets_what_the_provider_sent(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("one two three", use=USE)]) as here:
        through = here.ask(wire, stream=True).content
        direct = httpx.post(
            here.model.url + PATHS[wire], json=request(wire, "hi", stream=True), trust_env=False
        ).content
    counted = re.compile(rb"_[0-9]{4}")  # the model gives every answer new ids
    assert counted.sub(b"", through) == counted.sub(b"", direct)


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
def test_pieces_of_a_stream_are_passed_on_as_they_come(wire: str, tmp_path: Path) -> None:
    """The model says nothing more until the client has got the piece before."""
    permits = threading.Semaphore(1)
    options = {"stream_options": {"include_usage": True}} if wire == "chat" else {}
    with lab(tmp_path, [say("one two three four five six", permits=permits)]) as here:
        body, pieces = request(wire, "hi", stream=True, **options), 0
        with here.client.stream("POST", PATHS[wire], json=body) as answer:
            for _ in answer.iter_raw():
                pieces += 1
                permits.release()
    assert pieces > 6


def test_usage_is_always_asked_for_and_shown_only_to_a_client_that_asked(tmp_path: Path) -> None:
    with lab(tmp_path, [say("done", use=USE)]) as here:
        silent = events(here.ask(stream=True).text)
        asking = events(here.ask(stream=True, stream_options={"include_usage": True}).text)
        usages = [call.usage for call in here.calls()]
    assert not any(event.get("usage") for event in silent)
    assert [event["usage"]["prompt_tokens"] for event in asking if event.get("usage")] == [1000]
    assert usages == [Usage(input=1000, cached=400, output=50)] * 2


def test_a_provider_that_does_not_count_is_estimated_and_not_free(tmp_path: Path) -> None:
    with lab(tmp_path, [say("a few words of text", use=None)]) as here:
        here.ask(text="word " * 100)
        totals = here.run.close()
    assert totals.estimated
    assert 100 <= totals.input_tokens <= 160


@pytest.mark.parametrize("wire", WIRES)
def test_text_in_parts_counts_in_an_estimate_and_a_picture_counts_as_a_picture(wire: str, tmp_path: Path) -> None:
    kind, words, data = ("input_text" if wire == "responses" else "text"), "word " * 400, "QUJD" * 20_000
    picture = {
        "chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
        "messages": {"type": "image", "source": {"type": "base64", "data": data}},
    }[wire]
    parts = [{"role": "user", "content": [{"type": kind, "text": words}, picture]}]
    with lab(tmp_path, [say("ok", use=None)], side=None) as here:
        here.ask(wire, **{"input" if wire == "responses" else "messages": parts})
        totals = here.run.close()
    assert totals.estimated and 400 <= totals.input_tokens - MEDIA_TOKENS <= 900
    assert totals.output_tokens > 5


def test_log_probabilities_and_token_ids_are_kept(tmp_path: Path) -> None:
    turn = say("hi", logprobs=(-0.5, -1.25), token_ids=(7, 9))
    with lab(tmp_path, [turn], provider={"request": {"logprobs": True}}) as here:
        here.ask()
        here.ask(text="and streaming", stream=True)
        tokens = [call.tokens for call in here.calls()]
        sent = [asked.body["logprobs"] for asked in here.model.requests]
    assert tokens == [Tokens(completion_ids=[7, 9], logprobs=[-0.5, -1.25])] * 2
    assert sent == [True, True]


@pytest.mark.parametrize("wire", WIRES)
def test_the_real_key_goes_to_the_provider_and_nowhere_else(wire: str, tmp_path: Path) -> None:
    echo = Failure(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, {"x-request-id": "r1"})
    with lab(tmp_path, [say("hi")], failures=[echo]) as here:
        refused = here.ask(wire)
        answer = here.ask(wire)
        told = [dict(asked.headers) for asked in here.model.requests]
        totals = here.run.close()
        written = here.run.record.read_text()
    name, value = ("x-api-key", KEY) if wire == "messages" else ("authorization", f"Bearer {KEY}")
    assert [asked[name] for asked in told] == [value, value]
    assert not any(here.run.token in str(asked) for asked in told)
    assert refused.status_code == 401 and "Incorrect API key" in refused.text
    assert KEY not in refused.text + str(refused.headers) + answer.text + str(answer.headers)
    assert KEY not in written and here.run.token not in written
    assert totals.calls == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_key_that_a_provider_repeats_in_an_answer_is_taken_out(stream: bool, tmp_path: Path) -> None:
    with lab(tmp_path, [say(f"your-key-is-{KEY}")]) as here:
        answer = here.ask(stream=stream)
        here.run.close()
    assert "your-key-is-[key]" in answer.text
    assert KEY not in answer.text + here.run.record.read_text()


def test_headers_of_the_client_cannot_change_who_asks(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")], provider={"headers": {"X-Team": "ours"}}) as here:
        here.client.post(
            PATHS["chat"], json=request("chat", "hi"), headers={"x-team": "theirs", "cookie": "a=b", "openai-beta": "x"}
        )
        [asked] = here.model.requests
    assert asked.headers["x-team"] == "ours"
    assert "cookie" not in asked.headers
    assert "openai-beta" not in asked.headers


def test_half_a_surrogate_pair_is_accepted(tmp_path: Path) -> None:
    body = json.dumps(request("chat", "cut \ud83d"), ensure_ascii=True).encode()
    with lab(tmp_path, [say("hi")]) as here:
        assert here.client.post(PATHS["chat"], content=body).status_code == 200
        assert here.calls()[0].messages == [{"role": "user", "content": "cut ?"}]


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
def test_a_stream_that_breaks_off_is_not_an_answer(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("one two three four", cut=True)]) as here:
        with pytest.raises(httpx.RemoteProtocolError):
            here.ask(wire, stream=True)
        totals = here.run.close()
        [call] = here.calls()
    assert call.end == "upstream" and totals.calls == 0
    assert totals.broken is not None and "broke off" in totals.broken


def test_usage_of_a_call_that_broke_off_is_still_paid(tmp_path: Path) -> None:
    with lab(tmp_path, [say("one two three four", use=Use(input=100, output=10), cut=True)]) as here:
        with pytest.raises(httpx.RemoteProtocolError):
            here.ask("messages", stream=True)
        totals = here.run.close()
        [call] = here.calls()
    assert call.usage == Usage(input=100, output=1000, estimated=True)  # its first event, and the longest answer
    assert totals.tokens == 1100


def test_a_call_is_on_disk_before_its_answer_ends(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        for number in range(1, 4):
            here.ask(text=f"question {number}", stream=number == 2)
            assert [call.number for call in here.calls()] == list(range(1, number + 1))


def test_a_client_that_hangs_up_ends_its_call(tmp_path: Path) -> None:
    with lab(tmp_path, [say("word " * 400, pause_s=0.01)], limits=GatewayLimits(drain_s=0.1)) as here:
        with here.client.stream("POST", PATHS["chat"], json=request("chat", "hi", stream=True)) as answer:
            next(answer.iter_raw())
        [call] = eventually(here.calls, "it is recorded while the run goes on")
    assert (call.end, call.error) == ("client", "the client hung up")


@pytest.mark.parametrize("answers", [1, 8])
def test_the_end_of_the_first_answer_is_not_the_end_of_all(answers: int, tmp_path: Path) -> None:
    """The others may still be written, so what they may take is charged."""
    with lab(tmp_path, [say("x", pause_s=0.5)], side=None, limits=GatewayLimits(drain_s=0.1)) as here:
        body = request("chat", "hi", stream=True, n=answers, max_tokens=1000)
        with here.client.stream("POST", PATHS["chat"], json=body) as answer:
            next(line for line in answer.iter_lines() if '"stop"' in line)
        [call] = eventually(here.calls, "it is recorded while the run goes on")
    assert call.usage is not None and call.usage.estimated
    assert call.usage.output == 8000 if answers == 8 else call.usage.output < 50


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


def test_an_api_that_the_provider_does_not_speak_is_our_mistake_and_not_the_agents(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")], provider={"wire_api": "chat"}) as here:
        answer = here.ask("responses")
        totals = here.run.close()
        with pytest.raises(UsageError, match="codex speaks the responses API"):
            here.providers.route(MODEL).check("responses", "codex")
    assert answer.status_code == 400 and "does not speak" in error_of(answer)["message"]
    assert totals.broken is not None


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


def test_an_error_in_an_answer_of_200_is_reported(tmp_path: Path) -> None:
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


ENDS = st.sampled_from(["\n", "\r\n", "\r"])
NOW = {"retry-after": "0"}


def test_a_busy_provider_is_asked_again_and_that_is_recorded(tmp_path: Path) -> None:
    failures = [Failure(503, headers=NOW), Failure(429, headers=NOW)]
    with lab(tmp_path, [say("at last")], failures=failures) as here:
        answer = here.ask()
        totals = here.run.close()
        [call] = here.calls()
    assert answer.status_code == 200
    assert [retry.status for retry in call.retries] == [503, 429]
    assert (totals.calls, totals.broken) == (1, None)


def test_a_proxy_of_the_network_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with lab(tmp_path, [say("hi")]) as here:
        assert here.ask().status_code == 200


@pytest.mark.slow
@given(
    payloads=st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8)), max_size=6),
    end=ENDS,
    cuts=st.lists(st.integers(1, 40), min_size=1),
)
def test_events_do_not_depend_on_where_the_stream_is_cut(
    payloads: list[dict[str, object]], end: str, cuts: list[int]
) -> None:

    texts = [f"event: e{n}{end}data: {json.dumps(payload)}{end}{end}" for n, payload in enumerate(payloads)]
    stream, reader, events = "".join([*texts, "data: rest"]).encode(), EventReader(), []
    position, turn = 0, 0
    while position < len(stream):
        step = cuts[turn % len(cuts)]
        events += reader.feed(stream[position : position + step])
        position, turn = position + step, turn + 1
    assert [event.data for event in events] == payloads
    assert [event.name for event in events] == [f"e{n}" for n in range(len(payloads))]
    assert b"".join(event.raw for event in events) + reader.rest == stream


def test_lines_may_end_in_different_ways_and_only_keys_are_changed() -> None:
    stream = b'\xef\xbf\xbd: ping\r\n\r\nevent: a\ndata: {"key": "s3cret"}\r\r\nid: 7\rdata: \xff\n\n\r\nretry: 1\n\n'
    reader = EventReader(["s3cret"])
    pieces = [reader.feed(stream[at : at + 1]) for at in range(len(stream))]
    events = [event for piece in pieces for event in piece]
    assert b"".join(event.raw for event in events) + reader.rest == stream.replace(b"s3cret", b"[key]")
    assert [event.data for event in events if event.data] == [{"key": "[key]"}]


def test_data_of_several_lines_is_one_text_and_done_is_not_an_object() -> None:
    first, second, comment = EventReader().feed(b'data: {"a":\ndata: 1}\n\ndata: [DONE]\n\n: ping\n\n')
    assert (first.data, second.data, comment.data) == ({"a": 1}, None, None)


def test_a_provider_that_fails_for_a_while_is_asked_again_and_the_wait_is_counted(tmp_path: Path) -> None:
    failures = [Failure(503, headers=NOW)] * 3 + [Failure(500, headers={"retry-after": "0.2"})]
    with lab(tmp_path, [say("at last")], failures=failures) as here:
        assert here.ask().status_code == 200
        totals, waited = here.run.close(), here.run.patience.waited()
        [call] = here.calls()
    assert [retry.status for retry in call.retries] == [503, 503, 503, 500]
    assert totals.broken is None and 0.2 <= waited < 10


def test_a_provider_that_fails_for_longer_than_the_patience_lasts_makes_the_run_broken(tmp_path: Path) -> None:
    with lab(tmp_path, [say("never")], failures=[Failure(503)] * 50, patience=0.6) as here:
        answer = here.ask()
        totals, waited = here.run.close(), here.run.patience.waited()
        [call] = here.calls()
    assert answer.status_code == 503 and call.retries
    assert totals.broken is not None and waited == pytest.approx(0.6, abs=0.01)  # a sleep may end a millisecond early


def test_an_agent_that_hangs_up_on_a_failing_provider_has_a_broken_run(tmp_path: Path) -> None:
    with lab(tmp_path, [say("never")], failures=[Failure(503)] * 50) as here:
        body = json.dumps(request("chat", "hi")).encode()
        head = f"POST {PATHS['chat']} HTTP/1.1\r\nhost: proxy\r\nauthorization: Bearer {here.run.token}\r\n"
        with socket.create_connection(("127.0.0.1", here.proxy.port or 0)) as client:
            client.sendall(
                f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
            )
            eventually(lambda: len(here.model.requests) > 1, "a try has failed")
        [call] = eventually(here.calls, "it is recorded")
        totals = here.run.close()
    assert call.end == "upstream" and totals.broken is not None and "the client hung up after" in totals.broken


def test_waits_at_the_same_time_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("bakeoff.workloads.tasks.proxy.providers.time.monotonic", lambda: now[0])
    patience = Patience(30.0)
    patience.begin(99.0)
    now[0] = 104.0
    patience.begin(98.0)
    patience.end()
    now[0] = 106.0
    assert patience.waited() == 8.0
    patience.end()
    now[0] = 110.0
    patience.begin(90.0)  # its first seconds are counted already
    now[0] = 112.0
    assert patience.waited() == 14.0
    now[0] = 200.0
    assert patience.waited() == 30.0
