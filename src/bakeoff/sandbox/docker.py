"""Boxes as containers of docker or podman, over one client: the PyPI `docker` SDK, which both answer.

A container's first process reads from a connection that we hold; when we are gone, by whatever signal, it ends and with
it everything inside. What is left then is a stopped container with our label, which the next start removes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.records.layout import atomic_write
from bakeoff.sandbox import cache, host, images, marks, seccomp
from bakeoff.sandbox.container import LABEL, DockerBox, infra, told
from bakeoff.sandbox.spec import BoxSpec, Image

_ANSWER_SECONDS = 120
_PROFILE = Path("/usr/share/containers/seccomp.json")
"""Which system calls containers may make, by default: comes with podman."""


class Docker:
    name = "docker"
    _ulimits: tuple[tuple[str, int, int], ...] = ()

    def missing(self) -> str | None:
        try:
            self.client.ping()
        except BakeoffError as error:
            return str(error)
        except Exception as error:
            return f"no {self.name} service answers ({told(error)}); {self._fix()}"
        return None

    def _fix(self) -> str:
        return "start dockerd, or set DOCKER_HOST to where it listens"

    def _address(self) -> str:
        return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"

    @cached_property
    def client(self) -> Any:
        try:
            sdk = import_module("docker")
        except ImportError:
            raise InfraError(
                "the Python package docker is not here; install it with pip install 'bakeoff[docker]'"
            ) from None
        address = self._address()
        self._knock(address)
        return sdk.APIClient(base_url=address, version="auto", timeout=_ANSWER_SECONDS)

    def _knock(self, address: str) -> None:
        """The SDK leaves sockets open when nobody answers, so ask first."""
        if not address.startswith("unix://"):
            return
        with socket.socket(socket.AF_UNIX) as door:
            try:
                door.connect(address.removeprefix("unix://"))
            except OSError as error:
                raise InfraError(
                    f"no {self.name} service answers at {address} ({error.strerror}); {self._fix()}"
                ) from None

    def open(self, spec: BoxSpec) -> DockerBox:
        if (problem := self.missing()) is not None:
            raise InfraError(f"{self.name}: {problem}")
        if not self._swept:
            self.remove_leftovers()
            self._swept = True
        with infra(f"{self.name} cannot make a box"):
            return DockerBox(self, spec)

    _swept = False

    def remove_leftovers(self) -> int:
        """Remove containers of ours whose maker is gone."""
        removed = 0
        for found in self.client.containers(all=True, filters={"label": LABEL}):
            if marks.abandoned(found["Labels"][LABEL]):
                self.client.remove_container(found["Id"], force=True, v=True)
                removed += 1
        return removed

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        file = dockerfile or context / "Dockerfile"
        if not file.is_file():
            raise UsageError(f"{file}: no such file")
        digest = images.tree_digest(context) + file.read_text() + json.dumps(dict(args or {}), sort_keys=True)
        tag = f"localhost/bakeoff-build-{_short(digest)}:latest"
        if self._has(tag):
            return Image.named(tag)
        said: list[str] = []
        with infra(f"{self.name} cannot build {file}"):
            relative = os.path.relpath(file, context)
            for line in self.client.build(
                path=str(context),
                dockerfile=relative,
                tag=tag,
                rm=True,
                forcerm=True,
                buildargs=dict(args or {}),
                decode=True,
            ):
                said.append(line.get("stream") or line.get("error") or "")
                if "error" in line:
                    raise UsageError(f"{file}: the build failed:\n{''.join(said)[-2000:].strip()}")
        return Image.named(tag)

    def image_name(self, image: Image) -> str:
        """What this service calls the image; directories are taken in under a tag of their content."""
        if image.kind == "named":
            if not self._has(image.where):
                raise UsageError(
                    f"{self.name} has no image {image.where!r}, and nothing is downloaded; get it with "
                    f"`{self.name} pull {image.where}` or `{self.name} load -i FILE`"
                )
            return image.where
        directory = host.root() if image.kind == "host" else image.path
        if not directory.is_dir():
            raise UsageError(f"image {directory}: no such directory")
        tag = f"localhost/bakeoff-root-{_short(images.tree_digest(directory))}:latest"
        if not self._has(tag):
            with tempfile.TemporaryFile(dir=cache.directory()) as file:
                subprocess.run(["tar", "-C", str(directory), "-c", "."], check=True, stdout=file)
                file.seek(0)
                self.client.import_image_from_data(file, repository=tag.removesuffix(":latest"), tag="latest")
        return tag

    def _has(self, name: str) -> bool:
        try:
            self.client.inspect_image(name)
        except import_module("docker.errors").NotFound:
            return False
        return True

    def security(self) -> list[str]:
        """The service's own filter of system calls, narrowed where we know what it is."""
        if not _PROFILE.is_file():
            return ["no-new-privileges"]
        narrowed = json.dumps(seccomp.narrowed(json.loads(_PROFILE.read_text())))
        return ["no-new-privileges", f"seccomp={self._given(narrowed)}"]

    def _given(self, profile: str) -> str:
        """How this service takes rules: docker as they are."""
        return profile

    def ulimits(self) -> list[Any]:
        make = import_module("docker.types").Ulimit
        return [make(name=name, soft=soft, hard=hard) for name, soft, hard in self._ulimits]


class Podman(Docker):
    name = "podman"
    # Its service asks for limits above ours unless told, and where limits cannot be raised no container starts.
    _ulimits = (("nofile", 1024, 4096), ("nproc", 1000, 1000))

    def _given(self, profile: str) -> str:
        """podman by the name of a file."""
        file = cache.directory("seccomp") / f"{_short(profile)}.json"
        if not file.exists():
            atomic_write(file, profile)
        return str(file)

    def _fix(self) -> str:
        return "install podman, or start `podman system service` and set CONTAINER_HOST to where it listens"

    def _address(self) -> str:
        if given := os.environ.get("CONTAINER_HOST"):
            return given
        runtime = os.environ.get("XDG_RUNTIME_DIR") if os.geteuid() else "/run"
        usual = Path(runtime or "/run", "podman", "podman.sock")
        return f"unix://{usual if usual.exists() else _podman_service()}"


_SERVICE = "bakeoff-podman-"
_services: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}


def _podman_service() -> Path:
    """A service of our own, which ends with us."""
    program = shutil.which("podman")
    if program is None:
        raise InfraError("the program podman is not here; install it with `apt-get install podman`")
    running = _services.get(os.getpid())
    if running is not None and running[0].poll() is None:
        return running[1]
    _remove_services()
    path = Path(tempfile.gettempdir(), f"{_SERVICE}{marks.fresh()}", "sock")  # a socket's path must be short
    path.parent.mkdir(mode=0o700)
    words = ["setpriv", "--pdeathsig", "TERM", program, "system", "service", "--time", "0", f"unix://{path}"]
    quiet = subprocess.DEVNULL
    # Its helpers write into their working directory (a file `oom` when memory ran out): not into the user's.
    process = subprocess.Popen(words, cwd=path.parent, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    _services[os.getpid()] = (process, path)
    import atexit

    atexit.register(_end_service, process, path.parent)
    deadline = time.monotonic() + 20
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise InfraError("`podman system service` does not start")
        time.sleep(0.02)
    return path


def _remove_services() -> None:
    """Directories of services whose owner was killed; the services went with it."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SERVICE}*"):
        if marks.abandoned(path.name.removeprefix(_SERVICE)):
            shutil.rmtree(path, ignore_errors=True)


def _end_service(process: subprocess.Popen[bytes], directory: Path) -> None:
    process.terminate()
    process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
