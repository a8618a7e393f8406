"""Results that lm-eval wrote with `--log_samples` (scripts/make_fixtures.py)."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.results.reading import reading_line
from bakeoff.results.table import Results
from support.tables import compared

RESULTS = Path(__file__).parents[2] / "fixtures" / "lm-eval"
Read = Callable[..., Results]


def file(pattern: str) -> Path:
    (path,) = RESULTS.glob(pattern)
    return path


def values(pattern: str, metric: str, filtered_by: str = "none") -> list[float]:
    rows = map(json.loads, file(pattern).read_text().splitlines())
    return [row[metric] for row in rows if row["filter"] == filtered_by]


def test_models_are_compared_on_documents(read: Read) -> None:
    results = read("lm-eval/models")
    assert reading_line(results.reading) == "read 40 samples x 2 logs of lm-eval 0.4.13; arm = model"
    facts = compared(results, metric=["acc"])
    large, small = (values(f"models/{arm}/samples_sums_mc_*", "acc") for arm in ("large", "small"))
    assert (facts["control"], facts["candidate"], facts["units"]) == ("large", "small", 20)
    assert (facts["control_mean"], facts["candidate_mean"]) == pytest.approx((sum(large) / 20, sum(small) / 20))
    assert facts["failed"] == facts["missing"] == 0  # the other task has no acc, which is no failure


def test_each_filter_is_a_metric(read: Read) -> None:
    results = read("lm-eval/models")
    assert {"acc", "exact_match,strict-match", "exact_match,flexible-extract"} == set(results.metrics)
    facts = compared(results, metric=["exact_match,flexible-extract"])
    own = values("models/small/samples_echo_*", "exact_match", "flexible-extract")
    assert facts["candidate_mean"] == pytest.approx(sum(own) / 20)


def test_the_seed_of_the_results_file_counts_where_an_arm_has_several(read: Read) -> None:
    results = read("lm-eval/seeds")
    assert Counter((row.arm, row.seed) for row in results.rows) == {
        (arm, seed): 20 for arm in ("small", "large") for seed in (1, 2)
    }
    assert {row.seed for row in read("lm-eval/models").rows} == {None}
    assert {row.seed for row in read("lm-eval/models", seed="config.numpy_seed").rows} == {1, 2}


def test_limited_samples_are_not_missing(read: Read) -> None:
    results = read("lm-eval/limited")
    assert Counter(row.status for row in results.rows) == {"succeeded": 10}


def test_a_results_file_means_its_samples(read: Read) -> None:
    assert len(read(file("models/small/results_*.json")).rows) == 40
    assert len(read(file("models/small/samples_echo_*.jsonl")).rows) == 20


def test_another_mean_of_the_results_file_is_shown(read: Read, tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "models" / "small", tmp_path / "small")
    (path,) = (tmp_path / "small").glob("results_*.json")
    content = json.loads(path.read_text())
    content["results"]["sums_mc"]["acc,none"] = 0.9
    path.write_text(json.dumps(content))
    assert "lm-eval's own acc is 0.9, ours is 0.55" in reading_line(read(tmp_path / "small").reading)


def test_our_mean_beside_the_tools_counts_a_document_without_a_number_as_the_verdict_does(
    read: Read, tmp_path: Path
) -> None:
    shutil.copytree(RESULTS / "models", tmp_path / "models")
    (samples,) = (tmp_path / "models" / "small").glob("samples_sums_mc_*")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    right = next(row for row in rows if row["acc"] == 1.0)
    right["acc"] = float("nan")
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = read(tmp_path / "models")
    assert compared(results, metric=["acc"])["candidate_mean"] == pytest.approx(10 / 20)  # was 11 of 20
    assert reading_line(results.reading).endswith("lm-eval's own acc is 0.55, ours is 0.5")


def test_torn_files_are_one_line(read: Read, tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "models" / "small", tmp_path / "small")
    (samples,) = (tmp_path / "small").glob("samples_echo_*")
    (results,) = (tmp_path / "small").glob("results_*")
    lines = samples.read_text().splitlines(keepends=True)
    for text, reason in (
        ("".join(lines)[:-30], r"samples_echo_.*:40: is not a sample of lm-eval, or was cut off"),
        ("".join(lines[:30]), "has 10 of the 20 samples"),
        ("", "has 0 of the 20 samples"),
        ('{"arm": 1}\n', "is not a sample of lm-eval"),
    ):
        samples.write_text(text)
        with pytest.raises(UsageError, match=reason) as refused:
            read(tmp_path / "small")
        assert "\n" not in str(refused.value)
    samples.write_text("".join(lines))
    results.write_text("{")
    with pytest.raises(UsageError, match="is not whole JSON"):
        read(tmp_path / "small")
    results.unlink()
    with pytest.raises(UsageError, match=r"the results file of its time, results_.*\.json, is not beside it"):
        read(tmp_path / "small")


def test_a_rerun_of_one_model_is_refused_with_both_files(read: Read, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"models/small/results_.* and .*limited/small/results_"):
        read("lm-eval/models/small", "lm-eval/limited", arm="model")


def with_perplexities(target: Path) -> Path:
    """Copy results and give each sample of `sums_mc` a pair (log-likelihood, words), as lm-eval writes for perplexities."""
    shutil.copytree(RESULTS / "models", target)
    for path in target.rglob("samples_sums_mc_*"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        changed = [{**row, "metrics": ["word_perplexity"], "word_perplexity": [-10.5, 3]} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in changed))
    return target


def test_tasks_that_only_have_perplexities_do_not_fail_on_other_metrics(read: Read, tmp_path: Path) -> None:
    results = read(with_perplexities(tmp_path / "mixed"))
    facts = compared(results, metric=["exact_match,flexible-extract"])
    own = values("models/small/samples_echo_*", "exact_match", "flexible-extract")
    assert (facts["candidate_mean"], facts["failed"]) == (pytest.approx(sum(own) / 20), 0)
    assert "sums_mc: word_perplexity is not one number a sample (not read)" in reading_line(results.reading)


def test_results_of_perplexities_alone_are_refused_by_name(read: Read, tmp_path: Path) -> None:
    directory = with_perplexities(tmp_path / "alone")
    for path in directory.rglob("samples_echo_*"):
        path.unlink()
    with pytest.raises(UsageError, match="no metric with one number a sample, only sums_mc: word_perplexity"):
        read(directory)
