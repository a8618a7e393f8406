"""Files of hyperfine, pytest-benchmark and Optuna, written by the real tools (scripts/make-fixtures-trackers.py)."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from click.testing import Result

from bakeoff.results.sources import open_results

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures"
SLEEPS, FAILING = FIXTURES / "hyperfine" / "sleeps.json", FIXTURES / "hyperfine" / "failing.json"
BENCHMARKS, STUDIES = FIXTURES / "pytest_benchmark", FIXTURES / "optuna" / "studies.log"


def comparison(bakeoff: Bakeoff, *arguments: str | Path) -> dict[str, object]:
    result = bakeoff("compare", *arguments, "--json")
    assert result.exit_code in (0, 3), result.stderr  # 3: undecided
    [found] = json.loads(result.stdout)["comparisons"]
    return dict(found)


class TestHyperfine:
    def test_commands_with_parameters_are_arms_and_their_values_tasks(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        results = open_results([str(SLEEPS)], tmp_path)
        assert results.arms == ["sleep 0.0{n}", "sleep 0.00{n}"] and results.tasks == ["n=1", "n=2"]
        assert len(results.rows) == 40 and {row.seed for row in results.rows} == {None}, "times are not paired"
        times = {each["command"]: fmean(each["times"]) for each in json.loads(SLEEPS.read_text())["results"]}
        found = comparison(bakeoff, SLEEPS, "--tasks", "fixed")
        assert (found["metric"], found["verdict"]) == ("time_s", "better")
        assert found["control_mean"] == pytest.approx((times["sleep 0.01"] + times["sleep 0.02"]) / 2)
        assert found["candidate_mean"] == pytest.approx((times["sleep 0.001"] + times["sleep 0.002"]) / 2)

    def test_values_of_one_command_are_compared_with_each_other(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        tree = json.loads(SLEEPS.read_text())
        tree["results"] = [each for each in tree["results"] if each["command"] in ("sleep 0.01", "sleep 0.02")]
        (tmp_path / "one.json").write_text(json.dumps(tree))
        found = comparison(bakeoff, "one.json")
        assert (found["control"], found["candidate"], found["verdict"]) == ("sleep 0.01", "sleep 0.02", "worse")
        assert found["candidate_mean"] == pytest.approx(fmean(tree["results"][1]["times"]))

    def test_another_exit_code_is_a_failure_whose_time_does_not_count(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        rows = open_results([str(FAILING)], tmp_path).rows
        assert Counter((row.arm, row.status, row.error) for row in rows) == {
            ("true", "succeeded", None): 3, ("false", "failed", "exit code 1"): 3,
        }  # fmt: skip
        refused = bakeoff("compare", FAILING)
        assert refused.exit_code == 2 and "nothing says what a failure counts" in refused.stderr

    def test_two_files_of_the_same_commands_are_reruns(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        for name in ("monday", "tuesday"):
            (tmp_path / f"{name}.json").write_text(SLEEPS.read_text())
        refused = bakeoff("compare", "monday.json", "tuesday.json")
        assert refused.exit_code == 2 and "monday.json and tuesday.json both have runs of" in refused.stderr

    def test_two_files_of_one_command_are_two_arms(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        for name, factor in (("before", 1), ("after", 3)):
            tree = json.loads(FAILING.read_text())
            tree["results"] = [
                {**tree["results"][0], "times": [factor * (10 + n) for n in range(8)], "exit_codes": [0] * 8}
            ]
            (tmp_path / f"{name}.json").write_text(json.dumps(tree))
        found = comparison(bakeoff, "before.json", "after.json")
        assert (found["control"], found["candidate"], found["verdict"]) == ("before.json", "after.json", "worse")
        assert found["effect"] == pytest.approx(27)

    def test_times_of_zero_are_noted(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        tree = json.loads(SLEEPS.read_text())
        tree["results"][0]["times"][0] = 0.0
        (tmp_path / "zero.json").write_text(json.dumps(tree))
        assert "1 of 10 times of 'sleep 0.01 n=1' are 0" in bakeoff("compare", "zero.json").stdout

    def test_a_summary_without_times_is_refused(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        tree = json.loads(SLEEPS.read_text())
        tree["results"][0].pop("times")
        (tmp_path / "summary.json").write_text(json.dumps(tree))
        result = bakeoff("compare", "summary.json")
        assert result.exit_code == 2 and "has no `times`" in result.stderr


class TestPytestBenchmark:
    def test_commits_are_arms_and_benchmarks_tasks(self, bakeoff: Bakeoff) -> None:
        found = comparison(bakeoff, BENCHMARKS)
        trees = {name: json.loads((BENCHMARKS / f"{name}.json").read_text()) for name in ("first", "second")}
        assert found["control"] == trees["first"]["commit_info"]["id"][:10]
        assert (found["metric"], found["verdict"], found["units"]) == ("median_s", "worse", 8)
        for key, name in (("control_mean", "first"), ("candidate_mean", "second")):
            assert found[key] == pytest.approx(fmean(each["stats"]["median"] for each in trees[name]["benchmarks"]))

    def test_files_without_a_commit_are_arms_and_other_machines_are_noted(
        self, bakeoff: Bakeoff, tmp_path: Path
    ) -> None:
        for name in ("first", "second"):
            tree = json.loads((BENCHMARKS / f"{name}.json").read_text())
            tree["commit_info"] = {"id": "unversioned", "dirty": False}
            tree["machine_info"]["node"] = f"machine of {name}"
            (tmp_path / f"{name}.json").write_text(json.dumps(tree))
        found = comparison(bakeoff, "first.json", "second.json")
        assert (found["control"], found["candidate"], found["verdict"]) == ("first.json", "second.json", "worse")
        assert "files are of different machines" in bakeoff("compare", "first.json", "second.json").stdout

    def test_rounds_are_no_repeats_but_files_are(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / f"{name}.json").write_bytes((BENCHMARKS / "first.json").read_bytes())
        rows = open_results([str(tmp_path / "one.json"), str(tmp_path / "two.json")], tmp_path).rows
        assert len(rows) == 16, "eight benchmarks of five rounds in each file"


class TestOptuna:
    @pytest.fixture(params=["studies.log", "studies.db"])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        path = tmp_path / request.param
        packed = FIXTURES / "optuna" / "studies.db.gz"
        path.write_bytes(gzip.decompress(packed.read_bytes()) if path.suffix == ".db" else STUDIES.read_bytes())
        return path

    def test_studies_are_arms_parameters_tasks_and_a_pruned_trial_has_no_result(
        self, bakeoff: Bakeoff, source: Path, tmp_path: Path
    ) -> None:
        results = open_results([str(source)], tmp_path)
        assert sorted(results.tasks) == [f"kind={kind}, x={x}" for kind in "ab" for x in range(1, 5)]
        values = {(row.arm, row.task): (row.status, row.metrics.get("accuracy")) for row in results.rows}
        assert values["new", "kind=b, x=4"] == ("infra_error", None), "Optuna stores the 99 that it reported"
        assert values["new", "kind=b, x=3"] == ("failed", None)
        assert values["old", "kind=b, x=4"] == ("succeeded", 4.0)
        found = comparison(bakeoff, source, "--failure-score", "0", "--control", "old")
        # Seven pairs without the pruned one: x in `old`; 2 + 1.25 x in `new`, and 0 for the trial that failed.
        assert (found["metric"], found["control_mean"]) == ("accuracy", pytest.approx(16 / 7))
        assert found["candidate_mean"] == pytest.approx((2 * 3.25 + 2 * 4.5 + 5.75 + 7 + 0) / 7)
        assert (found["units"], found["missing"], found["failed"]) == (8, 1, 1)
        shown = bakeoff("compare", source, "--failure-score", "0").stdout
        assert "1 of 16 trials were pruned" in shown and "higher is better" in shown

    def test_a_journal_that_grows_is_read_up_to_its_last_whole_line(self, tmp_path: Path) -> None:
        lines = STUDIES.read_bytes().splitlines(keepends=True)
        growing = tmp_path / "studies.log"
        growing.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
        rows = open_results([str(growing)], tmp_path).rows
        assert Counter(row.status for row in rows)["running"] == 1
        growing.write_bytes(b"".join(lines))
        assert "running" not in {row.status for row in open_results([str(growing)], tmp_path).rows}

    def test_infinities_are_values_and_studies_without_shared_parameters_are_noted(self, tmp_path: Path) -> None:
        path = tmp_path / "wild.db"
        path.write_bytes(gzip.decompress((FIXTURES / "optuna" / "wild.db.gz").read_bytes()))
        results = open_results([str(path)], tmp_path)
        assert [math.isinf(float(str(row.metrics["value"]))) for row in results.rows] == [False, True, False]
        assert any("share no parameters" in note for note in results.notes)


@pytest.mark.parametrize("source", [SLEEPS, BENCHMARKS / "first.json", STUDIES], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("damage", ["cut", "empty", "foreign"])
def test_a_damaged_file_is_one_line_and_exit_2(bakeoff: Bakeoff, tmp_path: Path, source: Path, damage: str) -> None:
    content = source.read_bytes()
    path = tmp_path / source.name
    broken = (
        b"\nnonsense\n".join((content[:1000], content[1000:]))
        if path.suffix == ".log"
        else content[: len(content) // 2]
    )
    path.write_bytes({"cut": broken, "empty": b"", "foreign": b'{"hello": "world"}'}[damage])
    result = bakeoff("compare", path)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.stderr
    assert path.name in result.stderr
