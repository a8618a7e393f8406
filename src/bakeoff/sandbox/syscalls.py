"""Linux calls that Python has no function for, and messages that carry open descriptors between our processes.

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
from collections.abc import Mapping, Sequence
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
    pidfd = os.pidfd_open(pid)
    try:
        _check(_libc.setns(pidfd, flags), "setns")
    finally:
        os.close(pidfd)


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
    file = os.memfd_create("message", os.MFD_CLOEXEC)
    try:
        data = memoryview(json.dumps(body).encode())
        while data:
            data = data[os.write(file, data) :]
        socket.send_fds(target, [b"m"], [file, *fds])
    finally:
        os.close(file)


def receive(source: socket.socket) -> Message | None:
    """The next message that `send` sent; None when the other end is closed."""
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
