"""What every sandbox has in common: how one is chosen, which values are refused, and who a command runs as."""

from __future__ import annotations

import os
import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import BoxSpec, Limits, Mount, Streams, choose
from bakeoff.sandbox.images import Account, Accounts

FILES = {
    "/etc/passwd": b"root:x:0:0::/root:/bin/sh\nagent:x:1000:100::/home/agent:/bin/sh\nbroken:line\nodd:x:7:8::odd:/bin/sh\n",
    "/etc/group": b"root:x:0:\ncrew:x:2000:root,agent\nusers:x:100:\n",
}


def read(path: str, most: int) -> bytes:
    if path not in FILES:
        raise UsageError(f"{path}: no such file")
    assert len(FILES[path]) <= most
    return FILES[path]


def test_the_sandbox_is_chosen_by_name_then_variable_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDBOX_BACKEND", raising=False)
    assert choose().name == "bubblewrap"
    monkeypatch.setenv("SANDBOX_BACKEND", "docker")
    assert choose().name == "docker"
    assert choose("podman").name == "podman"
    with pytest.raises(UsageError, match=r"no sandbox called 'dockr' \(--sandbox\); did you mean 'docker'"):
        choose("dockr")
    monkeypatch.setenv("SANDBOX_BACKEND", "qemu")
    with pytest.raises(UsageError, match=r"no sandbox called 'qemu' \(SANDBOX_BACKEND\); known are bubblewrap, docker"):
        choose()


def test_values_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="memory_mb = 0"):
        Limits(memory_mb=0)
    with pytest.raises(UsageError, match=r"mount target '\.\./x': give an absolute path"):
        Mount(Path("/tmp"), "../x")
    with pytest.raises(UsageError, match=r"workdir '/a/\.\./b': give an absolute path"):
        BoxSpec(workdir="/a/../b")
    with pytest.raises(UsageError, match="sandbox name 'a/b'"):
        BoxSpec(name="a/b")
    with pytest.raises(UsageError, match="socket port 0"):
        BoxSpec(sockets={0: Path("/x")})


@pytest.mark.parametrize(
    ("user", "account"),
    [
        (None, Account("root", 0, 0, (2000,), "/root")),
        ("agent", Account("agent", 1000, 100, (2000,), "/home/agent")),
        ("1000", Account("agent", 1000, 100, (2000,), "/home/agent")),
        ("agent:users", Account("agent", 1000, 100, (2000,), "/home/agent")),
        ("agent:7", Account("agent", 1000, 7, (2000,), "/home/agent")),
        ("12345:crew", Account("12345", 12345, 2000, (), "/")),
        ("odd", Account("odd", 7, 8, (), "/")),
    ],
)
def test_users_are_found_as_a_dockerfile_names_them(user: str | None, account: Account) -> None:
    assert Accounts(read).find(user) == account


def test_users_that_the_image_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no user 'nobody' \(it has: root, agent, odd\)"):
        Accounts(read).find("nobody")
    with pytest.raises(UsageError, match="no group 'nobody'"):
        Accounts(read).find("agent:nobody")
    with pytest.raises(UsageError, match="below 65536"):
        Accounts(read).find("70000")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
def test_an_output_that_cannot_be_opened_leaves_no_descriptor_open(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        streams = Streams(stack, tmp_path, None, None, 1000)
        before = sorted(os.listdir("/proc/self/fd"))
        for spare in (1, 2, 3):  # room for a part of the pipe's two ends, the event and the device
            taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
            top = max(taken) + 1
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (top, limits[1]))
                for number in taken[-spare:]:
                    os.close(number)
                with pytest.raises(OSError):
                    streams.fds(None, (0, 1))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for number in taken[:-spare]:
                    os.close(number)
            assert sorted(os.listdir("/proc/self/fd")) == before
