"""Tools and services of a provider: denied by default in every API, and allowed by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bakeoff.workloads.tasks.proxy.powers import denied
from workloads.tasks.proxied import PATHS, WIRES, error_of, lab, request
from workloads.tasks.scripted import say

Json = dict[str, Any]


def user(*parts: Json) -> list[Json]:
    return [{"role": "user", "content": list(parts)}]


def image(url: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url}}


CASES: list[tuple[str, Json, str]] = [
    ("chat", {"tools": [{"type": "web_search"}]}, "web_search"),
    ("chat", {"tools": [{"type": "browser_search"}]}, "web_search"),
    ("chat", {"web_search_options": {"search_context_size": "low"}}, "web_search"),
    ("chat", {"plugins": [{"id": "web"}]}, "plugins"),
    ("chat", {"models": ["a", "b"]}, "models"),
    ("chat", {"store": True}, "stored_responses"),
    ("chat", {"service_tier": "priority"}, "service_tier"),
    ("chat", {"messages": user(image("https://example.org/a.png"))}, "remote_urls"),
    ("chat", {"messages": user(image("HTTP://example.org/a.png"))}, "remote_urls"),
    ("chat", {"messages": user({"type": "video_url", "video_url": {"url": "file:///etc/passwd"}})}, "remote_urls"),
    ("chat", {"messages": user({"type": "file", "file": {"file_id": "file-1"}})}, "files"),
    ("chat", {"messages": user({"type": "hologram"})}, "hologram"),
    ("chat", {"tools": [{"type": "teleport_20300101"}]}, "teleport"),
    ("responses", {"tools": [{"type": "web_search_preview_2025_03_11"}]}, "web_search"),
    ("responses", {"tools": [{"type": "mcp", "server_url": "https://evil.example"}]}, "mcp"),
    ("responses", {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "code_execution"),
    ("responses", {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "file_search"),
    ("responses", {"tools": [{"type": "image_generation"}]}, "image_generation"),
    ("responses", {"tools": [{"type": "computer_use_preview"}]}, "computer"),
    ("responses", {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, "containers"),
    ("responses", {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]}, "mcp"),
    ("responses", {"background": True}, "background"),
    ("responses", {"store": True}, "stored_responses"),
    ("responses", {"previous_response_id": "resp_1"}, "stored_responses"),
    ("responses", {"conversation": {"id": "conv_1"}}, "stored_responses"),
    ("responses", {"prompt": {"id": "pmpt_1"}}, "stored_responses"),
    ("responses", {"input": [{"type": "item_reference", "id": "rs_1"}]}, "stored_responses"),
    ("responses", {"input": user({"type": "input_image", "image_url": "https://x.example/a"})}, "remote_urls"),
    ("responses", {"input": user({"type": "input_file", "file_url": "https://x.example/a"})}, "remote_urls"),
    ("responses", {"input": user({"type": "input_file", "file_id": "file-1"})}, "files"),
    (
        "responses",
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "file_id": "f"}]}]},
        "files",
    ),
    ("responses", {"tool_choice": {"type": "web_search_preview"}}, "web_search"),
    ("responses", {"service_tier": "flex"}, "service_tier"),
    ("responses", {"input": [{"type": "message", "id": "msg_1", "phase": "final"}]}, "stored_responses"),
    ("messages", {"messages": user({"type": "text", "text": "x", "source": {"type": "url", "url": "https://x.example"}})}, "remote_urls"),
    ("messages", {"messages": user({"type": "image", "source": {"type": "base64", "data": "aaaa", "url": "https://x.example"}})}, "remote_urls"),
    ("messages", {"messages": user({"type": "image", "source": {"type": "base64", "data": "https://x.example"}})}, "remote_urls"),
    ("messages", {"messages": user({"type": "document", "source": {"type": "base64", "data": "aaaa", "file_id": "f"}})}, "files"),
    ("messages", {"tools": [{"name": "f", "input_schema": {}, "allowed_callers": ["code_execution_20250825"]}]}, "code_execution"),
    ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
    ("messages", {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "web_fetch"),
    ("messages", {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, "code_execution"),
    ("messages", {"tools": [{"type": "computer_20250124", "name": "computer"}]}, "computer"),
    ("messages", {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, "mcp"),
    ("messages", {"tools": [{"type": "quantum_20990101", "name": "q", "input_schema": {}}]}, "quantum"),
    ("messages", {"mcp_servers": [{"type": "url", "url": "https://evil.example"}]}, "mcp"),
    ("messages", {"container": {"skills": []}}, "containers"),
    ("messages", {"context_management": {"edits": []}}, "context_management"),
    ("messages", {"messages": user({"type": "image", "source": {"type": "url", "url": "https://x.example"}})}, "remote_urls"),
    ("messages", {"messages": user({"type": "document", "source": {"type": "file", "file_id": "f"}})}, "files"),
    ("messages", {"messages": user({"type": "container_upload", "file_id": "f"})}, "containers"),
    (
        "messages",
        {
            "messages": user(
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "image", "source": {"type": "url", "url": "http://x.example"}}],
                }
            )
        },
        "remote_urls",
    ),
    # Servers accept more shapes than the vendors document: vLLM takes parts without a type, LiteLLM a tool of Gemini's
    # beside or in place of a function, OpenRouter runs every shell itself, others fetch an address in place of data.
    ("chat", {"messages": user({"image_url": "https://example.org/a.png"})}, "remote_urls"),
    ("chat", {"messages": user({"type": "text", "text": "x", "image_url": {"url": "https://example.org/a.png"}})}, "remote_urls"),
    ("chat", {"messages": [{"role": "user", "content": image("https://example.org/a.png")}]}, "remote_urls"),
    ("chat", {"messages": user({"type": "image_url", "image_url": ["https://example.org/a.png"]})}, "remote_urls"),
    ("chat", {"messages": user({"type": "input_audio", "input_audio": {"data": "https://example.org/a.wav"}})}, "remote_urls"),
    ("chat", {"messages": user({"type": "file", "file": {"file_url": "https://example.org/a.pdf"}})}, "remote_urls"),
    ("chat", {"tools": [{"googleSearch": {}}]}, "web_search"),
    ("chat", {"tools": [{"type": "function", "function": {"name": "f"}, "googleSearch": {}}]}, "web_search"),
    ("responses", {"tools": [{"type": "shell"}]}, "containers"),
    ("responses", {"tools": [{"type": "shell", "environment": "container_auto"}]}, "containers"),
    ("responses", {"tools": [{"type": "function", "name": "f", "urlContext": {}}]}, "web_fetch"),
    (
        "responses",
        {"input": [{"type": "tool_search_output", "execution": "client", "tools": [{"type": "mcp", "server_url": "https://x.example"}]}]},
        "mcp",
    ),
    ("responses", {"input": user({"type": "input_image", "image_url": {"url": "https://x.example/a"}})}, "remote_urls"),
    ("responses", {"input": user({"type": "input_file", "file_data": "https://x.example/a"})}, "remote_urls"),
    ("responses", {"instructions": [{"role": "system", "content": [{"type": "input_image", "file_id": "f"}]}]}, "files"),
    ("messages", {"messages": [{"role": "user", "content": {"type": "image", "source": {"type": "url", "url": "https://x.example"}}}]}, "remote_urls"),
    ("messages", {"tools": [{"googleSearch": {}}]}, "web_search"),
    ("messages", {"tools": [{"name": "f", "input_schema": {}, "codeExecution": {}}]}, "code_execution"),
    # An item with an id alone is a reference, with or without a type; and a key that no list has may be a new power.
    ("responses", {"input": [{"id": "rs_1"}]}, "stored_responses"),
    ("responses", {"input": [{"type": None, "id": "rs_1"}]}, "stored_responses"),
    ("responses", {"input": [{"role": "assistant", "id": "msg_1", "content": []}]}, "stored_responses"),
    ("responses", {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "stored_responses"),
    ("responses", {"input": [{"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "environment": {"type": "container_reference"}}]}, "containers"),
    ("responses", {"input": [{"role": "user", "content": "hi", "attachments": [{"file": "f"}]}]}, "attachments"),
    ("responses", {"input": user({"type": "input_text", "text": "hi", "uuid": "seen-by-others"})}, "uuid"),
    ("responses", {"input": user({"type": "input_audio", "input_audio": {"data": "AAAA", "uri": "gs://bucket"}})}, "uri"),
    ("responses", {"text": {"format": {"type": "json_schema", "schema_url": "https://x.example"}}}, "schema_url"),
    ("responses", {"tools": [{"type": "shell", "environment": {"type": "local", "skills": [{"path": "x"}]}}]}, "skills"),
    ("chat", {"messages": [{"role": "user", "content": "hi", "documents": [{"id": "d"}]}]}, "documents"),
    ("chat", {"messages": user({"type": "text", "text": "hi", "uuid": "seen-by-others"})}, "uuid"),
    ("chat", {"messages": user({"type": "image_url", "image_url": {"url": "data:,", "fallback": "https://x.example"}})}, "fallback"),
    ("chat", {"tools": [{"type": "function", "function": {"name": "f", "googleSearch": {}}}]}, "web_search"),
    ("chat", {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "server": "x"}}]}]}, "server"),
    ("chat", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "id": "kept"}}}, "id"),
    ("messages", {"messages": [{"role": "user", "content": "hi", "container": "c"}]}, "containers"),
    ("messages", {"messages": user({"type": "text", "text": "hi", "memory": "m"})}, "memory"),
    ("messages", {"messages": user({"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "scope": "global"}})}, "scope"),
    ("messages", {"messages": user({"type": "image", "source": {"type": "base64", "data": "AAAA", "mirror": "https://x.example"}})}, "mirror"),
    ("messages", {"system": [{"type": "text", "text": "hi", "skill_id": "s"}]}, "skill_id"),
    ("messages", {"output_config": {"effort": "low", "webhook": "https://x.example"}}, "webhook"),
]  # fmt: skip

GEMINI: list[tuple[Json, str]] = [
    ({"contents": [{"role": "user", "parts": [], "cached": "c"}]}, "cached"),
    ({"contents": [{"parts": [{"inlineData": {"data": "AAAA", "fileUri": "gs://b"}}]}]}, "file_uri"),
    ({"contents": [{"parts": [{"function_call": {"name": "f", "server": "s"}}]}]}, "server"),
    ({"contents": [{"parts": [{"functionResponse": {"name": "f", "parts": [{"inline_data": {"uri": "x"}}]}}]}]}, "uri"),
    ({"tools": [{"functionDeclarations": [{"name": "f", "endpoint": "https://x.example"}]}]}, "endpoint"),
    ({"toolConfig": {"retrievalConfig": {"latLng": {}}}}, "retrieval_config"),
    ({"generationConfig": {"routing_config": {"autoMode": {}}}}, "routing_config"),
]


@pytest.mark.parametrize(("asked", "name"), GEMINI)
def test_geminis_keys_are_on_a_list_at_every_level(asked: Json, name: str) -> None:
    body = {"model": "m", "contents": [], **asked}
    assert denied("gemini", body) == [name] and denied("gemini", body, [name]) == []


def test_geminis_own_keys_are_fine_in_both_spellings() -> None:
    parts = [
        {"text": "hi", "thoughtSignature": "AAAA"},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "video_metadata": {"fps": 1}},
        {"function_call": {"name": "f", "args": {"url": "https://x.example"}}},
        {"functionResponse": {"id": "1", "name": "f", "response": {"output": "x", "file_uri": "y"}}},
    ]
    config = {"candidate_count": 1, "thinkingConfig": {"includeThoughts": True, "thinking_budget": 10}}
    tools = [{"function_declarations": [{"name": "f", "parametersJsonSchema": {"type": "object", "any": {}}}]}]
    choice = {"functionCallingConfig": {"mode": "AUTO"}}
    body = {
        "contents": [{"role": "user", "parts": parts}],
        "generationConfig": config,
        "tools": tools,
        "toolConfig": choice,
    }
    assert denied("gemini", body) == []


@pytest.mark.parametrize("wire", WIRES)
def test_what_the_provider_would_do_itself_is_denied_and_can_be_allowed_by_name(wire: str, tmp_path: Path) -> None:
    cases = [(asked, name) for spoken, asked, name in CASES if spoken == wire]
    with lab(tmp_path, [say("ok")]) as here:
        answers = [here.client.post(PATHS[wire], json=request(wire, "hi") | asked) for asked, _ in cases]
        calls, sent, totals = here.calls(), here.model.requests, here.run.close()
    assert sent == []
    for (_, name), answer, call in zip(cases, answers, calls, strict=True):
        assert answer.status_code == 400 and answer.headers["x-should-retry"] == "false"
        assert f'allow_provider_tools = ["{name}"]' in error_of(answer)["message"]
        assert (call.end, call.status, call.denied) == ("denied", 400, [name])
    assert set(totals.denied) == {name for _, name in cases} and totals.broken is None

    with lab(tmp_path / "allowed", [say("ok")], side=None, allowed=[name for _, name in cases]) as here:
        for asked, _ in cases:
            assert here.client.post(PATHS[wire], json=request(wire, "hi") | asked).status_code == 200
            for key, value in asked.items():
                assert here.model.requests[-1].body[key] == value


@pytest.mark.parametrize("wire", WIRES)
def test_fields_that_ask_for_nothing_and_pictures_that_are_sent_along_are_fine(wire: str, tmp_path: Path) -> None:
    data = "data:image/png;base64,AAAA"
    pictures = {
        "chat": {"messages": user(image(data))},
        "responses": {"input": user({"type": "input_image", "image_url": data})},
        "messages": {"messages": user({"type": "image", "source": {"type": "base64", "data": "AAAA"}})},
    }
    nothing: Json = {"background": False, "store": False, "mcp_servers": [], "container": None, "conversation": None}
    with lab(tmp_path, [say("ok")], side=None) as here:
        answer = here.ask(wire, **pictures[wire], **nothing, metadata={"user_id": "me"}, service_tier="auto")
        [sent] = here.model.requests
    assert answer.status_code == 200
    assert not {"background", "mcp_servers", "container", "conversation", "metadata"} & set(sent.body)


def test_responses_are_not_kept_by_the_provider_unless_that_is_allowed(tmp_path: Path) -> None:
    with lab(tmp_path, [say("ok")], side=None) as here:
        here.ask("responses")
        assert here.model.requests[0].body["store"] is False
    with lab(tmp_path / "b", [say("ok")], side=None, allowed=["stored_responses"]) as here:
        here.ask("responses")
        assert "store" not in here.model.requests[0].body


def test_two_runs_never_share_a_cache_by_its_key(tmp_path: Path) -> None:
    keys = []
    for name in ("a", "b"):
        with lab(tmp_path / name, [say("ok")], side=None) as here:
            here.ask("responses", prompt_cache_key="everybody")
            here.ask("responses", prompt_cache_key="everybody")
            keys.append([sent.body["prompt_cache_key"] for sent in here.model.requests])
    assert keys[0][0] == keys[0][1] != keys[1][0] and "everybody" not in str(keys)


@pytest.mark.parametrize("header", ["anthropic-beta", "openai-beta"])
def test_beta_headers_are_not_passed_on_unless_they_are_allowed(header: str, tmp_path: Path) -> None:
    betas = "files-api-2025-04-14, context-1m-2025-08-07"
    with lab(tmp_path, [say("ok")], side=None, allowed=["context-1m-2025-08-07"]) as here:
        here.client.headers[header] = betas
        assert here.ask("messages").status_code == 200
        [sent] = here.model.requests
        [call] = here.calls()
    assert sent.headers[header] == "context-1m-2025-08-07"
    assert call.left_out == [f"{header}: files-api-2025-04-14"]


@pytest.mark.parametrize("wire", WIRES)
def test_words_about_an_address_in_a_call_of_a_tool_are_no_address_to_fetch(wire: str, tmp_path: Path) -> None:
    arguments = '{"url": "https://example.org/a.png", "type": "web_search"}'
    history: dict[str, Json] = {
        "chat": {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]}, {"role": "tool", "tool_call_id": "1", "content": "https://example.org"}]},
        "responses": {"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": arguments}, {"type": "function_call_output", "call_id": "1", "output": "https://example.org"}]},
        "messages": {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"url": "https://example.org", "type": "web_search"}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "https://example.org"}]}]},
    }  # fmt: skip
    with lab(tmp_path, [say("ok"), say("ok")], side=None) as here:
        assert here.ask(wire, **history[wire]).status_code == 200
