"""What of a diff does not count, decided on files alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakeoff.workloads.tasks.guard import configures, guard
from bakeoff.workloads.tasks.guard import test_locations as locations
from bakeoff.workloads.tasks.model import Script
from workloads.tasks.tasked import write_files

HIDDEN = Script("tests/unit/test_x.py", "x = 1\n", "r")


@pytest.mark.parametrize(
    ("path", "there", "expected"),
    [
        ("tests/unit/test_x.py", ["tests/old.py"], {"tests"}),
        ("src/pkg/tests/test_x.py", ["src/pkg/a.py"], {"src/pkg/tests"}),
        ("checks/deep/test_x.py", ["a.py"], {"checks"}),
        ("checks/deep/test_x.py", ["checks/a.py"], {"checks/deep"}),
        ("src/test_x.py", ["src/a.py"], set()),
        ("test_x.py", ["a.py"], set()),
    ],
)
def test_a_test_location_is_named_so_or_made_by_hidden_files(
    tmp_path: Path, path: str, there: list[str], expected: set[str]
) -> None:
    write_files(tmp_path, dict.fromkeys(there, ""))
    assert locations(tmp_path, [Script(path, "", "r")]) == expected


NAMES = ["a.py", "conftest.py", "src/conftest.py", "tests/a.py", "tests/unit/b.py", "tests/__pycache__/a.pyc", "sitecustomize.py", "docs/x.md"]  # fmt: skip
trees = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2"]))


@pytest.mark.slow
@given(before=trees, after=trees)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_diff_does_tests_are_read_from_the_start_state(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, str], after: dict[str, str]
) -> None:
    here = tmp_path_factory.mktemp("g")
    for name, files in (("start", before), ("tree", after)):
        write_files(here / name, files)
        (here / name).mkdir(exist_ok=True)
    found = guard(here / "start", here / "tree", [HIDDEN])
    counted = {name: text for name, text in after.items() if name in ("a.py", "docs/x.md")}
    kept = {name: text for name, text in before.items() if name not in ("a.py", "docs/x.md")}
    files = {
        file.relative_to(here / "tree").as_posix(): file.read_text()
        for file in (here / "tree").rglob("*")
        if file.is_file()
    }
    assert files.pop(".hidden-tests.ini") == "[pytest]\n"
    assert files.pop("tests/unit/test_x.py") == HIDDEN.content
    assert files == {**kept, **counted}
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert set(found.discounted) <= changed - {"a.py", "docs/x.md"}


def test_links_do_not_lead_the_guard_out_of_the_tree(tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"kept.py": "k", "conftest.py": "k"})
    write_files(tmp_path / "start", {"tests/helper.py": "h", "src/conftest.py": "c"})
    tree = write_files(tmp_path / "tree", {"a.py": ""})
    for name in ("tests", "src", "more"):
        (tree / name).symlink_to(outside)
    guard(tmp_path / "start", tree, [HIDDEN])
    assert {file.name: file.read_text() for file in outside.iterdir()} == {"kept.py": "k", "conftest.py": "k"}
    assert (tree / "tests/helper.py").read_text() == "h" and not (tree / "tests").is_symlink()
    assert (tree / "src/conftest.py").read_text() == "c" and not (tree / "src").is_symlink()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("pytest.ini", "", True),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", True),
        ("pyproject.toml", "[tool.ruff]\n", False),
        ("pyproject.toml", "[tool.", False),
        ("tox.ini", "[pytest]\n", True),
        ("tox.ini", "[tox]\n", False),
        ("setup.cfg", "[tool:pytest]\n", True),
        ("setup.cfg", "[metadata]\n", False),
    ],
)
def test_a_configuration_is_one_that_pytest_would_take(name: str, text: str, expected: bool) -> None:
    assert configures(name, text) is expected
