"""The group itself: what it costs, what it says, and which exit codes it gives."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import Result

import bakeoff as package
from bakeoff import plugins
from bakeoff.cli import VERBS, main
from bakeoff.errors import install
from bakeoff.records.edition import Edition
from support.processes import LONG

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]

ALL_VERBS = main.list_commands(click.Context(main))
MODULE = [sys.executable, "-m", "bakeoff"]


def test_help_lists_every_verb_and_imports_none_of_them() -> None:
    script = (
        "import sys; from bakeoff.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(n for n in sys.modules if n.startswith('bakeoff.') or n in ('pydantic', 'msgspec', 'rich', 'polars')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *text, modules = done.stdout.splitlines()
    assert [verb for verb in ALL_VERBS if not any(line.strip().startswith(f"{verb} ") for line in text)] == []
    # Of plug-ins only the tables of verbs are imported, with the packages that they are in.
    light = ("bakeoff.cli", "bakeoff.plugins", "bakeoff.version", "bakeoff.workloads")
    heavy = [name for name in ast.literal_eval(modules) if name not in light and not name.endswith(".verbs")]
    assert [name for name in heavy if not re.fullmatch(r"bakeoff\.workloads\.\w+", name)] == []
    assert {"task", "eval"} <= set(ALL_VERBS) - set(VERBS)


def test_a_broken_table_of_verbs_is_reported_and_takes_no_other_verb_away(
    bakeoff: Bakeoff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: {"bad": "no.such.module:VERBS", "good": "added:VERBS"})
    table = {"run": ("added", "Another."), "extra": ("added", "More.")}
    monkeypatch.setitem(sys.modules, "added", SimpleNamespace(VERBS=table))
    result = bakeoff("--help")
    assert "extra" in result.stdout and "status" in result.stdout
    assert "Another." not in result.stdout  # a plug-in cannot replace a verb of the core
    assert "note: bakeoff.commands: 'bad' (no.such.module:VERBS) cannot be imported" in result.stderr


def test_the_version_is_the_package_version(bakeoff: Bakeoff) -> None:
    assert bakeoff("--version").output.startswith(f"bakeoff {package.__version__} ")


def test_python_dash_m_is_the_same_program() -> None:
    done = subprocess.run([*MODULE, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("bakeoff ")


def test_a_misspelt_verb_gets_a_did_you_mean_and_exit_code_2(bakeoff: Bakeoff) -> None:
    result = bakeoff("statsu")
    assert result.exit_code == 2
    assert "did you mean 'status'?" in result.stderr


@pytest.mark.parametrize("words", [["help"], ["help", "run"], ["market", "help", "run"]])
def test_the_word_help_is_the_option(bakeoff: Bakeoff, words: list[str]) -> None:
    verbs = [word for word in words if word != "help"]
    result = bakeoff(*words)
    assert result.exit_code == 0 and result.stdout == bakeoff(*verbs, "--help").stdout


@pytest.mark.parametrize("verb", ALL_VERBS)
def test_every_verb_option_and_argument_has_a_help_text(verb: str) -> None:
    context = click.Context(main)
    command = main.get_command(context, verb)
    assert command is not None
    assert command.help
    undocumented = [p.name for p in command.get_params(context) if isinstance(p, click.Option) and not p.help]
    assert undocumented == []


def test_errors_go_to_standard_error_and_leave_standard_output_empty(bakeoff: Bakeoff) -> None:
    result = bakeoff("status", "nowhere", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: no experiment called 'nowhere'" in result.stderr


def test_a_package_that_only_some_verbs_need_is_told_with_the_way_to_get_it(
    bakeoff: Bakeoff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    monkeypatch.delitem(sys.modules, "bakeoff.workloads.market.serve.mcp", raising=False)
    result = bakeoff("market", "mcp")
    assert result.exit_code == 2
    assert "error: this needs the package mcp_types: " + install("agents") in result.stderr


def test_an_interrupt_ends_with_130(make_edition: MakeEdition, tmp_path: Path) -> None:
    edition = make_edition(outcome=lambda arm, seed: None)
    run = edition.run(0).run_id
    edition.paths.run(run).mkdir(parents=True)
    (edition.paths.run(run) / "stdout.txt").write_text("begin\n")
    with open(edition.paths.lease) as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        command = [*MODULE, "logs", "-f", run]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begin\n", "it follows"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LONG)
    assert (process.returncode, said) == (130, b"interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["status"], ["--help"], ["--version"], ["compare", "--help"]])
def test_a_reader_that_leaves_early_ends_us_quietly_as_sigpipe_would(
    arguments: list[str], make_edition: MakeEdition, tmp_path: Path
) -> None:
    make_edition()
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*MODULE, *arguments], cwd=tmp_path, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["status"], ["--help"], ["--version"], ["compare", "--help"]])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(
    arguments: list[str], make_edition: MakeEdition, tmp_path: Path
) -> None:
    make_edition()
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*MODULE, *arguments], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"error: [Errno 28] No space left on device\n")


def test_an_experiment_runs_when_nobody_can_be_told(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text('params = { command = "true" }')
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>/dev/full', "sh", *MODULE, "run", "trial.toml"]
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert json.loads(bakeoff("status", "--json").stdout)["arms"]["default"]["succeeded"] == 1


def test_an_edition_that_cannot_be_begun_does_not_hide_the_one_before(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = make_edition("trial").paths.name
    (tmp_path / "trial.toml").write_text('params = { command = "true" }')
    monkeypatch.setenv("BAKEOFF_DATABASE_URL", "postgresql://127.0.0.1:1/nowhere")
    assert bakeoff("run", "trial.toml", "--fresh").exit_code == 1
    monkeypatch.delenv("BAKEOFF_DATABASE_URL")
    assert [line["edition"] for line in json.loads(bakeoff("ls", "trial", "--json").stdout)] == [before]
