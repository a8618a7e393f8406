"""A port inside a box without network leads to a unix socket outside, and nowhere else."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.sandbox import bridge, cgroups
from bakeoff.sandbox.base import BoxSpec, Limits
from bakeoff.sandbox.bubblewrap import Bubblewrap
from support.processes import eventually

CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10) as s:
    s.sendall(sys.argv[2].encode() * int(sys.argv[3])); s.shutdown(socket.SHUT_WR)
    got = b""
    while piece := s.recv(65536): got += piece
print(len(got), got[:20].decode())
"""


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Path]:
    """A server on a unix socket that sends back what it gets, in capitals, when it has all of it."""
    path = tmp_path / ("a-directory-with-a-long-name-" * 6) / "socket"
    path.parent.mkdir()
    short = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(short))
        short.rename(path)
        server.listen()
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield path
        server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            got = b""
            while piece := client.recv(65536):
                got += piece
            client.sendall(got.upper())


def ask(sandbox: Bubblewrap, path: Path, port: int, word: str, times: int) -> str:
    with sandbox.open(BoxSpec(sockets={8099: path})) as box:
        result = box.run(["/usr/bin/python3", "-c", CLIENT, str(port), word, str(times)], timeout=30)
        return (result.stdout + result.stderr).decode()


def test_bytes_go_both_ways_until_either_side_is_done(sandbox: Bubblewrap, echo: Path) -> None:
    assert ask(sandbox, echo, 8099, "word ", 1) == "5 WORD \n"
    assert ask(sandbox, echo, 8099, "many words", 100_000) == "1000000 MANY WORDSMANY WORDS\n"


def test_many_connections_at_once(sandbox: Bubblewrap, echo: Path) -> None:
    script = 'for i in 1 2 3 4 5 6 7 8; do /usr/bin/python3 -c "$0" 8099 w$i 1 & done; wait'
    with sandbox.open(BoxSpec(sockets={8099: echo})) as box:
        result = box.run(["/bin/sh", "-c", script, CLIENT], timeout=60)
    assert sorted(result.stdout.decode().split()[1::2]) == [f"W{number}" for number in range(1, 9)]


def test_the_bridge_serves_every_command_of_a_box(sandbox: Bubblewrap, echo: Path) -> None:
    with sandbox.open(BoxSpec(sockets={8099: echo})) as box:
        for word in ("one", "two"):
            result = box.run(["/usr/bin/python3", "-c", CLIENT, "8099", word, "1"], timeout=30)
            assert result.stdout.decode() == f"3 {word.upper()}\n"
        assert b"bridge" not in box.run(["/bin/sh", "-c", "cat /proc/[0-9]*/cmdline"]).stdout


def test_other_ports_lead_nowhere(sandbox: Bubblewrap, echo: Path) -> None:
    assert "Connection refused" in ask(sandbox, echo, 8100, "x", 1)


def test_a_server_that_is_gone_is_a_closed_connection(sandbox: Bubblewrap, tmp_path: Path) -> None:
    with sandbox.open(BoxSpec(sockets={8099: tmp_path / "nobody"})) as box:
        result = box.run(["/usr/bin/python3", "-c", CLIENT, "8099", "x", "1"], timeout=10)
    assert not result.timed_out
    assert result.stdout in (b"0 \n", b"")


def test_a_box_that_opens_many_connections_takes_few_threads_and_others_get_their_turn(echo: Path) -> None:
    """The bridge is in this process here, where its threads can be counted."""
    listener = bridge.listen(0)
    address = listener.getsockname()
    before = threading.active_count()
    bridge.serve({listener: str(echo)})
    clients = [socket.create_connection(address, timeout=30) for _ in range(bridge.CONNECTIONS + 100)]
    try:
        last = clients.pop()
        eventually(lambda: threading.active_count() >= before + bridge.CONNECTIONS, "the bridge is full")
        most = threading.active_count()
        for client in clients:
            client.close()
        last.sendall(b"still served")
        last.shutdown(socket.SHUT_WR)
        assert last.recv(100) == b"STILL SERVED"
    finally:
        last.close()
        listener.shutdown(socket.SHUT_RDWR)
    assert most <= before + 1 + 2 * bridge.CONNECTIONS
    eventually(lambda: threading.active_count() <= before, "all threads have ended")


MANY = """
import socket, time
held = []
for _ in range(60):
    s = socket.create_connection(("127.0.0.1", 8099), timeout=10)
    s.sendall(b"x")
    held.append(s)
print("held", flush=True)
time.sleep(30)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups need root here")
def test_connections_of_a_box_are_counted_in_its_own_cgroup(sandbox: Bubblewrap, tmp_path: Path) -> None:
    """Sixty connections are 120 threads, which the box has, and no more than its limit allows."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(100)
        with sandbox.open(BoxSpec(sockets={8099: path}, limits=Limits(pids=60))) as box:
            group = box._groups.paths.get("pids")
            if group is None:
                pytest.skip("there is no pids controller")
            thread = threading.Thread(target=lambda: box.run(["/usr/bin/python3", "-c", MANY], timeout=40), daemon=True)
            thread.start()
            most = 60 + cgroups.OWN_PIDS + cgroups.BRIDGE_PIDS
            eventually(lambda: int((group / "pids.current").read_text()) >= most - 2)
            assert int((group / "pids.current").read_text()) <= most
            box.end_processes()
            thread.join()
            for _ in range(3):
                assert box.run(["echo", "still here"]).stdout == b"still here\n"
