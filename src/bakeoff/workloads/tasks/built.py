"""A task's environment as an image that a sandbox can open."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox.base import BoxSpec, Image, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.compose import refusal
from bakeoff.workloads.tasks.model import Environment

_FROM = re.compile(r"^(\s*FROM\s+)(\S+)", re.IGNORECASE | re.MULTILINE)
_ON_THIS_MACHINE = frozenset({"bubblewrap", "none"})
"""Backends whose images lie in our own store, which knows this machine's programs by the name `host`."""


_WORKDIRS: dict[tuple[str, Image], str] = {}


@dataclass(frozen=True, slots=True)
class Built:
    image: Image
    workdir: str = ""
    """The image's own; empty where nobody asked."""


def refused(environment: Environment) -> str:
    """Why no box can be what the environment says; empty where one can."""
    if environment.os != "linux":
        return f"environment.os: {environment.os} boxes cannot be had here, so the task cannot be run"
    return refusal(environment) if environment.services else ""


def stand_in(environment: Environment, sandbox: Sandbox) -> str:
    """A sentence where the Dockerfile is built in place of the image that is named, which is not in our store."""
    if environment.docker_image is None or environment.dockerfile is None or sandbox.name not in _ON_THIS_MACHINE:
        return ""
    from bakeoff.sandbox import images

    try:
        images.find(environment.docker_image)
    except UsageError:
        return f"image {environment.docker_image!r} is not in the store: {environment.dockerfile.name} is built instead"
    return ""


def built_for(environment: Environment, sandbox: Sandbox) -> Built:
    """By name, from a Dockerfile, or this machine's own programs where a task asks for neither."""
    if why := refused(environment):
        raise InfraError(why)
    try:
        image = _image(environment, sandbox)
        return Built(image, environment.workdir or _workdir(sandbox, image))
    except InfraError:
        raise
    except BakeoffError as error:  # an image that cannot be had is no fault of an agent's
        raise InfraError(_image_error(str(error))) from error


def _image_error(why: str) -> str:
    return f"the task's image cannot be had: {why}"


def _image(environment: Environment, sandbox: Sandbox) -> Image:
    if environment.docker_image is not None and not stand_in(environment, sandbox):
        return Image.named(environment.docker_image)
    if environment.dockerfile is None:
        return Image.host()
    assert environment.context is not None
    with scratch("context") as here:
        context, file = environment.context, environment.dockerfile
        if environment.withheld:
            context = here / "context"
            shutil.copytree(environment.context, context, symlinks=True, ignore=_withheld(environment))
            file = context / file.relative_to(environment.context)
        if environment.host_base and sandbox.name in _ON_THIS_MACHINE:
            file = _on_host(file, here)
        try:
            return sandbox.build(context, file, environment.build_args)
        except BakeoffError as error:  # the file that somebody can mend is the task's, not our copy of it
            raise InfraError(_image_error(str(error).replace(str(file), str(environment.dockerfile)))) from error


def _withheld(environment: Environment) -> Callable[[str, list[str]], list[str]]:
    """For copytree. Only at the top: a directory of the same name further down is the image's business."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder) == environment.context and name in environment.withheld]

    return ignored


def _on_host(file: Path, here: Path) -> Path:
    """The Dockerfile with `host` in place of a base that is not in the store."""
    from bakeoff.sandbox import images

    def base(match: re.Match[str]) -> str:
        try:
            images.find(match[2])
        except UsageError:
            return f"{match[1]}host"
        return match[0]

    changed = here / "Dockerfile"
    changed.write_text(_FROM.sub(base, file.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    return changed


def _workdir(sandbox: Sandbox, image: Image) -> str:
    """Where commands run when nobody says: asked of a box, once, so it is the same for every backend."""
    if image.kind == "host":
        return "/"
    asked = (sandbox.name, image)
    if asked not in _WORKDIRS:
        with sandbox.open(BoxSpec(image=image)) as box:
            _WORKDIRS[asked] = box.run(["pwd"]).stdout.decode(errors="replace").strip() or "/"
    return _WORKDIRS[asked]
