"""Curves in the formats of other trainers, written by their own writers where these can be had."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboardX import SummaryWriter

from bakeoff.records.logs import problem_with_log, read_series, size_of_series
from bakeoff.records.series import read_block

Curves = dict[str, list[tuple[int, float]]]


def curves(directory: Path, log: str | None = None) -> Curves:
    series, torn = read_series(directory, log)
    assert torn == 0
    blocks = read_block(series.block()) if series else {}
    return {name: list(zip(s.tolist(), v.tolist(), strict=True)) for name, (s, v) in blocks.items()}


def write(path: Path, *entries: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_scalars_of_event_files_are_read(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        writer = SummaryWriter(str(tmp_path / "out" / folder))
        for step in range(0, 300, 100):
            writer.add_scalar(f"{folder}/loss", 1.5 - step, step)
            writer.add_histogram("weights", [1.0, 2.0, 3.0], step)
            writer.add_text("note", "hello", step)
        writer.close()
    expected = [(0, 1.5), (100, -98.5), (200, -198.5)]
    assert curves(tmp_path, "tensorboard:out") == {"first/loss": expected, "second/loss": expected}
    assert size_of_series(tmp_path, "tensorboard:out") == sum(
        file.stat().st_size for file in tmp_path.rglob("*tfevents*")
    )


def test_an_event_file_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "out")) as writer:
        for step in range(5):
            writer.add_scalar("loss", step, step)
    [file] = (tmp_path / "out").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    series, torn = read_series(tmp_path, "tensorboard:out")
    assert (read_block(series.block())["loss"][0].tolist(), torn) == ([0, 1, 2, 3], 1)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_in_a_log_make_the_reader_fail(tmp_path: Path, content: bytes, framed: bool) -> None:
    framed_content = len(content).to_bytes(8, "little") + bytes(4) + content + bytes(4) if framed else content
    for name in ("events.tfevents", "trainer_state.json", "metrics.jsonl"):
        (tmp_path / name).write_bytes(framed_content)
    for log in ("tensorboard:.", "trl:.", "verl:.", "prime-rl:*.jsonl", "retrain:metrics.jsonl"):
        read_series(tmp_path, log)


def test_the_newest_state_of_a_hugging_face_trainer_is_read(tmp_path: Path) -> None:
    history = [
        {"loss": 0.5, "reward": 0.25, "step": 10, "epoch": 0.1},
        {"eval_reward": 0.75, "step": 10},
        {"loss": 0.25, "reward": 0.5, "step": 20, "epoch": 0.2},
    ]
    for steps, entries in ((10, history[:2]), (20, history)):
        place = tmp_path / "checkpoint" / f"checkpoint-{steps}"
        write(place / "trainer_state.json", {"global_step": steps, "log_history": entries})
    assert curves(tmp_path, "trl:checkpoint") == {
        "loss": [(10, 0.5), (20, 0.25)],
        "reward": [(10, 0.25), (20, 0.5)],
        "epoch": [(10, 0.1), (20, 0.2)],
        "eval_reward": [(10, 0.75)],
    }


def test_lines_of_verl_and_of_prime_rl_are_read(tmp_path: Path) -> None:
    write(tmp_path / "out" / "a.jsonl", {"step": 1, "data": {"actor/loss": 2.0}, "elapsed_seconds": 3.0})
    assert curves(tmp_path, "verl:out/*.jsonl") == {"actor/loss": [(1, 2.0)]}
    write(tmp_path / "run" / "metrics.jsonl", {"step": 4, "time": 1.5, "reward/mean": 0.5})
    assert curves(tmp_path, "prime-rl:run") == {"time": [(4, 1.5)], "reward/mean": [(4, 0.5)]}


def test_a_log_and_what_the_run_logged_itself_are_one_series(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", {"step": 0, "mine": 1.0})
    write(tmp_path / "out" / "metrics.jsonl", {"step": 0, "theirs": 2.0})
    assert curves(tmp_path, "retrain:out") == {"mine": [(0, 1.0)], "theirs": [(0, 2.0)]}
    assert curves(tmp_path, "retrain:metrics.jsonl") == {"mine": [(0, 1.0)]}, "once, not twice"


def test_logs_of_attempts_that_a_run_went_on_from_come_first(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    write(tmp_path / "attempts/1-lost/out/m.jsonl", *({"step": n, "data": {"loss": n}} for n in range(6)))
    write(tmp_path / "out/m.jsonl", *({"step": n, "data": {"loss": -n}} for n in range(4, 7)))
    assert curves(tmp_path, "verl:out") == {"loss": [(0, 0), (1, 1), (2, 2), (3, 3), (4, -4), (5, -5), (6, -6)]}


def test_links_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "secret" / "metrics.jsonl", {"step": 1, "secret": 1.0})
    run = tmp_path / "run"
    (run / "out").mkdir(parents=True)
    os.symlink(tmp_path / "secret", run / "linked")
    os.symlink(tmp_path / "secret" / "metrics.jsonl", run / "out" / "metrics.jsonl")
    for log in ("retrain:linked", "retrain:out"):
        with pytest.raises(OSError):
            read_series(run, log)


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ("trl", "is not FORMAT:PATH"),
        ("wandb:out", "one of the formats trl, verl, prime-rl, retrain, tensorboard"),
        ("verl:/tmp/x", "inside the run's directory, such as verl:out"),
        ("verl:../x", "inside the run's directory"),
        ("verl:", "inside the run's directory"),
    ],
)
def test_what_is_no_log_is_refused(log: str, problem: str) -> None:
    assert problem in str(problem_with_log(log))
    assert problem_with_log("trl:checkpoint") is None
