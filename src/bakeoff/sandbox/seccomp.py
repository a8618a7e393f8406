"""System calls that a command in a box may not make: a filter that the kernel runs, as a program for `bwrap --seccomp`.

Rights that root of a box lacks stop most of them already. The rest is not bound to any namespace (kernel keyrings,
sockets to the machine below ours), or is a door into the kernel that no build and no test needs.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

Table = Mapping[str, int]

_EVERYWHERE: Final[Table] = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
"""Refused. Calls that are new enough have one number on every architecture."""
_X86_64: Final[Table] = {
    "syslog": 103, "vhangup": 153, "pivot_root": 155, "adjtimex": 159, "acct": 163, "settimeofday": 164, "mount": 165,
    "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172, "ioperm": 173, "init_module": 175,
    "delete_module": 176, "quotactl": 179, "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304, "clock_adjtime": 305,
    "setns": 308, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
}  # fmt: skip
_I386: Final[Table] = {
    "mount": 21, "umount": 22, "stime": 25, "acct": 51, "umount2": 52, "settimeofday": 79, "swapon": 87, "reboot": 88,
    "ioperm": 101, "socketcall": 102, "syslog": 103, "iopl": 110, "vhangup": 111, "vm86old": 113, "swapoff": 115,
    "adjtimex": 124, "init_module": 128, "delete_module": 129, "quotactl": 131, "vm86": 166, "pivot_root": 217,
    "clock_settime": 264, "kexec_load": 283, "add_key": 286, "request_key": 287, "keyctl": 288, "perf_event_open": 336,
    "fanotify_init": 338, "open_by_handle_at": 342, "clock_adjtime": 343, "setns": 346, "finit_module": 350, "bpf": 357,
    "userfaultfd": 374, "clock_settime64": 404, "clock_adjtime64": 405,
}  # fmt: skip
"""`socketcall` keeps its arguments where no filter sees them; C libraries of this decade do without it."""
_GENERIC: Final[Table] = {
    "umount2": 39, "mount": 40, "pivot_root": 41, "vhangup": 58, "quotactl": 60, "acct": 89, "kexec_load": 104,
    "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116, "reboot": 142, "settimeofday": 170,
    "adjtimex": 171, "add_key": 217, "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225,
    "perf_event_open": 241, "fanotify_init": 262, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
    "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
}  # fmt: skip

_LOOKED_INTO: Final[Mapping[str, Table]] = {
    "x86_64": {"clone": 56, "unshare": 272, "socket": 41, "socketpair": 53},
    "i386": {"clone": 120, "unshare": 310, "socket": 359, "socketpair": 360},
    "generic": {"clone": 220, "unshare": 97, "socket": 198, "socketpair": 199},
}
"""Refused for some of their arguments."""
_CLONE3: Final = 435
_NEW_NAMESPACES: Final = 0x7E020000
_NEW_TIME: Final = 0x80
"""In `unshare` only: `clone` has the signal of a child's death in these bits."""
_FAMILIES: Final = (1, 2, 10, 16)
"""unix, IPv4, IPv6, netlink: those that a network namespace holds and programs need."""

_AUDIT_X86_64, _AUDIT_I386, _AUDIT_AARCH64, _AUDIT_RISCV64 = 0xC000003E, 0x40000003, 0xC00000B7, 0xC00000F3
_MACHINES: Final[Mapping[str, Mapping[int, tuple[Table, str]]]] = {
    "x86_64": {_AUDIT_X86_64: (_X86_64, "x86_64"), _AUDIT_I386: (_I386, "i386")},
    "aarch64": {_AUDIT_AARCH64: (_GENERIC, "generic")},
    "riscv64": {_AUDIT_RISCV64: (_GENERIC, "generic")},
}

_LOAD, _GO, _RETURN, _IF_EQUAL, _IF_AT_LEAST, _IF_BITS = 0x20, 0x05, 0x06, 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_X32 = 0x40000000


@cache
def program() -> bytes | None:
    """The filter for this machine; None for one whose calls are not listed here."""
    known = _MACHINES.get(os.uname().machine)
    if known is None:
        return None
    whole = [_step(_LOAD, _ARCHITECTURE)]
    for audit, (refused, name) in known.items():
        body = _body({**refused, **_EVERYWHERE}.values(), _LOOKED_INTO[name])
        whole += [_step(_IF_EQUAL, audit, 1, 0), _step(_GO, len(body)), *body]
    return b"".join([*whole, _refuse(errno.ENOSYS)])


def narrowed(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The rules of a container service (which let more through, for containers in containers) without what we refuse."""
    refused = {*_EVERYWHERE, *_X86_64, *_I386, *_GENERIC}
    ours = refused | {"clone", "clone3", "unshare", "socket", "socketpair"}
    kept = [{**rule, "names": [name for name in rule["names"] if name not in ours]} for rule in profile["syscalls"]]

    def rule(names: Iterable[str], action: str, *args: dict[str, int | str], **more: int) -> dict[str, Any]:
        return {"names": sorted(names), "action": f"SCMP_ACT_{action}", "args": list(args), **more}

    def without(bits: int) -> dict[str, int | str]:
        return {"index": 0, "value": bits, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}

    added = [
        rule(refused, "ERRNO", errnoRet=errno.EPERM),
        rule(["clone3"], "ERRNO", errnoRet=errno.ENOSYS),
        rule(["clone"], "ALLOW", without(_NEW_NAMESPACES)),
        rule(["unshare"], "ALLOW", without(_NEW_NAMESPACES | _NEW_TIME)),
    ]
    for family in _FAMILIES:
        added.append(rule(["socket", "socketpair"], "ALLOW", {"index": 0, "value": family, "op": "SCMP_CMP_EQ"}))
    return {**profile, "syscalls": [each for each in kept if each["names"]] + added}


def _body(refused: Iterable[int], looked_into: Table) -> list[bytes]:
    """For one architecture: every way through it ends in an answer."""
    steps = [_step(_LOAD, _NUMBER), *_when(_IF_AT_LEAST, _X32, [_refuse(errno.ENOSYS)])]
    for number in refused:
        steps += _when(_IF_EQUAL, number, [_refuse(errno.EPERM)])
    # Flags of clone3 lie in memory, where a filter does not see them; without it, C libraries use clone.
    steps += _when(_IF_EQUAL, _CLONE3, [_refuse(errno.ENOSYS)])
    spaces = {"clone": _NEW_NAMESPACES, "unshare": _NEW_NAMESPACES | _NEW_TIME}
    for name, bits in spaces.items():
        look = [_step(_LOAD, _FIRST_ARGUMENT), *_when(_IF_BITS, bits, [_refuse(errno.EPERM)]), _step(_RETURN, _ALLOW)]
        steps += _when(_IF_EQUAL, looked_into[name], look)
    known = [step for family in _FAMILIES for step in _when(_IF_EQUAL, family, [_step(_RETURN, _ALLOW)])]
    for name in ("socket", "socketpair"):
        look = [_step(_LOAD, _FIRST_ARGUMENT), *known, _refuse(errno.EAFNOSUPPORT)]
        steps += _when(_IF_EQUAL, looked_into[name], look)
    return [*steps, _step(_RETURN, _ALLOW)]


def _when(test: int, value: int, then: list[bytes]) -> list[bytes]:
    return [_step(test, value, 0, len(then)), *then]


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERROR | number)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """struct sock_filter."""
    return struct.pack("HBBI", code, yes, no, value)
