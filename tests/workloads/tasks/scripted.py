"""A model server on loopback that follows a script, in all three wire APIs, with and without streaming.

    with ScriptedModel([shell("echo hi > out.txt"), say("Done.")]) as model:
        ...  base URL: model.url + "/v1"; what it was asked: model.requests

The turn is found by counting the assistant's turns in the request, so one server serves any number of clients at
once. `shell(...)` becomes a call of whatever shell tool the client offers. A request without a shell tool (a title,
a summary) is answered with `side` and does not use up the script, unless `side` is None.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]
SHELLS = {"exec_command": "cmd", "shell": "command", "shell_command": "command", "Bash": "command", "bash": "command"}


@dataclass(frozen=True)
class Use:
    input: int = 100
    cached: int = 0
    output: int = 10
    reasoning: int = 0


@dataclass(frozen=True)
class Turn:
    """One turn of the model. `commands` are shell commands; `tools` are calls as (name, arguments)."""

    text: str = ""
    commands: tuple[str, ...] = ()
    tools: tuple[tuple[str, Any], ...] = ()
    """Arguments that are text are sent unchanged, so that a call can be malformed."""
    use: Use | None = Use()
    pause_s: float = 0.0
    """Before each piece of a stream."""
    permits: threading.Semaphore | None = None
    """Each piece of a stream waits for one."""
    wait_s: float = 0.0
    """Before the answer begins."""
    linger_s: float = 0.0
    """Between the last event of a stream and its end."""
    cut: bool = False
    """The stream ends in the middle."""
    logprobs: tuple[float, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Failure:
    """What the next request gets instead of an answer."""

    status: int
    body: Json = field(default_factory=lambda: {"error": {"message": "scripted failure", "type": "server_error"}})
    headers: Mapping[str, str] = field(default_factory=dict)


def shell(*commands: str, text: str = "", **more: Any) -> Turn:
    return Turn(text=text, commands=commands, **more)


def say(text: str, **more: Any) -> Turn:
    return Turn(text=text, **more)


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: Json


TITLE = Turn(text="A title")
"""What clients ask for beside the work."""


class ScriptedModel:
    """`scripts` chooses other turns for requests that contain a word: {"word": [turn, ...]}."""

    def __init__(
        self,
        turns: Sequence[Turn],
        *,
        scripts: Mapping[str, Sequence[Turn]] | None = None,
        failures: Sequence[Failure] = (),
        side: Turn | None = TITLE,
    ) -> None:
        self.turns, self.scripts, self.failures, self.side = list(turns), dict(scripts or {}), list(failures), side
        self.requests: list[Request] = []
        self.judge: Callable[[Json], Failure | None] = lambda body: None
        """Called with each request before it is answered; a failure is sent instead of the answer."""
        self._ids = count(1)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_failure(self, request: Request) -> Failure | None:
        with self._lock:
            self.requests.append(request)
            return self.failures.pop(0) if self.failures else self.judge(request.body)

    def id(self, kind: str) -> str:
        with self._lock:
            return f"{kind}_{next(self._ids):04d}"

    def turn(self, body: Json, spoken: int, tools: Mapping[str, Json]) -> tuple[Turn, list[tuple[str, str, str]]]:
        """The turn, and its tool calls as (id, name, arguments as text)."""
        named = next((name for name in SHELLS if name in tools), None)
        turns = next((turns for word, turns in self.scripts.items() if word in json.dumps(body)), self.turns)
        if named is None and self.side is not None:
            turn = self.side
        else:
            turn = turns[min(spoken, len(turns) - 1)]
        calls = [(named or "bash", _arguments(command, named, tools)) for command in turn.commands] + list(turn.tools)
        return turn, [(self.id("call"), name, a if isinstance(a, str) else json.dumps(a)) for name, a in calls]


def _arguments(command: str, shell: str | None, tools: Mapping[str, Json]) -> Json:
    """What the shell tool wants; clients differ in which other arguments they require."""
    key = SHELLS[shell or "bash"]
    schema = tools.get(shell or "", {})
    listed = schema.get("properties", {}).get(key, {}).get("type") == "array"
    more = {name: "a scripted command" for name in schema.get("required", ()) if name not in (key, "timeout")}
    return {key: ["bash", "-lc", command] if listed else command, **more}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._json(200, {"object": "list", "data": []})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            failure = model.next_failure(Request(self.path, headers, body))
            if failure is not None:
                self._json(failure.status, failure.body, failure.headers)
                return
            speak = APIS.get(self.path.rpartition("/v1/")[2])
            if speak is None:
                self._json(404, {"error": {"message": f"no {self.path}"}})
                return
            turn, whole, events = speak(model, body)
            time.sleep(turn.wait_s)
            if body.get("stream"):
                self._stream(turn, events)
            else:
                self._json(200, whole)

        def _json(self, status: int, body: Json, headers: Mapping[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**(headers or {}), "content-type": "application/json"}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, turn: Turn, events: Iterator[bytes]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            pieces = list(events)
            for piece in pieces[: len(pieces) // 2] if turn.cut else pieces:
                time.sleep(turn.pause_s)
                if turn.permits is not None:
                    turn.permits.acquire()
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
            time.sleep(turn.linger_s)
            if turn.cut:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

    return Handler


Spoken = tuple[Turn, Json, Iterator[bytes]]


def _event(data: Json | str, name: str | None = None) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def _words(text: str) -> list[str]:
    """Text in pieces, as a model would stream it."""
    parts = text.split(" ")
    pieces = [f"{part} " for part in parts[:-1]] + parts[-1:]
    return [piece for piece in pieces if piece]


def _chat(model: ScriptedModel, body: Json) -> Spoken:
    functions = [tool["function"] for tool in body.get("tools") or [] if "function" in tool]
    tools = {function["name"]: function.get("parameters", {}) for function in functions}
    spoken = sum(message.get("role") == "assistant" for message in body["messages"])
    turn, calls = model.turn(body, spoken, tools)
    listed = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    message: Json = {"role": "assistant", "content": turn.text or None, **({"tool_calls": listed} if listed else {})}
    finish = "tool_calls" if listed else "stop"
    used = turn.use and {
        "prompt_tokens": turn.use.input,
        "completion_tokens": turn.use.output,
        "total_tokens": turn.use.input + turn.use.output,
        "prompt_tokens_details": {"cached_tokens": turn.use.cached},
        "completion_tokens_details": {"reasoning_tokens": turn.use.reasoning},
    }
    base = {"id": model.id("chatcmpl"), "object": "chat.completion", "created": 1, "model": body["model"]}
    logprobs = {"content": [{"token": "x", "logprob": p, "bytes": None, "top_logprobs": []} for p in turn.logprobs]}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    choice |= {"logprobs": logprobs} if turn.logprobs else {}
    choice |= {"token_ids": list(turn.token_ids)} if turn.token_ids else {}

    def events() -> Iterator[bytes]:
        def chunk(delta: Json, **more: Any) -> bytes:
            choices = [{"index": 0, "delta": delta, "finish_reason": None, **more}]
            return _event({**base, "object": "chat.completion.chunk", "choices": choices})

        yield chunk({"role": "assistant", "content": ""})
        for word in _words(turn.text):
            yield chunk({"content": word})
        for index, (id, name, arguments) in enumerate(calls):
            first = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            yield chunk({"tool_calls": [first]})
            for part in (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        more = {"logprobs": logprobs} if turn.logprobs else {}
        yield chunk({}, finish_reason=finish, **more, **({"token_ids": list(turn.token_ids)} if turn.token_ids else {}))
        if used and (body.get("stream_options") or {}).get("include_usage"):
            yield _event({**base, "object": "chat.completion.chunk", "choices": [], "usage": used})
        yield _event("[DONE]")

    return turn, {**base, "choices": [choice], **({"usage": used} if used else {})}, events()


def _responses(model: ScriptedModel, body: Json) -> Spoken:
    tools = {tool["name"]: tool.get("parameters", {}) for tool in body.get("tools") or [] if "name" in tool}
    turn, calls = model.turn(body, _spoken_items(body["input"]), tools)
    output: list[Json] = []
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        output.append(
            {"type": "message", "id": model.id("msg"), "role": "assistant", "status": "completed", "content": [part]}
        )
    for id, name, arguments in calls:
        output.append(
            {"type": "function_call", "id": model.id("fc"), "call_id": id, "name": name, "arguments": arguments}
        )
    used = turn.use and {
        "input_tokens": turn.use.input,
        "input_tokens_details": {"cached_tokens": turn.use.cached},
        "output_tokens": turn.use.output,
        "output_tokens_details": {"reasoning_tokens": turn.use.reasoning},
        "total_tokens": turn.use.input + turn.use.output,
    }
    base: Json = {"id": model.id("resp"), "object": "response", "created_at": 1, "model": body["model"]}
    whole = {**base, "status": "completed", "output": output, "usage": used}

    def events() -> Iterator[bytes]:
        def named(kind: str, **data: Any) -> bytes:
            return _event({"type": kind, **data}, kind)

        yield named("response.created", response={**base, "status": "in_progress", "output": []})
        for index, item in enumerate(output):
            yield named("response.output_item.added", output_index=index, item={**item, "status": "in_progress"})
            if item["type"] == "message":
                for word in _words(turn.text):
                    where = {"output_index": index, "content_index": 0, "item_id": item["id"]}
                    yield named("response.output_text.delta", delta=word, **where)
            yield named("response.output_item.done", output_index=index, item=item)
        yield named("response.completed", response=whole)

    return turn, whole, events()


def _spoken_items(items: Any) -> int:
    """Turns of the assistant: items of its own that follow each other are one turn."""
    spoken, before = 0, False
    for item in items if isinstance(items, list) else []:
        own = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning", "custom_tool_call")
        spoken += own and not before
        before = own
    return spoken


def _messages(model: ScriptedModel, body: Json) -> Spoken:
    tools = {tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools") or [] if "name" in tool}
    turn, calls = model.turn(body, sum(message["role"] == "assistant" for message in body["messages"]), tools)
    content: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
    content += [{"type": "tool_use", "id": id, "name": name, "input": json.loads(a)} for id, name, a in calls]
    use = turn.use or Use(0, 0, 0)
    used = {
        "input_tokens": use.input - use.cached,
        "cache_read_input_tokens": use.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": use.output,
    }
    base: Json = {"id": model.id("msg"), "type": "message", "role": "assistant", "model": body["model"]}
    stop = "tool_use" if calls else "end_turn"
    whole = {**base, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": used}

    def events() -> Iterator[bytes]:
        def named(kind: str, **data: Any) -> bytes:
            return _event({"type": kind, **data}, kind)

        begun = {**base, "content": [], "stop_reason": None, "usage": {**used, "output_tokens": min(1, use.output)}}
        yield named("message_start", message=begun)
        for index, block in enumerate(content):
            yield from _block(named, index, block)
        yield named(
            "message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": use.output}
        )
        yield named("message_stop")

    return turn, whole, events()


def _block(named: Callable[..., bytes], index: int, block: Json) -> Iterator[bytes]:
    if block["type"] == "text":
        yield named("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for word in _words(block["text"]):
            yield named("content_block_delta", index=index, delta={"type": "text_delta", "text": word})
    else:
        yield named("content_block_start", index=index, content_block={**block, "input": {}})
        arguments = json.dumps(block["input"])
        for part in (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]):
            delta = {"type": "input_json_delta", "partial_json": part}
            yield named("content_block_delta", index=index, delta=delta)
    yield named("content_block_stop", index=index)


APIS: dict[str, Callable[[ScriptedModel, Json], Spoken]] = {
    "chat/completions": _chat,
    "responses": _responses,
    "messages": _messages,
}
