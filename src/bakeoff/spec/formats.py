"""TOML, YAML and JSON as nested tables. The three agree: keys are text, a key stands once, `1e-3` is a number.

YAML is read by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema): `no`, `on`, `1:30` and dates
are text, as anyone new to it expects.
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

SUFFIXES = (".toml", ".yaml", ".yml", ".json")
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
                if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                    message = f"the key {key.value!r} stands twice in one table"
                    raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
                seen.add(str(key.value))
            self.flatten_mapping(node)  # `<<: *anchor`
            for key, _ in node.value:  # 1: and true: are text too, as they are in TOML and JSON
                if isinstance(key, yaml.ScalarNode):
                    key.tag = "tag:yaml.org,2002:str"
            return super().construct_mapping(node, deep)

    def construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
        text = node.value
        return int(text, 0) if text.lstrip("+-")[:2] in ("0x", "0o") else int(text)

    for kind, pattern, first in _CORE_SCHEMA:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})$"), list(first))
    Loader.add_constructor("tag:yaml.org,2002:int", construct_int)
    return Loader
