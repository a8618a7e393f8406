"""Command templates: `{name}` in an argv or a shell string becomes the run's value, and never becomes code.

`{{` and `}}` are braces, `${NAME}` is left to the shell, and a brace that opens no placeholder stays as it is.

    fill_argv(["train", "--lr={lr}", "{flags}"], {"lr": 0.1}, ["--deep"])  # ["train", "--lr=0.1", "--deep"]
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

_TOKEN = re.compile(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_][\w.]*)\}")
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""Text that a shell reads as one word, whatever stands around it."""
Argument = str | int | float
Quotes = Literal["", "'", '"']


class _Token(NamedTuple):
    """A placeholder or a doubled brace in a template."""

    start: int
    end: int
    name: str | None
    """The name of a placeholder; None for a brace."""
    text: str
    """The placeholder as it is written, or what the brace stands for."""


def _tokens(template: str) -> Iterator[_Token]:
    depth = 0
    for match in _TOKEN.finditer(template):
        text = match[0]
        if text == "{{":
            depth += 1
            text = "{"
        elif text == "}}" and depth:
            depth -= 1
            text = "}"
        # Any other `}}` closes no `{{`: it is the end of something like {"a": {"b": 1}}, and stays.
        yield _Token(match.start(), match.end(), match[1], text)


def placeholders(command: Sequence[Argument] | str) -> frozenset[str]:
    """The names in braces."""
    return _placeholders(command if isinstance(command, str) else tuple(command))


@lru_cache(maxsize=512)  # asked for every run of a cell
def _placeholders(command: tuple[Argument, ...] | str) -> frozenset[str]:
    parts = (command,) if isinstance(command, str) else command
    return frozenset(token.name for part in parts for token in _tokens(str(part)) if token.name)


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with every known name replaced; unknown ones stay as they are."""
    return _fill(template, lambda token: values.get(token.name or "", token.text))


def _fill(template: str, value: Callable[[_Token], str]) -> str:
    parts, end = [], 0
    for token in _tokens(template):
        parts += [template[end : token.start], token.text if token.name is None else value(token)]
        end = token.end
    return "".join((*parts, template[end:]))


def fill_argv(command: Sequence[Argument], values: Mapping[str, Any], flags: Sequence[str]) -> list[str]:
    """Each argument filled in; `{flags}` alone becomes as many arguments as there are flags."""
    texts = {key: as_text(value) for key, value in values.items()}
    return [word for part in command for word in (flags if part == "{flags}" else [fill(as_text(part), texts)])]


def fill_shell(
    command: str, values: Mapping[str, Any], flags: Sequence[str], variables: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """The text for `/bin/sh -c`, and the environment variables that it needs.

    A value of plain characters is inserted as it is. Any other is quoted, if nothing before it could change what
    quotes mean. Otherwise the shell takes it from an environment variable (`variables` has their names), because the
    shell never reads the content of a variable as code (POSIX shell, 2.6.2 Parameter Expansion).
    """
    needed: dict[str, str] = {}

    def word(value: str, variable: str, position: int) -> str:
        if _PLAIN.fullmatch(value):
            return value
        before = command[:position]
        if not re.search(r"['\"`\\#]|\$\(|<<", before):
            return shlex.quote(value)
        needed[variable] = value
        match quotes_at(before):
            case "'":  # close the single quotes, expand inside double ones, and open them again
                return f"'\"${{{variable}}}\"'"
            case '"':
                return f"${{{variable}}}"
            case _:
                return f'"${{{variable}}}"'

    def value(token: _Token) -> str:
        name = token.name or ""
        if name == "flags":
            return " ".join(word(flag, f"BAKEOFF_FLAG_{number}", token.start) for number, flag in enumerate(flags))
        return word(as_text(values[name]), variables[name], token.start) if name in values else token.text

    return _fill(command, value), needed


def quotes_at(text: str) -> Quotes:
    """Which quotes are open at the end of a piece of shell text, in the innermost `$(...)` or backticks."""
    inside: list[tuple[str, Quotes]] = [("", "")]  # what opened each level, and the quotes that are open in it
    comment = escaped = False
    for number, char in enumerate(text):
        opened, quotes = inside[-1]
        if comment:
            comment = char != "\n"
        elif escaped:
            escaped = False
        elif char == "\\" and quotes != "'":
            escaped = True
        elif char == "'" and quotes != '"':
            inside[-1] = (opened, "" if quotes else "'")
        elif quotes == "'":
            continue
        elif char == '"':
            inside[-1] = (opened, "" if quotes else '"')
        elif char == "`":
            inside = inside[:-1] if opened == "`" else [*inside, ("`", "")]
        elif char == "(" and (text[:number].endswith("$") or (opened and not quotes)):
            inside.append(("(", ""))
        elif char == ")" and opened == "(" and not quotes:
            inside.pop()
        elif char == "#" and not quotes and (number == 0 or text[number - 1] in " \t\n;"):
            comment = True
    return inside[-1][1]


def as_text(value: Any) -> str:
    """A parameter as people write it on a command line."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """`--name value` for each parameter; true is the bare flag, false and None are left out."""
    flags: list[str] = []
    for name, value in values.items():
        if value is True:
            flags.append(f"--{name}")
        elif value is not None and value is not False:
            flags += [f"--{name}", as_text(value)]
    return flags
