"""One container as a box, for docker and podman alike."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from bakeoff.engine import processes
from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox import archives, bridge, cache, cgroups, images
from bakeoff.sandbox.base import (
    CAPABILITIES,
    Box,
    BoxSpec,
    Command,
    CommandResult,
    LeftOut,
    NotStarted,
    Streams,
    box_path,
)
from bakeoff.sandbox.files import Owner

if TYPE_CHECKING:
    from bakeoff.sandbox.docker import Docker

LABEL = "bakeoff"
_FIRST_PROCESS = ["sh", "-c", "read -r _"]
"""It ends when its standard input does, and the container with it."""
_DISK_SECONDS = 1.0
_PAUSE = 0.1
_CHUNK = 1 << 16
_COPY_SECONDS = 600.0
"""How long copying out of a container may take."""
_HEADER_BYTES = 256 << 20
"""What an archive may have beyond the content of files: 1.5 kB for each entry at most."""


class DockerBox(Box):
    """A running container. Each command is an `exec` in it; what a command leaves running ends with a restart."""

    def __init__(self, service: Docker, spec: BoxSpec) -> None:
        """Create and start a container, and make its working directory."""
        if spec.keep_layer:
            raise UsageError(f"keep_layer: {service.name} keeps no layer as a directory; use bubblewrap")
        super().__init__(spec)
        self._service = service
        self._api = service.client
        self._bridge: subprocess.Popen[bytes] | None = None
        self._input: Any = None
        """The connection that the first process reads from."""
        self._create()
        try:
            self._start()
            if self._workdir != "/":
                try:
                    self._api.get_archive(self._id, self._workdir)[0].close()
                except import_module("docker.errors").NotFound:
                    with cache.scratch() as empty:
                        empty.chmod(0o755)
                        self.put(empty, self._workdir)
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        """Create the container with its mounts, limits and rights; sets `_id` and `_workdir`."""
        spec, limits = self.spec, self.spec.limits
        image = self._service.image_name(spec.image)
        self._workdir = spec.workdir or self._api.inspect_image(image)["Config"].get("WorkingDir") or "/"
        types = import_module("docker.types")
        mounts = []
        for mount in [*spec.mounts, *(images.host_mounts() if spec.image.kind == "host" else ())]:
            if not mount.source.exists():
                raise UsageError(f"mount {mount.source}: no such file or directory")
            source = str(mount.source.absolute())
            mounts.append(types.Mount(mount.target, source, type="bind", read_only=not mount.writable))
        settings: dict[str, Any] = {
            "network_mode": None if spec.network else "none",
            "mounts": mounts,
            "runtime": spec.runtime,
            "cap_drop": ["ALL"],  # then the same eleven as in bubblewrap
            "cap_add": list(CAPABILITIES),
            "security_opt": self._service.security_options(spec.tracing),
            "ulimits": [
                types.Ulimit(name=name, soft=soft, hard=hard) for name, (soft, hard) in self._service.ulimits.items()
            ],
        }
        if limits.memory_mb is not None:  # memory plus swap: with both the same, there is no swap
            settings["mem_limit"] = settings["memswap_limit"] = limits.memory_mb << 20
        if limits.cpus is not None:
            settings["cpu_period"], settings["cpu_quota"] = 100_000, max(int(limits.cpus * 100_000), 1000)
        if limits.pids is not None:
            # The first process, and the bridge.
            settings["pids_limit"] = limits.pids + 1 + cgroups.BRIDGE_PIDS * bool(spec.sockets)
        name = cache.unique_name(spec.name)
        created = self._api.create_container(
            image,
            command=_FIRST_PROCESS,
            entrypoint=[],  # an image's own entry point would run before, or instead of, our first process
            name=f"{cache.PREFIX}{name}",
            labels={LABEL: name},
            environment=dict(spec.env),
            user=spec.user or "",
            working_dir="/",
            hostname="box",
            stdin_open=True,
            # All of /proc, not only the parts in the service's own list: /proc/PID/mem of the same user can be written.
            host_config=self._api.create_host_config(**settings)
            | ({} if spec.tracing else {"ReadonlyPaths": ["/proc"]}),
        )
        self._id = str(created["Id"])
        if spec.runtime is not None and (used := self._service.runtime_of(self._id)) != spec.runtime:
            self._api.remove_container(self._id, force=True, v=True)
            raise UsageError(
                f"sandbox.runtime = {spec.runtime!r}: this {self._service.name} service runs containers with {used!r}\n"
                f"  fix: start it as `podman --runtime {spec.runtime} system service`"
            )

    def _start(self) -> None:
        """Start the container, again after a stop, and the bridge into its network."""
        _close(self._input)
        # As long as this connection is open, the first process waits for input, and the container runs.
        self._input = self._api.attach_socket(self._id, params={"stdin": 1, "stream": 1})
        self._api.start(self._id)
        if not self.spec.sockets:
            return
        # A forwarder (bridge.py) in the container's network namespace, which takes the right to enter it.
        first = self._pid()
        words = [word for port, path in self.spec.sockets.items() for word in (str(port), str(path.absolute()))]
        enter = ["nsenter", "-t", str(first), "-n"]
        if os.geteuid() != 0:  # a rootless podman's containers are in a user namespace that belongs to us
            enter += ["-U", "--preserve-credentials"]
        self._bridge = subprocess.Popen(
            [*enter, sys.executable, "-I", bridge.__file__, str(first), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._bridge.stdout is not None and self._bridge.stderr is not None
        if not self._bridge.stdout.readline():
            output = self._bridge.stderr.read().decode(errors="replace").strip()
            raise InfraError(
                f"no bridge into the network of the container: {output}; this needs root, or podman without root"
            )
        for group in set(processes.cgroups_of(first).values()):
            with suppress(OSError):  # without root
                (group / "cgroup.procs").write_text(
                    str(self._bridge.pid)
                )  # its connections are the container's to spend

    def _end_bridge(self) -> None:
        """End the forwarder by closing its standard input, and wait for it."""
        if self._bridge is not None:
            self._bridge.communicate()
            self._bridge = None

    def _execute(self, command: Command, streams: Streams) -> CommandResult:
        """Run an `exec` in the container; carry its streams, watch it, and end what it leaves running."""
        stdin = command.stdin.read_bytes() if isinstance(command.stdin, Path) else command.stdin
        with infra_errors("the container cannot run a command", NotStarted):
            created = self._api.exec_create(
                self._id,
                command.argv,
                environment=dict(command.env),
                workdir=str(box_path(command.cwd or self._workdir, "cwd")),
                user=command.user or self.spec.user or "",
                stdin=stdin is not None or bool(command.pipes),
            )
        with infra_errors("the container cannot run a command"):
            groups = processes.cgroups_of(self._pid())  # read by us: the service's own statistics take a second
            before, began = cgroups.usage(groups), time.monotonic()
            ended, reasons = threading.Event(), list[str]()
            watch = threading.Thread(target=self._watch, args=(command.timeout, ended, reasons), daemon=True)
            watch.start()
            try:
                for out, err in self._output(created["Id"], stdin, command.pipes):
                    if command.pipes:
                        _write_all(command.pipes[1], out)
                    streams.write(b"" if command.pipes else out, err)
                seconds = time.monotonic() - began
            finally:
                ended.set()
                watch.join()
            why = reasons[0] if reasons else ""
            after = cgroups.usage(groups)
            code = 137 if why else int(self._api.exec_inspect(created["Id"])["ExitCode"])
            if code == 126 and b"executable file not found" in streams.tail("stdout"):
                code = 127  # runc says 126 for both
            peak, cpu = after.peak_memory, None
            if after.cpu_seconds is not None and before.cpu_seconds is not None:
                cpu = round(after.cpu_seconds - before.cpu_seconds, 6)
            result = CommandResult(
                code=code,
                seconds=seconds,
                timed_out=why == "timeout",
                memory_killed=after.oom_kills > before.oom_kills,
                disk_full=why == "disk",
                pids_refused=max(after.pids_refused - before.pids_refused, 0),
                peak_memory_mb=round(peak / 2**20, 3) if peak is not None else None,
                cpu_seconds=cpu,
            )
            self._end_rest(killed=bool(why))
            return result

    def _output(self, command: str, stdin: bytes | None, pipes: tuple[int, ...]) -> Iterator[tuple[bytes, bytes]]:
        """Start a command, feed it, and yield what it writes, stdout and stderr, chunk by chunk."""
        connection = self._api.exec_start(command, socket=True)
        stream = connection._sock  # closing the connection forgets it
        # A copy: the caller may close its own end, and reuse the number, while the thread below still reads.
        source = os.dup(pipes[0]) if pipes else None

        def feed() -> None:
            try:
                stream.sendall(stdin or b"")
                while source is not None and (chunk := os.read(source, _CHUNK)):
                    stream.sendall(chunk)
                stream.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the command ended without reading all of it
            finally:
                if source is not None:
                    os.close(source)

        try:
            if stdin is not None or pipes:
                threading.Thread(target=feed, daemon=True).start()
            for kind, chunk in import_module("docker.utils.socket").frames_iter(connection, tty=False):
                yield (chunk, b"") if kind == 1 else (b"", chunk)
        finally:
            _close(connection)

    def _pid(self) -> int:
        """The first process of the container, as a pid of this machine."""
        return int(self._api.inspect_container(self._id)["State"]["Pid"])

    def _watch(self, timeout: float | None, ended: threading.Event, reasons: list[str]) -> None:
        """Until a command has `ended`, kill it when its time is over or the disk is full; say so in `reasons`.

        A container has no limit for either. Killing it ends the command; its files stay. Runs in a thread.
        """
        deadline = time.monotonic() + timeout if timeout is not None else float("inf")
        limit = self.spec.limits.disk_mb
        while not ended.wait(min(_DISK_SECONDS, max(deadline - time.monotonic(), _PAUSE))):
            with suppress(Exception):  # whatever the service raises: it is asked again
                if not reasons and time.monotonic() >= deadline:
                    reasons.append("timeout")
                elif not reasons and limit is not None:
                    listed = self._api.containers(all=True, size=True, filters={"id": self._id})
                    if listed and (listed[0].get("SizeRw") or 0) > limit << 20:
                        reasons.append("disk")
                if reasons:
                    self._api.kill(self._id)
                    return

    def _kill(self) -> None:
        """Kill the first process, and so the container, unless that has happened already."""
        try:
            self._api.kill(self._id)
        except import_module("docker.errors").APIError as error:
            # A conflict says that it was not running; another thread may have started it again since.
            if error.status_code != HTTPStatus.CONFLICT and self._api.inspect_container(self._id)["State"]["Running"]:
                raise

    def _end_rest(self, killed: bool) -> None:
        """End whatever a command left running: stop the container and start it again. Files stay."""
        if not killed:
            # Counted from outside: what `ps` inside says is up to whoever ran there.
            groups = processes.cgroups_of(self._pid())
            ours = {self._bridge.pid} if self._bridge is not None else set()
            if groups and all(len(set(cgroups.members(group)) - ours) <= 1 for group in groups.values()):
                return
            self._kill()
        self._api.wait(self._id)
        self._end_bridge()
        self._start()

    def put(self, source: Path, target: str) -> None:
        """Copy in, as an archive that the service unpacks inside the container."""
        self._check_open()
        path = str(box_path(target))
        with (
            archives.packed(source, path, self._owner) as file,
            infra_errors(f"cannot put {source} into the container"),
        ):
            self._api.put_archive(self._id, "/", file)

    def get(self, source: str, target: Path, *, all_links: bool = False, most: int | None = None) -> list[LeftOut]:
        """Copy out, from an archive that the service streams. The service resolves the path inside the container."""
        self._check_open()
        try:
            stream, _ = self._api.get_archive(self._id, str(box_path(source)))
        except import_module("docker.errors").NotFound:
            raise UsageError(f"{source}: no such file or directory in the sandbox") from None
        limit = self.spec.limits.copy_limit if most is None else min(most, self.spec.limits.copy_limit)
        # The service sends a file of a terabyte whole, even if it is nothing but a hole, before the next one.
        chunks = _Chunks(iter(stream), limit + _HEADER_BYTES, time.monotonic() + _COPY_SECONDS)
        try:
            with infra_errors(f"cannot copy {source} out of the container"):
                left_out = archives.unpack(cast(IO[bytes], chunks), target, limit, all_links=all_links)
        finally:
            stream.close()
        if not target.exists():
            raise UsageError(f"{source} in the sandbox is neither a file nor a directory; links are not followed")
        return left_out

    def changes(self) -> Iterator[tuple[str, bool]]:
        """What the service says of the container's upper layer. Kind 1 is a path that the image does not have."""
        self._check_open()
        with infra_errors("the container's changes cannot be listed"):
            return iter([(entry["Path"], entry["Kind"] != 1) for entry in self._api.diff(self._id) or ()])

    @cached_property
    def _owner(self) -> Owner:
        """Who files that are put in belong to."""
        account = images.Accounts(self.read).find(self.spec.user) if self.spec.user is not None else None
        return Owner(account.uid, account.gid) if account is not None else Owner(0, 0)

    def end_processes(self) -> None:
        """Kill a command that another thread waits for; restart the container if it was killed or anything else runs in it."""
        self._check_open()
        if self._lock.locked():
            self._kill()
        with self._lock, infra_errors("the container cannot be started again"):
            running = self._api.inspect_container(self._id)["State"]["Running"]
            self._end_rest(killed=not running)  # it may have been killed after its command had ended

    def _release(self) -> None:
        """Remove the container with its volumes, then the connection to its first process."""
        self._end_bridge()
        try:
            with infra_errors("the container cannot be removed"):
                self._api.remove_container(self._id, force=True, v=True)
        finally:
            _close(self._input)  # its first process ends now, if the container is still there
            self._input = None


@dataclass(slots=True)
class _Chunks:
    """An iterator of byte strings as a file, as far as tarfile reads one."""

    chunks: Iterator[bytes]
    most: int
    deadline: float
    """On the monotonic clock."""
    rest: bytes = b""

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, fewer at the end. Raises CutOff after `most` bytes or at the `deadline`."""
        while size < 0 or len(self.rest) < size:
            chunk = next(self.chunks, None)
            if chunk is None:
                break
            self.most -= len(chunk)
            if self.most < 0 or time.monotonic() > self.deadline:
                raise archives.CutOff
            self.rest += chunk
        taken = self.rest if size < 0 else self.rest[:size]
        self.rest = self.rest[len(taken) :]
        return taken


def _write_all(fd: int, data: bytes) -> None:
    """Write to a pipe, unless nobody reads from it any more."""
    with suppress(BrokenPipeError):
        while data:
            data = data[os.write(fd, data) :]


def _close(connection: Any) -> None:
    """Close a connection of the SDK, if there is one. It is a file over a socket: closing it leaves the socket open."""
    if connection is not None:
        under = connection._sock
        connection.close()
        if under is not None:
            under.close()


@contextmanager
def infra_errors(what: str, kind: type[InfraError] = InfraError) -> Iterator[None]:
    """Turn errors of the service into an InfraError that begins with `what`: they are not the command's."""
    try:
        yield
    except (BakeoffError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise kind(f"{what}: {error_text(error)}") from error


def error_text(error: Exception) -> str:
    """The text of an error of the SDK, which keeps the service's words in `explanation`."""
    return str(getattr(error, "explanation", None) or error) or type(error).__name__
