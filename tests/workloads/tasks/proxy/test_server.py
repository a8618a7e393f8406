"""Calls go through unchanged, are recorded whole, and nobody sees a key."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.spec.workload import Tokens
from bakeoff.workloads.tasks.proxy.calls import ToolSet, read_calls
from bakeoff.workloads.tasks.proxy.providers import Providers
from bakeoff.workloads.tasks.proxy.server import ModelProxy
from bakeoff.workloads.tasks.proxy.usage import Usage
from workloads.tasks.proxied import KEY, MODEL, PATHS, WIRES, events, headers, lab, request
from workloads.tasks.scripted import Failure, ScriptedModel, Use, say, shell

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
        through = here.ask(wire, stream=True).text
        direct = httpx.post(here.model.url + PATHS[wire], json=request(wire, "hi", stream=True), trust_env=False).text
    assert [event.get("type") for event in events(through)] == [event.get("type") for event in events(direct)]
    assert through.count("data:") == direct.count("data:")


@pytest.mark.parametrize("wire", WIRES)
def test_pieces_of_a_stream_are_passed_on_as_they_come(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("one two three four five six", pause_s=0.03)]) as here:
        began, arrivals = time.monotonic(), []
        with here.client.stream("POST", PATHS[wire], json=request(wire, "hi", stream=True)) as answer:
            for _ in answer.iter_raw():
                arrivals.append(time.monotonic() - began)
        sent = len(events(httpx.post(here.model.url + PATHS[wire], json=request(wire, "hi", stream=True)).text))
    assert len(arrivals) >= sent - 1  # none was held back to travel with another
    assert arrivals[-1] - arrivals[0] > 0.03 * (len(arrivals) - 2)


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
    assert asked.headers["openai-beta"] == "x"


@pytest.mark.parametrize("wire", WIRES)
def test_a_token_is_good_for_its_run_only_while_it_runs(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        strange = here.client.post(PATHS[wire], json=request(wire, "hi"), headers={"authorization": "Bearer sk-other"})
        known = here.client.post(PATHS[wire], json=request(wire, "hi"), headers={"x-api-key": here.run.token})
        here.run.close()
        late = here.ask(wire)
        requests = len(here.model.requests)
    assert (strange.status_code, known.status_code, late.status_code) == (401, 200, 401)
    assert "error" in strange.json()
    assert requests == 1


def test_it_listens_on_a_unix_socket(tmp_path: Path) -> None:
    place = tmp_path / "proxy.sock"
    with ScriptedModel([say("over the socket")], side=None) as model, ModelProxy(socket=place) as proxy:
        providers = Providers.read({"test": {"base_url": f"{model.url}/v1"}}, {})
        run = proxy.open(providers, MODEL, record=tmp_path / "calls.jsonl")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(place)), headers=headers(run)) as client:
            answer = client.post("http://proxy/v1/chat/completions", json=request("chat", "hi"))
        totals = run.close()
    assert answer.json()["choices"][0]["message"]["content"] == "over the socket"
    assert totals.cost is None  # nobody said what it costs
    assert not place.exists()


def test_a_proxy_that_cannot_listen_says_so(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match="did not start"), ModelProxy(socket=tmp_path / "absent" / "s"):
        pass
    with pytest.raises(UsageError, match="107 bytes"):
        ModelProxy(socket=tmp_path / ("x" * 120))
    with pytest.raises(UsageError, match="listen on"):
        ModelProxy()


def test_one_proxy_serves_many_runs_at_once_and_keeps_them_apart(tmp_path: Path) -> None:
    runs, calls_each = 12, 5
    with lab(tmp_path, [say("ok", use=Use(input=10, output=1), pause_s=0.002)]) as here:
        opened = [here.proxy.open(here.providers, MODEL, record=tmp_path / f"{n}.jsonl") for n in range(runs)]
        together = threading.Barrier(runs)

        def work(number: int) -> None:
            together.wait()
            with httpx.Client(base_url=here.proxy.url, headers=headers(opened[number]), timeout=20) as client:
                for _ in range(number % 2 + calls_each):
                    body = request("chat", f"run {number}", stream=True)
                    assert client.post(PATHS["chat"], json=body).status_code == 200

        with ThreadPoolExecutor(runs) as pool:
            list(pool.map(work, range(runs)))
        totals = [run.close() for run in opened]
        texts = [run.record.read_text() for run in opened]
    assert [(total.calls, total.tokens) for total in totals] == [
        (calls_each + n % 2, 11 * (calls_each + n % 2)) for n in range(runs)
    ]
    assert all(f'"run {n}"' in text and f'"run {(n + 1) % runs}"' not in text for n, text in enumerate(texts))


def test_another_model_means_the_runs_own_unless_it_is_allowed(tmp_path: Path) -> None:
    with lab(
        tmp_path, [say("hi")], provider={"models": {"small": "small-v2"}}, others={"helper": "test/small"}
    ) as here:
        for model in (MODEL, "something-bigger", "helper"):
            here.ask(text=model, model=model)
        sent = [asked.body["model"] for asked in here.model.requests]
        recorded = [(call.model, call.asked_model) for call in here.calls()]
        listed = [entry["id"] for entry in here.client.get("/v1/models").json()["data"]]
    assert sent == [MODEL, MODEL, "small-v2"]
    assert recorded == [(MODEL, None), (MODEL, "something-bigger"), ("small-v2", "helper")]
    assert listed == [f"test/{MODEL}", "helper"]


def test_a_call_is_on_disk_before_its_answer_ends(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        for number in range(1, 4):
            here.ask(text=f"question {number}", stream=number == 2)
            assert [call.number for call in here.calls()] == list(range(1, number + 1))


def test_half_a_character_is_no_reason_to_refuse(tmp_path: Path) -> None:
    body = json.dumps(request("chat", "cut \ud83d"), ensure_ascii=True).encode()
    with lab(tmp_path, [say("hi")]) as here:
        assert here.client.post(PATHS["chat"], content=body).status_code == 200
        assert here.calls()[0].messages == [{"role": "user", "content": "cut ?"}]


def test_a_proxy_of_the_network_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with lab(tmp_path, [say("hi")]) as here:
        assert here.ask().status_code == 200


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        here.ask()
        here.run.close()
    whole = here.run.record.read_bytes()
    here.run.record.write_bytes(whole + whole[: len(whole) // 2])
    assert len(here.calls()) == 1
