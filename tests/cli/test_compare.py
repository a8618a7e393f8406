"""`bakeoff compare` as users call it: sources, outputs, exit codes, and the command lines of older documents."""

from __future__ import annotations

import csv
import json
import random
import shlex
from collections.abc import Callable
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import bakeoff as package
from bakeoff.cli.options import repeated
from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]
RNG = np.random.default_rng(21)
FILE = """\
name = "{name}"
seeds = "1..10"
[params]
command = ["true"]
[[arms]]
name = "old"
[[arms]]
name = "new"
[[arms]]
name = "same"
[analysis]
metric = "score"
primary = ["speed"]
{more}
"""
LIFT = {"old": 0.0, "new": 1.0, "same": 0.0}


def outcome(arm: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, *arm.encode()])
    world = np.random.default_rng(seed).normal()
    score = world + LIFT[arm] + 0.2 * rng.normal()
    return {
        "status": "succeeded",
        "metrics": {"score": score, "speed": score / 2, "noise": float(rng.normal()), "world": world},
    }


@pytest.fixture
def edition(make_edition: MakeEdition) -> Callable[..., Edition]:
    def make(name: str = "sorting", how: Callable[[str, int], Any] = outcome, more: str = "", **rest: Any) -> Edition:
        return make_edition(name, how, text=FILE.format(name=name, more=more), files=False, **rest)

    return make


def table(path: str = "t.csv", n: int = 10, lift: float = 1.0) -> None:
    lines = ["arm,seed,score,cost"]
    for seed in range(n):
        world = RNG.normal()
        lines += [f"old,{seed},{world},{seed}", f"new,{seed},{world + lift + 0.1 * RNG.normal()},{seed + 1}"]
    Path(path).write_text("\n".join(lines) + "\n")


def told(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout or pytest.fail(result.stderr))
    return found


class TestAnExperiment:
    def test_all_arms_and_primary_metrics_are_one_family(
        self, bakeoff: Bakeoff, edition: Callable[..., Edition]
    ) -> None:
        edition()
        result = bakeoff("compare", "--json")
        found = told(result)
        assert [(one["metric"], one["candidate"], one["verdict"]) for one in found["comparisons"]] == [
            ("score", "new", "better"), ("score", "same", "undecided"),
            ("speed", "new", "better"), ("speed", "same", "undecided"),
        ]  # fmt: skip
        assert found["settings"]["comparisons"] == 4
        assert result.exit_code == 3

    def test_named_arms_against_a_named_control(self, bakeoff: Bakeoff, edition: Callable[..., Edition]) -> None:
        edition()
        result = bakeoff(
            "compare", "sorting", "--metric", "score", "--control", "new", "--arms", "old", "same", "--json"
        )
        assert [one["verdict"] for one in told(result)["comparisons"]] == ["worse", "worse"]
        assert result.exit_code == 0

    def test_the_text_has_a_sentence_a_table_the_test_and_the_settings(
        self, bakeoff: Bakeoff, edition: Callable[..., Edition]
    ) -> None:
        edition()
        text = bakeoff("compare", "--metric", "score", "--arms", "new").stdout
        assert text.startswith("Better: new against old on score, for seeds like these (unit: seed, N = 10): +")
        for line in (
            "mean of the control",
            "decision interval",
            "P(improvement)",
            "variance saved by pairing",
            "runs missing",
        ):
            assert line in text
        assert "sign-flip: 10 paired units are enough for it at alpha 0.05" in text
        assert "statistically_significant_improvement" in text
        assert f"seed 0; version {package.__version__}" in text

    def test_before_the_end_it_says_not_final(self, bakeoff: Bakeoff, edition: Callable[..., Edition]) -> None:
        edition(how=lambda arm, seed: None if seed == 10 else outcome(arm, seed))
        result = bakeoff("compare", "--metric", "score", "--arms", "new", "--json")
        (one,) = told(result)["comparisons"]
        assert (one["verdict"], one["reason"], one["p"]) == ("undecided", "not_final", None)
        assert one["effect"] == pytest.approx(1.0, abs=0.3)
        assert result.exit_code == 3

    def test_arms_of_two_experiments(self, bakeoff: Bakeoff, edition: Callable[..., Edition]) -> None:
        edition("one")
        edition("two")
        result = bakeoff("compare", "one:old", "two:new", "--metric", "score", "--json")
        assert told(result)["comparisons"][0]["verdict"] == "better"
        assert result.exit_code == 0

    def test_a_failure_without_a_score_is_refused_and_the_flag_mends_it(
        self, bakeoff: Bakeoff, edition: Callable[..., Edition]
    ) -> None:
        edition(how=lambda arm, seed: {"status": "failed"} if (arm, seed) == ("new", 3) else outcome(arm, seed))
        refused = bakeoff("compare", "--metric", "score", "--arms", "new")
        assert refused.exit_code == 2
        assert "--failure-score" in refused.stderr
        assert bakeoff("compare", "--metric", "score", "--arms", "new", "--failure-score", "-5").exit_code in (0, 3)

    def test_other_metrics_are_exploratory_and_a_covariate_is_one_more_line(
        self, bakeoff: Bakeoff, edition: Callable[..., Edition]
    ) -> None:
        edition()
        result = bakeoff(
            "compare",
            "--metric",
            "score",
            "--arms",
            "new",
            "--explore",
            "--covariate",
            "world",
            "--method",
            "t",
            "--json",
        )
        found = told(result)
        assert [one["metric"] for one in found["exploratory"]] == ["speed", "noise"]
        assert all("verdict" not in one and one["p_adjusted"] >= one["p"] for one in found["exploratory"])
        assert [line["name"] for line in found["comparisons"][0]["methods"]] == ["t", "cuped"]
        text = bakeoff("compare", "--metric", "score", "--arms", "new", "--explore", "--method", "t").stdout
        assert "Exploratory: to look into, no verdict" in text
        assert "Other methods (they do not decide)" in text

    def test_a_sequential_edition_is_judged_by_its_own_test(
        self, bakeoff: Bakeoff, edition: Callable[..., Edition]
    ) -> None:
        edition(more="[sequential]\nmax_seeds = 10\nblock = 5\n")
        result = bakeoff("compare", "--arms", "new", "--json")
        found = told(result)["sequential"]
        assert {one["verdict"] for one in found["comparisons"]} <= {"better", "undecided"}
        assert "confidence_sequence" in found["comparisons"][0]


class TestExitCodes:
    @pytest.mark.parametrize(("lift", "expect", "code"), [
        (1.0, "better", 0), (1.0, "worse", 1), (1.0, "not-worse", 0), (-1.0, "not-worse", 1), (-1.0, "worse", 0),
        (0.0, "better", 3), (0.0, "not-worse", 3), (1.0, "equivalent", 1),
    ])  # fmt: skip
    def test_expecting_a_verdict(self, bakeoff: Bakeoff, lift: float, expect: str, code: int) -> None:
        table(lift=lift, n=6 if lift == 0.0 else 10)
        assert bakeoff("compare", "t.csv", "--metric", "score", "--expect", expect).exit_code == code

    def test_equivalent_counts_as_decided(self, bakeoff: Bakeoff) -> None:
        table(lift=0.0)
        result = bakeoff("compare", "t.csv", "--metric", "score", "--margin", "0.5", "--expect", "equivalent")
        assert result.exit_code == 0, result.output

    @pytest.mark.parametrize(("arguments", "message"), [
        (["nowhere"], "no experiment called 'nowhere'"),
        (["t.csv", "--metric", "nope"], "no run reports 'nope'"),
        (["t.csv", "--baseline", "x"], "name runs in one way"),
        (["t.csv", "--metric", "score", "--control", "X"], "no arm called 'X'"),
        (["t.csv", "--metric", "score", "--bounds", "0", "1"], "outside the declared bounds"),
        (["t.csv", "--metric", "score", "--bounds", "5", "1"], "bounds must be"),
        (["t.csv", "--metric", "score", "--margin", "1", "--relative-margin", "0.1"], "give margin or relative_margin"),
        (["t.csv", "--metric", "score", "--direction", "up"], "write maximize, minimize, or METRIC=minimize"),
        (["t.csv", "--metric", "score", "--summary", "auc"], "so there is no series to summarise"),
        (["--pairs", "{nonsense"], "is not JSON"),
        (["--pairs", '{"control": "a"}'], "should be"),
        (["--baseline", "a_s1"], "both arms are needed"),
    ])  # fmt: skip
    def test_a_wrong_call_is_2_and_says_what_is_wrong(
        self, bakeoff: Bakeoff, arguments: list[str], message: str
    ) -> None:
        table()
        write_run("a_s1")
        result = bakeoff("compare", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stdout == ""


class TestHowExact:
    def test_strict_decides_by_the_exact_p(self, bakeoff: Bakeoff) -> None:
        """Five wins and three ties."""
        lines = [f"{arm},{seed},{2 * (arm == 'b' and seed < 5)}" for arm in "ab" for seed in range(8)]
        Path("t.csv").write_text("arm,seed,score\n" + "\n".join(lines))
        usual, strict = bakeoff("compare", "t.csv"), bakeoff("compare", "t.csv", "--strict", "--json")
        assert (usual.exit_code, strict.exit_code) == (0, 3)
        assert "above 0 to 2" in usual.stdout
        (found,), settings = told(strict)["comparisons"], told(strict)["settings"]
        assert (found["p"], found["p_exact"], found["verdict"], settings["ties"]) == (
            0.0625,
            0.0625,
            "undecided",
            "full",
        )
        assert found["method"] == "sign-flip (ties in full)"

    def test_two_crossed_seeds_have_a_second_line_and_seeds_fixed_makes_it_the_verdict(self, bakeoff: Bakeoff) -> None:
        rng = random.Random(3)
        lines = [
            f"{arm},t{task},{seed},{rng.gauss((arm == 'b') * (1 + 0.3 * seed), 0.5):.4f}"
            for arm in "ab" for task in range(30) for seed in range(2)
        ]  # fmt: skip
        Path("t.csv").write_text("arm,task,seed,score\n" + "\n".join(lines))
        crossed, fixed = bakeoff("compare", "t.csv"), bakeoff("compare", "t.csv", "--seeds", "fixed")
        assert (crossed.exit_code, fixed.exit_code) == (3, 0)
        assert "for tasks like these 30 with these 2 seeds only (unit: task, N = 30): better" in crossed.stdout
        assert "5 seeds or more would decide" in crossed.stdout


class TestOutputs:
    def test_json_is_standard_even_where_an_interval_has_no_end(self, bakeoff: Bakeoff) -> None:
        Path("t.csv").write_text(
            "arm,seed,score\n" + "".join(f"{a},{s},{s + (a == 'B')}\n" for a in "AB" for s in range(4))
        )
        result = bakeoff("compare", "t.csv", "--json")
        (one,) = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))[
            "comparisons"
        ]
        assert one["interval"]["low"] is None
        assert one["verdict"] == "undecided"

    def test_directions_of_single_metrics(self, bakeoff: Bakeoff) -> None:
        table()
        result = bakeoff(
            "compare", "t.csv", "--metric", "score", "--metric", "cost", "--direction", "cost=minimize", "--json"
        )
        found = told(result)
        assert found["settings"]["directions"] == {"score": "maximize", "cost": "minimize"}
        assert [one["verdict"] for one in found["comparisons"]] == ["better", "worse"]

    def test_markdown_and_csv_carry_the_settings(self, bakeoff: Bakeoff) -> None:
        table()
        bakeoff("compare", "t.csv", "--metric", "score", "--markdown", "out.md", "--csv", "out.csv", "--margin", "9")
        text = Path("out.md").read_text()
        assert "| verdict | equivalent |" in text
        assert f"version {package.__version__}" in text
        rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
        assert {(row["alpha"], row["margin"], row["seed"], row["version"]) for row in rows} == {
            ("0.05", "9", "0", package.__version__)
        }
        assert [row["group"] for row in rows].count("paired") == 10


def write_run(name: str, lift: float = 0.0, metric: str = "overview/reward", **labels: Any) -> str:
    directory = Path(name)
    directory.mkdir(parents=True, exist_ok=True)
    level = lift + 0.1 * RNG.normal()
    lines = [{"step": 1000 * i, metric: level + 0.01 * i + 0.05 * RNG.normal(), **labels} for i in range(40)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return name


def as_a_shell_would(line: str) -> list[str]:
    """Words of a command line, patterns expanded."""
    words = shlex.split(line.replace("\\\n", " "))
    return [found for word in words for found in (sorted(glob(word)) if "*" in word else [word])]


class TestOlderCommandLines:
    """Command lines as the documents of the systems before this one print them, behind `bakeoff compare`."""

    def test_pairs_one_by_one(self, bakeoff: Bakeoff) -> None:
        for number in (1, 2):
            write_run(f"control_run{number}")
            write_run(f"treatment_run{number}", lift=1.0)
        line = """\
    --pairs '{"control": "control_run1", "candidate": "treatment_run1"}' \\
           '{"control": "control_run2", "candidate": "treatment_run2"}' \\
    --metric overview/reward \\
    --summary.type auc \\
    --bootstrap.n_resamples 10000 \\
    --output.csv_path results.csv
"""
        result = bakeoff("compare", *as_a_shell_would(line))
        assert result.exit_code == 3, result.output
        assert "at least 3 independent units are needed" in result.stdout
        rows = list(csv.DictReader(Path("results.csv").read_text().splitlines()))
        assert [row["group"] for row in rows] == ["paired", "paired", "result", "result", "result"]
        assert rows[0]["label"] == "control_run1 vs treatment_run1"
        assert list(rows[0])[:4] == ["group", "label", "value_or_control", "candidate_value_optional"]
        assert [row["label"] for row in rows[2:]] == ["effect", "ci_low", "ci_high"]
        effect = np.mean([float(r["candidate_value_optional"]) - float(r["value_or_control"]) for r in rows[:2]])
        assert float(rows[2]["value_or_control"]) == pytest.approx(effect, rel=1e-6)

    def test_pairs_as_one_list_with_seeds(self, bakeoff: Bakeoff) -> None:
        pairs = []
        for number in range(1, 16, 2):
            write_run(f"run{number}")
            write_run(f"run{number + 1}", lift=1.0)
            pairs.append({"control": f"run{number}", "candidate": f"run{number + 1}", "seed": 1072 + number})
        result = bakeoff("compare", "--pairs", json.dumps(pairs), "--metric", "overview/reward", "--json")
        (one,) = told(result)["comparisons"]
        assert (one["verdict"], one["units"]) == ("better", 8)

    def test_run_ids_of_each_arm(self, bakeoff: Bakeoff) -> None:
        for number in range(1, 7):
            write_run(f"run{number}", lift=float(number > 3))
        line = "--control-run-ids run1 run2 run3 --candidate-run-ids run4 run5 run6 --metric overview/reward"
        result = bakeoff("compare", *as_a_shell_would(line), "--json")
        (one,) = told(result)["comparisons"]
        assert one["verdict"] == "better"
        assert told(result)["settings"]["unpaired"]
        assert any("two independent samples" in warning for warning in one["warnings"])

    def test_run_ids_may_be_runs_of_our_own(self, bakeoff: Bakeoff, edition: Callable[..., Edition]) -> None:
        ids: dict[str, list[str]] = {}
        made = edition()
        for run in made.runs():
            ids.setdefault(run.arm, []).append(run.run_id)
        result = bakeoff(
            "compare",
            "--control-run-ids",
            *ids["old"],
            "--candidate-run-ids",
            *ids["new"],
            "--metric",
            "score",
            "--json",
        )
        (one,) = told(result)["comparisons"]
        assert (one["verdict"], one["units"]) == ("better", 10)
        assert not told(result)["settings"]["unpaired"]  # they have the same seeds, so they pair

    def test_directories_as_a_shell_expands_them(self, bakeoff: Bakeoff) -> None:
        for arm, lift in (("maxrl+gtpo_hicra", 0.4), ("maxrl+gtpo_sepa", 0.45)):
            for seed in (42, 101, 202, 303, 404, 505, 606, 707):
                self.campaign_run(f"logs/campaign/runs/{arm}_s{seed}", arm, lift)
        line = """\
  --baseline logs/campaign/runs/maxrl+gtpo_hicra_s* \\
  --candidate logs/campaign/runs/maxrl+gtpo_sepa_s* \\
  --output significance.json \\
  --markdown significance.md \\
  --resamples 20000 \\
  --alpha 0.05
"""
        result = bakeoff("compare", *as_a_shell_would(line))
        assert result.exit_code == 0, result.output
        found = json.loads(Path("significance.json").read_text())
        assert [one["metric"] for one in found["comparisons"]] == ["mean_reward", "correct_rate"]
        assert {one["units"] for one in found["comparisons"]} == {8}
        assert found["recommendations"] == {"candidate": "statistically_significant_improvement"}
        assert found["settings"]["resamples"] == 20000
        assert "statistically_significant_improvement" in Path("significance.md").read_text()

    def test_quoted_patterns_do_the_same(self, bakeoff: Bakeoff) -> None:
        for arm in "ab":
            for seed in range(8):
                write_run(f"{arm}_s{seed}", lift=float(arm == "b"))
        result = bakeoff("compare", "--baseline", "a_s*", "--candidate", "b_s*", "--json")
        assert told(result)["comparisons"][0]["verdict"] == "better"

    def test_a_seed_that_one_arm_lacks_is_a_missing_run(self, bakeoff: Bakeoff) -> None:
        for seed in range(8):
            write_run(f"a_s{seed}")
            write_run(f"b_s{seed + 1}")
        result = bakeoff("compare", "--baseline", "a_s*", "--candidate", "b_s*", "--json")
        assert result.exit_code == 3
        (found,) = told(result)["comparisons"]
        assert (found["verdict"], found["missing"], found["units"]) == ("undecided", 2, 9)
        assert found["unmatched"] == {"control": 1, "candidate": 1, "example": ["default", 0], "handling": "missing"}
        assert any("--intersect" in warning for warning in found["warnings"])

    def test_a_campaign_directory_alone(self, bakeoff: Bakeoff) -> None:
        for arm, lift in (("grpo+none", 0.4), ("maxrl+none", 0.3)):
            for seed in range(8):
                self.campaign_run(f"logs/campaign/runs/{arm}_s{seed}", arm, lift)
        result = bakeoff("compare", "logs/campaign", "--json")
        found = told(result)
        assert {(one["control"], one["candidate"], one["verdict"]) for one in found["comparisons"]} == {
            ("grpo+none", "maxrl+none", "worse")
        }
        assert found["recommendations"] == {"maxrl+none": "significant_degradation"}

    def campaign_run(self, name: str, arm: str, level: float) -> None:
        emergence = Path(name) / "emergence"
        emergence.mkdir(parents=True)
        level += 0.01 * RNG.normal()
        steps = []
        for step in range(30):
            rate = level + 0.02 * RNG.normal()
            count = {"correct_count": round(rate * 128), "total_count": 128}
            steps.append({"step": step, "mean_reward": rate, **count, "condition": arm})
        (emergence / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


def test_several_values_after_a_flag_end_at_the_next_flag() -> None:
    args = ["x", "--b", "1", "-2", "3", "--m", "4", "5", "--b=6", "7", "--b", "8", "-j", "9", "--", "--b", "10", "11"]
    assert list(repeated(args, {"--b"})) == [
        "x", "--b", "1", "--b", "-2", "--b", "3", "--m", "4", "5", "--b=6", "7", "--b", "8", "-j", "9", "--", "--b", "10", "11",
    ]  # fmt: skip


class TestThreeLinesOfPython:
    def test_they_say_what_the_command_says(self, bakeoff: Bakeoff, edition: Callable[..., Edition]) -> None:
        edition()
        found = package.compare("sorting", metric="score", arms=["new"])
        (one,) = told(bakeoff("compare", "sorting", "--metric", "score", "--arms", "new", "--json"))["comparisons"]
        assert isinstance(found[0], package.Verdict)
        assert (found[0].verdict, found[0].p, found[0].sentence) == (one["verdict"], one["p"], one["sentence"])

    def test_a_frame_or_rows_in_memory_are_a_source(self) -> None:
        rows = [{"who": arm, "seed": s, "points": s + (arm == "b") + 0.1 * (s % 3)} for arm in "ab" for s in range(8)]
        (found,) = package.compare(rows, metric="points", columns={"arm": "who"}, margin=5.0)
        assert found.verdict == "equivalent"

    def test_two_tables_at_once_are_refused(self) -> None:
        with pytest.raises(UsageError, match="give one table"):
            package.compare([{"arm": "a"}], [{"arm": "b"}])


@pytest.mark.parametrize(
    "verb",
    [["compare"], ["rank"], ["variance"], ["power"], ["gate", "--max-regression", "score=1"]],
    ids=lambda v: v[0],
)
def test_an_answer_about_a_table_says_how_its_columns_were_read(
    bakeoff: Bakeoff, tmp_path: Path, verb: list[str]
) -> None:
    lines = [f"{arm},{seed},{0.1 * seed + len(arm)},x" for arm in ("a", "bb") for seed in range(1, 7)]
    (tmp_path / "t.csv").write_text("\n".join(["model,seed,score,note", *lines]))
    call = [verb[0], tmp_path / "t.csv", *verb[1:]]
    assert "columns: arm from model, seed from seed; metrics score; ignored note" in bakeoff(*call).stdout
    columns = json.loads(bakeoff(*call, "--json").stdout)["settings"]["columns"]
    assert (columns["arm"], columns["task"], columns["ignored"]) == ("model", None, ["note"])
