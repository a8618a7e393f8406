"""Boxes as containers of docker or podman, through one client: the PyPI package `docker`, which both services answer.

The first process of a container reads from a connection that we hold (container.py). When we are gone, by whatever
signal, it ends, and with it everything inside. What is left then is a stopped container with our label; the next
start removes it.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from bakeoff.errors import BakeoffError, InfraError, UsageError, install
from bakeoff.records.layout import atomic_write
from bakeoff.sandbox import cache, images, syscalls
from bakeoff.sandbox.base import BoxSpec, Image
from bakeoff.sandbox.container import LABEL, DockerBox, error_text, infra_errors

_ANSWER_SECONDS = 120
_START_SECONDS = 20
_DEFAULT_PROFILE = Path("/usr/share/containers/seccomp.json")
"""The system calls that containers may make by default; comes with podman (containers-common)."""


class Docker:
    """The backend for dockerd; see `Sandbox`. `client` is the SDK's low-level client, connected."""

    name = "docker"
    _fix = "start dockerd, or set DOCKER_HOST to its address"
    _swept = False
    _profile_is_file = False
    """Whether the service takes a seccomp profile as the name of a file, and not as JSON."""
    ulimits: Mapping[str, tuple[int, int]] = {}
    """Name to soft and hard limit, for every container."""

    def missing(self) -> str | None:
        """Why no container can be started; the service is asked every time."""
        try:
            self.client.ping()
        except BakeoffError as error:
            return str(error)
        except Exception as error:
            return f"no {self.name} service answers ({error_text(error)}); {self._fix}"
        return None

    def _address(self) -> str:
        """Where the service listens: DOCKER_HOST, or dockerd's usual socket."""
        return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"

    @cached_property
    def client(self) -> Any:
        """The client. Raises InfraError when the package is not installed or nothing listens."""
        try:
            sdk = import_module("docker")
        except ImportError:
            raise InfraError(
                f"the Python package docker is not installed; install it with {install('docker')}"
            ) from None
        address = self._address()
        if address.startswith("unix://"):  # the SDK leaves sockets open when nothing answers, so try first
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(address.removeprefix("unix://"))
                except OSError as error:
                    raise InfraError(
                        f"no {self.name} service answers at {address} ({error.strerror}); {self._fix}"
                    ) from None
        return sdk.APIClient(base_url=address, version="auto", timeout=_ANSWER_SECONDS)

    def open(self, spec: BoxSpec) -> DockerBox:
        """A new container. The first one also removes containers of processes that are gone."""
        if (problem := self.missing()) is not None:
            raise InfraError(f"{self.name}: {problem}")
        if not self._swept:
            self.remove_abandoned()
            self._swept = True
        with infra_errors(f"{self.name} cannot make a sandbox"):
            return DockerBox(self, spec)

    def remove_abandoned(self) -> int:
        """Remove containers of ours whose owner is gone. Returns how many."""
        removed = 0
        for container in self.client.containers(all=True, filters={"label": LABEL}):
            if cache.owner_gone(container["Labels"][LABEL]):
                self.client.remove_container(container["Id"], force=True, v=True)  # with anonymous volumes
                removed += 1
        return removed

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        """Have the service build a Dockerfile, tagged by a digest of its content.

        UsageError, with output, if it fails.
        """
        file = dockerfile or context / "Dockerfile"
        if not file.is_file():
            raise UsageError(f"{file}: no such file")
        content = images.tree_digest(context) + file.read_text() + json.dumps(dict(args or {}), sort_keys=True)
        # "localhost/": a name without a registry would be looked up at docker.io by podman.
        tag = f"localhost/bakeoff-build-{_short_digest(content)}:latest"
        if self._has_image(tag):
            return Image.named(tag)
        output: list[str] = []
        with infra_errors(f"{self.name} cannot build {file}"):
            for line in self.client.build(
                path=str(context),
                dockerfile=os.path.relpath(file, context),
                tag=tag,
                rm=True,
                forcerm=True,
                buildargs=dict(args or {}),
                decode=True,
            ):
                output.append(line.get("stream") or line.get("error") or "")
                if "error" in line:
                    raise UsageError(f"{file}: the build failed:\n{''.join(output)[-2000:].strip()}")
        return Image.named(tag)

    def image_name(self, image: Image) -> str:
        """What this service calls an image. A directory is imported under a tag of its content, once."""
        if image.kind == "named":
            if not self._has_image(image.where):
                raise UsageError(
                    f"{self.name} has no image {image.where!r}, and nothing is downloaded; get it with "
                    f"`{self.name} pull {image.where}` or `{self.name} load -i FILE`"
                )
            return image.where
        directory = images.host_root() if image.kind == "host" else Path(image.where)
        if not directory.is_dir():
            raise UsageError(f"image {directory}: no such directory")
        tag = f"localhost/bakeoff-root-{_short_digest(images.tree_digest(directory))}:latest"
        if not self._has_image(tag):
            with tempfile.TemporaryFile(dir=cache.directory()) as file:
                subprocess.run(["tar", "-C", str(directory), "-c", "."], check=True, stdout=file)
                file.seek(0)
                self.client.import_image_from_data(file, repository=tag.removesuffix(":latest"), tag="latest")
        return tag

    def runtime_of(self, container: str) -> str:
        """The OCI runtime that runs a container."""
        return str(self.client.inspect_container(container)["HostConfig"].get("Runtime"))

    def _has_image(self, name: str) -> bool:
        """Whether the service has an image of this name or tag."""
        try:
            self.client.inspect_image(name)
        except import_module("docker.errors").NotFound:
            return False
        return True

    def security_options(self, tracing: bool = True) -> list[str]:
        """`--security-opt` for a container: no new privileges, and the default seccomp profile, narrowed.

        Without the profile's file we do not know what the service allows, and leave its own default in place.
        """
        if not _DEFAULT_PROFILE.is_file():
            return ["no-new-privileges"]
        profile = json.dumps(syscalls.narrowed_profile(json.loads(_DEFAULT_PROFILE.read_text()), tracing))
        if self._profile_is_file:
            file = cache.directory("seccomp") / f"{_short_digest(profile)}.json"
            if not file.exists():
                atomic_write(file, profile)
            profile = str(file)
        return ["no-new-privileges", f"seccomp={profile}"]


class Podman(Docker):
    """The backend for podman; it starts its own service when none listens at the usual place."""

    name = "podman"
    _runtime: str | None = None
    """podman has one runtime for all containers of a service."""
    _fix = "install podman, or start `podman system service` and set CONTAINER_HOST to its address"
    _profile_is_file = True
    # podman asks for limits above ours by default, and where limits cannot be raised no container starts.
    ulimits: Mapping[str, tuple[int, int]] = {"nofile": (1024, 4096), "nproc": (1000, 1000)}

    def _address(self) -> str:
        """Where the service listens: CONTAINER_HOST, the usual socket of this user, or a service of our own."""
        if address := os.environ.get("CONTAINER_HOST"):
            return address
        runtime = os.environ.get("XDG_RUNTIME_DIR") if os.geteuid() else "/run"
        usual = Path(runtime or "/run", "podman", "podman.sock")
        own = self._runtime is not None or not usual.exists()
        return f"unix://{_podman_service(self._runtime) if own else usual}"

    def open(self, spec: BoxSpec) -> DockerBox:
        """A new container, of a service that has its runtime."""
        if spec.runtime == self._runtime or os.environ.get("CONTAINER_HOST"):
            return super().open(spec)
        service = Podman()
        service._runtime = spec.runtime
        return service.open(spec)

    def runtime_of(self, container: str) -> str:
        """The OCI runtime that runs a container, which only podman's own interface tells."""
        answer = self.client.get(f"{self.client.base_url}/v4.0.0/libpod/containers/{container}/json")
        return str(answer.json().get("OCIRuntime"))


@dataclass(frozen=True, slots=True)
class _Service:
    """A `podman system service` that we started, and its socket."""

    process: subprocess.Popen[bytes]
    socket: Path


_SERVICE_PREFIX = "bakeoff-podman-"
_services: dict[tuple[int, str | None], _Service] = {}
"""By our own pid (a forked child must not use, or end, the service of its parent) and the runtime."""


def _podman_service(runtime: str | None = None) -> Path:
    """The socket of a podman service of this process, started when there is none. It ends with us."""
    program = shutil.which("podman")
    if program is None:
        raise InfraError("the program podman is not installed; install it with `apt-get install podman`")
    key = (os.getpid(), runtime)
    running = _services.get(key)
    if running is not None and running.process.poll() is None:
        return running.socket
    for left in Path(tempfile.gettempdir()).glob(
        f"{_SERVICE_PREFIX}*"
    ):  # of killed owners; the services went with them
        if cache.owner_gone(left.name.removeprefix(_SERVICE_PREFIX)):
            shutil.rmtree(left, ignore_errors=True)
    # In /tmp: the path of a unix socket has at most 107 bytes (unix(7)).
    path = Path(tempfile.gettempdir(), f"{_SERVICE_PREFIX}{cache.unique_name()}", "sock")
    path.parent.mkdir(mode=0o700)
    chosen = ["--runtime", runtime] if runtime is not None else []
    words = ["setpriv", "--pdeathsig", "TERM", program, *chosen, "system", "service", "--time", "0", f"unix://{path}"]
    quiet = subprocess.DEVNULL
    # Its monitors write into their working directory (a file `oom` when memory ran out), so that is not the user's.
    process = subprocess.Popen(words, cwd=path.parent, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    _services[key] = _Service(process, path)
    atexit.register(_end_service, _services[key])
    deadline = time.monotonic() + _START_SECONDS
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise InfraError("`podman system service` does not start")
        time.sleep(0.02)
    return path


def _end_service(service: _Service) -> None:
    """Called when Python exits."""
    service.process.terminate()
    service.process.wait()
    shutil.rmtree(service.socket.parent, ignore_errors=True)


def _short_digest(text: str) -> str:
    """A digest that is short enough for a tag and long enough to be unique."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]
