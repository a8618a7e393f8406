"""Why an attempt ended: what a watch knows about time and memory limits, and what an exit code says."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from bakeoff.engine import processes
from bakeoff.engine.node.node import Watch, death, ending, shell_code
from bakeoff.sandbox.supervisor import _Supervisor
from bakeoff.spec.experiment import Limits
from support.processes import eventually, process_exists

NEVER = 10**9
"""More kills for want of memory than any machine has counted."""


def watch(**limits: float) -> Watch:
    return Watch(os.getpid(), "no process has this mark", Limits.model_validate(limits))


def test_an_attempt_that_was_late_and_ended_before_anybody_looked_timed_out() -> None:
    assert watch(time=0.5).why_ended(took=0.6, ended_clock=100.6) == "timeout"
    assert watch(time=0.5).why_ended(took=0.4, ended_clock=100.4) is None
    assert watch().why_ended(took=999999900.0, ended_clock=1000000000.0) is None, "without a limit nothing is late"


def test_an_attempt_that_ended_before_it_was_asked_to_stop_keeps_its_own_result() -> None:
    stopped = watch()
    stopped.reason, stopped.ended_clock = "cancelled", 200.0
    assert stopped.why_ended(took=99.9, ended_clock=199.9) is None
    assert stopped.why_ended(took=100.0, ended_clock=200.0) == "cancelled"


def test_an_attempt_that_ended_by_itself_just_before_a_stop_can_still_be_late() -> None:
    stopped = watch(time=50)
    stopped.reason, stopped.ended_clock = "cancelled", 200.0
    assert stopped.why_ended(took=99.0, ended_clock=199.0) == "timeout"


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_tree_that_is_ended_gets_sigterm_and_after_the_grace_period_sigkill(stubborn: bool) -> None:
    trap = "trap '' TERM; " if stubborn else ""
    process = subprocess.Popen(["sh", "-c", f"{trap}echo ready; while :; do sleep 0.05; done"], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    ended = Watch(process.pid, "no process has this mark", Limits.model_validate({"grace": 0.2}))
    ended.end("timeout")
    ended.end("cancelled")
    assert ended.reason == "timeout", "the first reason counts"
    eventually(lambda: ended.check(time.monotonic()) or process.poll() is not None, "it has ended")
    assert process.returncode == (-signal.SIGKILL if stubborn else -signal.SIGTERM)
    process.stdout.close()


def _run_exceeds(pids: list[int], limit: int) -> bool:
    return processes.memory(pids, limit) > limit


def _sandbox_exceeds(pids: list[int], limit: int) -> bool:
    supervisor = object.__new__(_Supervisor)
    supervisor._in_memory = []
    return supervisor._exceeded(pids, {"watch_mb": limit >> 20, "watch_pids": None}) == "memory"


@pytest.mark.parametrize("exceeds", [_run_exceeds, _sandbox_exceeds])
def test_processes_that_end_while_they_are_counted_are_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch, exceeds: Callable[[list[int], int], bool]
) -> None:
    """A page counts for each of its processes by its share, and the others' shares grow when one of them ends."""
    shared = mmap.mmap(-1, 32 << 20)
    shared.write(bytes(range(256)) * (len(shared) // 256))
    limit = processes.memory([os.getpid()], 1) + len(shared) // 2
    children: list[int] = []
    for _ in range(4):
        if (pid := os.fork()) == 0:
            shared.find(b"not there")  # reads, and so maps, every page
            while True:
                signal.pause()
        children.append(pid)
    read = processes.text

    def read_and_end(path: str) -> str:
        found = read(path)
        if path.endswith("/smaps_rollup") and (pid := int(path.split("/")[2])) in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            children.remove(pid)
        return found

    try:
        eventually(lambda: processes.resident(children) > 4 * len(shared), "all have the pages")
        monkeypatch.setattr(processes, "text", read_and_end)
        assert not exceeds([*children, os.getpid()], limit)
        assert not children, "all of them ended while they were counted"
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_tree_above_its_memory_is_killed_at_once() -> None:
    process = subprocess.Popen(["sleep", "600"])
    greedy = Watch(process.pid, "no process has this mark", Limits.model_validate({"memory": 1, "grace": 600}))
    eventually(lambda: greedy.check(time.monotonic()) or not process_exists(process.pid), "it is killed")
    assert (process.wait(), greedy.reason) == (-signal.SIGKILL, "memory")


def test_a_reason_becomes_a_status_and_an_error() -> None:
    limits = Limits.model_validate({"time": 1.5, "memory": "2GB"})
    assert ending(None, limits) is None
    assert ending("timeout", limits) == ("timeout", "took longer than 1.5 s")
    assert ending("memory", limits) == ("failed", "used more than 2,000,000,000 bytes of memory")
    assert ending("cancelled", limits) == ("cancelled", "stopped before it finished")


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        (3, "failed", "ended its process (exit code 3)"),
        (-signal.SIGSEGV, "failed", "killed by SIGSEGV"),
        (-signal.SIGTERM, "failed", "killed by SIGTERM"),
        (-signal.SIGKILL, "failed", "killed by SIGKILL"),
        (-200, "failed", "killed by signal 200"),
    ],
)
def test_a_process_that_ended_by_itself_failed_whoever_sent_the_signal(code: int, status: str, error: str) -> None:
    assert death(code, oom_before=NEVER) == (status, error)


def test_a_kill_while_the_kernel_counts_one_for_memory_is_the_arms_failure() -> None:
    assert death(-signal.SIGKILL, oom_before=-1) == ("failed", "killed by the kernel: out of memory")


def test_exit_codes_count_signals_as_shells_do() -> None:
    assert [shell_code(code) for code in (0, 7, -9)] == [0, 7, 137]
