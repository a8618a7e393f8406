"""Kernel calls that Python has no function for. Linux only."""

from __future__ import annotations

import ctypes
import os
from typing import Final

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

RESOLVE_NO_MAGICLINKS: Final = 2
RESOLVE_IN_ROOT: Final = 16

_ST_RELATIME: Final = 4096
_OPENAT2: Final = 437  # the same number on every architecture
_KEYCTL: Final = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def join(pid: int, flags: int) -> None:
    """Enter namespaces of another process."""
    pidfd = os.pidfd_open(pid)
    try:
        _checked(_libc.setns(pidfd, flags), "setns")
    finally:
        os.close(pidfd)


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    number = _libc.mount(*encoded, ctypes.c_ulong(flags), data.encode() if data is not None else None)
    _checked(number, f"mount {kind or 'bind'} on {target}")


def freeze(target: str) -> None:
    """Make a mount read-only, with the flags it has: in a user namespace none of those may be taken off."""
    flags = os.statvfs(target).f_flag
    kept = flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)
    if flags & _ST_RELATIME:
        kept |= MS_RELATIME
    mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def openat2(directory: int, path: str, flags: int) -> int:
    """Open `path` as if `directory` were the root: no link in it, whoever made it, leads outside."""
    how = _How(flags | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
    name = os.fsencode(path)
    while True:
        opened = _libc.syscall(_OPENAT2, directory, name, ctypes.byref(how), ctypes.sizeof(how))
        if opened >= 0:
            return int(opened)
        number = ctypes.get_errno()
        if number != 11:  # EAGAIN: something was renamed meanwhile, and the kernel could not be sure
            raise OSError(number, os.strerror(number), path)


def leave_session_keyring() -> None:
    """Keys of whoever started us are not for those we start."""
    if _KEYCTL is not None:
        _libc.syscall(_KEYCTL, 1, None)
