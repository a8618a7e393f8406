"""Files are put into a box and taken out while a hostile command inside wants us to follow a link."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import BoxSpec, Limits
from bakeoff.sandbox.bubblewrap import Bubblewrap, BubblewrapBox
from bakeoff.sandbox.files import stays_inside


@pytest.fixture
def box(sandbox: Bubblewrap) -> Iterator[BubblewrapBox]:
    with sandbox.open(BoxSpec(workdir="/app", limits=Limits(disk_mb=16))) as box:
        yield box


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of this machine with a secret in it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("the key")
    return tmp_path / "outside"


def sh(box: BubblewrapBox, script: str) -> str:
    result = box.run(["/bin/sh", "-c", script])
    assert result.ok, result
    return result.stdout.decode()


def test_what_goes_in_comes_out_the_same(box: BubblewrapBox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "deep/er/file").write_bytes(bytes(range(256)) * 10_000)
    (source / "script").write_text("#!/bin/sh\necho ran\n")
    (source / "script").chmod(0o755)
    (source / "link").symlink_to("deep/er/file")
    (source / "empty").mkdir()
    os.utime(source / "script", (1e9, 1e9))
    box.put(source, "/app/tree")
    assert sh(box, "/app/tree/script; echo more >>/app/tree/new") == "ran\n"
    box.get("/app/tree", tmp_path / "back")
    names = {str(path.relative_to(tmp_path / "back")) for path in (tmp_path / "back").rglob("*")}
    assert names == {"deep", "deep/er", "deep/er/file", "script", "link", "empty", "new"}
    assert (tmp_path / "back/deep/er/file").read_bytes() == (source / "deep/er/file").read_bytes()
    assert (tmp_path / "back/script").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "back/script").stat().st_mtime == 1e9
    assert os.readlink(tmp_path / "back/link") == "deep/er/file"


DIFFICULT = """
import os, socket
open("plain", "w").write("kept")
os.truncate(os.open("sparse", os.O_CREAT | os.O_RDWR), 15 << 20)
os.truncate(os.open("sparser", os.O_CREAT | os.O_RDWR), 15 << 20)
os.mkfifo("pipe"); socket.socket(socket.AF_UNIX).bind("socket")
open(b"\\xff\\n", "w").write("kept")
for name, depth in (("d", 700), ("l" * 250, 20)):
    os.chdir("/app")
    for _ in range(depth):
        os.mkdir(name); os.chdir(name)
    open("plain", "w").write("too far down")
"""


def test_of_a_tree_made_to_be_difficult_everything_is_got_that_can_be(box: BubblewrapBox, tmp_path: Path) -> None:
    result = box.run(["/usr/bin/python3", "-c", DIFFICULT])
    assert result.ok, result
    box.get("/app", tmp_path / "out")
    assert sorted(os.listdir(os.fsencode(tmp_path / "out"))) == [b"d", b"l" * 250, b"plain", b"sparse", b"\xff\n"]
    assert (tmp_path / "out/plain").read_text() == "kept"
    assert len([folder for folder, _, _ in os.walk(tmp_path / "out/d")]) == 200


def test_a_tree_deeper_than_python_can_go_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top").mkdir()
    monkeypatch.chdir(tmp_path / "top")
    for _ in range(150):
        os.mkdir("deeper")
        os.chdir("deeper")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        cache.remove(tmp_path / "top")
    finally:
        sys.setrecursionlimit(limit)
    assert not (tmp_path / "top").exists()


def test_single_files_are_put_read_and_got(box: BubblewrapBox, tmp_path: Path) -> None:
    box.write("/new/dir/file", b"\0data", 0o600)
    assert box.read("/new/dir/file") == b"\0data"
    assert sh(box, "stat -c %a /new/dir/file") == "600\n"
    box.get("/new/dir/file", tmp_path / "got/it")
    assert (tmp_path / "got/it").read_bytes() == b"\0data"
    box.put(tmp_path / "got/it", "/new/dir/file2")
    assert box.read("/new/dir/file2") == b"\0data"


def test_nothing_outside_is_written_through_links(box: BubblewrapBox, outside: Path, tmp_path: Path) -> None:
    sh(
        box,
        f"ln -s {outside} /app/repo; ln -s {outside}/secret /app/file; ln -s / /app/up; ln -s ../../../../../.. /app/far",
    )
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/secret").write_text("overwritten")
    box.write("/app/file", b"overwritten")
    for target in ("/app/repo", f"/app/up{outside}", f"/app/far{outside}"):
        try:
            box.put(tmp_path / "tree", target)
            box.write(f"{target}/planted", b"")
        except UsageError:
            continue  # refusing is as good as staying inside
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "the key"}


def test_nothing_outside_is_read_through_links(box: BubblewrapBox, outside: Path, tmp_path: Path) -> None:
    sh(
        box,
        f"ln -s {outside} /app/repo; ln -s {outside}/secret /app/file; ln -s /proc/self/root /app/self; ln -s /proc/1/root /app/one",
    )
    for source in ("/app/repo/secret", "/app/file", f"/app/self{outside}/secret", f"/app/one{outside}/secret"):
        with pytest.raises(UsageError):
            box.read(source)
        with pytest.raises(UsageError):
            box.get(source, tmp_path / "got")
    assert not (tmp_path / "got").exists()


def test_links_that_lead_out_of_a_tree_stay_in_the_box(box: BubblewrapBox, outside: Path, tmp_path: Path) -> None:
    sh(
        box,
        f"mkdir -p /app/t/a/b; cd /app/t; echo x >a/x; ln -s a/x good; ln -s ../x a/b/also; ln -s {outside}/secret bad;"
        "ln -s ../../etc up; ln -s ../.. a/b/root; ln -s root/../../etc a/b/tricky; mkfifo pipe",
    )
    box.get("/app/t", tmp_path / "got")
    links = {path.name for path in (tmp_path / "got").rglob("*") if path.is_symlink()}
    assert links == {"good", "also", "root"}
    box.get("/app/t", tmp_path / "all", all_links=True)
    assert os.readlink(tmp_path / "all/bad") == f"{outside}/secret" and os.readlink(tmp_path / "all/up") == "../../etc"
    assert not (tmp_path / "got/pipe").exists()


def test_pipes_and_devices_neither_block_nor_are_read(box: BubblewrapBox, tmp_path: Path) -> None:
    sh(box, "mkfifo /app/pipe")
    with pytest.raises(UsageError, match="neither a file nor a directory"):
        box.read("/app/pipe")
    with pytest.raises(UsageError, match="neither a file nor a directory"):
        box.get("/app/pipe", tmp_path / "got")
    box.write("/app/pipe", b"replaced")
    assert box.read("/app/pipe") == b"replaced"


def test_a_file_in_the_way_is_an_error_about_the_path(box: BubblewrapBox, tmp_path: Path) -> None:
    box.write("/app/file", b"")
    with pytest.raises(UsageError, match="Not a directory"):
        box.write("/app/file/below", b"")
    with pytest.raises(UsageError, match="Is a directory"):
        box.write("/app", b"")
    with pytest.raises(UsageError, match="no such file or directory in the sandbox"):
        box.read("/app/nothing")
    with pytest.raises(UsageError, match="no such file or directory to copy into the sandbox"):
        box.put(tmp_path / "nothing", "/app/x")
    with pytest.raises(UsageError, match=r"without `\.\.`"):
        box.read("/app/../etc/passwd")


def test_a_sparse_giant_is_refused_before_it_fills_our_disk(sandbox: Bubblewrap, tmp_path: Path) -> None:
    with sandbox.open(BoxSpec(workdir="/app")) as box:
        sh(box, "truncate -s 100G /app/giant")
        with pytest.raises(UsageError, match="longer than"):
            box.get("/app/giant", tmp_path / "giant")
        with pytest.raises(UsageError, match="more than 1000 bytes"):
            box.read("/app/giant", 1000)
    assert not (tmp_path / "giant").exists()


def test_a_full_box_says_that_its_limit_is_reached(box: BubblewrapBox) -> None:
    with pytest.raises(UsageError, match="no room left in the sandbox"):
        box.write("/app/big", b"x" * (40 << 20))
    assert sh(box, "ls -A /app") == ""


parts = st.lists(st.sampled_from(["..", "a", "b", "c"]), min_size=1, max_size=6)


@given(st.lists(st.sampled_from(["a", "b"]), max_size=3), parts, st.booleans())
def test_a_link_is_kept_only_if_no_tree_could_make_it_lead_out(
    below: list[str], text: list[str], absolute: bool
) -> None:
    link = ("/" if absolute else "") + "/".join(text)
    if stays_inside(PurePosixPath(*below), link):
        assert not absolute
        reached = os.path.normpath("/".join(["tree", *below, link]))
        assert reached == "tree" or reached.startswith("tree/")
