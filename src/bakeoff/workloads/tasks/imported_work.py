"""Imports modules of the work into tests that run in another sandbox, through a process of the work.

    import bakeoff_imports
    bakeoff_imports.install(["calc"])

    from calc import double      # a function of the work, called there
    assert double(4) == 8        # 8 is a number of this process: values are plain data

bakeoff puts this file into the tests' sandbox as `/opt/bakeoff/bakeoff_imports.py`, for tasks with
`isolation = "launcher"` and `modules`, and calls `install` before the tests are imported. Functions, classes and objects
stay with the work; tests hold `Remote`s of them, which can be called and asked for attributes, and are equal to nothing:
an object of the work that says what it is equal to would pass any test. Written for any Python from 3.8 on.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import socket
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any

try:
    from bakeoff_objects import OPERATORS, NotPlain, decode, encode  # type: ignore[import-not-found]
except ImportError:  # imported as part of bakeoff
    from bakeoff.workloads.tasks.object_server import OPERATORS, NotPlain, decode, encode

SOCKET = "/run/bakeoff-work/objects"
MAX_ANSWER = 16 << 20
SHOWN = ("__all__", "__doc__", "__name__", "__version__", "__author__")
"""Attributes with two underscores that are asked for; others are Python's own business."""


class WorkFailed(Exception):
    """The work could not be asked, or did not answer as it should."""


class WorkExit(Exception):
    """The work called `sys.exit`; `code` is its argument."""

    code: Any = None


class Session:
    """The connection to one process of the work. It is started by the first question."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: socket.socket | None = None
        self.reader: Any = None
        self.in_runner = False
        """Whether bakeoff's own runner runs the tests, which believes no exit code and no output of its tests."""

    def ask(self, operation: str, *arguments: Any, **options: Any) -> Any:
        order = {
            "op": operation,
            "args": [encode(part, sent) for part in arguments],
            "options": {name: encode(part, sent) for name, part in options.items()},
        }
        answer = self.exchange(json.dumps(order).encode() + b"\n")
        try:
            if self.in_runner:
                sys.stdout.write(str(answer.get("out", "")))
                sys.stderr.write(str(answer.get("err", "")))
            if "raised" in answer:
                problem = self.exception(operation, answer)
            else:
                return decode(answer["value"], received)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError) as error:
            raise WorkFailed(f"the work's answer is not plain data: {error}") from None
        raise problem

    def exchange(self, line: bytes) -> dict[str, Any]:
        with self.lock:
            try:
                if self.connection is None:
                    self.connection = socket.socket(socket.AF_UNIX)
                    self.connection.connect(os.environ.get("BAKEOFF_WORK_OBJECTS", SOCKET))
                    self.reader = self.connection.makefile("rb")
                self.connection.sendall(line)
                text = self.reader.readline(MAX_ANSWER)
            except OSError as error:
                text, reason = b"", str(error)
            else:
                reason = "it ended, or took too long"
            if not text.endswith(b"\n"):
                self.connection = None
                raise WorkFailed(f"no answer from the work: {reason}")
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise WorkFailed("the work's answer is not an object of JSON")
        return answer

    def exception(self, operation: str, answer: dict[str, Any]) -> BaseException:
        """The exception that an answer describes: one of Python's own, or of a class made here for one of the work's."""
        kind = exception_class(answer["raised"])
        text, arguments = str(answer.get("text", "")), answer.get("args")
        given = decode(arguments, refuse) if isinstance(arguments, list) else [text]
        if kind is WorkExit and self.in_runner:
            return SystemExit(*given)
        error: Any
        try:
            error = kind(*given)
        except Exception:
            error = WorkFailed(text)
        if isinstance(error, (StopIteration, StopAsyncIteration)) and operation != "next":
            return WorkFailed(f"the work raised {type(error).__name__}, which would end a loop of the tests")
        if kind is WorkExit:
            error.code = given[0] if given else None
        if isinstance(error, OfTheWork):
            error.text = text
        for name, value in answer.get("attributes", {}).items():
            if not name.startswith("_") and name not in ("args", "text", "with_traceback", "add_note"):
                try:
                    setattr(error, name, decode(value, refuse))
                except (AttributeError, TypeError):
                    pass
        raised: BaseException = error
        return raised


class OfTheWork:
    """Base of the classes that stand for exceptions of the work."""

    text = ""

    def __str__(self) -> str:
        return self.text


# Modules whose exceptions are the same class on both sides. None of theirs ends or skips a test but SystemExit.
STANDARD = ("builtins", "_csv", "binascii", "configparser", "dataclasses", "decimal", "json.decoder", "re", "sqlite3",
            "struct", "subprocess", "urllib.error", "zipfile", "zoneinfo")  # fmt: skip
_CLASSES: dict[tuple[tuple[str, str], ...], type] = {}


def exception_class(names: list[list[str]]) -> type:
    """The class for the names of an exception's classes, the most special first.

    Its base is the first of them that is Python's own and an error; never one that ends or skips a test.
    """
    if not names:
        return WorkFailed
    module, name = str(names[0][0]), str(names[0][1])
    if module in STANDARD:
        kind = getattr(importlib.import_module(module), name, None)
        if kind is SystemExit:
            return WorkExit
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind
        return WorkFailed
    key = tuple((str(each[0]), str(each[1])) for each in names)
    if key not in _CLASSES:
        above = exception_class(names[1:])
        bases = (above,) if issubclass(above, OfTheWork) else (OfTheWork, above)
        _CLASSES[key] = type(name.rpartition(".")[2], bases, {"__module__": module})
    return _CLASSES[key]


SESSION = Session()


def sent(value: Any) -> Any:
    """What tests pass to the work and is not plain: something of the work's."""
    if isinstance(value, (Remote, Member)):
        return {"$": "object", "id": object.__getattribute__(value, "_id")}
    raise NotPlain(f"{type(value).__name__} cannot be sent to the work: only plain data and objects of the work can")


def refuse(tree: Any) -> Any:
    raise ValueError("{!r} is not plain data".format(tree.get("$")))


def received(tree: Any) -> Any:
    if tree["$"] == "exception":
        return exception_class(tree["classes"])
    if tree["$"] == "enum":
        module, name, member = map(str, tree["names"])
        return Member(int(tree["id"]), (module, name, member), decode(tree["value"], received))
    if tree["$"] == "object":
        return Remote(tree)
    return refuse(tree)


class Member:
    """A member of an enumeration of the work: equal to a member of the same name of the same class.

    One of two that are compared has to be `listed`: the tests took it from its class, by its name or value. Otherwise the
    work could answer with the same member to everything.
    """

    def __init__(self, number: int, names: tuple[str, str, str], value: Any) -> None:
        self._id = number
        self._names = names
        self.listed = False
        self.name = names[2]
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Member):
            return False
        if not (self.listed or other.listed):
            raise TypeError("compare with a member that its class lists, as in `== Color.RED`")
        return self._names == other._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return "{}.{}".format(*self._names[1:])


class Remote:
    """An object of the work. What it is asked goes to the work; what it is equal to is never asked.

    Classes of a module, and members of an enumeration, come with it. The work is not asked for them again: a test that
    names an exception or a member would tell it which one it expects.
    """

    def __init__(self, tree: dict[str, Any]) -> None:
        own = tree.get("class")
        names = tuple(map(str, own)) if own else None
        listed = {str(name): decode(kind, received) for name, kind in tree.get("types", {}).items()}
        members = [decode(member, received) for member in tree.get("members", ())]
        for member in members:
            if type(member) is not Member or member._names[:2] != names or member.name in listed:
                raise ValueError("these are not the members of an enumeration")
            member.listed = True
            listed[member.name] = member
        object.__setattr__(self, "_id", int(tree["id"]))
        object.__setattr__(self, "_classes", [tuple(map(str, each)) for each in tree["classes"]])
        object.__setattr__(self, "_class", names)
        object.__setattr__(self, "_listed", listed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in SHOWN:
            raise AttributeError(name)
        if name in self._listed:
            return self._listed[name]
        value = SESSION.ask("get", self, name)
        if isinstance(value, type) and issubclass(value, OfTheWork):
            raise WorkFailed(
                f"{name} is an exception that its module does not list, so naming it would tell the work of it"
            )
        return value

    def _member(self, key: str, wanted: Any) -> Any:
        """The member whose `key` (its name or value) is plain data equal to `wanted`; None if there is none."""
        for member in self._listed.values():
            if isinstance(member, Member):
                has = getattr(member, key)
                if type(has) is type(wanted) and not isinstance(has, (Remote, Member)) and has == wanted:
                    return member
        return None

    def __getitem__(self, key: Any) -> Any:
        return self._member("name", key) or SESSION.ask("getitem", self, key)

    def __setattr__(self, name: str, value: Any) -> None:
        SESSION.ask("set", self, name, value)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        member = self._member("value", arguments[0]) if len(arguments) == 1 and not options else None
        return member or SESSION.ask("call", self, *arguments, **options)

    def __len__(self) -> int:
        return int(SESSION.ask("len", self))

    def __bool__(self) -> bool:
        return SESSION.ask("bool", self) is True

    def __str__(self) -> str:
        return str(SESSION.ask("str", self))

    def __repr__(self) -> str:
        return str(SESSION.ask("repr", self))

    def __iter__(self) -> Any:
        return SESSION.ask("iter", self)

    def __next__(self) -> Any:
        return SESSION.ask("next", self)

    def __enter__(self) -> Any:
        return SESSION.ask("call", SESSION.ask("get", self, "__enter__"))

    def __exit__(self, *_: object) -> None:
        SESSION.ask("call", SESSION.ask("get", self, "__exit__"), None, None, None)

    def __await__(self) -> Any:
        return SESSION.ask("await", self)
        yield

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Remote) and self._class is not None and self._class in value._classes

    def _refused(self, *_: Any) -> Any:
        raise TypeError("compare plain data (attributes, or what methods return), not objects of the work")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _refused
    __hash__ = None  # type: ignore[assignment]


def _forwarded(name: str) -> Any:
    return lambda self, *others: SESSION.ask(name, self, *others)


for _name in set(OPERATORS) - {"getitem"}:
    setattr(Remote, "__{}__".format(_name.strip("_")), _forwarded(_name))


class Module(types.ModuleType):
    """A module of the work."""

    _remote: Remote

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self._names_for(sys._getframe(1).f_globals)
        if name.startswith("__") and name not in SHOWN:
            raise AttributeError(name)
        return getattr(self._remote, name)

    def _names_for(self, importer: dict[str, Any]) -> list[str]:
        """What `from module import *` binds: nothing that the importer or Python itself has already, or pytest looks for."""
        names = [str(name) for name in SESSION.ask("names", self._remote)]
        taken = {*importer, *vars(sys.modules["builtins"])}
        return [name for name in names if name not in taken and not name.startswith(("_", "pytest"))]


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the work, and everything below them, before any file of the tests' sandbox.

    `local` are packages below them that belong to the tests.
    """

    def __init__(self, modules: Sequence[str], local: Sequence[str]) -> None:
        self.modules = tuple(modules)
        self.local = tuple(local)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not below(name, self.modules) or below(name, self.local):
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        places = [os.path.join(place, *name.split(".")) for place in sys.path]
        spec.submodule_search_locations = [place for place in places if os.path.isdir(place)]
        return spec

    def create_module(self, spec: Any) -> types.ModuleType:
        module = Module(spec.name)
        module._remote = SESSION.ask("import", spec.name)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing: the module was imported in the work's process."""


def below(name: str, modules: Sequence[str]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


def install(modules: Sequence[str], local: Sequence[str] = (), in_runner: bool = False) -> None:
    """Have `import` find these modules in the work. `in_runner` is for bakeoff's own runner of tests."""
    SESSION.in_runner = in_runner
    sys.meta_path.insert(0, Finder(modules, local))
