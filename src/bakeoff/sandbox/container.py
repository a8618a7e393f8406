"""One container as a box, for docker and podman alike."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from bakeoff.engine import cgroup
from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox import archives, bridge, cache, cgroups, host, marks
from bakeoff.sandbox.accounts import Accounts
from bakeoff.sandbox.bubblewrap import CAPABILITIES
from bakeoff.sandbox.scratch import scratch
from bakeoff.sandbox.spec import BoxSpec, Ended, Mount, inside
from bakeoff.sandbox.streams import Streams

if TYPE_CHECKING:
    from bakeoff.sandbox.docker import Docker

LABEL = "bakeoff"
_WAITING = ["sh", "-c", "read -r _"]
"""The first process: it ends when its standard input does."""
_LOOK_AT_DISK = 1.0


class DockerBox(archives.ArchiveBox):
    def __init__(self, service: Docker, spec: BoxSpec) -> None:
        if spec.keep_layer:
            raise UsageError(f"keep_layer: {service.name} keeps no layer as a directory; use bubblewrap")
        self.spec = spec
        self.layer: Path | None = None
        self._service = service
        self._api = service.client
        self._lock = threading.Lock()
        self._closed = False
        self._bridge: subprocess.Popen[bytes] | None = None
        self._input: Any = None
        self._mark = marks.fresh(spec.name)
        self._id: str = self._create()
        try:
            self._start()
            self._make_workdir()
        except BaseException:
            self.close()
            raise

    def _create(self) -> str:
        spec, limits = self.spec, self.spec.limits
        image = self._service.image_name(spec.image)
        self._workdir = spec.workdir or self._api.inspect_image(image)["Config"].get("WorkingDir") or "/"
        mounts = [*spec.mounts, *(host.mounts() if spec.image.kind == "host" else ())]
        settings: dict[str, Any] = {
            "network_mode": None if spec.network else "none",
            "mounts": [_bound(mount) for mount in mounts],
            "cap_drop": ["ALL"],
            "cap_add": list(CAPABILITIES),
            "security_opt": self._service.security(),
            "ulimits": self._service.ulimits(),
        }
        if limits.memory_mb is not None:
            settings["mem_limit"] = settings["memswap_limit"] = limits.memory_mb << 20
        if limits.cpus is not None:
            settings["cpu_period"], settings["cpu_quota"] = 100_000, max(int(limits.cpus * 100_000), 1000)
        if limits.pids is not None:
            settings["pids_limit"] = limits.pids + 1
        made: dict[str, Any] = self._api.create_container(
            image,
            command=_WAITING,
            entrypoint=[],
            name=f"{marks.PREFIX}{self._mark}",
            labels={LABEL: self._mark},
            environment=dict(spec.env),
            user=spec.user or "",
            working_dir="/",
            hostname="box",
            stdin_open=True,
            host_config=self._api.create_host_config(**settings),
        )
        return str(made["Id"])

    def _start(self) -> None:
        self._let_go()
        self._input = self._api.attach_socket(self._id, params={"stdin": 1, "stream": 1})
        self._api.start(self._id)
        if self.spec.sockets:
            self._begin_bridge()

    def _let_go(self) -> None:
        """Close the connection that the first process reads from: it ends, and with it the container."""
        if self._input is not None:
            _close(self._input)
            self._input = None

    def _make_workdir(self) -> None:
        with scratch() as empty:
            if self._workdir != "/" and not self._exists(self._workdir):
                empty.chmod(0o755)
                self.put(empty, self._workdir)

    def _exists(self, path: str) -> bool:
        try:
            self._api.get_archive(self._id, path)[0].close()
        except import_module("docker.errors").NotFound:
            return False
        return True

    def _begin_bridge(self) -> None:
        """A forwarder of ours in the container's network; it needs the right to enter that."""
        pid = self._pid()
        words = [word for port, path in self.spec.sockets.items() for word in (str(port), str(path.absolute()))]
        enter = ["nsenter", "-t", str(pid), "-n"]
        if os.geteuid() != 0:
            enter += ["-U", "--preserve-credentials"]
        self._bridge = subprocess.Popen(
            [*enter, sys.executable, "-I", bridge.__file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._bridge.stdout is not None and self._bridge.stderr is not None
        if not self._bridge.stdout.readline():
            said = self._bridge.stderr.read().decode(errors="replace").strip()
            raise InfraError(
                f"no bridge into the network of the container: {said}; entering it needs root, or a podman of your own"
            )

    def _end_bridge(self) -> None:
        if self._bridge is not None:
            self._bridge.communicate()
            self._bridge = None

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
        place = str(inside(cwd or self._workdir, "cwd"))
        with self._lock, ExitStack() as stack, infra("the container cannot run a command"):
            self._check_open()
            streams = Streams(stack, cache.directory("boxes"), None, stdout, stderr)
            given = stdin.read_bytes() if isinstance(stdin, Path) else stdin
            made = self._api.exec_create(
                self._id,
                list(argv),
                environment=dict(env or {}),
                workdir=place,
                user=user or self.spec.user or "",
                stdin=given is not None,
            )
            return self._follow(made["Id"], given, streams, timeout)

    def _follow(self, command: str, stdin: bytes | None, streams: Streams, timeout: float | None) -> Ended:
        groups = cgroup.of(self._pid())  # the service's own figures take a second
        before, began = cgroups.usage(groups), time.monotonic()
        watch = _Watch(self._kill, timeout, self._disk_excess)
        try:
            room = self.spec.limits.disk_mb << 20 if self.spec.limits.disk_mb is not None else None
            for out, err in self._output(command, stdin):
                room = streams.take(out, err, room)
            seconds = time.monotonic() - began
        finally:
            why = watch.end()
        after = cgroups.usage(groups)
        code = 137 if why else self._api.exec_inspect(command)["ExitCode"]
        facts = Ended(
            code=127 if code == 126 and b"executable file not found" in streams.tail("stdout") else int(code),
            seconds=seconds,
            timed_out=why == "timeout",
            memory_killed=after.oom_kills > before.oom_kills,
            disk_full=why == "disk",
            pids_refused=max(after.pids_refused - before.pids_refused, 0),
            peak_memory_mb=round(after.peak_memory / 2**20, 3) if after.peak_memory is not None else None,
            cpu_seconds=_difference(after.cpu_seconds, before.cpu_seconds),
            stdout=streams.tail("stdout"),
            stderr=streams.tail("stderr"),
        )
        self._end_rest(why)
        return facts

    def _output(self, command: str, stdin: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Start a command, feed it, and give what it writes, (stdout, stderr), piece by piece."""
        connection = self._api.exec_start(command, socket=True)
        feeder = threading.Thread(target=_feed, args=(connection, stdin), daemon=True)
        try:
            if stdin is not None:
                feeder.start()
            for kind, piece in import_module("docker.utils.socket").frames_iter(connection, tty=False):
                yield (piece, b"") if kind == 1 else (b"", piece)
        finally:
            _close(connection)

    def _pid(self) -> int:
        return int(self._api.inspect_container(self._id)["State"]["Pid"])

    def _kill(self) -> None:
        self._api.kill(self._id)

    def _end_rest(self, why: str) -> None:
        """Whatever the command left behind ends: the container is stopped and started, its files stay."""
        if not why:
            # Counted outside: what `ps` inside says is up to whoever was there.
            groups = cgroup.of(self._pid())
            if groups and all(len(cgroups.members(group)) <= 1 for group in groups.values()):
                return
            self._kill()
        self._api.wait(self._id)
        self._end_bridge()
        self._start()

    def _disk_excess(self) -> bool:
        limit = self.spec.limits.disk_mb
        if limit is None:
            return False
        found = self._api.containers(all=True, size=True, filters={"id": self._id})
        return bool(found) and (found[0].get("SizeRw") or 0) > limit << 20

    def put(self, source: Path, target: str) -> None:
        self._check_open()
        path = str(inside(target))
        with archives.packed(source, path, self._owner) as file, infra(f"cannot put {source} into the container"):
            self._api.put_archive(self._id, "/", file)

    def get(self, source: str, target: Path, *, all_links: bool = False) -> None:
        self._check_open()
        try:
            stream, _ = self._api.get_archive(self._id, str(inside(source)))
        except import_module("docker.errors").NotFound:
            raise UsageError(f"{source}: no such file or directory in the box") from None
        archives.unpack(cast(IO[bytes], _Pieces(stream)), target, self.spec.limits.most_out, all_links=all_links)
        if not target.exists():
            raise UsageError(f"{source} in the box is neither a file nor a directory; a link is not followed")

    @cached_property
    def _owner(self) -> tuple[int, int]:
        """Whom files that are put in belong to."""
        if self.spec.user is None:
            return (0, 0)
        account = Accounts(self).find(self.spec.user)
        return (account.uid, account.gid)

    def end_processes(self) -> None:
        self._check_open()
        if self._lock.locked():
            self._kill()
        with self._lock, infra("the container cannot be started again"):
            if self._api.inspect_container(self._id)["State"]["Running"]:
                self._end_rest("")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._end_bridge()
        try:
            with infra("the container cannot be removed"):
                self._api.remove_container(self._id, force=True, v=True)
        finally:
            self._let_go()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this box is closed")


class _Watch:
    """Ends a command when its time is over or the disk is full, from a thread of its own."""

    def __init__(self, kill: Callable[[], None], timeout: float | None, disk_excess: Callable[[], bool]) -> None:
        self._kill = kill
        self._deadline = time.monotonic() + timeout if timeout is not None else float("inf")
        self._disk_excess = disk_excess
        self._over = threading.Event()
        self._why = ""
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(min(_LOOK_AT_DISK, max(self._deadline - time.monotonic(), 0.0))):
            if time.monotonic() >= self._deadline:
                self._why = "timeout"
            elif self._disk_excess():
                self._why = "disk"
            if self._why:
                self._kill()
                return

    def end(self) -> str:
        """Stop watching. Says why the command was killed, if it was."""
        self._over.set()
        self._thread.join()
        return self._why


class _Pieces(io.RawIOBase):
    """A stream of byte strings as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
        taken = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(taken) :]
        return taken


def _feed(connection: Any, data: bytes) -> None:
    try:
        connection._sock.sendall(data)
        connection._sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the command ended without reading all of it


def _close(connection: Any) -> None:
    """The SDK gives a file over a socket; closing the file leaves the socket open."""
    under = connection._sock
    connection.close()
    if under is not None:
        under.close()


def _difference(after: float | None, before: float | None) -> float | None:
    return round(after - before, 6) if after is not None and before is not None else None


def _bound(mount: Mount) -> Any:
    if not mount.source.exists():
        raise UsageError(f"mount {mount.source}: no such file or directory")
    make = import_module("docker.types").Mount
    return make(target=mount.target, source=str(mount.source.absolute()), type="bind", read_only=not mount.writable)


@contextmanager
def infra(what: str) -> Iterator[None]:
    """Errors of the service are infrastructure, not the command's."""
    try:
        yield
    except (BakeoffError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise InfraError(f"{what}: {told(error)}") from error


def told(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error) or type(error).__name__
