"""Run ids: what goes in, what does not, and that no two runs share one."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from bakeoff.errors import SpecError
from bakeoff.spec.expand import expand
from bakeoff.spec.experiment import ExperimentFile
from bakeoff.spec.identity import RunIds, canonical_json, directory_digest, slug
from bakeoff.spec.plan import Plan
from bakeoff.workloads.python import PythonParams

texts = st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
tricky = st.sampled_from(["a", '"rollout":0,"seed":0,', '\\","rollout":0,"seed":0,"', "seed", "é\n\0"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arm=texts | tricky,
    task=texts | tricky,
    digest=st.none() | texts,
    params=st.dictionaries(texts | tricky, values | st.just({"rollout": 0, "seed": 0, "t": 1}), max_size=4),
    flags=st.lists(texts, max_size=2),
    seed=st.integers(-(2**63), 2**63 - 1),
    rollout=st.integers(0, 10**6),
)
def test_the_digest_is_that_of_the_whole_identity(
    arm: str, task: str, digest: str | None, params: dict[str, Any], flags: list[str], seed: int, rollout: int
) -> None:
    identity = {
        "arm": arm,
        "params": params,
        "rollout": rollout,
        "seed": seed,
        "task": task if digest is None else [task, digest],
        "workload": ["python", "1"],
        **({"flags": flags} if flags else {}),
    }
    ids = RunIds(
        workload="python",
        revision="1",
        arm=arm,
        task=task,
        task_digest=digest,
        params=canonical_json(params),
        flags=flags,
    )
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert ids.run_id(seed, rollout).rpartition("__")[2] == hashlib.sha256(text.encode()).hexdigest()[:12]


def plan_of(**content: Any) -> Plan:
    given_ = {"name": "x", "workload": "python", **content}
    given_["params"] = {"function": "m:f", **content.get("params", {})}
    return expand(ExperimentFile.model_validate(given_), base=Path("/nowhere"))


def ids(plan: Plan) -> set[str]:
    return {run.run_id for run in plan}


def test_ids_depend_on_neither_order_nor_number_of_seeds_nor_place_nor_what_else_is_in_the_file(tmp_path: Path) -> None:
    small = plan_of(params={"a": 1, "b": {"c": 2, "d": 3}}, matrix={"p": ["x", "y"]}, seeds=[1, 2])
    large = plan_of(
        params={"b": {"d": 3, "c": 2}, "a": 1}, matrix={"p": ["z", "y", "x"]}, seeds="1..9", jobs=3, rollouts=2,
        description="other", analysis={"metric": "m"}, env={"HOME": "${HOME}"}, ablations=[{"name": "n"}],
    )  # fmt: skip
    assert ids(small) < ids(large)
    content = {"name": "x", "workload": "python", "params": {"function": "m:f"}}
    here = expand(ExperimentFile.model_validate(content), base=tmp_path)
    there = expand(ExperimentFile.model_validate(content), base=Path("/elsewhere"))
    assert ids(here) == ids(there)


def test_every_part_of_what_a_run_is_changes_its_id() -> None:
    base = {"params": {"a": 1}, "arms": [{"name": "x"}], "tasks": [{"name": "t"}], "seeds": [1]}
    changes: list[dict[str, Any]] = [
        {"params": {"a": 2}},
        {"params": {"a": 1.5}},
        {"params": {"a": "1"}},
        {"params": {"a": 1, "b": None}},
        {"arms": [{"name": "y"}]},
        {"arms": [{"name": "x", "flags": ["-f"]}]},
        {"arms": [{"name": "x", "params": {"flags": ["-f"]}}]},
        {"tasks": [{"name": "u"}]},
        {"seeds": [2]},
    ]
    found = [next(iter(ids(plan_of(**{**base, **change})))) for change in ({}, *changes)]
    assert len(set(found)) == len(found)


def test_a_task_that_is_a_directory_goes_by_its_content_and_name(tmp_path: Path) -> None:
    def id_of(base: Path, name: str = "t") -> str:
        content = {
            "name": "x",
            "workload": "python",
            "params": {"function": "m:f"},
            "tasks": [{"name": name, "path": "d"}],
        }
        return next(iter(ids(expand(ExperimentFile.model_validate(content), base=base))))

    for place in ("a", "b"):
        (tmp_path / place / "d").mkdir(parents=True)
        (tmp_path / place / "d" / "f").write_text("same")
    assert id_of(tmp_path / "a") == id_of(tmp_path / "b")
    first, second = id_of(tmp_path / "a", "a b"), id_of(tmp_path / "a", "a_b")
    assert first != second  # both names look the same in a file name
    before = id_of(tmp_path / "b")
    (tmp_path / "b" / "d" / "f").write_text("other")
    assert id_of(tmp_path / "b") != before


class Before(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1


class Inner(BaseModel):
    depth: int = 3


class After(Before):
    speed: float = 2.0
    inner: Inner = Inner()


def test_a_default_that_is_added_later_changes_no_id() -> None:
    for given_ in ({}, {"size": 1}, {"size": 5}):
        old, new = Before.model_validate(given_), After.model_validate(given_)
        assert old.model_dump(mode="json", exclude_defaults=True) == new.model_dump(mode="json", exclude_defaults=True)


names = st.text("ab _,+=/é", min_size=1, max_size=5).filter(lambda name: name == name.strip())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arms=st.lists(names, min_size=1, max_size=4, unique=True),
    tasks=st.lists(names, max_size=3, unique=True),
    axis=st.lists(st.integers(0, 5) | names, min_size=1, max_size=3, unique_by=str),
    ablations=st.lists(names, max_size=2, unique=True),
    seeds=st.integers(1, 3),
    rollouts=st.integers(1, 3),
)
def test_two_runs_of_a_plan_never_share_an_id(
    arms: list[str], tasks: list[str], axis: list[Any], ablations: list[str], seeds: int, rollouts: int
) -> None:
    from bakeoff.errors import SpecError

    try:
        plan = plan_of(
            arms=[{"name": name} for name in arms], tasks=[{"name": name} for name in tasks], matrix={"q": axis},
            ablations=[{"name": name} for name in ablations], seeds=seeds, rollouts=rollouts,
        )  # fmt: skip
    except SpecError as error:
        assert "are called" in str(error)  # "a" with value "b,a" and "a,b" with "a"
        return
    found = [run.run_id for run in plan]
    assert len(set(found)) == len(found) == len(plan)
    for run_id in found:
        assert "/" not in run_id and not run_id.startswith((".", "-")) and len(os.fsencode(run_id)) < 200


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_a_slug_is_safe_in_a_file_name(text: str) -> None:
    clean = slug(text)
    assert 0 < len(clean) <= 48 and clean.isascii() and not set(clean) & set("/\\\0 \n'\"$") and clean[0] not in ".-"


def test_canonical_json_has_names_for_numbers_that_json_lacks() -> None:
    assert canonical_json({"b": float("nan"), "a": [float("inf"), "é"]}) == '{"a":[Infinity,"\\u00e9"],"b":NaN}'
    assert len({run.run_id for run in plan_of(matrix={"x": [float("inf"), 1.0]})}) == 2


def make(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def test_a_directory_is_what_its_files_say(tmp_path: Path) -> None:
    files = {"a.txt": "1", "sub/b.txt": "2"}
    first, second = make(tmp_path / "one", files), make(tmp_path / ".git" / "two", files)
    os.utime(second / "a.txt", (0, 0))
    make(second, {".git/config": "x", "__pycache__/a.pyc": "x"})
    assert directory_digest(first) == directory_digest(second)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: (d / "a.txt").write_text("2"),
        lambda d: (d / "a.txt").rename(d / "c.txt"),
        lambda d: (d / "a.txt").chmod(0o755),
        lambda d: (d / "new").write_text(""),
        lambda d: (d / "link").symlink_to("a.txt"),
        lambda d: (d / "dir-link").symlink_to("sub"),
        lambda d: (d / "dangling").symlink_to("nowhere"),
        lambda d: (d / os.fsdecode(b"\xff")).write_text(""),
    ],
)
def test_every_change_of_content_changes_the_digest(tmp_path: Path, change: Any) -> None:
    directory = make(tmp_path / "task", {"a.txt": "1", "sub/b.txt": "2"})
    before = directory_digest(directory)
    change(directory)
    assert directory_digest(directory) != before


def test_a_file_has_a_digest_too_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, {"a": "1", "b": "1", "c": "2"})
    assert directory_digest(tmp_path / "a") == directory_digest(tmp_path / "b") != directory_digest(tmp_path / "c")
    with pytest.raises(FileNotFoundError):
        directory_digest(tmp_path / "gone")


numbers = st.integers() | st.floats()


@given(
    names=st.lists(
        texts | tricky | st.sampled_from(["a", "b%", "%(a)s", "\u00e9"]), min_size=1, max_size=3, unique=True
    ),
    rows=st.data(),
    note=st.sampled_from(["x", "50%", "%(a)s", "{}"]),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cells_that_differ_in_numbers_only_have_the_ids_that_each_has_alone(
    names: list[str], rows: st.DataObject, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first of them is validated and written as JSON whole."""
    arms = [{"name": f"arm{number}", "params": {name: rows.draw(numbers) for name in names}} for number in range(3)]
    content = {"arms": arms, "params": {"note": note}}
    try:
        together = [run.run_id for run in plan_of(**content)]
    except SpecError:  # a name or a value that no file may have
        return
    with monkeypatch.context() as patch:
        patch.setattr(PythonParams, "free_numbers", False)
        assert [run.run_id for run in plan_of(**content)] == together
