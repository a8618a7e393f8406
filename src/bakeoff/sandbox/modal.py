"""Boxes as sandboxes of Modal, a hosted service; needs an account (`modal token new`).

What is sent is made by plain functions (`check`, `creation`, `execution`) and tested against the signatures of the
library; it was not run against the service. Modal limits memory and CPU. It has no limit for processes and disk
that we could set, and no way to a socket of this machine.
"""

from __future__ import annotations

import shlex
import tempfile
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from bakeoff.errors import BakeoffError, InfraError, UsageError, install
from bakeoff.sandbox import archives, cache, images
from bakeoff.sandbox.base import Box, BoxSpec, Command, CommandResult, Image, LeftOut, Streams, box_path, refuse_runtime
from bakeoff.sandbox.files import Owner

APP = "bakeoff"
TAG = "bakeoff"
_LIFETIME_SECONDS = 24 * 3600  # the longest that Modal allows; a box that is not closed ends then


class Modal:
    """The backend; see `Sandbox`."""

    name = "modal"

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}
        """Images of the library by the names that `build` gave them."""

    def missing(self) -> str | None:
        """Why it cannot be used: no package or no account. The service is not asked."""
        try:
            modal = import_module("modal")
        except ImportError:
            return f"the Python package modal is not installed; install it with {install('modal')}"
        config = import_module("modal.config").config
        if not (config.get("token_id") and config.get("token_secret")):
            return f"modal {modal.__version__} is installed but has no account; run `modal token new`"
        return None

    def open(self, spec: BoxSpec) -> ModalBox:
        """A new hosted sandbox."""
        if (problem := self.missing()) is not None:
            raise InfraError(f"modal: {problem}")
        modal = import_module("modal")
        check(spec)
        settings = creation(spec, self.image(spec), cache.unique_name(spec.name))
        try:
            app = modal.App.lookup(APP, create_if_missing=True)
            sandbox = modal.Sandbox.create("sleep", "infinity", app=app, **settings)
        except Exception as error:
            raise InfraError(f"modal cannot make a sandbox: {error}") from error
        return ModalBox(spec, sandbox)

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        """Describe an image; the service builds it when a box first needs it."""
        file = dockerfile or context / "Dockerfile"
        if not file.is_file():
            raise UsageError(f"{file}: no such file")
        modal = import_module("modal")
        name = f"bakeoff-build-{images.tree_digest(context)[:24]}"
        self._built[name] = modal.Image.from_dockerfile(file, context_dir=context, build_args=dict(args or {}))
        return Image.named(name)

    def image(self, spec: BoxSpec) -> Any:
        """The image of a box in the library's terms, with the box's mounts as files of it."""
        modal = import_module("modal")
        image = spec.image
        if image.kind == "host":
            raise UsageError("modal cannot use this machine as an image; give an image or a Dockerfile")
        if image.kind == "root":
            made = modal.Image.from_scratch().add_local_dir(Path(image.where), "/", copy=True)
        else:
            made = self._built.get(image.where) or modal.Image.from_registry(image.where)
        for mount in spec.mounts:
            add = made.add_local_dir if mount.source.is_dir() else made.add_local_file
            made = add(mount.source, mount.target)
        return made

    def remove_abandoned(self) -> int:
        """Terminate sandboxes of ours whose owner, on this machine, is gone. Returns how many."""
        sandboxes = import_module("modal").Sandbox.list(tags={"made-by": TAG})
        gone = [sandbox for sandbox in sandboxes if cache.owner_gone(sandbox.get_tags().get(TAG, ""))]
        for sandbox in gone:
            sandbox.terminate()
        return len(gone)


def check(spec: BoxSpec) -> None:
    """UsageError for what Modal cannot do, before anything costs money."""
    if spec.sockets:
        raise UsageError("modal sandboxes cannot reach a socket of this machine; use bubblewrap, docker or podman")
    if any(mount.writable for mount in spec.mounts):
        raise UsageError("modal has no writable mounts of this machine; use put and get")
    refuse_runtime(spec, "modal")
    if spec.keep_layer:
        raise UsageError("keep_layer: modal keeps no layer as a directory; use bubblewrap")


def creation(spec: BoxSpec, image: Any, name: str) -> dict[str, Any]:
    """Keywords for `modal.Sandbox.create`. `name` is the unique name that a cleanup knows the owner by."""
    limits = spec.limits
    settings: dict[str, Any] = {
        "image": image,
        "env": dict(spec.env),
        "timeout": _LIFETIME_SECONDS,
        "workdir": spec.workdir or None,
        "block_network": not spec.network,
        "tags": {"made-by": TAG, TAG: name},
    }
    if limits.cpus is not None:
        settings["cpu"] = (limits.cpus, limits.cpus)  # request and limit
    if limits.memory_mb is not None:
        settings["memory"] = (limits.memory_mb, limits.memory_mb)
    return settings


def execution(command: Command, user: str | None) -> tuple[list[str], dict[str, Any]]:
    """Words and keywords for `Sandbox.exec`."""
    words = ["su", "-s", "/bin/sh", user, "-c", shlex.join(command.argv)] if user else command.argv
    seconds = max(1, round(command.timeout)) if command.timeout is not None else None
    return words, {"env": dict(command.env), "workdir": command.cwd, "timeout": seconds, "text": False}


class ModalBox(Box):
    """One hosted sandbox. Files travel as archives through `tar` inside."""

    def __init__(self, spec: BoxSpec, sandbox: Any) -> None:
        super().__init__(spec)
        self._sandbox = sandbox

    def _execute(self, command: Command, streams: Streams) -> CommandResult:
        """Run a command over the service's connection, and kill what it leaves running."""
        words, settings = execution(command, command.user or self.spec.user)
        if command.pipes:
            raise UsageError("modal commands cannot be talked to while they run")
        stdin = command.stdin.read_bytes() if isinstance(command.stdin, Path) else command.stdin
        lock = threading.Lock()

        broken: list[BaseException] = []

        def follow(stream: Any, is_error: bool) -> None:
            for chunk in stream:
                with lock:
                    streams.write(b"" if is_error else chunk, chunk if is_error else b"")

        def follow_errors() -> None:
            try:
                follow(process.stderr, True)
            except BaseException as error:  # nobody else would see what a thread raises
                broken.append(error)

        began = time.monotonic()
        code: int | None
        try:
            process = self._sandbox.exec(*words, **settings)
            if stdin:
                process.stdin.write(stdin)
            process.stdin.write_eof()
            process.stdin.drain()
            # Both outputs at the same time: a full buffer of one would hold up the other.
            errors = threading.Thread(target=follow_errors)
            errors.start()
            follow(process.stdout, False)
            errors.join()
            if broken:
                raise broken[0]
            code = process.wait()
        except import_module("modal.exception").ExecTimeoutError:
            code = None
        except Exception as error:
            raise InfraError(f"modal cannot run {command.argv[0]}: {error}") from error
        seconds = time.monotonic() - began
        killed = code is None or code < 0
        self.end_processes()
        return CommandResult(
            code=137 if code is None or code < 0 else code,
            seconds=seconds,
            timed_out=command.timeout is not None and killed and seconds >= command.timeout,
        )

    def put(self, source: Path, target: str) -> None:
        """Copy in, as an archive that `tar` unpacks inside."""
        with archives.packed(source, str(box_path(target)), Owner(0, 0)) as file:
            result = self.run(["tar", "-x", "-C", "/"], stdin=file.read(), user="root")
        if not result.ok:
            raise InfraError(f"cannot put {source} into the sandbox: {result.stderr.decode(errors='replace')}")

    def get(self, source: str, target: Path, *, all_links: bool = False, most: int | None = None) -> list[LeftOut]:
        """Copy out, from an archive that `tar` makes inside. That `tar` may lie; the archive is not trusted."""
        path = box_path(source)
        with tempfile.NamedTemporaryFile(dir=cache.directory()) as archive:
            words = ["tar", "-c", "-C", str(path.parent), "--", path.name or "."]
            result = self.run(words, stdout=Path(archive.name), user="root")
            if not result.ok:
                raise UsageError(f"{source}: no such file or directory in the sandbox")
            with open(archive.name, "rb") as file:
                limit = self.spec.limits.copy_limit if most is None else min(most, self.spec.limits.copy_limit)
                return archives.unpack(file, target, limit, all_links=all_links)

    def end_processes(self) -> None:
        """kill(2) with pid -1: every process but the first and the caller."""
        self._sandbox.exec("sh", "-c", "kill -9 -1").wait()

    def _release(self) -> None:
        """Terminate the sandbox at the service."""
        try:
            self._sandbox.terminate()
        except BakeoffError:
            raise
        except Exception as error:
            raise InfraError(f"modal cannot end a sandbox: {error}") from error
