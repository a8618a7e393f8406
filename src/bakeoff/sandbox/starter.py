"""The process that starts a box's commands. It is in the box's cgroups, and so is everything it starts.

Joining a cgroup can take longer than the rest of a command: the kernel takes a per-CPU lock for it, which waits for an
RCU grace period. So the starter joins once for each box, while the supervisor is still mounting, and no command waits.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from bakeoff.engine import processes
from bakeoff.sandbox import seccomp, syscalls
from bakeoff.sandbox.syscalls import receive, send

if TYPE_CHECKING:
    from bakeoff.sandbox.supervisor import Request, Settings

_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""What the launcher, or Python, ignores and a command should not."""


class Started(NamedTuple):
    """A command that runs: the pid of its bwrap, and a pidfd that the receiver closes."""

    pid: int
    pidfd: int


class End(NamedTuple):
    """How the bwrap of a command ended; a negative code is a signal."""

    code: int
    cpu: float
    peak_kb: int


class Starter:
    """The supervisor's end: it forks the process in `__init__` and talks to it over a socket."""

    def __init__(self) -> None:
        """Fork the process. It waits for `limit`."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._user = 0
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._socket.close()
                _serve(theirs, supervisor)
            finally:
                os._exit(0)
        theirs.close()

    def limit(self, settings: Settings, join_fds: list[int], namespaces: int = 0) -> None:
        """Have the process join cgroups, through open cgroup.procs files, and set its resource limits.

        `namespaces` are those that the supervisor is about to enter; the process joins them before its first command.
        """
        send(self._socket, {**settings, "namespaces": namespaces}, join_fds)

    def fileno(self) -> int:
        """A descriptor that is readable when the command has ended."""
        return self._socket.fileno()

    def serves(self, request: Request) -> bool:
        """Whether this process can run a command as the user of `request`: from root it can become one other user."""
        return self._user in (0, request["uid"]) and processes.alive(self.pid)

    def start(self, request: Request, fds: list[int]) -> Started | None:
        """Start a command. None when the starter was killed meanwhile, which happens when the box's memory is full.

        Raises OSError when the command cannot be started.
        """
        self._user = request["uid"] if request["switch"] else 0
        try:
            send(self._socket, request, fds)
            received = receive(self._socket)
        except ConnectionError:
            return None
        if received is None:
            return None
        if "error" in received.body:
            raise OSError(received.body["error"])
        return Started(received.body["pid"], received.fds[0])

    def wait(self) -> End:
        """How the command ended, once `fileno` is readable. When the starter was killed, so was the command."""
        try:
            received = receive(self._socket)
        except ConnectionError:
            received = None
        return End(**received.body) if received is not None else End(-signal.SIGKILL, 0.0, 0)

    def close(self) -> None:
        """End the process."""
        self._socket.shutdown(socket.SHUT_RDWR)  # the bridge was forked with this socket open: close() would not end it
        self._socket.close()
        os.waitpid(self.pid, 0)


def _serve(control: socket.socket, supervisor: int) -> None:
    """The life of the starter: apply limits, then start one command after another until the socket is closed."""
    processes.die_with_parent(supervisor)
    settings = receive(control)
    if settings is None:
        return
    problem = _apply_limits(settings.fds, settings.body)
    namespaces, user = settings.body["namespaces"], 0
    while (received := receive(control)) is not None:
        request = cast("Request", received.body)
        try:
            if problem is not None:
                raise problem
            if namespaces:
                syscalls.join_namespaces(supervisor, namespaces)
                namespaces = 0
            if request["switch"] and user == 0:
                # Groups first: after the change of user there is no right to change them (setgroups(2)).
                os.setgroups(request["groups"])
                os.setresgid(*[request["gid"]] * 3)
                os.setresuid(*[request["uid"]] * 3)
                user = request["uid"]
            pid = _spawn_bwrap(request, received.fds)
        except OSError as error:
            send(control, {"error": str(error)})
            continue
        finally:
            for fd in received.fds:
                os.close(fd)
        pidfd = os.pidfd_open(pid)
        send(control, {"pid": pid}, [pidfd])
        os.close(pidfd)
        _, status, usage = os.wait4(pid, 0)
        end = End(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
        send(control, end._asdict())


def _apply_limits(join_fds: list[int], settings: dict[str, Any]) -> OSError | None:
    """Join cgroups, set resource limits and CPU affinity. What goes wrong is the answer to the first command."""
    try:
        for fd in join_fds:
            os.write(fd, b"0")  # "0" is the writer itself (cgroups(7))
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


def _spawn_bwrap(request: Request, fds: list[int]) -> int:
    """Start bwrap with the command of `request` and return its pid. It gets three streams and what it reads itself."""
    stdin, stdout, stderr, arguments, status = fds
    options = ["--args", str(arguments), "--json-status-fd", str(status)]
    inherited = [arguments, status]
    if (program := seccomp.program()) is not None:
        inherited.append(os.memfd_create("rules", os.MFD_CLOEXEC))
        os.write(inherited[-1], program)
        os.lseek(inherited[-1], 0, os.SEEK_SET)
        options += ["--seccomp", str(inherited[-1])]
    for fd in inherited:  # every other descriptor has O_CLOEXEC and is closed when bwrap is executed
        os.set_inheritable(fd, True)
    try:
        return os.posix_spawn(
            request["bwrap"],
            ["bwrap", *options, "--", *request["argv"]],
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((stdin, stdout, stderr))],
            setsid=True,  # no controlling terminal that a command could push input into (TIOCSTI, ioctl_tty(2))
            setsigmask=[],
            setsigdef=_DEFAULT_SIGNALS,
        )
    finally:
        for fd in inherited[2:]:
            os.close(fd)
