"""The kinds of task that docs/tasks.md shows with a launcher: right work passes each of them, wrong work does not."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.diff import compare_directories
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.verify import verify_diff
from workloads.tasks.tasked import prepared_task, write_files

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

PAGE = Path(__file__).parents[3] / "docs" / "tasks.md"
KIND = re.compile(r"^#### \d+\. (.+?)\n(.*?)```(python|sh)\n(.*?)```", re.MULTILINE | re.DOTALL)
MODULES = re.compile(r'"modules": (\[.*?\])')


@dataclass(frozen=True)
class Kind:
    """One kind of task on the page."""

    language: str
    test: str
    modules: list[str]


def kinds() -> dict[str, Kind]:
    section = PAGE.read_text(encoding="utf-8").partition("### Ten kinds of task")[2].partition("\n### ")[0]
    found = {}
    for title, text, language, test in KIND.findall(section):
        modules = MODULES.search(text)
        found[title] = Kind(language, test, json.loads(modules[1]) if modules else [])
    return found


KINDS = kinds()
# By title: the work, and a change to it that must not pass.
WORK: dict[str, tuple[dict[str, str], tuple[str, str]]] = {
    "A function": ({"slugs.py": "def slug(text):\n    return '-'.join(text.lower().split())\n"}, ("lower", "upper")),
    "Tests that import the work": (
        {"shop/__init__.py": "", "shop/prices.py": "class NoPrice(LookupError):\n    pass\n\n\ndef total(lines):\n    if not lines:\n        raise NoPrice('no lines')\n    return sum(n * p for n, p in lines)\n"},
        ("n * p", "n + p"),
    ),
    "A class": (
        {"stacks.py": "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, x):\n        self.items.append(x)\n\n    def pop(self):\n        return self.items.pop()\n\n    def __len__(self):\n        return len(self.items)\n"},
        ("self.items.pop()", "self.items.pop(0)"),
    ),
    "A program": (
        {"ledger.py": "import sys\nif len(sys.argv) < 2:\n    sys.exit('usage: ledger.py sum')\nprint(sum(int(line) for line in sys.stdin))\n"},
        ("sum(int", "max(int"),
    ),
    "Files in, files out": (
        {"clean.py": "import csv, sys\nrows = [r for r in csv.reader(open(sys.argv[1])) if all(r)]\ncsv.writer(open(sys.argv[2], 'w')).writerows(rows)\n"},
        ("if all(r)", "if any(r)"),
    ),
    "A file that the work leaves": ({"answer.json": '{"cities": ["Oslo", "Rome"]}'}, ("Rome", "Bonn")),
    "A database": (
        {"migrate.py": "import sqlite3\nbase = sqlite3.connect('shop.db')\nbase.execute('CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)')\nbase.execute('INSERT INTO orders VALUES (1, 30)')\nbase.commit()\n"},
        ("PRIMARY KEY", ""),
    ),
    "A server": (
        {"server.py": "import http.server, sys\n\n\nclass Handler(http.server.BaseHTTPRequestHandler):\n    def do_GET(self):\n        self.send_response(200 if self.path == '/health' else 404)\n        self.end_headers()\n        self.wfile.write(b'ok')\n\n\nhttp.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n"},
        ("else 404", "else 200"),
    ),
    "A refactoring": (
        {"billing.py": "def _round(x):\n    return round(x, 2)\n\n\ndef net(x):\n    return _round(x)\n\n\ndef gross(x):\n    return _round(x * 1.19)\n"},
        ("_round(x * 1.19)", "round(x * 1.19, 2)"),
    ),
    "A script for the shell": (
        {"count.sh": "#!/bin/sh\nsort | uniq -c | sort -rn | head -1 | sed 's/^ *//'\n"},
        ("sort -rn", "sort -n"),
    ),
}  # fmt: skip


def score(folder: Path, kind: Kind, work: dict[str, str], sandbox: Bubblewrap) -> float | None:
    name = "tests/test_hidden.py" if kind.language == "python" else "tests/hidden.sh"
    scripts = [{"path": name, "content": kind.test, "rubric_id": "works"}]
    verifier: dict[str, Any] = {"timeout_sec": 60, "isolation": "launcher", "modules": kind.modules}
    evaluation = {"rubrics": [{"id": "works", "criterion": "", "weight": 1}], "test_scripts": scripts}
    task = load_task(prepared_task(folder / "t", evaluation=evaluation, verifier=verifier))
    write_files(folder / "a", {"calc.py": (folder / "t/repo/calc.py").read_text()})
    write_files(folder / "b", {"calc.py": (folder / "t/repo/calc.py").read_text(), **work})
    diff = compare_directories(folder / "a", folder / "b")
    found = verify_diff(task, diff, sandbox, logs=folder / "logs")
    assert found.status == "scored", found.error
    return found.score


def test_the_page_shows_ten_kinds_and_all_of_them_are_tried() -> None:
    assert len(KINDS) == 10
    assert KINDS.keys() == WORK.keys()


@pytest.mark.parametrize("title", WORK)
def test_right_work_passes_and_wrong_work_does_not(tmp_path: Path, bubblewrap: Bubblewrap, title: str) -> None:
    work, (right, wrong) = WORK[title]
    assert any(right in text for text in work.values())
    broken = {name: text.replace(right, wrong) for name, text in work.items()}
    assert score(tmp_path / "right", KINDS[title], work, bubblewrap) == 1.0
    assert score(tmp_path / "wrong", KINDS[title], broken, bubblewrap) == 0.0
