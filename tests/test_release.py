"""`make release` refuses a checkout whose version or changelog is not ready."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "release.py"
CHANGELOG = (
    "# Changelog\n\n## Unreleased\n\n## 1.2.0 (2030-01-02)\n\n- A change.\n\n## 1.1.0 (2029-01-02)\n\n- Another.\n"
)

Problems = Callable[..., list[str]]


@pytest.fixture
def problems(tmp_path: Path) -> Problems:
    """`problems(changelog=...)` are the problems of a checkout of version 1.2.0 with these files changed."""
    spec = spec_from_file_location("release", SCRIPT)
    assert spec is not None and spec.loader is not None
    release: Any = module_from_spec(spec)
    sys.modules["release"] = release
    spec.loader.exec_module(release)
    (tmp_path / "src" / "bakeoff").mkdir(parents=True)

    def check(code: str = "1.2.0", citation: str = "1.2.0", changelog: str = CHANGELOG) -> list[str]:
        (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
        (tmp_path / "src/bakeoff/version.py").write_text(f'"""The version."""\n\n__version__ = "{code}"\n')
        (tmp_path / "CITATION.cff").write_text(f"cff-version: 1.2.0\nversion: {citation}\n")
        (tmp_path / "CHANGELOG.md").write_text(changelog)
        problems: list[str] = release.problems_of_files(tmp_path)
        return problems

    return check


def test_a_checkout_with_one_version_and_its_changes_is_ready(problems: Problems) -> None:
    assert problems() == []


def test_another_version_in_a_file_is_a_problem(problems: Problems) -> None:
    assert problems(code="1.1.0") == ["src/bakeoff/version.py has version 1.1.0; pyproject.toml has 1.2.0"]
    assert problems(citation="1.3.0") == ["CITATION.cff has version 1.3.0; pyproject.toml has 1.2.0"]


def test_a_changelog_without_a_dated_section_is_a_problem(problems: Problems) -> None:
    assert "no section `## 1.2.0 (YYYY-MM-DD)`" in problems(changelog="# Changelog\n\n## Unreleased\n")[0]
    assert "no section" in problems(changelog="# Changelog\n\n## 1.2.0\n\n- A change.\n")[0]


def test_an_empty_section_and_changes_left_as_unreleased_are_problems(problems: Problems) -> None:
    text = "# Changelog\n\n## Unreleased\n\n- Late.\n\n## 1.2.0 (2030-01-02)\n"
    assert problems(changelog=text) == [
        "CHANGELOG.md lists no change for 1.2.0",
        "CHANGELOG.md still lists changes under `## Unreleased`",
    ]
