"""What one run's clients can take of this machine: memory, connections, disk. A limit that is met is noted in the run."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bakeoff.workloads.tasks.proxy.server import GatewayLimits
from support.processes import eventually
from workloads.tasks.proxied import PATHS, WIRES, Lab, error_of, lab, request
from workloads.tasks.scripted import say

MB = 1 << 20


def peak_mb() -> float:
    """The most memory that this process has had since `reset_peak`."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def reset_peak() -> float:
    """Begin a new measurement (proc(5), clear_refs); returns where it begins."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def connect(here: Lab) -> socket.socket:
    assert here.proxy.port is not None
    return socket.create_connection(("127.0.0.1", here.proxy.port), timeout=120)


def answer_of(client: socket.socket) -> bytes:
    answer = b""
    try:
        while piece := client.recv(65536):
            answer += piece
    except ConnectionError:
        pass
    return answer


def upload(here: Lab, token: str, announced: int, sent: int) -> bytes:
    """Announce a body, send this much of it, and return what comes back."""
    head = f"POST {PATHS['chat']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {announced}\r\n\r\n"
    piece = bytes(MB)
    with connect(here) as client:
        try:
            client.sendall(head.encode())
            for _ in range(sent // MB):
                client.sendall(piece)
        except OSError:
            pass
        return answer_of(client)


@pytest.mark.slow
def test_uploads_with_a_wrong_token_take_no_memory(tmp_path: Path) -> None:
    with lab(tmp_path, [say("ok")]) as here:
        assert here.ask().status_code == 200  # everything is loaded
        before = reset_peak()
        threads = [threading.Thread(target=upload, args=(here, "sk-wrong", 60 * MB, 60 * MB)) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        grown = peak_mb() - before
        assert here.ask().status_code == 200
    assert grown < 60


def test_a_wrong_token_is_refused_before_the_body_comes(tmp_path: Path) -> None:
    with lab(tmp_path, [say("ok")]) as here:
        assert upload(here, "sk-wrong", 60 * MB, 0).startswith(b"HTTP/1.1 401")
        assert upload(here, "sk-wrong", 2 * MB, MB).startswith(b"HTTP/1.1 401")


@pytest.mark.slow
def test_bodies_that_are_sent_at_the_same_time_share_one_limit(tmp_path: Path) -> None:
    limits = GatewayLimits(body=8 * MB, memory=16 * MB)
    with lab(tmp_path, [say("ok")], limits=limits) as here:
        assert here.ask().status_code == 200
        before = reset_peak()
        clients = [connect(here) for _ in range(20)]
        head = f"POST {PATHS['chat']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {here.run.token}\r\n"
        refused = 0
        for client in clients:  # each leaves its body open
            try:
                client.sendall(f"{head}content-length: {8 * MB}\r\n\r\n".encode() + bytes(7 * MB))
            except OSError:
                refused += 1
        eventually(lambda: "memory" in here.run.totals().limits_met, "the limit is noted")
        grown = peak_mb() - before
        for client in clients:
            client.close()
        eventually(lambda: here.ask().status_code == 200, "the others are served again")
    assert grown < 120


@pytest.mark.parametrize("wire", WIRES)
def test_deep_and_long_requests_are_refused_and_recorded(wire: str, tmp_path: Path) -> None:
    key = "input" if wire == "responses" else "messages"
    deep = json.dumps(request(wire, "hi") | {key: [{"role": "user", "content": "DEEP"}]})
    deep = deep.replace('"DEEP"', '[{"content": ' * 450 + '"x"' + "}]" * 450)
    long = json.dumps(request(wire, "hi") | {key: [{"role": "user", "content": "x"}] * 160_000})
    with lab(tmp_path, [say("ok")], side=None) as here:
        answers = [here.client.post(PATHS[wire], content=body) for body in (deep, long)]
        assert here.ask(wire).status_code == 200
        calls, asked, met = here.calls(), here.model.requests, here.run.totals().limits_met
    assert [answer.status_code for answer in answers] == [413, 413] and len(asked) == 1
    assert [(call.end, call.status) for call in calls] == [("client", 413), ("client", 413), ("answered", 200)]
    assert "nested more than 128 deep" in str(calls[0].error) and "20000 elements" in str(calls[1].error)
    assert {"depth", "elements"} <= set(met)


def test_a_body_with_too_many_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    with lab(tmp_path, [say("ok")]) as here:
        assert here.ask().status_code == 200
        before = reset_peak()
        body = b'{"model": "m", "messages": [' + b"[]," * (8 * MB) + b"[]]}"
        answer = here.client.post(PATHS["chat"], content=body)
        grown = peak_mb() - before
        totals = here.run.totals()
    assert answer.status_code == 413 and "values" in error_of(answer)["message"]
    assert grown < 150
    assert "values" in totals.limits_met


def test_too_many_connections_are_noted_in_the_run(tmp_path: Path) -> None:
    with lab(tmp_path, [say("ok")], limits=GatewayLimits(connections=10)) as here:
        assert here.ask().status_code == 200
        crowd = [connect(here) for _ in range(20)]
        eventually(lambda: "connections" in here.run.totals().limits_met, "the limit is noted")
        assert here.ask().status_code == 200  # on the connection that it has
        for client in crowd:
            client.close()


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_that_has_recorded_too_much_is_refused_and_writes_no_more(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("ok")], limits=GatewayLimits(record=200_000)) as here:
        for number in range(6):
            here.ask(wire, f"{number}" * 50_000)
        size = here.run.record.stat().st_size
        answers = [here.ask(wire, f"{number}" * 50_000) for number in range(5)]
        after = here.run.record.stat().st_size
        totals = here.run.close()
    assert {answer.status_code for answer in answers} <= {429, 403, 401}
    assert "record" in answers[-1].text
    assert after - size < 5000 and after < 300_000
    assert totals.limit == "record" and "record" in totals.limits_met


def test_a_run_within_its_limits_has_no_note(tmp_path: Path) -> None:
    with lab(tmp_path, [say("ok")]) as here:
        assert here.ask().status_code == 200
        assert here.run.close().limits_met == ()


@contextmanager
def provider(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A provider that does what it likes; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.close_connection = True
            try:
                answer(self)
            except OSError:
                pass  # the proxy has hung up

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def head_of(handler: BaseHTTPRequestHandler, **headers: str) -> None:
    handler.send_response(200)
    for name, value in {"connection": "close", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def bomb(handler: BaseHTTPRequestHandler) -> None:
    """100 MB of JSON in 400 kB, although nobody asked for compression."""
    packed = gzip.compress(b'{"choices": [{"message": {"content": "' + b"x" * (100 * MB) + b'"}}]}', 1)
    head_of(handler, content_type="application/json", content_encoding="gzip", content_length=str(len(packed)))
    handler.wfile.write(packed)


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A stream of events that never ends."""
    head_of(handler, content_type="text/event-stream")
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "' + b"x" * 20_000 + b'"}}]}\n\n'
    while True:
        handler.wfile.write(event * 20)


def one_line(handler: BaseHTTPRequestHandler) -> None:
    """A stream whose first event never ends."""
    head_of(handler, content_type="text/event-stream")
    while True:
        handler.wfile.write(b"x" * MB)


def whole(handler: BaseHTTPRequestHandler) -> None:
    """A JSON body without end."""
    head_of(handler, content_type="application/json")
    while True:
        handler.wfile.write(b" " * MB)


@pytest.mark.slow
@pytest.mark.parametrize("answer", [bomb, endless, one_line, whole], ids=lambda answer: answer.__name__)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_without_end_is_cut_off(
    answer: Callable[[BaseHTTPRequestHandler], None], stream: bool, tmp_path: Path
) -> None:
    limits = GatewayLimits(answer=4 * MB)
    with provider(answer) as url, lab(tmp_path, [say("ok")], limits=limits, provider={"base_url": url}) as here:
        body = json.dumps(request("chat", "hi", stream=stream)).encode()
        before = reset_peak() if answer is not bomb else 0.0
        head = f"POST {PATHS['chat']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {here.run.token}\r\n"
        with connect(here) as client:
            client.sendall(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            answer_of(client)
        [call] = eventually(here.calls, "the call is recorded")
        grown = peak_mb() - before
        totals = here.run.close()
    assert call.end == "upstream" and "longer than" in str(call.error)
    assert "answer" in totals.limits_met
    assert answer is bomb or grown < 100


@pytest.mark.slow
def test_an_answer_that_is_compressed_is_still_read(tmp_path: Path) -> None:
    def compressed(handler: BaseHTTPRequestHandler) -> None:
        message = {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]
        }
        packed = gzip.compress(json.dumps(message).encode())
        head_of(handler, content_type="application/json", content_encoding="gzip", content_length=str(len(packed)))
        handler.wfile.write(packed)

    with provider(compressed) as url, lab(tmp_path, [], provider={"base_url": url}) as here:
        assert here.ask().json()["choices"][0]["message"]["content"] == "hello"
