"""A Dockerfile as a list of instructions. Only reads; building.py carries them out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakeoff.errors import UsageError

IGNORED = frozenset(["CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"])
"""About running a container, which a box does not do."""
KNOWN = frozenset(["ADD", "ARG", "COPY", "ENV", "FROM", "RUN", "SHELL", "USER", "WORKDIR"])

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S.*?)\s*$")
_HEREDOC = re.compile(r"(?<!\S)<<(-?)(['\"]?)(\w+)\2(?!\S)")
_NAME = re.compile(r"\w+")
_CHOICE = re.compile(r"(:?)([-+?])")
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
    values: Mapping[str, str] = field(default_factory=dict)
    """What variables in it stand for."""

    def flag(self, name: str) -> str | None:
        return next((value for key, value in self.flags if key == name), None)

    def expanded(self, values: Mapping[str, str]) -> Instruction:
        flags = tuple((key, unquoted(value, values)) for key, value in self.flags)
        text = self.text if self.literal else _substituted(self.text, values)
        return replace(self, flags=flags, text=text, values=values)

    def words(self) -> list[str]:
        """JSON form or words with quotes, as COPY and SHELL take them."""
        listed = exec_form(self.rest)
        return words(self.rest, self.values) if listed is None else [unquoted(word, self.values) for word in listed]

    def whole(self) -> str:
        """The rest as one word."""
        return unquoted(self.rest, self.values)

    def pairs(self, where: str) -> dict[str, str]:
        """`A=1 B="two words"`, or the old `A one`."""
        first, _, after = self.rest.partition(" ")
        if "=" not in first:
            return {first: unquoted(after.strip(), self.values)}
        found = {}
        for word in words(self.rest, self.values):
            name, equals, value = word.partition("=")
            if not equals:
                raise UsageError(f"{where}: {word!r}: write NAME=value")
            found[name] = value
        return found


def parse(path: Path) -> list[Instruction]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not written in UTF-8: {error}") from error
    return list(_instructions(path, lines))


def _instructions(path: Path, lines: list[str]) -> Iterator[Instruction]:
    escape = _escape(lines)
    number = 0
    while number < len(lines):
        first = number + 1
        whole, number = _joined(lines, number, escape)
        if not whole:
            continue
        word, rest = [*whole.split(None, 1), ""][:2]
        word = word.upper()
        if word not in KNOWN | IGNORED:
            known = ", ".join(sorted(KNOWN))
            raise UsageError(f"{path}:{first}: {word}: not supported here; supported are {known}")
        rest, flags = _flags(rest.strip()) if word in ("ADD", "COPY", "FROM", "RUN") else (rest.strip(), ())
        text, name, literal = "", "", False
        if word in ("RUN", "COPY", "ADD") and (opened := _HEREDOC.search(rest)):
            name, literal = opened[3], bool(opened[2])
            text, number = _heredoc(path, lines, number, name, first)
            if word != "RUN" or rest == opened[0]:  # else the text belongs to the command, and the shell reads it
                rest = rest[: opened.start()].strip() + rest[opened.end() :]
                text = re.sub(r"^\t+", "", text, flags=re.MULTILINE) if opened[1] else text
        yield Instruction(word, rest.strip(), flags, first, text, name, literal)


def _escape(lines: list[str]) -> str:
    """The character at the end of a line that goes on, if a directive at the top names one."""
    for line in lines:
        found = _DIRECTIVE.match(line)
        if found is None:
            break
        if found[1].lower() == "escape":
            return found[2]
    return "\\"


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
    return "".join(parts).strip(), number


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


def unquoted(text: str, values: Mapping[str, str]) -> str:
    """Text without its quotes, and with values in place of variables."""
    return "".join(_read(text, values, split=False))


def words(text: str, values: Mapping[str, str]) -> list[str]:
    """Words as a shell reads them, with the difference that a variable's value is never split."""
    return list(_read(text, values, split=True))


def _read(text: str, values: Mapping[str, str], split: bool) -> Iterator[str]:
    word: str | None = None
    at, quoted = 0, False
    while at < len(text):
        piece = text[at]
        at += 1
        if piece == "'" and not quoted:
            end = text.find("'", at)
            end = len(text) if end < 0 else end
            piece, at = text[at:end], end + 1
        elif piece == '"':
            quoted, piece = not quoted, ""
        elif piece == "\\" and at < len(text) and (not quoted or text[at] in '"$\\'):
            piece = text[at]
            at += 1
        elif piece == "$":
            piece, at = _variable(text, at, values)
        elif piece.isspace() and split and not quoted:
            if word is not None:
                yield word
            word = None
            continue
        word = (word or "") + piece
    if word is not None:
        yield word


def _substituted(text: str, values: Mapping[str, str]) -> str:
    """A text with values in place of variables. Quotes in it are its own."""
    pieces, at = [], 0
    while at < len(text):
        if text.startswith("\\$", at):
            piece, at = "$", at + 2
        elif text[at] == "$":
            piece, at = _variable(text, at + 1, values)
        else:
            piece, at = text[at], at + 1
        pieces.append(piece)
    return "".join(pieces)


def _variable(text: str, at: int, values: Mapping[str, str]) -> tuple[str, int]:
    """What stands behind a `$`, and where it ends: NAME, {NAME}, {NAME:-default}, {NAME:+other} or {NAME:?why}."""
    braced = text.startswith("{", at)
    name = _NAME.match(text, at + braced)
    if name is None:
        return "$", at
    value = values.get(name[0])
    if not braced:
        return value or "", name.end()
    choice = _CHOICE.match(text, name.end())
    end = _closing(text, choice.end() if choice else name.end())
    if choice is None:
        return value or "", end + 1
    given = bool(value) if choice[1] else value is not None
    other = text[choice.end() : end]
    if choice[2] == "?" and not given:
        raise UsageError(f"${{{name[0]}}} is not set: {unquoted(other, values)}")
    if choice[2] == "+":
        return unquoted(other, values) if given else "", end + 1
    return value or "" if given else unquoted(other, values), end + 1


def _closing(text: str, at: int) -> int:
    """Where the brace is that closes the one before `at`."""
    depth = 1
    for place in range(at, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return place
    return len(text)


def exec_form(text: str) -> list[str] | None:
    """`["a", "b"]` as a list; None when it is not written so."""
    if not text.startswith("["):
        return None
    try:
        words = json.loads(text)
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None
