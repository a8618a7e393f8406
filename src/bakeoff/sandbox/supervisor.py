"""The process outside a box that holds its namespaces, runs its commands, and ends everything when its owner is gone.

    owner (bubblewrap.py) -- launcher, one for each owner -- supervisor, one for each box -- starter -- bwrap -- command

`main`, with a socket and the owner's pid as arguments, is the launcher. For each box it forks a supervisor: a fork
costs a millisecond, a new Python twenty. The supervisor

* enters new user, mount, network and IPC namespaces and mounts the box's root there (overlay.py),
* listens on the box's loopback ports (bridge.py),
* has each command started by another process, the starter, watches it, and waits for its end,
* is a subreaper (PR_SET_CHILD_SUBREAPER): a command has ended when every process below it has.

It watches its socket and a pidfd of its owner. When either ends, by whatever signal, it kills what runs and exits; the
kernel removes a mount namespace, with all mounts in it, when the last process in it is gone (mount_namespaces(7)).
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from bakeoff.engine import processes
from bakeoff.sandbox import overlay, syscalls
from bakeoff.sandbox.syscalls import Message, receive, send

if TYPE_CHECKING:
    from bakeoff.sandbox.launcher import Reply, Request, Settings

_MAPPED_IDS = 65536
_WATCH_SECONDS = 0.05
_BRIDGE_SECONDS = 5.0
_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""What the launcher, or Python, ignores and a command should not."""
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41  # netdevice(7)


def main() -> None:
    """The loop of the launcher: give each socket that arrives to a supervisor that is already forked and waiting."""
    server = socket.socket(fileno=int(sys.argv[1]))
    owner = os.pidfd_open(int(sys.argv[2]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # for the owner, which then closes its boxes
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors that end leave no zombies (wait(2))
    gc.disable()  # a collection in a forked child would write to, and so copy, every page of Python objects
    while True:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        supervisor = os.fork()
        if supervisor == 0:
            server.close()
            ours.close()
            _supervise(owner, theirs)
        theirs.close()
        with ours:
            if _readable([server.fileno(), owner], None) != {server.fileno()}:
                break
            received = receive(server)
            if received is None:
                break
            send(ours, {}, received.fds)
            for fd in received.fds:
                os.close(fd)
            # user_namespaces(7): only a process with rights in the parent namespace may map many users, so root's
            # supervisor asks for it. Anybody else maps one user, from inside; then this is the end of the socket.
            if ours.recv(1) == b"m":
                for name in ("uid_map", "gid_map"):
                    _write(f"/proc/{supervisor}/{name}", f"0 0 {min(_MAPPED_IDS, overlay.users_mapped())}")
                ours.sendall(b"k")


def _supervise(owner: int, launcher: socket.socket) -> NoReturn:
    """The life of a supervisor: wait for an owner's socket, serve it, exit. Errors are sent to the owner."""
    code = 1
    control: socket.socket | None = None
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would make wait4(2) lose the exit status
        processes.become_subreaper()  # orphans below us become our children (PR_SET_CHILD_SUBREAPER, prctl(2))
        syscalls.leave_session_keyring()
        os.umask(0o022)
        starter = Starter()
        received = receive(launcher)
        if received is not None:
            control = socket.socket(fileno=received.fds[0])
            settings = receive(control)
            if settings is not None:
                _Supervisor(control, owner, launcher, starter, settings).serve()
        code = 0
    except Exception as error:  # nobody else would hear of it: standard error is closed
        if control is not None:
            send(control, {"error": str(error) or type(error).__name__})
    finally:
        os._exit(code)


class _Supervisor:
    """One box, seen from the process that holds it."""

    def __init__(
        self, control: socket.socket, owner: int, launcher: socket.socket, starter: Starter, message: Message
    ) -> None:
        """Make the box that the first message describes, and send the owner its root and upper directory."""
        settings, fds = cast("Settings", message.body), message.fds
        self._control = control
        self._owner = owner
        self._settings = settings
        self._join_fds = [fds.pop() for _ in range(settings["join_fds"])]
        image = fds[0] if fds else None
        namespaces = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
        if not settings["network"]:
            namespaces |= syscalls.CLONE_NEWNET
        self._starter = starter
        starter.limit(settings, self._join_fds, namespaces)
        self._enter(namespaces, launcher, image)
        for fd in fds:
            os.close(fd)
        self._bridge = self._start_bridge() if settings["sockets"] else 0
        root = os.open(overlay.ROOT, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._upper = os.open(overlay.UPPER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        shared = os.open(overlay.SHARED_MEMORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # File systems whose content is memory, for `_exceeded`: a limited volume without an image is a tmpfs.
        tmpfs_volume = image is None and settings["disk_mb"] is not None
        self._in_memory = [shared, self._upper] if tmpfs_volume else [shared]
        send(control, {"pid": os.getpid()}, [root, self._upper])
        os.close(root)

    def _enter(self, namespaces: int, launcher: socket.socket, image: int | None) -> None:
        """Enter the namespaces of the box and make its mounts.

        Root mounts first, while it still has all rights, and enters the user namespace then. Anybody else has the right
        to mount only inside a user namespace, and may map only itself (user_namespaces(7)).
        """
        if os.geteuid() == 0:
            syscalls.unshare(syscalls.CLONE_NEWNS)  # else our mounts would be made in the owner's namespace
            overlay.mount_all(self._settings, image)
            syscalls.unshare(namespaces)
            launcher.sendall(b"m")
            if launcher.recv(1) != b"k":
                raise OSError(0, "the launcher is gone")
        else:
            uid, gid = os.geteuid(), os.getegid()
            syscalls.unshare(namespaces)
            # Required before an unprivileged gid_map: who could drop a group could reach files that the group's mode
            # forbids (CVE-2014-8989, user_namespaces(7)).
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"0 {uid} 1")
            _write("/proc/self/gid_map", f"0 {gid} 1")
            overlay.mount_all(self._settings, image)
        launcher.close()
        # What a box has of these counts for the user who opened it, too, and must not be all that this user may have.
        for kind in ("instances", "watches"):
            if most := processes.text(f"/proc/sys/fs/inotify/max_user_{kind}"):
                _write(f"/proc/sys/user/max_inotify_{kind}", str(max(1, int(most) // 4)))
        if not self._settings["network"]:  # the loopback of a new network namespace is down
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP_RUNNING))

    def _start_bridge(self) -> int:
        """Fork a process that forwards the box's ports, which only we can bind in its network namespace. Its pid."""
        from bakeoff.sandbox import bridge  # most boxes have none, and a fork copies what is loaded

        listeners = {bridge.listen(int(port)): path for port, path in self._settings["sockets"].items()}
        supervisor = os.getpid()
        self._to_bridge, orders = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            self._to_bridge.close()
            processes.die_with_parent(supervisor)
            for fd in self._join_fds:  # what its connections cost is the box's to spend
                os.write(fd, b"0")
            self._control.close()
            bridge.serve(listeners)
            while orders.recv(1):  # a command has ended, and everything that could have had a connection with it
                bridge.hang_up()
                orders.sendall(b"k")
            os._exit(0)
        orders.close()
        self._to_bridge.settimeout(_BRIDGE_SECONDS)
        for listener in listeners:
            listener.close()
        return pid

    def _hang_up(self) -> None:
        """Have the bridge end the connections of a command that has ended, so that the next one has all of its threads."""
        try:
            self._to_bridge.sendall(b"h")
            self._to_bridge.recv(1)
        except OSError:
            pass  # the kernel killed the bridge for the box's memory: what the box has no room for, it does not have

    def serve(self) -> None:
        """Run commands, one at a time, until the owner is gone."""
        while _readable([self._control.fileno(), self._owner], None) == {self._control.fileno()}:
            received = receive(self._control)
            if received is None:
                break
            if not received.body:
                continue  # "end what runs", but it has ended already
            reply: Reply | dict[str, Any]
            try:
                reply = self._run(cast("Request", received.body), received.fds)
            except CannotStart as error:
                reply = {"error": str(error), "started": False}
            except OSError as error:
                reply = {"error": str(error)}
            for fd in received.fds:
                os.close(fd)
            send(self._control, reply)
        self._starter.close()

    def _run(self, request: Request, fds: list[int]) -> Reply:
        """Run one command to its end, and end whatever it left."""
        # A user namespace of its own would give a command the right to mount: harmless to our files, but most kernel
        # exploits of the last years began there. bwrap needs some for a user that is not root, and blocks further
        # ones itself (--disable-userns).
        try:
            _write("/proc/sys/user/max_user_namespaces", "0" if request["uid"] == 0 else "100")
        except OSError:
            pass  # /proc/sys can be read-only in a container; the seccomp filter refuses new namespaces too
        if self._starter.user not in (0, request["uid"]) or not processes.alive(self._starter.pid):
            self._starter.close()
            self._starter = Starter()
            self._starter.limit(self._settings, self._join_fds)
        began = time.monotonic()
        started = self._starter.start(request, fds)
        why = ""
        if started is not None:
            try:
                why = self._wait(started.pid, began, request)
                if why:
                    signal.pidfd_send_signal(started.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended at the same moment
            finally:
                os.close(started.pidfd)
        seconds = time.monotonic() - began
        end = self._starter.wait()
        cpu, peak_kb = self._end_rest()
        volume = os.fstatvfs(self._upper)
        return {
            "code": end.code,
            "why": why,
            "seconds": seconds,
            "cpu": end.cpu + cpu,
            "peak_kb": max(end.peak_kb, peak_kb),
            "free": volume.f_bavail * volume.f_frsize,
        }

    def _wait(self, command: int, began: float, request: Request) -> str:
        """Wait until the command has ended, or must. Returns why it must, empty when it has ended by itself."""
        deadline = began + request["timeout"] if request["timeout"] is not None else None
        watched = request["watch_mb"] is not None or request["watch_pids"] is not None
        sources = [self._control.fileno(), self._owner, self._starter.fd]
        while True:
            left = max(deadline - time.monotonic(), 0) if deadline is not None else None
            if watched:
                left = _WATCH_SECONDS if left is None else min(left, _WATCH_SECONDS)
            ready = _readable(sources, left)
            if self._starter.fd in ready:
                return ""
            if ready:  # the owner is gone, or wants the command to end; a further request waits in the socket
                return "cancelled"
            if deadline is not None and time.monotonic() >= deadline:
                return "timeout"
            if watched and (why := self._exceeded(processes.descendants([command]), request)):
                return why

    def _exceeded(self, pids: list[int], request: Request) -> str:
        """Which limit these processes exceed, "memory" or "pids", of those that no cgroup enforces; else empty."""
        volumes = [os.fstatvfs(fd) for fd in self._in_memory]
        stored = sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in volumes)
        limit = request["watch_mb"] << 20 if request["watch_mb"] is not None else None
        # Resident sizes count shared pages once for each process. They are fast to read and never too low, so the
        # exact figure is read only when they exceed the limit.
        if limit is not None and processes.resident(pids) + stored > limit:
            # Memory with shared pages counted once: Pss of /proc/PID/smaps_rollup (proc_pid_smaps(5)).
            total = shared = 0
            for pid in pids:
                lines = processes.text(f"/proc/{pid}/smaps_rollup").splitlines()
                sizes = {line.split()[0]: int(line.split()[1]) << 10 for line in lines if line.startswith("Pss")}
                # Without a size it belongs to another user, or has ended.
                total += sizes["Pss:"] if "Pss:" in sizes else processes.resident([pid])
                shared += sizes.get("Pss_Shmem:", 0)
            # What the processes have mapped of shared memory may be files of the box, `stored`, or none of them: the
            # larger counts.
            if total - shared + max(shared, stored) > limit:
                # The shares of the others grow when a process ends: then pages may have been counted twice.
                left = [pid for pid in pids if processes.alive(pid)]
                return "memory" if len(left) == len(pids) else self._exceeded(left, request)
        return "pids" if request["watch_pids"] is not None and len(pids) > request["watch_pids"] else ""

    def _end_rest(self) -> tuple[float, int]:
        """Kill what a command left, and return only when all of it is gone: CPU seconds, peak KiB.

        pid_namespaces(7): the first process of a pid namespace is reaped only when no other process is left in it.
        """
        cpu, peak_kb = 0.0, 0
        while below := [pid for pid in processes.children() if pid not in (self._bridge, self._starter.pid)]:
            processes.send(below, signal.SIGKILL)
            for pid in below:
                _, _, usage = os.wait4(pid, 0)
                cpu += usage.ru_utime + usage.ru_stime
                peak_kb = max(peak_kb, usage.ru_maxrss)
        if self._bridge:
            self._hang_up()
        return cpu, peak_kb


# -- the starter


class CannotStart(OSError):
    """A command cannot be started."""


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
    """The process that starts a box's commands, seen from its supervisor, which forks it and talks to it over a socket.

    It is in the box's cgroups, and so is everything it starts. Joining a cgroup can take longer than the rest of a
    command: the kernel takes cgroup_threadgroup_rwsem for writing, which waits for an RCU grace period (its
    Documentation/locking/percpu-rw-semaphore.rst). So the starter joins once for each box, while the supervisor is
    still mounting, and no command waits.
    """

    def __init__(self) -> None:
        """Fork the process. It waits for `limit`."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.fd = self._socket.fileno()
        """Readable when the command has ended."""
        self.user = 0
        """Who the process is: from root it can become one other user, once."""
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._socket.close()
                _start_commands(theirs, supervisor)
            finally:
                os._exit(0)
        theirs.close()

    def limit(self, settings: Settings, join_fds: list[int], namespaces: int = 0) -> None:
        """Have the process join cgroups, through open cgroup.procs files, and set its resource limits.

        `namespaces` are those that the supervisor is about to enter; the process joins them before its first command.
        """
        send(self._socket, {**settings, "namespaces": namespaces}, join_fds)

    def start(self, request: Request, fds: list[int]) -> Started | None:
        """Start a command. None when the starter was killed meanwhile, which happens when the box's memory is full.

        Raises CannotStart.
        """
        self.user = request["uid"] if request["switch"] else 0
        try:
            send(self._socket, request, fds)
            received = receive(self._socket)
        except ConnectionError:
            return None
        if received is None:
            return None
        if "error" in received.body:
            raise CannotStart(received.body["error"])
        return Started(received.body["pid"], received.fds[0])

    def wait(self) -> End:
        """How the command ended, once `fd` is readable. When the starter was killed, so was the command."""
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


def _start_commands(control: socket.socket, supervisor: int) -> None:
    """The life of the starter: apply limits, then start one command after another until the socket is closed."""
    processes.die_with_parent(supervisor)
    settings = receive(control)
    if settings is None:
        return
    problem: OSError | None = None
    try:
        for fd in settings.fds:
            os.write(fd, b"0")  # "0" is the writer itself (cgroups(7))
        for name, value in settings.body["rlimits"].items():
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))
        if settings.body["affinity"]:
            os.sched_setaffinity(0, settings.body["affinity"])
    except OSError as error:  # it is the answer to the first command
        problem = OSError(f"its limits cannot be set: {error}")
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
                # All three numbers each: a saved number that stayed 0 could be taken back (setresuid(2)).
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
        # The supervisor kills by pidfd: the pid may be used again once `wait4` below has returned (pidfd_open(2)).
        pidfd = os.pidfd_open(pid)
        send(control, {"pid": pid}, [pidfd])
        os.close(pidfd)
        _, status, usage = os.wait4(pid, 0)
        end = End(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
        send(control, end._asdict())


def _spawn_bwrap(request: Request, fds: list[int]) -> int:
    """Start bwrap with the command of `request` and return its pid. It gets three streams and what it reads itself."""
    stdin, stdout, stderr, arguments, status = fds
    options = ["--args", str(arguments), "--json-status-fd", str(status)]
    inherited = [arguments, status]
    if (program := syscalls.seccomp_filter(request["tracing"])) is not None:
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


def _readable(fds: Sequence[int], timeout: float | None) -> set[int]:
    """Which of `fds` can be read, or are at their end, within `timeout` seconds.

    A pidfd is when its process has ended.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}


def _write(path: str, text: str) -> None:
    """Write a file of /proc, in one write(2): uid_map and gid_map can be written only once (user_namespaces(7))."""
    with open(path, "w") as file:
        file.write(text)
