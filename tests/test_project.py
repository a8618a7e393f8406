"""The files around the package agree with it and with each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import bakeoff
from support.processes import eventually

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/**/*.md")))]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_package_and_pyproject_agree_on_the_version() -> None:
    assert tomllib.loads(read("pyproject.toml"))["project"]["version"] == bakeoff.__version__


@pytest.mark.parametrize("init", sorted(ROOT.glob("src/bakeoff/*/**/__init__.py")), ids=lambda init: init.parent.name)
def test_the_init_of_a_package_names_its_modules(init: Path) -> None:
    rooms = {inner.parent.name for inner in init.parent.glob("*/__init__.py")}
    inside = rooms | {module.stem for module in init.parent.glob("*.py") if module != init}
    text = init.read_text(encoding="utf-8")
    assert not [name for name in sorted(inside) if not re.search(rf"[`.]{name}[`\": ]", text)]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_links_to_exists(page: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", read(page))
    broken = [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_verb_that_a_page_names_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), flags=re.MULTILINE))
    named = re.findall(r"(?:`|^\$? *)make ([a-z]+)", read(page), flags=re.MULTILINE)
    assert set(named) <= targets


@pytest.mark.slow
def test_the_command_line_reference_is_what_help_says(tmp_path: Path) -> None:
    # In a process of its own: click keeps a command's help option from the first time that it was asked for.
    written = tmp_path / "cli.md"
    subprocess.run([sys.executable, ROOT / "scripts/cli_reference.py", written], check=True)
    assert read("docs/cli.md") == written.read_text(encoding="utf-8"), "run `make docs`"


def test_an_install_that_fails_ends_the_downloads_that_it_started(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "install-for-tests.sh", scripts)
    started, tag = tmp_path / "started", f"4{os.getpid()}"
    steps = {
        "install-agents": f"sleep {tag} & touch {started}; wait",
        "install-trainers": f"sleep {tag}",
        "install-bubblewrap": f"until [ -e {started} ]; do sleep 0.02; done; exit 3",
    }
    for name, text in steps.items():
        (scripts / f"{name}.sh").write_text(f"#!/bin/sh\n{text}\n")
        (scripts / f"{name}.sh").chmod(0o755)
    assert subprocess.run(["sh", scripts / "install-for-tests.sh"]).returncode == 3
    eventually(lambda: subprocess.run(["pgrep", "-f", f"sleep {tag}"], stdout=subprocess.DEVNULL).returncode == 1)


def test_postgres_gives_each_caller_an_empty_database(postgres_url: Callable[[], str]) -> None:
    first, second = postgres_url(), postgres_url()
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE t (x int)")
    with psycopg.connect(second) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert tables == (0,)
