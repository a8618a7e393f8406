"""What trainers leave behind, written by the real ones (scripts/make-fixtures-trackers.py): TensorBoard, Stable-Baselines3, Trainer."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from bakeoff.results.importers.training_logs import names_of
from bakeoff.results.sources import open_results
from bakeoff.results.table import Row

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures"
EVENTS, SB3, TRAINER = FIXTURES / "tensorboard", FIXTURES / "sb3", FIXTURES / "hf_trainer"


def runs(path: Path) -> dict[tuple[str, int | None], Row]:
    return {(row.arm, row.seed): row for row in open_results([str(path)], Path("root")).rows}


def comparison(bakeoff: Bakeoff, *arguments: str | Path) -> dict[str, object]:
    result = bakeoff("compare", *arguments, "--json")
    assert result.exit_code in (0, 3), result.stderr  # 3: undecided
    [found] = json.loads(result.stdout)["comparisons"]
    return dict(found)


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


@pytest.mark.parametrize(("path", "arm", "task", "seed"), [
    ("ppo_s3", "ppo", None, 3), ("ppo/seed=3", "ppo", None, 3), ("ppo/seed_3", "ppo", None, 3), ("ppo-seed3", "ppo", None, 3),
    ("CartPole-v1/ppo/seed=3", "ppo", "CartPole-v1", 3), ("ppo/CartPole-v1/seed_3", "ppo", "CartPole-v1", 3),
    ("maze/ppo_s3", "ppo", "maze", 3), ("lr=0.1,seed=3", "lr=0.1", None, 3), ("ppo_seed3_wide", "ppo_wide", None, 3),
    ("CartPole-v1__ppo__3__1700000000", "ppo", "CartPole-v1", 3), ("ppo/version_3", "ppo", None, None),
    ("ppo/20260101-120000", "ppo", None, None),
    ("ppo lr=1e-3 seed=3", "ppo lr=1e-3", None, 3), ("seed 3 of ppo", "of ppo", None, 3), ("s3", "RUNS", None, 3), ("classes3", "classes3", None, None),
])  # fmt: skip
def test_arm_task_and_seed_are_in_the_names(path: str, arm: str, task: str | None, seed: int | None) -> None:
    parts = Path(path).parts
    assert names_of(parts, ("/", "home", "RUNS", *parts)) == (arm, task, seed)


class TestTensorBoard:
    def test_runs_are_directories_and_the_last_written_steps_count(self, bakeoff: Bakeoff) -> None:
        found = runs(EVENTS)
        assert set(found) == {(arm, seed) for arm in ("slow", "fast") for seed in range(4)}
        steps, values = found["fast", 1].series["charts/episodic_return"]
        assert list(steps) == [0, 1, 2, 3, 4] and list(values) == [106, 116, 26, 36, 46], "resumed at step 2"
        # Mean over steps: 20 + seed, and 4 + seed more for `fast`; the resumed one has (111 + 71 + 31 + 41) / 4.
        answer = comparison(bakeoff, EVENTS)
        assert (answer["metric"], answer["units"]) == ("charts/episodic_return", 4)
        assert answer["control_mean"] == pytest.approx((24 + 63.5 + 28 + 30) / 4)
        assert answer["candidate_mean"] == pytest.approx(21.5)
        assert "1 of 8 runs were resumed" in bakeoff("compare", EVENTS).stdout

    def test_directories_with_hyperparameters_are_no_runs_and_their_values_do_not_count(self) -> None:
        run = runs(EVENTS)["slow", 0]
        assert sorted(run.series) == [
            "charts/episodic_return",
            "losses/value",
            "parts_first/parts",
            "parts_second/parts",
        ]
        assert min(run.series["charts/episodic_return"][1]) == 0, "add_hparams wrote -1000"

    def test_train_and_validation_of_one_run_are_one_run(self, tmp_path: Path) -> None:
        for seed in range(2):
            for writer in ("train", "validation"):
                copied(EVENTS / f"slow_s{seed + 2}", tmp_path / "RUNS" / f"cnn_s{seed}" / writer)
        found = runs(tmp_path / "RUNS")
        assert set(found) == {("cnn", 0), ("cnn", 1)}
        assert {"train/losses/value", "validation/losses/value"} <= set(found["cnn", 0].series)

    def test_curves_are_drawn_with_seeds_as_a_band_and_without_an_option(
        self, bakeoff: Bakeoff, tmp_path: Path
    ) -> None:
        drawn = bakeoff("plot", "curves", EVENTS, "-o", "curves.svg", "--json")
        assert drawn.exit_code == 0, drawn.stderr
        facts = json.loads(drawn.stdout)
        assert "charts/episodic_return" in facts["title"] and "4" in facts["caption"]
        assert (tmp_path / "curves.svg").stat().st_size > 1000

    def test_a_file_that_grows_is_read_up_to_its_last_whole_event(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        [file] = copied(EVENTS / "slow_s2", tmp_path / "RUNS" / "slow_s2").iterdir()
        content = file.read_bytes()
        file.write_bytes(content[: len(content) * 2 // 3])
        before = runs(tmp_path / "RUNS")["slow", 2].series["losses/value"][0]
        assert "ends within a record" in bakeoff("compare", "RUNS", EVENTS).stdout
        file.write_bytes(content)
        assert len(before) < len(runs(tmp_path / "RUNS")["slow", 2].series["losses/value"][0]) == 5

    @pytest.mark.parametrize("content", [b"text\n" * 10, b"\0" * 5])
    def test_another_file_of_that_name_is_one_line_and_exit_2(
        self, bakeoff: Bakeoff, tmp_path: Path, content: bytes
    ) -> None:
        copied(EVENTS, tmp_path / "RUNS")
        (tmp_path / "RUNS" / "slow_s2" / "events.out.tfevents.9.other").write_bytes(content)
        result = bakeoff("compare", "RUNS")
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1
        assert "events.out.tfevents.9.other: is not an event file" in result.stderr

    def test_a_run_that_logged_nothing_is_missing_and_one_that_is_shorter_is_named(
        self, bakeoff: Bakeoff, tmp_path: Path
    ) -> None:
        copied(EVENTS, tmp_path / "RUNS")
        [file] = (tmp_path / "RUNS" / "slow_s3").iterdir()
        content = file.read_bytes()
        file.write_bytes(b"")
        assert runs(tmp_path / "RUNS")["slow", 3].status == "infra_error"
        assert "1 of 8 runs logged nothing" in bakeoff("compare", "RUNS").stdout
        file.write_bytes(content[: len(content) * 2 // 3])
        assert "runs end at different steps" in bakeoff("compare", "RUNS").stdout


class TestStableBaselines:
    def test_the_environment_is_the_task_and_evaluations_get_the_verdict(self, bakeoff: Bakeoff) -> None:
        found = runs(SB3)
        assert {row.task for row in found.values()} == {"Steps-v0"} and len(found) == 8
        # Four steps of 1 + seed, and 1 more each with `shaped`.
        answer = comparison(bakeoff, SB3)
        assert (answer["metric"], answer["control_mean"], answer["candidate_mean"]) == ("eval/mean_reward", 10, 14)
        by_episode = comparison(bakeoff, SB3, "--metric", "episode_reward")
        assert (by_episode["control_mean"], by_episode["candidate_mean"]) == (10, 14)
        steps, rewards = found["shaped", 2].series["episode_reward"]
        assert list(steps) == [4, 8, 12, 16, 20, 24, 28, 32] and set(rewards) == {16}

    def test_several_environments_of_one_run_are_joined_in_order_of_time(self, tmp_path: Path) -> None:
        header = (SB3 / "plain" / "seed_0" / "monitor.csv").read_text().splitlines()[:2]
        for number, rows in enumerate((["1.0,5,2.0", "3.0,5,6.0"], ["2.0,7,4.0"])):
            path = tmp_path / "ppo_s0" / f"{number}.monitor.csv"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join((*header, *rows)) + "\n")
        steps, rewards = runs(tmp_path)["ppo", 0].series["episode_reward"]
        assert list(steps) == [5, 12, 17] and list(rewards) == [1, 2, 3]
        with path.open("a") as file:
            file.write("9.0,1,0.5\n")  # resumed: `t` begins anew
        assert list(runs(tmp_path)["ppo", 0].series["episode_reward"][1]) == [1, 2, 3, 9]

    def test_a_single_monitor_file_is_no_table(self, tmp_path: Path) -> None:
        [row] = open_results([str(SB3 / "plain" / "seed_1" / "monitor.csv")], tmp_path).rows
        assert (row.task, row.seed, set(row.series["episode_reward"][1])) == ("Steps-v0", 1, {8.0})

    @pytest.mark.parametrize(("content", "reason"), [
        ("", "does not begin with the header"), ("r,l,t\n1,2,3\n", "does not begin with the header"),
        ('#{"t_start": 1}\n', "is not a whole monitor file"), ('#{"t_start": 1}\nr,l,t\nx,2,3\n1,2,3\n', "line 3: is not an episode"),
    ])  # fmt: skip
    def test_a_damaged_monitor_file_is_one_line_and_exit_2(
        self, bakeoff: Bakeoff, tmp_path: Path, content: str, reason: str
    ) -> None:
        copied(SB3, tmp_path / "RUNS")
        (tmp_path / "RUNS" / "plain" / "seed_0" / "monitor.csv").write_text(content)
        result = bakeoff("compare", "RUNS")
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1 and reason in result.stderr

    def test_an_episode_that_is_being_written_is_left_out(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        monitor = copied(SB3, tmp_path / "RUNS") / "plain" / "seed_0" / "monitor.csv"
        content = monitor.read_text()
        monitor.write_text(content + "4.0,4,1")
        assert len(runs(tmp_path / "RUNS")["plain", 0].series["episode_reward"][0]) == 8
        assert "1 of 8 runs have a file that ends within a record" in bakeoff("compare", "RUNS").stdout

    def test_nothing_is_unpickled(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        class Bomb:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return os.mkdir, (str(tmp_path / "exploded"),)

        copied(SB3, tmp_path / "RUNS")
        place = tmp_path / "RUNS" / "plain" / "seed_0"
        np.savez(place / "evaluations.npz", timesteps=[16], results=np.array([[Bomb()]], dtype=object))
        (place / "training_args.bin").write_bytes(pickle.dumps(Bomb()))
        result = bakeoff("compare", "RUNS")
        assert result.exit_code == 2 and "evaluations.npz: is not a file of evaluations" in result.stderr
        assert not (tmp_path / "exploded").exists()


class TestTrainer:
    def mean_over_steps(self, arm: str) -> float:
        """The mean of eval_loss over steps 2, 4 and 6, from the trainer's own file."""
        means = []
        for seed in range(4):
            state = json.loads((TRAINER / f"{arm}_seed{seed}" / "trainer_state.json").read_text())
            first, second, third = (entry["eval_loss"] for entry in state["log_history"] if "eval_loss" in entry)
            means.append((first + 2 * second + third) / 4)
        return sum(means) / 4

    def test_checkpoints_are_prefixes_of_one_run(self, bakeoff: Bakeoff, tmp_path: Path) -> None:
        found = runs(TRAINER)
        assert len(found) == 8 and list(found["low", 1].series["loss"][0]) == [1, 2, 3, 4, 5, 6]
        answer = comparison(bakeoff, TRAINER)
        assert (answer["metric"], answer["verdict"]) == ("eval_loss", "worse")
        assert answer["control_mean"] == pytest.approx(self.mean_over_steps("high"))
        assert answer["candidate_mean"] == pytest.approx(self.mean_over_steps("low"))
        for state in copied(TRAINER, tmp_path / "RUNS").glob("*/trainer_state.json"):
            state.unlink()
        assert comparison(bakeoff, "RUNS") == answer, "the last checkpoint has everything"

    def test_a_run_that_was_resumed_from_an_earlier_checkpoint_counts_as_last_written(
        self, bakeoff: Bakeoff, tmp_path: Path
    ) -> None:
        run = copied(TRAINER, tmp_path / "RUNS") / "low_seed1"
        (run / "trainer_state.json").unlink()
        state = json.loads((run / "checkpoint-4" / "trainer_state.json").read_text())
        for entry in state["log_history"]:
            if entry["step"] > 2 and "loss" in entry:
                entry["loss"] = 77.0
        (run / "checkpoint-4" / "trainer_state.json").write_text(json.dumps(state))
        os.utime(run / "checkpoint-6" / "trainer_state.json", (1e9, 1e9))
        found = runs(tmp_path / "RUNS")["low", 1]
        assert list(found.series["loss"][1])[2:] == [77.0, 77.0]
        assert (found.status, found.error) == ("infra_error", "its last state is of step 4 of 6")
        shown = bakeoff("compare", "RUNS").stdout
        assert "1 of 8 runs were resumed" in shown and "1 of 8 runs ended before their last step" in shown

    def test_event_files_of_the_trainer_are_not_a_second_run(self, tmp_path: Path) -> None:
        copied(TRAINER / "low_seed1", tmp_path / "RUNS" / "low_seed1")
        copied(EVENTS / "slow_s2", tmp_path / "RUNS" / "low_seed1" / "runs" / "Nov18_08-00-00_host")
        [run] = runs(tmp_path / "RUNS").values()
        assert run.arm == "low" and "losses/value" not in run.series

    @pytest.mark.parametrize(("content", "reason"), [
        ('{"global_step": 3, "log_his', "is not a whole trainer state"), ("", "is not a whole trainer state"),
        ('{"a": 1}', "it has no `log_history`"),
    ])  # fmt: skip
    def test_a_damaged_state_is_one_line_and_exit_2(
        self, bakeoff: Bakeoff, tmp_path: Path, content: str, reason: str
    ) -> None:
        copied(TRAINER, tmp_path / "RUNS")
        (tmp_path / "RUNS" / "low_seed1" / "trainer_state.json").write_text(content)
        result = bakeoff("compare", "RUNS")
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1
        assert "trainer_state.json" in result.stderr and reason in result.stderr


def test_runs_of_several_trainers_below_one_directory_are_all_read(tmp_path: Path) -> None:
    copied(EVENTS / "slow_s2", tmp_path / "RUNS" / "slow_s2")
    copied(TRAINER / "low_seed1", tmp_path / "RUNS" / "low_seed1")
    copied(SB3 / "plain", tmp_path / "RUNS" / "plain")
    assert {arm for arm, _ in runs(tmp_path / "RUNS")} == {"slow", "low", "plain"}


def test_runs_whose_names_have_no_seed_that_is_known_get_a_line_that_says_how_to_name_it(bakeoff: Bakeoff) -> None:
    for number in range(4):
        copied(EVENTS / f"fast_s{number}", Path("RUNS", f"PPO_{number + 1}"))
        copied(EVENTS / f"slow_s{number}", Path("RUNS", f"SAC_{number + 1}"))
    metric = ("--metric", "losses/value", "--direction", "minimize")
    assert "each of the 8 runs is an arm of its own" in bakeoff("compare", "RUNS", *metric).stdout
    named = bakeoff("compare", "RUNS", *metric, "--arm-from", "path:([A-Z]+)_[0-9]", "--seed-from", "path:_([0-9])$")
    assert "SAC minus PPO" in named.stdout and "unit: seed, N = 4" in named.stdout, named.stderr


def test_two_directories_with_runs_of_equal_names_are_two_arms(tmp_path: Path) -> None:
    for name in ("old", "new"):
        copied(SB3 / "plain", tmp_path / name / "ppo")
    results = open_results([str(tmp_path / "old"), str(tmp_path / "new")], tmp_path)
    assert results.arms == ["old", "new"] and len(results.rows) == 8


def test_what_is_imported_gets_the_same_verdict(bakeoff: Bakeoff) -> None:
    before = comparison(bakeoff, SB3)
    imported = bakeoff("import", SB3, "--name", "imported")
    assert imported.exit_code == 0, imported.stderr
    assert comparison(bakeoff, "imported")["effect"] == before["effect"]
