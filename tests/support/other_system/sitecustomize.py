"""Hide from bakeoff what only Linux, or only POSIX, has. On PYTHONPATH, Python imports this before anything else.

Only code in bakeoff sees the other system: the standard library and numpy chose their implementation for this one when
they were imported. What is hidden is the difference of typeshed's `os`, `signal`, `socket` and `select` between Linux and
Windows, as far as code like ours uses it.
"""

from __future__ import annotations

import builtins
import errno
import os
import select
import signal
import socket
import sys
from types import FrameType, ModuleType
from typing import Any

MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix", "crypt", "spwd", "nis"}
NAMES: dict[ModuleType, set[str]] = {
    os: {
        "fork", "forkpty", "posix_spawn", "posix_spawnp", "geteuid", "getuid", "getegid", "getgid", "getgroups", "getsid",
        "getpgid", "getpgrp", "setsid", "setpgid", "setuid", "setgid", "killpg", "wait", "waitid", "wait3", "wait4",
        "WNOHANG", "P_ALL", "P_PID", "P_PIDFD", "pidfd_open", "uname", "getloadavg", "sysconf", "statvfs", "fstatvfs",
        "sched_getaffinity", "sched_setaffinity", "nice", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_TMPFILE", "O_PATH",
        "O_NONBLOCK", "O_SYNC", "O_DSYNC", "SEEK_DATA", "SEEK_HOLE", "pread", "pwrite", "preadv", "pwritev", "chown",
        "fchown", "lchown", "fchdir", "fdatasync", "sync", "mkfifo", "mknod", "major", "minor", "makedev", "chroot",
        "sendfile", "copy_file_range", "memfd_create", "eventfd", "openpty", "getxattr", "setxattr", "listxattr",
        "posix_fallocate", "posix_fadvise", "lockf", "ctermid", "fwalk", "splice", "unshare", "setns", "tcgetpgrp",
    },
    signal: {
        "SIGKILL", "SIGHUP", "SIGQUIT", "SIGCHLD", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "SIGSTOP", "SIGCONT",
        "SIGWINCH", "SIGTSTP", "SIGXCPU", "SIGRTMIN", "SIGRTMAX", "SIG_BLOCK", "SIG_SETMASK", "SIG_UNBLOCK", "alarm",
        "setitimer", "pthread_sigmask", "pthread_kill", "sigwait", "sigtimedwait", "siginterrupt", "pause",
    },
    select: {"epoll", "poll", "EPOLLIN", "POLLIN"},
    socket: {"AF_UNIX", "AF_VSOCK", "socketpair_unix", "SCM_RIGHTS", "sethostname"},
}  # fmt: skip
REPLACED: dict[ModuleType, dict[str, Any]] = {
    os: {"name": "nt", "supports_dir_fd": set(), "supports_fd": set(), "supports_follow_symlinks": set()},
    sys: {"platform": "win32"},
}


_frame = sys._getframe


def _in_bakeoff(frame: FrameType | None) -> bool:
    """Whether the innermost frame that is not of the standard library's file functions is code of bakeoff."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in ("pathlib", "io", "os", "posixpath", "genericpath", "ctypes", "subprocess", __name__):  # fmt: skip
            return bool(name == "bakeoff" or name.startswith("bakeoff."))
        frame = frame.f_back
    return False


class _Hiding(ModuleType):
    """A module that has no attribute of the hidden names when code of bakeoff asks for it."""

    def __getattribute__(self, name: str) -> Any:
        try:
            caller = _frame(1).f_globals.get("__name__", "")
        except ValueError:  # the interpreter asks
            caller = ""
        if caller == "bakeoff" or caller.startswith("bakeoff."):
            if name in NAMES.get(self, ()):
                raise AttributeError(
                    f"module {ModuleType.__getattribute__(self, '__name__')!r} has no attribute {name!r}"
                )
            if name in REPLACED.get(self, {}):
                return REPLACED[self][name]
        return ModuleType.__getattribute__(self, name)


_import = builtins.__import__


def _hiding_import(name: str, globals: Any = None, *rest: Any, **more: Any) -> Any:
    caller = (globals or {}).get("__name__", "")
    if name in MODULES and (caller == "bakeoff" or caller.startswith("bakeoff.")):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _import(name, globals, *rest, **more)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise as Windows does for the events of audit hooks that need something of Linux."""
    if event not in ("open", "os.listdir", "os.scandir", "os.symlink", "os.chown", "ctypes.dlopen", "socket.__new__", "subprocess.Popen", "os.fork", "os.posix_spawn"):  # fmt: skip
        return
    if not _in_bakeoff(_frame(1)):
        return
    if event in ("open", "os.listdir", "os.scandir"):
        path = arguments[0]
        if isinstance(path, str) and path.startswith(("/proc", "/sys/", "/dev/shm")):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if event == "open" and isinstance(path, str) and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)  # a directory cannot be opened
    elif event == "os.symlink":
        raise OSError(errno.EPERM, "A required privilege is not held by the client", arguments[1])
    elif event == "ctypes.dlopen" and arguments[0] is None:
        raise TypeError("bad argument type for built-in operation")
    elif event == "socket.__new__" and arguments[1] == 1:  # AF_UNIX
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported")
    elif event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.chown"):
        raise OSError(errno.ENOSYS, f"{event} was called", str(arguments[:1]))


for module in {*NAMES, *REPLACED}:
    module.__class__ = _Hiding
builtins.__import__ = _hiding_import
sys.addaudithook(_refuse)
