"""What is wrong with a file, in plain words: the key, the line, the problem, and what was probably meant.

`problems` translates pydantic's validation errors; `find_line` finds the line of a key in TOML, YAML or JSON text.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from bakeoff.errors import Problem, did_you_mean
from bakeoff.text import flat

KeyPath = tuple[str | int, ...]
_FIXES = {
    "list_type": "write it as a list: [...]",
    "dict_type": "write it as a table",
    "model_type": "write it as a table",
}
_PLAIN = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
}
"""What pydantic's kinds of errors are in the words of the three formats."""


def problems(error: ValidationError, model: type[BaseModel], prefix: KeyPath = (), given: Any = None) -> list[Problem]:
    """Pydantic's errors in our words, with a did-you-mean for unknown keys.

    `model` is what was validated against, and `prefix` where its table stands in the file. `given` is the content that
    was validated: parts of a location that are not in it only name a branch of a union.
    """
    by_key: dict[str, Problem] = {}
    for item in error.errors(include_url=False):
        kind, location = item["type"], item["loc"]
        key = _dotted((*prefix, *_place(location, given)))
        if kind == "extra_forbidden":
            owner = _model_at(model, location[:-1])
            names = list(owner.model_fields) if owner else []
            params = "; parameters of a run belong into params" if "params" in names else ""
            fix = did_you_mean(str(location[-1]), names, f"known keys: {', '.join(names)}{params}")
            problem = Problem(key, "unknown key", fix)
        elif kind == "missing":
            problem = Problem(key, "is needed", f"add {location[-1]} = ...")
        else:
            message = item["msg"].removeprefix("Value error, ")  # pydantic puts this before what our validators raise
            message = (message[0].lower() + message[1:] if message else "is wrong").replace(
                "input should be", "must be"
            )
            message = _PLAIN.get(kind, message)
            value = item.get("input")
            if message.startswith("must be ") and isinstance(value, str | int | float):
                message += f", not {flat(json.dumps(value, ensure_ascii=False), 60)}"
            problem = Problem(key, message, _fix(model, kind, location, value))
        earlier = by_key.get(key)
        if earlier is not None and earlier.message != problem.message:  # branches of a union, none of which fits
            branches = f"{earlier.message.partition(', not ')[0]}, or {problem.message}"
            problem = Problem(key, branches, earlier.fix or problem.fix)
        by_key[key] = problem
    return list(by_key.values())


def _fix(model: type[BaseModel], kind: str, location: KeyPath, value: Any) -> str:
    """How to write it, for lists and tables. A list of entries is written with double brackets in TOML."""
    entries = next((str(part) for part in reversed(location) if not isinstance(part, int)), "")
    if kind in ("list_type", "model_type") and len(location) <= 2 and entries in model.model_fields:
        entry = _inner_model(model.model_fields[entries].annotation)
        if entry is not None and "name" in entry.model_fields and isinstance(value, dict | str):
            name = value if isinstance(value, str) else next(iter(value), "a")
            return f"write each entry as [[{entries}]] with its keys below: name = {json.dumps(name)}"
    return _FIXES.get(kind, "")


def _place(location: Sequence[str | int], given: Any) -> KeyPath:
    """`location` without what is not in `given`; its last part may name something that is missing there."""
    here: Any = given
    place: list[str | int] = []
    for number, part in enumerate(location):
        inside = here if isinstance(here, dict) else dict(enumerate(here)) if isinstance(here, list) else {}
        last = number == len(location) - 1
        if part in inside:
            here = inside[part]
        # pydantic names validators ("function-before[...]") and branches of unions as parts of the location
        elif str(part).startswith("function-") or (given is not None and not (last and isinstance(here, dict))):
            continue
        place.append(part)
    return tuple(place)


def _model_at(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    """The model that the table at `location` is an instance of."""
    here: Any = model
    named = False  # inside a table whose keys are names, one part of the location is such a name
    for part in location:
        if isinstance(part, int) or named:
            named = False
            continue
        if not (isinstance(here, type) and issubclass(here, BaseModel)):
            return None
        if part in here.model_fields:
            annotation = here.model_fields[part].annotation
            here, named = _inner_model(annotation), get_origin(annotation) is dict
        elif part != here.__name__:  # a union's branch is called after its model
            return None
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _inner_model(annotation: Any) -> Any:
    """The first model inside `list[...]`, `dict[...]`, `... | None` and the like."""
    if get_origin(annotation) in (list, tuple, dict, Annotated, Union, types.UnionType):
        return next((inner for arg in get_args(annotation) if (inner := _inner_model(arg)) is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


# -- lines


def find_line(text: str, suffix: str, path: KeyPath) -> int | None:
    """The line (from 1) of the deepest part of `path` that can be found; None when none can."""
    lines = dict(_Toml(text).keys() if suffix == ".toml" else _yaml_lines(text))  # the last one wins, as in the parsers
    parts = [str(part) for part in path]
    for end in range(len(parts), 0, -1):
        key = ".".join(parts[:end])
        line = lines.get(key, lines.get(f"{key}.0"))  # a list of entries begins with its first one
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


class _Toml:
    """Walks over TOML text that is known to be valid; `_at` is where it has come to.

    `tomllib` does not report positions, so this reads just enough of the grammar (https://toml.io/en/v1.0.0) to find
    keys: headers, keys, and where values end.
    """

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
        """(dotted key, line) of every key, table and list entry."""
        table: KeyPath = ()
        while self._peek():
            if self._peek() == "[":
                line, table = self._line(), self._header()
                yield _dotted(table), line
            else:
                yield from self._pair(table)

    def _peek(self) -> str:
        """The next character that is neither space nor comment."""
        space = self._SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
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
        while match := self._PART.match(self._text, self._at):
            self._at = match.end()
            parts.append(next(part for part in match.groups()[:3] if part is not None))
            if not match[4]:
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
            atom = self._ATOM.match(self._text, self._at)
            self._at = atom.end() if atom else len(self._text)
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
