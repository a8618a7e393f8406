"""import: results from elsewhere, and nothing made up."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from bakeoff.results.frame import read_table
from factories import write_sweep_run

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
    assert report["planned"] == 2
    assert len(report["problems"]) == 4
    for word in ("noseed", "torn_s2", "empty_s3", "1 line left out"):
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


def test_importing_twice_makes_two_editions(bakeoff: Bakeoff, tmp_path: Path) -> None:
    write_plain(tmp_path / "results" / "a_s1", **{"metrics.json": '{"x": 1}'})
    for _ in range(2):
        assert bakeoff("import", tmp_path / "results").exit_code == 0
    assert len(json.loads(bakeoff("ls", "results", "--json").stdout)) == 2
