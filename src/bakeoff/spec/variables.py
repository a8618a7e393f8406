"""`${VAR}` in files, from the environment and from a `.env` file in the working directory or above it.

expand("${HOME}/data", variables())          # '/home/me/data'
expand("${NOT_SET:-default}", variables())   # 'default'
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
