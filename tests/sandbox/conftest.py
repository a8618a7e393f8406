"""Boxes for tests: a separate cache, and a check after each test that nothing was left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.sandbox import cache, cgroups
from bakeoff.sandbox.bubblewrap import Bubblewrap


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that opens a box of bubblewrap, or an image of busybox, needs these programs."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.path.is_relative_to(Path(__file__).parent) and {"sandbox", "tiny_root"} & set(fixtures):
            item.add_marker(pytest.mark.apt)


@pytest.fixture(scope="session", autouse=True)
def own_cache() -> Iterator[Path]:
    """A cache for this test session. Short, because unix sockets are put there."""
    before = os.environ.get(cache.VARIABLE)
    with tempfile.TemporaryDirectory(prefix="bakeoff-test-") as directory:
        os.environ[cache.VARIABLE] = directory
        yield Path(directory)
        if before is None:
            del os.environ[cache.VARIABLE]
        else:
            os.environ[cache.VARIABLE] = before


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """The test fails when one of its boxes left a directory or a cgroup behind."""
    yield
    assert [path.name for path in cache.directory("boxes").iterdir() if path.is_dir()] == []
    ours = cache.PREFIX + cache.unique_name().rpartition("-")[0]
    groups = [group for parent in set(cgroups.parents().values()) for group in parent.glob(f"{ours}*")]
    assert groups == []


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image of nothing but busybox, and a second user."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.fail("busybox is not installed: run `make test`, or scripts/install-bubblewrap.sh", pytrace=False)
    root = tmp_path_factory.mktemp("images") / "tiny"
    for name in ("bin", "etc", "tmp", "home/agent", "root", "proc", "dev"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    for name in ("sh", "ls", "cat", "echo", "mkdir", "id", "rm", "pwd", "env", "tar", "sleep", "touch", "stat", "grep"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nagent:x:1000:\ncrew:x:2000:agent\n")
    (root / "etc/motd").write_text("from the image\n")
    (root / "tmp").chmod(0o1777)
    return root


@pytest.fixture
def sandbox() -> Bubblewrap:
    backend = Bubblewrap()
    problem = backend.missing()
    if problem is not None:
        pytest.fail(f"bubblewrap does not work: {problem}", pytrace=False)
    return backend
