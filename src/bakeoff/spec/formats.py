"""What files are written in: TOML, YAML and JSON as nested tables, `${VAR}` in their texts, and `.env` files.

    read("seeds = 3", ".toml")                   # {'seeds': 3}
    expand("${HOME}/data", variables())          # '/home/me/data'
    expand("${NOT_SET:-default}", variables())   # 'default'

The three formats agree: keys are text, a key stands once, `1e-3` is a number.

YAML is read by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema): `no`, `on`, `1:30` and dates
are text, as anyone new to it expects.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

SUFFIXES = (".toml", ".yaml", ".yml", ".json")
MOST_DEPTH = 100
MOST_VALUES = 5_000_000
"""How deep and how large a file's content may be; what is larger is a mistake, or an attack."""
_CORE_SCHEMA = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", "<<", "<"),
)
"""(tag, pattern of the text, first characters) of values that are not text."""


class NotReadable(ValueError):
    """The text is not of the format; `line` is where, when that is known."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def read(text: str, suffix: str) -> Any:
    """The content of a file whose name ends in `suffix`, one of SUFFIXES. Raises NotReadable."""
    try:
        tree = _parse(text, suffix)
    except RecursionError:
        raise NotReadable(f"tables and lists are nested too deeply; the limit is {MOST_DEPTH}", None) from None
    except NotReadable:
        raise
    except ValueError as error:  # int() takes no text of more than 4,300 digits
        raise NotReadable(f"a number in it cannot be read: {str(error).partition(';')[0]}", None) from error
    _check_values(tree)
    return tree


def _check_values(tree: Any) -> None:
    """Raise NotReadable for a tree that would take forever to go through, and for text that no command could be given.

    In YAML an alias stands for what it names: a few lines can be a list of a billion values.
    """
    count = 0
    level: list[Any] = [tree]
    for _ in range(MOST_DEPTH + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str) and "\0" in value:
                text = f"the text {value[:40]!r} has a NUL character, which no command, path or variable can hold"
                raise NotReadable(text, None)
            if count + len(below) > MOST_VALUES:
                raise NotReadable(f"it is too large; the limit is {MOST_VALUES:,} values", None)
        count += len(below)
        if not below:
            return
        level = below
    raise NotReadable(f"tables and lists are nested too deeply; the limit is {MOST_DEPTH}", None)


def _parse(text: str, suffix: str) -> Any:
    if suffix == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            message, _, place = str(error).partition(" (at ")
            match = re.match(r"line (\d+)", place)
            at_end = text.count("\n") + 1 if place.startswith("end") else None
            raise NotReadable(f"not valid TOML: {message}", int(match[1]) if match else at_end) from error
    if suffix == ".json":
        try:
            return json.loads(text, object_pairs_hook=_unique)
        except json.JSONDecodeError as error:
            raise NotReadable(f"not valid JSON: {error.msg}", error.lineno) from error
    import yaml

    depth = 0  # PyYAML's scanner looks at every open bracket at every sign: many of them take it forever
    for sign in re.findall(r"[\[\]{}]", text):
        depth += 1 if sign in "[{" else -1
        if depth > 10 * MOST_DEPTH:
            raise RecursionError
    try:
        return yaml.load(text, Loader=_yaml_loader())  # a subclass of SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or error
        raise NotReadable(f"not valid YAML: {reason}", mark.line + 1 if mark else None) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON table; a key that stands twice is an error, where `json` would keep the last one silently."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotReadable(f"the key {twice!r} stands twice in one table", None)
    return table


@cache
def _yaml_loader() -> type[yaml.SafeLoader]:
    """PyYAML's safe loader with the core schema instead of YAML 1.1, text as keys, and no key twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012 - replaced as a whole, then filled below

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    message = "a key is text or a number, not a table or a list"
                    raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
                if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                    message = f"the key {key.value!r} stands twice in one table"
                    raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
                seen.add(str(key.value))
            self.flatten_mapping(node)  # `<<: *anchor`
            for key, _ in node.value:  # 1: and true: are text too, as they are in TOML and JSON
                key.tag = "tag:yaml.org,2002:str"
            return super().construct_mapping(node, deep)

    def construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
        text = node.value
        return int(text, 0) if text.lstrip("+-")[:2] in ("0x", "0o") else int(text)

    for kind, pattern, first in _CORE_SCHEMA:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})$"), list(first))
    Loader.add_constructor("tag:yaml.org,2002:int", construct_int)
    return Loader


# -- variables

# $$, ${NAME} or ${NAME:-default}. A bare $NAME is left alone: shell commands are full of them.
_REFERENCE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

# One line of a .env file: optional `export`, a name, and a value in single quotes, double quotes or bare.
_LINE = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*"""
    r"""(?:'(?P<single>[^']*)'\s*(?:\#.*)?$|"(?P<double>[^"]*)"\s*(?:\#.*)?$|(?P<bare>.*))"""
)


class MissingVariable(KeyError):
    """A `${VAR}` that is set nowhere and has no default."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Fill in `${VAR}` and `${VAR:-default}`; `$$` is a dollar sign. Raises MissingVariable."""

    def fill(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name is None:
            return "$"
        if variables.get(name) or (name in variables and default is None):
            return variables[name]
        if default is not None:  # as `:-` in a shell: an empty variable counts as not set
            return default
        raise MissingVariable(name)

    return _REFERENCE.sub(fill, text)


def expand_tree(value: Any, variables: Mapping[str, str]) -> Any:
    """`expand` over every text in nested lists and tables."""
    if isinstance(value, str):
        return expand(value, variables) if "$" in value else value
    if isinstance(value, list):
        return [expand_tree(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: expand_tree(item, variables) for key, item in value.items()}
    return value


def parse_value(text: str) -> Any:
    """Read a value from a command line: 0.1, true and [1, 2] as in TOML, and anything else as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def variables(start: Path | None = None) -> dict[str, str]:
    """The environment on top of the nearest `.env` from `start` (the working directory) upwards."""
    directory = (start or Path.cwd()).resolve()
    for folder in (directory, *directory.parents):
        file = folder / ".env"
        if file.is_file():
            return {**read_env_file(file.read_text(encoding="utf-8", errors="replace")), **os.environ}
    return dict(os.environ)


def read_env_file(text: str) -> dict[str, str]:
    """`NAME=value` lines; `export`, quotes and comments mean what they mean in a shell."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None:
            quoted = match["single"] if match["single"] is not None else match["double"]
            values[match["name"]] = quoted if quoted is not None else re.sub(r"(^|\s+)#.*", "", match["bare"]).rstrip()
    return values
