"""Linux system calls: those that Python has no function for, and those that a command in a box may not make.

It also has the messages that carry open descriptors between our processes. `seccomp_filter` is for `bwrap --seccomp`.

Numbers and flags are those of the kernel's uapi headers (`linux/mount.h`, `linux/sched.h`, `linux/openat2.h`). Imports
are few on purpose: every supervisor is a fork of a process that has loaded this module, and a fork copies page tables.
"""

from __future__ import annotations

import array
import ctypes
import errno
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
CLONE_NEWIPC: Final = 0x08000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_NOATIME: Final = 1024
MS_NODIRATIME: Final = 2048
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MS_RELATIME: Final = 1 << 21
_ST_RELATIME: Final = 4096

_RESOLVE_NO_MAGICLINKS: Final = 2
_RESOLVE_IN_ROOT: Final = 16
_OPENAT2: Final = 437  # newer calls have the same number on every architecture
_KEYCTL: Final = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
_KEYCTL_JOIN_SESSION_KEYRING: Final = 1

_MAX_FDS: Final = 32
_MAX_PACKET: Final = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Message(NamedTuple):
    """What `receive` returns. The receiver owns the descriptors and closes them."""

    body: dict[str, Any]
    fds: list[int]


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """An open descriptor that is closed at the end of the body, whatever happens in it."""
    try:
        yield fd
    finally:
        os.close(fd)


def _check(result: int, call: str) -> int:
    """The result of a C function, or the OSError that its errno stands for."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Enter new namespaces, the CLONE_NEW* in `flags`: unshare(2). `os.unshare` exists from Python 3.12 on."""
    _check(_libc.unshare(flags), "unshare")


def join_namespaces(pid: int, flags: int) -> None:
    """Enter the namespaces in `flags` of another process, all of them or none: setns(2) on a pidfd (Linux 5.8)."""
    with closing(os.pidfd_open(pid)) as pidfd:
        _check(_libc.setns(pidfd, flags), "setns")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """mount(2). `kind` is the file system type, None for a bind mount or a remount; `data` its options."""
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    result = _libc.mount(*encoded, ctypes.c_ulong(flags), data.encode() if data is not None else None)
    _check(result, f"mount {kind or 'bind'} on {target}")


def make_read_only(target: str) -> None:
    """Make a mount read-only.

    mount_namespaces(7): flags of a mount that came from a more privileged mount namespace are locked, and a remount
    that drops one of them fails with EPERM. So the flags that are set now are set again.
    """
    flags = os.statvfs(target).f_flag
    kept = flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)
    if flags & _ST_RELATIME:  # statvfs(3) has another bit for this flag than mount(2)
        kept |= MS_RELATIME
    mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def openat2(directory: int, path: str, flags: int) -> int:
    """Open `path` as if the open `directory` were the root, and return a descriptor.

    openat2(2) with RESOLVE_IN_ROOT: absolute links and `..` stop at `directory`, also in a race with somebody who
    renames directories. RESOLVE_NO_MAGICLINKS refuses links such as /proc/self/root, which jump without a path.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    name = os.fsencode(path)
    while True:
        fd = _libc.syscall(_OPENAT2, directory, name, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return int(fd)
        number = ctypes.get_errno()
        # EAGAIN: something was renamed during the lookup and the kernel cannot rule out an escape; the man page
        # says retry.
        if number != errno.EAGAIN:
            raise OSError(number, os.strerror(number), path)


def leave_session_keyring() -> None:
    """Start a new, empty session keyring: keyrings(7) are inherited by fork and belong to no namespace we enter."""
    if _KEYCTL is not None:
        _libc.syscall(_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING, None)


def send(target: socket.socket, body: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send a JSON object and open descriptors over a SOCK_SEQPACKET unix socket (SCM_RIGHTS, unix(7)).

    The JSON travels in a memfd as the first descriptor: a command line may be longer than a packet can be.
    """
    with closing(os.memfd_create("message", os.MFD_CLOEXEC)) as file:
        data = memoryview(json.dumps(body).encode())
        while data:
            data = data[os.write(file, data) :]
        socket.send_fds(target, [b"m"], [file, *fds])


def receive(source: socket.socket) -> Message | None:
    """The next message that `send` sent; None when the other end is closed."""
    # SCM_RIGHTS carries at most 253 descriptors (unix(7)); ours need fewer than 32.
    # socket.recv_fds ignores its flags in Python 3.11, and without MSG_CMSG_CLOEXEC a descriptor that arrives could
    # be inherited by a command in a sandbox.
    room = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
    data, parts, _, _ = source.recvmsg(_MAX_PACKET, room, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    fds = array.array("i")
    for _, _, part in parts:
        fds.frombytes(part[: len(part) - len(part) % fds.itemsize])  # a cut-off descriptor is dropped (cmsg(3))
    with os.fdopen(fds[0], "rb") as file:
        file.seek(0)
        body: dict[str, Any] = json.loads(file.read())
    return Message(body, list(fds[1:]))


# -- system calls that a box may not make
#
# Missing capabilities stop most of these calls already. The filter closes the rest: calls that no namespace confines
# (kernel keyrings, sockets to the hypervisor, requests of `io_setup`, which all users share), and parts of the kernel that no build and no test needs but that many
# exploits started from (io_uring, userfaultfd, bpf). It is a classic BPF program over `struct seccomp_data`; see
# seccomp(2) and the kernel's Documentation/userspace-api/seccomp_filter.rst. Numbers are those of the kernel's system
# call tables (arch/x86/entry/syscalls, include/uapi/asm-generic/unistd.h).

_NEW_CALLS: Final[Mapping[str, int]] = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "quotactl_fd": 443,
    "open_tree_attr": 467,
}  # fmt: skip
"""Refused on every architecture: calls from number 424 on have one number everywhere."""
_CLONE3: Final = 435  # the same on every architecture too
_TRACING: Final = ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd")
"""Calls that read or change another process of the same user: refused where a command may not trace."""
_PIDFD_GETFD: Final = 438


class _Abi(NamedTuple):
    """One system call interface of a processor."""

    audit: int
    """AUDIT_ARCH_* of linux/audit.h: how the filter recognises the interface."""
    refused: Mapping[str, int]
    clone: int
    unshare: int
    socket: int
    socketpair: int
    tracing: tuple[int, ...]
    """The numbers of _TRACING, in its order."""


_X86_64: Final = _Abi(
    0xC000003E,
    {
        "syslog": 103, "vhangup": 153, "pivot_root": 155, "adjtimex": 159, "acct": 163, "settimeofday": 164,
        "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172, "ioperm": 173,
        "init_module": 175, "delete_module": 176, "quotactl": 179, "clock_settime": 227, "kexec_load": 246,
        "add_key": 248, "request_key": 249, "keyctl": 250, "io_setup": 206, "perf_event_open": 298, "fanotify_init": 300,
        "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "finit_module": 313, "kexec_file_load": 320,
        "bpf": 321, "userfaultfd": 323,
    },
    clone=56, unshare=272, socket=41, socketpair=53, tracing=(101, 310, 311, 312, _PIDFD_GETFD),
)  # fmt: skip
# 32-bit programs on the same processor. They need a table of their own: any 64-bit program can make a 32-bit call with
# `int 0x80`. `socketcall` keeps its arguments in memory, where no filter sees them; Linux 4.3 made it needless.
_I386: Final = _Abi(
    0x40000003,
    {
        "mount": 21, "umount": 22, "stime": 25, "acct": 51, "umount2": 52, "settimeofday": 79, "swapon": 87,
        "reboot": 88, "ioperm": 101, "socketcall": 102, "syslog": 103, "iopl": 110, "vhangup": 111, "vm86old": 113,
        "swapoff": 115, "adjtimex": 124, "init_module": 128, "delete_module": 129, "quotactl": 131, "vm86": 166,
        "pivot_root": 217, "clock_settime": 264, "kexec_load": 283, "add_key": 286, "request_key": 287, "keyctl": 288,
        "io_setup": 245,
        "perf_event_open": 336, "fanotify_init": 338, "open_by_handle_at": 342, "clock_adjtime": 343, "setns": 346,
        "finit_module": 350, "bpf": 357, "userfaultfd": 374, "clock_settime64": 404, "clock_adjtime64": 405,
    },
    clone=120, unshare=310, socket=359, socketpair=360, tracing=(26, 347, 348, 349, _PIDFD_GETFD),
)  # fmt: skip
_AARCH64: Final = _Abi(
    0xC00000B7,
    {
        "io_setup": 0, "umount2": 39, "mount": 40, "pivot_root": 41, "vhangup": 58, "quotactl": 60, "acct": 89, "kexec_load": 104,
        "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116, "reboot": 142,
        "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218, "keyctl": 219, "swapon": 224,
        "swapoff": 225, "perf_event_open": 241, "fanotify_init": 262, "open_by_handle_at": 265, "clock_adjtime": 266,
        "setns": 268, "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
    },
    clone=220, unshare=97, socket=198, socketpair=199, tracing=(117, 270, 271, 272, _PIDFD_GETFD),
)  # fmt: skip
_MACHINES: Final[Mapping[str, tuple[_Abi, ...]]] = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64,)}

_NAMESPACE_FLAGS: Final = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_TIME_NAMESPACE: Final = 0x80
"""CLONE_NEWTIME, for `unshare` only: `clone` has the signal of a child's death in these bits."""
_FAMILIES: Final = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: what programs need, and what a network namespace confines.

AF_VSOCK, for one, reaches the hypervisor from every namespace."""

# Opcodes of linux/bpf_common.h, offsets in struct seccomp_data, and return values of linux/seccomp.h.
_LOAD, _JUMP, _RETURN, _IF_EQUAL, _IF_AT_LEAST, _IF_BITS = 0x20, 0x05, 0x06, 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32_BIT = 0x40000000


@cache
def seccomp_filter(tracing: bool = True) -> bytes | None:
    """The filter for this machine as an array of `struct sock_filter`; None for a processor that has no table here.

    A call of any other interface (32-bit programs on ARM, say) fails with ENOSYS. Without `tracing`, calls that read or
    change other processes are refused too.
    """
    abis = _MACHINES.get(os.uname().machine)
    if abis is None:
        return None
    # The interface first: the same number is another call in each of them (seccomp(2), the caveat about `arch`).
    steps = [_step(_LOAD, _ARCHITECTURE)]
    for abi in abis:
        # The jump over a body is one of its own, since conditional jumps reach no further than 255 steps: their
        # offsets are bytes in struct sock_filter, that of a plain jump is a word (linux/filter.h).
        body = _filter(abi, tracing)
        steps += [_step(_IF_EQUAL, abi.audit, 1, 0), _step(_JUMP, len(body)), *body]
    return b"".join([*steps, _fail(errno.ENOSYS)])


def _filter(abi: _Abi, tracing: bool) -> list[bytes]:
    """The steps for one interface. Every path through them ends in an answer."""
    # x32 calls have the number of an x86-64 call with this bit set, and would slip past a test for that number.
    steps = [_step(_LOAD, _NUMBER), *_when(_IF_AT_LEAST, _X32_BIT, [_fail(errno.ENOSYS)])]
    for number in (*{**abi.refused, **_NEW_CALLS}.values(), *(() if tracing else abi.tracing)):
        steps += _when(_IF_EQUAL, number, [_fail(errno.EPERM)])
    # The flags of clone3 are in memory, where a filter does not see them. After ENOSYS, C libraries use clone.
    steps += _when(_IF_EQUAL, _CLONE3, [_fail(errno.ENOSYS)])
    for call, flags in ((abi.clone, _NAMESPACE_FLAGS), (abi.unshare, _NAMESPACE_FLAGS | _TIME_NAMESPACE)):
        check = [_step(_LOAD, _FIRST_ARGUMENT), *_when(_IF_BITS, flags, [_fail(errno.EPERM)]), _step(_RETURN, _ALLOW)]
        steps += _when(_IF_EQUAL, call, check)
    # Arguments are 64 bits wide, of which the lower half is read (both processors are little-endian). That is enough:
    # a family is an int, `clone` takes the lower 32 bits of its flags, and `unshare` refuses flags above them.
    families = [step for family in _FAMILIES for step in _when(_IF_EQUAL, family, [_step(_RETURN, _ALLOW)])]
    for call in (abi.socket, abi.socketpair):
        check = [_step(_LOAD, _FIRST_ARGUMENT), *families, _fail(errno.EAFNOSUPPORT)]
        steps += _when(_IF_EQUAL, call, check)
    return [*steps, _step(_RETURN, _ALLOW)]


def _when(test: int, value: int, then: list[bytes]) -> list[bytes]:
    """Steps that are skipped unless the loaded word passes `test` against `value`."""
    return [_step(test, value, 0, len(then)), *then]


def _fail(number: int) -> bytes:
    """A step that ends the program: the call fails with this errno and is not made (SECCOMP_RET_ERRNO)."""
    return _step(_RETURN, _ERRNO | number)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """struct sock_filter: an opcode, how many steps to skip if a test holds or fails, and an operand."""
    return struct.pack("HBBI", code, yes, no, value)


def narrowed_profile(profile: Mapping[str, Any], tracing: bool = True) -> dict[str, Any]:
    """The seccomp profile of a container service with everything refused that the filter above refuses.

    `profile` is JSON in the format of docker and podman (docs.docker.com/engine/security/seccomp), whose default lets
    more through, for containers in containers. Rules of ours replace all rules about the same calls.
    """
    refused = {name for abi in (_X86_64, _I386, _AARCH64) for name in abi.refused} | set(_NEW_CALLS)
    refused |= set() if tracing else set(_TRACING)
    replaced = refused | {"clone", "clone3", "unshare", "socket", "socketpair"}
    kept = [{**rule, "names": [name for name in rule["names"] if name not in replaced]} for rule in profile["syscalls"]]

    added: list[dict[str, Any]] = [
        {"names": sorted(refused), "action": "SCMP_ACT_ERRNO", "args": [], "errnoRet": errno.EPERM},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "args": [], "errnoRet": errno.ENOSYS},
    ]
    for name, flags in (("clone", _NAMESPACE_FLAGS), ("unshare", _NAMESPACE_FLAGS | _TIME_NAMESPACE)):
        # seccomp_rule_add(3): `value` is the mask here, `valueTwo` what has to be left of the argument under it.
        without = {"index": 0, "value": flags, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
        added.append({"names": [name], "action": "SCMP_ACT_ALLOW", "args": [without]})
    for family in _FAMILIES:
        same = {"index": 0, "value": family, "op": "SCMP_CMP_EQ"}
        added.append({"names": ["socket", "socketpair"], "action": "SCMP_ACT_ALLOW", "args": [same]})
    return {**profile, "syscalls": [rule for rule in kept if rule["names"]] + added}
