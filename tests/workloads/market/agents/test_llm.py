"""A language model as an agent, against a real server that answers from a script."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bakeoff.workloads.market.agents import llm
from bakeoff.workloads.market.agents.base import load
from bakeoff.workloads.market.agents.llm import LlmAgent
from bakeoff.workloads.market.journal import steps
from bakeoff.workloads.market.play import Episode, Player
from workloads.market.games import SHORT, fresh_world
from workloads.market.scripted_model import ScriptedModel, calls, completion, says, scripted

TICKS = SHORT.ticks


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "_FIRST_PAUSE", 0.001)


def play(model: ScriptedModel, timeout: float | None = 30.0, **options: Any) -> Player:
    agent = LlmAgent("scripted", base_url=model.url, api_key="secret", **options)
    return Episode(fresh_world(), [agent], record=True, response_timeout=timeout).run().players[0]


def buys(body: dict[str, Any]) -> Any:
    """Buys the first market it sees, then ends the turn."""
    if body["messages"][-1]["role"] == "tool":
        return calls(("endTurn", {}))
    seen = json.loads(body["messages"][-1]["content"])
    market = seen["predictionMarkets"][0]["id"]
    return calls(("buyShares", {"marketId": market, "outcome": "YES", "amount": 20}))


def conducts(player: Player) -> list[str]:
    return [turn.conduct for turn in player.turns]


def tool_results(body: dict[str, Any]) -> list[Any]:
    return [json.loads(message["content"]) for message in body["messages"] if message["role"] == "tool"]


def test_the_model_acts_through_tools_and_ends_its_turns() -> None:
    with scripted(buys) as model:
        player = play(model)
    assert conducts(player) == ["acted"] * TICKS
    assert [turn.actions[0].method for turn in player.turns] == ["a2a.buyShares"] * TICKS
    assert len(model.asked) == 2 * TICKS
    assert model.asked[0]["path"] == "/v1/chat/completions"
    assert model.headers[0]["authorization"] == "Bearer secret"


def test_the_model_is_told_the_rules_the_observation_and_the_tools() -> None:
    with scripted(says("nothing to do")) as model:
        play(model, temperature=0.3, max_tokens=50)
    asked = model.asked[0]
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert "Prediction markets" in asked["messages"][0]["content"]
    names = {tool["function"]["name"] for tool in asked["tools"]}
    assert {"buyShares", "openPosition", "endTurn", "getFeed"} <= names
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("scripted", 0.3, 50)


def test_tools_can_be_chosen() -> None:
    with scripted(says("nothing")) as model:
        play(model, tools=["a2a.buyShares", "getTrades"])
    assert {tool["function"]["name"] for tool in model.asked[0]["tools"]} == {"buyShares", "getTrades", "endTurn"}


def test_the_conversation_keeps_only_the_latest_turns_and_keeps_them_whole() -> None:
    with scripted(buys) as model:
        play(model, memory=2)
    for body in model.asked:
        messages = body["messages"]
        assert len([message for message in messages if message["role"] == "user"]) <= 3
        called = [call["id"] for message in messages for call in message.get("tool_calls", [])]
        answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert called == answered


def test_calls_in_one_tick_are_bounded() -> None:
    with scripted(calls(("getTrades", {}))) as model:
        player = play(model, max_calls=3)
    assert len(model.asked) == 3 * TICKS
    assert conducts(player) == ["acted"] * TICKS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        (("buyShares", "{not json"), "invalid_params"),
        (("buyShares", "[1]"), "invalid_params"),
        (("buyShares", {"marketId": "market-0"}), "invalid_params"),
        (("buyShares", {"marketId": "market-99999", "outcome": "YES", "amount": 5}), "market_not_found"),
        (("sellEverything", {}), "method_not_found"),
        (("likePost", {"postId": "1"}), "method_not_found"),
    ],
)
def test_a_tool_call_that_is_wrong_gets_an_error_that_the_model_can_mend(tool: tuple[str, Any], kind: str) -> None:
    with scripted(calls(tool), says("I see")) as model:
        player = play(model)
    assert tool_results(model.asked[1])[0]["error"]["data"]["type"] == kind
    assert conducts(player) == ["acted"] * TICKS


def test_arguments_that_are_an_object_already_are_taken() -> None:
    message = {
        "role": "assistant",
        "tool_calls": [{"function": {"name": "createPost", "arguments": {"content": "hi"}}}],
    }
    with scripted(completion(message), says("done")) as model:
        player = play(model)
    assert player.turns[0].actions[0].error is None


@pytest.mark.parametrize(
    "trouble",
    [(500, {"error": "overloaded"}), (429, b"slow down"), (200, b"<html>"), (200, {"choices": []}), (200, [1])],
)
def test_a_failure_that_may_pass_is_tried_again(trouble: Any) -> None:
    with scripted(trouble, says("here I am")) as model:
        player = play(model)
    assert conducts(player) == ["acted"] * TICKS
    assert [bool(call.error) for call in player.turns[0].llm_calls] == [True, False]


def test_a_server_that_always_fails_is_a_crash_of_every_turn() -> None:
    with scripted((503, b"down")) as model:
        player = play(model, retries=1)
    assert conducts(player) == ["crashed"] * TICKS
    assert len(model.asked) == 2 * TICKS
    assert "503" in player.errors[0]


def test_a_request_that_the_server_refuses_is_not_repeated() -> None:
    with scripted((400, b"no such model")) as model:
        player = play(model)
    assert len(model.asked) == TICKS
    assert "no such model" in player.errors[0]


def test_the_pause_that_a_server_asks_for_is_made_if_the_turn_has_time_for_it() -> None:
    busy = (429, b"slow down", {"retry-after": "0.2"})
    with scripted(busy, says("here I am")) as model:
        player = play(model)
    assert conducts(player) == ["acted"] * TICKS
    assert player.turns[0].think_s > 0.2
    with scripted((503, b"tomorrow", {"retry-after": "86400"})) as model:
        player = play(model)
    assert conducts(player) == ["crashed"] * TICKS
    assert len(model.asked) == TICKS


def test_an_answer_without_end_is_given_up() -> None:
    with scripted(says("x" * llm.MAX_ANSWER), says("short")) as model:
        player = play(model)
    assert conducts(player) == ["crashed"] + ["acted"] * (TICKS - 1)
    assert "bytes" in player.errors[0]


def test_a_server_that_streams_is_told_apart_from_one_that_fails() -> None:
    with scripted((200, b"data: {}\n\ndata: [DONE]\n\n", {"content-type": "text/event-stream"})) as model:
        player = play(model, extra={"stream": True})
    assert len(model.asked) == TICKS
    assert "without `stream`" in player.errors[0]


def test_a_server_that_cannot_be_reached_is_a_crash() -> None:
    with scripted(says("x")) as model:
        url = model.url
    agent = LlmAgent("m", base_url=url, retries=0)
    player = Episode(fresh_world(), [agent], record=True, response_timeout=30).run().players[0]
    assert conducts(player) == ["crashed"] * TICKS


@pytest.mark.slow
@pytest.mark.parametrize("way", ["never", "drips"])
def test_an_answer_that_does_not_come_is_given_up(way: str) -> None:
    with scripted() as model:
        model.answers = [getattr(model, way), says("quick")]
        player = play(model, timeout=1.0)
        assert conducts(player)[0] in ("late", "crashed")
        assert conducts(player)[-1] == "acted"


def test_the_record_has_messages_usage_token_ids_and_log_probabilities() -> None:
    told = {"token_ids": [5, 6], "logprobs": {"content": [{"logprob": -0.1}, {"logprob": -0.2}]}}
    answer = {**calls(("endTurn", {}), **told), "prompt_token_ids": [1, 2, 3]}
    with scripted(answer) as model:
        player = play(model, logprobs=True, extra={"return_token_ids": True})
    assert model.asked[0]["logprobs"] is True
    assert model.asked[0]["return_token_ids"] is True
    step = next(steps(player.turns, agent="m"))
    assert step.tokens is not None
    assert (step.tokens.prompt_ids, step.tokens.completion_ids) == ([1, 2, 3], [5, 6])
    assert step.tokens.logprobs == [-0.1, -0.2]
    assert [message["role"] for message in step.messages] == ["system", "user", "assistant"]
    (call,) = step.info["llm_calls"]
    assert (call["model"], call["prompt_tokens"], call["completion_tokens"]) == ("scripted-1", 100, 7)


def test_endpoint_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(says("x")) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "from outside")
        Episode(fresh_world(), [load("llm:some-model", {"retries": 0})]).run()
    assert model.headers[0]["authorization"] == "Bearer from outside"
    assert model.asked[0]["model"] == "some-model"
