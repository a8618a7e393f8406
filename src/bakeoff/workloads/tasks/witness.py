"""Changes hidden tests while Python compiles them, inside the sandbox, so that they say what happened in them;
`pytest_in_box.py` loads this file there.

    def test_add():                 def test_add():
        assert add(2, 3) == 5           assert (_left := add(2, 3)) == (_right := 5)
                                        _compared(_left, _right)
                                        _ended(...)

A test has passed only if it says that it came to its end, whatever pytest reports about it. A comparison that holds is
repeated with another value: an object that is equal to that, too, is equal to everything. The file itself stays as it is.
Written for any Python from 3.8 on; it imports nothing of this package.
"""

from __future__ import annotations

import ast
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

ENDED, COMPARED = "__test_ended__", "__test_compared__"
LEFT, RIGHT = "__test_left__", "__test_right__"
EQUALITIES = (
    "assertEqual", "assertEquals", "assertAlmostEqual", "assertCountEqual", "assertDictEqual", "assertIs",
    "assertListEqual", "assertMultiLineEqual", "assertSequenceEqual", "assertSetEqual", "assertTupleEqual",
    "assert_allclose", "assert_almost_equal", "assert_array_almost_equal", "assert_array_equal", "assert_equal",
    "assert_frame_equal", "assert_index_equal", "assert_series_equal",
)  # fmt: skip
SIMPLE = (int, float, complex, str, bytes, bool, type(None))
MAX_PARTS = 10_000
"""Parts of a value that is changed for the second comparison; larger ones are not compared again."""


def install(
    script: str, key: str, ended: Callable[[str], None], liar: Callable[[str], None], trusted: set[str]
) -> None:
    """Have pytest compile `script` so that its tests call `ended` with `key` at their end.

    `liar` gets the name of a type whose values are equal to values that differ, unless it is one of `trusted`.
    """
    from _pytest.assertion import rewrite

    def parse(source: Any, filename: Any = "<unknown>", *more: Any, **options: Any) -> Any:
        tree = ast.parse(source, filename, *more, **options)
        if os.path.realpath(os.fspath(filename)) == script:
            tree = ast.fix_missing_locations(Module(key).visit(tree))
        return tree

    rewrite.ast = types.SimpleNamespace(**{**vars(ast), "parse": parse})  # type: ignore[assignment, attr-defined]
    builtin = vars(sys.modules["builtins"])
    builtin[ENDED], builtin[COMPARED] = ended, Comparison(liar, trusted)


def witnesses(source: str) -> set[str]:
    """The tests in a script that `install` changes: `test_x`, or `TestY::test_x`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    return {"::".join(names) for names, function in tests(tree) if not generates(function)}


def tests(tree: ast.Module) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Test functions at the top of a module and in its classes, which pytest finds by these names by default."""
    for node in tree.body:
        if is_test(node):
            yield (node.name,), node  # type: ignore[attr-defined]
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if is_test(part):
                    yield (node.name, part.name), part  # type: ignore[attr-defined]


def is_test(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")


def generates(function: Any) -> bool:
    """Whether a function is a generator, which need not come to its end."""
    return any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in ast.walk(function))


class Module(ast.NodeTransformer):
    """Changes the test functions of a module. Helpers, fixtures and functions inside of tests stay as they are."""

    def __init__(self, key: str) -> None:
        self.key = key

    def visit_Module(self, node: ast.Module) -> ast.Module:
        for _, function in tests(node):
            if not generates(function):
                body = Body(self.key)
                changed = [body.visit(part) for part in function.body]
                function.body = [part for parts in changed for part in (parts if isinstance(parts, list) else [parts])]
                # In the last line, so that tracebacks and line numbers stay those of the file.
                function.body.append(ast.copy_location(body.end(), function.body[-1]))
        return node


class Body(ast.NodeTransformer):
    """The statements of one test function."""

    def __init__(self, key: str) -> None:
        self.key = key

    def end(self) -> ast.stmt:
        return ast.parse(f"{ENDED}({self.key!r})").body[0]

    def skip(self, node: Any) -> Any:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = skip

    def visit_Return(self, node: ast.Return) -> Any:
        """A test that returns has come to its end."""
        return [ast.copy_location(self.end(), node), node]

    def visit_Assert(self, node: ast.Assert) -> Any:
        test = node.test
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
            return node
        names = [ast.Name(id=name, ctx=ast.Store()) for name in (LEFT, RIGHT)]
        sides = [test.left, test.comparators[0]]
        test.left, test.comparators[0] = (
            ast.copy_location(ast.NamedExpr(target=name, value=side), side)
            for name, side in zip(names, sides)  # noqa: B905 - not in Python 3.8
        )
        return [node, ast.copy_location(ast.parse(f"{COMPARED}({LEFT}, {RIGHT})").body[0], node)]

    def visit_Expr(self, node: ast.Expr) -> Any:
        """`self.assertEqual(a, b)` of unittest is a comparison too, and so are functions of NumPy and pandas."""
        call = node.value
        if (
            isinstance(call, ast.Call)
            and getattr(call.func, "attr", getattr(call.func, "id", "")) in EQUALITIES
            and len(call.args) >= 2
            and not any(isinstance(part, ast.Starred) for part in call.args)
        ):
            for position, name in enumerate((LEFT, RIGHT)):
                side = call.args[position]
                target = ast.Name(id=name, ctx=ast.Store())
                call.args[position] = ast.copy_location(ast.NamedExpr(target=target, value=side), side)
            return [node, ast.copy_location(ast.parse(f"{COMPARED}({LEFT}, {RIGHT})").body[0], node)]
        return node


class Another:
    """Equal to nothing but itself."""

    def __repr__(self) -> str:
        return "another value"


class Comparison:
    """Called after `left == right` held: whether one of them is equal to a value that the other is not."""

    def __init__(self, liar: Callable[[str], None], trusted: set[str]) -> None:
        self.liar = liar
        self.trusted = trusted

    def __call__(self, left: Any, right: Any) -> None:
        for one, other in ((left, right), (right, left)):
            changed = another(other)
            # Only a plain value is changed in a way that any honest object must notice.
            if changed is None:
                continue
            try:
                same = bool(one == changed)
            except Exception:  # arrays and expressions have no truth value
                continue
            kind = self.odd_type(one) if same else ""
            if kind:
                self.liar(kind)

    def odd_type(self, value: Any, depth: int = 0) -> str:
        """The name of a type in `value` that decides for itself what it is equal to; empty if there is none.

        Where a type comes from does not matter: `unittest.mock.ANY` is Python's own, and work can give its types any
        name and place. Tests that compare with such objects themselves do so for the reference, too.
        """
        kind = type(value)
        if kind in (list, tuple, set, frozenset, dict) and depth < 5:
            parts = [*value.keys(), *value.values()] if kind is dict else list(value)
            return next(filter(None, (self.odd_type(part, depth + 1) for part in parts[:100])), "")
        if kind in SIMPLE or kind.__name__.strip("_") in self.trusted:
            return ""
        return f"{kind.__module__}.{kind.__qualname__}"


def another(value: Any, depth: int = 0) -> Any:
    """A value of the same type that is not equal to `value`; None if it is none of Python's plain values."""
    kind = type(value)
    if kind is bool:
        return not value
    if kind in (int, float, complex):
        # Far away, for a test may compare with a tolerance.
        return value * 1000 + 7919 if value * 1000 + 7919 != value else None
    if kind is str:
        return value + "\0x"
    if kind is bytes:
        return value + b"\0x"
    if value is None:
        return Another()
    if kind in (list, tuple, dict, set, frozenset) and len(value) > MAX_PARTS:
        return None
    if kind in (list, tuple) and depth < 5:
        parts = [part if (new := another(part, depth + 1)) is None else new for part in value]
        if not parts or all(a is b for a, b in zip(parts, value)):  # noqa: B905 - not in Python 3.8
            parts.append(Another())
        return kind(parts)
    if kind is dict and depth < 5:
        table = {key: part if (new := another(part, depth + 1)) is None else new for key, part in value.items()}
        if not table or all(table[key] is value[key] for key in value):
            table["\0x"] = Another()
        return table
    if kind in (set, frozenset):
        return kind([*value, Another()])
    return None
