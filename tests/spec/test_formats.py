"""TOML, YAML and JSON files: the same experiment in each gives the same plan, and errors name file, line, key and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.errors import SpecError, UsageError
from bakeoff.spec.formats import NotReadable, read
from bakeoff.spec.load import load_plan

TOML = """\
name = "sizes"
description = "three formats"
seeds = "1..3"
rollouts = 2
[params]
command = ["sort", "{size}", "{lr}", "{optimizer.name}"]
lr = 1e-3
[params.optimizer]
name = "adam"
[matrix]
size = [10, 20]
[[ablations]]
name = "plain"
params = { lr = 0.5 }
flags = ["--plain"]
[[tasks]]
name = "uniform"
params = { kind = "uniform" }
[[exclude]]
size = 20
seed = 3
[limits]
time = "5m"
[analysis]
metric = "seconds"
direction = "minimize"
"""
YAML = """\
name: sizes
description: three formats
seeds: 1..3
rollouts: 2
params:
  command: [sort, "{size}", "{lr}", "{optimizer.name}"]
  lr: 1e-3
  optimizer: {name: adam}
matrix:
  size: [10, 20]
ablations:
  - name: plain
    params: {lr: 0.5}
    flags: [--plain]
tasks:
  - name: uniform
    params: {kind: uniform}
exclude:
  - {size: 20, seed: 3}
limits: {time: 5m}
analysis: {metric: seconds, direction: minimize}
"""
JSON = """\
{
  "name": "sizes", "description": "three formats", "seeds": "1..3", "rollouts": 2,
  "params": {"command": ["sort", "{size}", "{lr}", "{optimizer.name}"], "lr": 1e-3, "optimizer": {"name": "adam"}},
  "matrix": {"size": [10, 20]},
  "ablations": [{"name": "plain", "params": {"lr": 0.5}, "flags": ["--plain"]}],
  "tasks": [{"name": "uniform", "params": {"kind": "uniform"}}],
  "exclude": [{"size": 20, "seed": 3}],
  "limits": {"time": "5m"},
  "analysis": {"metric": "seconds", "direction": "minimize"}
}
"""


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def problem_of(path: Path, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_plan(path, overrides)
    return str(caught.value)


def test_the_same_experiment_in_three_formats_is_the_same_plan(tmp_path: Path) -> None:
    files = [write(tmp_path, "a.toml", TOML), write(tmp_path, "b.yaml", YAML), write(tmp_path, "c.json", JSON)]
    toml, yaml, json_ = (load_plan(path) for path in files)
    assert toml.experiment == yaml.experiment == json_.experiment
    ids = [[run.run_id for run in plan] for plan in (toml, yaml, json_)]
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == len(toml) == 3 * 2 * 4 - 2 * 2


def test_a_file_without_a_name_is_called_after_itself(tmp_path: Path) -> None:
    assert load_plan(write(tmp_path, "mine.toml", "params.command = ['true']\n")).experiment.name == "mine"


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_bytes(b'\xef\xbb\xbf{"params": {"command": ["true"]}}')
    assert len(load_plan(path)) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1.5E+2", 150.0), (".5", 0.5), (".inf", float("inf")), ("010", 10), ("0x10", 16), ("0o10", 8),
        ("-3", -3), ("no", "no"), ("on", "on"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"), ("true", True),
        ("~", None), ("1_000", "1_000"),
    ],
)  # fmt: skip
def test_yaml_values_mean_what_they_say(text: str, value: object) -> None:
    found = read(f"x: {text}\n", ".yaml")["x"]
    assert found == value and type(found) is type(value)


def test_yaml_keys_are_text_as_they_are_everywhere_else() -> None:
    assert read("1: a\non: b\n1.0: c\n", ".yaml") == {"1": "a", "on": "b", "1.0": "c"}


def test_yaml_merges_and_anchors_work() -> None:
    text = "base: &b {x: 1, y: 2}\nmine: {<<: *b, y: 3}\n"
    assert read(text, ".yaml")["mine"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("suffix", "text", "line"),
    [(".toml", "x = 1\nx = 2\n", 2), (".yaml", "x: 1\ny: 2\nx: 3\n", 3), (".json", '{"x": 1,\n "x": 2}', None)],
)
def test_a_key_that_stands_twice_is_refused(suffix: str, text: str, line: int | None) -> None:
    with pytest.raises(NotReadable) as caught:
        read(text, suffix)
    assert caught.value.line == line


@pytest.mark.parametrize("key", ["? {a: 1}\n", "? [a, b]\n", "{a: 1}", "[a]"])
def test_a_yaml_key_that_is_a_table_or_a_list_is_refused_with_its_line(key: str) -> None:
    with pytest.raises(NotReadable, match="a key is text or a number") as caught:
        read(f"name: x\n{key}: 2\n", ".yaml")
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", 'command = ["echo", "a\\u0000b"]\n'),
        (".json", '{"command": "echo a\\u0000b"}'),
        (".yaml", 'command: "echo a\\0b"\n'),
    ],
)
def test_text_with_a_nul_character_is_refused_before_anything_runs(suffix: str, text: str) -> None:
    with pytest.raises(NotReadable, match="NUL character"):
        read(text, suffix)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.toml", "name = 'x'\nseeds = [1,\n", "a.toml:3: not valid TOML"),
        ("a.toml", "name = 'x'\n= 3\n", "a.toml:2: not valid TOML"),
        ("a.yaml", "name: x\nseeds: [1\nb: }\n", "a.yaml:3: not valid YAML"),
        ("a.yaml", "name: !!python/object/apply:os.system ['true']\n", "a.yaml:1: not valid YAML"),
        ("a.json", '{"name": "x"\n"seeds": 3}', "a.json:2: not valid JSON"),
        ("a.json", "[1, 2]", "a.json: an experiment file is a table"),
        ("a.yaml", "", "a.yaml: the file is empty"),
    ],
)
def test_text_that_cannot_be_read_is_told_with_its_line(tmp_path: Path, name: str, text: str, place: str) -> None:
    assert place in problem_of(write(tmp_path, name, text))


BROKEN_TOML = '''\
name = "x"
params.command = """
[analysis]
metrik = not a key
"""
seeds = [
  1,
  2,
]
arms = [
  { name = "a" },
  { name = "b", parms = { x = 1 } },
]

[[tasks]]
name = "t"

[[tasks]]
name = "u" # comment = [
pth = "nowhere"

[analysis]
"metrik" = 'x'
[analysis.summary]
typ = "auc"
'''
BROKEN_YAML = """\
name: x
params: {command: [echo]}
seeds: [1, 2]
arms:
  - name: a
  - name: b
    parms: {x: 1}
tasks:
  - name: t
  - name: u
    pth: nowhere
analysis:
  metrik: x
  summary:
    typ: auc
"""
BROKEN_JSON = """\
{
\t"name": "x",
\t"params": {"command": ["echo"]},
\t"seeds": [1, 2],
\t"arms": [
\t\t{"name": "a"},
\t\t{"name": "b",
\t\t "parms": {"x": 1}}
\t],
\t"tasks": [{"name": "t"},
\t\t{"name": "u", "pth": "nowhere"}],
\t"analysis": {
\t\t"metrik": "x",
\t\t"summary": {"typ": "auc"}
\t}
}
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("x.toml", BROKEN_TOML, (12, 20, 23, 25)),
        ("x.yaml", BROKEN_YAML, (7, 11, 13, 15)),
        ("x.json", BROKEN_JSON, (8, 11, 13, 14)),
    ],
)
def test_unknown_keys_are_refused_at_every_level_with_line_and_suggestion(
    tmp_path: Path, name: str, text: str, lines: tuple[int, ...]
) -> None:
    path = write(tmp_path, name, text)
    message = problem_of(path)
    keys = ("arms.1.parms", "tasks.1.pth", "analysis.metrik", "analysis.summary.typ")
    meant = ("params", "path", "metric", "type")
    for key, line, word in zip(keys, lines, meant, strict=True):
        assert f"{path}:{line}: {key}: unknown key\n  fix: did you mean {word!r}?" in message


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("seedz", "seedz = 3"),
        ("limits.tme", "[limits]\ntme = 3"),
        ("retries.infr", "[retries]\ninfr = 3"),
        ("budget.cst", "[budget]\ncst = 3"),
        ("concurrency.0.limt", "[[concurrency]]\nby = 'arm'\nlimit = 1\nlimt = 3"),
        ("ablations.0.flag", "[[ablations]]\nname = 'a'\nflag = []"),
        ("cells.0.rollout", "[[cells]]\narm = 'a'\ntask = 't'\nrollout = 3"),
    ],
)
def test_every_section_refuses_unknown_keys(tmp_path: Path, section: str, text: str) -> None:
    message = problem_of(write(tmp_path, "x.toml", f"params.command = ['true']\n{text}\n"))
    assert f"{section}: unknown key" in message and "did you mean" in message


def test_a_key_like_no_other_lists_those_that_are_known(tmp_path: Path) -> None:
    said = problem_of(write(tmp_path, "x.toml", "zzz = 3\n"))
    assert "known keys: name, description" in said and said.endswith("parameters of a run belong into params")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seeds = 3\n[matrix]\nsize = 10\n", "x.toml:3: matrix.size: must be a list, not 10\n  fix: write it as a list"),
        ("[params]\ncommand = ['{x}']\n[params.x]\ny = 1\n", "x.toml:1: params: command: {x} is not a parameter"),
        ("params.command = ['true']\nexclude = [3]\n", "x.toml:2: exclude.0: a rule is a table"),
        ("params.command = [true, {}]\n", "x.toml:1: params.command"),
        ("params.command = []\n", "x.toml:1: params.command"),
        ("name = ' x'\n", "x.toml:1: name: a name has no line breaks"),
        ("name = 'latest'\n", "x.toml:1: name: 'latest' means"),
        ("workload = 'comand'\n", "x.toml:1: workload: no workload called 'comand'; did you mean 'command'?"),
        ("[[arms]]\nparams = {}\n", "x.toml:1: arms.0.name: is needed\n  fix: add name = ..."),
    ],
)  # fmt: skip
def test_wrong_values_are_told_with_line_and_key(tmp_path: Path, text: str, told: str) -> None:
    message = problem_of(write(tmp_path, "x.toml", text))
    assert told in message
    assert "list[" not in message and "function-" not in message


def test_files_that_are_not_there_or_no_files_are_told(tmp_path: Path) -> None:
    write(tmp_path, "sorting.toml", "")
    write(tmp_path, "notes.txt", "")
    for wrong in ("sortin.toml", "sorting"):
        with pytest.raises(UsageError, match=r"no such file; did you mean .*sorting\.toml"):
            load_plan(tmp_path / wrong)
    with pytest.raises(UsageError, match=r"ends in \.toml, \.yaml, \.yml, \.json"):
        load_plan(tmp_path / "notes.txt")
    with pytest.raises(UsageError, match="is a directory; there is no experiment file in it"):
        load_plan(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_plan(tmp_path / "latin.toml")
