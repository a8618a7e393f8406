"""`bakeoff sandbox`: what works here, what was left behind, and the image store, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bakeoff.cli import main
from bakeoff.sandbox import cache


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["sandbox", *words], catch_exceptions=False)
    return result.exit_code, result.stdout


@pytest.mark.apt
def test_the_default_sandbox_works_and_its_cost_is_measured() -> None:
    code, text = call("check", "bubblewrap", "--json")
    (facts,) = json.loads(text)["sandboxes"]
    assert code == 0
    assert facts["works"] and facts["why_not"] is None
    assert 0 < facts["milliseconds"] < 5000
    code, text = call("check", "bubblewrap", "none")
    assert code == 0
    assert "bubblewrap (default)" in text and "isolates nothing" in text


def test_a_sandbox_that_does_not_work_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    code, text = call("check", "docker")
    assert code == 1
    assert "set DOCKER_HOST" in text
    monkeypatch.setenv("SANDBOX_BACKEND", "docker")
    code, text = call("check", "--json", "docker")
    assert json.loads(text)["default"] == "docker"


def test_an_unknown_sandbox_is_a_usage_error() -> None:
    assert call("check", "dockr")[0] == 2


def test_clean_removes_what_killed_processes_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{tmp_path}/nobody")
    kept, pid, born, number = cache.unique_name().split("-")
    dead = cache.directory("boxes") / f"{kept}-{pid}-{int(born) + 1}-{number}"
    (dead / "volume/upper").mkdir(parents=True)
    (dead / "volume/upper/locked").mkdir(mode=0)
    code, text = call("clean", "--json")
    assert code == 0
    assert json.loads(text) == {"boxes": 1, "cgroups": 0, "containers": 0, "layers": 0}
    assert not dead.exists()
    assert call("clean")[1] == "removed 0 boxes, 0 cgroups, 0 containers, 0 layers\n"


def test_images_are_added_listed_and_removed(tiny_root: Path) -> None:
    code, text = call("image", "add", "tiny", str(tiny_root), "--json")
    assert code == 0
    added = json.loads(text)
    assert added["name"] == "tiny:latest" and added["layers"] == 1
    assert json.loads(call("image", "ls", "--json")[1]) == [{"name": "tiny:latest", "digest": added["digest"]}]
    assert "tiny:latest" in call("image", "ls")[1]
    assert call("image", "rm", "tiny")[0] == 0
    assert call("image", "rm", "tiny")[0] == 2
    assert json.loads(call("clean", "--images", "--json")[1])["layers"] == 1
    assert call("image", "ls")[1] == ""
