"""Small tasks and repositories for tests, written to disk as people would write them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bakeoff.workloads.tasks.model import Environment, Repository, Step, Task

WHO = {"GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "n@x", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "n@x"}


def run_git(at: Path, *args: str) -> str:
    env = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *args], cwd=at, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        if name.endswith(".sh"):
            place.chmod(0o755)
    return folder


def commit(repo: Path, files: Mapping[str, str], message: str = "change") -> str:
    """Write files into a repository, which is made if it is not there, and commit everything."""
    repo.mkdir(parents=True, exist_ok=True)
    if not (repo / ".git").exists():
        run_git(repo, "init", "-q", "-b", "main")
    write_files(repo, files)
    run_git(repo, "add", "-A")
    run_git(repo, "commit", "-q", "--allow-empty", "-m", message)
    return run_git(repo, "rev-parse", "HEAD")


def task_on(repository: Repository, **changes: object) -> Task:
    task = Task("x", "prepared", Path("/"), "d", "t", Environment(), (Step("main", "do it"),), repository=repository)
    return replace(task, **changes)  # type: ignore[arg-type]


BROKEN = "def double(x):\n    return x + 1\n"
FIXED = "def double(x):\n    return x * 2\n"
TEST = "from calc import double\n\n\ndef test_double():\n    assert double(4) == 8\n"


def meta(**changes: Any) -> dict[str, Any]:
    """A small `tb_meta.json`: a function to repair, and a test for it."""
    tree: dict[str, Any] = {
        "task_id": "double",
        "metadata": {"title": "Double it", "tags": ["bug"]},
        "repo": {"git_url": "repo"},
        "lm": {"instructions": "Repair double."},
        "evaluation": {
            "rubrics": [{"id": "works", "criterion": "It doubles.", "weight": 1.0}],
            "test_scripts": [{"path": "tests/test_double.py", "rubric_id": "works", "content": TEST}],
        },
    }
    return {**tree, **changes}


def prepared_task(folder: Path, files: Mapping[str, str] | None = None, **changes: Any) -> Path:
    """A prepared task with its repository in it. `changes` are keys of the meta file, `files` of the directory."""
    write_files(folder, {"repo/calc.py": BROKEN, "tb_meta.json": json.dumps(meta(**changes)), **(files or {})})
    return folder


DIFF = """\
diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def double(x):
-    return x + 1
+    return x * 2
"""
"""The repair of `prepared_task`'s repository."""


def added(path: str, content: str) -> str:
    """A diff that adds a file."""
    lines = content.splitlines()
    body = "".join(f"+{line}\n" for line in lines)
    return f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


def linked(path: str, target: str) -> str:
    """A diff that adds a link."""
    return (
        f"diff --git a/{path} b/{path}\nnew file mode 120000\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{target}\n"
        "\\ No newline at end of file\n"
    )


HARBOR = """\
schema_version = "1.4"
[task]
name = "tests/small"
[environment]
workdir = "/app"
[metadata]
host_base = true
"""


def harbor_task(folder: Path, files: Mapping[str, str] | None = None, toml: str = HARBOR) -> Path:
    """A Harbor task: write `done` into /app/answer."""
    usual = {
        "task.toml": toml,
        "instruction.md": "Write done into /app/answer.\n",
        "environment/Dockerfile": "FROM debian:stable-slim\nWORKDIR /app\n",
        "tests/test.sh": '#!/bin/sh\n[ "$(cat answer)" = done ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n',
        "solution/solve.sh": "#!/bin/sh\necho done > answer\n",
    }
    return write_files(folder, {**usual, **(files or {})})
