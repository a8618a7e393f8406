"""Runs that are judged together and ran with different code, packages or kinds of nodes: said, not mixed in silence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from bakeoff.records.claims import Claims, NodeRecord, list_nodes
from bakeoff.records.edition import Edition
from bakeoff.records.packages import installed_packages
from support import editions
from support.process_pilots import install
from support.processes import Lab

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]
BOTH = """
name = "trial"
workload = "python"
seeds = 4
params = { function = "work:run" }
matrix = { size = [1, 2] }
analysis = { metric = "score" }
[executor]
kind = "processes"
pilots = 2
slots = 1
expiry = 20
"""
WAITS = """
import os, time
from pathlib import Path
def run(ctx, size=1):
    Path(os.environ["BAKEOFF_NODE"] + ".began").touch()
    while len(list(Path().glob("*.began"))) < 2:
        time.sleep(0.02)
    return {"score": ctx.seed + size}
"""


@pytest.mark.slow
def test_nodes_with_other_packages_are_named_with_what_differs_and_how_many_runs_they_had(lab: Lab) -> None:
    install(lab)
    first = lab.place.parent / f"{lab.place.name}-first"
    for node, version in (("node-1-1", "1.26.4"), ("node-1-2", "2.0.1")):
        (first / node / f"numpy-{version}.dist-info").mkdir(parents=True)
        (first / node / f"pip-{version}.dist-info").mkdir()
    (first / "sitecustomize.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(first)!r} + '/' + os.environ.get('BAKEOFF_NODE', ''))"
    )
    lab.environment["PYTHONPATH"] = os.pathsep.join([str(first), lab.environment["PYTHONPATH"]])
    lab.experiment(BOTH, work=WAITS)
    lab.cli("run", "trial.toml")
    with closing(lab.edition()) as edition:
        assert {node.packages["numpy"] for node in list_nodes(edition)} == {"1.26.4", "2.0.1"}
        ran = {f"node-{node}": counts.total() for node, counts in edition.attempts_by_node().items()}
    status = lab.look("status", "trial").stdout
    assert "warning: Different packages: " in status and "pip" not in status
    assert "numpy 1.26.4 on node-1-1 (" in status and "numpy 2.0.1 on node-1-2 (" in status
    (difference,) = json.loads(lab.look("status", "trial", "--json").stdout)["conditions"]["differences"]
    assert {tuple(each["where"]): sum(each["runs"].values()) for each in difference["versions"]} == {
        (node,): number for node, number in ran.items()
    }
    lines = lab.look("compare", "trial", code=None).stdout.split("\n\n")
    assert lines[1].startswith("Different packages: numpy "), "right after the first block"


def edition_on(make_edition: MakeEdition, nodes: dict[str, NodeRecord], **how: Any) -> Edition:
    """An edition whose arms ran on these nodes, by arm."""
    edition = make_edition(**how)
    Claims(edition, "slurm", 1).see(list(nodes.values()))
    with edition.database.transaction() as transaction:
        for run in edition.runs():
            transaction.run(
                "UPDATE attempts SET node = ? WHERE edition_id = ? AND position = ?",
                (nodes[run.arm].node, edition.edition_id, run.position),
            )
    return edition


def node(number: int, host: str, kind: str = "a kind", **packages: str) -> NodeRecord:
    return NodeRecord(f"1-{number}", 1, "slurm", host, kind, "code", editions.START, packages=packages)


def said(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)["settings"].get("conditions", {})


def test_arms_that_never_had_the_same_packages_may_differ_because_of_the_machines(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    nodes = {"small": node(1, "n1", numpy="1.26.4"), "large": node(2, "n2", numpy="2.0.1")}
    edition_on(make_edition, nodes).close()
    sentence = (
        "Different packages of the Python that runs bakeoff: numpy 1.26.4 on n1 (runs: small 3), numpy 2.0.1 on n2 (runs: "
        "large 3). small and large never had the same packages, so their difference may be that of the machines."
    )
    assert said(bakeoff("compare", "sorting", "--json"))["sentence"] == sentence
    for verb in (["status", "sorting"], ["rank", "sorting"], ["summarize", "sorting"], ["variance", "sorting"]):
        assert sentence in bakeoff(*verb).stdout, verb
    bakeoff("report", "sorting", "--out-dir", "page")
    assert sentence in Path("page/index.html").read_text()


def test_a_server_keeps_the_packages_of_each_edition_too(
    bakeoff: Bakeoff, make_edition: MakeEdition, postgres_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAKEOFF_DATABASE_URL", postgres_url())
    edition_on(make_edition, {"small": node(1, "n1", numpy="1"), "large": node(2, "n2", numpy="2")}).close()
    edition_on(
        make_edition, {"small": node(1, "n1", numpy="2"), "large": node(2, "n2", numpy="2")}, name="other"
    ).close()
    assert "numpy 1 on n1" in said(bakeoff("compare", "sorting", "--json"))["sentence"]
    assert not said(bakeoff("compare", "other", "--json"))


def test_arms_on_different_kinds_of_nodes_are_said_and_a_mixture_of_kinds_is_not(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    edition = edition_on(make_edition, {"small": node(1, "n1", "8 cores"), "large": node(2, "n2", "64 cores")})
    sentence = said(bakeoff("compare", "sorting", "--json"))["sentence"]
    assert sentence.startswith(
        "Different kinds of nodes: 8 cores on n1 (runs: small 3), 64 cores on n2 (runs: large 3)"
    )
    with edition.database.transaction() as transaction:
        transaction.run("UPDATE attempts SET node = '1-1' WHERE position % 3 = 0")
    edition.close()
    assert not said(bakeoff("compare", "sorting", "--json"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            {"pip": "23", "setuptools": "60", "ruff": "1", "types-pyyaml": "6", "pytest-cov": "1"},
            {"pip": "24", "uv": "1"},
        ),
        ({"mine": "editable"}, {"mine": "0.3"}),
        ({"PyYAML": "6.0", "scikit_learn": "1.4"}, {"pyyaml": "6.0", "scikit-learn": "1.4"}),
        ({}, {"numpy": "2.0.1"}),
    ],
    ids=["tools", "editable", "spelling", "not recorded"],
)
def test_what_does_not_change_results_is_no_difference(
    first: dict[str, str], second: dict[str, str], bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    edition_on(make_edition, {"small": node(1, "n1", **first), "large": node(2, "n2", **second)}).close()
    assert not said(bakeoff("compare", "sorting", "--json"))


def test_a_package_that_one_host_lacks_counts_and_one_that_was_added_between_sessions_does_not(
    bakeoff: Bakeoff, make_edition: MakeEdition
) -> None:
    for number, host in enumerate(("n2", "n1")):
        nodes = {"small": node(1, "n1", numpy="2"), "large": node(2, host, numpy="2", numba="0.6")}
        edition_on(make_edition, nodes, stamp=editions.START + 60 * number).close()
    assert "no numba on n1" in said(bakeoff("compare", "sorting/20260101-000000", "--json"))["sentence"]
    assert not said(bakeoff("compare", "sorting", "--json"))


def git(commit: str, diff: str = "") -> dict[str, Any]:
    return {
        "commit": commit * 10,
        "branch": "main",
        "dirty": bool(diff),
        "diff": diff,
        "code": f"{commit} without own file",
    }


def test_arms_of_two_editions_with_other_code_and_packages_are_told_apart_in_the_second_line(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path
) -> None:
    for name, commit, numpy in (("nightly", "a", "1.26.4"), ("tonight", "b", "2.0.1")):
        told = editions.provenance(tmp_path, git=git(commit), packages={"numpy": numpy}, experiment=f"/x/{name}.toml")
        make_edition(name=name, told=told).close()
    compare = ["compare", "nightly:small", "tonight:large"]
    facts = said(bakeoff(*compare, "--json"))
    assert [difference["what"] for difference in facts["differences"]] == ["code", "packages"]
    assert facts["differences"][0]["apart"] == ["small", "large"]
    expected = (
        "Different code: commit aaaaaaaaaa (runs: small 3), commit bbbbbbbbbb (runs: large 3). Different packages of the "
        "Python that runs bakeoff: numpy 1.26.4 (runs: small 3), numpy 2.0.1 (runs: large 3). small and large never "
        "had the same code and packages, so their difference may be that of the code and packages."
    )
    assert bakeoff(*compare).stdout.split("\n\n")[1].startswith(expected)
    bakeoff(*compare, "--markdown", "answer.md")
    assert expected in Path("answer.md").read_text()


def test_two_experiments_of_one_commit_have_the_same_code_although_each_leaves_out_its_own_file(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path
) -> None:
    for name, other in (("nightly", "tonight"), ("tonight", "nightly")):
        state = git("a", f"diff --git a/{other}.toml b/{other}.toml\n+seeds = 3\ndiff --git a/x.py b/x.py\n+1\n")
        told = editions.provenance(tmp_path, git={**state, "code": name}, experiment=f"/x/{name}.toml")
        make_edition(name=name, told=told).close()
    assert not said(bakeoff("compare", "nightly:small", "tonight:large", "--json"))


@pytest.mark.slow
def test_code_that_was_changed_on_purpose_inside_an_edition_is_said_in_every_verdict(lab: Lab) -> None:
    text = 'seeds = {}\njobs = 1\nparams = {{ command = "python3 work.py {{seed}} {{x}}" }}\nmatrix = {{ x = [1, 2] }}\nanalysis = {{ metric = "score" }}'
    lab.experiment(text.format(2), work="import sys\nprint('{\"score\": %s.%s}' % tuple(sys.argv[1:]))")
    lab.cli("run", "trial.toml")
    assert "Different" not in lab.look("compare", "trial", code=None).stdout
    lab.experiment(text.format(3), work="import sys\nprint('{\"score\": 1%s.%s}' % tuple(sys.argv[1:]))")
    os.utime(lab.place / "work.py", (1e9, 1e9))
    lab.cli("run", "trial.toml", "--allow-code-change")
    expected = "Different code (work.py differs): session 1 (4 runs), session 2 (2 runs)."
    assert expected in lab.look("compare", "trial", code=None).stdout
    assert f"warning: {expected}" in lab.look("status", "trial").stdout


def test_packages_are_read_from_names_of_directories_and_the_first_on_the_path_counts(tmp_path: Path) -> None:
    for name in (
        "a/Some_Thing-1.2.dist-info", "b/some.thing-9.dist-info", "b/old-0.1-py3.11.egg-info", "b/develop.egg-info",
        "b/~umpy-1.0.dist-info", "b/mine-0.1.dist-info", "b/torch-2.13.0+cpu.dist-info",
    ):  # fmt: skip
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b/mine-0.1.dist-info/direct_url.json").write_text(
        '{"dir_info": {"editable": true}, "url": "file:///x"}'
    )
    packages = installed_packages([str(tmp_path / "a"), str(tmp_path / "gone.zip"), str(tmp_path / "b")])
    assert {name: packages[name] for name in packages if name not in ("Python", "bakeoff")} == {
        "mine": "editable", "old": "0.1", "some-thing": "1.2", "torch": "2.13.0+cpu",
    }  # fmt: skip
    assert {"Python", "bakeoff"} <= installed_packages().keys()
