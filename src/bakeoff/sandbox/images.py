"""Images as directories: unpacked once, named by their content, never changed, shared by every box that starts from them.

    <cache>/images/layers/<digest>/     files of one layer, in the form that an overlay mounts
    <cache>/images/<digest>.json        an image: its layers and what a Dockerfile says about commands
    <cache>/images/names/<name>         the digest that a name stands for

No registry is spoken to. An image comes from `docker save`, `podman save`, `docker export`, an OCI archive or a directory
(`bakeoff sandbox image add NAME FILE|DIR`), or from a Dockerfile (building.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, unquote

from bakeoff.errors import UsageError
from bakeoff.sandbox import cache, host
from bakeoff.sandbox.scratch import scratch
from bakeoff.sandbox.spec import Image

_DIGEST = "sha256:"


@dataclass(frozen=True, slots=True)
class Stored:
    """An image in the store."""

    digest: str
    layers: tuple[str, ...] = ()
    """Digests of its layers, the uppermost first."""
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str | None = None
    host: bool = False
    """Below its layers is the view of this machine."""

    @property
    def image(self) -> Image:
        return Image.host() if self == HOST else Image.named(f"{_DIGEST}{self.digest}")

    def directories(self) -> list[Path]:
        """What an overlay mounts, the uppermost first."""
        found = [_layers() / layer for layer in self.layers]
        if self.host:
            found.append(host.root())
        return found or [cache.directory("images", "empty")]

    def with_layer(self, digest: str) -> Stored:
        return replace(self, layers=(digest, *self.layers))


HOST = Stored("host", host=True)


def resolve(image: Image) -> Stored:
    """What a box starts from."""
    if image.kind == "host":
        return HOST
    if image.kind == "named":
        return find(image.where)
    raise UsageError(f"image {image.where} is a directory of yours, not one of the store")


def find(name: str) -> Stored:
    """The image of this name in the store."""
    if name == "host":
        return HOST
    if name.startswith(_DIGEST):
        digest = name.removeprefix(_DIGEST)
    else:
        known = _names() / quote(full_name(name), safe="")
        digest = known.read_text().strip() if known.exists() else ""
    entry = _store() / f"{digest}.json"
    if not digest or not entry.exists():
        raise UsageError(_cannot_be_had(name))
    facts = json.loads(entry.read_text())
    return Stored(**{**facts, "layers": tuple(facts["layers"])})


def _cannot_be_had(name: str) -> str:
    known = ", ".join(sorted(names())) or "none"
    return (
        f"image {name!r} is not in the store (there: {known}), and nothing is downloaded. Supply it once, in one of these ways:\n"
        f"  docker save {name} -o image.tar   (or podman save; on any machine that has it)\n"
        f"  bakeoff sandbox image add {name} image.tar\n"
        f"  bakeoff sandbox image add {name} DIRECTORY   (an unpacked root, such as debootstrap makes)\n"
        f"or run with --sandbox docker where docker has the image"
    )


def names() -> dict[str, str]:
    """Name to digest, of all named images."""
    return {unquote(path.name): path.read_text().strip() for path in _names().iterdir()}


def full_name(name: str) -> str:
    """`docker.io/library/debian` and `debian` are both `debian:latest`."""
    short = name.removeprefix("docker.io/").removeprefix("library/")
    return short if ":" in short.rpartition("/")[2] or "@" in short else f"{short}:latest"


def add(name: str, source: Path) -> Stored:
    """Take an archive or a directory into the store under a name. The same content is taken in once."""
    if not source.exists():
        raise UsageError(f"{source}: no such file or directory")
    stored = _from_directory(source) if source.is_dir() else _from_archive(source)
    save(stored)
    call(name, stored)
    return stored


def call(name: str, stored: Stored) -> None:
    _write(_names() / quote(full_name(name), safe=""), stored.digest)


def save(stored: Stored) -> None:
    _write(_store() / f"{stored.digest}.json", json.dumps(asdict(stored), indent=1))


def forget(name: str) -> None:
    """Remove a name. Its layers stay for images that share them, until `clean`."""
    path = _names() / quote(full_name(name), safe="")
    if not path.exists():
        raise UsageError(f"no image {name!r} in the store")
    path.unlink()


def clean() -> int:
    """Remove images without a name, and layers without an image. Returns how many directories went."""
    kept = set(names().values())
    for entry in _store().glob("*.json"):
        if entry.stem not in kept:
            entry.unlink()
    used = {layer for digest in kept for layer in find(f"{_DIGEST}{digest}").layers}
    gone = [path for path in _layers().iterdir() if path.name not in used and path.suffix != ".lock"]
    for path in gone:
        cache.remove(path)
    return len(gone)


def has_layer(digest: str) -> bool:
    return (_layers() / digest).is_dir()


def keep_layer(digest: str, made: Path) -> None:
    """Move a finished directory into the store; if the layer is there already, that one stays."""
    try:
        made.rename(_layers() / digest)
    except OSError:
        if not has_layer(digest):
            raise
        cache.remove(made)


def _from_directory(source: Path) -> Stored:
    digest = tree_digest(source)
    if not has_layer(digest):
        with scratch("layer") as made:
            subprocess.run(["cp", "-a", "--reflink=auto", f"{source}/.", str(made)], check=True)
            keep_layer(digest, made)
    return Stored(digest, (digest,))


def _from_archive(source: Path) -> Stored:
    from bakeoff.sandbox import unpack

    layers: list[str] = []
    with unpack.opened(source) as archive:
        for layer in archive.layers():
            if not has_layer(layer.digest):
                with scratch("layer") as made:
                    layer.unpack(made)
                    keep_layer(layer.digest, made)
            layers.insert(0, layer.digest)
        facts = archive.facts()
    env = dict(line.partition("=")[::2] for line in facts.get("Env") or ())
    digest = hashlib.sha256(json.dumps([layers, env, facts.get("WorkingDir"), facts.get("User")]).encode()).hexdigest()
    return Stored(digest, tuple(layers), env, facts.get("WorkingDir") or "", facts.get("User") or None)


def tree_digest(root: Path) -> str:
    """Over names, kinds, modes and contents of everything below a directory, in order."""
    told = hashlib.sha256()
    for path in _walk(root):
        facts = path.lstat()
        told.update(f"{path.relative_to(root)}\0{facts.st_mode:o}\0".encode(errors="surrogateescape"))
        if stat.S_ISLNK(facts.st_mode):
            told.update(os.fsencode(os.readlink(path)))
        elif stat.S_ISREG(facts.st_mode):
            with path.open("rb") as file:
                told.update(hashlib.file_digest(file, "sha256").digest())
    return told.hexdigest()


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _store() -> Path:
    return cache.directory("images")


def _layers() -> Path:
    return cache.directory("images", "layers")


def _names() -> Path:
    return cache.directory("images", "names")


def _write(path: Path, text: str) -> None:
    fd, temporary = tempfile.mkstemp(prefix=".", dir=path.parent.parent)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    os.rename(temporary, path)
