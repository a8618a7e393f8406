"""Steps as conversations, however the agent recorded them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.export.dialogue import NotAConversation, read_dialogue
from bakeoff.spec.workload import Step, Tokens

SYSTEM = {"role": "system", "content": "play"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def told(*steps: Step) -> list[list[tuple[str, str, bool]]]:
    """(role, text, sampled) of each line of each context."""
    found = read_dialogue(steps, render=False)
    return [
        [(line.message["role"], line.message["content"], line.sampled) for line in context.lines]
        for context in found.contexts
    ]


@given(st.lists(st.tuples(st.text(max_size=5), st.lists(st.text(max_size=5), min_size=1, max_size=3)), max_size=6))
def test_whole_conversations_and_new_messages_mean_the_same(turns: list[tuple[str, list[str]]]) -> None:
    """A step is a question and replies with tools between them, recorded as all so far or as what is new."""
    whole, new, conversation = [], [], [SYSTEM]
    for question, answers in turns:
        lines = [user(question), reply(answers[0])]
        for answer in answers[1:]:
            lines += [{"role": "tool", "content": "ok", "tool_call_id": "c"}, reply(answer)]
        new.append(Step(messages=lines if len(conversation) > 1 else [SYSTEM, *lines]))
        conversation = [*conversation, *lines]
        whole.append(Step(messages=conversation))
    if turns:
        assert told(*whole) == told(*new)
        assert sum(sampled for _, _, sampled in told(*whole)[0]) == sum(len(answers) for _, answers in turns)


def test_what_opens_a_context_is_prompt_up_to_its_last_question() -> None:
    steps = Step(messages=[SYSTEM, user("1+1"), reply("2"), user("2+2"), reply("4")])
    assert [sampled for _, _, sampled in told(steps)[0]] == [False, False, False, False, True]


def test_a_conversation_that_begins_again_is_another_context() -> None:
    first = Step(messages=[SYSTEM, user("a"), reply("1")])
    summarised = Step(messages=[SYSTEM, user("so far: a, 1"), user("b"), reply("2")])
    assert [len(context) for context in told(first, summarised)] == [3, 4]


def test_each_reply_of_a_step_gets_its_own_tokens_where_the_agent_kept_them() -> None:
    calls = [
        {"model": "m", "prompt_ids": [1], "completion_ids": [2], "logprobs": [-0.5]},
        {"error": "503"},
        {"model": "m", "prompt_ids": [1, 2, 3], "completion_ids": [4], "logprobs": [-0.25]},
    ]
    lines = [SYSTEM, user("a"), reply("", tool_calls=[{"id": "c", "name": "f", "arguments": {}}]), {"role": "tool"}]
    step = Step(messages=[*lines, reply("done")], tokens=Tokens([1, 2, 3], [4], [-0.25]), info={"llm_calls": calls})
    found = read_dialogue([step], render=False)
    tokens = [line.tokens for line in found.contexts[0].lines if line.sampled]
    assert tokens == [Tokens([1], [2], [-0.5]), Tokens([1, 2, 3], [4], [-0.25])]
    assert found.model == "m"


def test_tokens_of_a_step_belong_to_its_last_reply() -> None:
    step = Step(messages=[user("a"), reply("b"), {"role": "tool", "content": ""}, reply("c")], tokens=Tokens([1], [2]))
    lines = read_dialogue([step], render=False).contexts[0].lines
    assert [line.tokens for line in lines] == [None, None, None, Tokens([1], [2])]


def test_tool_calls_beside_the_messages_are_the_replys_unless_they_are_a_log() -> None:
    beside = Step(messages=[user("a"), reply("b")], tool_calls=[{"name": "f", "arguments": {"x": 1}}])
    (call,) = read_dialogue([beside], render=False).contexts[0].lines[-1].message["tool_calls"]
    assert call["function"]["name"] == "f" and json.loads(call["function"]["arguments"]) == {"x": 1}
    log = Step(messages=[user("a"), reply("b")], tool_calls=[{"method": "a2a.buyShares", "params": {}}])
    assert "tool_calls" not in read_dialogue([log], render=False).contexts[0].lines[-1].message


def test_pictures_are_refused() -> None:
    with pytest.raises(NotAConversation, match="other than text"):
        told(Step(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]))


def test_observations_and_actions_become_a_conversation_when_asked() -> None:
    found = read_dialogue([Step(observation={"p": 0.5}, action=[1]), Step(observation={"p": 0.6})], render=True)
    assert not found.by_model
    assert [line.message["content"] for line in found.contexts[0].lines[1:]] == ['{"p":0.5}', "[1]", '{"p":0.6}']
