"""Task directories and other files travel to nodes by digest, and arrive as they are at home."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from bakeoff.engine.pilots.attachments import Attachments, unpack_attachment, with_places
from bakeoff.engine.pilots.messages import Order
from bakeoff.engine.pilots.packing import RefusedArchive, unpack
from bakeoff.errors import UsageError
from bakeoff.records.run import Attempt
from bakeoff.spec.identity import directory_digest


def order(**params: object) -> Order:
    return Order("token", Attempt(0, "a__s0__0", 0, "a", "default", 0, 0, params=json.dumps(params)))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An experiment's directory beside a task that has links and an executable file."""
    for place in ("exp/data", "tasks/sums/repo"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "exp/data/inside").write_text("x")
    (tmp_path / "prices.json").write_text("{}")
    task = tmp_path / "tasks/sums"
    (task / "repo/run.sh").write_text("#!/bin/sh\n")
    (task / "repo/run.sh").chmod(0o755)
    (task / "repo/host").symlink_to("/etc/hostname")
    (task / "again").symlink_to("repo")
    return tmp_path / "exp"


def arrive(attachments: Attachments, name: str, cache: Path) -> Path:
    """Bring what an order names to a node's cache."""
    digest = name.partition("/")[0]
    archive = io.BytesIO()
    assert attachments.pack(digest, archive)
    archive.seek(0)
    unpack_attachment(digest, archive, cache / digest)
    return cache / name


def test_what_parameters_name_outside_of_the_directory_arrives_and_is_named_there(base: Path, tmp_path: Path) -> None:
    task = base.parent / "tasks/sums"
    attachments = Attachments(base, [task])
    sent = attachments.attach(order(path=str(task), more=[{"prices": "../prices.json"}], data="data", gone="../gone"))
    assert set(sent.files) == {str(task), "../prices.json"}, "the rest is in the directory that Ray sends, or nowhere"
    cache = tmp_path / "cache"
    places = {text: arrive(attachments, name, cache) for text, name in sent.files.items()}
    arrived = places[str(task)]
    assert arrived.name == "sums" and directory_digest(arrived) == directory_digest(task)
    assert os.readlink(arrived / "repo/host") == "/etc/hostname" and os.access(arrived / "repo/run.sh", os.X_OK)
    params = json.loads(with_places(sent.attempt.params, sent.files, cache))
    assert params["path"] == str(arrived) and params["data"] == "data"
    assert Path(params["more"][0]["prices"]).read_text() == "{}"


def test_absolute_paths_are_the_nodes_own_unless_they_are_the_experiments(base: Path) -> None:
    attachments = Attachments(base, [])
    sent = attachments.attach(order(python="/usr/bin/env", data=str(base / "data")))
    assert list(sent.files) == [str(base / "data")]


def test_a_parameter_that_names_everything_is_refused_with_its_path(base: Path) -> None:
    with pytest.raises(UsageError, match="Name what runs need of it"):
        Attachments(base, []).attach(order(data=".."))


def test_files_that_change_after_the_start_are_refused_on_the_node(base: Path, tmp_path: Path) -> None:
    attachments = Attachments(base, [])
    sent = attachments.attach(order(prices="../prices.json"))
    (base.parent / "prices.json").write_text('{"m": 1}')
    with pytest.raises(OSError, match="have changed"):
        arrive(attachments, sent.files["../prices.json"], tmp_path / "cache")
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").iterdir())


def test_a_node_gets_nothing_that_was_not_attached(base: Path) -> None:
    assert not Attachments(base, []).pack("sha256-" + 64 * "0", io.BytesIO())


@pytest.mark.parametrize("second", ["link/file", "link/deeper/link"])
def test_nothing_is_written_through_a_link_of_an_archive(second: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
    below = tarfile.TarInfo(second)
    if second.endswith("link"):
        below.type, below.linkname = tarfile.SYMTYPE, "x"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(link)
        tar.addfile(below)
    archive.seek(0)
    with pytest.raises(RefusedArchive):
        unpack(archive, tmp_path / "here", links=True)
    assert not list((tmp_path / "outside").iterdir()) and not (tmp_path / "here").exists()
