"""Real containers of a real dockerd and a real podman, each with its own data directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bakeoff.engine import processes
from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox import cgroups
from bakeoff.sandbox.base import BoxSpec, Image, Limits, Mount, choose
from bakeoff.sandbox.container import LABEL, DockerBox
from bakeoff.sandbox.docker import Docker
from support.containers import started
from support.processes import eventually

LIMITS = Limits(memory_mb=64, cpus=1, pids=30, disk_mb=20)
pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="starting a container service needs root"),
]


@pytest.fixture(scope="module")
def service() -> Iterator[Docker]:
    with started("docker") as docker:
        yield docker


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """A unix socket that answers every connection."""
    with tempfile.TemporaryDirectory(prefix="bakeoff-") as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory}/s")
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"answered\n")

        threading.Thread(target=answer, daemon=True).start()
        yield Path(directory, "s")
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def box(
    service: Docker, tiny_root: Path, server: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DockerBox]:
    given = tmp_path_factory.mktemp("given")
    (given / "file").write_text("given\n")
    spec = BoxSpec(
        image=Image.root(tiny_root),
        env={"A": "1"},
        workdir="/app/repo",
        limits=LIMITS,
        sockets={8099: server},
        mounts=(Mount(given, "/given"),),
        name="tested",
    )
    with service.open(spec) as box:
        yield box


def output(box: DockerBox, script: str, **settings: Any) -> str:
    result = box.run(["sh", "-c", script], **settings)
    assert result.ok, result
    return result.stdout.decode()


def test_commands_run_with_the_files_settings_and_streams_they_were_given(box: DockerBox, tmp_path: Path) -> None:
    assert (
        output(box, "pwd; echo $A $B; cat /given/file; cat", env={"B": "2"}, stdin=b"in") == "/app/repo\n1 2\ngiven\nin"
    )
    assert output(box, "id -u", user="agent") == "1000\n"
    result = box.run(["sh", "-c", "echo out; echo err >&2; exit 3"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    assert (result.code, (tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == (3, "out\n", "err\n")
    assert box.run(["no-such-program"]).code == 127
    assert result.cpu_seconds is not None and result.peak_memory_mb is not None


def test_files_go_in_and_out_and_links_are_not_followed(box: DockerBox, tmp_path: Path) -> None:
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/file").write_text("x")
    (tmp_path / "secret").write_text("the key")
    os.link(tmp_path / "tree/deep/file", tmp_path / "tree/twin")
    box.put(tmp_path / "tree", "/app/tree")
    output(box, f"ln -s {tmp_path} /app/way; ln -s {tmp_path}/secret /app/tree/bad; ln -s deep/file /app/tree/good")
    output(box, "cd /app/tree; ln twin after; for n in $(busybox seq 300); do mkdir down; cd down; done; echo >end")
    box.get("/app/tree", tmp_path / "back")
    names = sorted(path.name for path in (tmp_path / "back").rglob("*"))
    assert names == ["after", "deep", *["down"] * 200, "file", "good", "twin"]
    assert (tmp_path / "back/twin").read_text() == (tmp_path / "back/after").read_text() == "x"
    box.get("/app/tree", tmp_path / "all", all_links=True)
    assert os.readlink(tmp_path / "all/bad") == f"{tmp_path}/secret"
    with pytest.raises(UsageError):
        box.read("/app/way/secret")
    with pytest.raises(UsageError):
        box.get("/app/way", tmp_path / "way")
    try:
        box.write("/app/way/planted", b"x")
    except (UsageError, InfraError):
        pass  # refused is as good as kept inside
    assert not (tmp_path / "planted").exists()
    box.write("/app/new/file", b"data", 0o600)
    assert box.read("/app/new/file") == b"data"


def test_no_network_but_the_bridge(box: DockerBox) -> None:
    assert output(box, "busybox nc 127.0.0.1 8099 </dev/null") == "answered\n"
    assert output(box, "grep -c : /proc/net/dev") == "1\n"
    assert box.run(["sh", "-c", "busybox nc -w 2 1.1.1.1 53 </dev/null"]).code != 0


def test_the_bridge_is_in_the_cgroups_of_its_container_and_starts_again_with_it(box: DockerBox) -> None:
    for ending in ("sleep 100 &", "sleep 100"):
        assert box._bridge is not None
        groups = processes.cgroups_of(box._pid())
        assert groups and all(box._bridge.pid in cgroups.members(group) for group in groups.values())
        box.run(["sh", "-c", f"{ending} busybox nc 127.0.0.1 8099 </dev/null"], timeout=1.0)
    assert output(box, "busybox nc 127.0.0.1 8099 </dev/null") == "answered\n"


def test_processes_of_a_container_that_has_stopped_meanwhile_are_ended(box: DockerBox) -> None:
    with box._lock:  # a command is running, as far as the caller sees
        box._api.kill(box._id)
        box._api.wait(box._id)
        thread = threading.Thread(target=box.end_processes)
        thread.start()
        box._end_rest(killed=True)
    thread.join()
    assert output(box, "busybox nc 127.0.0.1 8099 </dev/null") == "answered\n"


def test_rights_are_few_and_cannot_grow(box: DockerBox) -> None:
    status = output(box, "cat /proc/self/status")
    assert "NoNewPrivs:\t1" in status
    assert "CapBnd:\t00000000800405fb" in status


def test_what_a_command_starts_ends_with_it_and_files_stay(box: DockerBox) -> None:
    output(box, "echo kept >/app/kept; sleep 1000 >/dev/null 2>&1 & echo $! >/app/pid")
    assert output(box, "kill -0 $(cat /app/pid) 2>/dev/null && echo alive; cat /app/kept") == "kept\n"
    box.end_processes()
    assert output(box, "cat /app/kept") == "kept\n"
    assert output(box, "busybox nc 127.0.0.1 8099 </dev/null") == "answered\n", "the bridge came back too"


def test_limits_end_a_command_and_are_reported(box: DockerBox) -> None:
    late = box.run(["sh", "-c", "trap '' TERM; sleep 100"], timeout=1.5)  # later than the first look at its disk
    assert late.timed_out and late.code == 137
    greedy = box.run(["sh", "-c", "cat /dev/zero | tail -c 500000000 | busybox wc -c"])
    assert greedy.memory_killed
    assert not Path("oom").exists(), "podman's monitor says so in a file where it was started"
    full = box.run(["sh", "-c", "busybox dd if=/dev/zero of=/app/fill bs=1M count=60; sleep 30; echo outlived"])
    assert full.disk_full and b"outlived" not in full.stdout
    output(box, "rm /app/fill")
    bomb = box.run(["sh", "-c", "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done"], timeout=20)
    assert bomb.pids_refused > 0


def test_containers_of_a_killed_process_end_and_are_removed(service: Docker, tiny_root: Path) -> None:
    script = (
        "import sys; from bakeoff.sandbox.base import BoxSpec, Image, choose;"
        "from pathlib import Path; box = choose(sys.argv[1]).open(BoxSpec(image=Image.root(Path(sys.argv[2]))));"
        "print('open', flush=True); box.run(['sleep', '1000'])"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, service.name, str(tiny_root)], stdout=subprocess.PIPE)
    assert owner.stdout is not None and owner.stdout.readline() == b"open\n"

    def theirs(**state: bool) -> list[Any]:
        containers = service.client.containers(filters={"label": LABEL}, **state)
        return [each for each in containers if f"-{owner.pid}-" in each["Labels"][LABEL]]

    assert len(theirs()) == 1
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    eventually(lambda: theirs() == [], "it stops by itself")
    assert service.remove_abandoned() == 1
    assert theirs(all=True) == []


def test_a_dockerfile_is_built_once(service: Docker, tiny_root: Path, tmp_path: Path) -> None:
    base = service.image_name(Image.root(tiny_root))
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nWORKDIR /made\nCOPY file .\nENV A=built\n")
    (tmp_path / "file").write_text("copied\n")
    image = service.build(tmp_path)
    assert service.build(tmp_path) == image
    with service.open(BoxSpec(image=image)) as box:
        assert output(box, "pwd; cat file; echo $A") == "/made\ncopied\nbuilt\n"


def test_what_does_not_exist_is_named(service: Docker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{service.name} has no image 'nothing:1'"):
        service.open(BoxSpec(image=Image.named("nothing:1")))
    with pytest.raises(UsageError, match="no such file"):
        service.build(tmp_path)
    with pytest.raises(UsageError, match="keep_layer"):
        service.open(BoxSpec(image=Image.named("x"), keep_layer=True))


def test_this_machine_can_be_the_image(service: Docker) -> None:
    with service.open(BoxSpec()) as box:
        assert output(box, "/usr/bin/python3 -c 'print(40 + 2)'; ls /home /root") == "42\n/home:\n\n/root:\n"
        assert output(box, f"/usr/bin/python3 -c '{REFUSED_CALLS}'") == "True\n"


REFUSED_CALLS = """
import ctypes
libc = ctypes.CDLL(None)
def refused(call, *words): return call(*words) < 0
print(refused(libc.unshare, 0x10000000) and refused(libc.mount, 0, b"/mnt", b"tmpfs", 0, 0) and refused(libc.socket, 40, 1, 0))
"""
"""A user namespace, a mount, and a socket that no network namespace holds."""


def test_podman_answers_the_same_client(tiny_root: Path, server: Path, tmp_path: Path) -> None:
    with started("podman") as podman:
        spec = BoxSpec(image=Image.root(tiny_root), limits=LIMITS, sockets={8099: server}, workdir="/app")
        with podman.open(spec) as box:
            assert (
                output(box, "pwd; cat; busybox nc 127.0.0.1 8099 </dev/null", stdin=b"in\n") == "/app\nin\nanswered\n"
            )
            assert b"not implemented" in box.run(["busybox", "unshare", "-U", "true"]).stderr
            output(box, "echo kept >kept; sleep 1000 >/dev/null 2>&1 &")
            late = box.run(
                ["sh", "-c", "trap '' TERM; sleep 100"], timeout=1.5
            )  # later than the first look at its disk
            assert late.timed_out and late.code == 137
            assert box.run(["sh", "-c", "cat /dev/zero | tail -c 500000000 | busybox wc -c"]).memory_killed
            box.put(tmp_path, "/app/tree")
            assert (box.read("/app/kept"), box.run(["no-such-program"]).code) == (b"kept\n", 127)
        assert podman.client.containers(all=True) == []


def test_a_service_that_does_not_answer_is_reported_with_a_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    problem = Docker().missing()
    assert problem is not None and "set DOCKER_HOST" in problem
    with pytest.raises(InfraError, match="docker: no docker service answers"):
        Docker().open(BoxSpec())


def test_a_container_has_the_runtime_that_is_asked_for(service: Docker) -> None:
    with service.open(BoxSpec(runtime="second")) as box:
        assert service.runtime_of(box._id) == "second"
        assert box.run(["echo", "hi"]).stdout == b"hi\n"
    with pytest.raises(InfraError, match="absent"):
        service.open(BoxSpec(runtime="absent"))


@pytest.mark.slow
def test_podman_runs_containers_with_the_runtime_of_its_service_and_refuses_others() -> None:
    with started("podman", "second") as podman:
        with podman.open(BoxSpec(runtime="second")) as box:
            assert podman.runtime_of(box._id) == "second"
        with pytest.raises(
            UsageError, match="runs containers with 'second'\n  fix: start it as `podman --runtime runc"
        ):
            podman.open(BoxSpec(runtime="runc"))
        os.environ.pop("CONTAINER_HOST")  # without a service of the user's, one with the runtime is started
        with choose("podman").open(BoxSpec(runtime="second")) as box:
            assert box.run(["echo", "hi"]).stdout == b"hi\n"


def test_a_program_in_a_container_can_be_talked_to_while_it_runs(service: Docker) -> None:
    theirs_in, stdin = os.pipe()
    stdout, theirs_out = os.pipe()
    with service.open(BoxSpec()) as box:
        ended: list[int] = []
        thread = threading.Thread(
            target=lambda: ended.append(box.run(["cat"], pipes=(theirs_in, theirs_out)).code), daemon=True
        )
        thread.start()
        for word in (b"one\n", b"two\n"):
            os.write(stdin, word)
            assert os.read(stdout, 100) == word
        os.close(stdin)
        thread.join()
        assert ended == [0]
    for end in (theirs_in, theirs_out, stdout):
        os.close(end)
