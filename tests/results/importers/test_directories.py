"""Run directories and campaigns: who a run is, what it logged, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bakeoff.errors import UsageError
from bakeoff.results.importers import directories
from bakeoff.results.importers.assembly import as_results
from bakeoff.results.sources import Pair, expand, open_pairs, open_results, open_sides
from bakeoff.results.table import Results, Row
from bakeoff.spec.experiment import Analysis, Summary
from bakeoff.verdicts.observations import observe


def write(directory: Path, lines: Iterable[dict[str, Any]], name: str = "metrics.jsonl") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def run(directory: Path, lift: float = 0.0, steps: int = 10, **labels: Any) -> Path:
    return write(directory, [{"step": i, "reward": lift + i, "loss": 1.0, **labels} for i in range(steps)])


def read_run(directory: Path) -> Row:
    (row,) = as_results([directories.read_run(directory)], "a run").rows
    return row


class TestWhoARunIs:
    @pytest.mark.parametrize(("name", "arm", "seed"), [
        ("full_s3", "full", 3), ("full_seed3", "full", 3), ("full.seed1072", "full", 1072), ("maxrl+gtpo_s42", "maxrl+gtpo", 42),
        ("plain", "plain", None),
    ])  # fmt: skip
    def test_arm_and_seed_are_in_its_name(self, tmp_path: Path, name: str, arm: str, seed: int | None) -> None:
        found = read_run(run(tmp_path / name))
        assert (found.arm, found.seed) == (arm, seed)

    def test_keys_in_the_log_go_before_the_name(self, tmp_path: Path) -> None:
        found = read_run(run(tmp_path / "x_s3", condition="grpo+none", seed=7))
        assert (found.arm, found.seed) == ("grpo+none", 7)

    def test_meta_json_goes_before_both(self, tmp_path: Path) -> None:
        directory = run(tmp_path / "x_s3", seed=7)
        (directory / "meta.json").write_text(json.dumps({"seed": 9, "arm": "mine", "status": "failed"}))
        found = read_run(directory)
        assert (found.arm, found.seed, found.status) == ("mine", 9, "failed")

    def test_a_run_of_ours_says_everything_about_itself(self, tmp_path: Path) -> None:
        directory = run(tmp_path / "abc")
        meta = {"run_id": "abc", "workload": "command", "arm": "a", "task": "t", "seed": 4, "rollout": 2, "status": "timeout", "metrics": {"x": 1}}  # fmt: skip
        (directory / "meta.json").write_text(json.dumps(meta))
        found = read_run(directory)
        assert (found.arm, found.task, found.seed, found.rollout, found.status) == ("a", "t", 4, 2, "timeout")
        assert found.metrics == {"x": 1.0}

    def test_what_a_script_started_by_hand_finished_with_is_a_number_of_the_run(self, tmp_path: Path) -> None:
        directory = run(tmp_path / "train_s3")
        (directory / "metrics.json").write_text(json.dumps({"score": 0.9, "reward": 5, "note": "x"}))
        assert read_run(directory).metrics == {"score": 0.9, "note": "x"}, "reward is a series already"

    def test_a_directory_without_logs_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(
            UsageError,
            match=r"empty: there is no run directory in it; a run's directory has meta\.json, metrics\.jsonl",
        ):
            open_results([str(tmp_path / "empty")], tmp_path / "root")

    def test_some_runs_without_a_seed_beside_others_with_one_are_an_error(self, tmp_path: Path) -> None:
        logs = [directories.read_run(run(tmp_path / name, condition="a")) for name in ("x_s1", "plain")]
        with pytest.raises(UsageError, match="its seed is not known, but other runs of 'a' have one"):
            as_results(logs, "runs")


class TestCampaigns:
    def campaign(self, place: Path) -> Path:
        for arm, lift in (("grpo+none", 0.0), ("maxrl+none", 0.1)):
            for seed in (1, 2, 3):
                directory = place / "runs" / f"{arm}_s{seed}"
                write(
                    directory / "emergence",
                    [{"step": i, "mean_reward": lift, "correct_count": 10 + i + seed, "total_count": 100, "condition": arm} for i in range(5)],
                    "steps.jsonl",
                )  # fmt: skip
        return place

    def test_all_runs_of_a_campaign_have_their_condition_as_the_arm(self, tmp_path: Path) -> None:
        logs = open_results([str(self.campaign(tmp_path))], tmp_path / "root").rows
        assert [(log.arm, log.seed) for log in logs] == [(a, s) for a in ("grpo+none", "maxrl+none") for s in (1, 2, 3)]

    def test_the_rate_of_correct_answers_follows_from_counts(self, tmp_path: Path) -> None:
        log = open_results([str(self.campaign(tmp_path))], tmp_path / "root").rows[0]
        assert log.series["correct_rate"][1] == pytest.approx([0.11, 0.12, 0.13, 0.14, 0.15])

    def test_a_campaign_is_compared_on_reward_and_on_correct_answers(self, tmp_path: Path) -> None:
        source = open_results([str(self.campaign(tmp_path))], tmp_path)
        assert source.primary() == ["mean_reward", "correct_rate"]

    def test_answers_are_averaged_by_step(self, tmp_path: Path) -> None:
        answers = [
            {"step": 0, "reward": 1.0}, {"step": 0, "reward": 0.0}, {"step": 1, "reward": 0.2, "metadata": {"correctness": True}},
        ]  # fmt: skip
        found = read_run(write(tmp_path / "x_s1" / "emergence", answers, "generations.jsonl").parent)
        assert found.series["gen_reward"][1] == pytest.approx([0.5, 0.2])
        assert found.series["gen_correct_rate"][1] == pytest.approx([0.5, 1.0])

    def test_a_planned_run_that_never_logged_is_missing_and_a_failed_one_failed(self, tmp_path: Path) -> None:
        campaign = self.campaign(tmp_path)
        planned = [
            {"run_name": f"{arm}_s{seed}", "condition": arm, "seed": str(seed), "returncode": 1 if seed == 5 else None}
            for arm in ("grpo+none", "maxrl+none") for seed in (1, 2, 3, 4, 5)
        ]  # fmt: skip
        (campaign / "manifest.json").write_text(json.dumps({"runs": planned}))
        statuses = [log.status for log in open_results([str(campaign)], tmp_path / "root").rows]
        assert statuses == ["succeeded"] * 3 + ["infra_error", "failed"] + ["succeeded"] * 3 + ["infra_error", "failed"]

    def test_a_torn_last_line_is_left_out(self, tmp_path: Path) -> None:
        directory = run(tmp_path / "x_s1")
        with (directory / "metrics.jsonl").open("a") as file:
            file.write('{"step": 10, "rew')
        assert read_run(directory).series["reward"][0].size == 10


class TestValues:
    def source(self, tmp_path: Path, **kinds: int) -> Results:
        logs = [directories.read_run(run(tmp_path / name, lift, steps)) for name, lift, steps in (("a_s1", 0.0, 10), ("b_s1", 1.0, kinds.get("steps", 10)))]  # fmt: skip
        return as_results(logs, "runs")

    def test_a_series_is_reduced_to_its_area_unless_told_otherwise(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        assert [row.value for row in observe(source, "reward").rows] == [4.5, 5.5]
        best = observe(source, "reward", Analysis(summary=Summary(type="best")))
        assert [row.value for row in best.rows] == [9.0, 10.0]

    def test_runs_of_unequal_length_are_worth_a_word(self, tmp_path: Path) -> None:
        (note,) = observe(self.source(tmp_path, steps=5), "reward").notes
        assert "unequal steps (4 to 9)" in note

    def test_an_arm_that_logs_one_value_only_does_not_end_early(self, tmp_path: Path) -> None:
        final = Analysis(summary=Summary(type="final", last=1))
        assert observe(self.source(tmp_path, steps=1), "reward", final).notes == ()

    def test_a_series_that_became_nan_is_a_failure(self, tmp_path: Path) -> None:
        lines = [{"step": i, "reward": float("nan") if i == 3 else 1.0} for i in range(5)]
        source = as_results([directories.read_run(write(tmp_path / "a_s1", lines))], "runs")
        assert observe(source, "reward", Analysis()).rows[0].state == "failed"

    def test_an_unknown_metric_lists_the_known_ones(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no run reports 'rewrad'; runs report reward, loss"):
            observe(self.source(tmp_path), "rewrad")


class TestNames:
    def test_patterns_that_no_shell_expanded_are_expanded(self, tmp_path: Path) -> None:
        for name in ("a_s1", "a_s2", "b_s1"):
            run(tmp_path / name)
        assert expand([str(tmp_path / "a_s*")]) == [str(tmp_path / "a_s1"), str(tmp_path / "a_s2")]
        with pytest.raises(UsageError, match="nothing matches this pattern"):
            expand([str(tmp_path / "c*")])

    def test_sides_pair_on_the_seeds_in_their_names(self, tmp_path: Path) -> None:
        names = [[str(run(tmp_path / f"{arm}_s{seed}")) for seed in (1, 2, 3)] for arm in "ab"]
        source = open_sides(*names, tmp_path, ("baseline", "candidate"), as_samples=False)
        assert [(log.arm, log.seed) for log in source.rows] == [
            (a, s) for a in ("baseline", "candidate") for s in (1, 2, 3)
        ]

    def test_run_ids_are_two_samples_unless_the_seeds_are_the_same(self, tmp_path: Path) -> None:
        same = [[str(run(tmp_path / f"{arm}_s{seed}")) for seed in (1, 2)] for arm in "ab"]
        other = [str(run(tmp_path / f"c_s{seed}")) for seed in (8, 9)]
        arms = ("control", "candidate")
        assert not open_sides(*same, tmp_path, arms, as_samples=True).unpaired
        apart = open_sides(same[0], other, tmp_path, arms, as_samples=True)
        assert apart.unpaired
        assert "share no seeds" in apart.notes[0]

    def test_a_run_named_twice_is_an_error(self, tmp_path: Path) -> None:
        a, b = str(run(tmp_path / "a_s1")), str(run(tmp_path / "b_s1"))
        with pytest.raises(UsageError, match="named twice"):
            open_sides([a, a], [b], tmp_path, ("x", "y"), as_samples=False)
        with pytest.raises(UsageError, match="named twice"):
            open_pairs([Pair(a, b), Pair(a, b)], tmp_path)

    def test_pairs_have_their_own_seeds_or_their_own_numbers(self, tmp_path: Path) -> None:
        names = [str(run(tmp_path / name)) for name in ("p", "q", "r", "s")]
        numbers = open_pairs([Pair(*names[:2]), Pair(*names[2:])], tmp_path)
        assert [log.seed for log in numbers.rows] == [0, 0, 1, 1]
        seeds = open_pairs([Pair(*names[:2], 1072), Pair(*names[2:], 2043)], tmp_path)
        assert [log.seed for log in seeds.rows] == [1072, 1072, 2043, 2043]
        with pytest.raises(UsageError, match="give every pair its own seed"):
            open_pairs([Pair(*names[:2], 1), Pair(*names[2:], 1)], tmp_path)

    def test_a_name_that_means_nothing_says_where_it_was_looked_for(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="nowhere"):
            open_sides(["nowhere"], ["nowhere"], tmp_path, ("x", "y"), as_samples=False)

    def test_directories_under_the_root_are_found_by_name(self, tmp_path: Path) -> None:
        run(tmp_path / "root" / "a_s1")
        source = open_results(["a_s1"], tmp_path / "root")
        assert np.isfinite(observe(source, "reward", Analysis()).rows[0].value)
