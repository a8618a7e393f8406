"""Three APIs, one shape: what was said does not depend on how it was sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.tasks.proxy.http import WIRES, wire_at
from bakeoff.workloads.tasks.proxy.powers import denied
from bakeoff.workloads.tasks.proxy.records import Call, Conversations
from bakeoff.workloads.tasks.proxy.relay import EventReader
from bakeoff.workloads.tasks.proxy.wire import BadRequest, Reply, Usage, Wire
from workloads.tasks.proxied import PATHS, request
from workloads.tasks.scripted import APIS, ScriptedModel, Turn, Use

NAMES = list(WIRES)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
EXPECTED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is here?"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
]
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "x"}
USED = {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}
CONVERSATION: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "m",
        "messages": [{**EXPECTED[0], "role": "developer"}, *EXPECTED[1:]],
        "tools": [{"type": "function", "function": {"name": "bash"}}],
    },
    "responses": {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "What is here?"}]},
            THOUGHT,
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command":"ls"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
        ],
        "tools": [{"type": "function", "name": "bash"}, {"type": "web_search"}],
    },
    "messages": {
        "model": "m",
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "What is here?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    USED,
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"}]},
        ],
        "tools": [{"name": "bash", "input_schema": {}}],
    },
    "gemini": {
        "model": "m",
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "What is here?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"text": "I "},
                    {"text": "look."},
                    {"functionCall": {"id": "c1", "name": "bash", "args": {"command": "ls"}}, "thoughtSignature": "s"},
                ],
            },
            {"role": "user", "parts": [{"function_response": {"name": "bash", "response": {"output": "a.txt"}}}]},
        ],
        "tools": [{"function_declarations": [{"name": "bash"}]}],
    },
}
STREAM: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {
            "choices": [{"index": 0, "delta": {"content": "x", "tool_calls": [{"index": 0, **CALL}]},
                         "logprobs": {"content": [{"logprob": -1, "id": 3}]}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
        },
    ],
    "responses": [
        {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": THOUGHT},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": {"input_tokens": 1}}},
    ],
    "messages": [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": USED},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "message_delta", "delta": {"stop_reason": "x"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    "gemini": [
        {"candidates": [{"content": {"parts": [{"text": "x", "thought": True}]}}], "responseId": "r"},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "bash", "args": {"command": "ls"}}}]},
                         "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1}},
    ],
}  # fmt: skip
ODD: list[Any] = [
    None, True, -1, 10**30, 1.5, float("nan"), "", "assistant", [], [1], [None], {}, [{}], [[]], {"a": {"b": []}},
    {"role": "assistant", "tool_calls": [{"function": {"name": None, "arguments": {}}}]},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, within in inside:
        yield (*path, key)
        yield from places(within, (*path, key))


def spoilt(value: dict[str, Any], random: Random) -> dict[str, Any]:
    """The same with up to three parts of it missing or replaced by something odd."""
    value = copy.deepcopy(value)
    for _ in range(random.randint(1, 3)):
        path = random.choice(list(places(value)) or [("x",)])
        around: Any = value
        for key in path[:-1]:
            around = around[key]
        if random.random() < 0.2 and isinstance(around, dict):
            around.pop(path[-1], None)
        else:
            around[path[-1]] = copy.deepcopy(random.choice(ODD))
    return value


def both_ways(wire: Wire, turn: Turn) -> tuple[Reply, Reply]:
    """The same turn of a model, whole and streamed."""
    model = ScriptedModel([turn], side=None)
    try:
        _, whole, events = APIS[wire.path](
            model, request(wire.name, "hi", stream=True, stream_options={"include_usage": True})
        )
    finally:
        model._server.server_close()
    assembler, reader = wire.assembler(), EventReader()
    for piece in events:
        for event in reader.feed(piece):
            if event.data is not None:
                assembler.feed(event.name, event.data)
    assert assembler.ended and assembler.error is None
    return wire.reply(whole), wire.reply(assembler.body())


@pytest.mark.parametrize("name", PATHS)  # test_gemini.py has Gemini's
@settings(max_examples=15, deadline=None)
@given(text=WORDS, commands=st.lists(WORDS, max_size=3), tokens=st.tuples(*[st.integers(0, 10**6)] * 3))
def test_a_stream_says_the_same_as_the_whole_answer(
    name: str, text: str, commands: list[str], tokens: tuple[int, int, int]
) -> None:
    wire: Wire = WIRES[name]  # type: ignore[index]
    cached, more, output = tokens
    turn = Turn(text=text, commands=tuple(commands), use=Use(input=cached + more, cached=cached, output=output))
    whole, streamed = both_ways(wire, turn)
    assert streamed.usage == whole.usage == Usage(input=cached + more, cached=cached, output=output)
    assert streamed.finish == whole.finish
    if text or commands:
        assert streamed.message == whole.message
        assert streamed.message is not None and streamed.message["content"] == text
        made = streamed.message.get("tool_calls", [])
        assert [json.loads(call["function"]["arguments"])["command"] for call in made] == commands


@pytest.mark.parametrize("name", NAMES)
def test_any_odd_value_at_any_place_is_allowed_or_denied(name: str) -> None:
    for path in list(places(CONVERSATION[name])):
        for odd in ODD:
            body = copy.deepcopy(CONVERSATION[name])
            around: Any = body
            for key in path[:-1]:
                around = around[key]
            around[path[-1]] = odd
            assert isinstance(denied(name, body), list)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=200, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_nothing_that_is_sent_breaks_a_reader(name: str, random: Random) -> None:
    wire: Wire = WIRES[name]  # type: ignore[index]
    body = spoilt(CONVERSATION[name], random)
    assert isinstance(denied(name, body), list)  # type: ignore[arg-type]
    assembler = wire.assembler()
    for event in STREAM[name]:
        assembler.feed("", spoilt(event, random))
    reply = wire.reply(assembler.body())
    wire.reply(spoilt(assembler.body(), random))
    try:
        asked = wire.read(body)
    except BadRequest:
        return
    call = Call(number=1, wire=name, end="answered", time_s=0.0, reply=reply.message)
    Conversations().add(call, asked, reply.id)
    assert call.kept == 0 and call.messages == asked.messages
    assert msgspec.json.encode([asked, reply])


@pytest.mark.parametrize("name", NAMES)
def test_one_conversation_reads_the_same_in_every_api(name: str) -> None:
    asked = WIRES[name].read(CONVERSATION[name])  # type: ignore[index]
    assert asked.messages == EXPECTED
    assert asked.tools[0]["function"]["name"] == "bash"


def test_an_answer_without_a_word_is_an_answer() -> None:
    empty = WIRES["responses"].reply({"status": "completed", "output": [{"type": "reasoning", "summary": []}]})
    assert (empty.message, empty.finish) == ({"role": "assistant", "content": ""}, "completed")
    assert WIRES["responses"].reply({"status": "completed"}).message is None


def test_paths_are_known_with_and_without_their_version() -> None:
    found = [
        wire_at(path, {})
        for path in ("/v1/chat/completions", "/responses", "/v1/messages/", "/v1/messages/count_tokens", "/")
    ]
    assert [address[0].name if address else None for address in found] == ["chat", "responses", "messages", None, None]
    address = wire_at("/v1beta/models/tuned%2Fm:generateContent", {})
    assert address is not None and address[1] == {"model": "tuned/m", "stream": False, "count": False}
