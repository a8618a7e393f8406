"""A Dockerfile as a list of instructions. Only reads; building.py carries them out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff.errors import UsageError

IGNORED = frozenset(["CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"])
"""About running a container, which a box does not do."""
KNOWN = frozenset(["ADD", "ARG", "COPY", "ENV", "FROM", "RUN", "SHELL", "USER", "WORKDIR"])

_DIRECTIVE = re.compile(r"#\s*escape\s*=\s*(.)\s*$", re.IGNORECASE)
_HEREDOC = re.compile(r"(?<!\S)<<-?(['\"]?)(\w+)\1(?!\S)")
_VARIABLE = re.compile(r"\\(\$)|\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
_FLAG = re.compile(r"--(\w[\w-]*)(?:=(\S*))?\s*")


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    rest: str
    """Everything after the word and its flags, lines joined."""
    flags: tuple[tuple[str, str], ...]
    line: int
    text: str = ""
    """The here-document behind it."""
    name: str = ""
    """The word that ends it, which is what COPY calls the file."""
    literal: bool = False
    """The word was quoted: variables in the text are none."""

    def flag(self, name: str) -> str | None:
        return next((value for key, value in self.flags if key == name), None)

    def expanded(self, values: Mapping[str, str]) -> Instruction:
        flags = tuple((key, expand(value, values)) for key, value in self.flags)
        text = self.text if self.literal else expand(self.text, values)
        return replace(self, rest=expand(self.rest, values), flags=flags, text=text)

    def words(self) -> list[str]:
        """JSON form or words with quotes, as COPY and SHELL take them."""
        return exec_form(self.rest) or shlex.split(self.rest)


def parse(path: Path) -> list[Instruction]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return list(_instructions(path, lines))


def _instructions(path: Path, lines: list[str]) -> Iterator[Instruction]:
    escape = "\\"
    if lines and (found := _DIRECTIVE.match(lines[0])):
        escape = found[1]
    number = 0
    while number < len(lines):
        first = number + 1
        whole, number = _joined(lines, number, escape)
        if not whole:
            continue
        word, _, rest = whole.partition(" ")
        word = word.upper()
        if word not in KNOWN | IGNORED:
            known = ", ".join(sorted(KNOWN))
            raise UsageError(f"{path}:{first}: {word}: not supported here; supported are {known}")
        rest, flags = _flags(rest.strip()) if word in ("ADD", "COPY", "FROM", "RUN") else (rest.strip(), ())
        text, name, literal = "", "", False
        if word in ("RUN", "COPY", "ADD") and (opened := _HEREDOC.search(rest)):
            name, literal = opened[2], bool(opened[1])
            text, number = _heredoc(path, lines, number, name, first)
            rest = rest[: opened.start()].strip() + rest[opened.end() :]
        yield Instruction(word, rest.strip(), flags, first, text, name, literal)


def _joined(lines: list[str], number: int, escape: str) -> tuple[str, int]:
    """One instruction over as many lines as it has. Comments between its lines are no part of it."""
    parts: list[str] = []
    while number < len(lines):
        line = lines[number].rstrip()
        number += 1
        if line.lstrip().startswith("#"):
            continue
        if parts and not line:
            continue
        going_on = line.endswith(escape)
        parts.append(line.removesuffix(escape) if going_on else line)
        if not going_on:
            break
    return "".join(parts).replace("\t", " ").strip(), number


def _flags(rest: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    flags = []
    while found := _FLAG.match(rest):
        flags.append((found[1], found[2] or ""))
        rest = rest[found.end() :]
    return rest, tuple(flags)


def _heredoc(path: Path, lines: list[str], number: int, end: str, first: int) -> tuple[str, int]:
    for last in range(number, len(lines)):
        if lines[last].strip() == end:
            return "\n".join(lines[number:last]) + "\n", last + 1
    raise UsageError(f"{path}:{first}: no line {end!r} ends the text that begins here")


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`; `\\$` is a dollar sign."""

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return "$"
        known = values.get(found[2] or found[3], "")
        if found[4] == "-":
            return known or found[5]
        if found[4] == "+":
            return found[5] if known else ""
        return known

    return _VARIABLE.sub(value, text)


def exec_form(text: str) -> list[str] | None:
    """`["a", "b"]` as a list; None when it is not written so."""
    if not text.startswith("["):
        return None
    try:
        words = json.loads(text)
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def pairs(text: str, where: str) -> dict[str, str]:
    """`A=1 B="two words"`, or the old `A one`."""
    words = shlex.split(text)
    if words and "=" not in words[0]:
        name, _, value = text.partition(" ")
        return {name: value.strip()}
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{where}: {word!r}: write NAME=value")
        found[name] = value
    return found
