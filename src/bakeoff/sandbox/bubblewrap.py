"""Boxes by bubblewrap: namespaces of the Linux kernel, no daemon, no image needed, a few milliseconds each.

A box is an overlay of its image in a mount namespace that its keeper holds (keeper.py). Each command is a bwrap of its
own on that root, with its own process namespace: when the command ends, nothing it started is left.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache as once
from pathlib import Path
from typing import IO, Any

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox import cache, cgroups, host, images, leftovers, marks, overlay, volume
from bakeoff.sandbox.accounts import Account, Accounts
from bakeoff.sandbox.face import Box
from bakeoff.sandbox.launcher import Keeper
from bakeoff.sandbox.layer import Layer
from bakeoff.sandbox.spec import DEFAULT_PATH, BoxSpec, Ended, Image, Mount, inside
from bakeoff.sandbox.streams import Streams

_FULL = 1 << 20
_SHARED_MEMORY = 256 << 20
_TELLING = ("/proc/keys", "/proc/timer_list")
"""What names keys and processes of the whole machine, whatever namespace asks."""
CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
"""What root inside may do, in its own user namespace: the usual rights over files and users, none over the kernel."""


class Bubblewrap:
    name = "bubblewrap"

    def missing(self) -> str | None:
        return _missing(os.geteuid())

    def open(self, spec: BoxSpec) -> BubblewrapBox:
        if shutil.which("bwrap") is None:
            raise InfraError(f"bubblewrap: {self.missing()}")
        _remove_leftovers(os.getpid())
        return BubblewrapBox(spec)

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        from bakeoff.sandbox.building import build

        return build(context, dockerfile or context / "Dockerfile", args or {}, self.open).image


@once
def _remove_leftovers(_pid: int) -> None:
    leftovers.remove()


@once
def _missing(_user: int) -> str | None:
    if shutil.which("bwrap") is None:
        return "the program bwrap is not here; install it with `apt-get install bubblewrap`"
    try:
        with Bubblewrap().open(BoxSpec()) as box:
            ended = box.run(["/bin/sh", "-c", "exit 7"], timeout=30)
    except BakeoffError as error:
        if "mount proc" in str(error):
            return f"{error}; /proc is covered in part, as in containers: start this one with --security-opt systempaths=unconfined"
        return f"{error}; user namespaces may be forbidden: see `sysctl user.max_user_namespaces` and " + (
            "`sysctl kernel.apparmor_restrict_unprivileged_userns` (0 allows them), or run as root"
        )
    return None if ended.code == 7 else f"a box starts but does not work: {ended.stderr.decode(errors='replace')}"


class BubblewrapBox(Box):
    def __init__(self, spec: BoxSpec) -> None:
        self.spec = spec
        self.layer: Path | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._image, self._lowers = _stored(spec.image)
        self._workdir = spec.workdir or self._image.workdir or "/"
        self._mounts = _mounts(spec, self._image.host)
        self._mark = marks.fresh(spec.name)
        self._directory = leftovers.boxes() / self._mark
        with ExitStack() as undo:
            self._directory.mkdir(mode=0o700)
            undo.callback(cache.remove, self._directory)
            self._groups = self._make_groups()
            undo.callback(self._groups.remove)
            self._keeper = self._begin_keeper()
            undo.callback(self._keeper.close)
            self._files = Layer(self._keeper.root)
            self._accounts = Accounts(self._files)
            self._account = self._accounts.find(spec.user or self._image.user)
            if os.geteuid() == 0 and self._account.uid != 0:
                self._files = Layer(self._keeper.root, (self._account.uid, self._account.gid))
            self._make_mount_points()
            self._make_workdir()
            self._name_localhost()
            undo.pop_all()

    def _make_workdir(self) -> None:
        """It is there for every command, whatever an earlier one put in its place."""
        try:
            os.close(self._files.make_directory(self._workdir))
        except UsageError:
            self._files.make_mount_point(self._workdir, directory=True, replace=True)

    def _make_mount_points(self, replace: bool = False) -> None:
        for mount in (*self._mounts, Mount(Path("/proc"), "/proc"), Mount(Path("/dev"), "/dev")):
            self._files.make_mount_point(mount.target, mount.source.is_dir(), replace=replace)

    def _name_localhost(self) -> None:
        """Images come without /etc/hosts, since docker writes one for each container."""
        if self._image.host or self.spec.network:
            return
        try:
            known = self._files.read("/etc/hosts", 1 << 16)
        except UsageError:
            known = b""
        if not known.strip():
            Layer(self._keeper.root).write("/etc/hosts", host.HOSTS.encode())

    def _make_groups(self) -> cgroups.Groups:
        planned = cgroups.planned(self._mark)
        (self._directory / leftovers.GROUPS).write_text("\n".join(sorted(map(str, planned.values()))))
        return cgroups.Groups(planned, self.spec.limits)

    def _begin_keeper(self) -> Keeper:
        disk = self.spec.limits.disk_mb
        directory = self._directory / "volume"
        directory.mkdir()
        image = None
        if disk is not None and volume.lacking() is None:
            image = volume.ext4_image(leftovers.boxes(), disk)
        memory = self.spec.limits.memory_mb
        doors = self._groups.doors()
        settings = {
            "lowers": [str(path) for path in self._lowers],
            "directory": str(directory) if disk is None else None,
            "disk_mb": disk,
            "mounts": [str(mount.source.absolute()) for mount in self._mounts],
            "network": self.spec.network,
            "sockets": {str(port): str(path.absolute()) for port, path in self.spec.sockets.items()},
            "shared_memory": _SHARED_MEMORY if memory is None else min(_SHARED_MEMORY, memory << 19),
            "groups": len(doors),
            "rlimits": self._rlimits(),
            "affinity": _affinity(self.spec.limits.cpus) if "cpu" not in self._groups.limited else [],
        }
        passed = [*([image] if image is not None else []), *doors]
        try:
            return Keeper(settings, passed)
        finally:
            for fd in passed:
                os.close(fd)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        stdin: bytes | Path | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
        user: str | None = None,
    ) -> Ended:
        if not argv:
            raise UsageError("no command to run in the box")
        account = self._accounts.find(user) if user is not None else self._account
        cwd = str(inside(cwd or self._workdir, "cwd"))
        with self._lock, ExitStack() as stack:
            self._check_open()
            if cwd == str(inside(self._workdir)):
                self._make_workdir()
            self._make_mount_points(replace=True)
            streams = Streams(stack, self._directory, stdin, stdout, stderr)
            arguments = stack.enter_context(_sealed(self._arguments(account, env or {}, cwd)))
            status = stack.enter_context(tempfile.TemporaryFile(dir=self._directory))
            self._groups.forget_peak()
            before = self._groups.usage()
            fds = [*streams.fds(), arguments.fileno(), status.fileno()]
            reply = self._keeper.run(self._request(list(argv), account, timeout), fds)
            return self._ended(reply, before, streams, _exit_code(status), argv[0], cwd)

    def _request(self, argv: list[str], account: Account, timeout: float | None) -> dict[str, Any]:
        watch_mb, pids = self._watched()
        return {
            "argv": argv,
            "bwrap": shutil.which("bwrap"),
            "timeout": timeout,
            "uid": account.uid,
            "gid": account.gid,
            "groups": list(account.groups),
            "switch": os.geteuid() == 0 and account.uid != 0,
            "watch_mb": watch_mb,
            "watch_pids": pids + cgroups.OWN_PIDS if pids is not None else None,
        }

    def _watched(self) -> tuple[int | None, int | None]:
        """Limits of memory and of processes that no cgroup holds."""
        limits, held = self.spec.limits, self._groups.limited
        return limits.memory_mb if "memory" not in held else None, limits.pids if "pids" not in held else None

    def _rlimits(self) -> dict[str, int]:
        """For each process of the box."""
        (watch_mb, pids), disk = self._watched(), self.spec.limits.disk_mb
        rlimits = {"RLIMIT_CORE": 0}
        if disk is not None:  # what it prints goes to a file of ours
            rlimits["RLIMIT_FSIZE"] = (disk + disk // 20 + 1) << 20
        if watch_mb is not None:  # one process that outruns the watch
            rlimits["RLIMIT_DATA"] = (2 * watch_mb + 1024) << 20
        if pids is not None:
            rlimits["RLIMIT_NPROC"] = pids + cgroups.OWN_PIDS
        return rlimits

    def _arguments(self, account: Account, env: Mapping[str, str], cwd: str) -> list[str]:
        words = ["--die-with-parent", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "box"]
        words += ["--cap-drop", "ALL"]
        if account.uid == 0:
            for capability in CAPABILITIES:
                words += ["--cap-add", f"CAP_{capability}"]
        else:
            words += ["--unshare-user", "--disable-userns", "--uid", str(account.uid), "--gid", str(account.gid)]
        words += ["--bind", overlay.ROOT, "/"]
        for number, mount in enumerate(self._mounts):
            words += ["--bind" if mount.writable else "--ro-bind", overlay.staged(number), mount.target]
        # Root of a box is root to /proc/sys too, whatever namespace it is in, if whoever made the box is root.
        words += ["--proc", "/proc", *_hidden(_TELLING), "--remount-ro", "/proc"]
        words += ["--dev-bind", overlay.DEVICES, "/dev", "--chdir", cwd, "--clearenv"]
        defaults = {"PATH": DEFAULT_PATH, "HOME": account.home, "USER": account.name, "LANG": "C.UTF-8"}
        for name, value in {**defaults, **self._image.env, **self.spec.env, **env}.items():
            if not name or "=" in name or "\0" in name + value:
                raise UsageError(
                    f"environment variable {name!r} for the box: no `=` in its name, no zero byte anywhere"
                )
            words += ["--setenv", name, value]
        return words

    def _ended(
        self, reply: dict[str, Any], before: cgroups.Usage, streams: Streams, code: int | None, program: str, cwd: str
    ) -> Ended:
        why, after, limits = reply["why"], self._groups.usage(), self.spec.limits
        if code is None:
            code = 128 + 9 if why or reply["code"] < 0 else _refusal(streams.last_error(), program, cwd)
        peak = after.peak_memory if after.peak_memory is not None else reply["peak_kb"] << 10
        cpu = reply["cpu"]
        if after.cpu_seconds is not None and before.cpu_seconds is not None:
            cpu = after.cpu_seconds - before.cpu_seconds
        return Ended(
            code=128 + 9 if why else code,
            seconds=reply["seconds"],
            timed_out=why == "timeout",
            memory_killed=why == "memory" or after.oom_kills > before.oom_kills,
            disk_full=limits.disk_mb is not None and reply["free"] < max(_FULL, limits.disk_mb << 14),
            pids_refused=after.pids_refused - before.pids_refused + (why == "pids"),
            peak_memory_mb=round(peak / 2**20, 3),
            cpu_seconds=round(cpu, 6),
            stdout=streams.tail("stdout"),
            stderr=streams.tail("stderr"),
        )

    def put(self, source: Path, target: str) -> None:
        self._unmounted(target).put(source, target)

    def get(self, source: str, target: Path, *, all_links: bool = False) -> None:
        self._unmounted(source).get(source, target, self.spec.limits.most_out, all_links=all_links)

    def write(self, target: str, data: bytes, mode: int = 0o644) -> None:
        self._unmounted(target).write(target, data, mode)

    def read(self, source: str, most: int = 1 << 24) -> bytes:
        return self._unmounted(source).read(source, most)

    def _unmounted(self, path: str) -> Layer:
        """The box's files, when `path` is among them."""
        self._check_open()
        wanted = inside(path)
        for mount in self._mounts:
            if wanted.is_relative_to(mount.target):
                raise UsageError(
                    f"{path} in the box is {mount.source} of this machine, mounted at {mount.target}: use that"
                )
        return self._files

    def put_as(self, owner: str | None, source: Path, target: str) -> None:
        """`put` as a Dockerfile's COPY has it: owned by --chown, and a file goes into a directory that is there."""
        account = self._accounts.find(owner)
        self._unmounted(target)
        layer = Layer(self._keeper.root, (account.uid, account.gid) if os.geteuid() == 0 else None)
        layer.put(source, f"{target}/{source.name}" if source.is_file() and layer.is_directory(target) else target)

    def end_processes(self) -> None:
        """A command's processes end with it; what is left to end is a command that another thread waits for."""
        if self._lock.locked():
            self._keeper.cancel()
        with self._lock:
            return

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with ExitStack() as undo:
            undo.callback(cache.remove, self._directory)
            undo.callback(self._groups.remove)
            undo.callback(self._keeper.close)
            if self.spec.keep_layer:
                self.end_processes()
                self.layer = leftovers.layers() / self._mark
                self.layer.mkdir(mode=0o700)
                if self.spec.limits.disk_mb is not None:  # its volume goes with the box
                    Layer(self._keeper.upper).get("/", self.layer)
                else:
                    os.rename(self._directory / "volume" / "upper", self.layer)

    @property
    def keeper_pid(self) -> int:
        """The process outside that holds the box."""
        return self._keeper.pid

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this box is closed")


def _sealed(words: list[str]) -> IO[bytes]:
    """Words for `bwrap --args`: not on its command line, which everybody on this machine can read."""
    file = os.fdopen(os.memfd_create("arguments", os.MFD_CLOEXEC), "w+b")
    file.write(b"".join(os.fsencode(word) + b"\0" for word in words))
    file.flush()
    file.seek(0)
    return file


def _hidden(paths: Sequence[str]) -> list[str]:
    """Words that put a node without a device over files."""
    there = [path for path in paths if os.path.exists(path)]
    return [word for path in there for word in ("--ro-bind", f"{overlay.DEVICES}/null", path)]


def _exit_code(status: IO[bytes]) -> int | None:
    """The command's own exit code, from bwrap's report; None when the command never began, or was killed with bwrap."""
    status.seek(0)
    for line in status.read().splitlines():
        report = json.loads(line)
        if "exit-code" in report:
            return int(report["exit-code"])
    return None


def _refusal(message: str, program: str, cwd: str) -> int:
    """bwrap ended before the command began: whose fault was that?"""
    if "execvp" in message:
        return 126 if "Permission denied" in message or "format" in message else 127
    if "Can't chdir" in message:
        raise UsageError(f"{cwd}: no such directory in the box, to run {program} in")
    raise InfraError(f"bubblewrap could not start {program}: {message or 'it said nothing'}")


def _affinity(cpus: float | None) -> list[int]:
    """Where no cgroup limits CPU time, a box at least stays on as many cores."""
    ours = sorted(os.sched_getaffinity(0))
    if cpus is None or math.ceil(cpus) >= len(ours):
        return []
    return random.sample(ours, math.ceil(cpus))


def _stored(image: Image) -> tuple[images.Stored, list[Path]]:
    """What is known of an image, and the directories it is made of."""
    if image.kind != "root":
        stored = images.resolve(image)
        return stored, stored.directories()
    if not image.path.is_dir():
        raise UsageError(f"image {image.path}: no such directory; give an unpacked image")
    return images.Stored(""), [image.path]


def _mounts(spec: BoxSpec, on_host: bool) -> tuple[Mount, ...]:
    """Everything that is mounted on the root, outer before inner."""
    found = [*spec.mounts]
    if on_host:
        found += host.mounts()
    if spec.network:
        found += host.network_mounts()
    for mount in found:
        if not mount.source.exists():
            raise UsageError(f"mount {mount.source}: no such file or directory")
    return tuple(sorted(found, key=lambda mount: len(inside(mount.target).parts)))
