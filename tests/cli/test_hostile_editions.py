"""An edition that came by mail: nothing in it leads to other files, drives the terminal, or puts code into the report."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main
from bakeoff.records.layout import EditionPaths
from support.editions import add_trajectories, make_edition, succeeds_with_series

PRIVATE = "the private words of whoever reads this"
EXPORT = ["export", "mail", "--format", "jsonl"]
READERS = [
    ["ls"], ["status", "mail"], ["show", "mail/latest"], ["logs", "mail/latest"], ["logs", "mail/latest", "--stderr"],
    ["reproduce", "mail/latest"], ["collect", "mail"], ["compare", "mail"], EXPORT, ["run", "mail.toml"],
]  # fmt: skip


@pytest.fixture
def mail(tmp_path: Path) -> EditionPaths:
    """An edition with files and trajectories, and one run that is still to do."""
    edition = make_edition(
        tmp_path, "mail", lambda arm, seed: None if (arm, seed) == ("small", 3) else succeeds_with_series(arm, seed)
    )
    add_trajectories(edition)
    edition.close()
    return edition.paths


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of the reader's, which is neither to be read nor changed."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "private.txt").write_text(PRIVATE)
    (place / "stdout.txt").write_text(PRIVATE)
    return place


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments), prog_name="bakeoff")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def unchanged(outside: Path) -> bool:
    found = {path.name: path.read_text() for path in outside.iterdir()}
    return found == {"private.txt": PRIVATE, "stdout.txt": PRIVATE}


def run_id_of(paths: EditionPaths, which: str) -> str:
    connection = sqlite3.connect(paths.database)
    (run_id,) = connection.execute(f"SELECT run_id FROM runs WHERE {which} ORDER BY started_at DESC").fetchone()
    connection.close()
    return str(run_id)


def run_directory(paths: EditionPaths) -> Path:
    """That of the run which `mail/latest` means: the last that started."""
    return paths.runs / run_id_of(paths, "started_at > 0")


LINKS: dict[str, Callable[[EditionPaths], list[Path]]] = {
    "the runs": lambda paths: [paths.runs],
    "a run": lambda paths: [run_directory(paths)],
    "files of a run": lambda paths: [
        run_directory(paths) / name
        for name in ("stdout.txt", "stderr.txt", "meta.json", "trajectory.jsonl.zst", "out", "attempts", "logs")
    ],
    "the lease": lambda paths: [paths.lease],
    "the table": lambda paths: [paths.aggregate],
    "files that are written": lambda paths: [
        *(paths.aggregate / name for name in ("runs.csv", "runs.parquet", f".runs.csv-{os.getpid()}")),
        *(paths.directory / "report" / name for name in ("index.html", "run.html")),
        paths.directory / "export" / "rollouts.jsonl",
    ],
    "the report": lambda paths: [paths.directory / "report"],
    "the report's assets": lambda paths: [paths.directory / "report" / "assets"],
    "exports": lambda paths: [paths.directory / "export"],
    "the registration": lambda paths: [paths.registration],
    "the experiment file": lambda paths: [paths.frozen(".toml")],
    "scratch": lambda paths: [paths.scratch],
    "the log of the database": lambda paths: [paths.database.with_name("experiment.db-wal")],
    "a run to come": lambda paths: [paths.runs / run_id_of(paths, "status = 'planned'")],
}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["private.txt", "."])
@pytest.mark.parametrize("place", LINKS)
def test_no_link_is_followed(place: str, target: str, mail: EditionPaths, outside: Path) -> None:
    for link in LINKS[place](mail):
        shutil.rmtree(link, ignore_errors=True)
        link.unlink(missing_ok=True)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(outside / target)
    for arguments in [*READERS, *([["report", "mail"]] if target == "private.txt" or "report" in place else [])]:
        result = call(*arguments)
        assert result.exit_code in (0, 1, 2, 3), result.stderr
        assert PRIVATE not in result.output + result.stderr, arguments
        assert unchanged(outside), arguments
    for path in mail.directory.parents[1].rglob("*"):
        if path.is_file() and not path.is_symlink() and not any(parent.is_symlink() for parent in path.parents):
            assert PRIVATE.encode() not in path.read_bytes(), path


def test_a_run_that_made_itself_a_link_hides_no_other_run(mail: EditionPaths, outside: Path) -> None:
    place = run_directory(mail)
    shutil.rmtree(place)
    place.symlink_to(outside)
    for arguments in (["status", "mail"], ["collect", "mail"], ["report", "mail"], EXPORT, ["run", "mail.toml"]):
        assert call(*arguments).exit_code == 0, arguments
    assert "no directory" in call("logs", "mail/latest").stderr or unchanged(outside)


def test_a_link_for_a_database_is_refused_in_one_line(mail: EditionPaths, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    mail.database.rename(elsewhere)
    mail.database.symlink_to(elsewhere)
    for arguments in (["status", "mail"], ["report", "mail"], ["collect", "mail"], ["ls"]):
        result = call(*arguments)
        assert result.exit_code == 1 and "is a symbolic link" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["imported.json", "prereg.json", ".spool", ".incoming", "experiment.toml"])
def test_a_pipe_in_an_edition_is_refused_in_one_line(name: str, mail: EditionPaths) -> None:
    (mail.directory / name).unlink(missing_ok=True)
    os.mkfifo(mail.directory / name)  # who opens it waits for a writer, for ever
    for arguments in (["compare", "mail"], ["report", "mail"], ["run", "mail.toml"]):
        result = call(*arguments)
        assert result.exit_code == 1 and "neither a file nor a directory" in result.stderr, arguments
        assert result.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index.html", "run.html", "assets/report.css"])
def test_a_pipe_in_place_of_a_page_becomes_the_page(name: str, mail: EditionPaths) -> None:
    page = mail.directory / "report" / name
    page.parent.mkdir(parents=True)
    os.mkfifo(page)
    assert call("report", "mail").exit_code == 0
    assert page.is_file()


def change(paths: EditionPaths, sql: str, *values: Any) -> None:
    connection = sqlite3.connect(paths.database)
    with connection:
        connection.execute(sql, values)
    connection.close()


@pytest.mark.parametrize("path", ["../../../../../outside/private.txt", "/etc/hostname", "..", "", "a\0b"])
def test_a_path_in_the_database_does_not_lead_out_of_its_run(path: str, mail: EditionPaths, outside: Path) -> None:
    change(mail, "UPDATE trajectories SET path = ?", path)
    for arguments in (EXPORT, ["show", "mail/latest"], ["logs", "mail/latest"]):
        result = call(*arguments)
        assert PRIVATE not in result.output + result.stderr
    assert call(*EXPORT).exit_code == 1


@pytest.mark.parametrize("run_id", ["../../../../outside", "/etc", "..", ".", "a/b", ""])
def test_a_run_id_does_not_lead_out_of_its_edition(run_id: str, mail: EditionPaths, outside: Path) -> None:
    change(mail, "UPDATE runs SET crc = NULL, run_id = ? WHERE position = 4", run_id)
    for arguments in READERS[1:]:
        result = call(*arguments)
        assert PRIVATE not in result.output + result.stderr and unchanged(outside)


def test_the_name_of_an_edition_does_not_choose_where_it_is_imported(mail: EditionPaths, tmp_path: Path) -> None:
    change(mail, "UPDATE editions SET edition = '../../../../escaped', experiment = '../../up'")
    shutil.move(mail.directory, tmp_path / "inbox")
    result = call("import", "inbox", "--name", "got")
    assert result.exit_code == 0, result.stderr
    assert not list(tmp_path.glob("escaped")) and not (tmp_path.parent / "escaped").exists()
    assert len(list((tmp_path / "bakeoff-runs" / "got").iterdir())) == 2  # the edition and `latest`


# -- words that do something

SCRIPT = "<script>alert(1)</script>"
ATTRIBUTE = '"><img src=x onerror=alert(2)>'
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31m\r\x9b1m"


class Tags(HTMLParser):
    """Whether a page has an element or attribute that hostile words have made."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img" and ("src", "x") in attrs:
            self.found.append("img")
        self.found += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if "alert(" in data and self.cdata_elem == "script":
            self.found.append("script")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [SCRIPT, ATTRIBUTE, "javascript:alert(3)", "</script>" + SCRIPT, "{{7*7}}", "`${alert(4)}`"]
)
def test_words_of_an_edition_are_never_code_in_its_report(words: str, mail: EditionPaths) -> None:
    hostile(mail, words)
    result = call("report", "mail")
    assert result.exit_code == 0, result.stderr
    report = mail.directory / "report"
    for page in report.glob("*.html"):
        tags = Tags()
        tags.feed(page.read_text())
        assert not tags.found, (page.name, tags.found)
        assert "7*7" in words or "{{" not in page.read_text()
    for script in report.glob("assets/*.js"):
        assert "</script" not in script.read_text().lower() or script.name not in ("names.js",), script
        if re.match(r"(runs|details|names)", script.name):
            assert "<" not in script.read_text()


def hostile(paths: EditionPaths, words: str) -> None:
    """Names, errors, commands, parameters and provenance that consist of `words`."""
    change(paths, "UPDATE cells SET arm = arm || ?, task = ?, columns = ?, base = base || ?", words, words,
           json.dumps({words: words}), words)  # fmt: skip
    change(paths, "UPDATE runs SET crc = NULL, error = ?, command = ?, metrics = ?", words, words,
           json.dumps({"score": 1.0, words: words}))  # fmt: skip
    change(paths, "UPDATE runs SET status = 'failed' WHERE position < 2")
    connection = sqlite3.connect(paths.database)
    told = json.loads(connection.execute("SELECT provenance FROM sessions").fetchone()[0])
    spec = json.loads(connection.execute("SELECT spec FROM editions").fetchone()[0])
    connection.close()
    told |= {"host": words, "platform": words, "argv": [words], "packages": {words: words}, "env": {words: words}}
    spec |= {"description": words}
    change(paths, "UPDATE sessions SET provenance = ?", json.dumps(told))
    change(paths, "UPDATE editions SET spec = ?", json.dumps(spec))
    for run in paths.runs.iterdir():
        (run / "stdout.txt").write_text(words)


def test_words_of_an_edition_do_not_drive_the_terminal(mail: EditionPaths) -> None:
    hostile(mail, ESCAPES)
    readers = [arguments for arguments in READERS if arguments[0] not in ("run", "report", "reproduce", "logs")]
    for arguments in [
        *readers,
        ["status", "mail", "--runs"],
        ["rank", "mail"],
        ["query", "SELECT * FROM runs", "mail"],
    ]:
        result = call(*arguments)
        shown = result.output + result.stderr
        assert "\x1b" not in shown and "\x9b" not in shown and "\r" not in shown, (arguments, shown)


def test_a_results_of_another_database_is_not_asked_for(mail: EditionPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """No URL in an edition makes us connect: only the reader's own variable does."""
    import bakeoff.records.store as database

    asked: list[str] = []
    monkeypatch.setattr(database, "_postgres", lambda url: asked.append(url))
    mail.directory.joinpath(".env").write_text("BAKEOFF_DATABASE_URL=postgresql://evil.example.org/x\n")
    change(mail, "INSERT INTO meta VALUES ('url', 'postgresql://evil.example.org/x')")
    monkeypatch.chdir(mail.directory)
    for arguments in (["status", "."], ["collect", "."], ["report", "."]):
        call(*arguments)
    assert not asked


def test_resuming_a_mailed_edition_runs_the_reader_s_own_file(mail: EditionPaths, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    change(mail, "UPDATE cells SET params = ?", json.dumps({"command": ["touch", str(touched)]}))
    change(mail, "UPDATE runs SET command = ?, crc = NULL", f"touch {touched}")
    mail.frozen(".toml").write_text(f'name = "mail"\n[params]\ncommand = ["touch", "{touched}"]\n')
    result = call("run", "mail.toml")
    assert result.exit_code in (0, 1, 2) and not touched.exists()


def test_no_program_of_a_repository_in_a_mailed_edition_is_started(mail: EditionPaths, tmp_path: Path) -> None:
    repository, touched = run_directory(mail), tmp_path / "touched"
    for arguments in (["init", "-q"], ["config", "core.fsmonitor", f"touch {touched}; false"]):
        subprocess.run(["git", *arguments], cwd=repository, check=True)
    told = {"base": str(repository.relative_to(tmp_path)), "git": {"commit": "1", "branch": "main", "dirty": False}}
    change(mail, "UPDATE sessions SET provenance = ?", json.dumps({"cwd": ".", **told}))
    result = call("reproduce", "mail/latest")
    assert result.exit_code == 0 and "commit 1 on main" in result.output
    assert not touched.exists()
    assert "for changes since, call this inside the repository of" in result.output


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM c"


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE attempts RENAME TO old", f"CREATE VIEW attempts AS {ENDLESS}"],
        ["ALTER TABLE runs RENAME TO old", f"CREATE VIEW runs AS {ENDLESS}"],
        ["CREATE TRIGGER t AFTER UPDATE ON runs BEGIN DELETE FROM attempts; END"],
        ["ALTER TABLE cells ADD COLUMN y TEXT GENERATED ALWAYS AS (hex(zeroblob(100000000)))"],
    ],
)
def test_views_triggers_and_computed_columns_are_refused_before_they_are_read(
    statements: list[str], mail: EditionPaths
) -> None:
    connection = sqlite3.connect(mail.database)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    for verb in READERS:
        assert "which bakeoff did not make" in call(*verb).output, verb
