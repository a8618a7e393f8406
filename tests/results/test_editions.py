"""Arms of several experiments side by side: only on the same tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bakeoff.errors import UsageError
from bakeoff.results.editions import open_editions
from bakeoff.verdicts.comparison import compare
from bakeoff.verdicts.observations import observe
from support import editions

TEXT = """\
name = "{name}"
seeds = "1..8"
[params]
command = ["true"]
[[arms]]
name = "base"
[[arms]]
name = "{arm}"
[[tasks]]
name = "small"
params = {{ size = {size} }}
[analysis]
metric = "score"
direction = "{direction}"
"""


def make(
    place: Path, name: str, arm: str = "extra", size: int = 1, direction: str = "maximize", lift: float = 0.0
) -> None:
    def outcome(who: str, seed: int) -> dict[str, Any]:
        value = seed % 5 + lift * (who == arm) + 0.01 * (len(name) + seed) * (seed % 2)
        return {"status": "succeeded", "metrics": {"score": value}}

    text = TEXT.format(name=name, arm=arm, size=size, direction=direction)
    editions.make_edition(place, name, outcome, text=text, files=False).close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "bakeoff-runs"


def test_one_name_is_every_arm_of_it(tmp_path: Path, root: Path) -> None:
    make(tmp_path, "one")
    source = open_editions(["one"], root)
    assert source.primary() == ["score"]
    assert source.arms == ["base", "extra"]


def test_arms_of_two_experiments_meet_on_task_and_seed(tmp_path: Path, root: Path) -> None:
    make(tmp_path, "one")
    make(tmp_path, "two", arm="better", lift=3.0)
    source = open_editions(["one:base", "two:better"], root)
    (found,) = compare([observe(source, "score")])
    assert (found.control, found.candidate, found.units, found.verdict) == ("base", "better", 8, "better")


def test_arms_of_one_name_keep_the_editions_name(tmp_path: Path, root: Path) -> None:
    make(tmp_path, "one")
    make(tmp_path, "two")
    source = open_editions(["one:base", "two:base"], root)
    assert all(name.endswith(":base") and "/" in name for name in source.arms)


def test_tasks_that_only_share_a_name_are_refused(tmp_path: Path, root: Path) -> None:
    make(tmp_path, "one", size=1)
    make(tmp_path, "two", size=2)
    with pytest.raises(UsageError, match="task 'small' is not the same"):
        open_editions(["one:base", "two:base"], root)


def test_declarations_that_contradict_each_other_are_refused(tmp_path: Path, root: Path) -> None:
    make(tmp_path, "one")
    make(tmp_path, "two", direction="minimize")
    with pytest.raises(UsageError, match="declare another direction"):
        open_editions(["one:base", "two:base"], root)


@pytest.mark.parametrize(("names", "message"), [
    (["one", "two"], "say which arm of it, as in one:ARM"),
    (["one:base"], "name another one beside it"),
    (["one:base", "one:base"], "named twice"),
    (["one:base", "nope:base"], "no experiment called 'nope'"),
])  # fmt: skip
def test_names_that_do_not_make_a_comparison_are_errors(
    tmp_path: Path, root: Path, names: list[str], message: str
) -> None:
    make(tmp_path, "one")
    make(tmp_path, "two")
    with pytest.raises(UsageError, match=message):
        open_editions(names, root)


def test_an_arm_that_is_not_there_is_an_error(tmp_path: Path, root: Path) -> None:
    make(tmp_path, "one")
    with pytest.raises(UsageError, match="no arm called 'nope'; there are base, extra"):
        open_editions(["one:base", "one:nope"], root)
