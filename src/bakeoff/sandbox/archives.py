"""Files as tar streams, for sandboxes that take and give them so. What comes from a box is not trusted."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from bakeoff.errors import UsageError
from bakeoff.sandbox.face import Box
from bakeoff.sandbox.layer import DEEPEST, stays_inside
from bakeoff.sandbox.scratch import scratch


class ArchiveBox(Box):
    """A box whose single files go the way of its directories: by `put` and `get`."""

    def write(self, target: str, data: bytes, mode: int = 0o644) -> None:
        with scratch() as here:
            file = here / "file"
            file.write_bytes(data)
            file.chmod(mode)
            self.put(file, target)

    def read(self, source: str, most: int = 1 << 24) -> bytes:
        with scratch() as here:
            file = here / "file"
            self.get(source, file)
            if not file.is_file():
                raise UsageError(f"{source} in the box is a directory")
            if file.stat().st_size > most:
                raise UsageError(f"{source} in the box has more than {most} bytes")
            return file.read_bytes()


@contextmanager
def packed(source: Path, target: str, owner: tuple[int, int]) -> Iterator[IO[bytes]]:
    """An archive that, unpacked at `/`, puts a file or directory at `target`."""

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid, member.gid = owner
        member.uname = member.gname = ""
        return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None

    if not source.exists():
        raise UsageError(f"{source}: nothing there to put into the box")
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(source, arcname=target.strip("/"), filter=owned)
        file.seek(0)
        yield file


def unpack(stream: IO[bytes], target: Path, most: int, *, all_links: bool = False) -> None:
    """Unpack what is below the archive's one top entry to exactly `target`, plain files, directories and inner links.

    Of a directory, what would exceed `most` bytes or the length of a path is left out. Links are made last, so that
    nothing is ever written through one.
    """
    links: list[tuple[Path, str]] = []
    with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as archive:
        for member in archive:
            parts = PurePosixPath(member.name.lstrip("/")).parts[1:]
            if ".." in parts:
                raise UsageError(f"the box gave an archive with {member.name!r} in it")
            if len(parts) > DEEPEST:
                continue
            if member.isreg():
                if member.size > most:
                    if not parts:
                        raise UsageError(f"{member.name} in the box is longer than a box may hold")
                    continue
                most -= member.size
            if member.issym():
                if parts and (all_links or stays_inside(PurePosixPath(*parts).parent, member.linkname)):
                    links.append((target.joinpath(*parts), member.linkname))
                continue
            with _length_allowing():
                _make(archive, member, target, parts)
    for place, _ in links:
        with _length_allowing():
            place.parent.mkdir(parents=True, exist_ok=True)
    for place, text in links:
        with _length_allowing():
            if not os.path.lexists(place):
                os.symlink(text, place)


@contextmanager
def _length_allowing() -> Iterator[None]:
    """What has too long a path is left out."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise


def _make(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, parts: tuple[str, ...]) -> None:
    place = target.joinpath(*parts)
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
    elif member.islnk():  # another name of a file that came before
        first = target.joinpath(*PurePosixPath(member.linkname.lstrip("/")).parts[1:])
        if ".." not in first.parts and first.is_file() and not first.is_symlink() and not os.path.lexists(place):
            shutil.copy2(first, place)
    elif member.isreg():
        content = archive.extractfile(member)
        assert content is not None
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            while piece := content.read(1 << 20):
                file.write(piece)
        place.chmod(member.mode & 0o777 | 0o400)
        os.utime(place, (member.mtime, member.mtime))
