"""Command templates: `{name}` in an argv or a shell string becomes the run's value, and never becomes code.

`{{` and `}}` are braces, `${NAME}` is left to the shell, and a brace that opens no placeholder stays as it is.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

_TOKEN = re.compile(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_][\w.]*)\}")
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
Argument = str | int | float
Quotes = Literal["", "'", '"']


def placeholders(command: Sequence[Argument] | str) -> frozenset[str]:
    """Names in braces."""
    return _placeholders(command if isinstance(command, str) else tuple(command))


@lru_cache(maxsize=512)
def _placeholders(command: tuple[Argument, ...] | str) -> frozenset[str]:
    parts = (command,) if isinstance(command, str) else command
    return frozenset(name for part in parts for name, _, _ in _tokens(str(part)) if name)


def _tokens(template: str) -> Iterator[tuple[str | None, str, int]]:
    """(name, text, position): a placeholder has a name; a doubled brace has the text it stands for."""
    depth = 0
    for match in _TOKEN.finditer(template):
        text = match[0]
        if match[1] is not None:
            yield match[1], text, match.start()
        elif text == "{{":
            depth += 1
            yield None, "{", match.start()
        else:  # `}}` that closes no `{{` is the end of something like {"a": {"b": 1}}
            yield None, "}" if depth else "}}", match.start()
            depth = max(0, depth - 1)


def fill(template: str, values: Mapping[str, str]) -> str:
    """`{name}` replaced where it is a known name; any other stays as it is."""
    return _filled(template, lambda name, text, position: values.get(name, text))


def _filled(template: str, value: Callable[[str, str, int], str]) -> str:
    parts, end = [], 0
    for name, text, position in _tokens(template):
        parts.append(template[end:position])
        parts.append(text if name is None else value(name, text, position))
        end = position + (len(text) if name is not None or text == "}}" else 2)
    return "".join((*parts, template[end:]))


def fill_argv(command: Sequence[Argument], values: Mapping[str, Any], flags: Sequence[str]) -> list[str]:
    """Each part filled in; `{flags}` alone becomes as many arguments as there are flags."""
    texts = {key: as_text(value) for key, value in values.items()}
    return [word for part in command for word in (flags if part == "{flags}" else [fill(as_text(part), texts)])]


def fill_shell(
    command: str, values: Mapping[str, Any], flags: Sequence[str], variables: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """The text for `/bin/sh -c`, and environment variables that it needs.

    A value of plain characters stands as it is. Any other is quoted, where the text before it leaves no doubt that
    quotes mean what they say; else the shell takes it from an environment variable (named by `variables`), and what
    comes out of a variable is never read as code.
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
            case "'":
                return f"'\"${{{variable}}}\"'"
            case '"':
                return f"${{{variable}}}"
            case _:
                return f'"${{{variable}}}"'

    def value(name: str, text: str, position: int) -> str:
        if name == "flags":
            return " ".join(word(flag, f"BAKEOFF_FLAG_{number}", position) for number, flag in enumerate(flags))
        return word(as_text(values[name]), variables[name], position) if name in values else text

    return _filled(command, value), needed


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
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """`--name value` for each parameter; true is the bare flag, false and none are left out."""
    flags: list[str] = []
    for name, value in values.items():
        if value is True:
            flags.append(f"--{name}")
        elif value is not None and value is not False:
            flags += [f"--{name}", as_text(value)]
    return flags
