"""Rules that choose runs: `{policy = "full", seed = [1, 2]}`, `arm=full*`, or `policy == 'full' and seed < 3`.

    test = expression("arm=full* and seed<3", known=plan.names)
    [run for run in plan if test(facts(run.cell, run.seed, run.rollout))]

Expressions are parsed with `ast` and evaluated by the few lines below; nothing is ever passed to `eval`.
`name=value` is rewritten to `'name' @ 'value'` first, an operator that no other part of the language uses.
"""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.spec.identity import flatten

Facts = Mapping[str, Any]
"""What a rule can ask about a run, by name."""
Test = Callable[[Facts], bool]

LONGEST = 10_000
"""Characters of an expression."""
HELP = "write arm=full, seed<5, policy in ['a', 'b'], joined by and / or / not"


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, group: item in group,
    ast.NotIn: lambda item, group: item not in group,
}
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Name, ast.Attribute, ast.Load,
    ast.Constant, ast.List, ast.Tuple, ast.cmpop, ast.BinOp, ast.MatMult,
)  # fmt: skip
_KEY = r"[A-Za-z_][\w.\-]*"
# `name=value` and nothing else: the value may hold spaces, commas and globs without quotes.
_ALONE = re.compile(rf"\s*({_KEY})\s*=(?!=)\s*([^=<>'\"()]*?)\s*")
# `name=value` inside a longer expression: the value ends at a space or bracket, unless it is quoted. Quoted text is matched
# first, so that an equals sign inside of it is not taken for a comparison.
_SHORTHAND = re.compile(
    rf"""(?P<text>'[^']*'|"[^"]*")|(?P<key>{_KEY})\s*=(?!=)\s*(?P<value>'[^']*'|"[^"]*"|[^\s=<>'"()]+)"""
)


def rule(text_or_table: str | Mapping[str, Any], known: Collection[str] | None = None) -> Test:
    """A rule from a file: a table of values to match, or an expression. `known` as for `expression`."""
    if isinstance(text_or_table, str):
        return expression(text_or_table, known)
    wanted = flatten(dict(text_or_table))
    return _with_names_checked(
        lambda facts: all(_matches(facts.get(key), value) for key, value in wanted.items()), list(wanted), known
    )


def expression(text: str, known: Collection[str] | None = None) -> Test:
    """A rule from text. `name=value` with bare words (globs allowed, several with commas) is short for a comparison.

    `known` are the names that any run of the plan has: another one is an error at once, and a run without one of
    them has `None` there. Without `known` every run must have every name.
    """
    tree = _parse(text)
    return _with_names_checked(lambda facts: bool(_evaluate(tree, facts)), sorted(_names(tree)), known)


def names(text_or_table: str | Mapping[str, Any]) -> set[str]:
    """Which facts a rule asks for."""
    return _names(_parse(text_or_table)) if isinstance(text_or_table, str) else set(flatten(dict(text_or_table)))


def _with_names_checked(test: Test, asked: list[str], known: Collection[str] | None) -> Test:
    """The test, with its names checked now against `known`, or else against each run."""

    def check(names: Collection[str]) -> None:
        for name in asked:
            if name not in names:
                hint = did_you_mean(name, names, f"known: {', '.join(sorted(names))}")
                raise UsageError(f"no run has {name!r}; {hint}")

    if known is not None:
        check(known)
        return test

    def checked(facts: Facts) -> bool:
        check(facts)
        return test(facts)

    return checked


def _parse(text: str) -> ast.expr:
    """The expression as a tree that has only nodes that `_evaluate` knows. Raises UsageError."""
    if len(text) > LONGEST:
        raise UsageError(f"a rule of {len(text):,} characters is too long; the limit is {LONGEST:,}: {text[:40]!r}...")
    alone = _ALONE.fullmatch(text)
    if alone and not re.search(r"\s(and|or)\s", alone[2]):
        return ast.BinOp(ast.Constant(alone[1]), ast.MatMult(), ast.Constant(alone[2]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a string would print a SyntaxWarning
            tree = ast.parse(_SHORTHAND.sub(_longhand, text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or str(error) or "too deeply nested"
        shown = text if len(text) < 200 else f"{text[:200]}..."
        raise UsageError(f"cannot read the expression {shown!r}: {reason}; {HELP}") from error
    for node in ast.walk(tree):  # an allow list: anything that Python may add to its grammar later is refused
        if not _harmless(node):
            raise UsageError(f"{type(node).__name__} is not allowed in the expression {text!r}; {HELP}")
    return tree


def _longhand(match: re.Match[str]) -> str:
    """`name=value` becomes `'name' @ 'value'`; text in quotes stays as it is."""
    if match["key"] is None:
        return match[0]
    key, value = match["key"], match["value"]
    quoted = value if value[0] in "'\"" else repr(value)
    return f"{key!r} @ {quoted}"


def _harmless(node: ast.AST) -> bool:
    """Whether a node is part of the language: no calls, no arithmetic, no dunder names."""
    if not isinstance(node, _ALLOWED) or isinstance(node, ast.Is | ast.IsNot):
        return False
    match node:
        case ast.BinOp(left=left, right=right):
            return all(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (left, right))
        case ast.Attribute(value=value, attr=name):
            return isinstance(value, ast.Name | ast.Attribute) and not name.startswith("__")
        case ast.Name(id=name):
            return not name.startswith("__")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return isinstance(operand, ast.Constant) and type(operand.value) in (int, float)
    return True


def _names(node: ast.expr) -> set[str]:
    """The names that an expression asks for."""
    match node:
        case ast.Attribute():
            return {ast.unparse(node)}
        case ast.Name(id=name):
            return set() if name in _WORDS else {name}
        case ast.BinOp(left=ast.Constant(value=str(name))):
            return {name}
    return {name for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for name in _names(child)}


def _evaluate(node: ast.expr, facts: Facts) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _WORDS[name] if name in _WORDS else facts.get(name)
        case ast.Attribute():
            return facts.get(ast.unparse(node))
        case ast.BinOp(left=ast.Constant(value=str(name)), right=ast.Constant(value=str(wanted))):
            return any(_same_text(facts.get(name), part.strip()) for part in wanted.split(","))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_evaluate(item, facts) for item in items]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluate(operand, facts)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, facts)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_evaluate(value, facts) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_evaluate(value, facts) for value in values)
        case ast.Compare():
            return _compare(node, facts)
    raise UsageError(f"cannot evaluate {ast.unparse(node)!r}; {HELP}")


def _compare(node: ast.Compare, facts: Facts) -> bool:
    """A comparison, perhaps chained as in `1 < seed < 5`."""
    value = _evaluate(node.left, facts)
    for op, other in zip(node.ops, node.comparators, strict=True):
        following = _evaluate(other, facts)
        if isinstance(op, _ORDER) and (value is None or following is None):
            return False  # a run that lacks the value is neither below nor above anything
        try:
            holds = _COMPARE[type(op)](value, following)
        except TypeError as error:
            raise UsageError(f"cannot compare in {ast.unparse(node)!r}: {error}") from error
        if not holds:
            return False
        value = following
    return True


def _matches(actual: Any, wanted: Any) -> bool:
    """A value in a table: text may be a glob, a list means any of its values."""
    if isinstance(wanted, list):
        return actual == wanted or any(_matches(actual, item) for item in wanted)
    if isinstance(wanted, str) and isinstance(actual, str):
        return actual == wanted or fnmatch.fnmatchcase(actual, wanted)
    return bool(actual == wanted)


def _same_text(value: Any, wanted: str) -> bool:
    """`lr=1e-3` means the number however it is written; `routing=true` the boolean; anything else is a glob."""
    if isinstance(value, bool) or value is None:
        return str(value).lower() == wanted.lower()
    if isinstance(value, int | float):
        try:
            if value == float(wanted):
                return True
        except ValueError:
            pass
    return str(value) == wanted or fnmatch.fnmatchcase(str(value), wanted)
