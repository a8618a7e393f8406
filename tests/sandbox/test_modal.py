"""What we would send to Modal fits the signatures of the real library. The service is not contacted."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import modal
import pytest

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import BoxSpec, Command, Image, Limits, Mount
from bakeoff.sandbox.modal import Modal, ModalBox, check, creation, execution


def bound(function: Any, *args: Any, **settings: Any) -> dict[str, Any]:
    """The arguments as the library would take them; a wrong name or number of them is a TypeError."""
    return dict(inspect.signature(function).bind(*args, **settings).arguments)


@pytest.fixture
def spec() -> BoxSpec:
    return BoxSpec(
        image=Image.named("python:3.12-slim"),
        env={"A": "1"},
        workdir="/app",
        limits=Limits(memory_mb=512, cpus=1.5),
        name="tested",
    )


def test_a_sandbox_is_created_with_arguments_the_library_has(spec: BoxSpec) -> None:
    image = Modal().image(spec)
    assert isinstance(image, modal.Image)
    app = modal.App("bakeoff")
    bindings = bound(modal.Sandbox.create, "sleep", "infinity", app=app, **creation(spec, image, "a-name"))
    assert bindings["cpu"] == (1.5, 1.5)
    assert bindings["memory"] == (512, 512)
    assert bindings["block_network"] is True
    assert bindings["workdir"] == "/app"
    assert bindings["tags"] == {"made-by": "bakeoff", "bakeoff": "a-name"}


def test_without_limits_none_are_asked_for() -> None:
    settings = creation(BoxSpec(image=Image.named("x"), network=True), None, "a-name")
    assert "cpu" not in settings and "memory" not in settings
    assert settings["block_network"] is False


def test_a_command_is_started_with_arguments_the_library_has() -> None:
    words, settings = execution(Command(["echo", "a b"], {"A": "1"}, "/app", 2.6, None, None), None)
    bindings = bound(modal.Sandbox.exec, None, *words, **settings)
    assert bindings["args"] == ("echo", "a b")
    assert (bindings["timeout"], bindings["workdir"], bindings["text"]) == (3, "/app", False)
    words, _ = execution(Command(["echo", "a b"], {}, None, None, None, None), "agent")
    assert words == ["su", "-s", "/bin/sh", "agent", "-c", "echo 'a b'"]


def test_what_else_is_called_exists_as_it_is_called() -> None:
    bound(modal.App.lookup, "bakeoff", create_if_missing=True)
    bound(modal.Sandbox.terminate, None)
    bound(modal.Sandbox.list, tags={"made-by": "bakeoff"})
    bound(modal.Sandbox.get_tags, None)
    from modal.container_process import ContainerProcess
    from modal.io_streams import StreamWriter

    bound(ContainerProcess.wait, None)
    for name in ("stdout", "stderr", "stdin"):
        assert hasattr(ContainerProcess, name)
    bound(StreamWriter.write, None, b"data")
    bound(StreamWriter.write_eof, None)
    bound(StreamWriter.drain, None)


def test_directories_dockerfiles_and_mounts_become_images(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    (tmp_path / "file").write_text("x")
    service = Modal()
    built = service.build(tmp_path, args={"A": "1"})
    mounts = (Mount(tmp_path, "/given"), Mount(tmp_path / "file", "/file"))
    for image in (built, Image.root(tmp_path)):
        assert isinstance(service.image(BoxSpec(image=image, mounts=mounts)), modal.Image)
    with pytest.raises(UsageError, match="no such file"):
        service.build(tmp_path / "nothing")


def test_what_modal_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot reach a socket"):
        check(BoxSpec(sockets={80: tmp_path}))
    with pytest.raises(UsageError, match="no writable mounts"):
        check(BoxSpec(mounts=(Mount(tmp_path, "/x", writable=True),)))
    with pytest.raises(UsageError, match="keep_layer"):
        check(BoxSpec(keep_layer=True))
    with pytest.raises(UsageError, match="cannot use this machine as an image"):
        Modal().image(BoxSpec())


def test_without_an_account_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.delenv(name, raising=False)
    problem = Modal().missing()
    assert problem is not None and "modal token new" in problem
    with pytest.raises(InfraError, match="modal token new"):
        Modal().open(BoxSpec(image=Image.named("x")))


def test_a_hosted_box_has_the_interface_of_a_local_one() -> None:
    from bakeoff.sandbox.bubblewrap import BubblewrapBox

    for name in ("run", "put", "get", "write", "read", "end_processes", "close"):
        theirs, ours = (inspect.signature(getattr(cls, name)) for cls in (ModalBox, BubblewrapBox))
        assert theirs == ours
