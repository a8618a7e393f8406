"""Logs that Inspect wrote (scripts/make_fixtures.py), read as they lie on disk."""

from __future__ import annotations

import json
import shutil
import sys
import types
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.results.importers.inspect_logs import InspectLogs, unzstd
from bakeoff.results.reading import reading_line
from bakeoff.results.table import Results
from bakeoff.verdicts.answer import answer
from bakeoff.verdicts.question import Compare
from support.tables import compared

LOGS = Path(__file__).parents[2] / "fixtures" / "inspect"
Read = Callable[..., Results]


def log(name: str, number: int = 0) -> Path:
    return sorted(place for place in (LOGS / name).iterdir())[number]


def unpack(path: Path) -> dict[str, bytes]:
    """Entries of a log, decompressed."""
    entries = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for entry in archive.infolist():
            file.seek(entry.header_offset + 26)
            name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
            file.seek(name + extra, 1)
            entries[entry.filename] = unzstd(file.read(entry.compress_size), entry.file_size)
    return entries


def pack(path: Path, entries: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def with_header(source: Path, target: Path, **changes: object) -> Path:
    """A copy of a log whose header differs."""
    entries = unpack(source)
    header = json.loads(entries["header.json"])
    for key, value in changes.items():
        place, *parts = key.split("__")
        if parts:
            header[place][parts[0]] = value
        else:
            header[place] = value
    return pack(target, {**entries, "header.json": json.dumps(header).encode()})


def test_errored_samples_are_failed_and_the_logs_own_accuracy_is_shown_beside_ours(read: Read) -> None:
    results = read("inspect/skill")
    assert results.arms == ["none", "calculator"] and len(results.tasks) == 12
    assert reading_line(results.reading) == (
        "read 12 samples x 2 logs of Inspect 0.3.285; arm = task_args.skill; 3 of 24 samples errored (failed); the log's own "
        "accuracy (1) leaves them out"
    )
    facts = compared(results)
    # Without the skill every third answer of 12 is wrong: 8/12. With it 3, 4 and 7 crash and all others are right: 9/12.
    assert (facts["control_mean"], facts["candidate_mean"]) == pytest.approx((8 / 12, 9 / 12))
    # 6, 9 and 12 are won, 4 and 7 lost: of 5 coins 3 to 2 is the likeliest split, mid-p 1 - P(3 or 2 heads)/2 = 1 - 20/64.
    assert facts["p"] == pytest.approx(1 - 20 / 64)


def test_an_infrastructure_error_is_missing(read: Read) -> None:
    results = read("inspect/skill", infra_error="503 from the sandbox")
    states = Counter((row.arm, row.status) for row in results.rows)
    assert states["calculator", "failed"] == 2 and states["calculator", "infra_error"] == 1
    assert "1 sample matched --infra-error (missing)" in reading_line(results.reading)
    with pytest.raises(UsageError, match=r"--infra-error: '\(' is not a regular expression"):
        read("inspect/skill", infra_error="(")


def test_letters_dicts_and_several_scorers_of_json_logs(read: Read) -> None:
    results = read("inspect/epochs")
    assert results.arms == ["mockllm/small", "mockllm/large"]
    assert results.metrics == ["letters", "parts/length", "parts/right", "includes"]
    assert "scored by letters (--metric for parts/length, parts/right, includes)" in reading_line(results.reading)
    letters = compared(results)
    # Wrong: small on 4 of 8 words, large on 1. A wrong answer is P (1/2) in the first epoch and N (0) in the second.
    assert letters["control_mean"] == pytest.approx((4 + 4 * 0.25) / 8)
    assert letters["candidate_mean"] == pytest.approx((7 + 0.25) / 8)
    right = compared(results, metric=["parts/right"])
    assert (right["control_mean"], right["candidate_mean"]) == (4 / 8, 7 / 8)
    assert {(row.task, row.rollout) for row in results.rows if row.arm == "mockllm/small"} == {
        (f"words/w{number}", epoch) for number in range(1, 9) for epoch in (0, 1)
    }


def test_an_error_with_a_score_is_scored_and_noted(read: Read) -> None:
    results = read("inspect/score-on-error")
    assert {row.status for row in results.rows} == {"succeeded"}
    assert sorted(row.task for row in results.rows if row.error) == ["sums/2", "sums/5"]
    assert "2 samples have an error and a score (scored)" in reading_line(results.reading)


def test_a_retried_log_beside_the_original_is_refused_with_both_files(read: Read) -> None:
    first, second = log("retried", 0), log("retried", 1)
    with pytest.raises(UsageError) as refused:
        read("inspect/retried")
    assert str(first) in str(refused.value) and str(second) in str(refused.value)
    newest = read("inspect/retried", reruns="newest")
    assert Counter(row.status for row in newest.rows) == {"succeeded": 12}
    assert all(row.metrics == {"match": 1.0} for row in newest.rows)
    assert "12 samples of older logs left out (--reruns newest)" in reading_line(newest.reading)
    seeds = read("inspect/retried", reruns="seeds")
    assert Counter(row.seed for row in seeds.rows) == {0: 12, 1: 12}


def test_a_log_that_ended_with_an_error_has_failed_cancelled_and_absent_samples(read: Read) -> None:
    results = read(log("retried", 0))
    states = {row.task: row.status for row in results.rows}
    assert states["sums/5"] == "failed"  # it raised
    # Inspect cancelled the samples that were running; the others never started.
    assert {task for task, state in states.items() if state == "infra_error"} == {f"sums/{n}" for n in range(6, 13)}
    assert any("the log's status is error (RuntimeError('tool crashed'))" in note for note in results.notes)
    assert "1 log with status error" in reading_line(results.reading)


def test_samples_that_a_started_log_does_not_have_yet_are_missing(read: Read) -> None:
    results = read("inspect/started/started.eval")
    assert Counter(row.status for row in results.rows) == {"succeeded": 8, "infra_error": 4}
    assert not any(row.metrics for row in results.rows if row.status == "infra_error")
    assert "4 samples missing; 1 log with status started" in reading_line(results.reading)


def test_a_log_that_grows_is_read_as_it_is_each_time(read: Read, tmp_path: Path) -> None:
    growing = tmp_path / "growing.eval"
    shutil.copy(LOGS / "started" / "started.eval", growing)
    assert Counter(row.status for row in read(growing).rows)["infra_error"] == 4
    shutil.copy(LOGS / "started" / "finished.eval", growing)
    assert Counter(row.status for row in read(growing).rows) == {"succeeded": 12}


def test_a_log_that_changes_while_it_is_read_is_said(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = tmp_path / "growing.eval"
    shutil.copy(LOGS / "started" / "started.eval", growing)
    reader = InspectLogs.read

    def read_then_grow(self: InspectLogs, paths: list[Path]) -> object:
        yield from reader(self, paths)
        shutil.copy(LOGS / "started" / "finished.eval", growing)

    monkeypatch.setattr(InspectLogs, "read", read_then_grow)
    assert f"{growing} changed while it was read; ask again when it is complete" in read(growing).notes


def test_limited_samples_are_not_missing(read: Read) -> None:
    results = read("inspect/limited")
    assert Counter(row.status for row in results.rows) == {"succeeded": 5}


def test_the_same_log_twice_is_refused(read: Read, tmp_path: Path) -> None:
    path = log("skill")
    with pytest.raises(UsageError, match="is read twice"):
        read(path, path)
    copy = tmp_path / "copy.eval"
    shutil.copy(path, copy)
    for reruns in ("refuse", "seeds"):
        with pytest.raises(UsageError, match=r"are the same log \(\w+\)"):
            read(path, copy, reruns=reruns, arm="model")


def test_logs_in_a_tree_are_found_and_other_files_are_not(read: Read, tmp_path: Path) -> None:
    for name, number in (("skill", 0), ("skill", 1)):
        place = tmp_path / "tree" / str(number) / "deep"
        place.mkdir(parents=True)
        shutil.copy(log(name, number), place)
    (tmp_path / "tree" / "logs.json").write_text("{}")
    (tmp_path / "tree" / ".hidden").mkdir()
    (tmp_path / "tree" / ".hidden" / "x.eval").write_text("nothing")
    assert len(read(tmp_path / "tree").rows) == 24


def test_arms_are_named_by_settings_that_differ(read: Read, tmp_path: Path) -> None:
    source = log("skill")
    for key, changes, arms in (
        ("model", {"eval__model": "openai/gpt"}, ["mockllm/model", "openai/gpt"]),
        ("model_args", {"eval__model_args": {"n": 2}}, ["no model_args.n", "2"]),
        ("config", {"eval__model_generate_config": {"temperature": 0.5}}, ["no config.temperature", "0.5"]),
        ("solver", {"eval__solver": "react"}, ["maybe_fail > generate", "react"]),
    ):
        other = with_header(source, tmp_path / f"{key}.eval", **changes, eval__eval_id=key)
        assert read(source, other).arms == arms


def test_what_differs_only_between_tasks_is_no_arm(read: Read, tmp_path: Path) -> None:
    paths = []
    for task, arguments in (("one", {"k": 1}), ("two", {"topic": "x"})):
        for model in ("a", "b"):
            changes = {
                "eval__task": task,
                "eval__task_args": arguments,
                "eval__model": model,
                "eval__eval_id": task + model,
            }
            paths.append(with_header(log("skill"), tmp_path / f"{task}{model}.eval", **changes))
    results = read(*paths)
    assert results.arms == ["a", "b"] and len(results.tasks) == 24


def test_ids_as_numbers_and_as_text_are_the_same_samples(read: Read, tmp_path: Path) -> None:
    entries = unpack(log("skill", 1))
    samples = json.loads(entries["summaries.json"])
    for sample in samples:
        sample["id"] = str(sample["id"])
    other = pack(tmp_path / "text.eval", {**entries, "summaries.json": json.dumps(samples).encode()})
    results = read(log("skill"), other)
    assert len(results.tasks) == 12 and len(results.rows) == 24


def test_nan_in_a_summary_is_no_score(read: Read, tmp_path: Path) -> None:
    entries = unpack(log("skill"))
    text = entries["summaries.json"].replace(b'"value":"C"', b'"value":NaN', 1)
    results = read(pack(tmp_path / "nan.eval", {**entries, "summaries.json": text}))
    assert Counter(row.status for row in results.rows) == {"succeeded": 11, "failed": 1}
    assert "1 of 12 samples without an error or a score (failed)" in reading_line(results.reading)


def test_logs_in_which_every_sample_errored_are_refused_with_the_reading_line(read: Read, tmp_path: Path) -> None:
    entries = unpack(log("skill"))
    samples = [{"id": i, "epoch": 1, "error": "no network"} for i in range(1, 13)]
    results = read(pack(tmp_path / "errors.eval", {**entries, "summaries.json": json.dumps(samples).encode()}))
    with pytest.raises(UsageError, match=r"no run reports any metric \(read 12 samples .*12 of 12 samples errored"):
        answer(results, Compare())


def test_samples_that_were_retried_are_counted(read: Read, tmp_path: Path) -> None:
    entries = unpack(log("skill"))
    samples = json.loads(entries["summaries.json"])
    for sample in samples[:2]:
        sample["retries"] = 1
    results = read(pack(tmp_path / "retried.eval", {**entries, "summaries.json": json.dumps(samples).encode()}))
    assert "2 samples run again after an error (retry_on_error)" in reading_line(results.reading)


def test_an_own_mean_by_another_reducer_is_shown_where_it_differs(read: Read, tmp_path: Path) -> None:
    header = json.loads(unpack(log("skill"))["header.json"])
    header["results"]["scores"][0] |= {"reducer": "max", "metrics": {"accuracy": {"name": "accuracy", "value": 0.75}}}
    results = read(with_header(log("skill"), tmp_path / "max.eval", results=header["results"]))
    assert "Inspect's own accuracy of max over epochs is 0.75, ours is 0.667" in reading_line(results.reading)


def test_samples_are_never_opened(read: Read, tmp_path: Path) -> None:
    entries = {
        name: content if not name.startswith("samples/") else b"?" for name, content in unpack(log("skill")).items()
    }
    entries["samples/1_epoch_1/sample.json"] = b"?"  # how chunked samples lie
    assert len(read(pack(tmp_path / "log.eval", entries)).rows) == 12


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"arm,score\na,1\n", "is not a whole Inspect log: File is not a zip file"),
        ("cut", "is not a whole Inspect log"),
        ("foreign", "the zip has neither header.json nor _journal/start.json"),
        ("torn entry", "is not a whole Inspect log"),
    ],
)
def test_a_file_that_is_no_log_is_one_line(read: Read, tmp_path: Path, content: bytes | str, reason: str) -> None:
    path = tmp_path / "x.eval"
    whole = log("skill").read_bytes()
    match content:
        case bytes():
            path.write_bytes(content)
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "foreign":
            pack(path, {"word/document.xml": b"<a/>"})
        case _:
            with zipfile.ZipFile(log("skill")) as archive:
                place = archive.getinfo("summaries.json").header_offset + 60
            path.write_bytes(whole[:place] + bytes(40) + whole[place + 40 :])
    with pytest.raises(UsageError, match=reason) as refused:
        read(path)
    assert "\n" not in str(refused.value) and str(refused.value).startswith(str(path))


def test_a_json_log_that_was_cut_off_is_one_line(read: Read, tmp_path: Path) -> None:
    whole = log("epochs").read_bytes()
    path = tmp_path / "2026-11-18T00-00-00_x.json"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="is not an Inspect log: Input data was truncated"):
        read(path)


def test_a_newer_version_is_refused_by_name_and_read_through_the_package(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_header(log("skill"), tmp_path / "new.eval", version=3)
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(
        UsageError, match=r"is an Inspect log of version 3, and versions up to 2 are read; `pip install"
    ):
        read(path)

    class Model:
        def __init__(self, facts: object) -> None:
            self._facts = facts

        def model_dump(self, mode: str) -> object:
            return self._facts

    entries = unpack(log("skill"))
    package = types.ModuleType("inspect_ai.log")
    package.read_eval_log = lambda place, header_only: Model(json.loads(entries["header.json"]))  # type: ignore[attr-defined]
    package.read_eval_log_sample_summaries = lambda place: [  # type: ignore[attr-defined]
        Model(sample) for sample in json.loads(entries["summaries.json"])
    ]
    monkeypatch.setitem(sys.modules, "inspect_ai", types.ModuleType("inspect_ai"))
    monkeypatch.setitem(sys.modules, "inspect_ai.log", package)
    assert len(read(path).rows) == 12


def test_fields_paths_and_patterns_name_arms_tasks_and_seeds(read: Read) -> None:
    assert read("inspect/skill", arm="task_args.skill").arms == ["none", "calculator"]
    assert len(set(read("inspect/skill", arm="path").arms)) == 2
    by_directory = read("inspect/skill", "inspect/started/finished.eval", arm=r"path:inspect/(\w+)/", reruns="newest")
    assert by_directory.arms == ["skill", "started"]
    tasks = read("inspect/skill", task="task")
    assert tasks.tasks == ["sums"] and {row.rollout for row in tasks.rows} == set(range(12))
    assert {row.seed for row in read("inspect/skill", seed="dataset.samples").rows} == {12}
    with pytest.raises(
        UsageError, match=r"--arm-from task_args\.depth: no such field; there are path, path:REGEX, model"
    ):
        read("inspect/skill", arm="task_args.depth")
    with pytest.raises(UsageError, match="--seed-from model gives 'mockllm/model', not a whole number"):
        read("inspect/skill", seed="model")
    with pytest.raises(UsageError, match=r"--arm-from path:zzz does not match this path"):
        read("inspect/skill", arm="path:zzz")


def test_the_reading_line_names_settings_that_differ_together_with_the_arm(read: Read, tmp_path: Path) -> None:
    for name, temperature in (("a", 0.0), ("b", 0.7)):
        settings = {
            "eval__model": name,
            "eval__model_generate_config": {"temperature": temperature},
            "eval__eval_id": name,
        }
        with_header(log("skill"), tmp_path / f"{name}.eval", **settings)
    line = reading_line(read(tmp_path).reading)
    assert "; arm = model (config.temperature differs with it)" in line


def test_every_metric_has_its_own_range(read: Read) -> None:
    results = read(LOGS / "epochs")
    ranges = {name: results.analysis.about(name).bounds for name in results.metrics}
    assert ranges == {"letters": (0, 1), "parts/length": None, "parts/right": None, "includes": (0, 1)}


def test_an_accuracy_over_other_numbers_than_shares_has_no_range(read: Read, tmp_path: Path) -> None:
    entries = unpack(log("skill"))
    samples = [{"id": i, "epoch": 1, "scores": {"match": {"value": i}}} for i in range(1, 13)]
    results = read(pack(tmp_path / "points.eval", {**entries, "summaries.json": json.dumps(samples).encode()}))
    assert results.analysis.about("match").bounds is None


def test_the_mean_of_a_log_that_a_newer_one_replaces_is_not_shown(read: Read, tmp_path: Path) -> None:
    for number in (1, 2):
        settings = {"eval__eval_id": str(number), "eval__created": f"2026-01-0{number}T00:00:00+00:00"}
        with_header(log("skill", 1), tmp_path / f"{number}.eval", **settings)
    results = read(tmp_path, reruns="newest")
    line = reading_line(results.reading)
    assert "12 samples of older logs left out (--reruns newest)" in line and "is not known" not in line


def test_logs_without_samples_are_refused_with_the_reason(read: Read, tmp_path: Path) -> None:
    path = with_header(log("skill"), tmp_path / "x.eval", eval__config={"log_samples": False})
    results = read(pack(path, {**unpack_plain(path), "summaries.json": b"[]"}))
    with pytest.raises(UsageError, match=r"1 log without samples \(log_samples is off\)"):
        answer(results, Compare())


def unpack_plain(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_infinite_score_is_refused_with_its_sample(read: Read, tmp_path: Path) -> None:
    samples = [{"id": i, "epoch": 1, "scores": {"match": {"value": 0.5}}} for i in range(1, 13)]
    samples[3]["scores"] = {"match": {"value": float("inf")}}
    entries = unpack(log("skill", 1))
    pack(tmp_path / "a.eval", {**entries, "summaries.json": json.dumps(samples).encode()})
    with pytest.raises(UsageError, match="task 'sums/4': match is inf"):
        answer(read(log("skill"), tmp_path / "a.eval"), Compare())


def test_a_log_that_was_never_scored_is_refused_and_not_judged_as_failed(read: Read, tmp_path: Path) -> None:
    samples = [{"id": i, "epoch": 1, "scores": None} for i in range(1, 13)]  # inspect eval --no-score
    path = pack(tmp_path / "a.eval", {**unpack(log("skill", 1)), "summaries.json": json.dumps(samples).encode()})
    with pytest.raises(UsageError, match=r"a\.eval: no sample was scored.*inspect score"):
        read(log("skill"), path)


def test_logs_of_one_task_that_were_scored_by_other_scorers_are_not_compared(read: Read, tmp_path: Path) -> None:
    _, second = (shutil.copy(log("epochs", number), tmp_path) for number in (0, 1))
    path = Path(second)
    path.write_text(path.read_text().replace('"letters"', '"grades"'))
    results = read(tmp_path)
    with pytest.raises(UsageError, match=r"has no 'letters' on words, but grades, .*arms have to be scored alike"):
        answer(results, Compare(metric="letters"))
    assert compared(results, metric="includes")["units"] == 8, "both have this one"
