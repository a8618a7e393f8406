"""`bakeoff gate` in CI: rules from a file or from flags, Markdown, JUnit XML and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]
RNG = np.random.default_rng(31)


@pytest.fixture(autouse=True)
def results() -> None:
    lines = ["arm,seed,score,latency"]
    for seed in range(10):
        world = RNG.normal()
        lines.append(f"main,{seed},{world},{100 + world}")
        lines.append(f"branch,{seed},{world + 0.5 + 0.05 * RNG.normal()},{108 + world + 0.1 * RNG.normal()}")
    Path("t.csv").write_text("\n".join(lines) + "\n")


POLICY = """\
control = "main"
candidate = "branch"
alpha = 0.05
[metrics.score]
must_improve = true
[metrics.latency]
direction = "minimize"
max_regression = "{allowed}"
"""


@pytest.mark.parametrize(("allowed", "code", "word"), [("15%", 0, "passed"), ("1%", 1, "failed")])
def test_a_policy_file_decides_the_exit_code(bakeoff: Bakeoff, allowed: str, code: int, word: str) -> None:
    Path("policy.toml").write_text(POLICY.format(allowed=allowed))
    result = bakeoff("gate", "t.csv", "--policy", "policy.toml")
    assert result.exit_code == code, result.output
    assert result.stdout.startswith(f"# Gate: {word}\n")
    assert "| latency | branch | may not regress by" in result.stdout


def test_flags_say_the_same(bakeoff: Bakeoff) -> None:
    arguments = ["--must-improve", "score", "--max-regression", "latency=15%", "--direction", "latency=minimize"]
    Path("policy.toml").write_text(POLICY.format(allowed="15%"))
    by_flags = json.loads(bakeoff("gate", "t.csv", *arguments, "--control", "main", "--json").stdout)
    by_file = json.loads(bakeoff("gate", "t.csv", "--policy", "policy.toml", "--json").stdout)
    known = {check["metric"]: check for check in by_file["checks"]}
    assert {check["metric"]: check for check in by_flags["checks"]} == known
    assert by_flags["outcome"] == "pass"


def test_too_little_evidence_is_3(bakeoff: Bakeoff) -> None:
    text = Path("t.csv").read_text().splitlines()
    Path("t.csv").write_text("\n".join(text[:5]) + "\n")
    result = bakeoff("gate", "t.csv", "--max-regression", "score=1")
    assert result.exit_code == 3
    assert "not enough evidence (too few)" in result.stdout


def test_junit_has_a_case_for_each_rule(bakeoff: Bakeoff) -> None:
    arguments = ["--max-regression", "score=0.2", "--max-regression", "latency=1", "--direction", "latency=minimize"]
    result = bakeoff("gate", "t.csv", *arguments, "--must-improve", "score=0.5", "--junit", "gate.xml")
    assert result.exit_code == 1
    suite = ElementTree.parse("gate.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    cases = {case.get("name"): [part.tag for part in case] for case in suite.iter("testcase")}
    assert cases["branch: score may not regress by 0.2"] == ["system-out"]
    assert cases["branch: latency may not regress by 1"] == ["failure"]
    assert cases["branch: score must improve by more than 0.5"] == ["error"]
    properties = {entry.get("name"): entry.get("value") for entry in suite.iter("property")}
    assert {"alpha", "version", "seed"} <= set(properties)


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "no rules: give --policy FILE"),
    (["--max-regression", "score"], "by how much?"),
    (["--max-regression", "score=lots"], "is not an amount"),
    (["--max-regression", "score=1", "--policy", "policy.toml"], "in a file or by flags"),
    (["--policy", "nope.toml"], "nope.toml: no such file"),
    (["--max-regression", "nope=1"], "no run reports 'nope'"),
])  # fmt: skip
def test_a_wrong_call_is_2(bakeoff: Bakeoff, arguments: list[str], message: str) -> None:
    Path("policy.toml").write_text(POLICY.format(allowed="5%"))
    result = bakeoff("gate", "t.csv", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_json_alone_is_on_standard_output(bakeoff: Bakeoff) -> None:
    found = json.loads(bakeoff("gate", "t.csv", "--max-regression", "score=0.2", "--json").stdout)
    (check,) = found["checks"]
    assert (found["outcome"], check["outcome"]) == ("pass", "pass")
    assert check["lower"] > check["holds_above"] == -0.2
    assert found["settings"]["alpha"] == 0.05


def test_several_lines_say_that_only_the_whole_gate_counts(bakeoff: Bakeoff, tmp_path: Path) -> None:
    rows = [f"{arm},{seed},{seed % 3 + shift}" for seed in range(5) for arm, shift in (("a", 0), ("b", 1), ("c", 2))]
    (tmp_path / "table.csv").write_text("\n".join(["arm,seed,score", *rows]))
    arguments = ["gate", "table.csv", "--max-regression", "score=0.5"]
    several = bakeoff(*arguments)
    assert "Only the whole gate counts" in several.stdout
    assert "Fewer than 8 units (score) cannot show skew: their intervals are widened for it." in several.stdout
    assert "Only the whole gate counts" not in bakeoff(*arguments, "--arms", "b").stdout
    assert json.loads(bakeoff(*arguments, "--json").stdout)["only_the_whole_counts"] is True
