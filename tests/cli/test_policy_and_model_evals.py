"""Evals of LeRobot and NeMo Evaluator, put together by their own functions (scripts/make-fixtures-trackers.py)."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from bakeoff.results.sources import open_results

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures"
LEROBOT, NEMO = FIXTURES / "lerobot", FIXTURES / "nemo"
SMALL = ("--failure-score", "0", "--control", "small")


def refusal(result: Result) -> str:
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.output
    return str(result.stderr)


def rewritten(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


class TestLeRobot:
    def test_episodes_are_repeats_of_a_task_and_successes_are_judged(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        results = open_results([str(LEROBOT)], tmp_path)
        assert results.arms == ["libero_act", "libero_pi0"] and len(results.rows) == 48, "the time is no part of an arm"
        assert results.tasks == [*(f"libero_spatial/{n}" for n in range(4)), "libero_goal/0", "libero_goal/1"]
        assert {row.seed for row in results.rows} == {None}
        answer = json.loads(bakeoff("compare", LEROBOT, "--control", "libero_act", "--json").stdout)
        [found] = answer["comparisons"]
        assert (found["metric"], found["units"]) == ("success", 6)
        assert found["control_mean"] == pytest.approx((1 + 1 + 2 + 2 + 1 + 1) / 24)
        assert found["candidate_mean"] == pytest.approx((3 + 4 + 3 + 4 + 3 + 3) / 24)
        shown = bakeoff("compare", LEROBOT).stdout
        assert "read 24 episodes x 2 logs of LeRobot; arm = directory" in shown and "pc_success" not in shown

    def test_rewards_are_metrics_too(self, bakeoff: Bakeoff) -> None:
        command = ("compare", LEROBOT, "--control", "libero_act", "--metric", "sum_reward", "--json")
        [found] = json.loads(bakeoff(*command).stdout)["comparisons"]
        # Episodes 0 to 3 give their number, which is 1.5 on average, and 10 more with success.
        assert found["control_mean"] == pytest.approx(1.5 + 10 * 8 / 24)
        assert found["candidate_mean"] == pytest.approx(1.5 + 10 * 20 / 24)

    def test_files_with_other_names_are_arms_by_their_names(self, tmp_path: Path) -> None:
        for policy in ("act", "pi0"):
            shutil.copy(next(LEROBOT.glob(f"*/*_{policy}/eval_info.json")), tmp_path / f"{policy}.json")
        results = open_results([str(tmp_path / "act.json"), str(tmp_path / "pi0.json")], tmp_path)
        assert results.arms == ["act", "pi0"]

    def test_two_evals_of_one_policy_are_reruns_that_are_refused(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        shutil.copytree(LEROBOT, tmp_path / "evals")
        first = next((tmp_path / "evals").glob("*/*_act"))
        shutil.copytree(first, first.with_name("13-30-00_libero_act"))
        message = refusal(bakeoff("compare", "evals"))
        assert "12-00-00_libero_act" in message and "13-30-00_libero_act" in message and "--reruns" in message

    def test_the_rate_of_the_file_is_shown_where_ours_differs(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        shutil.copytree(LEROBOT, tmp_path / "evals")
        rewritten(next((tmp_path / "evals").glob("*/*_act/*")), lambda info: info["overall"].update(pc_success=90.0))
        assert "pc_success / 100" in bakeoff("compare", "evals").stdout

    @pytest.mark.parametrize(("edit", "reason"), [
        (lambda info: info["per_task"][0]["metrics"]["successes"].pop(), "libero_spatial/0 has no value for each episode"),
        (lambda info: info["per_task"][0]["metrics"].update(successes=0.25), "libero_spatial/0 has no value for each episode"),
        (lambda info: info["per_task"][0].pop("metrics"), "is not an eval_info.json of LeRobot"),
        (lambda info: info.pop("overall"), "is not an eval_info.json of LeRobot"),
        (lambda info: info.update(per_task=[]), "has no episode"),
    ])  # fmt: skip
    def test_a_file_of_another_shape_is_one_line_and_exit_2(
        self, bakeoff: Bakeoff, tmp_path: Path, edit: Callable[[dict[str, Any]], object], reason: str
    ) -> None:
        path = tmp_path / "eval_info.json"
        shutil.copy(next(LEROBOT.glob("*/*_act/*")), path)
        rewritten(path, edit)
        assert reason in refusal(bakeoff("compare", "eval_info.json"))

    @pytest.mark.parametrize("share", [0, 0.5])
    def test_a_file_that_is_empty_or_cut_off_is_one_line_and_exit_2(
        self, bakeoff: Bakeoff, tmp_path: Path, share: float
    ) -> None:
        content = next(LEROBOT.glob("*/*_act/*")).read_bytes()
        (tmp_path / "eval_info.json").write_bytes(content[: int(len(content) * share)])
        assert "eval_info.json" in refusal(bakeoff("compare", "eval_info.json"))


class TestNemoEvaluator:
    def test_models_are_arms_and_the_model_s_server_is_not_to_blame(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        results = open_results([str(NEMO)], tmp_path)
        assert results.tasks == [f"sums/{number}" for number in range(6)] and set(results.arms) == {"small", "large"}
        bad = Counter(
            (row.arm, row.task, row.status, row.error)
            for row in results.rows
            if row.status != "succeeded" and row.error
        )
        assert bad == {
            ("small", "sums/5", "infra_error", "infra_error: 503"): 1, ("small", "sums/5", "failed", "graceful: no answer"): 1,
            ("large", "sums/5", "failed", "graceful: turn budget exhausted"): 2,
        }  # fmt: skip
        # Three even problems of six, and five of six; of `small` an attempt at the last one is missing, the other one counts 0.
        [found] = json.loads(bakeoff("compare", NEMO, *SMALL, "--json").stdout)["comparisons"]
        assert (found["metric"], found["control_mean"]) == ("reward", pytest.approx(3 / 6))
        assert found["candidate_mean"] == pytest.approx(5 / 6)
        assert (found["units"], found["failed"], found["missing"]) == (6, 3, 1)
        shown = bakeoff("compare", NEMO, *SMALL).stdout
        assert "12 attempts x 2 logs of NeMo Evaluator 0.3.0; arm = model" in shown
        assert "4 of 24 attempts have an error and a reward of 0: 3 failed, 1 missing" in shown

    def test_the_results_the_bundle_and_the_directory_mean_the_same(self, tmp_path: Path) -> None:
        directory = NEMO / "small" / "sums"
        for path in (directory, directory / "results.jsonl", *directory.glob("eval-*.json")):
            assert len(open_results([str(path)], tmp_path).rows) == 12

    def test_a_judge_that_failed_is_missing_and_any_exception_is_failed(self, tmp_path: Path) -> None:
        path = shutil.copytree(NEMO / "large" / "sums", tmp_path / "sums") / "results.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[0]["scoring_details"] = {"judge": {"error": "no judge_client configured", "total": None}}
        lines[1]["scoring_details"] = {"error_category": "system", "error": "no number"}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        rows = open_results([str(path)], tmp_path).rows
        assert [(row.status, row.error) for row in rows[:2]] == [
            ("infra_error", "judge: no judge_client configured"), ("failed", "system: no number"),
        ]  # fmt: skip

    def test_shards_count_until_they_are_merged(self, tmp_path: Path) -> None:
        """The directories of `nel eval merge`: shard_0/sums, shard_1/sums, then sums."""
        for number in range(2):
            directory = shutil.copytree(NEMO / "large" / "sums", tmp_path / "run" / f"shard_{number}" / "sums")
            lines = (directory / "results.jsonl").read_text().splitlines(keepends=True)
            (directory / "results.jsonl").write_text("".join(lines[number * 6 : number * 6 + 6]))
            shard = {"idx": number, "total": 2, "range": [number * 3, number * 3 + 3]}
            [bundle] = directory.glob("eval-*.json")
            rewritten(bundle, lambda tree, shard=shard: (tree["config"].update(shard=shard), tree.update(n_results=6)))
        results = open_results([str(tmp_path / "run")], tmp_path)
        assert len(results.rows) == 12 and results.arms == ["large"] and len(results.tasks) == 6
        shutil.copytree(NEMO / "large" / "sums", tmp_path / "run" / "sums")
        assert len(open_results([str(tmp_path / "run")], tmp_path).rows) == 12

    @pytest.mark.parametrize("lines", [0, 5])
    def test_results_that_are_not_whole_are_one_line_and_exit_2(
        self, bakeoff: Bakeoff, tmp_path: Path, lines: int
    ) -> None:
        path = shutil.copytree(NEMO / "large" / "sums", tmp_path / "sums") / "results.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
        message = refusal(bakeoff("compare", "sums"))
        assert f"has {lines} whole lines" in message and "counts 12 results; is it cut off?" in message

    def test_a_damaged_bundle_or_line_is_one_line_and_exit_2(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        directory = shutil.copytree(NEMO / "large" / "sums", tmp_path / "sums")
        path = directory / "results.jsonl"
        path.write_text(path.read_text().replace('"problem_idx": 2', '"problem": 2'))
        assert "is not an eval of NeMo Evaluator 0.3: KeyError('problem_idx')" in refusal(bakeoff("compare", "sums"))
        [bundle] = directory.glob("eval-*.json")
        bundle.write_text(bundle.read_text()[:800])
        assert "is not whole" in refusal(bakeoff("compare", "sums"))
