"""Archives that a box gives are not trusted."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO, cast

import pytest

from bakeoff.errors import UsageError
from bakeoff.sandbox.archives import open_image, unpack
from bakeoff.sandbox.container import _Chunks


def archive(*members: tuple[str, str | None]) -> io.BytesIO:
    """Links by what they say, files where that is None."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as file:
        for name, link in members:
            member = tarfile.TarInfo(name)
            if link is None:
                member.size = 4
                file.addfile(member, io.BytesIO(b"data"))
            else:
                member.type, member.linkname = tarfile.SYMTYPE, link
                file.addfile(member)
    made.seek(0)
    return made


@pytest.mark.parametrize("all_links", [False, True])
def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path, all_links: bool) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    hostile = [
        ("t/way", str(outside)),
        ("t/way/file", None),
        ("t/in", str(outside)),
        ("t/in/link", "x"),
        ("t/ok", "way"),
    ]
    unpack(archive(*hostile), tmp_path / "got", 1 << 20, all_links=all_links)
    assert not any(outside.iterdir())
    assert (tmp_path / "got/way/file").read_text() == "data" and os.readlink(tmp_path / "got/ok") == "way"


def test_a_link_that_leads_out_is_kept_only_on_request(tmp_path: Path) -> None:
    for all_links in (False, True):
        target = tmp_path / str(all_links)
        unpack(archive(("t/file", None), ("t/out", "/etc/passwd")), target, 1 << 20, all_links=all_links)
        assert os.path.lexists(target / "out") == all_links


def archive_of(name: str, size: int) -> bytes:
    """The header of a file in an archive, without its content."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf()


@pytest.mark.parametrize("size", [1 << 40, 20 << 20], ids=["a terabyte", "too slow"])
def test_copying_out_of_a_container_ends_at_its_limits(size: int, tmp_path: Path) -> None:
    """The last file of the archive does not end, as a service sends a file that is nothing but a hole."""

    def endless() -> Iterator[bytes]:
        yield archive_of("work/small.txt", 512) + b"x" * 512
        yield archive_of("work/huge", size)
        for megabytes in count():
            if size == 20 << 20 and megabytes == 10:
                chunks.deadline = 0.0  # it passes in the middle of the file
            yield bytes(1 << 20)

    chunks = _Chunks(endless(), 64 << 20, deadline=float("inf"))
    unpack(cast(IO[bytes], chunks), tmp_path / "work", 32 << 20)
    assert (tmp_path / "work" / "small.txt").read_text() == "x" * 512
    assert not (tmp_path / "work" / "huge").exists()  # neither whole nor in part


LAYERS = [{"Config": "c.json", "Layers": ["l.tar"]}]
CIRCLE = {"manifests": [{"digest": "sha256:a"}]}
ODD_IMAGES: dict[str, tuple[dict[str, object], list[tuple[str, str, bytes]]]] = {
    "links in a circle": ({"manifest.json": LAYERS, "c.json": {}}, [("l.tar", "m.tar", tarfile.SYMTYPE), ("m.tar", "l.tar", tarfile.SYMTYPE)]),
    "a link to itself": ({"manifest.json": LAYERS, "c.json": {}}, [("l.tar", "l.tar", tarfile.LNKTYPE)]),
    "indexes in a circle": ({"index.json": CIRCLE, "blobs/sha256/a": CIRCLE}, []),
    "an empty index": ({"index.json": {"manifests": []}}, []),
    "no image": ({"manifest.json": []}, []),
    "a list of words": ({"manifest.json": ["x"]}, []),
    "layers that are numbers": ({"manifest.json": [{"Config": "c.json", "Layers": [1]}], "c.json": {}}, []),
    "variables that are a number": ({"manifest.json": LAYERS, "c.json": {"config": {"Env": 5}}}, []),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD_IMAGES)
def test_an_image_that_is_described_oddly_is_refused(tmp_path: Path, what: str) -> None:
    files, links = ODD_IMAGES[what]
    with tarfile.open(tmp_path / "image.tar", "w") as made:
        for name, tree in files.items():
            member, text = tarfile.TarInfo(name), json.dumps(tree).encode()
            member.size = len(text)
            made.addfile(member, io.BytesIO(text))
        for name, target, kind in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            made.addfile(member)
    with pytest.raises(UsageError, match=r"image\.tar"), open_image(tmp_path / "image.tar") as image:
        list(image.layers())
