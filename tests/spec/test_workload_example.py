"""The workload in the docstring of the interface, and on its page, is complete: it can be installed and run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from bakeoff.spec import workload
from lab import Lab

PAGE = (Path(__file__).parents[2] / "docs" / "write-a-workload.md").read_text(encoding="utf-8")


def in_the_docstring() -> tuple[str, str]:
    text = textwrap.dedent((workload.__doc__ or "").partition("A complete one:\n")[2].partition("\nAn experiment")[0])
    code, _, table = text.partition("# pyproject.toml\n")
    return code, table


def on_the_page() -> tuple[str, str]:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    table = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
    return code, table


def test_both_show_the_same_workload() -> None:
    assert [part.split() for part in in_the_docstring()] == [part.split() for part in on_the_page()]


def test_the_example_can_be_installed_and_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    code, table = on_the_page()
    name, value = re.findall(r'^(\w+) = "(.+)"$', table, re.MULTILINE)[0]
    lab.write("site/my_package/__init__.py", "")
    lab.write("site/my_package/coin.py", code)
    lab.write("site/my_package-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    lab.write("site/my_package-1.0.dist-info/entry_points.txt", f"[bakeoff.workloads]\n{name} = {value}\n")
    lab.environment["PYTHONPATH"] = str(lab.place / "site")
    lab.experiment(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])
    done = lab.cli("run", "trial.toml")
    assert "20 succeeded" in done.stdout
    rows = lab.rows()
    assert {row["throws"] for row in rows} == {100} and all(row["share"] == row["heads"] / 100 for row in rows)
    fair = {row["seed"]: row["heads"] for row in rows if row["bias"] == 0.5}
    biased = {row["seed"]: row["heads"] for row in rows if row["bias"] == 0.6}
    assert all(biased[seed] >= fair[seed] for seed in fair), "arms meet the same throws"
