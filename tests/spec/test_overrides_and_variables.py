"""`--set key=value`, `${VAR}` and `.env`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bakeoff.errors import SpecError, UsageError
from bakeoff.spec.formats import expand, read_env_file, variables
from bakeoff.spec.load import apply_override, load_plan
from bakeoff.spec.plan import Plan

FILE = """\
seeds = 2
[params]
command = ["echo", "{size}"]
size = 1
[[arms]]
name = "a"
[[arms]]
name = "b"
params = { size = 2 }
"""


def load(directory: Path, text: str = FILE, *overrides: str, name: str = "x.toml") -> Plan:
    (directory / name).write_text(text)
    return load_plan(directory / name, overrides)


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("seeds=5", ("seeds",), 5),
        ("seeds=1..3", ("seeds",), "1..3"),
        ("seeds=[1, 2]", ("seeds",), [1, 2]),
        ("name=hello world", ("name",), "hello world"),
        ("name='5'", ("name",), "5"),
        ("params.x=", ("params", "x"), ""),
        ("params.x=a=b", ("params", "x"), "a=b"),
        ("params.x=true", ("params", "x"), True),
        ("params.new.deep=1.5", ("params", "new", "deep"), 1.5),
        ("params.x={a = 1}", ("params", "x"), {"a": 1}),
        ("arms.b.params.size=7", ("arms", 1, "params", "size"), 7),
        ("arms.0.name=z", ("arms", 0, "name"), "z"),
        (" arms.1.flags=['-x']", ("arms", 1, "flags"), ["-x"]),
        ("params.command.1=7", ("params", "command", 1), 7),
    ],
)
def test_an_override_sets_one_value(override: str, path: tuple[Any, ...], value: Any) -> None:
    tree: dict[str, Any] = {"params": {"command": ["a", "b"]}, "arms": [{"name": "a"}, {"name": "b"}]}
    apply_override(tree, override)
    here: Any = tree
    for part in path:
        here = here[part]
    assert here == value and type(here) is type(value)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("seeds", "write key.path=value"),
        ("=5", "write key.path=value"),
        ("arms.c.name=x", "no entry called 'c'; there are a, 7"),
        ("arms.9.name=x", "no entry called '9'"),
        ("seeds.x=1", "'seeds' is not a table"),
        ("params.command.x=1", "no entry called 'x'; there are 2 without names"),
        ("params.command.0.x=1", "'0' is not a table"),
    ],
)
def test_an_override_that_leads_nowhere_is_refused(override: str, told: str) -> None:
    tree: dict[str, Any] = {"seeds": 3, "params": {"command": ["a", "b"]}, "arms": [{"name": "a"}, {"name": 7}]}
    with pytest.raises(UsageError, match=told):
        apply_override(tree, override)


def test_overrides_change_the_plan_and_the_last_one_wins(tmp_path: Path) -> None:
    plan = load(tmp_path, FILE, "seeds=3", "arms.b.params.size=9", "seeds=[4]", "matrix.lr=[1, 2]")
    assert plan.experiment.seeds == [4] and len(plan) == 4
    assert [cell.params["size"] for cell in plan.cells] == [1, 1, 9, 9]


def test_a_wrong_override_is_told_like_a_wrong_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"analysis\.metrik: unknown key\n  fix: did you mean 'metric'"):
        load(tmp_path, FILE, "analysis.metrik=x")


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${A}", "1"), ("x${A}y${B}", "x1y2"), ("${C:-none}", "none"), ("${A:-none}", "1"), ("${C:-}", ""),
        ("${EMPTY:-x}", "x"), ("${EMPTY}", ""), ("$$", "$"), ("$${A}", "${A}"), ("$A", "$A"), ("${1}", "${1}"), ("5$", "5$"),
        ("${C:-a b/c:d}", "a b/c:d"),
    ],
)  # fmt: skip
def test_variables_are_filled_in_as_a_shell_would(text: str, filled: str) -> None:
    assert expand(text, {"A": "1", "B": "2", "EMPTY": ""}) == filled


def test_variables_reach_every_text_and_keep_env_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "gpt")
    monkeypatch.setenv("SECRET", "hush")
    monkeypatch.setenv("N", "3")
    plan = load(
        tmp_path,
        """\
        seeds = "${N}"
        jobs = "${N}"
        params.command = ["run", "{model}", "$$HOME"]
        params.providers.local.headers = { authorization = "Bearer ${SECRET}" }
        [[arms]]
        name = "${MODEL}-arm"
        params = { model = "${MODEL}", list = ["${OTHER:-x}"], environment_variables = { TOKEN = "${SECRET}" } }
        [env]
        KEY = "${SECRET}"
        """,
    )
    cell = plan.cells[0]
    assert cell.arm.name == "gpt-arm" and cell.params["model"] == "gpt" and cell.params["list"] == ["x"]
    assert cell.params["command"] == ["run", "{model}", "$HOME"]
    assert plan.experiment.env == {"KEY": "${SECRET}"} and plan.experiment.jobs == 3 and len(plan) == 3
    assert cell.params["environment_variables"] == {"TOKEN": "${SECRET}"}
    assert cell.params["providers"]["local"]["headers"] == {"authorization": "Bearer ${SECRET}"}
    assert "hush" not in plan.experiment.model_dump_json()


@pytest.mark.parametrize("name", ["A=B", ""])
def test_names_that_no_environment_can_hold_are_refused_before_a_run_starts(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="environment variable is not empty and has no '='"):
        load(tmp_path, f"params.command = ['true']\n[env]\n'{name}' = 'x'\n")


def test_variables_that_are_not_set_are_all_told_with_their_lines(tmp_path: Path) -> None:
    text = 'params.command = ["true"]\n[[arms]]\nname = "a"\n[arms.params]\nx = "${NOT_SET_1}"\ny = ["${NOT_SET_2}"]\n'
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)
    assert [(p.key, p.line) for p in caught.value.problems] == [("arms.0.params.x", 5), ("arms.0.params.y.0", 6)]
    assert "export NOT_SET_1=..., put it into .env, or write ${NOT_SET_1:-default}" in str(caught.value)


def test_the_nearest_env_file_upwards_is_read_and_the_environment_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / ".env").write_text("FROM_FILE_T=far\n")
    monkeypatch.chdir(deep)
    assert variables()["FROM_FILE_T"] == "far"
    (tmp_path / "a" / ".env").write_text("FROM_FILE_T=near\n")
    assert variables()["FROM_FILE_T"] == "near"
    assert variables(tmp_path)["FROM_FILE_T"] == "far"
    monkeypatch.setenv("FROM_FILE_T", "environment")
    assert variables()["FROM_FILE_T"] == "environment"


def test_env_files_are_read_as_shells_read_them() -> None:
    text = """
# comment
A=1
export B = two words   # comment
C="quoted # not a comment"  # comment
D='single $x'
E=
F=a#b
G="unbalanced
not a line
H=x=y
I= # only a comment
"""
    assert read_env_file(text) == {
        "A": "1", "B": "two words", "C": "quoted # not a comment", "D": "single $x", "E": "", "F": "a#b",
        "G": '"unbalanced', "H": "x=y", "I": "",
    }  # fmt: skip
