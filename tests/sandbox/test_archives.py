"""Archives that a box gives are not trusted."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from bakeoff.sandbox.archives import unpack


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
