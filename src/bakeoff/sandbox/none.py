"""No sandbox: commands run on this machine, as you, in a directory of their own. For code that you trust, and only that.

A path in the box is a path below that directory for `put`, `get`, `cwd` and so on; a command sees the machine as it is.
Time and memory are watched; nothing else is limited.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bakeoff.engine import processes
from bakeoff.errors import UsageError
from bakeoff.sandbox import bridge, cache, leftovers, marks
from bakeoff.sandbox.face import Box
from bakeoff.sandbox.layer import Layer
from bakeoff.sandbox.spec import DEFAULT_PATH, BoxSpec, Ended, Image, inside
from bakeoff.sandbox.streams import Streams

_LOOK_EVERY = 0.05


class NoSandbox:
    name = "none"

    def __init__(self, accepted: bool = False) -> None:
        self._accepted = accepted

    def missing(self) -> str | None:
        return None

    def open(self, spec: BoxSpec) -> HostBox:
        if not self._accepted:
            raise UsageError(
                "sandbox 'none' isolates nothing: commands can read and change whatever you can. "
                "Use bubblewrap, docker or podman, or say that you accept this"
            )
        if spec.image.kind != "host":
            raise UsageError(f"sandbox 'none' has no images; {spec.image} needs bubblewrap, docker or podman")
        if spec.user is not None or spec.keep_layer:
            raise UsageError("sandbox 'none' knows no other user and no layer")
        return HostBox(spec)

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        raise UsageError(f"sandbox 'none' builds no images; {context} needs bubblewrap, docker or podman")


class HostBox(Box):
    def __init__(self, spec: BoxSpec) -> None:
        self.spec = spec
        self.layer: Path | None = None
        self._mark = marks.fresh(spec.name)
        self._directory = leftovers.boxes() / self._mark
        self._directory.mkdir(mode=0o700)
        self.root = self._directory / "root"
        self.root.mkdir()
        self._fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files = Layer(self._fd)
        self._lock = threading.Lock()
        self._closed = False
        os.close(self._files.make_directory(spec.workdir or "/"))
        os.close(self._files.make_directory("/tmp"))
        for mount in spec.mounts:
            place = self._place(mount.target)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(mount.source.absolute())
        self._listeners = {bridge.listen(port): str(path.absolute()) for port, path in spec.sockets.items()}
        bridge.serve(self._listeners)

    def _place(self, path: str) -> Path:
        return self.root / str(inside(path)).lstrip("/")

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
        if user is not None:
            raise UsageError("sandbox 'none' knows no other user")
        place = self._place(cwd or self.spec.workdir or "/")
        if not place.is_dir():
            raise UsageError(f"{cwd}: no such directory in the box")
        with self._lock, ExitStack() as stack:
            streams = Streams(stack, self._directory, stdin, stdout, stderr)
            stdin_fd, stdout_fd, stderr_fd = streams.fds()
            began, before = time.monotonic(), os.times()
            try:
                process = subprocess.Popen(
                    list(argv),
                    cwd=place,
                    env={**self._defaults(), **self.spec.env, **(env or {}), processes.MARK: self._mark},
                    stdin=stdin_fd,
                    stdout=stdout_fd,
                    stderr=stderr_fd,
                    start_new_session=True,
                )
            except OSError as error:
                return Ended(127 if isinstance(error, FileNotFoundError) else 126, 0.0, stderr=str(error).encode())
            why = self._watch(process, timeout)
            seconds = time.monotonic() - began
            processes.end_marked(self._mark)
            code = process.wait()
            after = os.times()
            return Ended(
                code=137 if why else code if code >= 0 else 128 - code,
                seconds=seconds,
                timed_out=why == "timeout",
                memory_killed=why == "memory",
                cpu_seconds=after.children_user + after.children_system - before.children_user - before.children_system,
                stdout=streams.tail("stdout"),
                stderr=streams.tail("stderr"),
            )

    def _defaults(self) -> dict[str, str]:
        path = os.environ.get("PATH", DEFAULT_PATH)
        return {"PATH": path, "HOME": str(self.root), "TMPDIR": str(self.root / "tmp"), "LANG": "C.UTF-8"}

    def _watch(self, process: subprocess.Popen[bytes], timeout: float | None) -> str:
        deadline = time.monotonic() + timeout if timeout is not None else float("inf")
        memory = self.spec.limits.memory_mb
        while True:
            try:
                process.wait(min(_LOOK_EVERY if memory is not None else 3600, max(deadline - time.monotonic(), 0)))
                return ""
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() >= deadline:
                return "timeout"
            if memory is not None and processes.resident(processes.descendants([process.pid])) > memory << 20:
                return "memory"

    def put(self, source: Path, target: str) -> None:
        self._files.put(source, target)

    def get(self, source: str, target: Path, *, all_links: bool = False) -> None:
        self._files.get(source, target, all_links=all_links)

    def write(self, target: str, data: bytes, mode: int = 0o644) -> None:
        self._files.write(target, data, mode)

    def read(self, source: str, most: int = 1 << 24) -> bytes:
        return self._files.read(source, most)

    def end_processes(self) -> None:
        processes.end_marked(self._mark)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.end_processes()
        for listener in self._listeners:
            listener.shutdown(2)
            listener.close()
        os.close(self._fd)
        cache.remove(self._directory)
