"""Tar archives that we do not trust: files that travel to and from a container, and archives of images.

Whoever made an archive chose its names, links and sizes. Nothing is ever written through a link of the archive or
above the directory that it is unpacked to; device nodes are left out. (tarfile's own extraction filters are not in
every Python 3.11, and know nothing of whiteouts, overlays and limits.)
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar, cast

import msgspec

from bakeoff.errors import UsageError
from bakeoff.sandbox import overlay
from bakeoff.sandbox.base import MOST_LEFT_OUT, LeftOut
from bakeoff.sandbox.files import MAX_DEPTH, MAX_ENTRIES, TOO_LARGE, Owner, stays_inside
from bakeoff.sandbox.syscalls import closing, openat2
from bakeoff.trees import storable_time
from bakeoff.zstd import ZstdError, ZstdFile

MAX_LAYER_BYTES = 64 << 30
"""Content of one layer, as its entries state it; a few kilobytes of zstd can state any number."""
MAX_LAYER_ENTRIES = 2_000_000
MAX_HEADER = 1 << 20
"""Bytes of an extended header, which tarfile reads into memory as a whole."""
MAX_DESCRIPTION = 16 << 20
"""Bytes of a JSON file of an image archive."""
MAX_INDEXES, MAX_LINKS = 8, 8
"""Indexes that name one another, and links to a layer: an archive can make circles of both."""
_CHUNK = 1 << 20
_T = TypeVar("_T")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Member(tarfile.TarInfo):
    """An entry whose extended headers (long names, PAX) are checked before they are read."""

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        self._check_header()
        member: tarfile.TarInfo = super()._proc_pax(archive)  # type: ignore[misc]
        return member

    def _proc_gnulong(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        self._check_header()
        member: tarfile.TarInfo = super()._proc_gnulong(archive)  # type: ignore[misc]
        return member

    def _check_header(self) -> None:
        if self.size > MAX_HEADER:
            raise UsageError(f"the archive has a header of {self.size:,} bytes; the most is {MAX_HEADER:,}")


def _bounded(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The entries of an archive. UsageError before one is unpacked that makes them too many or too large."""
    size = 0
    for number, member in enumerate(archive, 1):
        size += max(member.size, 0)
        if size > MAX_LAYER_BYTES:
            raise UsageError(f"the archive holds more than {MAX_LAYER_BYTES >> 30} GiB")
        if number > MAX_LAYER_ENTRIES:
            raise UsageError(f"the archive has more than {MAX_LAYER_ENTRIES:,} entries")
        yield member


class CutOff(Exception):
    """An archive is longer, or takes longer to come, than it may."""


@contextmanager
def packed(source: Path, target: str, owner: Owner) -> Iterator[IO[bytes]]:
    """An open archive that, unpacked at `/`, puts a file or directory of this machine at `target`."""

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid, member.gid = owner.uid, owner.gid
        member.uname = member.gname = ""
        return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None

    if not source.exists():
        raise UsageError(f"{source}: no such file or directory to copy into the sandbox")
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(source, arcname=target.strip("/"), filter=owned)
        file.seek(0)
        yield file


def unpack(stream: IO[bytes], target: Path, most: int, *, all_links: bool = False) -> list[LeftOut]:
    """Unpack what is below the one top entry of an archive to exactly `target`, under the rules of `Box.get`.

    At most `most` bytes are written; what is too large, too deep or has too long a path is left out, and so is all
    that follows when reading `stream` raises CutOff. Links are made last, so that nothing is ever written through one.
    """
    links: dict[Path, str] = {}
    left_out: list[LeftOut] = []
    entries = 0

    def leave_out(member: tarfile.TarInfo, why: str) -> None:
        if len(left_out) < MOST_LEFT_OUT:
            name = member.name.lstrip("/").partition("/")[2]
            left_out.append(LeftOut(os.fsencode(name).decode(errors="replace"), why))

    with suppress(CutOff), tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as archive:
        for member in archive:
            parts = PurePosixPath(member.name.lstrip("/")).parts[1:]
            if ".." in parts:
                raise UsageError(f"the sandbox sent an archive with {member.name!r} in it")
            entries += 1
            if len(parts) > MAX_DEPTH or entries > MAX_ENTRIES:
                leave_out(member, "too deep" if len(parts) > MAX_DEPTH else f"more than {MAX_ENTRIES:,} entries")
                continue
            if member.isreg():
                if member.size > most:
                    if not parts:
                        raise UsageError(f"{member.name} in the sandbox is longer than a sandbox may hold")
                    leave_out(member, TOO_LARGE)
                    continue
                most -= member.size
            elif not (member.issym() or member.islnk() or member.isdir()):
                leave_out(member, "not a plain file")
            if member.issym():
                if parts and (all_links or stays_inside(PurePosixPath(*parts).parent, member.linkname)):
                    links.setdefault(target.joinpath(*parts), member.linkname)
                else:
                    leave_out(member, "a link that leads out")
                continue
            with _skipping_long_paths():
                _unpack_member(archive, member, target, parts)
    for place in links:  # all directories before the first link: a directory made below a link would be made elsewhere
        with _skipping_long_paths():
            place.parent.mkdir(parents=True, exist_ok=True)
    for place, text in links.items():
        with _skipping_long_paths():
            if not os.path.lexists(place):
                os.symlink(text, place)
    return left_out


@contextmanager
def _skipping_long_paths() -> Iterator[None]:
    """Ignore ENAMETOOLONG in the body: an entry whose path is too long is left out, and the rest is unpacked."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, parts: tuple[str, ...]) -> None:
    """Write one directory, file or hard link. `parts` is its path below `target`, without `..`.

    No link exists below `target` yet, so plain paths are safe here.
    """
    place = target.joinpath(*parts)
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
    elif member.islnk():  # another name for a file that came before; we copy it
        first = target.joinpath(*PurePosixPath(member.linkname.lstrip("/")).parts[1:])
        if ".." not in first.parts and first.is_file() and not first.is_symlink() and not os.path.lexists(place):
            shutil.copy2(first, place)
    elif member.isreg():
        content = archive.extractfile(member)
        assert content is not None
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with place.open("wb") as file:
                shutil.copyfileobj(content, file, _CHUNK)
        except CutOff:
            place.unlink()  # half a file would look like work
            raise
        place.chmod(member.mode & 0o777 | 0o400)
        os.utime(place, (storable_time(member.mtime),) * 2)


@dataclass(frozen=True, slots=True)
class ArchivedLayer:
    """One layer of an image archive: a tar file, perhaps compressed, and the digest of its bytes."""

    digest: str
    source: IO[bytes] | Path


class ImageConfig(msgspec.Struct, rename="pascal"):
    """What an image says about commands that run in it."""

    env: list[str] | None = None
    working_dir: str | None = None
    user: str | None = None


class _Described(msgspec.Struct):
    config: ImageConfig | None = None


class _Saved(msgspec.Struct, rename="pascal"):
    """An image in `manifest.json` of `docker save`."""

    config: str
    layers: list[str]


class _Entry(msgspec.Struct):
    digest: str
    platform: dict[str, Any] = {}


class _Manifest(msgspec.Struct):
    """An index or a manifest of an OCI layout."""

    manifests: list[_Entry] = []
    layers: list[_Entry] = []
    config: _Entry | None = None


@contextmanager
def open_image(path: Path) -> Iterator[ImageArchive]:
    """Open what `docker save`, `podman save` or `docker export` wrote, or an OCI layout in a tar file."""
    try:
        with tarfile.open(path, tarinfo=_Member) as file:
            yield ImageArchive(path, file)
    except tarfile.TarError as error:
        raise UsageError(f"{path}: not an archive of an image: {error}") from error


class ImageArchive:
    """An image in an archive."""

    def __init__(self, path: Path, file: tarfile.TarFile) -> None:
        """Read the description of the image. UsageError when it holds several, or when a part is missing."""
        self._path = path
        self._file = file
        self._members = {_clean(member.name): member for member in _bounded(file)}
        self._layers: list[str] | None = None
        """Paths of the layers, lowest first; None for a plain file system, which is one layer."""
        described = _Described()
        if "manifest.json" in self._members:  # docker save
            images = self._json("manifest.json", list[_Saved])
            if len(images) != 1:
                raise UsageError(f"{path}: holds {len(images)} images; save one at a time")
            self._layers, described = images[0].layers, self._json(images[0].config, _Described)
        elif "index.json" in self._members:  # OCI image layout, github.com/opencontainers/image-spec
            place = "index.json"
            for _ in range(MAX_INDEXES):
                manifest = self._json(place, _Manifest)
                # Build attestations are listed like images, with the platform "unknown".
                listed = [entry for entry in manifest.manifests if entry.platform.get("os") != "unknown"]
                if not listed:
                    break
                place = _blob(listed[0].digest)
            if manifest.config is None:
                raise UsageError(f"{path}: {place} describes no image")
            self._layers = [_blob(layer.digest) for layer in manifest.layers]
            described = self._json(_blob(manifest.config.digest), _Described)
        self.config = described.config or ImageConfig()

    def layers(self) -> Iterator[ArchivedLayer]:
        """The layers, lowest first. Use each before the next is asked for."""
        if self._layers is None:
            with self._path.open("rb") as whole:
                yield ArchivedLayer(hashlib.file_digest(whole, "sha256").hexdigest(), self._path)
            return
        for path in self._layers:
            with self._open(path) as file:
                digest = hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()
            with self._open(path) as file:
                yield ArchivedLayer(digest, file)

    def _open(self, path: str) -> IO[bytes]:
        """Open a file of the archive, following links between its members by name only."""
        member = self._members.get(_clean(path))
        for _ in range(MAX_LINKS):
            if member is None or not (member.issym() or member.islnk()):  # older docker links layers that are equal
                break
            target = member.linkname
            if member.issym():
                target = os.path.normpath(f"{os.path.dirname(member.name)}/{target}")
            member = self._members.get(_clean(target))
        file = self._file.extractfile(member) if member is not None and member.isreg() else None
        if file is None:
            raise UsageError(f"{self._path}: {path} is missing; was the archive cut short?")
        return file

    def _json(self, path: str, kind: type[_T]) -> _T:
        """A JSON file of the archive, decoded."""
        with self._open(path) as file:
            text = file.read(MAX_DESCRIPTION + 1)
        if len(text) > MAX_DESCRIPTION:
            raise UsageError(f"{self._path}: {path} has more than {MAX_DESCRIPTION:,} bytes")
        try:
            return msgspec.json.decode(text, type=kind)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self._path}: {path} does not describe an image: {error}") from error


def unpack_layer(source: IO[bytes] | Path, target: Path) -> None:
    """Unpack a layer into an empty directory, in the form that overlayfs mounts.

    `source` is the path of a tar file, or an open one; compressed with gzip, bzip2, xz or zstd, or not at all. Raises
    UsageError when it cannot be read, or when an entry leads out of the directory.
    """
    target.chmod(0o755)
    try:
        name, stream = (source, None) if isinstance(source, Path) else (None, source)
        if stream is not None:
            head = stream.read(4)
            stream.seek(0)
            if head == _ZSTD_MAGIC:  # tarfile knows zstd from Python 3.14 on
                stream = cast(IO[bytes], ZstdFile(stream))
        with (
            closing(os.open(target, _DIRECTORY | os.O_CLOEXEC)) as root,
            tarfile.open(name, fileobj=stream, tarinfo=_Member) as layer,
        ):
            writer = _LayerWriter(root)
            for member in _bounded(layer):
                writer.add(layer, member)
            writer.finish()
    except (EOFError, OSError, ZstdError) as error:
        raise UsageError(f"a layer cannot be unpacked: {error}") from error


class _LayerWriter:
    """A layer that is being unpacked below an open directory.

    Every entry is made in a directory that openat2 opened below the root, whatever links earlier entries made.
    Directories get their owner, mode and times last: making things in them needs the one and changes the other.
    """

    def __init__(self, root: int) -> None:
        """`root` is the open, empty directory that entries go below."""
        self._root = root
        self._keep_owners = os.geteuid() == 0 and overlay.users_mapped() > 1
        self._directories: dict[str, tarfile.TarInfo] = {}
        self._parent_name, self._parent = "", -1
        """The last directory that was written to. Entries come directory by directory, so it is kept open."""

    def add(self, file: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Unpack one entry."""
        name = _clean(member.name)
        path = PurePosixPath(name)
        if not name:
            self._directories[""] = member
            return
        if ".." in path.parts:
            raise UsageError(f"the archive has an entry {member.name!r}, which leads out of it")
        if self._parent_name != str(path.parent) or self._parent < 0:
            if self._parent >= 0:
                os.close(self._parent)
                self._parent_name, self._parent = "", -1
            self._parent = self._open_directory(str(path.parent))
            self._parent_name = str(path.parent)
        parent = self._parent
        # The image-spec marks what a layer removes by files with these names; overlayfs wants a character device 0:0 in
        # place of the file, and an attribute on a directory whose lower content is hidden (overlayfs.rst).
        if path.name == _OPAQUE:
            kind = "trusted" if self._keep_owners else "user"
            os.setxattr(f"/proc/self/fd/{parent}", f"{kind}.overlay.opaque", b"y")
        elif path.name.startswith(_WHITEOUT):
            hidden = path.name.removeprefix(_WHITEOUT)
            with suppress(FileNotFoundError):
                os.unlink(hidden, dir_fd=parent)
            os.mknod(hidden, 0o020000, os.makedev(0, 0), dir_fd=parent)
        elif member.isdir():
            with suppress(FileExistsError):  # if it is a link or a file, `finish` fails
                os.mkdir(path.name, 0o700, dir_fd=parent)
            self._directories[name] = member
        elif member.isreg() or member.issym() or member.islnk():
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=parent)
            if member.issym():
                os.symlink(member.linkname, path.name, dir_fd=parent)
                if self._keep_owners:
                    os.chown(path.name, member.uid, member.gid, dir_fd=parent, follow_symlinks=False)
            elif member.islnk():
                first = PurePosixPath(_clean(member.linkname))
                with closing(openat2(self._root, str(first.parent), _DIRECTORY)) as above:
                    os.link(first.name, path.name, src_dir_fd=above, dst_dir_fd=parent, follow_symlinks=False)
            else:
                content = file.extractfile(member)
                assert content is not None
                fd = os.open(path.name, _CREATE, 0o600, dir_fd=parent)
                with os.fdopen(fd, "wb") as target:
                    shutil.copyfileobj(content, target, _CHUNK)
                    target.flush()
                    self._set_attributes(fd, member)

    def finish(self) -> None:
        """Set owners, modes and times of directories, inner ones first."""
        for name, member in reversed(self._directories.items()):
            with closing(openat2(self._root, name or ".", _DIRECTORY | os.O_NOFOLLOW)) as fd:
                self._set_attributes(fd, member)
        if self._parent >= 0:
            os.close(self._parent)

    def _set_attributes(self, fd: int, member: tarfile.TarInfo) -> None:
        """Set owner, mode and time.

        The owner first: chown(2) clears set-user-ID bits, which the mode then sets again.
        """
        if self._keep_owners:
            os.fchown(fd, member.uid, member.gid)
        os.fchmod(fd, member.mode & 0o7777)
        os.utime(fd, (storable_time(member.mtime),) * 2)

    def _open_directory(self, name: str) -> int:
        """Open a directory below the root, creating it and those above it where the archive has no entry for them."""
        try:
            return openat2(self._root, name, _DIRECTORY)
        except FileNotFoundError:
            path = PurePosixPath(name)
            with closing(self._open_directory(str(path.parent))) as above:
                os.mkdir(path.name, 0o755, dir_fd=above)
                return os.open(path.name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)


def _clean(name: str) -> str:
    """A member's name without `.` and leading slashes; the archive's top directory is the empty name."""
    cleaned = os.path.normpath(name).lstrip("/")
    return "" if cleaned == "." else cleaned


def _blob(digest: str) -> str:
    """The path of a blob in an OCI layout, from its digest `sha256:...`."""
    return f"blobs/{digest.replace(':', '/')}"
