"""Boxes as sandboxes of Modal, a hosted service; needs an account (`modal token new`).

What is sent is built by plain functions and checked against the library's own signatures; it was not run against the
service. Modal limits memory and CPU; it has no limit of ours for processes and disk, and no way to a socket of this machine.
"""

from __future__ import annotations

import shlex
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox import archives, cache, images, marks
from bakeoff.sandbox.spec import BoxSpec, Ended, Image, inside
from bakeoff.sandbox.streams import Streams

APP = "bakeoff"
TAG = "bakeoff"
_LONGEST = 24 * 3600


class Modal:
    name = "modal"

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def missing(self) -> str | None:
        try:
            modal = import_module("modal")
        except ImportError:
            return "the Python package modal is not here; install it with pip install 'bakeoff[modal]'"
        config = import_module("modal.config").config
        if not (config.get("token_id") and config.get("token_secret")):
            return f"modal {modal.__version__} is here but has no account; run `modal token new`"
        return None

    def open(self, spec: BoxSpec) -> ModalBox:
        if (problem := self.missing()) is not None:
            raise InfraError(f"modal: {problem}")
        modal = import_module("modal")
        check(spec)
        mark = marks.fresh(spec.name)
        args, settings = creation(spec, self.image(spec), mark)
        try:
            app = modal.App.lookup(APP, create_if_missing=True)
            sandbox = modal.Sandbox.create(*args, app=app, **settings)
        except Exception as error:
            raise InfraError(f"modal cannot make a box: {error}") from error
        return ModalBox(spec, sandbox)

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        """The service builds it when a box first needs it."""
        file = dockerfile or context / "Dockerfile"
        if not file.is_file():
            raise UsageError(f"{file}: no such file")
        modal = import_module("modal")
        name = f"bakeoff-build-{images.tree_digest(context)[:24]}"
        self._built[name] = modal.Image.from_dockerfile(file, context_dir=context, build_args=dict(args or {}))
        return Image.named(name)

    def image(self, spec: BoxSpec) -> Any:
        """The library's image, with the box's mounts as files of it."""
        modal = import_module("modal")
        image = spec.image
        if image.kind == "host":
            raise UsageError("modal cannot show a box this machine; give an image or a Dockerfile")
        if image.kind == "root":
            made = modal.Image.from_scratch().add_local_dir(image.path, "/", copy=True)
        else:
            made = self._built.get(image.where) or modal.Image.from_registry(image.where)
        for mount in spec.mounts:
            add = made.add_local_dir if mount.source.is_dir() else made.add_local_file
            made = add(mount.source, mount.target)
        return made

    def remove_leftovers(self) -> int:
        """Terminate sandboxes of ours whose maker, on this machine, is gone."""
        sandboxes = import_module("modal").Sandbox.list(tags={"made-by": TAG})
        gone = [sandbox for sandbox in sandboxes if marks.abandoned(sandbox.get_tags().get(TAG, ""))]
        for sandbox in gone:
            sandbox.terminate()
        return len(gone)


def check(spec: BoxSpec) -> None:
    """What Modal cannot do is refused before anything costs money."""
    if spec.sockets:
        raise UsageError("modal boxes cannot reach a socket of this machine; use bubblewrap, docker or podman")
    if any(mount.writable for mount in spec.mounts):
        raise UsageError("modal has no writable mounts of this machine; use put and get")
    if spec.keep_layer:
        raise UsageError("keep_layer: modal keeps no layer as a directory; use bubblewrap")


def creation(spec: BoxSpec, image: Any, mark: str) -> tuple[list[str], dict[str, Any]]:
    """Arguments for `modal.Sandbox.create`."""
    limits = spec.limits
    settings: dict[str, Any] = {
        "image": image,
        "env": dict(spec.env),
        "timeout": _LONGEST,
        "workdir": spec.workdir or None,
        "block_network": not spec.network,
        "tags": {"made-by": TAG, TAG: mark},
    }
    if limits.cpus is not None:
        settings["cpu"] = (limits.cpus, limits.cpus)  # asked for, and at most
    if limits.memory_mb is not None:
        settings["memory"] = (limits.memory_mb, limits.memory_mb)
    return ["sleep", "infinity"], settings


def execution(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, timeout: float | None, user: str | None
) -> tuple[list[str], dict[str, Any]]:
    """Arguments for `Sandbox.exec`."""
    words = ["su", "-s", "/bin/sh", user, "-c", shlex.join(argv)] if user else list(argv)
    seconds = max(1, round(timeout)) if timeout is not None else None
    return words, {"env": dict(env), "workdir": cwd, "timeout": seconds, "text": False}


class ModalBox(archives.ArchiveBox):
    def __init__(self, spec: BoxSpec, sandbox: Any) -> None:
        self.spec = spec
        self.layer: Path | None = None
        self._sandbox = sandbox
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
    ) -> Ended:
        if not argv:
            raise UsageError("no command to run in the box")
        words, settings = execution(argv, env or {}, cwd, timeout, user or self.spec.user)
        with self._lock, ExitStack() as stack:
            streams = Streams(stack, cache.directory("boxes"), None, stdout, stderr)
            began = time.monotonic()
            try:
                process = self._sandbox.exec(*words, **settings)
                self._feed(process, stdin.read_bytes() if isinstance(stdin, Path) else stdin)
                _drain(process, streams)
                code: int | None = process.wait()
            except import_module("modal.exception").ExecTimeoutError:
                code = None
            except Exception as error:
                raise InfraError(f"modal cannot run {argv[0]}: {error}") from error
            seconds = time.monotonic() - began
            timed_out = timeout is not None and (code is None or code < 0) and seconds >= timeout
            self._end_rest()
            return Ended(
                code=137 if code is None or code < 0 else code,
                seconds=seconds,
                timed_out=timed_out,
                stdout=streams.tail("stdout"),
                stderr=streams.tail("stderr"),
            )

    @staticmethod
    def _feed(process: Any, data: bytes | None) -> None:
        if data:
            process.stdin.write(data)
        process.stdin.write_eof()
        process.stdin.drain()

    def _end_rest(self) -> None:
        self._sandbox.exec("sh", "-c", "kill -9 -1").wait()

    def put(self, source: Path, target: str) -> None:
        with archives.packed(source, str(inside(target)), (0, 0)) as file:
            ended = self.run(["tar", "-x", "-C", "/"], stdin=file.read(), user="root")
        if not ended.ok:
            raise InfraError(f"cannot put {source} into the box: {ended.stderr.decode(errors='replace')}")

    def get(self, source: str, target: Path, *, all_links: bool = False) -> None:
        path = inside(source)
        with tempfile.NamedTemporaryFile(dir=cache.directory()) as archive:
            words = ["tar", "-c", "-C", str(path.parent), "--", path.name or "."]
            ended = self.run(words, stdout=Path(archive.name), user="root")
            if not ended.ok:
                raise UsageError(f"{source}: no such file or directory in the box")
            with open(archive.name, "rb") as file:
                archives.unpack(file, target, self.spec.limits.most_out, all_links=all_links)

    def end_processes(self) -> None:
        self._end_rest()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                self._sandbox.terminate()
            except BakeoffError:
                raise
            except Exception as error:
                raise InfraError(f"modal cannot end a box: {error}") from error


def _drain(process: Any, streams: Streams) -> None:
    """Both outputs at once: a full one would hold up the other."""
    guard = threading.Lock()

    def follow(stream: Any, is_error: bool) -> None:
        for piece in stream:
            with guard:
                streams.take(b"" if is_error else piece, piece if is_error else b"", None)

    errors = threading.Thread(target=follow, args=(process.stderr, True))
    errors.start()
    follow(process.stdout, False)
    errors.join()
