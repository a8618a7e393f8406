"""No sandbox: commands run on this machine, as you, in a new directory. Only for code that you trust.

For `put`, `get`, `cwd` and so on, a path is a path below that directory; a command sees the machine as it is. Time and
memory are watched; nothing else is limited.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bakeoff.engine import processes
from bakeoff.errors import UsageError
from bakeoff.sandbox import bridge, cache
from bakeoff.sandbox.base import DEFAULT_PATH, BoxSpec, Command, CommandResult, Image, Streams, box_path, refuse_runtime
from bakeoff.sandbox.files import FileTree, FileTreeBox

_WATCH_SECONDS = 0.05


@dataclass
class NoSandbox:
    """The backend; see `Sandbox`. `accepted` means that the user knows that it isolates nothing."""

    accepted: bool = False
    name: str = field(default="none", init=False)

    def missing(self) -> str | None:
        """None: it works everywhere."""
        return None

    def open(self, spec: BoxSpec) -> HostBox:
        """A new directory; UsageError for whatever would need isolation."""
        if not self.accepted:
            raise UsageError(
                "sandbox 'none' isolates nothing: commands can read and change whatever you can. "
                "Use bubblewrap, docker or podman, or accept this"
            )
        refuse_runtime(spec, "sandbox 'none'")
        if spec.image.kind != "host":
            raise UsageError(f"sandbox 'none' has no images; {spec.image.where} needs bubblewrap, docker or podman")
        if spec.user is not None or spec.keep_layer:
            raise UsageError("sandbox 'none' has no other users and keeps no layer")
        return HostBox(spec)

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        """Always a UsageError."""
        raise UsageError(f"sandbox 'none' builds no images; {context} needs bubblewrap, docker or podman")


class HostBox(FileTreeBox):
    """A directory of this machine. `root` is what paths of the box are below."""

    def __init__(self, spec: BoxSpec) -> None:
        """Make the directory, with links in place of mounts, and listen on the ports of `spec.sockets`."""
        super().__init__(spec, cache.directory("boxes") / cache.unique_name(spec.name))
        self._directory.mkdir(mode=0o700)
        self.root = self._directory / "root"
        self.root.mkdir()
        self._fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files = FileTree(self._fd)
        os.close(self._files.make_directory(spec.workdir or "/"))
        os.close(self._files.make_directory("/tmp"))
        for mount in spec.mounts:
            place = self.root / str(box_path(mount.target)).lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(mount.source.absolute())
        self._listeners = {bridge.listen(port): str(path.absolute()) for port, path in spec.sockets.items()}
        bridge.serve(self._listeners)

    def _execute(self, command: Command, streams: Streams) -> CommandResult:
        """Run the command as a child of this process, in its own session."""
        if command.user is not None:
            raise UsageError("sandbox 'none' has no other users")
        place = self.root / str(box_path(command.cwd or self.spec.workdir or "/")).lstrip("/")
        if not place.is_dir():
            raise UsageError(f"{command.cwd}: no such directory in the sandbox")
        # Children inherit the mark, also daemons that leave the session: that is how they are found afterwards.
        mark = self._directory.name
        defaults = {
            "PATH": os.environ.get("PATH", DEFAULT_PATH),
            "HOME": str(self.root),
            "TMPDIR": str(self.root / "tmp"),
            "LANG": "C.UTF-8",
        }
        stdin, stdout, stderr = streams.fds(command.stdin, command.pipes)
        began, before = time.monotonic(), os.times()
        try:
            process = subprocess.Popen(
                command.argv,
                cwd=place,
                env={**defaults, **self.spec.env, **command.env, processes.MARK: mark},
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            return CommandResult(code, 0.0, stderr=str(error).encode(), started=False)
        why = self._watch(process, command.timeout)
        seconds = time.monotonic() - began
        processes.end_marked(mark)  # before wait: it may be the command itself that has to be killed
        code = process.wait()
        after = os.times()
        return CommandResult(
            code=137 if why else code if code >= 0 else 128 - code,  # Popen has -N for signal N
            seconds=seconds,
            timed_out=why == "timeout",
            memory_killed=why == "memory",
            cpu_seconds=after.children_user + after.children_system - before.children_user - before.children_system,
        )

    def _watch(self, process: subprocess.Popen[bytes], timeout: float | None) -> str:
        """Wait until a command has ended, or must; then returns why: "timeout" or "memory"."""
        deadline = time.monotonic() + timeout if timeout is not None else float("inf")
        memory = self.spec.limits.memory_mb
        while True:
            try:
                process.wait(min(_WATCH_SECONDS if memory is not None else 3600, max(deadline - time.monotonic(), 0)))
                return ""
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() >= deadline:
                return "timeout"
            tree = processes.descendants([process.pid]) if memory is not None else []
            if memory is not None and processes.memory(tree, memory << 20) > memory << 20:
                return "memory"

    def end_processes(self) -> None:
        """Kill every process that carries the mark of this box in its environment."""
        processes.end_marked(self._directory.name)

    def _release(self) -> None:
        """End processes and listeners, and remove the directory."""
        self.end_processes()
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)  # its thread closes it
        os.close(self._fd)
        cache.remove(self._directory)
