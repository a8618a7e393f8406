"""Images come from archives and directories, are named by content, and an archive cannot reach out of its layer."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.sandbox import archives, images
from bakeoff.sandbox.archives import unpack_layer
from bakeoff.sandbox.base import BoxSpec, Image
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.zstd import ZstdCompressor, compressor


@pytest.fixture(autouse=True)
def empty_store() -> Iterator[None]:
    yield
    for name in images.names():
        images.forget(name)
    images.clean()


def layer(*entries: tuple[str, str | None] | tarfile.TarInfo) -> bytes:
    """A layer's archive; None as content is a directory."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
                continue
            name, content = entry
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content.encode()))
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def saved(path: Path, layers: list[bytes], config: dict[str, object]) -> Path:
    """What `docker save` writes."""
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    files = {"config.json": json.dumps({"config": config}).encode()}
    files |= dict(zip(names, layers, strict=True))
    files["manifest.json"] = json.dumps([{"Config": "config.json", "RepoTags": ["x:1"], "Layers": names}]).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def rooted(tiny_root: Path) -> bytes:
    return subprocess.run(["tar", "-C", tiny_root, "-c", "."], check=True, capture_output=True).stdout


def run(sandbox: Bubblewrap, name: str, script: str) -> str:
    with sandbox.open(BoxSpec(image=Image.named(name))) as box:
        result = box.run(["sh", "-c", script])
        assert result.ok, result
        return result.stdout.decode()


def test_an_exported_file_system_is_one_layer(sandbox: Bubblewrap, tiny_root: Path, tmp_path: Path) -> None:
    (tmp_path / "export.tar").write_bytes(rooted(tiny_root))
    stored = images.add("exported:1", tmp_path / "export.tar")
    assert len(stored.layers) == 1
    assert run(sandbox, "exported:1", "cat /etc/motd") == "from the image\n"


def test_a_saved_image_keeps_its_layers_and_settings(sandbox: Bubblewrap, tiny_root: Path, tmp_path: Path) -> None:
    second = layer(("etc/motd", "changed\n"), ("etc/.wh.group", ""), ("home/.wh..wh..opq", ""), ("home/new", "new\n"))
    config = {"Env": ["A=1", "PATH=/bin"], "WorkingDir": "/etc", "User": "agent"}
    archive = saved(tmp_path / "saved.tar", [rooted(tiny_root), second], config)
    stored = images.add("docker.io/library/saved", archive)
    assert len(stored.layers) == 2
    assert run(sandbox, "saved:latest", "cat motd; ls /etc /home; echo $A; pwd; id -u") == (
        "changed\n/etc:\nhosts\nmotd\npasswd\n\n/home:\nnew\n1\n/etc\n1000\n"
    )


def test_an_oci_archive_is_read(sandbox: Bubblewrap, tiny_root: Path, tmp_path: Path) -> None:
    import hashlib

    blobs: dict[str, bytes] = {}

    def blob(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    content = rooted(tiny_root)
    half = len(content) // 2  # tools that compress in parallel write several frames
    packed = b"".join(
        compressor().compress(part, ZstdCompressor.FLUSH_FRAME) for part in (content[:half], content[half:])
    )
    manifest = {"config": blob(json.dumps({"config": {"Env": ["A=oci"]}}).encode()), "layers": [blob(packed)]}
    entry = blob(json.dumps(manifest).encode())
    files = {**blobs, "index.json": json.dumps({"manifests": [entry]}).encode(), "oci-layout": b"{}"}
    with tarfile.open(tmp_path / "oci.tar", "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    images.add("oci", tmp_path / "oci.tar")
    assert run(sandbox, "oci", "echo $A") == "oci\n"


@pytest.mark.parametrize(
    "packed", [gzip.compress, lambda content: compressor().compress(content, ZstdCompressor.FLUSH_FRAME)]
)
def test_a_compressed_layer_that_is_cut_off_is_refused(packed: Callable[[bytes], bytes], tmp_path: Path) -> None:
    content = packed(layer(*((f"file{n}", os.urandom(3000).hex()) for n in range(40))))
    with pytest.raises(UsageError, match="a layer cannot be unpacked"):
        unpack_layer(io.BytesIO(content[: len(content) // 2]), tmp_path)


def stated(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """The header of an entry that says how large it is, without its content."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (stated("huge", archives.MAX_LAYER_BYTES + 1), "more than 64 GiB"),
        (stated("x", 2 << 30, tarfile.XHDTYPE), "a header of 2,147,483,648 bytes"),
        (stated("x", 2 << 30, tarfile.GNUTYPE_LONGNAME), "a header of 2,147,483,648 bytes"),
    ],
)
@pytest.mark.parametrize("packed", [bytes, lambda data: compressor().compress(data, ZstdCompressor.FLUSH_FRAME)])
def test_a_layer_is_refused_before_it_fills_memory_or_disk(
    content: bytes, words: str, packed: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        unpack_layer(io.BytesIO(packed(content + bytes(10240))), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_layer_with_too_many_entries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_LAYER_ENTRIES", 10)
    with pytest.raises(UsageError, match="more than 10 entries"):
        unpack_layer(io.BytesIO(layer(*((f"file{n}", "") for n in range(11)))), tmp_path)


def test_a_description_of_an_image_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        info = tarfile.TarInfo("manifest.json")
        info.size = archives.MAX_DESCRIPTION + 1
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(UsageError, match=r"manifest\.json has more than"):
        images.add("long", tmp_path / "image.tar")


def test_the_same_content_is_stored_once(tiny_root: Path, tmp_path: Path) -> None:
    first, second = images.add("one", tiny_root), images.add("two:2", tiny_root)
    assert first.digest == second.digest
    assert images.names() == {"one:latest": first.digest, "two:2": first.digest}
    images.forget("one")
    assert images.clean() == 0
    assert images.find("two:2").layers == first.layers
    images.forget("two:2")
    assert images.clean() == 1


def test_an_archive_cannot_write_outside_of_its_layer(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    tricks = layer(link("way", str(outside)), ("way/planted", "x"), link("up", "../../../../../../.."))
    tricks_up = layer(link("up", "../../../../../../.."), (f"up{outside}/planted", "x"))
    for number, content in enumerate((tricks, tricks_up)):
        (tmp_path / f"{number}.tar").write_bytes(content)
        try:
            images.add(f"trick{number}", tmp_path / f"{number}.tar")
        except UsageError:
            pass  # refused is as good as kept inside
    assert os.listdir(outside) == []
    (tmp_path / "dots.tar").write_bytes(layer(("../../planted", "x")))
    with pytest.raises(UsageError, match="leads out of it"):
        images.add("dots", tmp_path / "dots.tar")


def test_a_hard_link_cannot_take_a_file_from_outside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the key")
    (tmp_path / "hard.tar").write_bytes(layer(link("stolen", str(tmp_path / "secret"), tarfile.LNKTYPE)))
    with pytest.raises(UsageError, match="cannot be unpacked"):
        images.add("hard", tmp_path / "hard.tar")


def test_what_is_not_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.tar").write_text("not an archive")
    with pytest.raises(UsageError, match=r"text\.tar: not an archive of an image"):
        images.add("x", tmp_path / "text.tar")
    with pytest.raises(UsageError, match="no such file"):
        images.add("x", tmp_path / "nothing")
    with pytest.raises(UsageError, match="no image 'x' in the store"):
        images.forget("x")


def test_names_are_read_as_docker_reads_them() -> None:
    assert images.full_name("debian") == images.full_name("docker.io/library/debian:latest") == "debian:latest"
    assert images.full_name("ghcr.io/a/b:1") == "ghcr.io/a/b:1"
    assert images.full_name("localhost:5000/a") == "localhost:5000/a:latest"
