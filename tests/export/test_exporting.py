"""What is selected, grouped, kept back and written."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bakeoff.errors import UsageError
from bakeoff.export import exporting
from bakeoff.export.exporting import FORMATS, NothingLeft, export
from bakeoff.export.rollouts import Filters, read_rollouts
from bakeoff.results.table import Results


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def everything(place: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(place.rglob("*")) if path.is_file()]
    return {str(path.relative_to(place)): path.read_bytes() for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_same_edition_gives_the_same_bytes(name: str, results: Results, exported: Path, tmp_path: Path) -> None:
    form = FORMATS[name]
    export(results, name, Filters(), output=tmp_path / form.file)
    assert everything(tmp_path).items() <= everything(exported).items()


@pytest.mark.parametrize("name", FORMATS)
def test_what_the_agent_could_not_see_stays_at_home(name: str, exported: Path) -> None:
    if name == "parquet":
        assert "truth" not in pl.read_parquet_schema(exported / "steps.parquet")
    else:
        place = exported / FORMATS[name].file
        files = everything(place) if place.is_dir() else {"": place.read_bytes()}
        assert not any(b"theta" in content for content in files.values())


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_the_truth_leaves_only_when_it_is_asked_for(name: str, results: Results, tmp_path: Path) -> None:
    path = tmp_path / FORMATS[name].file
    export(results, name, Filters(arms=["numeric"]), with_truth=True, output=path)
    found = pl.read_parquet(path) if name == "parquet" else pl.read_ndjson(path)
    assert "theta" in str(found["truth"][0])


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if not form.holds_truth])
def test_a_format_without_a_place_for_the_truth_says_so(name: str, results: Results, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="jsonl and parquet have one"):
        export(results, name, Filters(), with_truth=True, output=tmp_path / "out")


def test_arms_that_are_the_same_policy_share_groups_and_others_never_do(results: Results) -> None:
    found: dict[str, set[str]] = {}
    for rollout in read_rollouts(results, Counter()):
        found.setdefault(rollout.group, set()).add(rollout.run.arm)
    arms = Counter(tuple(sorted(arms)) for arms in found.values())
    assert arms == {("chat", "twin"): 4, ("forgetful",): 4, ("numeric",): 4}


def test_success_keeps_single_rollouts_for_imitation(results: Results, tmp_path: Path) -> None:
    summary = export(results, "trl-sft", Filters(success=True), output=tmp_path / "sft.jsonl")
    assert {row["rollout"] for row in rows(tmp_path / "sft.jsonl")} == {2}
    assert summary.dropped["no success"] == 48 - 11  # rollout 2 of all but the world without rewards; one broke


def test_success_keeps_whole_groups_for_group_relative_updates(results: Results, tmp_path: Path) -> None:
    summary = export(results, "trl-grpo", Filters(success=True), output=tmp_path / "grpo.jsonl")
    found = rows(tmp_path / "grpo.jsonl")
    assert {row["rollout"] for row in found} == {0, 1, 2}
    assert ("sub", 2) not in {(row["task"], row["seed"]) for row in found}
    assert summary.equal_groups == 0


def test_quantiles_are_taken_inside_each_task(results: Results, tmp_path: Path) -> None:
    filters = Filters(arms=["numeric"], quantile=(0.9, 1.0))
    export(results, "jsonl", filters, output=tmp_path / "best.jsonl")
    assert {(row["task"], row["return"]) for row in rows(tmp_path / "best.jsonl")} == {("add", 1.0), ("sub", 10.0)}


def test_groups_that_are_too_small_are_left_out_and_counted(results: Results, tmp_path: Path) -> None:
    summary = export(results, "jsonl", Filters(), min_group=4, output=tmp_path / "steps.jsonl")
    assert {row["arm"] for row in rows(tmp_path / "steps.jsonl")} == {"chat", "twin"}
    assert summary.dropped == {"fewer than 4 rollouts in the group": 24}
    assert (summary.groups, summary.rollouts) == (4, 24)


def test_a_numeric_policy_is_told_as_a_conversation_only_when_asked(results: Results, tmp_path: Path) -> None:
    only = Filters(arms=["numeric"])
    with pytest.raises(NothingLeft) as nothing:
        export(results, "trl-sft", only, output=tmp_path / "sft.jsonl")
    assert any("--render" in reason for reason in nothing.value.summary.dropped)
    assert list(tmp_path.iterdir()) == []
    export(results, "trl-sft", only, render=True, output=tmp_path / "sft.jsonl")
    first = rows(tmp_path / "sft.jsonl")[0]
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]
    assert json.loads(first["completion"][0]["content"]) == [0, -1]


def test_rendered_actions_are_never_passed_off_as_a_language_models_own(results: Results, tmp_path: Path) -> None:
    only = Filters(arms=["numeric"])
    export(results, "art", only, render=True, output=tmp_path / "art.jsonl")
    (first, *_) = rows(tmp_path / "art.jsonl")[0]["trajectories"]
    assert not any("finish_reason" in message for message in first["messages_and_choices"])
    export(results, "verifiers", only, render=True, output=tmp_path / "verifiers")
    trace = rows(tmp_path / "verifiers/traces.jsonl")[0]["traces"][0]
    assert not trace["agent"]["trainable"] and not any(node["sampled"] for node in trace["nodes"])


def test_a_name_that_is_not_there_is_an_error(results: Results) -> None:
    with pytest.raises(UsageError, match="--arms chta: there is no such arm; there are chat"):
        export(results, "jsonl", Filters(arms=["chta"]))


def test_the_default_place_is_in_the_edition_and_says_what_is_in_it(results: Results) -> None:
    summary = export(results, "verifiers", Filters(arms=["chat"]))
    assert summary.output == results.edition.paths.directory / "export/verifiers"
    told = json.loads((summary.output / "export.json").read_text())
    assert (told["rows"], told["experiment"], told["filters"]["arms"]) == (12, "talks", ["chat"])
    again = export(results, "verifiers", Filters(arms=["twin"]))
    assert {row["traces"][0]["info"]["arm"] for row in rows(again.output / "traces.jsonl")} == {"twin"}


def test_a_directory_that_holds_something_else_is_left_alone(results: Results, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="is not an export of bakeoff"):
        export(results, "atif", Filters(), output=tmp_path)
    with pytest.raises(UsageError, match="is a directory"):
        export(results, "jsonl", Filters(), output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_export_that_fails_leaves_the_earlier_one_whole(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "steps.jsonl"
    export(results, "jsonl", Filters(), output=path)
    before = everything(tmp_path)

    def fail(_summary: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(exporting, "to_json", fail)
    with pytest.raises(OSError, match="disk full"):
        export(results, "jsonl", Filters(arms=["chat"]), output=path)
    assert everything(tmp_path) == before


def test_a_trajectory_whose_file_is_gone_is_counted(results: Results, tmp_path: Path) -> None:
    victim = next(read_rollouts(results, Counter())).path
    moved = victim.rename(tmp_path / "elsewhere")
    try:
        summary = export(results, "jsonl", Filters(), output=tmp_path / "steps.jsonl")
    finally:
        moved.rename(victim)
    assert summary.dropped == {"file is missing": 1}
    assert summary.rollouts == 47
