"""The process that starts a box's commands. It sits in the box's cgroups, and so does whatever it starts.

Entering a cgroup can take longer than all the rest of a command, because the kernel waits for every CPU. So it is done
once for a box, while the keeper is still mounting, and no command has to.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from typing import Any, NoReturn

from bakeoff.engine import processes
from bakeoff.sandbox import seccomp, syscalls, wire

_DEFAULTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
_KILLED = {"code": -signal.SIGKILL, "cpu": 0.0, "peak_kb": 0}


class Starter:
    """The keeper's end."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._user = 0
        keeper = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _serve(theirs, keeper)
        theirs.close()

    def limit(self, settings: dict[str, Any], doors: list[int], join: int = 0) -> None:
        """Have it enter cgroups, by their open `doors`, and set limits.

        `join` are namespaces that the keeper is about to enter, and it is to enter when there is a command.
        """
        wire.send(self._socket, {**settings, "join": join}, doors)

    def fileno(self) -> int:
        """Readable when the command has ended."""
        return self._socket.fileno()

    def serves(self, request: dict[str, Any]) -> bool:
        """Whether it still can be the user that is asked for: it is root at first, and then somebody once and for all."""
        return self._user in (0, request["uid"]) and processes.alive(self.pid)

    def begin(self, request: dict[str, Any], fds: list[int]) -> tuple[int, int] | None:
        """Start a command; its pid and pidfd. None when the starter was killed over it: the box's memory is full."""
        self._user = request["uid"] if request["switch"] else 0
        try:
            wire.send(self._socket, request, fds)
            received = wire.receive(self._socket)
        except ConnectionError:
            return None
        if received is None:
            return None
        reply, pidfd = received
        if "error" in reply:
            raise OSError(reply["error"])
        return reply["pid"], pidfd[0]

    def ended(self) -> dict[str, Any]:
        """How the command ended: its code, CPU seconds and peak memory. When the starter was killed, so was the command."""
        try:
            received = wire.receive(self._socket)
        except ConnectionError:
            received = None
        return received[0] if received is not None else dict(_KILLED)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # a bridge was forked with this end open: closing it is no end
        self._socket.close()
        os.waitpid(self.pid, 0)


def _serve(call: socket.socket, keeper: int) -> NoReturn:
    try:
        processes.die_with_parent(keeper)
        begun = wire.receive(call)
        if begun is not None:
            _start_commands(call, keeper, *begun)
    finally:
        os._exit(0)


def _start_commands(call: socket.socket, keeper: int, settings: dict[str, Any], doors: list[int]) -> None:
    problem = _enter(doors, settings)
    join, user = settings["join"], 0
    while (received := wire.receive(call)) is not None:
        request, fds = received
        try:
            if problem is not None:
                raise problem
            if join:
                syscalls.join(keeper, join)
                join = 0
            if request["switch"] and user == 0:
                _become(request)
                user = request["uid"]
            pid = _spawn(request, fds)
        except OSError as error:
            wire.send(call, {"error": str(error)})
            continue
        finally:
            for fd in fds:
                os.close(fd)
        _tell_end(call, pid)


def _enter(doors: list[int], settings: dict[str, Any]) -> OSError | None:
    """Be limited. What goes wrong is told to whoever comes with a command."""
    try:
        for door in doors:
            os.write(door, b"0")
        for name, value in settings["rlimits"].items():
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))
        if settings["affinity"]:
            os.sched_setaffinity(0, settings["affinity"])
    except OSError as error:
        return OSError(f"its limits cannot be set: {error}")
    return None


def _become(request: dict[str, Any]) -> None:
    os.setgroups(request["groups"])
    os.setresgid(*[request["gid"]] * 3)
    os.setresuid(*[request["uid"]] * 3)


def _spawn(request: dict[str, Any], fds: list[int]) -> int:
    stdin, stdout, stderr, arguments, status = fds
    options = ["--args", str(arguments), "--json-status-fd", str(status)]
    passed = [arguments, status]
    if (rules := seccomp.program()) is not None:
        passed.append(os.memfd_create("rules", os.MFD_CLOEXEC))
        os.write(passed[-1], rules)
        os.lseek(passed[-1], 0, os.SEEK_SET)
        options += ["--seccomp", str(passed[-1])]
    for fd in passed:  # everything else that is open closes itself
        os.set_inheritable(fd, True)
    try:
        return os.posix_spawn(
            request["bwrap"],
            ["bwrap", *options, "--", *request["argv"]],
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((stdin, stdout, stderr))],
            setsid=True,
            setsigmask=[],
            setsigdef=_DEFAULTED,
        )
    finally:
        for fd in passed[2:]:
            os.close(fd)


def _tell_end(call: socket.socket, pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    wire.send(call, {"pid": pid}, [pidfd])
    os.close(pidfd)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    wire.send(call, {"code": code, "cpu": usage.ru_utime + usage.ru_stime, "peak_kb": usage.ru_maxrss})
