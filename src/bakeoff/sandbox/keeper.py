"""The process outside a box that holds its namespaces, runs its commands, and ends all when its owner is gone.

`main`, called with FD OWNER as arguments, is the launcher, one process for each Python process that opens boxes. For each
box it forks a keeper (a fork costs a millisecond, a new Python twenty). The keeper

* enters user, mount, network and IPC namespaces of its own and mounts the box's root there,
* listens on the box's loopback ports (bridge.py),
* for each command forks, enters the box's cgroups, sets limits and becomes bwrap,
* is a subreaper: a command has ended when every process below it has.

It watches its socket and its owner's pidfd. When either ends, by whatever signal, it kills what runs and exits; with its
last process a mount namespace and all mounts in it are gone.
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
from typing import Any, NoReturn

from bakeoff.engine import processes
from bakeoff.sandbox import bridge, overlay, syscalls, wire

_MAPPED = 65536
_WATCH_EVERY = 0.05
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41


def main() -> None:
    """The launcher's loop: one forked keeper for each socket that comes in."""
    server = socket.socket(fileno=int(sys.argv[1]))
    owner = os.pidfd_open(int(sys.argv[2]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the owner, who closes its boxes
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while _readable([server.fileno(), owner], None) == {server.fileno()}:
        received = wire.receive(server)
        if received is None:
            break
        _, (control,) = received
        ours, theirs = socket.socketpair()
        keeper = os.fork()
        if keeper == 0:
            server.close()
            ours.close()
            _keep(socket.socket(fileno=control), owner, theirs)
        theirs.close()
        os.close(control)
        _map_users(ours, keeper)
        ours.close()


def _map_users(child: socket.socket, pid: int) -> None:
    """Root maps many users into a namespace, from outside; anybody else maps one, from inside."""
    if child.recv(1) != b"m":
        return  # it needs no map, or it died
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(f"0 0 {min(_MAPPED, overlay.users_mapped())}")
    child.sendall(b"k")


def _keep(control: socket.socket, owner: int, launcher: socket.socket) -> NoReturn:
    """The life of a keeper."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        processes.become_subreaper()
        _Keeper(control, owner, launcher).serve()
        code = 0
    except Exception as error:  # told to the owner, who is the only one to hear it
        wire.send(control, {"error": str(error) or type(error).__name__})
    finally:
        os._exit(code)


class _Keeper:
    def __init__(self, control: socket.socket, owner: int, launcher: socket.socket) -> None:
        self._control = control
        self._owner = owner
        self._bridge = 0
        received = wire.receive(control)
        if received is None:
            os._exit(0)
        settings, fds = received
        self._enter(settings, launcher, image=fds[0] if fds else None)
        _close(fds)
        if settings["sockets"]:
            self._begin_bridge(settings["sockets"])
        root = os.open(overlay.ROOT, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        upper = os.open(overlay.upper(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._volume = upper
        wire.send(control, {"pid": os.getpid()}, [root, upper])
        os.close(root)

    def _enter(self, settings: dict[str, Any], launcher: socket.socket, image: int | None) -> None:
        """Root mounts first, with all rights, and enters the user namespace then; others need it in order to mount."""
        syscalls.leave_session_keyring()
        os.umask(0o022)
        root = os.geteuid() == 0
        namespaces = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
        if not settings["network"]:
            namespaces |= syscalls.CLONE_NEWNET
        if root:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            _mount(settings, image)
            syscalls.unshare(namespaces)
            launcher.sendall(b"m")
            if launcher.recv(1) != b"k":
                raise OSError(0, "the launcher is gone")
        else:
            uid, gid = os.geteuid(), os.getegid()
            syscalls.unshare(namespaces)
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"0 {uid} 1")
            _write("/proc/self/gid_map", f"0 {gid} 1")
            _mount(settings, image)
        launcher.close()
        if not settings["network"]:
            _raise_loopback()

    def _begin_bridge(self, sockets: dict[str, str]) -> None:
        listeners = {bridge.listen(int(port)): path for port, path in sockets.items()}
        keeper = os.getpid()
        self._bridge = os.fork()
        if self._bridge == 0:
            processes.die_with_parent(keeper)
            self._control.close()
            bridge.serve(listeners)
            while True:
                signal.pause()
        for listener in listeners:
            listener.close()

    def serve(self) -> None:
        """Run commands, one at a time, until the owner is gone."""
        while _readable([self._control.fileno(), self._owner], None) == {self._control.fileno()}:
            received = wire.receive(self._control)
            if received is None:
                return
            request, fds = received
            if not request:
                continue  # "end what runs", and it has ended already
            try:
                reply = self._run(request, fds)
            except OSError as error:
                reply = {"error": str(error)}
            _close(fds)
            wire.send(self._control, reply)

    def _run(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        # Further user namespaces would give a command rights to mount, in a world of its own but on our kernel.
        # bwrap needs some for a user that is not root, and closes the door behind itself.
        try:
            _write("/proc/sys/user/max_user_namespaces", "0" if request["uid"] == 0 else "100")
        except OSError:
            pass  # inside somebody's container /proc/sys can be read-only
        began = time.monotonic()
        command = os.fork()
        if command == 0:
            _become(request, fds)
        pidfd = os.pidfd_open(command)
        try:
            why = self._wait(command, pidfd, began, request)
        finally:
            os.close(pidfd)
        seconds = time.monotonic() - began
        code, cpu, peak = self._end(command)
        room = os.fstatvfs(self._volume)
        free = room.f_bavail * room.f_frsize
        return {"code": code, "why": why, "seconds": seconds, "cpu": cpu, "peak_kb": peak, "free": free}

    def _wait(self, command: int, pidfd: int, began: float, request: dict[str, Any]) -> str:
        """Until the command ends, or must."""
        deadline = began + request["timeout"] if request["timeout"] is not None else None
        watched = request["watch_mb"] is not None or request["watch_pids"] is not None
        watching = [self._control.fileno(), self._owner, pidfd]
        while True:
            left = max(deadline - time.monotonic(), 0) if deadline is not None else None
            if watched:
                left = _WATCH_EVERY if left is None else min(left, _WATCH_EVERY)
            ready = _readable(watching, left)
            if pidfd in ready:
                return ""
            if ready:  # the owner is gone, or wants the command to end; if it wants more, that waits
                return "cancelled"
            if deadline is not None and time.monotonic() >= deadline:
                return "timeout"
            if watched and (why := _excess(processes.descendants([command]), request)):
                return why

    def _end(self, command: int) -> tuple[int, float, int]:
        """Kill what is left, and return only when all of it is gone: bwrap's exit code, CPU seconds, peak KiB.

        The first process of a pid namespace can be waited for only when no other is left in it.
        """
        code, cpu, peak = 0, 0.0, 0
        while below := [pid for pid in processes.children() if pid != self._bridge]:
            processes.send(below, signal.SIGKILL)
            for pid in below:
                _, status, usage = os.wait4(pid, 0)
                cpu += usage.ru_utime + usage.ru_stime
                peak = max(peak, usage.ru_maxrss)
                if pid == command:
                    code = os.waitstatus_to_exitcode(status)
        return code, cpu, peak


def _excess(pids: list[int], request: dict[str, Any]) -> str:
    """Which limit these processes exceed, of those that no cgroup holds."""
    most = request["watch_mb"]
    if most is not None and processes.resident(pids) > most << 20 and _own_share(pids) > most << 20:
        return "memory"
    return "pids" if request["watch_pids"] is not None and len(pids) > request["watch_pids"] else ""


def _own_share(pids: list[int]) -> int:
    """Memory in bytes, with what several processes share counted once. Slower to tell than what is resident in each."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total += sum(int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:"))
        except OSError:
            total += processes.resident([pid])
    return total


def _mount(settings: dict[str, Any], image: int | None) -> None:
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    overlay.mount_stage()
    overlay.mount_root(settings["lowers"], settings["directory"], settings["disk_mb"], image)
    overlay.stage_mounts(settings["mounts"])


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """In the forked child: enter cgroups, set limits, be the right user, and become bwrap."""
    try:
        stdin, stdout, stderr, arguments, status, *groups = fds
        for group in groups:
            os.write(group, b"0")
        for name, value in request["rlimits"].items():
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))
        if request["affinity"]:
            os.sched_setaffinity(0, request["affinity"])
        for number, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, number)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and os.path.exists(f"/proc/self/fd/{fd}"):
                os.set_inheritable(fd, fd in (arguments, status))
        os.setsid()
        if request["switch"]:
            os.setgroups(request["groups"])
            os.setresgid(*[request["gid"]] * 3)
            os.setresuid(*[request["uid"]] * 3)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        options = ["--args", str(arguments), "--json-status-fd", str(status)]
        os.execve(request["bwrap"], ["bwrap", *options, "--", *request["argv"]], {})
    except BaseException as error:
        os.write(2, f"bwrap: cannot begin: {error}\n".encode())
    finally:
        os._exit(125)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP_RUNNING))


def _readable(fds: Sequence[int], timeout: float | None) -> set[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
