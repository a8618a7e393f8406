"""Where a key stands in a file, so that an error can name the line. Best effort: None when it cannot be told."""

from __future__ import annotations

import re
from typing import Any

KeyPath = tuple[str | int, ...]


def find_line(text: str, suffix: str, path: KeyPath) -> int | None:
    """The line (from 1) of the deepest part of `path` that can be found."""
    for end in range(len(path), 0, -1):
        line = _toml_line(text, path[:end]) if suffix == ".toml" else _yaml_line(text, path[:end])
        if line is not None:
            return line
    return None


def _yaml_line(text: str, path: KeyPath) -> int | None:
    """JSON is close enough to YAML for its marks to be right."""
    import yaml

    try:
        node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    line: int | None = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if found is None:
                return None
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return None
    return line


def _toml_line(text: str, path: KeyPath) -> int | None:
    """Follows table headers and counts `[[array]]` entries; keys of inline tables are found by their parent's line."""
    wanted = tuple(path)
    table: KeyPath = ()
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[(\[)?\s*([^\]]+?)\s*\]", line):
            name = header[2]
            table = tuple(re.sub(r"[\"']", "", part).strip() for part in name.split("."))
            if header[1]:
                counts[name] = counts.get(name, -1) + 1
                table = (*table, counts[name])
            elif table[0] in counts:  # a table below an array entry: [arms.params]
                table = (table[0], counts[str(table[0])], *table[1:])
            if table == wanted:
                return number
        elif key := re.match(r"\s*([\w\-.\"']+)\s*=", line):
            parts = tuple(re.sub(r"[\"']", "", part) for part in key[1].split("."))
            if (*table, *parts) == wanted:
                return number
    return None
