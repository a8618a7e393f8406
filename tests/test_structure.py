"""scripts/structure.py counts what its documentation says, and HTML is in templates."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "structure.py"

SAMPLE = '''"""A module."""

# a comment
import os


def _once(x):
    """Two
    lines."""
    return x  # counts as code


def _twice(x):
    return x


LIMIT = 3
"""What the limit is."""

class Thing:
    async def method(self):
        return _once(_twice(1)) + _twice(2)
'''


def test_lines_of_code_leave_out_blanks_comments_and_docstrings() -> None:
    spec = spec_from_file_location("structure", SCRIPT)
    assert spec is not None and spec.loader is not None
    structure = module_from_spec(spec)
    sys.modules["structure"] = structure  # dataclasses look their module up
    spec.loader.exec_module(structure)
    figures = structure.measure(SAMPLE)
    assert (figures.files, figures.lines) == (1, SAMPLE.count("\n"))
    assert figures.code == 9, "import, two functions of two lines, LIMIT, class, method and its line"
    assert (figures.functions, figures.private, figures.private_with_one_caller) == (3, 2, 1)
    assert (figures + figures).functions_per_1000_lines == figures.functions_per_1000_lines


@pytest.mark.slow
def test_the_json_has_every_package_and_the_path_of_the_quickstart() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--json"], check=True, capture_output=True, text=True)
    facts = json.loads(done.stdout)
    packages = {path.name for path in (ROOT / "src/bakeoff").iterdir() if list(path.glob("*.py"))}
    assert set(facts["packages"]) == packages | {"(modules)", "core", "total"}
    outer = [figures for name, figures in facts["packages"].items() if name not in ("core", "total")]
    assert facts["packages"]["total"]["code"] == sum(figures["code"] for figures in outer)
    assert list(facts["paths"]) == ["run", "compare", "report", "one verdict"]
    for counts in facts["paths"].values():
        assert 10 < counts["files"] <= counts["functions"]


HTML_TAG = re.compile(
    r"</?(a|b|body|br|button|canvas|caption|code|dd|details|div|dl|dt|em|figcaption|figure|form|h[1-6]|head|html|img|input|label"
    r"|li|link|main|meta|nav|ol|option|p|pre|script|section|select|small|span|strong|style|summary|table|tbody|td|th|thead|title|tr"
    r"|u|ul)(?=[\s/>])"
)
SVG = {ROOT / "src/bakeoff/web/svg.py"}
"""Files that read or write SVG, which has some of these tags too."""


def html_in(source: str) -> list[int]:
    """The lines of strings with an HTML tag; documentation may show one."""
    nodes = list(ast.walk(ast.parse(source)))
    shown = {node.value for node in nodes if isinstance(node, ast.Expr)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and node not in shown)
    return [node.lineno for node in texts if isinstance(node.value, str) and HTML_TAG.search(node.value)]


def test_html_is_only_in_templates() -> None:
    assert html_in('x = f"<p class={name}>"') == html_in('x = "</td>" + y') == [1]
    assert html_in('"""Writes `<p>`."""\nx = f"<tool_call>{y} <path>"') == []
    files = set((ROOT / "src").rglob("*.py")) - SVG
    assert {str(path): lines for path in files if (lines := html_in(path.read_text("utf-8")))} == {}
