"""Tests that import the work through a launcher: honest work passes as usual, and no value of the work equals everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.check import check
from bakeoff.workloads.tasks.harbor_run import run_steps
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.verify import verify_diff
from workloads.tasks.tasked import DIFF, HARBOR, harbor_task, prepared_task
from workloads.tasks.test_tampering import replaced

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

HONEST_TEST = """\
import calc
import pytest
from calc import CalcError, Color, Stack, double, point


def test_plain_values():
    for value in (4, "x", b"x", [1, "a"], (1, 2), 2.5, 10**5000, -(10**5000)):
        assert double(value) == value * 2 and type(double(value)) is type(value)
    assert calc.same({1: {2, 3}, None: [True]}) == {1: {2, 3}, None: [True]}


def test_objects():
    stack = Stack()
    stack.push(1)
    stack.push("a")
    assert len(stack) == 2 and list(stack) == [1, "a"]
    assert stack.pop() == "a" and stack.items == [1]
    stack.limit = 5
    assert stack.limit == 5 and isinstance(stack, Stack)


def test_errors():
    with pytest.raises(CalcError, match="no 3") as error:
        calc.fail(3)
    assert error.value.code == 7
    with pytest.raises(ValueError):
        calc.fail(3)
    with pytest.raises(SystemExit):
        calc.leave()
    with pytest.raises(AttributeError):
        calc.absent


def test_members_of_enumerations():
    assert calc.color(1) == Color.RED != calc.color(2)
    assert calc.color(2) == Color["BLUE"] == Color(2)


def test_tuples_with_names_and_output(capsys):
    assert point() == (1, 2) and point().x == 1
    calc.say()
    assert capsys.readouterr().out == "hi\\n"


def test_objects_are_equal_to_nothing():
    for compare in (lambda: Stack() == 3, lambda: 3 in Stack(), lambda: Stack() < 3, lambda: Stack() != 3):
        with pytest.raises(TypeError, match="compare plain data"):
            compare()
    with pytest.raises(TypeError, match="cannot be sent"):
        double(lambda: 3)
"""
HONEST_WORK = """\
import collections
import enum
import sys


def double(x):
    return x * 2


def same(x):
    return x


class Stack:
    def __init__(self):
        self.items = []

    def push(self, x):
        self.items.append(x)

    def pop(self):
        return self.items.pop()

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)


class CalcError(ValueError):
    def __init__(self, message):
        super().__init__(message)
        self.code = 7


def fail(n):
    raise CalcError(f"no {n}")


def leave():
    sys.exit(2)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def color(n):
    return Color(n)


Point = collections.namedtuple("Point", "x y")


def point():
    return Point(1, 2)


def say():
    print("hi")
"""
TEST = """\
import pytest
from calc import Color, color, double


@pytest.mark.parametrize("x", [3, 4, 5])
def test_double(x):
    assert double(x) == 2 * x
    assert double(x) in (2 * x,)
    assert double(x) >= 2 * x
    assert not double(x) != 2 * x


def test_color():
    assert color(1) == Color.RED
    assert color(2) == Color.BLUE


def test_error():
    with pytest.raises(TypeError):
        double(None)
"""
COLORS = "import enum\nclass Color(enum.Enum):\n    RED = 1\n    BLUE = 2\ndef color(n):\n    return Color(n)\n"
FORGE = "import json, os, sys\ndef say(tree):\n    for fd in range(0, 30):\n        try:\n            os.write(fd, (json.dumps(tree) + '\\n').encode())\n        except OSError:\n            pass\n"
ATTACKS = {
    "returns unittest's ANY": COLORS + "from unittest.mock import ANY\ndef double(x):\n    return ANY\n",
    "answers with one member for all": "import enum\nclass Color(enum.Enum):\n    RED = 1\ndef color(n):\n    return Color.RED\nclass Fake:\n    __getattr__ = lambda s, n: Color.RED\nColor = Fake()\ndef double(x):\n    return 0\n",
    "skips as pytest does": COLORS + "class Skipped(BaseException):\n    pass\nSkipped.__module__ = '_pytest.outcomes'\ndef double(x):\n    raise Skipped('x')\n",
    "exits with 0": COLORS + "import sys\ndef double(x):\n    sys.exit(0)\n",
    "exits with 0 when it is imported": "import sys\nsys.exit(0)\n",
    "forges answers": COLORS + FORGE + "say({'value': True, 'out': '', 'err': ''})\ndef double(x):\n    say({'value': {'$': 'object', 'id': 0, 'classes': [], 'class': None}})\n",
    "forges values of a kind that does not exist": COLORS + FORGE + "def double(x):\n    say({'value': {'$': 'mock', 'v': 1}})\n    return 0\n",
    "answers with what is nested without end": COLORS + "import os\ndef double(x):\n    for fd in range(0, 30):\n        try:\n            os.write(fd, b'{\"value\": ' + b'[' * 200000 + b'\\n')\n        except OSError:\n            pass\n",
    "answers with a name that Python knows": COLORS + "def double(x):\n    raise type('Exit', (Exception,), {'__module__': '_pytest.outcomes'})('x')\n",
    "prints that all is well": COLORS + "def double(x):\n    print('============ 5 passed in 0.01s ============')\n",
}  # fmt: skip


def imported(folder: Path, work: str, sandbox: Bubblewrap, test: str = TEST) -> Verification:
    scripts = [{"path": "tests/test_hidden.py", "content": test, "rubric_id": "works"}]
    evaluation = {"rubrics": [{"id": "works", "criterion": "", "weight": 1}], "test_scripts": scripts}
    verifier = {"timeout_sec": 60, "isolation": "launcher", "modules": ["calc"]}
    prepared_task(folder, evaluation=evaluation, verifier=verifier)
    return verify_diff(load_task(folder), replaced(work), sandbox, logs=folder.parent / "logs")


def test_work_is_imported_as_always(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    found = imported(tmp_path / "t", HONEST_WORK, bubblewrap, HONEST_TEST)
    assert (found.score, found.tampered) == (1.0, ()), found.scripts[0].output


@pytest.mark.parametrize("attack", ATTACKS)
def test_imported_work_cannot_pass_without_the_answers(tmp_path: Path, bubblewrap: Bubblewrap, attack: str) -> None:
    found = imported(tmp_path / "t", ATTACKS[attack], bubblewrap)
    assert (found.status, found.score) == ("scored", 0.0), found.scripts[0].output
    assert {case.outcome for case in found.cases if "test_double" in case.name} <= {"failed", "error"}


def test_a_call_that_does_not_end_costs_its_test_and_not_the_others(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    test = (
        "import calc\n\n\ndef test_first():\n    assert calc.double(1) == 2\n\n\n"
        "def test_stuck():\n    assert calc.ends() == 1\n\n\ndef test_last():\n    import calc\n    assert calc.__name__ == 'calc'\n"
    )
    work = "import os\ndef double(x):\n    return x * 2\ndef ends():\n    os._exit(3)\n"
    found = imported(tmp_path / "t", work, bubblewrap, test)
    outcomes = {case.name.rpartition("::")[2]: case.outcome for case in found.cases}
    assert outcomes["test_first"] == "passed" and outcomes["test_stuck"] == "failed"


def test_python_tests_of_a_harbor_task_import_the_work_in_the_agents_sandbox(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    test = (
        "import calc\nimport bakeoff_imports\nassert calc.double(4) == 8\n"
        "try:\n    calc.leave()\nexcept bakeoff_imports.WorkExit as exit:\n    assert exit.code == 0\n"
        "open('/logs/verifier/reward.txt', 'w').write('1')\n"
    )
    shell = "#!/bin/sh\necho 0 > /logs/verifier/reward.txt\npython3 /tests/check.py && exit\n"
    toml = HARBOR + '[verifier]\nisolation = "launcher"\nmodules = ["calc"]\n'
    task = load_task(harbor_task(tmp_path / "t", {"tests/test.sh": shell, "tests/check.py": test}, toml))
    right = "import sys\ndef double(x):\n    return x * 2\ndef leave():\n    sys.exit(0)\n"
    for work, reward in ((right, 1.0), ("raise SystemExit(0)\n", 0.0), ("import os\nos._exit(0)\n", 0.0)):
        found = run_steps(
            task,
            bubblewrap,
            lambda box, step, work=work: box.write("/app/calc.py", work.encode()),
            logs=tmp_path / "logs",
        )
        assert found.score == reward, found.steps[0].output


def test_check_sets_up_a_launcher_and_tries_cheats(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    folder = prepared_task(tmp_path / "t", {"diff.patch": DIFF})
    before = [finding.message for finding in check(load_task(folder), bubblewrap, tmp_path / "logs")]
    assert any("--launcher makes the tests import calc" in message for message in before)
    assert any("these cheats succeed" in message or "none of 5 cheats succeeds" in message for message in before)
    list(check(load_task(folder), bubblewrap, tmp_path / "logs", set_up=True))
    task = load_task(folder)
    assert (task.isolated, task.first.verifier.modules) == (True, ("calc",))
    findings = {finding.name: finding for finding in check(task, bubblewrap, tmp_path / "logs")}
    assert findings["cheats score nothing"].ok is True
    assert findings["reference passes"].ok is True


def test_check_says_that_tests_cannot_do_with_a_launcher_and_why(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    test = (
        "from calc import double\n\n\nclass Two(int):\n    pass\n\n\ndef test_it():\n    assert double(Two(4)) == 8\n"
    )
    scripts = [{"path": "tests/test_hidden.py", "content": test, "rubric_id": "works"}]
    evaluation = {"rubrics": [{"id": "works", "criterion": "", "weight": 1}], "test_scripts": scripts}
    folder = prepared_task(tmp_path / "t", {"diff.patch": DIFF}, evaluation=evaluation)
    notes = [finding.message for finding in check(load_task(folder), bubblewrap, tmp_path / "logs")]
    assert any("through a launcher the reference fails (" in note and "cannot be sent" in note for note in notes)


def test_check_warns_about_later_commits_in_an_image(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    build = (
        "FROM debian:stable-slim\nWORKDIR /app\n"
        "RUN git init -q -b main . && git config user.email n@x && git config user.name n && echo a > f && git add f && "
        "git commit -qm first && echo solved > f && git commit -qam later && git reset -q --hard HEAD~1\n"
    )
    task = load_task(harbor_task(tmp_path / "t", {"environment/Dockerfile": build}))
    notes = [finding.message for finding in check(task, bubblewrap, tmp_path / "logs")]
    assert "agents can read later commits in the image: 1 in /app" in notes


PEEKING_TEST = """\
import calc
import pytest
from math import isclose
from calc import *


@pytest.mark.parametrize(("x", "color"), [(1, Color.RED), (2, Color.BLUE)])
def test_member_first(x, color):
    assert color == calc.color(x)
    assert calc.Color.RED == calc.color(1)
    assert Color(2) == Color["BLUE"] == calc.color(2)
    assert Color(1) == calc.color(1)


def test_error_first():
    with pytest.raises(calc.CalcError):
        calc.fail(3)


def test_nested_error_first():
    with pytest.raises(calc.Stack.Empty):
        calc.Stack().pop()


def test_every_value():
    assert all(map(lambda x: double(x) == 2 * x, [3, 4, 5]))


def test_pairs():
    for got, wanted in zip(map(double, [3, 4]), [6, 8]):
        assert got == wanted


def test_close():
    assert isclose(double(2.5), 5.0)


def test_sorted():
    assert sorted(double([2, 1])) == [1, 1, 2, 2]
"""
PEEKING_WORK = """\
import enum


class CalcError(ValueError):
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Stack:
    class Empty(Exception):
        pass

    def pop(self):
        raise self.Empty


def color(n):
    return Color(n)


def fail(n):
    raise CalcError(n)


def double(x):
    return 2 * x
"""
PEEKS = {
    # Members and exceptions that tests have just named are the answer.
    "last name": """\
import sys, types, enum
class CalcError(ValueError): pass
class Other(ValueError): pass
class Last(enum.EnumMeta):
    def __getattribute__(cls, name):
        value = super().__getattribute__(name)
        if isinstance(value, cls): Last.last = value
        return value
    def __call__(cls, *a, **k):
        value = super().__call__(*a, **k)
        if isinstance(value, cls): Last.last = value
        return value
    def __getitem__(cls, name):
        Last.last = super().__getitem__(name)
        return Last.last
class Color(enum.Enum, metaclass=Last):
    RED = 1
    BLUE = 2
class Stack:
    class Empty(Exception): pass
    def pop(self): raise getattr(Here, 'error', Other)
class Here(types.ModuleType):
    def __getattribute__(self, name):
        value = types.ModuleType.__getattribute__(self, name)
        if isinstance(value, type) and issubclass(value, Exception): Here.error = value
        if name == 'Stack': Here.error = Stack.Empty
        return value
def color(n): return Last.last
def fail(n): raise getattr(Here, 'error', Other)
def double(x): return x
sys.modules[__name__].__class__ = Here
""",
    "unlisted": """\
import sys, types
real = {}
class CalcError(ValueError): pass
class Empty(Exception): pass
class Stack:
    def __getattr__(self, name):
        real['error'] = Empty
        return Empty
    def __call__(self): return self
    def pop(self): raise real['error']
import enum
class Hidden(enum.Enum):
    RED = 1
    BLUE = 2
class Fake:
    def __getattr__(self, name):
        real['last'] = Hidden[name]
        return Hidden[name]
    def __call__(self, value):
        real['last'] = Hidden(value)
        return real['last']
    __getitem__ = __getattr__
class Here(types.ModuleType):
    def __getattr__(self, name):
        if name == 'Color': return Fake()
        if name == 'Stack': return real['stack']
        if name == 'CalcError':
            real['error'] = real['class']
            return real['class']
        raise AttributeError(name)
real['stack'] = Stack()
real['class'] = CalcError
del CalcError, Stack
__all__ = ['Color', 'color', 'fail', 'double']
def color(n): return real.get('last')
def fail(n): raise real.get('error', ValueError)
def double(x): return x
sys.modules[__name__].__class__ = Here
""",
    # Loops of tests end early, and helpers of tests are replaced.
    "stops": PEEKING_WORK + "__all__ = ['Color', 'double', 'isclose', 'sorted', 'all', 'pytest']\n"
    "def isclose(a, b): return True\n"
    "def sorted(x): return [1, 1, 2, 2]\n"
    "def all(x): return True\n"
    "def double(x):\n    if isinstance(x, (list, float)): return x\n    raise StopIteration\n",
}
EXPECTED_TO_PASS = {"last name": set(), "unlisted": set(), "stops": {"test_member_first[1-color0]", "test_member_first[2-color1]", "test_error_first", "test_nested_error_first"}}  # fmt: skip


def test_names_and_errors_that_tests_expect_are_listed_with_a_module(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    found = imported(tmp_path / "t", PEEKING_WORK, bubblewrap, PEEKING_TEST)
    assert (found.score, found.tampered) == (1.0, ()), found.scripts[0].output


@pytest.mark.parametrize("peek", PEEKS)
def test_work_does_not_learn_what_tests_expect_and_steers_no_loop(
    tmp_path: Path, bubblewrap: Bubblewrap, peek: str
) -> None:
    found = imported(tmp_path / "t", PEEKS[peek], bubblewrap, PEEKING_TEST)
    passed = {case.name.rpartition("::")[2] for case in found.cases if case.outcome == "passed"}
    assert (found.score, passed) == (0.0, EXPECTED_TO_PASS[peek]), found.scripts[0].output
