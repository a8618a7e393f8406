"""Run directories travel as archives, and nothing but plain files below the run's directory comes out of one."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.engine.pilots.packing import RefusedArchive, pack, unpack

names = st.text("abc.é ", min_size=1, max_size=6).filter(lambda name: name.strip(" .") == name)
trees = st.recursive(st.binary(max_size=3000), lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=12)


def write(tree: dict[str, object] | bytes, place: Path) -> None:
    if isinstance(tree, bytes):
        place.write_bytes(tree)
        return
    place.mkdir()
    for name, inner in tree.items():
        write(inner, place / name)  # type: ignore[arg-type]


def read(place: Path) -> object:
    return {entry.name: read(entry) for entry in place.iterdir()} if place.is_dir() else place.read_bytes()


@given(tree=st.dictionaries(names, trees, max_size=4))
def test_what_is_packed_comes_out_the_same(tree: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("trees")
    write(tree, place / "there")
    archive = io.BytesIO()
    pack(place / "there", archive)
    archive.seek(0)
    unpack(archive, place / "home")
    assert read(place / "home") == tree


def test_links_and_pipes_are_left_out_and_the_rest_arrives(tmp_path: Path) -> None:
    source = tmp_path / "run"
    source.mkdir()
    (source / "file").write_text("x")
    (source / "link").symlink_to("/etc/passwd")
    (source / "folder").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    archive = io.BytesIO()
    pack(source, archive)
    archive.seek(0)
    unpack(archive, tmp_path / "home")
    assert read(tmp_path / "home") == {"file": b"x"}


def made(*entries: tarfile.TarInfo) -> io.BytesIO:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"y" * entry.size))
    archive.seek(0)
    return archive


def entry(name: str, kind: bytes = tarfile.REGTYPE, to: str = "", size: int = 1) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, to, size if kind == tarfile.REGTYPE else 0
    return info


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../outside")],
        [entry("a/../../outside")],
        [entry("/tmp/outside")],
        [entry("link", tarfile.SYMTYPE, "/etc")],
        [entry("hard", tarfile.LNKTYPE, "../experiment.db")],
        [entry("door", tarfile.SYMTYPE, ".."), entry("door/outside")],
        [entry("device", tarfile.CHRTYPE)],
        [entry("pipe", tarfile.FIFOTYPE)],
        [entry("file"), entry("file/below")],
        [entry("twice"), entry("twice")],
    ],
    ids=lambda entries: "+".join(each.name for each in entries),
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(entries: list[tarfile.TarInfo], tmp_path: Path) -> None:
    target = tmp_path / "incoming" / "token"
    with pytest.raises(RefusedArchive):
        unpack(made(entry("first"), *entries), target)
    assert list(tmp_path.rglob("*")) == [tmp_path / "incoming"]


def test_an_archive_that_was_cut_off_leaves_nothing(tmp_path: Path) -> None:
    whole = made(entry("file", size=100_000), entry("last")).getvalue()
    for length in (0, 100, 700, 50_000, 100_352):
        with pytest.raises(OSError, match="torn"):
            unpack(io.BytesIO(whole[:length]), tmp_path / "home")
        assert list(tmp_path.iterdir()) == []
