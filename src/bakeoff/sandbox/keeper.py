"""The process outside a box that holds its namespaces, runs its commands, and ends all when its owner is gone.

`main`, called with FD OWNER as arguments, is the launcher, one process for each Python process that opens boxes. For each
box it forks a keeper (a fork costs a millisecond, a new Python twenty). The keeper

* enters user, mount, network and IPC namespaces of its own and mounts the box's root there,
* listens on the box's loopback ports (bridge.py),
* has each command started (starter.py), and sees to its end,
* is a subreaper: a command has ended when every process below it has.

It watches its socket and its owner's pidfd. When either ends, by whatever signal, it kills what runs and exits; with its
last process a mount namespace and all mounts in it are gone.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from bakeoff.engine import processes
from bakeoff.sandbox import overlay, syscalls, wire
from bakeoff.sandbox.starter import Starter

_MAPPED = 65536
_WATCH_EVERY = 0.05
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41


def main() -> None:
    """The launcher's loop: a keeper for each socket that comes in, and the next one forked before it is asked for."""
    server = socket.socket(fileno=int(sys.argv[1]))
    owner = os.pidfd_open(int(sys.argv[2]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the owner, who closes its boxes
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.disable()  # a collection in a forked child would touch, and so copy, all that there is
    while True:
        keeper, ours = _fork_keeper(server, owner)
        with ours:
            if _readable([server.fileno(), owner], None) != {server.fileno()}:
                break
            received = wire.receive(server)
            if received is None:
                break
            _, (control,) = received
            wire.send(ours, {}, [control])
            os.close(control)
            _map_users(ours, keeper)


def _fork_keeper(server: socket.socket, owner: int) -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keeper = os.fork()
    if keeper == 0:
        server.close()
        ours.close()
        _keep(owner, theirs)
    theirs.close()
    return keeper, ours


def _map_users(child: socket.socket, pid: int) -> None:
    """Root maps many users into a namespace, from outside; anybody else maps one, from inside."""
    if child.recv(1) != b"m":
        return  # it needs no map, or it died
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(f"0 0 {min(_MAPPED, overlay.users_mapped())}")
    child.sendall(b"k")


def _keep(owner: int, launcher: socket.socket) -> NoReturn:
    """The life of a keeper."""
    code = 1
    control: socket.socket | None = None
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        processes.become_subreaper()
        syscalls.leave_session_keyring()
        os.umask(0o022)
        starter = Starter()
        received = wire.receive(launcher)
        if received is not None:
            control = socket.socket(fileno=received[1][0])
            _Keeper(control, owner, launcher, starter).serve()
        code = 0
    except Exception as error:  # told to the owner, who is the only one to hear it
        if control is not None:
            wire.send(control, {"error": str(error) or type(error).__name__})
    finally:
        os._exit(code)


class _Keeper:
    def __init__(self, control: socket.socket, owner: int, launcher: socket.socket, starter: Starter) -> None:
        self._control = control
        self._owner = owner
        self._bridge = 0
        received = wire.receive(control)
        if received is None:
            os._exit(0)
        settings, fds = received
        self._doors = [fds.pop() for _ in range(settings["groups"])]
        image = fds[0] if fds else None
        self._namespaces = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
        if not settings["network"]:
            self._namespaces |= syscalls.CLONE_NEWNET
        self._settings = settings
        self._starter = starter
        starter.limit(settings, self._doors, self._namespaces)
        self._enter(settings, launcher, image)
        _close(fds)
        if settings["sockets"]:
            self._begin_bridge(settings["sockets"])
        root = os.open(overlay.ROOT, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        upper = os.open(overlay.upper(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._volume = upper
        shared = os.open(overlay.SHARED_MEMORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._in_memory = [shared] if image is not None or settings["disk_mb"] is None else [shared, upper]
        wire.send(control, {"pid": os.getpid()}, [root, upper])
        os.close(root)

    def _enter(self, settings: dict[str, Any], launcher: socket.socket, image: int | None) -> None:
        """Root mounts first, with all rights, and enters the user namespace then; others need it in order to mount."""
        if os.geteuid() == 0:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            _mount(settings, image)
            syscalls.unshare(self._namespaces)
            launcher.sendall(b"m")
            if launcher.recv(1) != b"k":
                raise OSError(0, "the launcher is gone")
        else:
            uid, gid = os.geteuid(), os.getegid()
            syscalls.unshare(self._namespaces)
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"0 {uid} 1")
            _write("/proc/self/gid_map", f"0 {gid} 1")
            _mount(settings, image)
        launcher.close()
        if not settings["network"]:
            _raise_loopback()

    def _begin_bridge(self, sockets: dict[str, str]) -> None:
        from bakeoff.sandbox import bridge  # most boxes have none, and what is loaded is copied with every fork

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
                break
            request, fds = received
            if not request:
                continue  # "end what runs", and it has ended already
            try:
                reply = self._run(request, fds)
            except OSError as error:
                reply = {"error": str(error)}
            _close(fds)
            wire.send(self._control, reply)
        self._starter.close()

    def _run(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        # Further user namespaces would give a command rights to mount, in a world of its own but on our kernel.
        # bwrap needs some for a user that is not root, and closes the door behind itself.
        try:
            _write("/proc/sys/user/max_user_namespaces", "0" if request["uid"] == 0 else "100")
        except OSError:
            pass  # inside somebody's container /proc/sys can be read-only
        if not self._starter.serves(request):
            self._starter.close()
            self._starter = Starter()
            self._starter.limit(self._settings, self._doors)
        began = time.monotonic()
        begun = self._starter.begin(request, fds)
        why = self._watch(*begun, began, request) if begun is not None else ""
        seconds = time.monotonic() - began
        ended = self._starter.ended()
        cpu, peak = self._end_rest()
        room = os.fstatvfs(self._volume)
        return {
            "code": ended["code"],
            "why": why,
            "seconds": seconds,
            "cpu": ended["cpu"] + cpu,
            "peak_kb": max(ended["peak_kb"], peak),
            "free": room.f_bavail * room.f_frsize,
        }

    def _watch(self, command: int, pidfd: int, began: float, request: dict[str, Any]) -> str:
        """Wait for a command's end, or end it, and say why."""
        try:
            why = self._wait(command, began, request)
            if why:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            return why
        except ProcessLookupError:
            return why  # it ended at the same moment
        finally:
            os.close(pidfd)

    def _wait(self, command: int, began: float, request: dict[str, Any]) -> str:
        """Until the command ends, or must."""
        deadline = began + request["timeout"] if request["timeout"] is not None else None
        watched = request["watch_mb"] is not None or request["watch_pids"] is not None
        watching = [self._control.fileno(), self._owner, self._starter.fileno()]
        while True:
            left = max(deadline - time.monotonic(), 0) if deadline is not None else None
            if watched:
                left = _WATCH_EVERY if left is None else min(left, _WATCH_EVERY)
            ready = _readable(watching, left)
            if self._starter.fileno() in ready:
                return ""
            if ready:  # the owner is gone, or wants the command to end; if it wants more, that waits
                return "cancelled"
            if deadline is not None and time.monotonic() >= deadline:
                return "timeout"
            if watched and (why := _excess(processes.descendants([command]), request, self._stored())):
                return why

    def _stored(self) -> int:
        """Bytes that the box's files take in memory."""
        facts = map(os.fstatvfs, self._in_memory)
        return sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in facts)

    def _end_rest(self) -> tuple[float, int]:
        """Kill what a command left, and return only when all of it is gone: CPU seconds, peak KiB.

        The first process of a pid namespace can be waited for only when no other is left in it.
        """
        cpu, peak = 0.0, 0
        while below := [pid for pid in processes.children() if pid not in (self._bridge, self._starter.pid)]:
            processes.send(below, signal.SIGKILL)
            for pid in below:
                _, _, usage = os.wait4(pid, 0)
                cpu += usage.ru_utime + usage.ru_stime
                peak = max(peak, usage.ru_maxrss)
        return cpu, peak


def _excess(pids: list[int], request: dict[str, Any], stored: int) -> str:
    """Which limit these processes exceed, of those that no cgroup holds."""
    most = request["watch_mb"]
    if most is not None and processes.resident(pids) + stored > most << 20 and _memory(pids, stored) > most << 20:
        return "memory"
    return "pids" if request["watch_pids"] is not None and len(pids) > request["watch_pids"] else ""


def _memory(pids: list[int], stored: int) -> int:
    """Memory in bytes, with what several processes share counted once. Slower to tell than what is resident in each.

    What they have mapped of shared memory may be the files of the box, `stored`, or none of them: the larger counts.
    """
    total = shared = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                sizes = {line.split()[0]: int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss")}
        except OSError:
            total += processes.resident([pid])
            continue
        total += sizes.get(b"Pss:", 0)
        shared += sizes.get(b"Pss_Shmem:", 0)
    return total - shared + max(shared, stored)


def _mount(settings: dict[str, Any], image: int | None) -> None:
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    overlay.mount_stage()
    overlay.mount_root(settings["lowers"], settings["directory"], settings["disk_mb"], image)
    overlay.stage_mounts(settings["mounts"])
    overlay.mount_devices(settings["shared_memory"])


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
