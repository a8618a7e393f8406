"""A chat completions server that answers from a script, over real HTTP, and keeps the requests that it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ScriptedModel:
    """`answers` are bodies, (status, body), (status, body, headers), or functions of the request; the last is repeated."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.released = threading.Event()
        """Set when the server stops: an answer that waits for it never comes in time."""

    def answer(self, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        self.asked.append(body)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            answer = answer(body)
        status, content, *headers = answer if isinstance(answer, tuple) else (200, answer)
        written = content if isinstance(content, bytes | Iterator) else json.dumps(content).encode()
        return status, written, dict(*headers)

    def never(self, body: dict[str, Any]) -> Any:
        """An answer that does not come."""
        self.released.wait(60)
        return says("too late")

    def drips(self, body: dict[str, Any]) -> Any:
        """An answer that never ends: a space every 20 ms."""
        return 200, iter(lambda: b" " if not self.released.wait(0.02) else b"", b""), {"content-length": "1000000"}


def says(text: str, **choice: Any) -> dict[str, Any]:
    """A completion without tool calls."""
    return completion({"role": "assistant", "content": text}, **choice)


def calls(*tools: tuple[str, Any], **choice: Any) -> dict[str, Any]:
    """A completion that calls tools; arguments that are not text are written as JSON."""
    made = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(tools)
    ]
    return completion({"role": "assistant", "content": None, "tool_calls": made}, **choice)


def completion(message: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "scripted-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message, **choice}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107},
    }


@contextmanager
def scripted(*answers: Any) -> Iterator[ScriptedModel]:
    model = ScriptedModel(*answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, content, headers = model.answer({"path": self.path, **body})
            pieces = [content] if isinstance(content, bytes) else content
            plain = {"content-type": "application/json"}
            if isinstance(content, bytes):
                plain["content-length"] = str(len(content))
            try:
                self.send_response(status)
                for name, value in {**plain, **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(piece)
            except ConnectionError:
                pass  # the client has left

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield model
    finally:
        model.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
