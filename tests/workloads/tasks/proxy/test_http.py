"""Clients that nobody should trust: the proxy answers them or closes their connection, and goes on serving others."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from bakeoff.workloads.tasks.proxy.server import GatewayLimits
from support.processes import eventually
from workloads.tasks.proxied import PATHS, WIRES, Lab, headers, lab, request
from workloads.tasks.scripted import say

STRICT = GatewayLimits(header=8 << 10, body=1 << 20, header_s=1.0, body_s=1.0, idle_s=1.0, write_s=1.0, connections=40)


@contextmanager
def strict_lab(folder: Path) -> Iterator[Lab]:
    """With limits that a test can reach; afterwards the proxy must still serve."""
    with lab(folder, [say("still here")], limits=STRICT) as here:
        yield here
        with here.proxy.open(here.providers, "test-model", record=folder / "after.jsonl") as after:
            answer = httpx.post(here.proxy.url + PATHS["chat"], json=request("chat", "hi"), headers=headers(after))
        assert answer.json()["choices"][0]["message"]["content"] == "still here"


def spoken(here: Lab, data: bytes, then: Callable[[socket.socket], None] | None = None) -> bytes:
    """What comes back for these bytes until the proxy hangs up."""
    assert here.proxy.port is not None
    with socket.create_connection(("127.0.0.1", here.proxy.port), timeout=20) as client:
        client.sendall(data)
        if then is not None:
            then(client)
        answer = b""
        try:
            while piece := client.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        return answer


def head(here: Lab, *lines: str, path: str = PATHS["chat"]) -> bytes:
    fixed = [
        f"POST {path} HTTP/1.1",
        "host: x",
        f"authorization: Bearer {here.run.token}",
        "content-type: application/json",
    ]
    return ("\r\n".join([*fixed, *lines]) + "\r\n\r\n").encode()


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"model": 1, "messages": []}',
        b'{"model": "m", "messages": 3, "input": 3, "system": 3}',
        b'{"model": "m", "messages": [1, 2], "input": [1, 2]}',
        b'{"model": "m", "tools": "all"}',
        b"[" * 200_000,
        b'{"a":' * 100_000,
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_is_not_a_request_is_refused_in_the_shape_of_its_api(
    wire: str, body: bytes, tmp_path: Path
) -> None:
    with strict_lab(tmp_path) as here:
        answer = here.client.post(PATHS[wire], content=body)
        asked = len(here.model.requests)
        [call] = here.calls()
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert asked == 0
    assert (call.end, call.status) == ("client", 400)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/../../etc/passwd", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 404),
        ("HEAD", "/", 200),
        ("GET", "/v1/models", 200),
    ],
)
def test_other_paths_and_methods_have_an_answer(method: str, path: str, status: int, tmp_path: Path) -> None:
    with strict_lab(tmp_path) as here:
        assert here.client.request(method, path).status_code == status


def test_a_huge_body_is_not_read(tmp_path: Path) -> None:
    with strict_lab(tmp_path) as here:
        announced = spoken(here, head(here, "content-length: 99999999999"))
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"

        def pour(client: socket.socket) -> None:
            try:
                for _ in range(1000):
                    client.sendall(chunk)
            except OSError:
                pass

        poured = spoken(here, head(here, "transfer-encoding: chunked"), pour)
    assert announced.startswith(b"HTTP/1.1 413")
    assert poured == b"" or poured.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00 this is TLS", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 20_000, b"431"),
    ],
)
def test_what_is_not_http_is_refused(data: bytes, status: bytes, tmp_path: Path) -> None:
    with strict_lab(tmp_path) as here:
        assert spoken(here, data).startswith(b"HTTP/1.1 " + status)


def test_a_compressed_body_is_refused(tmp_path: Path) -> None:
    with strict_lab(tmp_path) as here:
        assert here.client.post(PATHS["chat"], content=b"x", headers={"content-encoding": "gzip"}).status_code == 415


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["header", "body"])
def test_a_slow_client_is_disconnected(begin: str, tmp_path: Path) -> None:
    with strict_lab(tmp_path) as here:
        data = b"POST / HTTP/1.1\r\nhost:" if begin == "header" else head(here, "content-length: 100")

        def drip(client: socket.socket) -> None:
            try:
                while True:
                    client.sendall(b"a")
                    time.sleep(0.1)
            except OSError:
                pass  # hung up on

        answer = spoken(here, data, drip)
    assert answer == b"" if begin == "header" else answer.startswith(b"HTTP/1.1 408")


@pytest.mark.slow
def test_a_crowd_of_silent_clients_does_not_keep_others_out_for_long(tmp_path: Path) -> None:
    with strict_lab(tmp_path) as here:
        assert here.proxy.port is not None
        crowd = [socket.create_connection(("127.0.0.1", here.proxy.port)) for _ in range(60)]
        for client in crowd:
            client.settimeout(20)
            assert client.recv(1) == b""  # those over the limit at once, the others when they have been idle
            client.close()


@pytest.mark.slow
def test_a_client_may_send_the_next_request_early_and_ask_before_it_sends(tmp_path: Path) -> None:
    with strict_lab(tmp_path) as here:
        body = json.dumps(request("chat", "hi")).encode()
        one = head(here, f"content-length: {len(body)}") + body
        both = spoken(here, one + one)
        asked = spoken(
            here, head(here, f"content-length: {len(body)}", "expect: 100-continue"), lambda c: c.sendall(body)
        )
    assert both.count(b"HTTP/1.1 200") == 2
    assert asked.startswith(b"HTTP/1.1 100") and b"HTTP/1.1 200" in asked


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answer_is_dropped(tmp_path: Path) -> None:
    much = ("x" * 99_999 + " ") * 200  # far more than the buffers of two sockets
    with lab(tmp_path, [say(much)], limits=STRICT) as here:
        assert here.proxy.port is not None
        body = json.dumps(request("chat", "hi", stream=True)).encode()
        with socket.create_connection(("127.0.0.1", here.proxy.port)) as client:
            client.sendall(head(here, f"content-length: {len(body)}") + body)
            [call] = eventually(here.calls, "it is recorded while the client is still connected", 60)
    assert (call.end, call.error) == ("client", "the client hung up")


def test_a_body_that_breaks_the_protocol_is_refused(tmp_path: Path) -> None:
    with strict_lab(tmp_path) as here:
        answer = spoken(here, head(here, "transfer-encoding: chunked") + b"5\r\nhello\r\nzz\r\n")
        recorded = here.calls()
    assert answer.startswith(b"HTTP/1.1 400") and b"not a valid HTTP request" in answer
    assert recorded == []
