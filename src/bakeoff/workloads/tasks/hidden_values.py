"""Constants of hidden tests, compared with what is in memory; `pytest_in_box.py` loads this file in the sandbox.

    EXPECTED = {1: 2, 2: 4}         # in a hidden file: the work may not change it before a test compares with it

Values are read from the source, before any line of the work has run. Only constants count that neither the tests nor
honest work can change: an immutable value that is bound once, or a list, dict or set of immutable values that no test
passes on. Written for any Python from 3.8 on; it imports nothing of this package.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from typing import Any

CHANGED = "changed in memory: "
IMMUTABLE = (int, float, complex, str, bytes, bool, type(None))
READING = ("items", "keys", "values", "get", "copy", "index", "count")
COPYING = ("len", "sorted", "sum", "min", "max", "list", "tuple", "set", "dict", "enumerate", "zip", "parametrize")


class HiddenValues:
    """The constants of the hidden files at these paths."""

    def __init__(self, paths: list[str]) -> None:
        trees = {path: tree for path, tree in ((path, _parsed(path)) for path in paths) if tree is not None}
        exposed = {name for tree in trees.values() for name in _exposed(tree)}
        self.constants: dict[str, dict[str, Any]] = {}
        """By file: name to value."""
        for path, tree in trees.items():
            own = {
                name: value
                for name, value in _literals(tree)
                if _frozen(value) or (_flat(value) and name not in exposed)
            }
            self.constants[os.path.realpath(path)] = own
        modules = {os.path.basename(path)[:-3]: os.path.realpath(path) for path in trees}
        for path, tree in trees.items():  # names that one hidden file imports from another
            for node in tree.body:
                place = modules.get(str(node.module).rpartition(".")[2]) if isinstance(node, ast.ImportFrom) else None
                if isinstance(node, ast.ImportFrom) and place is not None:
                    known, own = self.constants[place], self.constants[os.path.realpath(path)]
                    for alias in node.names:
                        if alias.name in known:
                            own.setdefault(alias.asname or alias.name, known[alias.name])

    def changes(self, test: Any) -> Iterator[str]:
        """Constants that are not what the files say: in `test`, the module of a test, and in hidden modules."""
        held = [test, *sys.modules.values()] if test is not None else list(sys.modules.values())
        for module in held:
            file = getattr(module, "__file__", None)
            known = self.constants.get(os.path.realpath(file)) if isinstance(file, str) else None
            for name, value in (known or {}).items():
                if name in vars(module) and not same(vars(module)[name], value):
                    yield f"{CHANGED}{name}"


def _parsed(path: str) -> ast.Module | None:
    try:
        with open(path, encoding="utf-8") as file:
            return ast.parse(file.read()) if path.endswith(".py") else None
    except (OSError, SyntaxError, ValueError):
        return None


def _literals(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Names that a module binds once, at its top, to a literal."""
    bound = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
    bound += [name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names]
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name) and value is not None:
            try:
                if bound.count(target.id) == 1:
                    yield target.id, ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue


def _exposed(tree: ast.Module) -> set[str]:
    """Names whose values a module passes on, so that they may change: anything but reading and comparing them."""
    above = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    names = set()
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if name is None or not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
            continue
        parent = above.get(node)
        called = parent.func if isinstance(parent, ast.Call) else None
        word = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        reads = (
            isinstance(parent, ast.Compare)
            or (isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load))
            or (isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node)
            or (isinstance(parent, ast.Attribute) and parent.attr in READING)
            or (isinstance(parent, ast.Call) and node is not called and word in COPYING)
        )
        if not reads:
            names.add(name)
    return names


def _frozen(value: Any) -> bool:
    """Whether a literal cannot change."""
    return type(value) in IMMUTABLE or (type(value) is tuple and all(map(_frozen, value)))


def _flat(value: Any) -> bool:
    """Whether a list, dict or set holds nothing that can change. An empty one is there to be filled."""
    parts = list(value.values()) if type(value) is dict else list(value)
    return bool(parts) and all(map(_frozen, parts))


def same(now: Any, value: Any) -> bool:
    """Whether something is the same plain value as a literal, which has no method of the work's."""
    if type(now) is not type(value):
        return False
    if type(value) in (list, tuple):
        return len(now) == len(value) and all(map(same, now, value))
    if type(value) is dict:
        return len(now) == len(value) and all(key in now and same(now[key], value[key]) for key in value)
    return bool(now == value) or (value != value and now != now)
