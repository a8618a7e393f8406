"""Tasks with a launcher: tests call the work in a sandbox of its own, where there is nothing of the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.check import nothing, reference
from bakeoff.workloads.tasks.harbor_run import run_steps
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.verify import verify_diff
from workloads.tasks.tasked import HARBOR, harbor_task, prepared_task
from workloads.tasks.test_tampering import replaced

pytestmark = [pytest.mark.apt, pytest.mark.slow]  # git and bubblewrap

HIDDEN = """\
from pathlib import Path

import pytest
from bakeoff_work import Raised, WorkFailed, call, read, run, script, send, write

SECRET = "expected-by-the-tests"


def test_values():
    assert call("calc:double", 4) == 8
    assert script("from calc import double\\nresult = [double(x) for x in xs]", xs=[1, 2]) == [2, 4]


def test_nothing_of_the_tests_is_there():
    told = script(LOOK) if (LOOK := Path(__file__).with_name("look.txt").read_text()) else None
    assert told == {"found": [], "user": 65534, "parents": ["bwrap"]}
"""
LOOK = """\
import os, re
found = []
word = re.compile(rb"expected-by-the" + rb"-tests")
for top in ("/app", "/tmp", "/opt", "/run", "/logs", "/tests", "/root", "/home", "/proc"):
    for folder, folders, names in os.walk(top):
        if folder.count("/") > 6:
            folders[:] = []
        for name in names:
            if name in ("kmsg", "kcore", "pagemap") or "/task/" in folder or "/net" in folder:
                continue
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    if word.search(file.read(1 << 16)):
                        found.append(os.path.join(folder, name))
            except OSError:
                pass
pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
parents = sorted(open(f"/proc/{pid}/comm").read().strip() for pid in pids)
result = {"found": found, "user": os.getuid(), "parents": parents}
"""
WORKS = "def double(x):\n    return x * 2\n"
ATTACKS = {
    "patches pytest": "import sys\ndef double(x):\n    import _pytest.python\n    return x + 1\n",
    "is equal to everything": "class Any(int):\n    def __eq__(self, o):\n        return True\n    __hash__ = None\n\ndef double(x):\n    return Any(3)\n",
    "prints another answer": "import os\ndef double(x):\n    os.write(1, b'{\"value\": 8}')\n    os._exit(0)\n",
    "reads its caller": "import sys, re, inspect\ndef double(x):\n    text = ''.join(str(f.frame.f_locals) for f in inspect.stack())\n    return int(re.findall(r'== (\\d+)', text)[0])\n",
    "kills everything": "import os, signal\ndef double(x):\n    os.kill(-1, signal.SIGKILL)\n",
    "prints without end": "import sys\ndef double(x):\n    while True:\n        print('x' * 10**6, flush=True)\n",
    "leaves no answer": "import os\nos._exit(0)\ndef double(x): pass\n",
}  # fmt: skip


def launched(folder: Path, content: str, sandbox: Bubblewrap, test: str = HIDDEN) -> Verification:
    scripts: list[dict[str, Any]] = [
        {"path": "tests/test_hidden.py", "content": test, "rubric_id": "works"},
        {"path": "tests/look.txt", "content": LOOK},
    ]
    evaluation = {"rubrics": [{"id": "works", "criterion": "", "weight": 1}], "test_scripts": scripts}
    prepared_task(folder, evaluation=evaluation, verifier={"timeout_sec": 20, "isolation": "launcher"})
    return verify_diff(load_task(folder), replaced(content), sandbox, logs=folder.parent / "logs")


def test_the_work_answers_and_sees_nothing_of_the_tests(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    found = launched(tmp_path / "t", WORKS, bubblewrap)
    assert (found.score, found.tampered) == (1.0, ()), found.scripts[0].output


@pytest.mark.parametrize("attack", ATTACKS)
def test_work_behind_a_launcher_cannot_pass_by(tmp_path: Path, bubblewrap: Bubblewrap, attack: str) -> None:
    test = "from bakeoff_work import call\n\n\ndef test_values():\n    assert [call('calc:double', x, timeout=5) for x in (4, 5)] == [8, 10]\n"
    found = launched(tmp_path / "t", ATTACKS[attack], bubblewrap, test)
    assert (found.status, found.score) == ("scored", 0.0), found.scripts[0].output


def test_files_errors_limits_and_the_program(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    test = """\
import os
import subprocess

import pytest
from bakeoff_work import Raised, WorkFailed, call, read, run, send, write


def test_files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.txt").write_text("in")
    send(str(tmp_path), "/tmp/sent")
    assert read("/tmp/sent/a/b.txt") == b"in"
    write("made.txt", b"here")
    assert run(["cat", "made.txt"]).stdout == b"here"
    with pytest.raises(FileNotFoundError):
        read("/tmp/absent")


def test_errors():
    with pytest.raises(Raised) as raised:
        call("calc:fails", 1)
    assert raised.value.names[:2] == ["KeyError", "LookupError"]
    with pytest.raises(WorkFailed):
        call("calc:ends")
    done = run(["sh", "-c", "echo $GIVEN $OTHER; cat; exit 3"], input=b"x", env={"GIVEN": "1"})
    assert (done.returncode, done.stdout) == (3, b"1\\nx")


def test_limits():
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sleep", "30"], timeout=0.5)
    assert len(run(["sh", "-c", "head -c 20000000 /dev/zero"]).stdout) == 16 << 20


def test_program():
    done = subprocess.run([os.environ["BAKEOFF_WORK"], "run", "--env", "A=b", "--", "sh", "-c", "echo $A; echo e >&2; exit 4"],
                          stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (4, b"b\\n", b"e\\n")
"""
    work = "def fails(x):\n    raise KeyError(x)\n\n\ndef ends():\n    import os\n    os._exit(1)\n"
    found = launched(tmp_path / "t", work, bubblewrap, test)
    assert found.score == 1.0, found.scripts[0].output


def test_a_harbor_task_calls_the_agents_sandbox_from_a_fresh_one(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    script = (
        "#!/bin/sh\n[ -e answer ] && exit 1\n"
        '[ "$($BAKEOFF_WORK read answer)" = done ] && [ "$($BAKEOFF_WORK run -- id -u)" = 65534 ] && r=1 || r=0\n'
        "$BAKEOFF_WORK run -- ls /tests /logs/verifier/secret && r=0\n"
        "echo $r > /logs/verifier/reward.txt\n"
    )
    toml = HARBOR + '[verifier]\nisolation = "launcher"\n'
    task = load_task(harbor_task(tmp_path / "t", {"tests/test.sh": script}, toml))
    assert reference(task, bubblewrap, tmp_path / "logs").score == 1.0
    assert nothing(task, bubblewrap, tmp_path / "logs").score == 0.0
    evil = {
        "/root/.local/lib/python3.11/site-packages/usercustomize.py": "import os\nos._exit(0)\n",
        "/etc/ld.so.preload": "/x.so\n",
    }
    found = run_steps(
        task,
        bubblewrap,
        lambda box, step: [box.write(path, text.encode()) for path, text in evil.items()] and None,
        logs=tmp_path / "logs",
    )
    assert found.score == 0.0
    assert json.dumps(found.rewards) == '{"reward": 0.0}'
