"""Nodes with other packages, or other local modules, than the first one: users are warned, or the nodes get no runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bakeoff.errors import SpecError
from bakeoff.records.packages import differing_packages, installed_packages, local_modules
from bakeoff.spec.load import load_plan
from support.process_pilots import install, own_modules
from support.processes import Lab

FILE = """
workload = "python"
seeds = 12
isolation = "fresh"
params = { function = "work:run" }
[executor]
kind = "processes"
pilots = 2
"""
WORK = """
import pathlib, time
import lib

def run(ctx):
    seen = pathlib.Path(__file__).parent / "seen"
    (seen / lib.VERSION).touch()
    wanted, deadline = int((seen / "wanted").read_text()), time.monotonic() + 120
    while len(list(seen.iterdir())) - 1 < wanted and time.monotonic() < deadline:
        time.sleep(0.05)  # until every node that may get runs has one
    return {"version": float(lib.VERSION)}
"""


def nodes_with_two_versions(lab: Lab, wanted: int, more: str = "") -> None:
    install(lab)
    lab.measured = False
    lab.experiment(FILE + more, work=WORK)
    lab.write("seen/wanted", str(wanted))
    for name, version in {"1-1": 1, "1-2": 2}.items():
        own = own_modules(lab.place, name)
        (own / f"other-{version}.dist-info").mkdir(parents=True)
        (own / "lib.py").write_text(f"VERSION = '{version}'\n")


@pytest.mark.slow
def test_runs_on_nodes_with_different_modules_are_warned_of_while_they_run_and_afterwards(lab: Lab) -> None:
    nodes_with_two_versions(lab, 2)
    said = lab.cli("run", "trial.toml").stderr
    assert {row["version"] for row in lab.rows()} == {1.0, 2.0}
    assert "warning: node-1-" in said and "other packages than on node-1-" in said
    assert "lib files " in said and "other " in said
    status = lab.look("status", "trial").output
    assert "Different packages" in status and "lib files" in status


@pytest.mark.slow
def test_with_same_packages_all_runs_are_on_nodes_like_the_first_and_status_names_the_others(lab: Lab) -> None:
    nodes_with_two_versions(lab, 1, "same_packages = true\n")
    said = lab.cli("run", "trial.toml").stderr
    assert len({row["version"] for row in lab.rows()}) == 1
    status = lab.look("status", "trial").output
    for text in (said, status):
        assert "node-1-" in text and "other packages than on node-1-" in text
    assert "gets no runs" in said and "got no more runs" in status and "Different packages" not in status


def test_same_packages_needs_pilots(tmp_path: Path) -> None:
    file = tmp_path / "trial.toml"
    file.write_text('params = { command = "true" }\n[executor]\nkind = "slurm"\npilots = false\nsame_packages = true\n')
    with pytest.raises(SpecError, match=r"executor.same_packages: a job for each run has its run before"):
        load_plan(file)


def test_modules_that_were_not_installed_are_compared_by_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.py").write_text("X = 1\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "inner.py").write_text("X = 1\n")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "work.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "experiment"), *sys.path])
    before = local_modules(tmp_path / "experiment")
    assert {"one", "two"} <= before.keys() and "work" not in before and "bakeoff" not in before
    (tmp_path / "two" / "inner.py").write_text("X = 2\n")
    after = local_modules(tmp_path / "experiment")
    assert list(differing_packages(before, after)) == ["two"]


def test_a_package_in_editable_mode_is_compared_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, site = tmp_path / "project", tmp_path / "site-packages"
    (project / "mine").mkdir(parents=True)
    (project / "mine" / "__init__.py").write_text("X = 1\n")
    (site / "mine-1.0.dist-info").mkdir(parents=True)
    (site / "mine-1.0.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///"}')
    monkeypatch.setattr(sys, "path", [str(site), *sys.path, str(project)])
    assert installed_packages()["mine"] == "editable"
    first = local_modules(tmp_path / "elsewhere")["mine"]
    (project / "mine" / "__init__.py").write_text("X = 2\n")
    assert first.startswith("files ") and local_modules(tmp_path / "elsewhere")["mine"] != first


def test_packages_of_tools_and_those_in_editable_mode_are_no_difference() -> None:
    assert differing_packages({"pip": "1", "mine": "editable"}, {"pip": "2", "mine": "files 12", "numpy": "2"}) == {
        "numpy": (None, "2")
    }
