"""Evals that the writers of verifiers 0.4 and 0.1 wrote (scripts/make-fixtures-trackers.py)."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.results.sources import open_results

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "verifiers"
COMPARE = ("--failure-score", "0", "--control", "small")


def edited(path: Path, edit: Callable[[dict[str, object]], object]) -> None:
    episodes = [json.loads(line) for line in path.read_text().splitlines()]
    for episode in episodes:
        edit(episode)
    path.write_text("".join(json.dumps(episode) + "\n" for episode in episodes))


def test_models_are_arms_and_causes_outside_of_the_agent_are_missing(bakeoff: Bakeoff, tmp_path: Path) -> None:
    results = open_results([str(FIXTURES)], tmp_path)
    assert results.tasks == [f"sums/{index}" for index in range(6)] and set(results.arms) == {"small", "large"}
    bad = Counter((row.arm, row.task, row.status, row.error) for row in results.rows if row.status != "succeeded")
    assert bad == {
        ("small", "sums/5", "infra_error", "ProviderError: refused"): 1, ("small", "sums/5", "failed", "ProviderError: refused"): 1,
        ("large", "sums/5", "failed", "HarnessError: exit code 1"): 2,
    }  # fmt: skip
    # Half a point for style, and one for a right answer: three and two tasks of `small`, five of `large`; failures count 0.
    answer = json.loads(bakeoff("compare", FIXTURES, *COMPARE, "--json").stdout)
    [found] = answer["comparisons"]
    assert (found["metric"], found["control_mean"]) == ("reward", pytest.approx((3 * 1.5 + 2 * 0.5 + 0) / 6))
    assert found["candidate_mean"] == pytest.approx(5 * 1.5 / 6)
    assert answer["settings"]["directions"] == {"reward": "maximize"}
    shown = bakeoff("compare", FIXTURES, *COMPARE).stdout
    assert "4 of 24 episodes have an error and no reward: 3 failed, 1 missing" in shown


def test_a_file_and_an_eval_are_read_as_well(tmp_path: Path) -> None:
    for path in (FIXTURES / "sums--small", FIXTURES / "sums--small" / "traces.jsonl"):
        assert len(open_results([str(path)], tmp_path).rows) == 12


def test_a_reward_counts_although_there_was_an_error_and_a_time_limit_is_a_failure(tmp_path: Path) -> None:
    path = shutil.copytree(FIXTURES / "sums--small", tmp_path / "eval") / "traces.jsonl"
    edited(path, lambda episode: episode.update(errors=[{"type": "SandboxError", "message": "gone"}], is_timeout=True))
    statuses = Counter(row.status for row in open_results([str(path)], tmp_path).rows)
    assert statuses == {"succeeded": 10, "failed": 2}


def test_several_agents_of_an_episode_have_a_reward_each(tmp_path: Path) -> None:
    path = shutil.copytree(FIXTURES / "sums--small", tmp_path / "eval") / "traces.jsonl"

    def add_agent(episode: dict[str, object]) -> None:
        traces = episode["traces"]
        assert isinstance(traces, list)
        for name, trainable in (("solver", True), ("judge", False)):
            traces.append({**traces[0], "agent": {**traces[0]["agent"], "name": name, "trainable": trainable}})

    edited(path, add_agent)
    row = open_results([str(path)], tmp_path).rows[0]
    assert {"agent/reward", "solver/reward"} <= set(row.metrics) and "judge/reward" not in row.metrics


def test_a_file_that_grows_is_read_up_to_its_last_whole_line(bakeoff: Bakeoff, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES, tmp_path / "evals")
    path = tmp_path / "evals" / "sums--small" / "traces.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    assert len(open_results([str(path)], tmp_path).rows) == 11
    assert "the last line is not whole" in bakeoff("compare", "evals", *COMPARE).stdout
    path.write_bytes(content)
    assert len(open_results([str(path)], tmp_path).rows) == 12


@pytest.mark.parametrize(("change", "reason"), [
    (lambda text: "", "no episode has ended yet"), (lambda text: text[:2000] + "\n" + text[2000:], "is not a JSON object"),
    (lambda text: text.replace('"version":1,', '"version":9,'), "has traces of version 9; up to 1"),
    (lambda text: text.replace('"rewards"', '"scores"'), "line 1: is not an episode of verifiers 0.4"),
])  # fmt: skip
def test_a_damaged_or_newer_file_is_one_line_and_exit_2(
    bakeoff: Bakeoff, tmp_path: Path, change: Callable[[str], str], reason: str
) -> None:
    path = shutil.copytree(FIXTURES, tmp_path / "evals") / "sums--small" / "traces.jsonl"
    path.write_text(change(path.read_text()))
    result = bakeoff("compare", "evals", *COMPARE)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.stderr
    assert "traces.jsonl" in result.stderr and reason in result.stderr


class TestVersion01:
    FIXTURES = FIXTURES.parent / "verifiers01"

    def test_a_reward_of_zero_with_an_error_is_missing_or_failed_by_its_cause(
        self, bakeoff: Bakeoff, tmp_path: Path
    ) -> None:
        results = open_results([str(self.FIXTURES)], tmp_path)
        assert results.tasks == [f"sums/{index}" for index in range(6)] and set(results.arms) == {"small", "large"}
        bad = Counter((row.arm, row.status, row.error) for row in results.rows if row.status != "succeeded")
        assert bad == {
            ("small", "infra_error", "ModelError"): 1, ("small", "failed", "OverlongPromptError"): 1,
            ("large", "failed", "ToolCallError"): 2,
        }  # fmt: skip
        [found] = json.loads(bakeoff("compare", self.FIXTURES, *COMPARE, "--json").stdout)["comparisons"]
        assert found["control_mean"] == pytest.approx(3 / 6) and found["candidate_mean"] == pytest.approx(5 / 6)
        shown = bakeoff("compare", self.FIXTURES, *COMPARE).stdout
        assert "4 of 24 rollouts have an error: 3 failed, 1 missing" in shown
        assert "verifiers' own reward is 0.5 and 0.833, ours is not known" in shown, (
            "6 of 12; of those with a reward 6 of 10"
        )

    def test_settings_tell_arms_of_one_model_apart(self, tmp_path: Path) -> None:
        for place, temperature in (("cold", 0.0), ("hot", 1.0)):
            path = shutil.copytree(self.FIXTURES / "sums--small" / "abc", tmp_path / "evals" / place) / "metadata.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"sampling_args": {"temperature": temperature}}))
        arms = open_results([str(tmp_path / "evals")], tmp_path).arms
        assert arms == ['{"temperature": 0.0}', '{"temperature": 1.0}']

    def test_a_file_that_grows_says_how_many_rollouts_are_not_there(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        path = shutil.copytree(self.FIXTURES, tmp_path / "evals") / "sums--small" / "abc" / "results.jsonl"
        content = path.read_bytes()
        path.write_bytes(content[:-40])
        shown = bakeoff("compare", "evals", *COMPARE).stdout
        assert "the last line is not whole" in shown and "1 of 12 planned rollouts are not there" in shown
        path.write_bytes(content)
        assert "not there" not in bakeoff("compare", "evals", *COMPARE).stdout

    @pytest.mark.parametrize(("name", "content", "reason"), [
        ("results.jsonl", "", "no rollout has ended yet"), ("results.jsonl", '{"a": 1}\n', "line 1: is not a rollout"),
        ("results.jsonl", "x\n{}\n", "line 1: is not a JSON object"), ("metadata.json", '{"env_id": "su', "is not whole"),
    ])  # fmt: skip
    def test_a_damaged_file_is_one_line_and_exit_2(
        self, bakeoff: Bakeoff, tmp_path: Path, name: str, content: str, reason: str
    ) -> None:
        shutil.copytree(self.FIXTURES, tmp_path / "evals")
        (tmp_path / "evals" / "sums--small" / "abc" / name).write_text(content)
        result = bakeoff("compare", "evals", *COMPARE)
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.stderr
        assert name in result.stderr and reason in result.stderr
