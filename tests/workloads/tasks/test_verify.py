"""Hidden tests decide, in a fresh box; nothing in a diff can decide for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.sandbox.none import NoSandbox
from bakeoff.spec.identity import directory_digest
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.verify import verify_diff
from workloads.tasks.tasked import BROKEN, DIFF, FIXED, TEST, added, linked, meta, prepared_task

pytestmark = pytest.mark.apt  # git and bubblewrap


def verified(folder: Path, diff: str, sandbox: Bubblewrap) -> Verification:
    before = directory_digest(folder)
    found = verify_diff(load_task(folder), diff.encode(), sandbox, logs=folder.parent / "logs")
    assert directory_digest(folder) == before
    return found


def evaluation(*scripts: dict[str, Any], rubrics: tuple[str, ...] = ("works",)) -> dict[str, Any]:
    return {"rubrics": [{"id": name, "criterion": "", "weight": 1} for name in rubrics], "test_scripts": list(scripts)}


def script(content: str, path: str = "tests/test_hidden.py", rubric: str | None = "works") -> dict[str, Any]:
    return {"path": path, "content": content, **({"rubric_id": rubric} if rubric else {})}


def test_the_repair_passes_and_nothing_does_not(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    folder = prepared_task(tmp_path / "t")
    good, bad = verified(folder, DIFF, bubblewrap), verified(folder, "", bubblewrap)
    assert (good.status, good.score, good.passed) == ("scored", 1.0, True)
    assert (bad.status, bad.score, bad.passed) == ("scored", 0.0, False)
    assert [(case.name, case.outcome) for case in good.cases] == [("tests.test_double::test_double", "passed")]
    assert bad.cases[0].outcome == "failed" and "assert 5 == 8" in bad.cases[0].message
    assert "1 passed" in good.scripts[0].output and "1 failed" in bad.scripts[0].output
    assert (tmp_path / "logs/tests__test_double.py.txt").read_text() == bad.scripts[0].output


def test_rubrics_count_by_weight_and_untested_ones_are_said_to_be(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    tree = {
        "rubrics": [
            {"id": "a", "criterion": "", "weight": 3},
            {"id": "b", "criterion": "", "weight": 1},
            {"id": "style", "criterion": "", "weight": 6},
        ],
        "test_scripts": [
            script(TEST, "tests/test_1.py", "a"),
            script("def test_no():\n    assert False\n", "tests/test_2.py", "a"),
            script("def test_yes():\n    pass\n", "tests/test_3.py", "b"),
        ],
    }
    found = verified(prepared_task(tmp_path / "t", evaluation=tree), DIFF, bubblewrap)
    assert [(rubric.id, rubric.score, rubric.passed) for rubric in found.rubrics] == [("a", 0.5, 1), ("b", 1.0, 1), ("style", None, 0)]  # fmt: skip
    assert found.score == pytest.approx((3 * 0.5 + 1 * 1.0) / 4)
    assert found.untested == ("style",)


def test_a_diff_that_does_not_apply_is_reported_and_has_no_score(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    found = verified(prepared_task(tmp_path / "t"), DIFF.replace("x + 1", "x + 9"), bubblewrap)
    assert (found.status, found.score) == ("patch_failed", None)
    assert "calc.py" in found.error


def test_a_test_that_does_not_end_fails_after_its_time(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    loop = DIFF.replace("+    return x * 2", "+    while True: pass")
    found = verified(prepared_task(tmp_path / "t", verifier={"timeout_sec": 2}), loop, bubblewrap)
    assert (found.status, found.score) == ("scored", 0.0)
    assert found.scripts[0].timed_out


def test_a_test_that_takes_too_much_memory_fails(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    greedy = DIFF.replace("+    return x * 2", "+    return len(bytearray(10**9)) and x * 2")
    found = verified(prepared_task(tmp_path / "t", environment={"memory_mb": 200}), greedy, bubblewrap)
    assert (found.status, found.score) == ("scored", 0.0)


def test_the_start_states_own_configuration_and_fixtures_count(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    files = {
        "repo/src/inner.py": "VALUE = 1\n",
        "repo/pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\nmarkers = ["slow"]\naddopts = "--strict-markers"\n',
        "repo/conftest.py": "import pytest\n\n@pytest.fixture\ndef four():\n    return 4\n",
    }
    test = "import inner, pytest\nfrom calc import double\n\n@pytest.mark.slow\ndef test_it(four):\n    assert double(four) == 8\n"
    folder = prepared_task(tmp_path / "t", files, evaluation=evaluation(script(test)))
    assert verified(folder, DIFF, bubblewrap).score == 1.0


def test_options_of_plugins_that_the_box_does_not_have_are_left_out(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    asked = "addopts = --cov-of-mine=calc -n 4\nrequired_plugins = pytest-mine\nfilterwarnings = error\nmode_of_mine = auto\n"
    test = f"import pytest\n{TEST}\n\n@pytest.mark.mine\ndef test_mark():\n    pass\n"
    files = {"repo/setup.cfg": f"[tool:pytest]\n{asked}"}
    found = verified(prepared_task(tmp_path / "t", files, evaluation=evaluation(script(test))), DIFF, bubblewrap)
    assert found.score == 1.0, found.scripts[0].output
    assert "once more without its addopts" in found.scripts[0].output


def test_a_subdir_is_where_tests_run(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    files = {"repo/part/calc.py": FIXED}
    test = "import os\nfrom calc import double\n\ndef test_it():\n    assert os.getcwd() == '/app/repo/part' and double(4) == 8\n"
    folder = prepared_task(tmp_path / "t", files, repo={"git_url": "repo", "subdir": "part"}, evaluation=evaluation(script(test, "part/tests/test_x.py")))  # fmt: skip
    assert verified(folder, "", bubblewrap).score == 1.0


def test_variables_of_task_and_verifier_are_there_and_ours_are_not(
    tmp_path: Path, bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    monkeypatch.setenv("GIVEN", "through")
    test = "import os\n\ndef test_it():\n    assert (os.environ['A'], os.environ['B']) == ('1', 'through')\n    assert 'SECRET_OF_OURS' not in os.environ\n"
    more = {"environment": {"env": {"A": "1"}}, "verifier": {"env": {"B": "${GIVEN}"}}}
    assert (
        verified(prepared_task(tmp_path / "t", evaluation=evaluation(script(test)), **more), "", bubblewrap).score
        == 1.0
    )


def test_hidden_tests_can_ask_git_what_was_changed(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    test = "import subprocess\n\ndef test_it():\n    said = subprocess.run(['git', 'diff', '--cached', '--name-only'], capture_output=True, text=True)\n    assert said.stdout.split() == ['calc.py', 'tests/test_mine.py'], said\n"
    folder = prepared_task(tmp_path / "t", evaluation=evaluation(script(test, "checks/test_diff.py")))
    assert verified(folder, DIFF + added("tests/test_mine.py", "x = 1"), bubblewrap).score == 1.0


@pytest.mark.parametrize(("diff", "passed"), [(DIFF, True), ("", False)])
def test_a_script_that_is_no_python_passes_by_its_exit_code(
    tmp_path: Path, bubblewrap: Bubblewrap, diff: str, passed: bool
) -> None:
    text = 'words=(4 8)\npython3 -c "from calc import double; assert double(${words[0]}) == ${words[1]}"\n'
    folder = prepared_task(tmp_path / "t", evaluation=evaluation(script(text, "checks/run.sh")))
    found = verified(folder, diff, bubblewrap)
    assert (found.scripts[0].passed, found.scripts[0].cases, found.score) == (passed, (), float(passed))


def test_skipping_is_not_passing(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    test = "import pytest\npytest.importorskip('nothing_like_it')\n\ndef test_it():\n    pass\n"
    assert verified(prepared_task(tmp_path / "t", evaluation=evaluation(script(test))), DIFF, bubblewrap).score == 0.0


PASS = "import sys\nsys.path.insert(0, '/app/repo')\nimport calc\ncalc.double = lambda x: 8\n"
"""Wherever this is executed in the process of the tests, they pass."""
CONFIGURATION = added("force.py", PASS) + "".join(
    added(name, content)
    for name, content in {
        "pytest.ini": "[pytest]\naddopts = -p force\n",
        "tests/pytest.ini": "[pytest]\naddopts = -p force\n",
        "pytest.toml": '[pytest]\naddopts = ["-p", "force"]\n',
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p force"\n',
        "tox.ini": "[pytest]\naddopts = -p force\n",
        "setup.cfg": "[tool:pytest]\naddopts = -p force\n",
        "force.dist-info/entry_points.txt": "[pytest11]\nforce = force\n",
        "force.dist-info/METADATA": "Metadata-Version: 2.1\nName: force\nVersion: 1\n",
        "src/more.egg-info/entry_points.txt": "[pytest11]\nmore = force\n",
        "force.pth": "import force\n",
    }.items()
)
FORGE = """\
import os, sys
for word in sys.argv:
    if word.endswith(".xml"):
        open(word, "w").write('<testsuites><testsuite><testcase classname="a" name="b"/></testsuite></testsuites>')
os._exit(0)
"""
"""Wherever this is executed in the process of the tests, their report says that all is well."""
LOADED = "".join(added(name, PASS) for name in ("conftest.py", "tests/conftest.py", "tests/__init__.py"))
SHADOWS = "".join(
    added(name, FORGE)
    for name in (
        *("pytest.py", "_pytest/__init__.py", "pluggy.py", "iniconfig.py", "packaging.py", "sitecustomize.py"),
        *("doctest.py", "unittest.py", "xml.py", "pdb.py", "tests/json.py", "tests/pytest.py", "tests/difflib.py"),
    )
)
PACKAGE = added(
    "tests/test_double/__init__.py", "__file__ = '/app/repo/tests/test_double.py'\n\ndef test_double():\n    pass\n"
)
SCRIPT = added("tests/test_double.py", "def test_double():\n    pass\n")
LINKS = linked("tests/test_double.py", "/app/repo/mine.py") + added("mine.py", "def test_double():\n    pass\n")


def instead(line: str) -> str:
    """A diff with this in place of the repair."""
    return DIFF.replace("+    return x * 2", f"+    {line}")


ATTACKS = {
    "configuration": CONFIGURATION,
    "files that pytest loads": LOADED,
    "modules in place of others": SHADOWS,
    "a package in place of the script": PACKAGE,
    "a script of the same name": SCRIPT,
    "links": LINKS,
    "a link for a directory": linked("tests", "/tmp"),
    "a handler at the end": instead("import atexit, os; atexit.register(os._exit, 0)"),
    "exit at import": instead("return x\n+import os; os._exit(0)").replace("+1,2", "+1,3"),
    "exit": instead("import os; os._exit(0)"),
    "exit as if the box were broken": instead("import os; os._exit(127)"),
    "a report of its own": added("forge.py", FORGE.replace("sys.argv", "['/logs/verifier/junit.xml']"))
    + instead("import forge"),
    "exit of pytest": instead("import pytest; pytest.exit('done', returncode=0)"),
    "skip": instead("import pytest; pytest.skip('no need')"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_diff_does_not_pass(tmp_path: Path, bubblewrap: Bubblewrap, attack: str) -> None:
    found = verified(prepared_task(tmp_path / "t"), ATTACKS[attack], bubblewrap)
    assert (found.status, found.score) == ("scored", 0.0), found


def test_with_the_repair_beside_them_the_same_files_do_no_harm_and_are_named(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    found = verified(prepared_task(tmp_path / "t"), DIFF + CONFIGURATION + LOADED + SHADOWS + PACKAGE, bubblewrap)
    assert found.score == 1.0, found.scripts[0].output
    named = {
        "conftest.py",
        "tests/conftest.py",
        "tests/__init__.py",
        "sitecustomize.py",
        "force.dist-info/METADATA",
        "tests/test_double/__init__.py",
    }
    assert named <= set(found.discounted)
    assert "pyproject.toml" not in found.discounted


def test_what_tests_need_from_the_repository_is_the_start_states(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    files = {"repo/tests/same.py": "def same(a, b):\n    assert a == b\n"}
    test = "from same import same\nfrom calc import double\n\ndef test_it():\n    same(double(4), 8)\n"
    folder = prepared_task(tmp_path / "t", files, evaluation=evaluation(script(test)))
    tampered = "diff --git a/tests/same.py b/tests/same.py\n--- a/tests/same.py\n+++ b/tests/same.py\n@@ -1,2 +1,2 @@\n def same(a, b):\n-    assert a == b\n+    pass\n"
    found = verified(folder, tampered, bubblewrap)
    assert (found.score, found.discounted) == (0.0, ("tests/same.py",))
    assert verified(folder, tampered + DIFF, bubblewrap).score == 1.0


def test_stale_bytecode_is_not_run(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    """A compiled helper that is marked as not to be compared with its source would be run in its place."""
    import importlib.util
    import marshal

    helper = "def same(a, b):\n    assert a == b\n"
    compiled = compile("def same(a, b):\n    pass\n", "same.py", "exec")
    data = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(compiled)
    from bakeoff.workloads.tasks.diff import changes_of
    from bakeoff.workloads.tasks.start import start_state

    scripts = (script("from same import same\nfrom calc import double\n\ndef test_it():\n    same(double(4), 8)\n", "test_hidden.py"), script(helper, "same.py", None))  # fmt: skip
    folder = prepared_task(tmp_path / "t", evaluation=evaluation(*scripts))
    start = start_state(load_task(folder))
    tree = tmp_path / "tree"
    start.copy(tree)
    for name in ("same.cpython-311.pyc", "same.cpython-312.pyc"):
        (tree / "__pycache__").mkdir(exist_ok=True)
        (tree / "__pycache__" / name).write_bytes(data)
    diff = changes_of(start, tree).diff
    assert b"GIT binary patch" in diff
    assert verify_diff(load_task(folder), diff, bubblewrap, logs=tmp_path / "logs").score == 0.0


def test_one_script_cannot_prepare_the_ground_for_the_next(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    scripts = (
        script("import calc\n\ndef test_a():\n    calc.double(1)\n", "tests/test_a.py"),
        script(TEST, "tests/test_b.py"),
    )
    folder = prepared_task(tmp_path / "t", evaluation=evaluation(*scripts))
    hostile = DIFF.replace(
        "+    return x * 2", "+    open('/app/repo/tests/test_b.py', 'w').write('def test_b(): pass')"
    )
    found = verified(folder, hostile, bubblewrap)
    assert [one.passed for one in found.scripts] == [True, False]


@pytest.mark.parametrize(
    ("first", "program"), [("#!/usr/bin/env -S no-such-runtime --x", "no-such-runtime"), ("#!/bin/sh\r", r"/bin/sh\r")]
)
def test_a_script_whose_program_is_not_in_the_sandbox_is_a_verifier_error(
    tmp_path: Path, bubblewrap: Bubblewrap, first: str, program: str
) -> None:
    folder = prepared_task(tmp_path / "t", evaluation=evaluation(script(f"{first}\nexit 0\n", "checks/run")))
    found = verified(folder, DIFF, bubblewrap)
    assert (found.status, found.score) == ("error", None)
    assert f"there is no '{program}' in the sandbox" in found.error


def test_a_script_that_calls_a_missing_program_fails(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    folder = prepared_task(tmp_path / "t", evaluation=evaluation(script("#!/bin/sh\nno-such-program\n", "checks/run")))
    assert verified(folder, DIFF, bubblewrap).score == 0.0


def test_a_sandbox_without_pytest_is_a_verifier_error(
    tmp_path: Path, bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr("bakeoff.workloads.tasks.verify.library", lambda: empty)
    found = verified(prepared_task(tmp_path / "t"), DIFF, bubblewrap)
    assert (found.status, found.score) == ("error", None)
    assert "pytest cannot be imported" in found.error


def test_the_sandbox_of_the_tests_holds_no_reference_and_no_other_script(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    test = "import pathlib\n\ndef test_it():\n    found = [p for p in pathlib.Path('/').glob('app/**/*') if p.name in ('diff.patch', 'tb_meta.json')]\n    assert found == []\n"
    folder = prepared_task(tmp_path / "t", {"diff.patch": DIFF, "overlay_files/diff.patch": DIFF}, evaluation=evaluation(script(test)))  # fmt: skip
    assert verified(folder, "", bubblewrap).score == 1.0
    assert json.loads((folder / "tb_meta.json").read_text())["task_id"] == meta()["task_id"]
    assert (folder / "repo/calc.py").read_text() == BROKEN


def test_without_a_sandbox_the_tests_run_all_the_same(tmp_path: Path) -> None:
    folder = prepared_task(tmp_path / "t")
    sandbox = NoSandbox(accepted=True)
    found = [verify_diff(load_task(folder), diff.encode(), sandbox, logs=tmp_path / "logs") for diff in (DIFF, "")]
    assert [one.score for one in found] == [1.0, 0.0]


def test_tests_run_as_the_user_that_the_task_names(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    test = "import getpass, pathlib\n\ndef test_it():\n    assert getpass.getuser() == 'nobody'\n    pathlib.Path('made').touch()\n"
    folder = prepared_task(tmp_path / "t", evaluation=evaluation(script(test)), verifier={"user": "nobody"})
    assert verified(folder, "", bubblewrap).score == 1.0
