"""import: results from elsewhere, and nothing made up."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from bakeoff.results.frame import read_table
from bakeoff.results.sources import open_results
from support.editions import write_sweep_run

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]
ROOT = Path("bakeoff-runs")


def write_plain(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def table(name: str) -> list[dict[str, object]]:
    edition = Edition.open(find_edition(name, ROOT))
    try:
        return read_table(edition).frame.to_dicts()
    finally:
        edition.close()


def test_plain_directories_are_read_by_their_names(bakeoff: Bakeoff, tmp_path: Path) -> None:
    home = tmp_path / "campaign" / "runs"
    lines = "".join(json.dumps({"step": step, "loss": 1 / (step + 1)}) + "\n" for step in range(4))
    write_plain(home / "grpo+none_s42", **{"metrics.jsonl": lines})
    write_plain(home / "maxrl+gtpo_seed101", **{"metrics.json": '{"score": {"mean": 0.5}}'})
    write_plain(home / "other-s7", **{"out__summary.csv": "a,b\n1,x\n"})
    result = bakeoff("import", home.parent)
    assert result.exit_code == 0, result.stderr
    found = {(row["arm"], row["seed"]): row for row in table("campaign")}
    assert set(found) == {("grpo+none", 42), ("maxrl+gtpo", 101), ("other", 7)}
    assert found["grpo+none", 42]["loss"] == 0.25
    assert found["maxrl+gtpo", 101]["score.mean"] == 0.5
    assert found["other", 7]["a"] == 1
    assert {row["status"] for row in found.values()} == {"succeeded"}
    assert {row["exit_code"] for row in found.values()} == {None}
    assert {row["started_at"] for row in found.values()} == {None}
    assert json.loads(bakeoff("show", "campaign/grpo", "--json").stdout)["series"]["loss"]["points"] == 4


def test_arm_and_seed_may_stand_in_metrics_jsonl(bakeoff: Bakeoff, tmp_path: Path) -> None:
    write_plain(tmp_path / "results" / "a", **{"metrics.jsonl": '{"condition": "full", "seed": 3, "loss": 1}\n'})
    assert bakeoff("import", tmp_path / "results", "--name", "taken").exit_code == 0
    assert [(row["arm"], row["seed"]) for row in table("taken")] == [("full", 3)]


def test_what_cannot_be_read_is_listed_and_left_out_and_the_exit_code_is_1(bakeoff: Bakeoff, tmp_path: Path) -> None:
    home = tmp_path / "results"
    write_plain(home / "good_s1", **{"metrics.json": '{"x": 1}'})
    write_plain(home / "noseed", **{"metrics.json": '{"x": 1}'})
    write_plain(home / "torn_s2", **{"metrics.json": '{"x": '})
    write_plain(home / "empty_s3", **{"notes.txt": "nothing"})
    write_plain(home / "cut_s4", **{"metrics.jsonl": '{"step": 0, "x": 1}\n{"step": 1, "x"'})
    result = bakeoff("import", home, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["planned"] == 3
    assert len(report["problems"]) == 3
    for word in ("torn_s2", "empty_s3", "1 line left out"):
        assert word in result.stderr


def test_nothing_is_made_when_nothing_can_be_read(bakeoff: Bakeoff, tmp_path: Path) -> None:
    write_plain(tmp_path / "results" / "a", **{"notes.txt": ""})
    assert bakeoff("import", tmp_path / "results").exit_code == 1
    assert bakeoff("import", tmp_path / "nowhere").exit_code == 2
    assert not ROOT.exists()


def test_a_sweep_keeps_ids_times_and_statuses(bakeoff: Bakeoff, tmp_path: Path) -> None:
    home = tmp_path / "smoke"
    ok = write_sweep_run(home, "full", 1)
    write_sweep_run(home, "full", 2, "no_hedge", exit_code=3)
    write_sweep_run(home, "full", 3, exit_code=None)
    silent = write_sweep_run(home, "full", 4)
    (silent / "out/summary.csv").unlink()
    os.utime(ok / "out/summary.csv", (1000, 1000))
    before = sorted(path.relative_to(home) for path in home.rglob("*"))
    result = bakeoff("import", home)
    assert bakeoff("reproduce", ok.name).stdout.endswith("cd /repo &&\n./sim --seed 1\n")
    assert result.exit_code == 0, result.stderr
    assert "2 failed, 1 missing" in result.stdout
    found = {row["seed"]: row for row in table("smoke")}
    assert [found[seed]["status"] for seed in (1, 2, 3, 4)] == ["succeeded", "failed", "cancelled", "failed"]
    assert (found[1]["run_id"], found[1]["started_at"], found[1]["wall_s"]) == (ok.name, 100.0, 1.5)
    assert (found[2]["arm"], found[2]["ablation"], found[2]["exit_code"]) == ("full+no_hedge", "no_hedge", 3)
    copied = find_edition("smoke", ROOT).run(ok.name) / "out/summary.csv"
    assert copied.stat().st_mtime == 1000
    assert sorted(path.relative_to(home) for path in home.rglob("*")) == before


def test_an_edition_of_ours_is_copied_with_its_database(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path
) -> None:
    edition = make_edition("sorting")
    edition.close()
    mailed = tmp_path / "mail" / "attachment"
    shutil.copytree(edition.paths.directory, mailed)
    assert "exists already" in bakeoff("import", mailed).stderr
    result = bakeoff("import", mailed, "--name", "theirs")
    assert result.exit_code == 0, result.stderr
    assert len(table("theirs")) == 6


def test_our_run_directories_come_back_without_their_database(bakeoff: Bakeoff, tmp_path: Path) -> None:
    meta = {
        "run_id": "full__s1__abc", "workload": "command", "arm": "full+slow", "task": "t1", "seed": 1, "rollout": 2,
        "params": {"size": 3}, "ablation_name": "slow", "ablation_flags": ["--slow"], "cmd": ["echo", "a b"],
        "start_time_unix_s": 5.0, "end_time_unix_s": 6.0, "exit_code": 0, "status": "timeout", "error": "too long",
        "metrics": {"score": float("nan")},
    }  # fmt: skip
    write_plain(tmp_path / "back" / "x", **{"meta.json": json.dumps(meta), "metrics.jsonl": '{"step": 1, "loss": 2}\n'})
    assert bakeoff("import", tmp_path / "back").exit_code == 0
    facts = json.loads(bakeoff("show", "back/full__s1", "--json").stdout)
    expected = {
        "arm": "full+slow",
        "task": "t1",
        "rollout": 2,
        "ablation": "slow",
        "status": "timeout",
        "error": "too long",
    }
    assert {key: facts[key] for key in expected} == expected
    assert facts["command"] == "echo 'a b'"
    assert facts["series"]["loss"]["points"] == 1


def test_importing_twice_makes_one_edition_until_the_files_change(bakeoff: Bakeoff, tmp_path: Path) -> None:
    write_plain(tmp_path / "results" / "a_s1", **{"metrics.json": '{"x": 1}'})
    for _ in range(2):
        assert bakeoff("import", tmp_path / "results").exit_code == 0
    assert len(json.loads(bakeoff("ls", "results", "--json").stdout)) == 1
    write_plain(tmp_path / "results" / "a_s2", **{"metrics.json": '{"x": 2}'})
    assert bakeoff("import", tmp_path / "results").exit_code == 0
    assert [each["planned"] for each in json.loads(bakeoff("ls", "results", "--json").stdout)] == [2, 1]


def write_sources(place: Path) -> None:
    """Sources of every shape that could be read otherwise once they are in a database."""
    noise = np.random.default_rng(7)
    with (place / "seeds.csv").open("w") as file:
        file.write("model,task,seed,score,latency_ms\n")
        for task, seed, arm in product(range(5), range(3), "ab"):
            file.write(f"{arm},t{task},{seed},{noise.normal(arm == 'b'):.3f},{noise.integers(5, 50)}\n")
    with (place / "no_seeds.csv").open("w") as file:  # one value is missing, tasks have groups
        file.write("model,task,repo,score,cost\n")
        for task, arm in product(range(16), "ab"):
            score = "" if (task, arm) == (3, "b") else f"{noise.normal(2 * (arm == 'b')):.3f}"
            file.write(f"{arm},t{task},r{task % 8},{score},{noise.random():.3f}\n")
    with (place / "steps.csv").open("w") as file:
        file.write("arm,seed,step,reward\n")
        for seed, arm, step in product(range(8), "ab", range(6)):
            file.write(f"{arm},{seed},{step},{step / 10 + (arm == 'b') + noise.random():.3f}\n")
    with (place / "statuses.csv").open("w") as file:  # the table says how some runs ended, and not how others did
        file.write("arm,task,status,score\n")
        for task, arm in product(range(12), "ab"):
            status = {0: "failed", 1: "timeout"}.get(task, "ok" if task % 2 else "")
            score = "" if task < 2 else f"{noise.normal(arm == 'b'):.3f}"
            file.write(f"{arm},t{task},{status},{score}\n")
    for number, arm in product(range(6), "ab"):
        lines = [{"condition": arm, "step": step, "loss": float(noise.random())} for step in range(4)]
        write_plain(
            place / "logs" / f"{arm}{number}", **{"metrics.jsonl": "".join(f"{json.dumps(each)}\n" for each in lines)}
        )


@pytest.mark.parametrize(("source", "options"), [
    ("seeds.csv", ()), ("seeds.csv", ("--metric", "latency_ms", "--direction", "minimize")), ("no_seeds.csv", ()),
    ("no_seeds.csv", ("--metric", "cost", "--direction", "minimize")), ("steps.csv", ()),
    ("statuses.csv", ("--failure-score", "0")), ("logs", ("--metric", "loss", "--direction", "minimize")),
])  # fmt: skip
def test_an_imported_source_gets_the_verdict_that_the_source_gets(
    bakeoff: Bakeoff, tmp_path: Path, source: str, options: tuple[str, ...]
) -> None:
    write_sources(tmp_path)
    imported = bakeoff("import", source, "--name", "taken")
    assert imported.exit_code == 0, imported.stderr
    answers = []
    for name in (f"./{source}", "taken"):
        result = bakeoff("compare", name, *options, "--json")
        assert result.exit_code in (0, 3), result.stderr
        answer = json.loads(result.stdout)
        answers.append({key: value for key, value in answer.items() if key not in ("source", "retries")})
    assert answers[0] == answers[1]
    rows = [open_results([name], ROOT).rows for name in (f"./{source}", "taken")]
    for row, same in zip(*rows, strict=True):
        assert (row.arm, row.task, row.seed, row.rollout, row.status, dict(row.metrics)) == (
            same.arm, same.task, same.seed, same.rollout, same.status, dict(same.metrics),
        )  # fmt: skip


def test_columns_of_an_imported_table_can_be_named(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who,question,points\na,1,0.5\nb,1,0.7\n")
    assert "which column names the arm? say --arm-from" in bakeoff("import", "t.csv").stderr
    assert bakeoff("import", "t.csv", "--arm-from", "who").exit_code == 0
    assert [(row["arm"], row["seed"], row["points"]) for row in table("t")] == [("a", None, 0.5), ("b", None, 0.7)]


def test_steps_that_a_database_cannot_hold_are_refused(bakeoff: Bakeoff, tmp_path: Path) -> None:
    rows = "".join(f"{arm},0,{step},1.0\n" for arm in "ab" for step in (0.25, 0.5, 0.75))
    (tmp_path / "t.csv").write_text(f"arm,seed,step,loss\n{rows}")
    result = bakeoff("import", "t.csv")
    assert result.exit_code == 2 and "'loss' has steps that are not whole numbers" in result.stderr
    assert not ROOT.exists()
