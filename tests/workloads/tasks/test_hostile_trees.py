"""Any tree that an agent can leave goes through collecting, scoring, exporting and the report, and spoils nothing."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakeoff.sandbox.files import FileTree
from bakeoff.workloads.tasks.diff import apply_diff, changes_of, lines_changed, touched
from bakeoff.workloads.tasks.model import Repository
from bakeoff.workloads.tasks.pages import diff_lines
from bakeoff.workloads.tasks.start import StartState, start_state
from support.processes import Lab
from support.reports import parts_of_runs
from workloads.tasks.scripted import ScriptedModel, say
from workloads.tasks.small import write_task
from workloads.tasks.tasked import commit, task_on

pytestmark = pytest.mark.apt  # git and bubblewrap

ODD = [b'"', b'a"', b"\\", b"\\N{x", b"\xff\xfe", b"\xed\xb2\x80", b"\n", b"a\rb", b"-rf", b" ", b"..a", b"a b/c"[:3],
       b"conftest.py", b"\xff.pyc", b".git", b".GIT", b"git~1", b".gitattributes", b".gitignore", b".gitmodules",
       "ä\u2028".encode(), b"x" * 255, b"<script>", b"=1+1", b"%s{}", b"sums.py"]  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(ODD),
    st.binary(min_size=1, max_size=12).map(lambda raw: raw.replace(b"/", b"_").replace(b"\0", b"_")),
).filter(lambda name: name not in (b".", b".."))
CONTENTS = st.one_of(
    st.sampled_from(
        [b"", b"* text working-tree-encoding=UTF-16\n", b"*\n", b"\n" * 500, b"\0\xff" * 50, b"diff --git a b\n"]
    ),
    st.binary(max_size=40),
)
ENTRIES = st.tuples(
    st.lists(NAMES, min_size=1, max_size=3),
    st.one_of(
        st.tuples(st.just("file"), CONTENTS),
        st.tuples(
            st.just("link"), st.sampled_from([b"/etc/passwd", b".", b"..", b"\xff", b"/proc/self/root", b"x" * 300])
        ),
        st.tuples(st.sampled_from(["fifo", "socket", "sparse", "shut"]), st.just(b"")),
    ),
)
TREES = st.lists(ENTRIES, max_size=8)
Tree = list[tuple[list[bytes], tuple[str, bytes]]]

MAKE = """
import os
def make(entries, top):
    for parts, (kind, data) in entries:
        try:
            place = os.path.join(top, *parts)
            # Never through a link, which may lead out of the tree, and never into a pipe, which blocks.
            if not os.path.realpath(place).startswith(os.path.realpath(top)) or os.path.lexists(place):
                continue
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if kind == "link": os.symlink(data, place)
            elif kind == "fifo": os.mkfifo(place)
            elif kind == "shut": os.makedirs(place, exist_ok=True); os.chmod(place, 0)
            elif kind == "socket": os.mknod(place, 0o140644)
            else:
                with open(place, "wb") as file:
                    file.truncate(1 << 40) if kind == "sparse" else file.write(data)
        except (OSError, ValueError):
            pass
"""
namespace: dict[str, Any] = {}
exec(MAKE, namespace)


@pytest.fixture(scope="module")
def begun(_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> StartState:
    repository = tmp_path_factory.mktemp("repository")
    os.environ["BAKEOFF_CACHE"] = str(_cache)
    commit(repository, {"sums.py": "def add(a, b):\n    return a - b\n", "folder/more.txt": "more\n"})
    return start_state(task_on(Repository(str(repository))))


def plain_files(top: Path) -> dict[bytes, bytes]:
    found = {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        folders[:] = [name for name in folders if name.lower() != b".git"]
        for name in files:
            place = os.path.join(folder, name)
            if not os.path.islink(place) and os.path.getsize(place) < 1 << 20:
                found[os.path.relpath(place, os.fsencode(top))] = Path(os.fsdecode(place)).read_bytes()
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_every_tree_becomes_a_diff_that_applies_and_can_be_read(begun: StartState, tree: Tree) -> None:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        work, copy, again = (Path(folder, name) for name in ("work", "copy", "again"))
        begun.copy(work)
        namespace["make"](tree, os.fsencode(work))
        root = os.open(work, os.O_PATH | os.O_DIRECTORY)
        left_out = FileTree(root).get("/", copy, 1 << 20, all_links=True)
        os.close(root)
        changes = changes_of(begun, copy)
        json.dumps([*map(str, left_out), *touched(changes.diff)]).encode()
        assert lines_changed(changes.diff) >= 0 and isinstance(diff_lines(changes.diff), list)
        begun.copy(again)
        apply_diff(again, changes.diff)  # what we made ourselves applies
        kept = plain_files(again)
        ignoring = any(parts[-1] == b".gitignore" for parts, _ in tree)
        gone = {entry.path.encode() for entry in changes.left_out}
        for name, data in plain_files(copy).items():
            if not ignoring and name.decode(errors="replace").encode() not in gone:
                assert kept.get(name) == data, name


@pytest.mark.slow
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees=st.lists(TREES, min_size=5, max_size=5))
def test_strange_runs_are_scored_exported_and_reported_beside_the_others(lab: Lab, trees: list[Tree]) -> None:
    if not (lab.place / "tasks").exists():
        write_task(lab.place / "tasks" / "sums", environment={"memory_mb": 700, "storage_mb": 60})
    name = f"strange-{len(list(lab.place.glob('*.toml')))}"
    lines = [
        f'name = "{name}"',
        'workload = "tasks"',
        "rollouts = 1",
        '[analysis]\nmetric = "total_score"\nbounds = [0, 1]',
    ]
    for number, tree in enumerate([[], *trees]):
        packed = base64.b64encode(repr(tree).encode()).decode()
        code = f"{MAKE}\nimport base64\nmake(eval(base64.b64decode('{packed}')), os.fsencode(os.getcwd()))"
        code = code.replace("{", "{{").replace("}", "}}")
        lines += [f'[[arms]]\nname = "a{number}"\nparams.agent = "a{number}"']
        lines += [f'[params.agents.a{number}]\nwire = "none"\ncommand = {json.dumps(["python3", "-c", code])}']
    lines += ['[[tasks]]\nname = "sums"\npath = "tasks/sums"']
    lab.cli("run", lab.write(f"{name}.toml", "\n".join(lines)), "-j2", cwd=lab.place)
    rows = lab.rows(name)
    assert [(row["status"], row["attempts"], row["total_score"]) for row in rows] == [("succeeded", 1, 0.0)] * 6
    lab.cli("eval", name, "-j2", cwd=lab.place)
    for verb in ("summarize", "status", "compare"):
        lab.look(verb, name, code=None)
    lab.look("report", name)
    runs = parts_of_runs(lab.directory(name) / "report")
    assert len(runs) == 6 and not any("cannot be" in html for parts in runs.values() for html in parts.values())
    lab.look("collect", name)


@pytest.mark.slow
def test_one_run_with_damaged_files_leaves_the_report_of_the_others_as_it_is(lab: Lab) -> None:
    write_task(lab.place / "tasks" / "sums")
    with ScriptedModel([say("Done.")]) as model:
        text = 'name = "bench"\nparallel = 2\nagent = "builtin"\n[[tasks]]\nprepared_dir = "tasks/sums"\nmodel = "m"\nrollouts = 3\n'
        file = lab.write("bench.toml", f'{text}[providers.here]\nbase_url = "{model.url}/v1"\n')
        lab.cli("run", file, cwd=lab.place)
    first, second, _ = sorted(lab.directory("bench").glob("runs/*"))
    (first / "evaluation_results.json").write_text('{"left_out": 3, "test_results": 5, "steps": "x"}')
    (first / "trajectory.jsonl.zst").write_bytes(b"nothing that can be read")
    (second / "evaluation_results.json").write_bytes(b"\xff[")
    lab.look("report", "bench")
    runs = parts_of_runs(lab.directory("bench") / "report")
    assert len(runs) == 3 and sum("cannot be shown" in "".join(parts.values()) for parts in runs.values()) == 1
    assert sum("cannot be read" in parts.get("Transcript", "") for parts in runs.values()) == 1
    lab.cli("export", "bench", "--format", "jsonl", cwd=lab.place, code=None)
