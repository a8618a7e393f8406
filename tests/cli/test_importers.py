"""Importers of other packages, installed as pip installs them, and sources that are read together."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff import plugins
from bakeoff.errors import UsageError
from bakeoff.results.importers.identity import Tracked, name_arms
from bakeoff.results.reading import reading_line
from bakeoff.results.sources import open_results

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures"
Install = Callable[..., None]
PAGE = (Path(__file__).parents[2] / "docs" / "write-an-importer.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```python\n(# quizlog\.py\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install("quiz", quiz="quizlog:QuizLogs")` puts a module and its entry points on the path."""
    modules = set(sys.modules)
    site = tmp_path / "site"

    def call(package: str, code: str, **entries: str) -> None:
        metadata = site / f"{package}-1.dist-info"
        metadata.mkdir(parents=True)
        (site / f"{package}.py").write_text(code)
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (metadata / "entry_points.txt").write_text(f"[bakeoff.importers]\n{lines}")
        monkeypatch.syspath_prepend(str(site))
        plugins.entry_points.cache_clear()

    yield call
    plugins.entry_points.cache_clear()
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(site) in str(sys.modules[name].__file__):
            del sys.modules[name]


def quiz(path: Path, model: str, lift: float, *, temperature: float = 0.0, mean: float | None = None) -> Path:
    """A log of the example's tool: twelve answers of one model."""
    samples = [
        {"id": f"q{n}", "topic": f"t{n % 4}", "score": lift + n % 5 / 10, "said": f"answer {n}"} for n in range(12)
    ]
    log = {"version": "2.1", "model": model, "temperature": temperature, "samples": samples}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(log | ({} if mean is None else {"mean_score": mean})))
    return path


def test_the_example_of_the_page_reads_a_file_and_a_directory(
    bakeoff: Bakeoff, install: Install, tmp_path: Path
) -> None:
    install("quizlog", EXAMPLE, quiz="quizlog:QuizLogs")
    for number, (model, lift) in enumerate((("small", 0.0), ("large", 0.2))):
        quiz(tmp_path / "logs" / f"{number}.quiz", model, lift)
    compared = bakeoff("compare", "logs", "--json")
    assert compared.exit_code == 0, compared.stderr
    answer = json.loads(compared.stdout)
    (one,) = answer["comparisons"]
    assert (one["control"], one["candidate"], one["verdict"]) == ("small", "large", "better")
    assert answer["settings"]["directions"] == {"score": "maximize"} and answer["settings"]["bounds"] == [0, 1]
    by_name = json.loads(bakeoff("compare", "logs/0.quiz", "logs/1.quiz", "--json").stdout)
    assert by_name["comparisons"] == answer["comparisons"]


def test_a_transcript_is_read_when_somebody_opens_it(install: Install, tmp_path: Path) -> None:
    install("quizlog", EXAMPLE, quiz="quizlog:QuizLogs")
    path = quiz(tmp_path / "logs" / "a.quiz", "small", 0.0)
    row = open_results([str(path)], tmp_path / "root").rows[3]
    assert row.source is not None and (row.source.path, row.source.member) == (path, "q3")
    assert [message.content for message in row.messages()] == ["answer 3"]
    path.write_text(path.read_text().replace("answer 3", "corrected"))
    with pytest.raises(UsageError, match=r"a\.quiz changed since its runs were read"):
        row.messages()


def test_an_imported_log_is_judged_as_the_log_is_and_its_digests_are_kept(
    bakeoff: Bakeoff, install: Install, tmp_path: Path
) -> None:
    install("quizlog", EXAMPLE, quiz="quizlog:QuizLogs")
    for model, lift in (("small", 0.0), ("large", 0.2)):
        quiz(tmp_path / "logs" / f"{model}.quiz", model, lift, mean=0.9)
    assert bakeoff("import", "logs", "--name", "quiz").exit_code == 0
    source, edition = (json.loads(bakeoff("compare", name, "--json").stdout) for name in ("logs", "quiz"))
    assert edition["source"].startswith("quiz/2")
    assert edition["comparisons"] == source["comparisons"]
    (kept,) = Path("bakeoff-runs/quiz").glob("2*/imported.json")
    imported = json.loads(kept.read_text())
    assert [Path(each["path"]).name for each in imported["sources"]] == ["large.quiz", "small.quiz"]
    assert len({each["digest"] for each in imported["sources"]}) == 2
    assert imported["tools"] == [["quizlog", "2.1"]]
    again = bakeoff("import", "logs", "--name", "quiz").stdout
    assert "runs were imported already, as quiz/2" in again
    assert len(list(Path("bakeoff-runs/quiz").glob("2*/imported.json"))) == 1
    quiz(tmp_path / "logs/large.quiz", "large", 0.3, mean=0.9)
    assert bakeoff("import", "logs", "--name", "quiz").stdout.startswith("imported ")
    assert len(list(Path("bakeoff-runs/quiz").glob("2*/imported.json"))) == 2


def test_the_notes_of_every_source_are_kept(bakeoff: Bakeoff, install: Install, tmp_path: Path) -> None:
    install("quizlog", EXAMPLE, quiz="quizlog:QuizLogs")
    first = quiz(tmp_path / "logs" / "a.quiz", "small", 0.0)
    second = quiz(tmp_path / "logs" / "b.quiz", "large", 0.2, mean=0.9)
    reading = open_results([str(first), str(second)], tmp_path / "root").reading
    assert reading_line(reading) == (
        "read 12 runs x 2 files of quizlog 2.1; arm = model; quizlog's own score of large is 0.9, ours is 0.375"
    )


def test_settings_that_differ_become_part_of_the_arm(install: Install, tmp_path: Path) -> None:
    install("quizlog", EXAMPLE, quiz="quizlog:QuizLogs")
    for number, temperature in enumerate((0.0, 0.7)):
        quiz(tmp_path / "logs" / f"{number}.quiz", "small", 0.0, temperature=temperature)
    assert open_results([str(tmp_path / "logs")], tmp_path / "root").arms == ["0.0", "0.7"]
    quiz(tmp_path / "logs" / "2.quiz", "large", 0.1, temperature=0.7)
    results = open_results([str(tmp_path / "logs")], tmp_path / "root")
    assert results.arms == ["small, temperature=0.0", "small, temperature=0.7", "large, temperature=0.7"]
    assert "arms are told apart by model, temperature" in results.notes


def test_a_directory_names_the_arm_only_where_nothing_else_differs() -> None:
    assert name_arms([{"model": "a", "directory": "x"}, {"model": "a", "directory": "y"}]).names == ["x", "y"]
    assert name_arms([{"model": "a", "directory": "x"}, {"model": "b", "directory": "y"}]).names == ["a", "b"]
    assert name_arms([{"model": "a", "size": 1}, {"model": "a", "size": 1}]).names == ["a", "a"]
    assert name_arms([{"model": "a"}, {"model": "b"}, {"model": "a", "k": 2}]).names == ["a, no k", "b, no k", "a, k=2"]


FAILING = """
from bakeoff.results.importers.foreign import ForeignRun, Source

class Importer:
    name = "failing"
    def claims(self, path):
        if path.name == "bad.log":
            raise RuntimeError("no idea\\nof this")
        return [path] if path.suffix == ".log" else sorted(path.glob("*.log"))
    def read(self, paths):
        for path in paths:
            text = path.read_text()
            if text == "broken":
                raise ZeroDivisionError("division by zero")
            yield text if text == "text" else ForeignRun(labels={"arm": text}, source=Source(path), seed="3")

IMPORTER = Importer()
"""


@pytest.mark.parametrize("entry", ["failing:Importer", "failing:IMPORTER"])
def test_what_a_plug_in_raises_is_one_line_with_its_name_and_the_file(
    bakeoff: Bakeoff, install: Install, tmp_path: Path, entry: str
) -> None:
    install("failing", FAILING, broken=entry)
    for name, text in (("bad.log", "x"), ("a.log", "x"), ("b.log", "broken"), ("c.log", "text")):
        (tmp_path / name).write_text(text)
    for name, reason in (
        ("bad.log", "RuntimeError: no idea"),
        ("b.log", "ZeroDivisionError: division by zero"),
        ("c.log", "TypeError: yielded str, not a ForeignRun or a Reading"),
        ("a.log", "TypeError: seed '3' is not a whole number"),
    ):
        for verb in ("compare", "import"):
            result = bakeoff(verb, name)
            assert result.exit_code == 2
            (line,) = result.stderr.splitlines()
            assert line.endswith(f"{name}: the importer 'broken' failed: {reason}")


def test_a_plug_in_that_cannot_be_imported_does_not_take_tables_away(
    bakeoff: Bakeoff, install: Install, tmp_path: Path
) -> None:
    install("gone", "", gone="gone:Nothing")
    rows = "".join(f"{arm},{seed},{seed + (arm == 'b')}\n" for seed in range(8) for arm in "ab")
    (tmp_path / "t.csv").write_text(f"arm,seed,score\n{rows}")
    result = bakeoff("compare", "t.csv")
    assert result.exit_code == 0
    assert "'gone' (gone:Nothing) cannot be imported" in result.stdout


GREEDY = """
from bakeoff.results.importers.foreign import ForeignRun, Source

class Greedy:
    def __init__(self, arm="b"):
        self.name = arm
    def claims(self, path):
        return [path] if path.suffix == ".csv" else ()
    def read(self, paths):
        for path in paths:
            for seed in range(8):
                for arm in ("a", self.name):
                    yield ForeignRun(labels={"arm": arm}, source=Source(path), seed=seed, metrics={"score": seed + (arm != "a")})

SECOND = Greedy("c")
"""


def test_a_plug_in_goes_before_ours_and_the_other_one_is_named(
    bakeoff: Bakeoff, install: Install, tmp_path: Path
) -> None:
    install("greedy", GREEDY, first="greedy:Greedy", second="greedy:SECOND")
    (tmp_path / "t.csv").write_text("arm,score\nx,1\n")
    result = bakeoff("compare", "t.csv", "--json")
    answer = json.loads(result.stdout)
    assert answer["comparisons"][0]["candidate"] == "b"
    assert "t.csv: read by the importer 'first'; 'second' and 'tables' would read it, too" in result.stdout


def test_a_directory_of_tables_says_how_to_name_them(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/t.csv").write_text("arm,score\nx,1\n")
    result = bakeoff("compare", "tables")
    assert result.exit_code == 2 and "name the tables, as in tables/*.csv" in result.stderr


@pytest.mark.parametrize(
    "name", ["inspect/skill", "harbor/causes", "lm-eval/models", "promptfoo/eval.json", "tensorboard"]
)
def test_files_of_real_tools_are_imported_once_with_the_verdict_of_the_source(bakeoff: Bakeoff, name: str) -> None:
    source = str(FIXTURES / name)
    first = bakeoff("import", source, "--name", "copy").stdout
    assert ("No exit codes were recorded" in first) == (name == "tensorboard")
    assert "were imported already, as copy/2" in bakeoff("import", source, "--name", "copy").stdout
    assert len(list(Path("bakeoff-runs/copy").glob("2*/imported.json"))) == 1
    answers = [bakeoff("compare", str(each), "--json").stdout for each in (source, "copy")]
    assert json.loads(answers[0])["comparisons"] == json.loads(answers[1])["comparisons"]


def test_the_same_files_read_with_other_flags_are_another_edition(bakeoff: Bakeoff) -> None:
    source = str(FIXTURES / "inspect/skill")
    bakeoff("import", source, "--name", "copy")
    assert bakeoff("import", source, "--name", "copy", "--infra-error", "503").stdout.startswith("imported ")
    assert len(list(Path("bakeoff-runs/copy").glob("2*/imported.json"))) == 2


@pytest.mark.parametrize(
    ("config", "group", "expected"),
    [
        ({"condition": "full", "arm": "x", "seed": 3}, "g", Tracked("full", "config.condition", "default", 3)),
        ({"arm": 0, "task": "maze", "seed": "4"}, "g", Tracked("0", "config.arm", "maze", 4)),
        ({"seed": 2.0}, "g", Tracked("g", "group", "default", 2)),
        ({"seed": "random"}, "", Tracked("run", "name", "default", 7)),
        ({"seed": float("nan")}, None, Tracked("run", "name", "default", 7)),
    ],
)
def test_tracked_runs_are_named_by_configuration_group_or_name(
    config: dict[str, object], group: str | None, expected: Tracked
) -> None:
    assert Tracked.of(config, "run_s7", group) == expected


def test_labels_that_differ_with_the_arm_are_told_apart_from_other_names_of_it() -> None:
    arms = name_arms([{"model": "a", "path": "a", "lr": 1, "k": 1}, {"model": "b", "path": "b", "lr": 2, "k": 1}])
    assert (arms.names, arms.fields, arms.together) == (["a", "b"], ["model"], ["lr"])
