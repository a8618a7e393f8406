"""Which runs are meant: `{policy = "full", seed = [1, 2]}` or `policy == 'full' and seed < 3`.

Expressions are parsed with `ast` and evaluated by the few lines below; nothing is ever passed to `eval`.
"""

from __future__ import annotations

import ast
import difflib
import fnmatch
import operator
from collections.abc import Callable, Mapping
from typing import Any

from bakeoff.errors import UsageError

Facts = Mapping[str, Any]
Test = Callable[[Facts], bool]

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
HELP = "write arm=full, seed<5, policy in ['a', 'b'], joined by and / or / not"


def rule(text_or_table: str | Mapping[str, Any]) -> Test:
    """A rule from a file: a table of values to match, or an expression."""
    if isinstance(text_or_table, str):
        return expression(text_or_table)
    wanted = dict(text_or_table)
    return lambda facts: all(_matches(_lookup(facts, key), value) for key, value in wanted.items())


def expression(text: str) -> Test:
    """A rule from text. `name=value` with a bare word (globs allowed) is short for a comparison."""
    short = _shorthand(text)
    if short is not None:
        return short
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"cannot read the expression {text!r}: {error.msg}; {HELP}") from error
    _check(tree, text)
    return lambda facts: bool(_evaluate(tree, facts))


def _shorthand(text: str) -> Test | None:
    """`key=value[,value...]` with nothing quoted: values compare as text, globs count."""
    key, equals, value = text.partition("=")
    key = key.strip()
    plain = key.replace(".", "_").replace("-", "_").isidentifier() and not set(value) & set("=<>'\"()")
    if not equals or not plain or " and " in value or " or " in value:
        return None
    wanted = [part.strip() for part in value.split(",")]
    return lambda facts: any(fnmatch.fnmatchcase(_as_text(_lookup(facts, key)), part) for part in wanted)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _matches(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_matches(actual, one) for one in wanted)
    if isinstance(wanted, str) and isinstance(actual, str):
        return fnmatch.fnmatchcase(actual, wanted)
    return bool(actual == wanted)


def _lookup(facts: Facts, key: str) -> Any:
    if key in facts:
        return facts[key]
    close = difflib.get_close_matches(key, list(facts), n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(facts))}"
    raise UsageError(f"no run has {key!r}; {hint}")


def _check(tree: ast.expr, text: str) -> None:
    allowed = (
        ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Name, ast.Attribute, ast.Load,
        ast.Constant, ast.List, ast.Tuple, ast.cmpop,
    )  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, allowed) or isinstance(node, ast.Is | ast.IsNot):
            raise UsageError(f"{type(node).__name__} is not allowed in the expression {text!r}; {HELP}")


def _evaluate(node: ast.expr, facts: Facts) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return {"true": True, "false": False}.get(name) if name in ("true", "false") else _lookup(facts, name)
        case ast.Attribute():
            return _lookup(facts, ast.unparse(node))
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
        case ast.Compare(left=left, ops=ops, comparators=others):
            value = _evaluate(left, facts)
            for op, other in zip(ops, others, strict=True):
                following = _evaluate(other, facts)
                try:
                    holds = _COMPARE[type(op)](value, following)
                except TypeError as error:
                    raise UsageError(f"cannot compare in {ast.unparse(node)!r}: {error}") from error
                if not holds:
                    return False
                value = following
            return True
    raise UsageError(f"cannot evaluate {ast.unparse(node)!r}; {HELP}")
