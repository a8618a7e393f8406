"""Gemini's own API: Google's client through the proxy, in front of a server that speaks the API from a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types

from bakeoff.workloads.tasks.proxy.http import WIRES
from bakeoff.workloads.tasks.proxy.powers import denied
from bakeoff.workloads.tasks.proxy.providers import Budget
from workloads.tasks.proxied import KEY, MODEL, Lab, lab

Json = dict[str, Any]
PATH = f"/v1beta/models/{MODEL}"


def says(*parts: Json, finish: str | None = "STOP") -> Json:
    used = {"promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": 10, "thoughtsTokenCount": 5}
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish, "index": 0}
    return {"candidates": [candidate], "usageMetadata": used, "responseId": "r1", "modelVersion": MODEL}


CALL = {"functionCall": {"name": "bash", "args": {"command": "ls"}}}
ANSWERS = [
    [says({"text": "I think.", "thought": True}, {"text": "I "}, finish=None), says({"text": "look."}, CALL)],
    [says({"text": "Done."})],
]


@contextmanager
def gemini(answers: list[list[Json]] | None = None) -> Iterator[tuple[str, list[tuple[str, dict[str, str], Json]]]]:
    """Its URL, and the requests that it got. The turn is found by counting the model's turns in a request."""
    asked: list[tuple[str, dict[str, str], Json]] = []
    script = answers or ANSWERS

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            turn = script[min(sum(c.get("role") == "model" for c in body.get("contents", [])), len(script) - 1)]
            if self.path.endswith(":countTokens"):
                kind, text = "application/json", json.dumps({"totalTokens": 31})
            elif "alt=sse" in self.path:
                kind, text = "text/event-stream", "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in turn)
            else:
                parts = [part for event in turn for part in event["candidates"][0]["content"]["parts"]]
                kind, text = "application/json", json.dumps(says(*parts))
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def client(here: Lab) -> genai.Client:
    """Google's own client, as an agent would use it."""
    return genai.Client(api_key=here.run.token, http_options=types.HttpOptions(base_url=here.proxy.url))


BASH = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="bash", description="Run it.", parameters_json_schema={"type": "object", "properties": {}}
        )
    ]
)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_googles_client_works_through_the_proxy_and_its_calls_are_recorded(stream: bool, tmp_path: Path) -> None:
    with gemini() as (url, asked), lab(tmp_path, [], provider={"base_url": url}) as here:
        config = types.GenerateContentConfig(
            system_instruction="Be quick.",
            tools=[BASH],
            max_output_tokens=2000,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        google = client(here)
        chat = google.chats.create(model=MODEL, config=config)

        def send(message: Any) -> str:
            if not stream:
                return chat.send_message(message).text or ""
            return "".join(chunk.text or "" for chunk in chat.send_message_stream(message))

        assert send("What is here?") == "I look."
        result = types.Part.from_function_response(name="bash", response={"output": "a.txt"})
        assert send(result) == "Done."
        count = google.models.count_tokens(model=MODEL, contents="How long is this?")
        calls, steps, totals = here.calls(), here.run.steps(), here.run.close()

    assert count.total_tokens == 31
    assert [path for path, _, _ in asked] == [
        *[f"{PATH}:streamGenerateContent?alt=sse" if stream else f"{PATH}:generateContent"] * 2,
        f"{PATH}:countTokens",
    ]
    assert {headers["x-goog-api-key"] for _, headers, _ in asked} == {KEY}
    assert here.run.token not in str(asked) and not {"model", "stream", "count"} & set(asked[0][2])
    assert [(call.wire, call.end) for call in calls] == [("gemini", "answered")] * 2 + [("gemini", "counted")]
    assert (totals.calls, totals.input_tokens, totals.cached_tokens, totals.output_tokens) == (2, 200, 80, 30)
    assert totals.cost == pytest.approx((120 * 1.0 + 80 * 0.1 + 30 * 2.0) / 1e6) and not totals.estimated

    first, second = steps  # one conversation, of which the second call records only what is new
    assert [step.agent for step in steps] == ["main", "main"]
    assert [message["role"] for message in first.messages] == ["system", "user", "assistant"]
    assert first.messages[-1]["reasoning_content"] == "I think." and first.messages[-1]["content"] == "I look."
    assert first.tool_calls[0]["name"] == "bash" and first.tool_calls[0]["arguments"] == {"command": "ls"}
    assert first.info["tools"][0]["function"]["name"] == "bash"
    assert [message["role"] for message in second.messages] == ["tool", "assistant"]
    assert second.messages[0]["tool_call_id"] == first.tool_calls[0]["id"]


def test_refusals_have_the_shape_that_googles_client_understands(tmp_path: Path) -> None:
    with gemini() as (url, asked), lab(tmp_path, [], provider={"base_url": url}, budget=Budget(calls=1)) as here:
        google = client(here)
        search = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
        with pytest.raises(errors.ClientError, match=r'allow_provider_tools = \["web_search"\]'):
            google.models.generate_content(model=MODEL, contents="hi", config=search)
        google.models.generate_content(model=MODEL, contents="hi")
        with pytest.raises(errors.ClientError, match="calls budget is used up"):
            google.models.generate_content(model=MODEL, contents="hi")
        assert len(asked) == 1
        assert [call.end for call in here.calls()] == ["denied", "answered", "budget"]


def test_the_token_may_be_in_the_query_and_a_stream_has_to_be_sse(tmp_path: Path) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generation_config": {"max_output_tokens": 9}}
    with gemini() as (url, asked), lab(tmp_path, [], provider={"base_url": url}, budget=Budget(tokens=10_000)) as here:
        path = f"{here.proxy.url}{PATH}:generateContent"
        assert httpx.post(f"{path}?key={here.run.token}", json=body).status_code == 200
        assert httpx.post(f"{path}?key=wrong", json=body).status_code == 401
        array = f"{here.proxy.url}{PATH}:streamGenerateContent?key={here.run.token}"
        assert httpx.post(array, json=body).status_code == 400
        listed = httpx.get(f"{here.proxy.url}/v1beta/models?key={here.run.token}").json()
    assert asked[0][2]["generationConfig"] == {"maxOutputTokens": 9} and "key" not in asked[0][0]
    assert listed["models"][0]["name"] == f"models/test/{MODEL}"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"tools": [{"googleSearch": {}}]}, "web_search"),
        ({"tools": [{"google_search_retrieval": {}}]}, "web_search"),
        ({"tools": [{"codeExecution": {}}]}, "code_execution"),
        ({"tools": [{"urlContext": {}}]}, "web_fetch"),
        ({"tools": [{"functionDeclarations": [], "fileSearch": {}}]}, "file_search"),
        ({"tools": [{"mcpServers": [{"name": "x"}]}]}, "mcp"),
        ({"tools": [{"computerUse": {}}]}, "computer"),
        ({"cachedContent": "cachedContents/1"}, "stored_responses"),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "https://example.org/a.pdf"}}]}]}, "remote_urls"),
        ({"contents": [{"parts": [{"file_data": {"file_uri": "gs://bucket/a"}}]}]}, "remote_urls"),
        (
            {"contents": [{"parts": [{"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1/files/a"}}]}]},
            "files",
        ),
        ({"contents": [{"parts": [{"functionResponse": {"parts": [{"fileData": {"fileUri": "http://x"}}]}}]}]}, "remote_urls"),
        ({"contents": [{"parts": [{"hologram": 1}]}]}, "hologram"),
        # Google's server takes a single object for a list.
        ({"contents": [{"parts": {"fileData": {"fileUri": "https://example.org/a.pdf"}}}]}, "remote_urls"),
        ({"systemInstruction": {"parts": {"fileData": {"fileUri": "files/a"}}}}, "files"),
        ({"tools": {"googleSearch": {}}}, "web_search"),
        ({"generateContentRequest": {"tools": [{"googleSearch": {}}]}}, "web_search"),
    ],
)  # fmt: skip
def test_what_gemini_would_do_itself_is_denied(asked: Json, name: str) -> None:
    body = WIRES["gemini"].arrived(asked, {"model": MODEL, "stream": False})
    assert denied("gemini", body) == [name] and denied("gemini", body, [name]) == []
