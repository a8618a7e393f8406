"""The face of every sandbox, and the one door to them: `choose()`.

    with choose().open(BoxSpec(limits=Limits(memory_mb=512))) as box:
        box.put(Path("repo"), "/app/repo")
        ended = box.run(["sh", "-c", "make test"], cwd="/app/repo", timeout=60)

A `UsageError` says that the call is wrong, an `InfraError` that the box broke; what a command does is never an
exception but told by its `Ended`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.sandbox.spec import BoxSpec, Ended, Image

VARIABLE = "SANDBOX_BACKEND"
DEFAULT = "bubblewrap"


@runtime_checkable
class Box(Protocol):
    """One isolated place. Leaving it ends every process and removes every mount, cgroup and directory of it.

    Files stay from one command to the next; processes do not: when a command ends, so does what it started.
    One command at a time: a second `run` waits for the first.
    """

    spec: BoxSpec
    layer: Path | None
    """What was written, after `close`, if `spec.keep_layer` asked for it."""

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
        """Run a command to its end. `env` adds to the box's; the same path as stdout and stderr gets both in order.

        A command that is not there ends with code 127, one that cannot be executed with 126.
        """

    def put(self, source: Path, target: str) -> None:
        """Copy a file or directory in, to exactly `target`; a directory is merged into one that is there."""

    def get(self, source: str, target: Path, *, all_links: bool = False) -> None:
        """Copy a file or directory out, to exactly `target`.

        Links that lead out of the copied tree, devices, pipes and sockets are left out: whoever wrote them may want
        us to follow them. So is, of a directory, what we cannot hold: files beyond the box's disk limit (they may be
        sparse), paths beyond 200 directories or 4096 bytes, and for an ordinary user what its owner shut.
        `all_links` keeps every link, for a copy in which nobody follows any.
        """

    def write(self, target: str, data: bytes, mode: int = 0o644) -> None: ...

    def read(self, source: str, most: int = 1 << 24) -> bytes:
        """The content of a file, refused when it is longer than `most` bytes."""

    def end_processes(self) -> None:
        """Nothing of any earlier command runs afterwards; files stay."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sandbox(Protocol):
    """A way to make boxes."""

    @property
    def name(self) -> str: ...

    def missing(self) -> str | None:
        """Why it cannot run here, with the fix; None when it can."""

    def open(self, spec: BoxSpec) -> Box: ...

    def build(self, context: Path, dockerfile: Path | None = None, args: Mapping[str, str] | None = None) -> Image:
        """An image from a Dockerfile (`context/Dockerfile` if none is given); built once for the same content."""


BACKENDS = {
    "bubblewrap": "bakeoff.sandbox.bubblewrap:Bubblewrap",
    "docker": "bakeoff.sandbox.docker:Docker",
    "podman": "bakeoff.sandbox.docker:Podman",
    "modal": "bakeoff.sandbox.modal:Modal",
    "none": "bakeoff.sandbox.none:NoSandbox",
}


def choose(name: str | None = None, *, accepted: bool = False) -> Sandbox:
    """The sandbox called `name`, else by SANDBOX_BACKEND, else bubblewrap. It may still be `missing()` here.

    `accepted`: the user knows that `none` isolates nothing.
    """
    wanted = name or os.environ.get(VARIABLE) or DEFAULT
    if wanted not in BACKENDS:
        hint = did_you_mean(wanted, BACKENDS, f"there are {', '.join(BACKENDS)}")
        raise UsageError(f"no sandbox called {wanted!r} ({'--sandbox' if name else VARIABLE}); {hint}")
    made: Sandbox = resolve_name(BACKENDS[wanted])(**({"accepted": accepted} if wanted == "none" else {}))
    return made
