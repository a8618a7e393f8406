"""Commands on the pages: all of them are valid, and those that are quick run in the order in which a page shows them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from bakeoff.cli import main

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted(ROOT.glob("docs/*.md")))]
GENERATED = "docs/cli.md"
"""Written from `--help`, which test_project.py checks."""
BLOCK = re.compile(r"^```(console|bash|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(bakeoff [^`\n]+)`")
OPERATORS = {"&&", "||", "|", ">", ">>", "<", ";"}


@dataclass(frozen=True)
class Call:
    """One `bakeoff ...` command on a page."""

    page: str
    line: int
    arguments: tuple[str, ...]
    """Without the word `bakeoff`."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: bakeoff {shlex.join(self.arguments)}"


def split(text: str) -> Iterator[tuple[str, ...]]:
    """The arguments of each `bakeoff` command in a line of shell. What it is piped or redirected to is left out."""
    words: list[str] = []
    tokens = shlex.split(text, comments=True)
    for token in [*tokens, ";"]:
        if token not in OPERATORS:
            words.append(token)
            continue
        if words[:1] == ["bakeoff"]:
            yield tuple(words[1:])
        words = []


def calls_in_blocks(page: str) -> list[Call]:
    """The commands of a page's shell blocks. In a console block only lines that begin with `$` are commands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    calls = []
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(2)) + 1
        lines = block[2].replace("\\\n", "\\ ").splitlines()  # a continued line is one command
        for number, line in enumerate(lines, first):
            if block[1] == "console" and not line.startswith("$ "):
                continue
            command = line.removeprefix("$ ").replace("\\ ", " ")
            calls += [Call(page, number, arguments) for arguments in split(command)]
    return calls


def calls_in_prose(page: str) -> list[Call]:
    """The commands in `code` of a page, without the brackets and bars of a synopsis such as `[--latest | --rollout N]`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    calls = []
    for match in INLINE.finditer(text):
        command = re.sub(r"[\[\]]|(?<= )\|(?= )", "", match[1])
        calls += [Call(page, text.count("\n", 0, match.start()) + 1, arguments) for arguments in split(command)]
    return calls


def problem(call: Call) -> str | None:
    """Why the command line would refuse this call's words; None if it would not. Values are not looked at."""
    command: click.Command = main
    context = click.Context(main, info_name="bakeoff")
    arguments = list(call.arguments)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        inner = command.get_command(context, name)
        if inner is None:
            return f"{call}: there is no verb {name!r}"
        command, context = inner, click.Context(inner, parent=context, info_name=name)
    if not arguments:
        return None  # a verb that the text talks about
    try:
        _, superfluous, _ = command.make_parser(context).parse_args(arguments)
    except click.UsageError as error:
        return f"{call}: {error.format_message()}"
    return f"{call}: {superfluous} is too much" if superfluous and not command.allow_extra_args else None


@pytest.mark.parametrize("page", [page for page in PAGES if page != GENERATED])
def test_every_command_on_a_page_has_a_valid_verb_and_valid_options(page: str) -> None:
    calls = calls_in_blocks(page) + calls_in_prose(page)
    assert [message for call in calls if (message := problem(call))] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("comparre",), "there is no verb 'comparre'"),
        (("run", "x.toml", "--no-such-option"), "No such option"),
        (("market", "run", "--agnet", "null"), "No such option"),
        (("rm", "a", "b", "c"), "is too much"),
    ],
)
def test_a_wrong_command_on_a_page_would_be_found(words: tuple[str, ...], message: str) -> None:
    reason = problem(Call("page.md", 1, words))
    assert reason is not None and message.lower() in reason.lower()


def test_commands_are_found_in_blocks_and_prose() -> None:
    assert ("run", "examples/quickstart.toml") in [call.arguments for call in calls_in_blocks("README.md")]
    assert ("status", "NAME", "--runs") in [call.arguments for call in calls_in_prose("docs/getting-started.md")]


def write_lr(place: Path) -> None:
    """The file that getting-started.md shows, and a script for it."""
    text = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
    block = re.search(r"```toml\n(# lr\.toml\n.*?)```", text, re.DOTALL)
    assert block is not None
    (place / "lr.toml").write_text(block[1])
    script = (
        "import sys\nlr, seed = float(sys.argv[2]), int(sys.argv[4])\nprint('{\"reward\": %f}' % (lr + seed / 100))\n"
    )
    (place / "train.py").write_text(script)


def write_starter(place: Path) -> None:
    """The file that `bakeoff init` writes."""
    assert bakeoff(place, ("init",)).returncode == 0


def write_nothing(place: Path) -> None:
    pass


def bakeoff(place: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # `python` is this one
    variables = {name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_")} | {"PATH": path}
    command = [sys.executable, "-m", "bakeoff", *arguments]
    return subprocess.run(command, cwd=place, env=variables, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "prepare", "leave_out"),
    [
        ("README.md", write_nothing, "market"),
        ("docs/getting-started.md", write_lr, None),
        ("docs/planning.md", write_nothing, r"variance|power (lr|bench)"),
        ("docs/sequential.md", write_starter, "until-decided"),  # a plan is registered before its first result
        pytest.param("docs/schedsim.md", write_nothing, None),
    ],
)
def test_the_commands_of_a_page_run_in_its_order(
    page: str, prepare: Callable[[Path], None], leave_out: str | None, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    prepare(tmp_path)
    calls = [call for call in calls_in_blocks(page) if not (leave_out and re.search(leave_out, str(call)))]
    assert calls
    for call in calls:
        done = bakeoff(tmp_path, call.arguments)
        undecided = done.returncode == 3 and call.arguments[0] in ("compare", "power", "run")
        assert done.returncode == 0 or undecided, f"{call} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
