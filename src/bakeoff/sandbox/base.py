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

import fcntl
import os
import re
import select
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from pkgutil import resolve_name
from types import TracebackType
from typing import IO, Literal, NamedTuple, Protocol, Self

from bakeoff.errors import InfraError, UsageError, did_you_mean
from bakeoff.sandbox import cache

VARIABLE = "SANDBOX_BACKEND"
UNSANDBOXED = "BAKEOFF_UNSANDBOXED"
"""Set for worker processes after the user agreed to run agents without a sandbox."""
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
HIDDEN_ON_HOST = ("/usr/local", "/usr/src")
"""What a box with this machine's programs does not see of /usr: what people installed by hand, often with their data."""
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
    "SYS_CHROOT",
)  # fmt: skip
"""What root inside a box may do (capabilities(7)): the usual rights over files and users, none over the kernel.

In particular no SYS_ADMIN (mounts, namespaces), NET_ADMIN, NET_RAW, MKNOD, SYS_PTRACE or SYS_MODULE."""

# A name becomes part of directory, cgroup and container names, so nothing that any of them treats specially.
_BOX_NAME = re.compile(r"[\w.-]{0,64}", re.ASCII)
_RUNTIME_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)  # not a path: the service's own list decides
_DEFAULT_COPY_LIMIT = 16 << 30
_OUTPUT_TAIL = 1 << 20  # what a result carries of output that did not go to a file
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_PIPE_BYTES = 1 << 20  # the most that an ordinary user may ask for (/proc/sys/fs/pipe-max-size, pipe(7))


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
    output_mb: int = 256
    """What is stored of each output of a command; not more than `disk_mb`. The rest is dropped."""

    def __post_init__(self) -> None:
        for name in ("memory_mb", "cpus", "pids", "disk_mb", "output_mb"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"sandbox limit {name} = {value}: give a number above 0, or omit it for no limit")

    @property
    def copy_limit(self) -> int:
        """How many bytes `Box.get` copies at most: as many as the box may hold, else 16 GiB."""
        return self.disk_mb << 20 if self.disk_mb is not None else _DEFAULT_COPY_LIMIT

    @property
    def output_limit(self) -> int:
        """How many bytes are stored of each output of a command."""
        return min(self.output_mb, self.disk_mb or self.output_mb) << 20


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
    host_paths: tuple[str, ...] = ()
    """Of `HIDDEN_ON_HOST`, what a box with this machine's programs sees all the same, read-only."""
    user: str | None = None
    """Who commands run as: a name that the image knows, or a number (default: the image's user, or root inside)."""
    runtime: str | None = None
    """The OCI runtime of a container (`runsc` is gVisor's), by the name that docker or podman knows; None is the
    service's default. Only they have runtimes."""
    tracing: bool = True
    """Whether commands may read and change other processes of their user: debuggers, strace. False where tests run."""
    keep_layer: bool = False
    """After `close`, `Box.layer` is a directory with everything that was written."""
    name: str = ""
    """A label for people, in directory, cgroup and container names; those are unique without it."""

    def __post_init__(self) -> None:
        if self.workdir:
            box_path(self.workdir, "workdir")
        if not _BOX_NAME.fullmatch(self.name):
            raise UsageError(f"sandbox name {self.name!r}: use up to 64 letters, digits, dots and dashes")
        for path in self.host_paths:
            if path not in HIDDEN_ON_HOST:
                raise UsageError(
                    f"host path {path!r}: only {' and '.join(HIDDEN_ON_HOST)} can be allowed; mount others"
                )
        if self.runtime is not None and not _RUNTIME_NAME.fullmatch(self.runtime):
            raise UsageError(
                f"sandbox.runtime {self.runtime!r}: give a name that docker or podman knows, such as runsc"
            )
        for port in self.sockets:
            if not 0 < port < 65536:
                raise UsageError(f"socket port {port}: give a number from 1 to 65535")


RUNTIMES = ("docker", "podman")
"""Backends that have `BoxSpec.runtime`."""


def refuse_runtime(spec: BoxSpec, backend: str) -> None:
    """Raise a UsageError, with the fix, if a box without runtimes is to have one."""
    if spec.runtime is not None:
        raise UsageError(
            f"sandbox.runtime = {spec.runtime!r}: {backend} has no runtimes\n  fix: --sandbox {' or '.join(RUNTIMES)}, or "
            "leave the key out"
        )


class NotStarted(InfraError):
    """A command was not started, so nothing of it ran. Any other InfraError of `Box.run` may come after its start."""


class LeftOut(NamedTuple):
    """An entry that `Box.get` did not copy."""

    path: str
    """Below the copied directory; bytes that are not UTF-8 are replaced."""
    why: str


MOST_LEFT_OUT = 1000
"""Entries that `Box.get` lists; there may be a million."""


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
    started: bool = True
    """False if the program could not be executed (codes 126 and 127). True where a backend cannot tell that from a
    program that exits with such a code."""
    output_dropped: int = 0
    """Bytes of output beyond `Limits.output_mb`, which were not stored."""

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
    pipes: tuple[int, ...] = ()
    tracing: bool = True


class _Output:
    """Where one output of a command goes: a file that takes at most `room` bytes. The rest is dropped and counted.

    A command never gets the file itself. It could truncate it, change its mode and owner, and read from
    /proc/self/fd where it lies on this machine. It gets a pipe, which a thread empties into the file; the bytes go from
    one to the other inside the kernel (splice(2)), without the interpreter's lock.
    """

    def __init__(self, file: IO[bytes], room: int) -> None:
        self.file = file
        self.dropped = 0
        self._room = room
        self._pipe: int | None = None
        self._stop = -1
        self._thread: threading.Thread | None = None
        self._finished = False

    def write(self, data: bytes) -> None:
        """Append output that came over a connection."""
        kept = data[: self._room]
        self._room -= len(kept)
        self.dropped += len(data) - len(kept)
        self.file.write(kept)
        self.file.flush()

    def pipe(self) -> int:
        """A descriptor for the command to write to, until `finish`. The same one for every call."""
        if self._pipe is None:
            with ExitStack() as undo:  # descriptors may run out at any of these calls
                source, target = os.pipe2(os.O_CLOEXEC)
                undo.callback(os.close, source)
                undo.callback(os.close, target)
                with suppress(PermissionError):  # an ordinary user has used up pipe-user-pages-soft (pipe(7))
                    fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
                self._stop = os.eventfd(0, os.EFD_CLOEXEC)
                undo.callback(os.close, self._stop)
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                undo.callback(os.close, nowhere)
                thread = threading.Thread(target=self._move, args=(source, nowhere), daemon=True)
                thread.start()
                undo.pop_all()
            self._pipe, self._thread = target, thread
        return self._pipe

    def _move(self, source: int, nowhere: int) -> None:
        """Empty the pipe into the file until nobody writes to it any more, or `finish` was called; close both."""
        try:
            self._empty(source, nowhere)
        finally:
            os.close(source)
            os.close(nowhere)

    def _empty(self, source: int, nowhere: int) -> None:
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        # After `finish`, only what was in the pipe by then: a process that got hold of it may print without end.
        left: int | None = None
        while left is None or left > 0:
            ready = {fd for fd, _ in poll.poll(None if left is None else 0)}
            if source not in ready and self._stop in ready:
                break
            if left is None and self._stop in ready:
                left = _PIPE_BYTES
            target = self.file.fileno() if self._room > 0 else nowhere
            try:
                moved = os.splice(source, target, min(self._room or _PIPE_BYTES, _PIPE_BYTES))
            except OSError:  # our disk is full: what cannot be stored is dropped, and the command goes on
                if target == nowhere:
                    raise
                self._room = 0
                continue
            if moved == 0:
                break
            if target == nowhere:
                self.dropped += moved
            else:
                self._room -= moved
            left = left - moved if left is not None else None

    def finish(self) -> None:
        """Store what is still in the pipe, and add a line if something was dropped. Called again, it does nothing."""
        if self._finished:
            return
        self._finished = True
        if self._pipe is not None and self._thread is not None:
            os.close(self._pipe)
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            os.close(self._stop)
            self.file.seek(0, os.SEEK_END)
        if self.dropped:
            self.file.write(f"\n[{self.dropped} more bytes of output were dropped]\n".encode())
            self.file.flush()


class Streams:
    """The standard streams of one command. Output without a path goes to an unnamed file whose end is read later.

    Root in a box may do to an open file whatever its owner may, so no file that anything else uses is handed out (not
    even /dev/null): output goes through pipes, input is a copy in memory.
    """

    def __init__(self, stack: ExitStack, scratch: Path, stdout: Path | None, stderr: Path | None, room: int) -> None:
        """Files are closed when `stack` unwinds. Unnamed files are made in `scratch`. Each takes `room` bytes."""
        self._stack = stack
        self._scratch = scratch
        self._out = self._open(stdout, room)
        self._err = self._out if stdout is not None and stdout == stderr else self._open(stderr, room)
        self._unnamed = {"stdout": stdout is None, "stderr": stderr is None}

    def _open(self, path: Path | None, room: int) -> _Output:
        """A file for output: the one at `path`, emptied, or an unnamed one."""
        if path is None:
            unnamed = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 - the stack closes it
            output = _Output(self._stack.enter_context(unnamed), room)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            output = _Output(self._stack.enter_context(path.open("w+b")), room)
        self._stack.callback(output.finish)
        return output

    @property
    def dropped(self) -> int:
        """How many bytes of output there was no room for."""
        return sum(output.dropped for output in {self._out, self._err})

    def fds(self, stdin: bytes | Path | None, pipes: tuple[int, ...] = ()) -> list[int]:
        """Descriptors for standard input, output and error. Input is a copy of `stdin`, or the end of a closed pipe.

        `pipes` replace input and output.
        """
        if pipes:
            return [*pipes, self._err.pipe()]
        if stdin is None:
            read, write = os.pipe2(os.O_CLOEXEC)
            os.close(write)
            source: IO[bytes] = self._stack.enter_context(os.fdopen(read, "rb"))
        else:
            # In memory: the name of an unnamed file in /proc/self/fd would show where it was made.
            memory = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            source = self._stack.enter_context(os.fdopen(memory, "w+b"))
            if isinstance(stdin, Path):
                with stdin.open("rb") as original:
                    shutil.copyfileobj(original, source)
            else:
                source.write(stdin)
            source.seek(0)  # this flushes too
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)  # a command cannot store anything in it
        return [source.fileno(), self._out.pipe(), self._err.pipe()]

    def write(self, stdout: bytes, stderr: bytes) -> None:
        """Append output that came over a connection."""
        self._out.write(stdout)
        self._err.write(stderr)

    def tail(self, name: Literal["stdout", "stderr"], most: int = _OUTPUT_TAIL, *, from_file: bool = False) -> bytes:
        """The last `most` bytes of an output. Empty when it went to a file of the caller, unless `from_file` is set.

        The command has ended when this is called.
        """
        output = self._out if name == "stdout" else self._err
        output.finish()
        if not (self._unnamed[name] or from_file):
            return b""
        fd = output.file.fileno()
        return os.pread(fd, most, max(os.fstat(fd).st_size - most, 0))


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
        pipes: tuple[int, ...] = (),
        tracing: bool = True,
        output_limit: int | None = None,
    ) -> CommandResult:
        """Run a command until it ends, or kill it after `timeout` seconds.

        `env` is added to the variables of the box, `cwd` and `user` replace the box's defaults. `tracing=False` denies
        this command what `BoxSpec.tracing` denies all; containers know only the latter. Output goes to the
        files `stdout` and `stderr`; the same path for both gets both in order. Without a file, the result has the
        end of the output. `output_limit` is how many bytes of each are stored, in place of the box's `output_mb`.
        A command that does not exist ends with code 127, one that cannot be executed with 126.

        `pipes` are the descriptors of standard input and output of a command that is talked to while it runs. The
        caller closes them. modal lacks this.
        Raises UsageError for a wrong call (closed box, unknown user, no such `cwd`), InfraError when the box broke.
        """
        if not argv:
            raise UsageError("no command to run in the sandbox")
        with self._lock, ExitStack() as stack:
            self._check_open()
            streams = Streams(stack, self._directory, stdout, stderr, output_limit or self.spec.limits.output_limit)
            command = Command(list(argv), env or {}, cwd, timeout, stdin, user, pipes, tracing)
            result = self._execute(command, streams)
            out, err = streams.tail("stdout"), result.stderr or streams.tail("stderr")
            return replace(result, stdout=out, stderr=err, output_dropped=streams.dropped)

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
    def get(self, source: str, target: Path, *, all_links: bool = False, most: int | None = None) -> list[LeftOut]:
        """Copy a file or directory out, to exactly `target`; returns what was left out, at most MOST_LEFT_OUT entries.

        Left out are links that lead out of the copied tree, devices, pipes and sockets: a hostile command may have
        left them for us to follow. Left out of a directory is also what we cannot hold: files beyond the disk limit
        or `most` bytes in all (they may be sparse), more than a million entries, paths beyond 200 directories or 4096
        bytes, what vanishes or cannot be read. `all_links` keeps every link, for a copy in which nobody follows links.
        Raises UsageError if `source` is not a file or directory, OSError if this machine has no room.
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

    def changes(self) -> Iterator[tuple[str, bool]]:
        """Paths that were written or removed since the box was opened, and whether the image has something there.

        As many as there are: a box may hold millions of files. None where a backend cannot tell.
        """
        return iter(())

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


def choose_for_workers(name: str | None, accept: Callable[[str], None], risk: str) -> None:
    """Pass the user's choice (`--sandbox`) on to worker processes, through the environment.

    Running without a sandbox is a `risk` that the user has to `accept`, which raises if they do not.
    """
    if name is not None:
        os.environ[VARIABLE] = name
    if choose(name, accepted=True).name == "none":
        accept(risk)
        os.environ[UNSANDBOXED] = "1"
