"""Whether the program of a command can be started, looked up before any run.

    flaw(leading_words(["trian.sh", "{lr}"]), Path("/lab"), os.environ["PATH"])
    # Flaw("no program called 'trian.sh' on the PATH", "did you mean 'train.sh'?")

Only what is certain is a flaw. What a shell text makes of its first word (quotes, variables, functions) is left to the
shell, and an interpreter's script is looked for only where it stands right behind the interpreter.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bakeoff.errors import did_you_mean
from bakeoff.workloads.template import Argument

_SHELL_SYNTAX = re.compile(r"""['"`$\\|&;<>()*?\[\]!~=\n]""")
_ENDS_A_COMMAND = frozenset("|&;\n")
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*|(ba|da|z|k)?sh|node|ruby|perl|Rscript|julia|lua[\d.]*|php")
_SCRIPT = re.compile(r"\.(py|sh|bash|zsh|m?js|rb|pl|[Rr]|jl|lua|php)$")
_FLAGS = re.compile(r"-[A-Zbdeiqsuvx]+")
"""Flags of interpreters that take no value, such as `python -u`. After any other the script is not looked for."""


_MAX_BESIDE, _LARGEST_SCRIPT = 200, 1 << 20
"""Files beside a script that are read too, and the characters of one."""


class Flaw(NamedTuple):
    """Why a program cannot be started, and what to do about it."""

    message: str
    fix: str


def leading_words(command: Sequence[Argument] | str) -> tuple[str, ...]:
    """The program, and for an interpreter the words up to its script, with their placeholders.

    Empty for a text whose program only a shell can tell.
    """
    words = _shell_words(command) if isinstance(command, str) else [str(part) for part in command]
    if not words or not _INTERPRETER.fullmatch(words[0].rpartition("/")[2]):
        return tuple(words[:1])
    script = next((number for number, word in enumerate(words[1:], 1) if not _FLAGS.fullmatch(word)), 0)
    return tuple(words[: script + 1]) if _SCRIPT.search(words[script]) else (words[0],)


def scripts(command: Sequence[Argument] | str, directory: Path) -> str:
    """Return the text of a command, of the scripts in `directory` that it names, and of the source files beside these."""
    words = re.split(r"[\s'\"]+", command) if isinstance(command, str) else [str(part) for part in command]
    named = [directory / word for word in words if _SCRIPT.search(word) and (directory / word).is_file()]
    beside = [path for place in {path.parent for path in named} for path in islice(place.iterdir(), _MAX_BESIDE)]
    texts = [" ".join(words)]
    for path in {*named, *(path for path in beside if _SCRIPT.search(path.name))}:
        with suppress(OSError), path.open(errors="replace") as file:
            texts.append(file.read(_LARGEST_SCRIPT))
    return "\n".join(texts)


@lru_cache(maxsize=512)
def _shell_words(text: str) -> tuple[str, ...]:
    text = re.sub(r"\A(\s|#[^\n]*\n)+", "", text)
    syntax = _SHELL_SYNTAX.search(text)
    plain = text if syntax is None else text[: syntax.start()]
    words = plain.split()
    if syntax is not None and syntax[0] not in _ENDS_A_COMMAND and words and not plain[-1].isspace():
        words.pop()  # it goes on: name=value, "quoted", f()
    if len(words) > 1 and words[0] == "exec" and not words[1].startswith("-"):
        words = words[1:]
    return tuple(words)


def flaw(words: Sequence[str], directory: Path, path: str, *, shell: bool = False) -> Flaw | None:
    """What keeps a command from starting in `directory`; None when nothing is known to.

    `words` are filled in, and `path` is the PATH of the run. `shell`: they begin a text for /bin/sh.
    """
    program = words[0]
    if "/" in program:
        file = directory / program
    else:
        found = shutil.which(program, path=path)
        if found is None:
            return None if shell and _known_to_shell(program) else _not_on_path(program, directory, path)
        file = directory / found
    problem = _unusable(file, shell)
    if problem is None and len(words) > 1 and not (directory / words[-1]).exists():
        problem = _no_file(directory / words[-1])
    return problem


@lru_cache(maxsize=64)
def _known_to_shell(word: str) -> bool:
    """Whether it is a builtin or a reserved word."""
    asked = subprocess.run(
        ["/bin/sh", "-c", 'command -v -- "$1"', "sh", word], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return asked.returncode == 0


def _not_on_path(program: str, directory: Path, path: str) -> Flaw:
    message = f"no program called {program!r} on the PATH"
    if (directory / program).is_file():
        return Flaw(message, f"did you mean './{program}'?")
    programs: set[str] = set()
    for folder in path.split(os.pathsep):
        try:
            programs.update(os.listdir(folder or "."))
        except OSError:
            continue
    return Flaw(message, did_you_mean(program, sorted(programs), "install it, or write where it is"))


def _unusable(file: Path, shell: bool) -> Flaw | None:
    """Why the file cannot be executed. A shell also runs a script without a first line that names an interpreter."""
    if not file.exists():
        return _no_file(file)
    if file.is_dir():
        return Flaw(f"{file} is a directory, not a program", "name a file in it")
    if not os.access(file, os.X_OK):
        return Flaw(f"{file} is not executable", f'chmod +x {file}, or put its interpreter first: ["python", ...]')
    try:
        with file.open("rb") as opened:
            start = opened.read(512)
    except OSError:  # it may be executed and not read
        return None
    if start.startswith(b"#!"):
        first = start.partition(b"\n")[0].decode(errors="replace")
        if first.endswith("\r"):
            return Flaw(f"{file} has Windows line endings, so its first line names no program", "convert it to Unix line endings")  # fmt: skip
        interpreter = (first[2:].split() or [""])[0]
        if interpreter.startswith("/") and not os.path.exists(interpreter):
            return Flaw(f"{file}: its first line names {interpreter}, which does not exist", "correct its first line")
    elif start and b"\0" not in start and not shell:
        fix = "begin it with a line such as #!/usr/bin/env python3, or put its interpreter first"
        return Flaw(f"{file} is a script without a first line that names its interpreter", fix)
    return None


def _no_file(file: Path) -> Flaw:
    if file.is_symlink():
        return Flaw(f"{file} is a link to {os.readlink(file)}, which does not exist", "correct the link")
    try:
        beside = os.listdir(file.parent)
    except OSError:
        return Flaw(f"{file}: no such file", f"there is no directory {file.parent} either")
    return Flaw(f"{file}: no such file", did_you_mean(file.name, beside, f"relative paths start at {file.parent}"))
