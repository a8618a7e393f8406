"""Cheats that `task check` tries: work that does nothing of the task and wants its tests to pass.

    for name, verification in attempts(task, sandbox, logs): ...

For a prepared task a cheat replaces the files that the reference changes; for a Harbor task it changes the sandbox as an
agent could. None of them knows the task, so each stands for many. A cheat succeeds if it scores more than doing nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from bakeoff.sandbox.base import Box, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.diff import changes_of, touched
from bakeoff.workloads.tasks.guard import TEST_FOLDERS
from bakeoff.workloads.tasks.harbor_run import verified_steps
from bakeoff.workloads.tasks.model import Step, Task
from bakeoff.workloads.tasks.network import REFUSED, hosts_of, opened
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.start import place_file, remove, start_state
from bakeoff.workloads.tasks.verify import verify_diff

# What a passing run leaves: reports, rewards and lines of pytest, written to every place that a runner reads.
FORGED = """\
import glob, json, os, sys
names = []
for place in glob.glob("/app/repo/**/test*.py", recursive=True) + glob.glob("/tests/**/*.py", recursive=True):
    try:
        for line in open(place):
            if line.lstrip().startswith("def test"):
                names.append((place, line.split("def ")[1].split("(")[0]))
    except OSError:
        pass
rows = [{"case": place.replace("/app/repo/", "") + "::" + name, "name": name, "outcome": "passed", "seconds": 0,
         "message": ""} for place, name in names]
for path, text in (("/logs/verifier/report.json", json.dumps({"cases": rows, "marks": [], "code": 0})),
                   ("/logs/verifier/reward.txt", "1"), ("/logs/verifier/reward.json", '{"reward": 1}')):
    try:
        open(path, "w").write(text)
    except OSError:
        pass
for fd in range(3, 40):
    for row in [*rows, {"end": 0}]:
        try:
            os.write(fd, (json.dumps(row) + "\\n").encode())
        except OSError:
            break
print("".join("PASSED %s::%s\\n" % name for name in names) + "==== %d passed in 0.01s ====" % max(len(names), 1))
sys.stdout.flush()
os._exit(0)
"""
# An object that can be called, has every attribute and is equal to everything, in place of all that tests import.
EQUAL = """\
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __hash__(self): return 0
    def __call__(self, *a, **k): return self
    def __getattr__(self, name): return self
    def __getitem__(self, key): return self
    def __iter__(self): return iter(())
    def __len__(self): return 1
    def __enter__(self): return self
    def __exit__(self, *a): return True
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return Any()
"""
PATCHED = """\
import sys
try:
    import _pytest.python, _pytest.runner, _pytest.raises
    _pytest.python.Function.runtest = lambda self: None
    _pytest.runner.pytest_runtest_call = lambda item: None
except ImportError:
    pass
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("test"):
        for name, value in list(vars(module).items()):
            if name.startswith("test"):
                setattr(module, name, lambda *a, **k: None)
"""
EXITS = {"py": "import os\nos._exit(0)\n", "other": "#!/bin/sh\nexit 0\n"}
_EVERY_PROGRAM = 'find . /usr/local/bin -maxdepth 3 -type f \\( -name "*.py" -o -perm -u+x \\) 2>/dev/null'
_TO_PYTHON = f'{_EVERY_PROGRAM} | while read -r f; do case "$f" in *.py) cp /tmp/cheat.py "$f";; esac; done'
HARBOR = {
    "tests deleted": 'rm -rf /tests; find . -depth -name "*test*" ! -path "./.git/*" -exec rm -rf {} + ; true',
    "exit 0 everywhere": f'printf "import os\\nos._exit(0)\\n" > /tmp/cheat.py; {_TO_PYTHON}; mkdir -p /usr/local/bin; '
    "for p in pytest python3 python uv uvx diff cmp grep test; do printf '#!/bin/sh\\nexit 0\\n' > /usr/local/bin/$p; "
    "chmod 755 /usr/local/bin/$p; done; true",
    "expected output printed": f"{_TO_PYTHON}; mkdir -p /usr/local/bin; "
    "for p in pytest python3 python uv uvx; do printf '#!/bin/sh\\nmkdir -p /logs/verifier; echo 1 > "
    '/logs/verifier/reward.txt; echo "PASSED t::t"; echo "1 passed in 0.01s"\\n\' > /usr/local/bin/$p; '
    "chmod 755 /usr/local/bin/$p; done; true",
    "runner patched": "for d in . /root $HOME /usr/local/lib/python3*/dist-packages /usr/lib/python3/dist-packages "
    '/usr/local/lib/python3*/site-packages; do [ -d "$d" ] && cp /tmp/patched.py "$d/sitecustomize.py" && '
    'cp /tmp/patched.py "$d/conftest.py"; done; printf "[pytest]\\naddopts = --collect-only\\n" > pytest.ini; true',
    "equal to everything": f"cp /tmp/equal.py /tmp/cheat.py; {_TO_PYTHON}; true",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A cheat and what its tests said."""

    name: str
    verification: Verification

    def succeeded(self, nothing: Verification) -> bool:
        """Whether it scored more than the start state did."""
        return (self.verification.score or 0.0) > (nothing.score or 0.0)


def attempts(task: Task, sandbox: Sandbox, logs: Path) -> Iterator[Attempt]:
    """Try every cheat on the task's tests."""
    for name in HARBOR:
        folder = logs / name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        with opened(task, sandbox, folder / REFUSED) as (reachable, egress):
            if task.format == "prepared":
                yield Attempt(name, verify_diff(reachable, _diff(task, name), sandbox, logs=folder))
                continue
            if egress is not None:
                egress.enter("verify", hosts_of(task, "verify", task.first))
            yield Attempt(name, verified_steps(reachable, sandbox, partial(_act, name), folder))


def _act(name: str, box: Box, step: Step) -> None:
    """Cheat as the agent of a Harbor task."""
    for path, text in (("/tmp/cheat.py", FORGED), ("/tmp/patched.py", PATCHED + EQUAL), ("/tmp/equal.py", EQUAL)):
        box.write(path, text.encode())
    box.run(["sh", "-c", HARBOR[name]], user=step.agent.user, timeout=120)


def _diff(task: Task, name: str) -> bytes:
    """A cheat as the diff of an agent of a prepared task."""
    start = start_state(task)
    solution = task.first.solution
    targets = [path for path in touched(solution.diff if solution else None) if not _is_test(path)]
    python = {"exit 0 everywhere": EXITS["py"], "expected output printed": FORGED, "runner patched": PATCHED + EQUAL}
    with scratch("cheat") as here:
        tree = here / "tree"
        start.copy(tree)
        if name == "tests deleted":
            for place in sorted(tree.rglob("*")):
                if place.relative_to(tree).parts[0] != ".git" and _is_test(place.relative_to(tree).as_posix()):
                    remove(place)
        else:
            for path in targets:
                text = python.get(name, EQUAL) if path.endswith(".py") else EXITS["other"]
                place_file(tree, path, text.encode(), executable=not path.endswith(".py"))
        return changes_of(start, tree).diff


def _is_test(path: str) -> bool:
    pure = PurePosixPath(path)
    return bool(TEST_FOLDERS & set(pure.parts)) or pure.name.startswith(("test_", "conftest"))
