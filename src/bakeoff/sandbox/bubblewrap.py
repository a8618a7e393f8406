"""Boxes made with bubblewrap: Linux namespaces, no daemon, no image needed, a few milliseconds each.

A box is an overlay of its image in a mount namespace that a supervisor process holds (supervisor.py). Each command
is its own `bwrap` on that root, with its own pid namespace: when the command ends, the kernel kills everything it
started.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache as once
from pathlib import Path
from typing import IO

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox import cache, cgroups, images, overlay
from bakeoff.sandbox.base import (
    CAPABILITIES,
    DEFAULT_PATH,
    HIDDEN_ON_HOST,
    BoxSpec,
    Command,
    CommandResult,
    Image,
    Mount,
    NotStarted,
    Streams,
    box_path,
    refuse_runtime,
)  # fmt: skip
from bakeoff.sandbox.files import FileTree, FileTreeBox, Owner
from bakeoff.sandbox.launcher import Reply, Supervisor
from bakeoff.sandbox.syscalls import closing

_FULL_BYTES = 1 << 20
_SHARED_MEMORY = 256 << 20
_MASKED = ("/proc/keys", "/proc/timer_list")
"""Files of /proc that name keys and processes of the whole machine, whatever namespace the reader is in."""


_cleaned_up: set[int] = set()
"""Processes that have cleaned up: this one, and perhaps the one that forked it."""


class Bubblewrap:
    """The backend; see `Sandbox`."""

    name = "bubblewrap"

    def missing(self) -> str | None:
        """Why boxes do not work here, found out by opening one; asked once for each user id."""
        return _missing(os.geteuid())

    def open(self, spec: BoxSpec) -> BubblewrapBox:
        """A new box. The first one of a process also removes what killed processes left."""
        if shutil.which("bwrap") is None:
            raise InfraError(f"bubblewrap: {self.missing()}")
        if os.getpid() not in _cleaned_up:
            _cleaned_up.add(os.getpid())
            cache.remove_abandoned()
        return BubblewrapBox(spec)

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        """Build a Dockerfile into the image store, without a daemon (build.py)."""
        from bakeoff.sandbox.build import build

        return build(context, dockerfile or context / "Dockerfile", args or {}, self.open).image


@once
def _missing(_user: int) -> str | None:
    """What `Bubblewrap.missing` answers. The user is an argument so that the answer is cached for each one."""
    if shutil.which("bwrap") is None:
        return "the program bwrap is not installed; install it with `apt-get install bubblewrap`"
    try:
        with Bubblewrap().open(BoxSpec()) as box:
            result = box.run(["/bin/sh", "-c", "exit 7"], timeout=30)
    except BakeoffError as error:
        if "mount proc" in str(error):
            # A user namespace may mount proc only if it sees all of one already (mount_namespaces(7)), which in a
            # container, where parts of /proc are masked, it does not.
            return (
                f"{error}; parts of /proc are masked, as in containers: start this one with "
                "--security-opt systempaths=unconfined"
            )
        return (
            f"{error}; user namespaces may be forbidden: see `sysctl user.max_user_namespaces` and "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns` (0 allows them), or run as root"
        )
    return None if result.code == 7 else f"a sandbox starts but does not work: {result.stderr.decode(errors='replace')}"


class BubblewrapBox(FileTreeBox):
    """One box; see `Box`. `supervisor_pid` is the process outside that holds it."""

    def __init__(self, spec: BoxSpec) -> None:
        """Make everything that a box consists of, in order; if one step fails, the earlier ones are undone."""
        refuse_runtime(spec, "bubblewrap")
        name = cache.unique_name(spec.name)
        super().__init__(spec, cache.directory("boxes") / name)
        self._copy_limit = spec.limits.copy_limit
        # What the box starts from: its settings (variables, working directory, user), and directories for the overlay.
        if spec.image.kind == "root":
            lowers = [Path(spec.image.where)]
            if not lowers[0].is_dir():
                raise UsageError(f"image {lowers[0]}: no such directory; give an unpacked image")
            self._image = images.Stored("")
        else:
            self._image = images.find("host" if spec.image.kind == "host" else spec.image.where)
            lowers = self._image.directories()
        self._lowers = lowers
        self._workdir = spec.workdir or self._image.workdir or "/"
        self._mounts = _all_mounts(spec, self._image.host)
        with ExitStack() as undo:
            self._directory.mkdir(mode=0o700)
            undo.callback(cache.remove, self._directory)
            # The list is written before the groups exist: at whatever moment we are killed, a cleanup finds them.
            planned = cgroups.planned(name)
            listed = "\n".join(sorted(map(str, planned.values())))
            (self._directory / cache.CGROUP_LIST).write_text(listed)
            self._groups = cgroups.Groups(planned, spec.limits, bridged=bool(spec.sockets))
            undo.callback(self._groups.remove)
            self._supervisor = self._start_supervisor(lowers)
            undo.callback(self._supervisor.close)
            self.supervisor_pid = self._supervisor.pid
            self._files = FileTree(self._supervisor.root)
            self._accounts = images.Accounts(self._files.read)
            self._account = self._accounts.find(spec.user or self._image.user)
            # Root gives new files to the user of the box. An ordinary user's box has one user, whose files are ours.
            if os.geteuid() == 0 and self._account.uid != 0:
                self._files = FileTree(self._supervisor.root, Owner(self._account.uid, self._account.gid))
            self._make_mount_points()
            self._make_workdir()
            # Images come without /etc/hosts, because docker writes one for each container.
            if not (self._image.host or spec.network):
                try:
                    hosts = self._files.read("/etc/hosts", 1 << 16)
                except UsageError:
                    hosts = b""
                if not hosts.strip():
                    FileTree(self._supervisor.root).write("/etc/hosts", images.HOSTS.encode())
            undo.pop_all()

    def _start_supervisor(self, lowers: list[Path]) -> Supervisor:
        """Start the process that holds the box. Limits that no cgroup enforces get a weaker substitute here."""
        limits, enforced = self.spec.limits, self._groups.limited
        self._watch_mb = limits.memory_mb if "memory" not in enforced else None
        self._watch_pids = (
            limits.pids + cgroups.OWN_PIDS if limits.pids is not None and "pids" not in enforced else None
        )
        rlimits = {"RLIMIT_CORE": 0}
        # getrlimit(2): a write beyond RLIMIT_FSIZE ends with SIGXFSZ, more memory than RLIMIT_DATA with ENOMEM.
        if limits.disk_mb is not None:  # no sparse file is larger than the disk
            rlimits["RLIMIT_FSIZE"] = (limits.disk_mb + limits.disk_mb // 20 + 1) << 20
        if self._watch_mb is not None:  # for one process that grows faster than the supervisor looks
            rlimits["RLIMIT_DATA"] = (2 * self._watch_mb + 1024) << 20
        if self._watch_pids is not None:  # counted for each user of a user namespace (getrlimit(2))
            rlimits["RLIMIT_NPROC"] = self._watch_pids
        # Without a quota, at least as many cores as the limit says, drawn at random so that boxes spread out.
        cores: list[int] = []
        if limits.cpus is not None and "cpu" not in enforced:
            available = sorted(os.sched_getaffinity(0))
            wanted = math.ceil(limits.cpus)
            cores = random.sample(available, wanted) if wanted < len(available) else []
        volume = self._directory / "volume"
        volume.mkdir()
        # /dev/shm takes at most half of the memory limit, so that filling it cannot use up the box's memory.
        shared_memory = _SHARED_MEMORY if limits.memory_mb is None else min(_SHARED_MEMORY, limits.memory_mb << 19)
        fds: list[int] = []
        try:
            if limits.disk_mb is not None and overlay.disk_image_problem() is None:
                fds.append(overlay.disk_image(limits.disk_mb))
            join_fds = self._groups.join_fds()
            fds += join_fds
            return Supervisor(
                {
                    "lowers": [str(path) for path in lowers],
                    "directory": str(volume) if limits.disk_mb is None else None,
                    "disk_mb": limits.disk_mb,
                    "mounts": [str(mount.source.absolute()) for mount in self._mounts],
                    "nameless": [
                        number
                        for number, mount in enumerate(self._mounts)
                        if not mount.writable and str(mount.source.absolute()) != mount.target
                    ],
                    "network": self.spec.network,
                    "sockets": {str(port): str(path.absolute()) for port, path in self.spec.sockets.items()},
                    "shared_memory": shared_memory,
                    "join_fds": len(join_fds),
                    "rlimits": rlimits,
                    "affinity": cores,
                },
                fds,
            )
        finally:
            for fd in fds:
                os.close(fd)

    def _make_mount_points(self, replace: bool = False) -> None:
        """Make places for all mounts of bwrap, which follows links when it mounts: see `FileTree.make_mount_point`."""
        for mount in (*self._mounts, Mount(Path("/proc"), "/proc"), Mount(Path("/dev"), "/dev")):
            self._files.make_mount_point(mount.target, mount.source.is_dir(), replace=replace)

    def _make_workdir(self) -> None:
        """The workdir exists for every command, whatever an earlier one put in its place."""
        try:
            os.close(self._files.make_directory(self._workdir))
        except UsageError:
            self._files.make_mount_point(self._workdir, directory=True, replace=True)

    def _execute(self, command: Command, streams: Streams) -> CommandResult:
        """Run bwrap with the command, and read from its status, the reply and the cgroups how that ended."""
        account = self._accounts.find(command.user) if command.user is not None else self._account
        cwd = str(box_path(command.cwd or self._workdir, "cwd"))
        if cwd == str(box_path(self._workdir)):
            self._make_workdir()
        self._make_mount_points(replace=True)
        with (
            self._bwrap_arguments(account, command.env, cwd) as arguments,
            tempfile.TemporaryFile(dir=self._directory) as status,
        ):
            self._groups.reset_peak()
            before = cgroups.usage(self._groups.paths)
            reply = self._supervisor.run(
                {
                    "argv": command.argv,
                    "bwrap": shutil.which("bwrap") or "bwrap",
                    "timeout": command.timeout,
                    "tracing": command.tracing and self.spec.tracing,
                    "uid": account.uid,
                    "gid": account.gid,
                    "groups": list(account.groups),
                    "switch": os.geteuid() == 0 and account.uid != 0,
                    "watch_mb": self._watch_mb,
                    "watch_pids": self._watch_pids,
                },
                [*streams.fds(command.stdin, command.pipes), arguments.fileno(), status.fileno()],
            )
            code, started = _exit_code(status, reply, streams, command.argv[0], cwd)
        # Counters of cgroups are exact and cover every process; without them the supervisor's figures have to do.
        after, limits, why = cgroups.usage(self._groups.paths), self.spec.limits, reply["why"]
        peak = after.peak_memory if after.peak_memory is not None else reply["peak_kb"] << 10
        cpu = reply["cpu"]
        if after.cpu_seconds is not None and before.cpu_seconds is not None:
            cpu = after.cpu_seconds - before.cpu_seconds
        return CommandResult(
            code=code,
            seconds=reply["seconds"],
            timed_out=why == "timeout",
            memory_killed=why == "memory" or after.oom_kills > before.oom_kills,
            disk_full=limits.disk_mb is not None and reply["free"] < max(_FULL_BYTES, limits.disk_mb << 14),
            pids_refused=after.pids_refused - before.pids_refused + (why == "pids"),
            peak_memory_mb=round(peak / 2**20, 3),
            cpu_seconds=round(cpu, 6),
            started=started,
        )

    def _bwrap_arguments(self, account: images.Account, env: Mapping[str, str], cwd: str) -> IO[bytes]:
        """Arguments for `bwrap --args`, as an open file that only we and bwrap have.

        On a command line every user of the machine could read them, with the variables among them.
        """
        # The starter is in the user, mount, network and IPC namespaces of the box. bwrap adds those that belong to one
        # command: with its pid namespace ends everything that the command started.
        words = ["--die-with-parent", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "box"]
        words += ["--cap-drop", "ALL"]
        if account.uid == 0:
            for capability in CAPABILITIES:
                words += ["--cap-add", f"CAP_{capability}"]
        else:
            # bwrap without root needs a user namespace; in it, the user has the number that the image gives it.
            words += ["--unshare-user", "--disable-userns", "--uid", str(account.uid), "--gid", str(account.gid)]
        words += ["--bind", overlay.ROOT, "/"]
        hidden = [
            path
            for path in HIDDEN_ON_HOST
            if self._image.host and path not in self.spec.host_paths and os.path.isdir(path)
        ]
        for number, mount in enumerate(self._mounts):
            words += ["--bind" if mount.writable else "--ro-bind", overlay.staged(number), mount.target]
            if mount.target == "/usr":
                for path in hidden:
                    words += ["--tmpfs", path]
        for path in hidden:  # after the mounts, because places for them may have to be made in it
            words += ["--remount-ro", path]
        # /proc is read-only: the kernel lets user 0 of the machine write to most of /proc/sys whatever namespace it is
        # in, and when root opened the box, user 0 inside is user 0 of the machine.
        words += ["--proc", "/proc"]
        for path in _MASKED:
            if os.path.exists(path):
                words += ["--ro-bind", f"{overlay.DEVICES}/null", path]
        words += ["--remount-ro", "/proc"]
        words += ["--dev-bind", overlay.DEVICES, "/dev", "--chdir", cwd, "--clearenv"]
        defaults = {"PATH": DEFAULT_PATH, "HOME": account.home, "USER": account.name, "LANG": "C.UTF-8"}
        for name, value in {**defaults, **self._image.env, **self.spec.env, **env}.items():
            if not name or "=" in name or "\0" in name + value:
                raise UsageError(
                    f"environment variable {name!r} for the sandbox: use no `=` in the name and no zero byte anywhere"
                )
            words += ["--setenv", name, value]
        file = os.fdopen(os.memfd_create("arguments", os.MFD_CLOEXEC), "w+b")
        file.write(b"".join(os.fsencode(word) + b"\0" for word in words))
        file.flush()
        file.seek(0)
        return file

    def _tree(self, path: str) -> FileTree:
        """The files of the box. A path below a mount is refused: it would reach the place under the mount."""
        wanted = box_path(path)
        for mount in self._mounts:
            if wanted.is_relative_to(mount.target):
                raise UsageError(
                    f"{path} in the sandbox is {mount.source} of this machine, mounted at {mount.target}: use that"
                )
        return super()._tree(path)

    def put_as(self, owner: str | None, source: Path, target: str, name: str = "") -> None:
        """`put` as COPY in a Dockerfile does it.

        What is copied belongs to `owner`, the value of --chown. The content of a directory goes to `target`. A file
        does too, or into it: under `name` if that is given, under its own name if `target` is an existing
        directory.
        """
        if name and not source.is_dir():
            target = f"{target.rstrip('/')}/{name}"
        account = self._accounts.find(owner)
        self._tree(target)
        tree = FileTree(self._supervisor.root, Owner(account.uid, account.gid) if os.geteuid() == 0 else None)
        tree.put(source, f"{target}/{source.name}" if source.is_file() and tree.is_directory(target) else target)

    def changes(self) -> Iterator[tuple[str, bool]]:
        """What is in the upper layer of the overlay, where a removed file is a device of number 0 (overlayfs)."""
        folders = ["."]
        while folders:
            folder = folders.pop()
            try:
                with closing(
                    os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._supervisor.upper)
                ) as fd:
                    entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in os.scandir(fd)]
            except OSError:
                continue  # a path that is too long for the kernel, or that an ordinary user may not read
            for name, is_directory in entries:
                path = f"{folder}/{name}"
                if is_directory:
                    folders.append(path)
                yield path[1:], any(os.path.lexists(f"{lower}/{path}") for lower in self._lowers)

    def end_processes(self) -> None:
        """The processes of a command end with it; what is left to end is a command that another thread waits for."""
        if self._lock.locked():
            self._supervisor.cancel()
        with self._lock:
            return

    def _release(self) -> None:
        """End the supervisor, remove cgroups and directory, each even if another fails; keep the layer if asked to."""
        with ExitStack() as undo:
            undo.callback(cache.remove, self._directory)
            undo.callback(self._groups.remove)
            undo.callback(self._supervisor.close)
            if self.spec.keep_layer:
                self.end_processes()
                self.layer = cache.directory("layers") / self._directory.name
                self.layer.mkdir(mode=0o700)
                if self.spec.limits.disk_mb is not None:  # the volume goes with the box, so its content is copied
                    FileTree(self._supervisor.upper).get("/", self.layer)
                else:
                    os.rename(self._directory / "volume" / "upper", self.layer)


def _exit_code(status: IO[bytes], reply: Reply, streams: Streams, program: str, cwd: str) -> tuple[int, bool]:
    """The exit code of a command, from bwrap's JSON status (bwrap(1), --json-status-fd), and whether it was started.

    There is none when the command was killed together with bwrap, or when bwrap failed before it started the command.
    What bwrap printed last then tells whose fault that was: the command's (126, 127), the caller's (UsageError) or ours
    (InfraError).
    """
    if reply["why"]:
        return 128 + 9, True
    status.seek(0)
    for line in status.read().splitlines():
        report = json.loads(line)
        if "exit-code" in report:
            return int(report["exit-code"]), True
    if reply["code"] < 0:
        return 128 + 9, True
    last_error = streams.tail("stderr", 4096, from_file=True).decode(errors="replace").strip().rpartition("\n")[2]
    # Messages of bwrap itself: it has no machine-readable form for what fails before the command begins.
    if "execvp" in last_error:
        return 126 if "Permission denied" in last_error or "format" in last_error else 127, False
    if "Can't chdir" in last_error:
        raise UsageError(f"{cwd}: no such directory in the sandbox, to run {program} in")
    raise NotStarted(f"bubblewrap could not start {program}: {last_error or 'it printed nothing'}")


def _all_mounts(spec: BoxSpec, on_host: bool) -> tuple[Mount, ...]:
    """Everything that is mounted on the root, outer before inner."""
    mounts = [*spec.mounts]
    if on_host:
        mounts += images.host_mounts()
    if spec.network:  # how names are resolved
        paths = map(Path, ("/etc/resolv.conf", "/etc/hosts"))
        mounts += [Mount(path.resolve(), str(path)) for path in paths if path.exists()]
    for mount in mounts:
        if not mount.source.exists():
            raise UsageError(f"mount {mount.source}: no such file or directory")
    return tuple(sorted(mounts, key=lambda mount: len(box_path(mount.target).parts)))
