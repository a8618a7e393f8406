"""No sandbox: it has to be accepted, and then there is a directory, a time limit and nothing left behind."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.engine import processes
from bakeoff.errors import UsageError
from bakeoff.sandbox.base import BoxSpec, Image, Limits, Mount, choose
from bakeoff.sandbox.none import HostBox, NoSandbox


@pytest.fixture
def box(tmp_path: Path) -> Iterator[HostBox]:
    (tmp_path / "given").write_text("given")
    spec = BoxSpec(
        workdir="/app",
        env={"A": "1"},
        limits=Limits(memory_mb=200),
        mounts=(Mount(tmp_path / "given", "/data/given"),),
    )
    with NoSandbox(accepted=True).open(spec) as box:
        yield box


def test_it_must_be_accepted_and_refuses_what_needs_isolation(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="isolates nothing"):
        choose("none").open(BoxSpec())
    accepted = choose("none", accepted=True)
    for spec in (BoxSpec(image=Image.root(tmp_path)), BoxSpec(user="agent"), BoxSpec(keep_layer=True)):
        with pytest.raises(UsageError, match="sandbox 'none'"):
            accepted.open(spec)
    with pytest.raises(UsageError, match="builds no images"):
        accepted.build(tmp_path)


def test_commands_run_in_a_directory_of_their_own(
    box: HostBox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A_SECRET", "the key")
    box.write("/app/file", b"content")
    result = box.run(["sh", "-c", "pwd; cat file ../data/given; echo $A $B $A_SECRET; exit 3"], env={"B": "2"})
    assert result.code == 3
    assert result.stdout.decode() == f"{box.root}/app\ncontentgiven1 2\n"
    box.put(tmp_path, "/tree")
    box.get("/tree", tmp_path / "back")
    assert (tmp_path / "back/given").read_text() == box.read("/tree/given").decode() == "given"
    assert box.run(["no-such-program"]).code == 127
    assert box.run(["sh", "-c", "kill -TERM $$"]).code == 143


@pytest.mark.slow
def test_time_and_memory_are_watched_and_daemons_ended(box: HostBox) -> None:
    late = box.run(["sh", "-c", "trap '' TERM; sleep 60 & sleep 60"], timeout=0.3)
    assert late.timed_out and late.code == 137
    greedy = box.run([sys.executable, "-c", "x = bytearray(b'x' * (600 << 20)); import time; time.sleep(60)"])
    assert greedy.memory_killed and greedy.code == 137
    left = box.run(["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"])
    assert not processes.alive(int(left.stdout))


def test_links_out_of_the_directory_are_not_followed(box: HostBox, tmp_path: Path) -> None:
    box.run(["ln", "-s", str(tmp_path), "way"])
    with pytest.raises(UsageError):
        box.read("/app/way/given")


def test_sockets_are_ports_of_this_machine(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket() as free:
        server.bind(str(tmp_path / "s"))
        server.listen()
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.sendall(b"answered")

        thread = threading.Thread(target=answer)
        thread.start()
        spec = BoxSpec(sockets={port: tmp_path / "s"})
        with NoSandbox(accepted=True).open(spec), socket.create_connection(("127.0.0.1", port)) as client:
            assert client.recv(100) == b"answered"
        thread.join()
