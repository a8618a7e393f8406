"""However the process that opened a box dies, the box dies too, and what is left is removed by the next start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bakeoff.sandbox import cache, cgroups
from support.processes import eventually

SCRIPT = """
import sys
from bakeoff.sandbox.base import BoxSpec, Limits, choose
limits = Limits(memory_mb=64, pids=30) if sys.argv[2] == "directory" else Limits(memory_mb=64, pids=30, disk_mb=8)
box = choose("bubblewrap").open(BoxSpec(limits=limits, name="victim"))
box.write("/marker", b"x")
print(box.supervisor_pid, flush=True)
box.run(["/bin/sh", "-c", f"trap '' TERM; setsid sleep {sys.argv[1]} & sleep {sys.argv[1]}; sleep {sys.argv[1]}"])
"""


def running(words: str) -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if words.encode() in text and b"choose(" not in text:
            pids.append(int(path.parent.name))
    return pids


def living_in(namespace: str) -> list[str]:
    """Processes that hold a mount namespace, and with it all mounts in it."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/ns/mnt"):
        try:
            pids += [path.parts[2]] if os.readlink(path) == namespace else []
        except OSError:
            continue
    return pids


@pytest.mark.apt
@pytest.mark.parametrize("volume", ["directory", "limited"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_takes_its_boxes_along(number: signal.Signals, volume: str) -> None:
    stamp = f"87654.{os.getpid()}{int(time.time() * 1000) % 10**6}"
    owner = subprocess.Popen([sys.executable, "-c", SCRIPT, stamp, volume], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    namespace = os.readlink(f"/proc/{int(owner.stdout.readline())}/ns/mnt")
    eventually(lambda: len(running(stamp)) >= 3, "the command runs")
    assert len(living_in(namespace)) >= 1
    owner.send_signal(number)
    owner.wait()
    owner.stdout.close()
    eventually(lambda: running(stamp) == [], "its processes are gone")
    eventually(lambda: living_in(namespace) == [], "its mounts are gone")
    left = [path for path in cache.directory("boxes").iterdir() if path.is_dir()]
    assert len(left) == 1 and left[0].name.endswith("-victim")
    groups = [Path(line) for line in (left[0] / cache.CGROUP_LIST).read_text().splitlines()]
    assert cache.remove_abandoned().boxes == 1
    assert not left[0].exists()
    assert not any(group.exists() for group in groups)


def test_what_belongs_to_a_running_process_is_left_alone() -> None:
    mine = cache.directory("boxes") / cache.unique_name("living")
    mine.mkdir()
    try:
        assert cache.remove_abandoned().boxes == 0
        assert mine.is_dir()
    finally:
        mine.rmdir()


def test_what_a_killed_process_had_half_made_is_removed_too() -> None:
    kept, pid, born, _ = cache.unique_name().split("-")
    name = f"{kept}-{pid}-{int(born) + 1}-7-volume"
    (cache.directory("boxes") / name).write_text("half an image")
    (cache.directory("layers") / name).mkdir()
    assert cache.remove_abandoned().boxes == 2
    assert not (cache.directory("boxes") / name).exists() and not (cache.directory("layers") / name).exists()


def test_a_unique_name_says_whether_its_owner_is_gone() -> None:
    assert not cache.owner_gone(cache.unique_name("word"))
    kept, pid, born, number = cache.unique_name().split("-")
    assert cache.owner_gone(f"{kept}-{pid}-{int(born) + 1}-{number}"), "the pid was given to another process"
    assert not cache.owner_gone(f"{int(kept) + 1}-{pid}-{int(born) + 1}-{number}"), (
        "another container's pids say nothing"
    )
    assert not cache.owner_gone("volume-100.ext4")


@pytest.mark.root
@pytest.mark.skipif(not cgroups.parents(), reason="no cgroups here")
def test_a_group_with_processes_in_it_is_ended_and_removed() -> None:
    groups = cgroups.planned(cache.unique_name("group"))
    for group in set(groups.values()):
        group.mkdir()
    sleeper = subprocess.Popen(["sleep", "60"])
    for group in set(groups.values()):
        (group / "cgroup.procs").write_text(str(sleeper.pid))
    for group in set(groups.values()):
        cgroups.remove(group)
        assert not group.exists()
    assert sleeper.wait() == -signal.SIGKILL
