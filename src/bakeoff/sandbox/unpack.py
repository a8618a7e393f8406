"""Archives of images: docker and podman `save`, OCI layouts, and plain file systems, unpacked into overlay layers.

An archive is not trusted: every entry is made below its layer's directory, whatever links earlier entries made. Device
nodes are left out; a box brings its own.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from bakeoff.errors import UsageError
from bakeoff.sandbox import overlay
from bakeoff.sandbox.syscalls import openat2

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_ZSTD = b"\x28\xb5\x2f\xfd"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    try:
        with tarfile.open(path) as file:
            yield Archive(path, file)
    except tarfile.TarError as error:
        raise UsageError(f"{path}: no archive of an image: {error}") from error


class Archive:
    def __init__(self, path: Path, file: tarfile.TarFile) -> None:
        self._path = path
        self._file = file
        self._names = {_clean(member.name): member for member in file.getmembers()}
        self._layers, self._config = self._contents()

    def _contents(self) -> tuple[list[str], dict[str, Any]]:
        """Paths of the layers, lowest first, and the image's own description."""
        if "manifest.json" in self._names:  # docker save
            (first, *more) = self._json("manifest.json")
            if more:
                raise UsageError(f"{self._path}: holds {len(more) + 1} images; save one at a time")
            return list(first["Layers"]), self._json(first["Config"])
        if "index.json" in self._names:  # OCI
            manifest = self._json("index.json")
            while "manifests" in manifest:
                (entry, *_) = [e for e in manifest["manifests"] if e.get("platform", {}).get("os") != "unknown"]
                manifest = self._json(_blob(entry["digest"]))
            return [_blob(layer["digest"]) for layer in manifest["layers"]], self._json(
                _blob(manifest["config"]["digest"])
            )
        return [], {}

    def facts(self) -> dict[str, Any]:
        """Env, WorkingDir, User and so on, as docker writes them."""
        found: dict[str, Any] = self._config.get("config") or {}
        return found

    def layers(self) -> Iterator[ArchivedLayer]:
        if not self._config:
            with self._path.open("rb") as file:
                yield ArchivedLayer(hashlib.file_digest(file, "sha256").hexdigest(), self._path)
            return
        for path in self._layers:
            with self._open(path) as file:
                digest = hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()
            with self._open(path) as file:
                yield ArchivedLayer(digest, file)

    def _open(self, path: str) -> IO[bytes]:
        member = self._names.get(_clean(path))
        while member is not None and (member.issym() or member.islnk()):  # older docker links equal layers
            target = (
                member.linkname
                if member.islnk()
                else os.path.normpath(f"{os.path.dirname(member.name)}/{member.linkname}")
            )
            member = self._names.get(_clean(target))
        file = self._file.extractfile(member) if member is not None else None
        if file is None:
            raise UsageError(f"{self._path}: {path} is missing; was the archive cut short?")
        return file

    def _json(self, path: str) -> Any:
        with self._open(path) as file:
            return json.load(file)


@dataclass(frozen=True, slots=True)
class ArchivedLayer:
    digest: str
    source: IO[bytes] | Path

    def unpack(self, target: Path) -> None:
        target.chmod(0o755)
        root = os.open(target, _DIRECTORY | os.O_CLOEXEC)
        try:
            with _tar(self.source) as file:
                unpacking = _Unpacking(root)
                for member in file:
                    unpacking.make(file, member)
                unpacking.finish()
        except OSError as error:
            raise UsageError(f"a layer cannot be unpacked: {error}") from error
        finally:
            os.close(root)


def _tar(source: IO[bytes] | Path) -> tarfile.TarFile:
    if isinstance(source, Path):
        return tarfile.open(source)
    head = source.read(4)
    source.seek(0)
    if head == _ZSTD:
        import zstandard

        return tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().stream_reader(source).read()))
    return tarfile.open(fileobj=source)


class _Unpacking:
    """One layer in the making. Directories get their times and modes last: making things in them needs and changes those."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._own = os.geteuid() == 0 and overlay.users_mapped() > 1
        self._directories: dict[str, tarfile.TarInfo] = {}
        self._parent = ("", -1)

    def make(self, file: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = _clean(member.name)
        path = PurePosixPath(name)
        if not name:
            self._directories[""] = member
            return
        if ".." in path.parts:
            raise UsageError(f"the archive has an entry {member.name!r}, which leads out of it")
        parent = self._enter(str(path.parent))
        if path.name == _OPAQUE:
            kind = "trusted" if self._own else "user"
            os.setxattr(f"/proc/self/fd/{parent}", f"{kind}.overlay.opaque", b"y")
        elif path.name.startswith(_WHITEOUT):
            self._clear(parent, path.name.removeprefix(_WHITEOUT))
            os.mknod(path.name.removeprefix(_WHITEOUT), 0o020000, os.makedev(0, 0), dir_fd=parent)
        elif member.isdir():
            self._make_directory(parent, path.name)
            self._directories[name] = member
        elif member.isreg():
            self._clear(parent, path.name)
            self._make_file(file, member, parent, path.name)
        elif member.issym():
            self._clear(parent, path.name)
            os.symlink(member.linkname, path.name, dir_fd=parent)
            self._give(member, parent, path.name)
        elif member.islnk():
            self._clear(parent, path.name)
            self._link(_clean(member.linkname), parent, path.name)

    def finish(self) -> None:
        for name, member in reversed(self._directories.items()):
            fd = openat2(self._root, name or ".", _DIRECTORY | os.O_NOFOLLOW)
            try:
                if self._own:
                    os.fchown(fd, member.uid, member.gid)
                os.fchmod(fd, member.mode & 0o7777)
                os.utime(fd, (member.mtime, member.mtime))
            finally:
                os.close(fd)
        if self._parent[1] >= 0:
            os.close(self._parent[1])

    def _enter(self, name: str) -> int:
        """The open directory of this name. Entries come directory by directory, so the last one is kept open."""
        if self._parent[0] == name and self._parent[1] >= 0:
            return self._parent[1]
        if self._parent[1] >= 0:
            os.close(self._parent[1])
            self._parent = ("", -1)
        self._parent = (name, self._open_directory(name))
        return self._parent[1]

    def _open_directory(self, name: str) -> int:
        try:
            return openat2(self._root, name, _DIRECTORY)
        except FileNotFoundError:
            path = PurePosixPath(name)
            above = self._open_directory(str(path.parent))
            try:
                os.mkdir(path.name, 0o755, dir_fd=above)
                return os.open(path.name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            finally:
                os.close(above)

    def _make_directory(self, parent: int, name: str) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            return

    def _make_file(self, file: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str) -> None:
        content = file.extractfile(member)
        assert content is not None
        fd = os.open(name, _CREATE, 0o600, dir_fd=parent)
        with os.fdopen(fd, "wb") as target:
            while piece := content.read(1 << 20):
                target.write(piece)
            target.flush()
            if self._own:
                os.fchown(fd, member.uid, member.gid)
            os.fchmod(fd, member.mode & 0o7777)
            os.utime(fd, (member.mtime, member.mtime))

    def _link(self, source: str, parent: int, name: str) -> None:
        path = PurePosixPath(source)
        above = openat2(self._root, str(path.parent), _DIRECTORY)
        try:
            os.link(path.name, name, src_dir_fd=above, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(above)

    def _give(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        if self._own:
            os.chown(name, member.uid, member.gid, dir_fd=parent, follow_symlinks=False)

    @staticmethod
    def _clear(parent: int, name: str) -> None:
        try:
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            pass


def _clean(name: str) -> str:
    cleaned = os.path.normpath(name).lstrip("/")
    return "" if cleaned == "." else cleaned


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
