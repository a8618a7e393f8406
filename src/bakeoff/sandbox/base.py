"""The interface of every sandbox, the values it takes and returns, and `choose()`, which finds one by name.

    from bakeoff.sandbox.base import BoxSpec, Limits, choose

    with choose().open(BoxSpec(limits=Limits(memory_mb=512))) as box:
        box.put(Path("repo"), "/app/repo")
        result = box.run(["sh", "-c", "make test"], cwd="/app/repo", timeout=60)
        print(result.code, result.timed_out, result.stdout)

A `Sandbox` is a backend (bubblewrap, docker, ...); a `Box` is one isolated place that it made. A `UsageError` means
that the call is wrong, an `InfraError` that the box broke. What a command does is never an exception: see
`CommandResult`.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from pkgutil import resolve_name
from types import TracebackType
from typing import IO, Literal, Protocol, Self

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.sandbox import cache

VARIABLE = "SANDBOX_BACKEND"
DEFAULT = "bubblewrap"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BACKENDS = {
    "bubblewrap": "bakeoff.sandbox.bubblewrap:Bubblewrap",
    "docker": "bakeoff.sandbox.docker:Docker",
    "podman": "bakeoff.sandbox.docker:Podman",
    "modal": "bakeoff.sandbox.modal:Modal",
    "none": "bakeoff.sandbox.none:NoSandbox",
}
"""Name to class; a backend is imported when it is chosen."""
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
    "SYS_CHROOT",
)  # fmt: skip
"""What root inside a box may do (capabilities(7)): the usual rights over files and users, none over the kernel.

In particular no SYS_ADMIN (mounts, namespaces), NET_ADMIN, NET_RAW, MKNOD, SYS_PTRACE or SYS_MODULE."""

# A name becomes part of directory, cgroup and container names, so nothing that any of them treats specially.
_BOX_NAME = re.compile(r"[\w.-]{0,64}", re.ASCII)
_DEFAULT_COPY_LIMIT = 16 << 30
_OUTPUT_TAIL = 1 << 20  # what a result carries of output that did not go to a file


def box_path(path: str, what: str = "path in the sandbox") -> PurePosixPath:
    """`path` as an absolute path without `..`; a UsageError that begins with `what` when it is something else."""
    # Refused, not normalised: after a link, `a/../b` is not `b`. The kernel would also cut the path at a zero byte.
    pure = PurePosixPath(path)
    if not path.startswith("/") or ".." in pure.parts or "\0" in path:
        raise UsageError(f"{what} {path!r}: give an absolute path without `..`")
    return PurePosixPath("/" + path.lstrip("/"))  # POSIX leaves the meaning of two leading slashes open


@dataclass(frozen=True, slots=True)
class Image:
    """The files a box starts from. Make one with `host`, `root` or `named`."""

    kind: Literal["host", "root", "named"]
    where: str = ""
    """The directory of a root image, the name of a named one."""

    @classmethod
    def host(cls) -> Image:
        """An allow-listed, read-only view of this machine's programs: no home, no /var, no keys."""
        return cls("host")

    @classmethod
    def root(cls, directory: Path) -> Image:
        """An unpacked image. Boxes never write to the directory."""
        return cls("root", str(directory.absolute()))

    @classmethod
    def named(cls, name: str) -> Image:
        """`name:tag`: an image that docker or podman has, or one that was added to the image store."""
        return cls("named", name)


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of this machine that the box sees at `target`."""

    source: Path
    target: str
    writable: bool = False

    def __post_init__(self) -> None:
        box_path(self.target, "mount target")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a box may use in total. None means that we set no limit."""

    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_mb: int | None = None

    def __post_init__(self) -> None:
        for name in ("memory_mb", "cpus", "pids", "disk_mb"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"sandbox limit {name} = {value}: give a number above 0, or omit it for no limit")

    @property
    def copy_limit(self) -> int:
        """How many bytes `Box.get` copies at most: as many as the box may hold, else 16 GiB."""
        return self.disk_mb << 20 if self.disk_mb is not None else _DEFAULT_COPY_LIMIT


@dataclass(frozen=True, slots=True)
class BoxSpec:
    """What a box is made of. Every field has a default: `BoxSpec()` is this machine's programs without network."""

    image: Image = field(default_factory=Image.host)
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the image's variables, and to PATH, HOME, USER and LANG, which have defaults. Our own are not passed."""
    workdir: str = ""
    """Where commands run; created if it is missing (default: the image's working directory, or `/`)."""
    limits: Limits = Limits()
    sockets: Mapping[int, Path] = field(default_factory=dict)
    """Loopback port inside to a unix socket outside. Without `network` this is the only way out."""
    network: bool = False
    user: str | None = None
    """Who commands run as: a name that the image knows, or a number (default: the image's user, or root inside)."""
    keep_layer: bool = False
    """After `close`, `Box.layer` is a directory with everything that was written."""
    name: str = ""
    """A label for people, in directory, cgroup and container names; those are unique without it."""

    def __post_init__(self) -> None:
        if self.workdir:
            box_path(self.workdir, "workdir")
        if not _BOX_NAME.fullmatch(self.name):
            raise UsageError(f"sandbox name {self.name!r}: use up to 64 letters, digits, dots and dashes")
        for port in self.sockets:
            if not 0 < port < 65536:
                raise UsageError(f"socket port {port}: give a number from 1 to 65535")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command in a box ended."""

    code: int
    """Exit code; 128 + signal when a signal ended it, as shells report it."""
    seconds: float
    timed_out: bool = False
    memory_killed: bool = False
    """The kernel, or our watch, killed something in the box because the memory limit was reached."""
    disk_full: bool = False
    """When the command ended, no more than a few blocks of the disk limit were left."""
    pids_refused: int = 0
    """How often a new process was refused because of the limit, where that is counted."""
    peak_memory_mb: float | None = None
    cpu_seconds: float | None = None
    stdout: bytes = b""
    """The end of the output, at most a megabyte. Empty when the output went to a file."""
    stderr: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with exit code 0."""
        return self.code == 0 and not self.timed_out


@dataclass(frozen=True, slots=True)
class Command:
    """The arguments of `Box.run` that a backend has to carry out. None means the default of the box."""

    argv: list[str]
    env: Mapping[str, str]
    cwd: str | None
    timeout: float | None
    stdin: bytes | Path | None
    user: str | None


class Streams:
    """The standard streams of one command as open files; without a path, an unnamed file whose end is read later.

    A command writes straight into these files, so a fast writer never waits for Python. Root in a box may do to an
    open file whatever its owner may: change its mode, its owner, its capabilities. Therefore no file that anything
    else uses is handed out (not even /dev/null), and the attributes of a log are restored when its command has ended.
    """

    def __init__(self, stack: ExitStack, scratch: Path, stdout: Path | None, stderr: Path | None) -> None:
        """Files are closed, and attributes restored, when `stack` unwinds. Unnamed files are made in `scratch`."""
        self._stack = stack
        self._scratch = scratch
        self._out = self._open(stdout)
        self._err = self._out if stdout is not None and stdout == stderr else self._open(stderr)
        self._unnamed = {"stdout": stdout is None, "stderr": stderr is None}

    def _open(self, path: Path | None) -> IO[bytes]:
        """A file for output: the one at `path`, emptied, or an unnamed one. Writers append, so two may share it."""
        if path is None:
            return self._stack.enter_context(tempfile.TemporaryFile("a+b", dir=self._scratch))
        path.parent.mkdir(parents=True, exist_ok=True)
        # O_APPEND: two streams may share the file, and what is written later comes later in it.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        file = self._stack.enter_context(os.fdopen(fd, "w+b"))
        self._stack.callback(_restore_attributes, fd, os.fstat(fd))
        return file

    def fds(self, stdin: bytes | Path | None) -> list[int]:
        """Descriptors for standard input, output and error. Input is a copy of `stdin`, or the end of a closed pipe."""
        if stdin is None:
            read, write = os.pipe()
            os.close(write)
            source: IO[bytes] = self._stack.enter_context(os.fdopen(read, "rb"))
        else:
            source = self._open(None)
            if isinstance(stdin, Path):
                with stdin.open("rb") as original:
                    shutil.copyfileobj(original, source)
            else:
                source.write(stdin)
            source.seek(0)  # this flushes too
        return [source.fileno(), self._out.fileno(), self._err.fileno()]

    def write(self, stdout: bytes, stderr: bytes, room: int | None) -> int | None:
        """Append output that came over a connection, at most `room` bytes. Returns the room that is left."""
        for file, data in ((self._out, stdout), (self._err, stderr)):
            if room is not None:
                data = data[:room]
                room -= len(data)
            file.write(data)
            file.flush()
        return room

    def tail(self, name: Literal["stdout", "stderr"], most: int = _OUTPUT_TAIL, *, from_file: bool = False) -> bytes:
        """The last `most` bytes of an output. Empty when it went to a file of the caller, unless `from_file` is set."""
        if not (self._unnamed[name] or from_file):
            return b""
        fd = (self._out if name == "stdout" else self._err).fileno()
        return os.pread(fd, most, max(os.fstat(fd).st_size - most, 0))


def _restore_attributes(fd: int, before: os.stat_result) -> None:
    """Give a log its owner and mode back and drop extended attributes.

    The change of owner also makes the kernel drop a capability that root in the box put on the file (chown(2)).
    """
    os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, before.st_mode & 0o777)
    for name in os.listxattr(fd):
        try:
            os.removexattr(fd, name)
        except OSError:
            continue  # an attribute that the file system itself keeps


class Box(ABC):
    """One isolated place. Leaving it ends every process in it and removes its mounts, cgroups and directories.

    Files stay from one command to the next; processes do not: when a command ends, so does everything it started.
    One command at a time: a second `run` waits for the first. Backends implement the abstract methods; what is the same
    in all of them (checks, the lock, standard streams, closing once) is here.
    """

    def __init__(self, spec: BoxSpec, directory: Path | None = None) -> None:
        """`directory` is for temporary files of the box (default: where all boxes have theirs)."""
        self.spec = spec
        self.layer: Path | None = None
        """What was written, after `close`, if `spec.keep_layer` is set."""
        self._directory = directory or cache.directory("boxes")
        self._lock = threading.Lock()
        self._closed = False

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
    ) -> CommandResult:
        """Run a command until it ends, or kill it after `timeout` seconds.

        `env` is added to the variables of the box, `cwd` and `user` replace the box's defaults. Output goes to the
        files `stdout` and `stderr`; the same path for both gets both in order. Without a file, the result has the
        end of the output. A command that does not exist ends with code 127, one that cannot be executed with 126.
        Raises UsageError for a wrong call (closed box, unknown user, no such `cwd`), InfraError when the box broke.
        """
        if not argv:
            raise UsageError("no command to run in the sandbox")
        with self._lock, ExitStack() as stack:
            self._check_open()
            streams = Streams(stack, self._directory, stdout, stderr)
            result = self._execute(Command(list(argv), env or {}, cwd, timeout, stdin, user), streams)
            return replace(result, stdout=streams.tail("stdout"), stderr=result.stderr or streams.tail("stderr"))

    def close(self) -> None:
        """End all processes of the box and remove it. A second call does nothing."""
        if not self._closed:
            self._closed = True  # first: a release that fails is not tried again
            self._release()

    def _check_open(self) -> None:
        """Raise a UsageError when the box is closed."""
        if self._closed:
            raise UsageError("this sandbox is closed")

    @abstractmethod
    def _execute(self, command: Command, streams: Streams) -> CommandResult:
        """Carry out one command, with its output going to `streams`.

        `run` holds the lock, has checked that the box is open, and adds the end of the output to the result.
        """

    @abstractmethod
    def _release(self) -> None:
        """Give everything back; called once, by `close`."""

    @abstractmethod
    def put(self, source: Path, target: str) -> None:
        """Copy a file or directory in, to exactly `target`. A directory is merged into an existing one."""

    @abstractmethod
    def get(self, source: str, target: Path, *, all_links: bool = False) -> None:
        """Copy a file or directory out, to exactly `target`.

        Skipped are links that lead out of the copied tree, devices, pipes and sockets: a hostile command may have
        left them for us to follow. Skipped in a directory is also what we cannot hold: files beyond the disk limit
        (they may be sparse), paths beyond 200 directories or 4096 bytes, and for an ordinary user what its owner
        made unreadable. `all_links` keeps every link, for a copy in which nobody follows links.
        """

    def write(self, target: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file, replacing what is there. Missing directories are created."""
        with cache.scratch() as directory:
            file = directory / "file"
            file.write_bytes(data)
            file.chmod(mode)
            self.put(file, target)

    def read(self, source: str, most: int = 1 << 24) -> bytes:
        """The content of a file. A UsageError when it does not exist or has more than `most` bytes."""
        with cache.scratch() as directory:
            file = directory / "file"
            self.get(source, file)
            if not file.is_file():
                raise UsageError(f"{source} in the sandbox is a directory")
            if file.stat().st_size > most:
                raise UsageError(f"{source} in the sandbox has more than {most} bytes")
            return file.read_bytes()

    @abstractmethod
    def end_processes(self) -> None:
        """End every process of earlier commands, and a command that another thread waits for. Files stay."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sandbox(Protocol):
    """A backend: something that makes boxes."""

    name: str

    def missing(self) -> str | None:
        """Why the backend cannot run here, with the fix; None when it can."""

    def open(self, spec: BoxSpec) -> Box:
        """A new box. UsageError when the backend cannot do what `spec` asks, InfraError when it does not work."""

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        """An image from a Dockerfile (default: `context/Dockerfile`). The same content is built once."""


def choose(name: str | None = None, *, accepted: bool = False) -> Sandbox:
    """The backend called `name` (default: the variable SANDBOX_BACKEND, or bubblewrap). It may still be `missing()`.

    `accepted` means that the user knows that `none` isolates nothing; without it `none` refuses to open a box.
    Raises UsageError for an unknown name.
    """
    chosen = name or os.environ.get(VARIABLE) or DEFAULT
    if chosen not in BACKENDS:
        hint = did_you_mean(chosen, BACKENDS, f"known are {', '.join(BACKENDS)}")
        raise UsageError(f"no sandbox called {chosen!r} ({'--sandbox' if name else VARIABLE}); {hint}")
    backend: Sandbox = resolve_name(BACKENDS[chosen])(**({"accepted": accepted} if chosen == "none" else {}))
    return backend
