"""Three APIs, one shape: what was said does not depend on how it was sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.tasks.proxy.sse import EventReader
from bakeoff.workloads.tasks.proxy.usage import Price, Usage, cost
from bakeoff.workloads.tasks.proxy.wire import WIRES, wire_at
from bakeoff.workloads.tasks.proxy.wire.face import BadRequest, Reply, Wire
from workloads.tasks.proxied import request
from workloads.tasks.scripted import APIS, ScriptedModel, Turn, Use

NAMES = list(WIRES)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "model",
        "messages",
        "input",
        "system",
        "tools",
        "role",
        "content",
        "type",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "text",
        "output",
        "call_id",
        "instructions",
        "summary",
        "delta",
        "choices",
        "index",
        "usage",
        "item",
        "response",
        "message",
        "content_block",
        "partial_json",
        "error",
    ]
)
ODD = st.recursive(
    JSON | st.sampled_from(["assistant", "user", "function_call", "message", "tool_result", "tool_use", "reasoning"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


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


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100, deadline=None)
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
@settings(max_examples=10000, deadline=None)
@given(body=st.dictionaries(KEYS, ODD, max_size=6), model=st.sampled_from(["m", None]))
def test_no_body_whatever_breaks_the_reader(name: str, body: dict[str, Any], model: str | None) -> None:
    wire: Wire = WIRES[name]  # type: ignore[index]
    given_body = {**body, **({"model": model} if model else {})}
    try:
        asked = wire.read(given_body)
    except BadRequest:
        pass
    else:
        assert all(isinstance(message["role"], str) for message in asked.messages)
    wire.reply(body)
    assembler = wire.assembler()
    assembler.feed("", body)
    wire.reply(assembler.body())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=800, deadline=None)
@given(events=st.lists(st.dictionaries(KEYS, ODD, max_size=5), max_size=5), kind=st.sampled_from([
    "message_start", "content_block_start", "content_block_delta", "message_delta", "response.output_item.done",
    "response.failed", "error", ""]))  # fmt: skip
def test_no_stream_whatever_breaks_the_assembler(name: str, events: list[dict[str, Any]], kind: str) -> None:
    wire: Wire = WIRES[name]  # type: ignore[index]
    assembler = wire.assembler()
    for event in events:
        assembler.feed(kind, {**event, "type": kind})
    wire.reply(assembler.body())


def test_one_conversation_reads_the_same_in_every_api() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    expected = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is here?"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    ]
    chat = WIRES["chat"].read({"model": "m", "messages": [{**expected[0], "role": "developer"}, *expected[1:]]})
    responses = WIRES["responses"].read(
        {
            "model": "m",
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "What is here?"}]},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "x"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command":"ls"}'},
                {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
            ],
        }
    )
    messages = WIRES["messages"].read(
        {
            "model": "m",
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "What is here?"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"}]},
            ],
        }
    )
    assert chat.messages == expected
    assert responses.messages == expected
    assert messages.messages == expected


def test_paths_are_known_with_and_without_their_version() -> None:
    found = [
        wire_at(path)
        for path in ("/v1/chat/completions", "/responses", "/v1/messages/", "/v1/messages/count_tokens", "/")
    ]
    assert [wire.name if wire else None for wire in found] == ["chat", "responses", "messages", None, None]


def test_cached_and_written_input_have_their_own_prices_and_an_unknown_price_is_no_price() -> None:
    usage = Usage(input=1_000_000, cached=600_000, cache_write=100_000, output=200_000)
    assert cost(usage, Price(input=1, output=10)) == pytest.approx(1 + 2)
    assert cost(usage, Price(input=1, output=10, cached=0.1, cache_write=2)) == pytest.approx(0.3 + 0.06 + 0.2 + 2)
    assert cost(usage, None) is None
    assert cost(Usage(input=5, cost=0.25), None) == 0.25  # the provider said so
