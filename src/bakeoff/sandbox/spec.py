"""What a box is made of, and how a command in it ended. Plain values: nothing here starts anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from bakeoff.errors import UsageError

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAME = re.compile(r"[\w.-]{0,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Image:
    """The files a box starts from. Make one with `host`, `root` or `named`."""

    kind: Literal["host", "root", "named"]
    where: str = ""

    @classmethod
    def host(cls) -> Image:
        """An allow-listed, read-only view of this machine's programs: no home, no /var, no keys."""
        return cls("host")

    @classmethod
    def root(cls, directory: Path) -> Image:
        """An unpacked image. The directory is never written to."""
        return cls("root", str(directory.absolute()))

    @classmethod
    def named(cls, name: str) -> Image:
        """`name:tag`: an image that docker or podman has, or one that was added to the image store."""
        return cls("named", name)

    @property
    def path(self) -> Path:
        if self.kind != "root":
            raise UsageError(f"image {self} is no directory")
        return Path(self.where)

    def __str__(self) -> str:
        return self.where or self.kind


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of this machine that the box sees at `target`."""

    source: Path
    target: str
    writable: bool = False

    def __post_init__(self) -> None:
        inside(self.target, "mount target")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a box may use in all; None is no limit of ours."""

    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_mb: int | None = None

    def __post_init__(self) -> None:
        for name in ("memory_mb", "cpus", "pids", "disk_mb"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"sandbox limit {name} = {value}: give a number above 0, or leave it out for no limit")

    @property
    def most_out(self) -> int:
        """Bytes that a copy out of the box may have: no more than the box may hold."""
        return self.disk_mb << 20 if self.disk_mb is not None else 16 << 30


@dataclass(frozen=True, slots=True)
class BoxSpec:
    image: Image = field(default_factory=Image.host)
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the image's own, and to PATH, HOME, USER and LANG, which have defaults. Nothing of ours leaks in."""
    workdir: str = ""
    """Where commands run; created if it is missing. Without one, the image's own, or `/`."""
    limits: Limits = Limits()
    sockets: Mapping[int, Path] = field(default_factory=dict)
    """Loopback port inside to a unix socket of ours outside. Without `network` this is the only way out."""
    network: bool = False
    user: str | None = None
    """Whom commands run as: a name the image knows, or a number. None is the image's own user, or root inside."""
    keep_layer: bool = False
    """After `close`, `Box.layer` is a directory with everything that was written."""
    name: str = ""
    """A word for people, in directory, cgroup and container names; those are unique without it."""

    def __post_init__(self) -> None:
        if self.workdir:
            inside(self.workdir, "workdir")
        if not _NAME.fullmatch(self.name):
            raise UsageError(f"box name {self.name!r}: up to 64 letters, digits, dots and dashes")
        for port in self.sockets:
            if not 0 < port < 65536:
                raise UsageError(f"socket port {port}: a port has a number from 1 to 65535")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command in a box ended."""

    code: int
    """Exit code; 128 + signal when a signal ended it."""
    seconds: float
    timed_out: bool = False
    memory_killed: bool = False
    """The kernel, or our watch, killed something in the box because its memory limit was reached."""
    disk_full: bool = False
    """When the command ended, no more than a few blocks of the disk limit were left."""
    pids_refused: int = 0
    """How often a new process was refused because of the limit, where that is counted."""
    peak_memory_mb: float | None = None
    cpu_seconds: float | None = None
    stdout: bytes = b""
    """The end of what it wrote, at most a megabyte, when no file was given for it."""
    stderr: bytes = b""

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.timed_out


def inside(path: str, what: str = "path in a box") -> PurePosixPath:
    """An absolute path without `..`, or an error that names it."""
    pure = PurePosixPath(path)
    if not path.startswith("/") or ".." in pure.parts or "\0" in path:
        raise UsageError(f"{what} {path!r}: give an absolute path without `..`")
    return PurePosixPath("/" + path.lstrip("/"))
