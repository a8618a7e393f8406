"""Runs in a process of the work and carries out what tests do with its modules; `imported_work.py` is the other side.

Both sides exchange one JSON object a line. Values are plain data: numbers, text, bytes, dates, and lists, tuples, sets and
dicts of them. Everything else (functions, classes, objects, open iterators) stays in this process and is named by a number.
What arrives at the tests is therefore made of Python's own types, whatever the work does here: no value of the work decides
what it is equal to. `launcher.py` starts this file in the work's sandbox and carries the lines.
Written for any Python from 3.8 on; it imports nothing of this package.
"""

from __future__ import annotations

import base64
import collections
import datetime
import decimal
import fractions
import importlib
import io
import json
import operator
import os
import pathlib
import sys
import types
import uuid
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

MAX_DEPTH = 100
MAX_BITS = 8192
"""Of an integer in decimal: Python writes and reads at most 4,300 digits (sys.set_int_max_str_digits)."""
PLAIN = (bool, int, float, str, type(None))
TEXTS: dict[str, Any] = {
    "Decimal": (decimal.Decimal, str, decimal.Decimal),
    "Fraction": (fractions.Fraction, str, fractions.Fraction),
    "UUID": (uuid.UUID, str, uuid.UUID),
    "complex": (complex, str, complex),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
}
"""Types whose values travel as text: name to type, how it is written and how it is read."""
PARTS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "neg", "pos", "abs",
             "invert", "getitem", "setitem", "delitem")  # fmt: skip


class NotPlain(TypeError):
    """A value that cannot be sent as plain data."""


def encode(value: Any, other: Callable[[Any], Any], depth: int = 0) -> Any:
    """`value` as JSON. `other` gets what is not plain, and returns its JSON or raises NotPlain."""
    kind = type(value)
    if kind is int and value.bit_length() > MAX_BITS:
        return {"$": "int", "v": hex(value)}
    if kind in PLAIN:
        return value
    if depth > MAX_DEPTH:
        raise NotPlain(f"a value is nested more than {MAX_DEPTH} deep")
    if kind is list:
        return [encode(part, other, depth + 1) for part in value]
    if kind in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter):
        pairs = [[encode(key, other, depth + 1), encode(part, other, depth + 1)] for key, part in value.items()]
        return {"$": "dict", "v": pairs}
    for name, made in PARTS.items():
        if kind is made:
            return {"$": name, "v": [encode(part, other, depth + 1) for part in value]}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        parts = [encode(part, other, depth + 1) for part in value]
        return {"$": "namedtuple", "name": kind.__name__, "fields": list(kind._fields), "v": parts}
    if kind in (bytes, bytearray):
        return {"$": kind.__name__, "v": base64.b64encode(value).decode()}
    if kind is datetime.timedelta:
        return {"$": "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, pathlib.PurePath):
        return {"$": "path", "v": str(value)}
    for name, (made, write, _) in TEXTS.items():
        if kind is made:
            return {"$": name, "v": write(value)}
    return other(value)


def decode(tree: Any, other: Callable[[Any], Any], depth: int = 0) -> Any:
    """The value of JSON that `encode` made, or that somebody forged. `other` gets tables of a kind that is not plain.

    ValueError, TypeError, KeyError or RecursionError if it is none. Every value is of one of Python's own types.
    """
    if type(tree) in PLAIN:
        return tree
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if type(tree) is list:
        return [decode(part, other, depth + 1) for part in tree]
    kind, value = tree["$"], tree.get("v")
    if kind == "int":
        return int(str(value), 16)
    if kind == "dict":
        return {decode(key, other, depth + 1): decode(part, other, depth + 1) for key, part in value}
    if kind in PARTS:
        return PARTS[kind](decode(part, other, depth + 1) for part in value)
    if kind == "namedtuple":
        parts = [decode(part, other, depth + 1) for part in value]
        return collections.namedtuple(str(tree["name"]), [str(field) for field in tree["fields"]])(*parts)
    if kind in ("bytes", "bytearray"):
        return (bytes if kind == "bytes" else bytearray)(base64.b64decode(value))
    if kind == "timedelta":
        return datetime.timedelta(*map(int, value))
    if kind == "path":
        return pathlib.Path(str(value))
    if kind in TEXTS:
        return TEXTS[kind][2](str(value))
    return other(tree)


class Server:
    """The work's side: the objects that tests hold, by number, and what can be done with them."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.operations: dict[str, Callable[..., Any]] = {
            "import": importlib.import_module,
            "names": names,
            "get": getattr,
            "set": setattr,
            "call": lambda function, *arguments, **options: function(*arguments, **options),
            "len": len,
            "iter": iter,
            "next": next,
            "bool": bool,
            "str": str,
            "repr": repr,
            "await": self.wait,
            **{name: getattr(operator, name) for name in OPERATORS},
        }

    @staticmethod
    def wait(coroutine: Any) -> Any:
        import asyncio

        async def run() -> Any:
            return await coroutine

        return asyncio.run(run())

    def held(self, value: Any) -> dict[str, Any]:
        """A value that stays here: its number, and the names of its classes."""
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"$": "exception", "classes": class_names(value)}
        enum = sys.modules.get("enum")
        if enum is not None and isinstance(value, enum.Enum):
            names = [type(value).__module__, type(value).__qualname__, value.name]
            number = self.number(value)
            return {"$": "enum", "names": names, "id": number, "value": encode(value.value, self.held)}
        tree = {"$": "object", "id": self.number(value), "classes": class_names(type(value))}
        if isinstance(value, type):
            tree["class"] = [value.__module__, value.__qualname__]
        if enum is not None and isinstance(value, enum.EnumMeta):
            tree["members"] = [self.held(member) for member in value]
        if isinstance(value, (type, types.ModuleType)):
            tree["types"] = {name: self.held(kind) for name, kind in types_in(value)}
        return tree

    def number(self, value: Any) -> int:
        self.objects[len(self.objects)] = value
        return len(self.objects) - 1

    def found(self, tree: Any) -> Any:
        return self.objects[tree["id"]]

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what the tests ask. What the work prints meanwhile goes with the answer."""
        out, err = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(err):
                arguments = [decode(part, self.found) for part in order["args"]]
                options = {name: decode(part, self.found) for name, part in order["options"].items()}
                value = self.operations[order["op"]](*arguments, **options)
                answer: dict[str, Any] = {"value": encode(value, self.held)}
        except BaseException as error:
            answer = raised(error)
        return {**answer, "out": out.getvalue()[-100_000:], "err": err.getvalue()[-100_000:]}


def names(module: types.ModuleType) -> list[str]:
    """What `from module import *` is to import."""
    listed = getattr(module, "__all__", None)
    return [name for name in vars(module) if not name.startswith("_")] if listed is None else list(listed)


def types_in(holder: Any) -> list[tuple[str, type]]:
    """The classes of a module; those that are defined in a class, and the exceptions that it inherits as attributes."""
    if isinstance(holder, types.ModuleType):
        return [(name, kind) for name, kind in list(vars(holder).items()) if isinstance(kind, type)]
    inside = [(name, kind) for above in holder.__mro__[::-1] for name, kind in list(vars(above).items())]
    return [
        (name, kind)
        for name, kind in inside
        if isinstance(kind, type)
        and (issubclass(kind, BaseException) or kind.__qualname__ == f"{holder.__qualname__}.{name}")
    ]


def class_names(kind: type) -> list[list[str]]:
    return [[each.__module__, each.__qualname__] for each in kind.__mro__]


def raised(error: BaseException) -> dict[str, Any]:
    """An exception as data: the names of its classes, what it says, and its plain arguments and attributes."""

    def refuse(value: Any) -> Any:
        raise NotPlain(type(value).__name__)

    def plain(value: Any) -> Any:
        try:
            return encode(value, refuse)
        except Exception:
            return None

    try:
        text = str(error)
    except Exception:
        text = ""
    attributes = {name: plain(value) for name, value in list(vars(error).items()) if not name.startswith("_")}
    return {
        "raised": class_names(type(error)),
        "text": text,
        "args": plain(list(error.args)),
        "attributes": {name: value for name, value in attributes.items() if value is not None},
    }


def main(places: list[str]) -> None:
    """Answer the lines of standard input until it ends. `places` are put on sys.path."""
    source = os.fdopen(os.dup(0), "rb")
    target = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)  # what the work prints behind Python's back is not an answer
    sys.argv[:] = [""]
    sys.path[0:0] = [place for place in places if os.path.isdir(place)]
    server = Server()
    for line in source:
        target.write(json.dumps(server.answer(json.loads(line))).encode() + b"\n")
        target.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
