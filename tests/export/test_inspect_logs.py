"""Logs of Inspect that were exported from an edition: `compare` gives the same verdict on them as on the edition."""

from __future__ import annotations

import json
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.errors import UsageError
from bakeoff.export.exporting import export
from bakeoff.export.rollouts import Filters
from bakeoff.results.sources import open_results
from support.experiments import BENCH_AND_TRAIN_CODE, TRAIN, run_bench_and_train
from support.processes import Lab


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of `bench` and `train`, which have scores only."""
    return run_bench_and_train(tmp_path_factory.mktemp("scored"))


def exported(name: str, root: Path, place: Path, **options: Any) -> Any:
    with closing(open_results([name], root)) as results:
        return export(results, "inspect", Filters(**options), output=place)


def verdicts(source: Any, **options: Any) -> dict[str, tuple[Any, ...]]:
    return {
        each.candidate: (each.control, each.verdict, each.effect, each.p, each.units, each.failed, each.missing)
        for each in bakeoff.compare(source, **options)
    }


@pytest.mark.parametrize("name", ["bench", "train"])
def test_runs_with_scores_only_give_the_verdict_of_their_edition(scored: Path, tmp_path: Path, name: str) -> None:
    summary = exported(name, scored, tmp_path / "logs")
    assert (summary.rows, summary.rollouts) == ((3, 60) if name == "bench" else (2, 20))
    native = verdicts(name, root=scored)
    assert verdicts(tmp_path / "logs") == native
    assert any(verdict == "better" for _, verdict, *_ in native.values())


def test_a_failed_run_counts_what_the_experiment_says(talks: Path, tmp_path: Path) -> None:
    exported("talks", talks, tmp_path / "logs")
    native = verdicts("talks", root=talks)
    assert verdicts(tmp_path / "logs") == native
    assert native["twin"][5] == 1  # chat, the control, has one failed run


def test_a_summary_of_a_series_becomes_the_score(tmp_path: Path) -> None:
    summary = 'metric = "overview/reward"\nsummary = { type = "time_to_threshold", threshold = 0.7 }'
    with Lab(tmp_path) as lab:
        lab.experiment(TRAIN.replace('metric = "final"', summary), "train", bench_and_train=BENCH_AND_TRAIN_CODE)
        lab.run("train")
        exported("train", lab.root, tmp_path / "logs")
        native = verdicts("train", root=lab.root)
    assert verdicts(tmp_path / "logs") == native
    assert native["new"][1] == "better" and native["new"][2] < 0  # less time is better


RAGGED = """
def play(ctx, kind):
    if kind == "fails" and ctx.seed == 2:
        raise RuntimeError("the arm is to blame")
    value = float("nan") if ctx.seed == 3 else ctx.seed + (kind == "fails")
    return {"score": value, "note": "text", "other": 1}
"""
RAGGED_FILE = """
name = "ragged"
workload = "python"
seeds = "1..6"
params = { function = "ragged:play" }
analysis = { metric = "score", failure_score = 0.0 }
arms = [{ name = "plain", params = { kind = "plain" } }, { name = "fails", params = { kind = "fails" } }]
"""


@pytest.fixture
def ragged(tmp_path: Path) -> Path:
    """An edition with a failed run and NaN."""
    with Lab(tmp_path) as lab:
        lab.experiment(RAGGED_FILE, "ragged", ragged=RAGGED)
        lab.run("ragged")
        return lab.root


def test_errors_stay_errors_and_nan_is_kept(ragged: Path, tmp_path: Path) -> None:
    exported("ragged", ragged, tmp_path / "logs")
    native = verdicts("ragged", root=ragged)
    assert verdicts(tmp_path / "logs") == native
    assert native["fails"][5:] == (3, 0)
    (log,) = (tmp_path / "logs").glob("*_fails.eval")
    with zipfile.ZipFile(log) as archive:
        header = json.loads(archive.read("header.json"))
        broken = json.loads(archive.read("samples/default__s2_epoch_1.json"))
        odd = json.loads(archive.read("samples/default__s3_epoch_1.json"))
    assert (header["status"], header["results"]["completed_samples"]) == ("success", 5)
    assert "the arm is to blame" in broken["error"]["message"] and "scores" not in broken
    assert odd["scores"]["score"] == {"value": "nan"} and odd["metadata"]["metrics"] == {"note": "text"}


def test_what_was_lost_is_absent_and_missing_in_the_verdict(tmp_path: Path) -> None:
    lines = [f"{arm},{seed},{seed + (arm == 'new')},succeeded" for arm in ("old", "new") for seed in range(6)]
    lines[-1], lines[2] = "new,5,,infra_error", "old,2,,failed"
    with Lab(tmp_path) as lab:
        lab.write("runs.csv", "\n".join(["arm,seed,score,status", *lines]))
        lab.look("import", "runs.csv")
        summary = exported("runs", lab.root, tmp_path / "logs")
        native = verdicts("runs", root=lab.root, failure_score=0)
    assert summary.dropped == {"no outcome (infra_error)": 1} and summary.rollouts == 11
    assert verdicts(tmp_path / "logs", failure_score=0) == native
    assert native["new"][5:] == (1, 1)


def test_a_log_that_was_edited_is_refused_in_one_line(scored: Path, tmp_path: Path) -> None:
    exported("train", scored, tmp_path / "logs")
    log = sorted((tmp_path / "logs").glob("*.eval"))[0]
    with zipfile.ZipFile(log) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries["header.json"] = entries["header.json"].replace(b'"absent":[]', b'"absent":[1]')
    with zipfile.ZipFile(log, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(UsageError, match="was changed, or a newer version wrote it") as refused:
        bakeoff.compare(tmp_path / "logs")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "filters"), [("--success", {"success": True}), ("--reward-quantile", {"quantile": (0.5, 1.0)})]
)
def test_runs_are_not_left_out_by_how_they_ended(scored: Path, tmp_path: Path, option: str, filters: Any) -> None:
    with pytest.raises(UsageError, match=f"{option}: a log of Inspect holds every run"):
        exported("bench", scored, tmp_path / "logs", **filters)
    assert not (tmp_path / "logs").exists()


def test_one_arm_and_one_task_can_be_asked_for(scored: Path, tmp_path: Path) -> None:
    summary = exported("bench", scored, tmp_path / "logs", arms=["strong"], tasks=["easy"])
    assert (summary.rows, summary.rollouts) == (1, 4)
