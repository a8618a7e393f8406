"""What a report's script files give to its pages."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any


def given(script: Path) -> Any:
    """The value that a data file gives to the page."""
    match = re.fullmatch(r'bakeoff\.give\("[a-z0-9-]+", "([A-Za-z0-9+/=]+)"\);\n', script.read_text())
    assert match is not None, f"{script} is no data file"
    return json.loads(zlib.decompress(base64.b64decode(match[1]), wbits=-15))


def parts_of_runs(report: Path) -> dict[str, dict[str, str]]:
    """The HTML of every part of every run, by the run's id and the part's title."""
    facts = given(report / "assets" / "run-ids.js")
    runs = []
    for at in range(-(-len(facts["ids"]) // facts["chunk"])):
        runs += given(report / "assets" / f"details-{at}.js")
    return {run: dict(parts) for run, parts in zip(facts["ids"], runs, strict=True)}


def table_of(script: Path) -> dict[str, list[str]]:
    """The texts of a table, by column."""
    return {
        column["name"]: [column["texts"][at] if at >= 0 else "" for at in column["at"]]
        for column in given(script)["columns"]
    }
