"""The seccomp filter answers as it should, on every processor that has a table: it is interpreted here, step by step."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from bakeoff.sandbox import syscalls

ALLOWED = 0
X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028
Filter = Callable[..., int]


@pytest.fixture
def filter_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Filter]]:
    """The filter for a machine as a function from (architecture, call, first argument) to an errno."""

    def compiled(machine: str, tracing: bool = True) -> Filter:
        monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
        syscalls.seccomp_filter.cache_clear()
        program = syscalls.seccomp_filter(tracing)
        assert program is not None
        steps = list(struct.iter_unpack("HBBI", program))
        return lambda architecture, call, argument=0: interpret(steps, architecture, call, argument)

    yield compiled
    syscalls.seccomp_filter.cache_clear()


def interpret(steps: list[tuple[int, ...]], architecture: int, call: int, argument: int) -> int:
    """Run a classic BPF program over `struct seccomp_data`; the kernel refuses one that can run off its end."""
    data = struct.pack("<iIQ6Q", call, architecture, 0, argument, *[0] * 5)
    accumulator = position = 0
    while True:
        code, yes, no, value = steps[position]
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x05:
            position += value
        elif code == 0x06:
            return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF
        else:
            tests = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            position += yes if tests[code] else no


def test_ordinary_calls_pass_and_dangerous_ones_fail(filter_of: Callable[[str], Filter]) -> None:
    x86, arm = filter_of("x86_64"), filter_of("aarch64")
    for answer, architecture, harmless, refused in (
        (x86, X86_64, (0, 1, 59, 435 + 100), (165, 166, 250, 308, 321, 323, 425, 428, 467)),  # read, write, execve
        (x86, I386, (3, 4, 11), (21, 102, 288, 346, 357, 374, 425)),
        (arm, AARCH64, (63, 64, 221), (40, 39, 219, 268, 280, 282, 425, 428)),
    ):
        assert [answer(architecture, call) for call in harmless] == [ALLOWED] * len(harmless)
        assert [answer(architecture, call) for call in refused] == [errno.EPERM] * len(refused)
        assert answer(architecture, 435) == errno.ENOSYS, "clone3"


def test_arguments_decide_about_namespaces_and_sockets(filter_of: Callable[[str], Filter]) -> None:
    x86, arm = filter_of("x86_64"), filter_of("aarch64")
    calls = ((x86, X86_64, 56, 272, 41, 53), (x86, I386, 120, 310, 359, 360), (arm, AARCH64, 220, 97, 198, 199))
    for answer, architecture, clone, unshare, *sockets in calls:
        assert answer(architecture, clone, 0x11) == ALLOWED, "fork"
        assert answer(architecture, clone, 0x80) == ALLOWED, "no flag of clone, but the signal of a child's death"
        assert answer(architecture, unshare, 0x80) == errno.EPERM, "a time namespace"
        for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
            assert answer(architecture, clone, flag | 0x11) == answer(architecture, unshare, flag) == errno.EPERM
        for call in sockets:
            assert [answer(architecture, call, family) for family in (1, 2, 10, 16)] == [ALLOWED] * 4
            assert {answer(architecture, call, family) for family in (17, 31, 38, 40)} == {errno.EAFNOSUPPORT}


def test_other_interfaces_of_the_kernel_are_closed(filter_of: Callable[[str], Filter]) -> None:
    x86 = filter_of("x86_64")
    assert x86(X86_64, 0x40000000 | 165) == x86(X86_64, 0x40000000) == errno.ENOSYS, "x32"
    assert x86(ARM, 1) == filter_of("aarch64")(ARM, 1) == errno.ENOSYS


def test_a_processor_without_a_table_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    syscalls.seccomp_filter.cache_clear()
    assert syscalls.seccomp_filter() is None
    syscalls.seccomp_filter.cache_clear()


def test_the_profile_of_a_container_service_loses_what_the_filter_refuses() -> None:
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [
            {"names": ["read", "mount", "clone", "socket"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["bpf"], "action": "SCMP_ACT_ALLOW"},
        ],
    }
    rules = syscalls.narrowed_profile(profile)["syscalls"]
    assert rules[0] == {"names": ["read"], "action": "SCMP_ACT_ALLOW"}
    assert {rule["action"] for rule in rules if {"mount", "bpf"} & set(rule["names"])} == {"SCMP_ACT_ERRNO"}
    assert all(rule["args"] for rule in rules if {"clone", "socket"} & set(rule["names"]))


def test_where_tests_run_no_process_may_reach_into_another(filter_of: Callable[..., Filter]) -> None:
    # ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd
    calls = {
        ("x86_64", X86_64): (101, 310, 311, 312, 438),
        ("x86_64", I386): (26, 347, 348, 349, 438),
        ("aarch64", AARCH64): (117, 270, 271, 272, 438),
    }
    for (machine, architecture), numbers in calls.items():
        for tracing, answer in ((True, ALLOWED), (False, errno.EPERM)):
            filtered = filter_of(machine, tracing)
            assert [filtered(architecture, number) for number in numbers] == [answer] * 5
    rules = syscalls.narrowed_profile({"syscalls": [{"names": ["ptrace", "read"], "action": "SCMP_ACT_ALLOW"}]}, False)
    assert rules["syscalls"][0]["names"] == ["read"]
