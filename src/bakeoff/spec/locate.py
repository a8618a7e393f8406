"""Where a key stands in a file, so that an error can name the line. Best effort: None when it cannot be told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

KeyPath = tuple[str | int, ...]


def find_line(text: str, suffix: str, path: KeyPath) -> int | None:
    """The line (from 1) of the deepest part of `path` that can be found."""
    lines = dict(_toml_lines(text) if suffix == ".toml" else _yaml_lines(text))
    parts = [str(part) for part in path]
    for end in range(len(parts), 0, -1):
        line = lines.get(".".join(parts[:end]))
        if line is not None:
            return line
    return None


def _yaml_lines(text: str) -> Iterator[tuple[str, int]]:
    """(dotted key, line) of everything in a YAML file. JSON is close enough to YAML for its marks to be right."""
    import yaml

    try:
        # Tabs may indent JSON and never YAML; outside of strings they are only space.
        tree: Any = yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return
    waiting: list[tuple[str, Any]] = [("", tree)]
    while waiting:
        prefix, node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            inside = [(f"{prefix}{key.value}", key.start_mark.line + 1, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            inside = [(f"{prefix}{number}", item.start_mark.line + 1, item) for number, item in enumerate(node.value)]
        else:
            continue
        for name, line, value in inside:
            yield name, line
            waiting.append((f"{name}.", value))


def _toml_lines(text: str) -> Iterator[tuple[str, int]]:
    """(dotted key, line) of everything in a TOML file that is known to be valid."""
    return _Toml(text).keys()


class _Toml:
    """Walks over the text; `_at` is where it has come to."""

    _SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
    _PART = re.compile(r"""[ \t]*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_\-]+))[ \t]*(\.)?""")
    _ATOM = re.compile(
        r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[^,\]}\n#]+', re.DOTALL
    )

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counts: dict[KeyPath, int] = {}

    def keys(self) -> Iterator[tuple[str, int]]:
        table: KeyPath = ()
        while self._peek():
            if self._peek() == "[":
                line, table = self._line(), self._header()
                yield _dotted(table), line
            else:
                yield from self._pair(table)

    def _peek(self) -> str:
        found = self._SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _header(self) -> KeyPath:
        array = self._text.startswith("[[", self._at)
        self._at += 2 if array else 1
        path: KeyPath = ()
        parts = self._key()
        for number, part in enumerate(parts, 1):
            path = (*path, part)
            if array and number == len(parts):
                self._counts[path] = self._counts.get(path, -1) + 1
            if path in self._counts:  # [arms.params] belongs to the last [[arms]]
                path = (*path, self._counts[path])
        self._at = self._text.index("]", self._at) + (2 if array else 1)
        return path

    def _key(self) -> list[str]:
        parts = []
        while found := self._PART.match(self._text, self._at):
            self._at = found.end()
            parts.append(next(part for part in found.groups()[:3] if part is not None))
            if not found[4]:
                break
        return parts

    def _pair(self, table: KeyPath) -> Iterator[tuple[str, int]]:
        line = self._line()
        path = (*table, *self._key())
        yield _dotted(path), line
        self._at = self._text.index("=", self._at) + 1
        yield from self._value(path)

    def _value(self, path: KeyPath) -> Iterator[tuple[str, int]]:
        opening = self._peek()
        if opening not in ("[", "{"):
            found = self._ATOM.match(self._text, self._at)
            self._at = found.end() if found else len(self._text)
            return
        self._at += 1
        number = 0
        while self._peek() not in ("]", "}", ""):
            if opening == "{":
                yield from self._pair(path)
            else:
                yield _dotted((*path, number)), self._line()
                yield from self._value((*path, number))
                number += 1
            if self._peek() == ",":
                self._at += 1
        self._at += 1


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)
