"""Caches of providers: what they saved is counted, and runs can be kept from sharing one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff.workloads.tasks.proxy.nonce import unshared
from bakeoff.workloads.tasks.proxy.wire import Price, Usage, WireName
from workloads.tasks.proxied import WIRES, lab
from workloads.tasks.scripted import Use, say

TOOL = {"name": "ls", "description": "List."}
BODIES: dict[str, tuple[WireName, dict[str, Any]]] = {
    "chat": ("chat", {"tools": [{"type": "function", "function": TOOL}], "messages": [{"role": "system", "content": "Help."}]}),
    "chat in parts": ("chat", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}),
    "responses": ("responses", {"tools": [{"type": "web_search"}, {"type": "function", **TOOL}], "instructions": "Help.", "input": "hi"}),
    "responses without instructions": ("responses", {"input": [{"role": "user", "content": "hi"}]}),
    "responses with a list": ("responses", {"instructions": [{"role": "system", "content": "Help."}], "input": "hi"}),
    "messages": ("messages", {"tools": [{"type": "bash_20250124", "name": "bash"}, TOOL], "system": "Help.", "messages": []}),
    "messages in blocks": ("messages", {"system": [{"type": "text", "text": "Help.", "cache_control": {"type": "ephemeral"}}]}),
    "messages without a system prompt": ("messages", {"messages": [{"role": "user", "content": "hi"}]}),
    "gemini": ("gemini", {"tools": [{"functionDeclarations": [TOOL]}], "systemInstruction": {"parts": [{"text": "Help."}]}}),
    "gemini without instruction": ("gemini", {"tools": [{"function_declarations": [TOOL]}], "contents": [{"parts": [{"text": "hi"}]}]}),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_the_first_tool_and_the_first_text_begin_with_the_nonce(name: str) -> None:
    wire, body = BODIES[name]
    before = json.dumps(body)
    sent = unshared(wire, body, "3f2a")
    assert json.dumps(body) == before
    text = json.dumps(sent)
    assert text.count("[3f2a]") == (2 if "description" in before else 1)
    if "description" in before:
        assert '"description": "[3f2a]\\nList."' in text
    assert json.dumps(unshared(wire, body, "b")) == text.replace("3f2a", "b")


@pytest.mark.parametrize("wire", WIRES)
def test_runs_share_no_beginning_of_a_prompt_if_they_must_not(wire: str, tmp_path: Path) -> None:
    prompts = []
    for number in range(2):
        with lab(tmp_path / str(number), [say("hello"), say("again")], side=None, share_cache=False) as here:
            for _ in range(2):
                here.ask(wire)
            first, second = (json.dumps(each.body, sort_keys=True) for each in here.model.requests)
            assert first == second  # a run may use what it has sent itself
            prompts.append(first)
            assert "[" + here.run.scoped("nonce")[:16] not in json.dumps([call.messages for call in here.calls()])
    assert prompts[0] != prompts[1]
    with lab(tmp_path / "shared", [say("hello")], side=None) as here:
        here.ask(wire)
        assert "[" + here.run.scoped("nonce")[:16] not in json.dumps(here.model.requests[0].body)


def test_the_cost_without_caches_is_recorded_beside_the_cost(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hello", use=Use(input=1_000, cached=800, output=100))], side=None) as here:
        here.ask()
        totals = here.run.close()
    assert totals.cost == pytest.approx((200 + 80 + 200) / 1e6)
    assert totals.cost_uncached == pytest.approx((1_000 + 200) / 1e6)
    assert (
        Usage(input=10, cache_write=10, output=1).uncached_dollars(Price(input=1.0, cache_write=9.0, output=2.0))
        == 12e-6
    )
    assert Usage(input=10, cost=1.0).uncached_dollars(None) is None
