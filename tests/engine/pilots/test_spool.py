"""Append files of the spool: frames arrive whole, once and in order, whatever is seen of them meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.engine.pilots.arrivals import Arrivals, copy_synced
from bakeoff.engine.pilots.messages import Beat, Returned
from bakeoff.engine.pilots.spool import Newest, Reader, SpoolLink, SpoolTransport, Writer
from bakeoff.engine.pilots.transport import PilotSetup
from bakeoff.records.layout import EditionPaths
from bakeoff.trees import copy_tree

TOKEN = "1.0.1.0123456789abcdef"
SETUP = PilotSetup(
    workload="command", dialect="native", experiment="trial", edition="x", base="/", slots=2, limits={}, resources={},
    gpus=None, env={}, fresh=False, checkpoints=False, settle_after=1, code="code",
)  # fmt: skip


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_a_reader_that_sees_any_prefix_gets_every_frame_once_and_in_order(frames: list[bytes], cuts: list[int]) -> None:
    place = Path("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp") / f"spool-{os.getpid()}"
    Writer(place.with_suffix(".whole")).write(frames) if frames else place.with_suffix(".whole").write_bytes(b"")
    whole = place.with_suffix(".whole").read_bytes()
    reader, got = Reader(place), []
    for cut in sorted(min(cut, len(whole)) for cut in (*cuts, len(whole))):
        # Pages that have not arrived are zeros, as NFS shows a file whose size is known before its content.
        place.write_bytes(whole[:cut] + b"\0" * (len(whole) - cut))
        got += reader.read()
        assert got == frames[: len(got)]
    assert got == frames
    for path in (place, place.with_suffix(".whole")):
        path.unlink()


def test_a_writer_that_was_interrupted_leaves_no_torn_frame(tmp_path: Path) -> None:
    path = tmp_path / "up"
    writer = Writer(path)
    writer.write([b"first"])
    with open(path, "ab") as file:
        file.write(b"\x09\0\0\0torn")  # what a write that failed half-way left
    assert Reader(path).read() == [b"first"]
    writer.write([b"second", b"third"])
    assert Reader(path).read() == [b"first", b"second", b"third"]
    next_scheduler = Writer.append(path)
    next_scheduler.write([b"fourth"])
    assert Reader(path).read() == [b"first", b"second", b"third", b"fourth"]


def test_only_the_newest_frame_of_a_file_counts_and_a_torn_one_is_read_later(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    path.touch()
    writer, reader = Newest(path), Newest(path)
    assert reader.read() is None
    writer.write(b"a long first one")
    writer.write(b"second")
    assert [reader.read(), reader.read()] == [b"second", None]
    writer.write(b"second")
    assert reader.read() == b"second", "the same again is new"
    writer.write(b"third")
    whole = path.read_bytes()
    path.write_bytes(whole[:12] + b"\0" * 8 + whole[20:])
    assert reader.read() is None
    path.write_bytes(whole)
    assert reader.read() == b"third"


def test_signs_of_life_do_not_make_the_spool_grow_and_nothing_else_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bakeoff.engine.pilots.spool._BEATS_INTERVAL", 0.0)
    paths = EditionPaths(tmp_path / "trial" / "edition")
    paths.directory.mkdir(parents=True)
    transport = SpoolTransport(paths)
    transport.open({"1-1": SETUP})
    link = SpoolLink(transport.directory, "1-1")
    held = [(f"1.{number}.1.0123456789abcdef", 1.0) for number in range(128)]
    received = []
    for number in range(200):
        link.exchange([Beat(held, number), Returned([str(number)]), Beat(held, 1000 + number)])
        received += transport.receive()
    assert [sent.tokens for _, sent in received if isinstance(sent, Returned)] == [[str(n)] for n in range(200)]
    assert [sent.most for _, sent in received if isinstance(sent, Beat)] == [1000 + n for n in range(200)]
    assert sum(path.stat().st_size for path in transport.directory.rglob("*") if path.is_file()) < 40_000
    next_session = SpoolTransport(paths).receive()
    assert len(next_session) == 201, "the newest sign of life, and all the rest"


def test_only_the_newest_two_copies_of_a_checkpoint_are_kept(tmp_path: Path) -> None:
    link, run = _link(tmp_path)
    for step in range(5):
        (run / "checkpoint" / "state").write_text(str(step))
        link.save(TOKEN, run)
    copies = sorted((tmp_path / ".incoming").iterdir())
    assert [(copy / "checkpoint" / "state").read_text() for copy in copies] == ["3", "4"]


def test_a_copy_during_which_the_checkpoint_changed_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, run = _link(tmp_path)
    (run / "checkpoint" / "state").write_text("1")
    link.save(TOKEN, run)

    def copy_while_it_is_written(source: Path, target: Path, sync: object) -> None:
        copy_tree(source, target)
        (run / "checkpoint" / "state").write_text("longer")

    monkeypatch.setattr("bakeoff.engine.pilots.arrivals.copy_tree", copy_while_it_is_written)
    with pytest.raises(OSError, match="changed while it was copied"):
        link.save(TOKEN, run)
    (copy,) = [path for path in (tmp_path / ".incoming").iterdir() if path.suffix != ".part"]
    assert (copy / "checkpoint" / "state").read_text() == "1"


def _link(place: Path) -> tuple[SpoolLink, Path]:
    (place / "spool" / "1-1").mkdir(parents=True)
    run = place / "run"
    (run / "checkpoint").mkdir(parents=True)
    return SpoolLink(place / "spool", "1-1"), run


def test_a_directory_comes_home_whole_or_not_at_all(tmp_path: Path) -> None:
    paths = EditionPaths(tmp_path / "trial" / "edition")
    paths.directory.mkdir(parents=True)
    arrivals = Arrivals(paths)
    arrivals.open()
    source = tmp_path / "source"
    (source / "out").mkdir(parents=True)
    (source / "out" / "x").write_text("result")
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    assert not arrivals.install("1.0.1.aaaaaaaaaaaaaaaa", "run"), "nothing has arrived"
    (paths.directory / ".incoming" / "1.0.1.aaaaaaaaaaaaaaaa.part").mkdir()
    assert not arrivals.install("1.0.1.aaaaaaaaaaaaaaaa", "run"), "half of it is not it"
    copy_synced(source, arrivals.delivered("1.0.1.aaaaaaaaaaaaaaaa"))
    assert arrivals.install("1.0.1.aaaaaaaaaaaaaaaa", "run")
    assert arrivals.install("1.0.1.aaaaaaaaaaaaaaaa", "run"), (
        "a scheduler that was killed before it recorded comes again"
    )
    place = paths.runs / "run"
    assert (place / "out" / "x").read_text() == "result" and (place / "link").is_symlink()
    assert not (place / "pipe").exists()
    assert not arrivals.install("1.0.2.bbbbbbbbbbbbbbbb", "run"), "another attempt's directory is not this one's"
    arrivals.settled("run")
    assert sorted(os.listdir(place)) == ["link", "out"]
