"""Certificates: `compare --certificate` writes them, and scripts/verify.py, a second implementation, recomputes them."""

from __future__ import annotations

import copy
import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from certified import SCRIPT, Certificate, certify, judged_again, outcome, same, tampered, verify
from click.testing import CliRunner
from random_tables import DESIGNS, random_table
from scipy import stats

from bakeoff.cli import main
from bakeoff.verdicts.certificate import digest


def certified(number: int, design: str | None = None) -> Certificate:
    facts = certify(random_table(number, design))
    assert facts is not None
    return facts


@pytest.mark.parametrize("design", DESIGNS)
def test_the_second_implementation_reaches_the_same_decisions_in_every_design(design: str, tmp_path: Path) -> None:
    verified = 0
    for number in range(5000, 5008):
        facts = certify(random_table(number, design))
        if facts is None:
            continue
        code, text = outcome(facts, tmp_path / "v.json")
        assert code in (0, 3), f"table {number}: {text}"
        verified += code == 0
    assert verified >= 5


def test_no_false_certificate_is_accepted(tmp_path: Path) -> None:
    false = 0
    for number in range(0, 300, 2):
        facts = certify(random_table(number))
        if facts is None or (wrong := tampered(facts, number + 1)) is None:
            continue
        false += 1
        code, text = outcome(wrong, tmp_path / "v.json")
        assert code != 0, f"table {number}: {text}"
    assert false >= 60


@pytest.mark.parametrize("number", range(3))
def test_rows_and_question_of_a_certificate_are_enough_for_its_decisions(number: int) -> None:
    facts = certified(number)
    assert same(judged_again(facts), facts["decisions"])


@pytest.mark.parametrize("number", [38, 588])
def test_equal_cells_of_two_seeds_are_too_few_for_both(number: int, tmp_path: Path) -> None:
    code, text = outcome(certified(number), tmp_path / "v.json")
    assert code == 0, text


def test_a_changed_digit_does_not_fit_the_digest(tmp_path: Path) -> None:
    facts = certified(0)
    facts["bakeoff"] = "0.0.1"
    code, text = outcome(facts, tmp_path / "v.json")
    assert code == 1 and "sha256" in text


def test_what_is_not_a_certificate_exits_with_2(tmp_path: Path) -> None:
    facts = certified(0)
    wrong: list[Any] = [[], {}, {**facts, "certificate": 2}, {**facts, "rows": {}}, {**facts, "columns": ["arm"]}]
    twice = copy.deepcopy(facts)
    twice["rows"]["score"].append(twice["rows"]["score"][0])
    assert [outcome(each, tmp_path / "v.json")[0] for each in (*wrong, twice)] == [2] * 6
    assert verify.main([str(tmp_path / "absent.json")]) == 2


def test_what_readers_could_read_in_two_ways_exits_with_2(tmp_path: Path) -> None:
    facts = certified(0)
    path, text = tmp_path / "v.json", json.dumps(facts)
    path.write_text(text.replace('"verdict":', '"verdict": "better", "verdict":', 1))
    assert verify.main([str(path)]) == 2
    path.write_text(text.replace('"scored", ', '"scored", "', 1).replace("]", '"]', 1))
    assert verify.main([str(path)]) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda q, m: m.update(alpha=0.7),
        lambda q, m: m.update(changes=-1),
        lambda q, m: m.update(margin=-1.0),
        lambda q, m: q["planned"].update(candidates=[*q["planned"]["candidates"], q["control"]]),
        lambda q, m: q["planned"].update(arms=[q["control"]]),
        lambda q, m: q.update(primary=[*q["primary"], q["primary"][0]]),
    ],
)
def test_a_question_that_cannot_be_asked_exits_with_2(change: Any, tmp_path: Path) -> None:
    facts = certified(0)
    change(facts["question"], facts["question"]["metrics"]["score"])
    code, text = outcome({**facts, "sha256": digest(facts)}, tmp_path / "v.json")
    assert code == 2, text


def test_a_file_that_was_changed_since_is_named(tmp_path: Path) -> None:
    source, target = tmp_path / "runs.csv", tmp_path / "v.json"
    source.write_text(
        "arm,seed,score\n" + "".join(f"{a},{s},{s % 3 + (a == 'B') * s}\n" for a in "AB" for s in range(9))
    )
    CliRunner().invoke(main, ["compare", str(source), "--certificate", str(target)])
    assert verify.main([str(target), str(source)]) == 0
    source.write_text(source.read_text().replace("A,0,0", "A,0,1"))
    assert verify.main([str(target), str(source)]) == 1


@pytest.mark.parametrize("name, value", [("looks", 1), ("registered_units", 12), ("statistic", "rank")])
def test_a_rule_that_it_does_not_know_is_not_verified(name: str, value: Any, tmp_path: Path) -> None:
    facts = certified(0)
    facts["question"]["metrics"]["score"][name] = value
    code, text = outcome({**facts, "sha256": digest(facts)}, tmp_path / "v.json")
    assert code == 3 and text.startswith("not verified")


def test_compare_writes_a_certificate_that_names_its_file(tmp_path: Path) -> None:
    source, target = tmp_path / "runs.csv", tmp_path / "v.json"
    with source.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["arm", "seed", "score", "reward"])
        for seed in range(9):
            writer.writerow(["old", seed, seed * 0.25, 1 + seed % 3])
            writer.writerow(["new", seed, seed * 0.25 + 0.5 + seed % 2, 1 + seed % 2])
            writer.writerow(["other", seed, seed * 0.25 + seed % 4, 1.0 + seed])
    command = ["compare", str(source), "--metric", "score", "--metric", "reward", "--control", "old", "--arms", "new"]
    result = CliRunner().invoke(main, [*command, "--certificate", str(target), "--json"])
    assert result.exit_code in (0, 3), result.output
    facts = json.loads(target.read_text())
    assert facts["sources"] == [{"name": "runs.csv", "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}]
    # The whole family is in it, and what was printed is what is certified.
    assert {(d["metric"], d["candidate"]) for d in facts["decisions"]} == {
        (metric, arm) for metric in ("score", "reward") for arm in ("new", "other")
    }
    for shown in json.loads(result.output)["comparisons"]:
        [said] = [
            d for d in facts["decisions"] if (d["metric"], d["candidate"]) == (shown["metric"], shown["candidate"])
        ]
        assert all(said[name] == shown[name] for name in ("verdict", "p", "p_adjusted", "effect", "reason", "family"))
    # Without bakeoff: -I leaves the environment and the directory of this test out, -S the installed packages.
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), str(target)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert len(run.stdout.splitlines()) == 4


def test_its_distributions_are_those_of_scipy() -> None:
    for df in (0.8, 1, 3.7, 29, 4000):
        for t in (-3.0, 0.0, 0.01, 2.2, 9.0, 60.0):
            assert verify.t_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=1e-9, abs=1e-280)


def test_its_tests_are_those_of_scipy() -> None:
    a, b = [0.2, 1.4, 3.1, 0.7, 2.2, 1.9, 0.4], [1.7, 1.5, 4.4, 2.2, 1.1, 3.9, 2.5]
    d = verify.differences(a, b)
    few = verify.paired("paired t", d[:5], [1] * 5, 0.05, False)
    assert 2 * min(few.tails(0.0)) == pytest.approx(stats.ttest_1samp(d[:5], 0).pvalue)
    assert few.interval(0.05, None) == pytest.approx(stats.ttest_1samp(d[:5], 0).confidence_interval(0.95))
    flips = stats.permutation_test((d,), lambda x, axis: x.mean(axis), permutation_type="samples", vectorized=True)
    assert 2 * min(verify.sign_flip(d, strict=True).tails(0.0)) == pytest.approx(flips.pvalue)
    splits = stats.permutation_test((b, a), lambda x, y, axis: x.mean(axis) - y.mean(axis), vectorized=True)
    assert 2 * min(verify.permuted(a, b, True)) == pytest.approx(splits.pvalue)
    wins = verify.fisher([0.0] * 6 + [1.0] * 3, [0.0] * 2 + [1.0] * 7, True)
    assert wins.tails(0.0)[0] == pytest.approx(stats.fisher_exact([[7, 2], [3, 6]], "greater").pvalue)
    pairs = verify.mcnemar([0.0] * 8 + [1.0], [1.0] * 7 + [0.0] * 2, True)
    assert 2 * min(pairs.tails(0.0)) == pytest.approx(stats.binomtest(7, 8).pvalue)
