"""reproduce and diff: where results came from."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from bakeoff.records.edition import Edition
from bakeoff.records.provenance import git_state
from support.editions import FILE, START, provenance

Bakeoff = Callable[..., Result]
MakeEdition = Callable[..., Edition]
MODULE = [sys.executable, "-m", "bakeoff"]

SCRIPT = """\
import json, os, sys
names = sorted(n for n in os.environ if n.startswith("BAKEOFF_") and n != "BAKEOFF_MARK")
own = os.environ["BAKEOFF_RUN_DIR"]
seen = {n: os.environ[n].replace(own, "DIR") for n in names if n != "BAKEOFF_ROOT"}
seen |= {"argv": [a.replace(own, "DIR") for a in sys.argv[1:]], "cwd": os.getcwd(), "token": os.environ["TOKEN"]}
open(sys.argv[1] + "/seen.json", "w").write(json.dumps(seen))
print(json.dumps({"score": 1.0}))
"""
REPORTING = """\
name = "reporting"
seeds = [7]
[env]
TOKEN = "${SECRET_TOKEN}"
[params]
command = ["%s", "script.py", "{out}", "{word}"]
word = "two words $HOME"
[[arms]]
name = "only"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., str]:
    """A git repository in the working directory; a call commits `code.py` with this text and returns the commit."""

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")

    def commit(text: str) -> str:
        (tmp_path / "code.py").write_text(text)
        git("add", "code.py")
        git("commit", "-qm", "change")
        return git("rev-parse", "HEAD")

    return commit


@pytest.mark.slow
def test_reproduce_runs_a_command_with_what_the_engine_gave_it(
    bakeoff: Bakeoff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "reporting.toml").write_text(REPORTING % sys.executable)
    assert bakeoff("run", "reporting.toml").exit_code == 0
    recorded = json.loads(next(tmp_path.glob("bakeoff-runs/reporting/2*/runs/*/out/seen.json")).read_text())
    before = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "bakeoff-runs").rglob("*.json"))

    done = subprocess.run([*MODULE, "reproduce", "latest", "--exec"], capture_output=True, text=True, check=True)
    fresh = Path(done.stderr.partition("writes into ")[2].strip())
    assert json.loads((fresh / "out/seen.json").read_text()) == recorded
    assert sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "bakeoff-runs").rglob("*.json")) == before

    printed = bakeoff("reproduce", "latest").stdout
    assert 'TOKEN="${SECRET_TOKEN}"' in printed
    assert "hush" not in printed
    subprocess.run(["sh", "-c", printed], check=True, capture_output=True, cwd="/")
    again = json.loads(next(tmp_path.glob("bakeoff-runs/reporting/2*/runs/*/out/seen.json")).read_text())
    assert again == recorded


def test_reproduce_exec_ends_with_the_code_of_the_command(bakeoff: Bakeoff, make_edition: MakeEdition) -> None:
    make_edition(outcome=lambda arm, seed: {"status": "failed", "command": "sh -c 'exit 7'"})
    assert bakeoff("reproduce", "latest", "--exec").exit_code == 7


@pytest.mark.slow
def test_reproduce_does_an_in_process_run_again_in_another_root(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def work(seed, size):\n    return {'score': seed * size}\n")
    text = 'workload = "python"\nseeds = [3, 4]\n[params]\nfunction = "work:work"\nsize = 1\n'
    (tmp_path / "inside.toml").write_text(text)
    assert bakeoff("run", "inside.toml", "--set", "params.size=5").exit_code == 0
    recipe = json.loads(bakeoff("reproduce", "s4", "--json").stdout)
    assert recipe["argv"][:5] == ["bakeoff", "run", str(tmp_path / "inside.toml"), "--set", "params.size=5"]
    done = subprocess.run([*MODULE, *recipe["argv"][1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = json.loads(bakeoff("show", "s4", "--root", "bakeoff-reproduced", "--json").stdout)
    first = json.loads(bakeoff("show", "s4", "--json").stdout)
    assert again["metrics"] == first["metrics"] == {"score": 20}
    assert len(json.loads(bakeoff("ls", "inside", "--json").stdout)) == 1


def test_reproduce_says_which_code_it_was_and_that_it_is_another_one_now(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path, repository: Callable[..., str]
) -> None:
    commit = repository("a = 1\n")
    (tmp_path / "code.py").write_text("a = 2\n")
    make_edition(told=provenance(tmp_path, git=git_state(tmp_path)))
    printed = bakeoff("reproduce", "latest").stdout
    assert f"# code: commit {commit}" in printed
    assert "| git apply" in printed
    assert "+a = 2" in json.loads(bakeoff("reproduce", "latest", "--json").stdout)["code"]["diff"]
    repository("a = 3\n")
    assert "the code here has changed since" in bakeoff("reproduce", "latest").stdout


def test_diff_of_an_edition_with_itself_finds_nothing_and_exits_0(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path
) -> None:
    make_edition(told={**provenance(tmp_path), "git": {"code": "1234"}})
    result = bakeoff("diff", "latest", "sorting")
    assert result.exit_code == 0
    assert "No difference." in result.stdout


def test_diff_does_not_call_code_the_same_that_nobody_recorded(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path
) -> None:
    make_edition(told={**provenance(tmp_path), "git": None})
    result = bakeoff("diff", "latest", "sorting")
    assert result.exit_code == 0
    assert "its code is not recorded" in result.stdout and "No difference in what is recorded." in result.stdout


def two_editions(make_edition: MakeEdition, tmp_path: Path, a: dict[str, Any], b: dict[str, Any]) -> tuple[str, str]:
    first = make_edition(told=provenance(tmp_path, **a), stamp=START)
    text = FILE.format(name="sorting").replace("size = 2", "size = 9")
    second = make_edition(told=provenance(tmp_path, **b), stamp=START + 60, text=text)
    return f"sorting/{first.paths.name}", f"sorting/{second.paths.name}"


def test_diff_names_configuration_packages_environment_and_machine(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path
) -> None:
    a, b = two_editions(
        make_edition,
        tmp_path,
        {"packages": {"numpy": "1.0", "old": "1"}, "env": {"OMP": "1", "SHLVL": "1"}},
        {"packages": {"numpy": "2.0"}, "env": {"OMP": "2", "SHLVL": "2"}, "host": "there"},
    )
    result = bakeoff("diff", a, b, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["configuration"] == {"arms.large.params.size": {"a": 2, "b": 9}}
    assert found["packages"] == {"numpy": {"a": "1.0", "b": "2.0"}, "old": {"a": "1", "b": None}}
    assert found["environment"] == {"OMP": {"a": "1", "b": "2"}}
    assert found["machine"] == {"host": {"a": "here", "b": "there"}}
    assert "  arms.large.params.size: 2 -> 9" in bakeoff("diff", a, b).stdout


def test_diff_compares_code_as_it_ran_with_uncommitted_changes_and_leaves_the_repository_alone(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path, repository: Callable[..., str]
) -> None:
    repository("a = 1\n")
    old = git_state(tmp_path)
    repository("a = 2\n")
    (tmp_path / "code.py").write_text("a = 2\nb = 3\n")
    new = git_state(tmp_path)
    (tmp_path / "code.py").write_text("something else\n")
    a, b = two_editions(make_edition, tmp_path, {"git": old}, {"git": new})
    before = sorted((tmp_path / ".git").rglob("*"))
    summary = bakeoff("diff", a, b)
    assert summary.exit_code == 1
    assert "uncommitted changes: none -> code.py" in summary.stdout
    assert "1 file changed" in summary.stdout
    lines = bakeoff("diff", a, b, "--", "code.py").stdout.splitlines()
    assert [line for line in lines if line.startswith(("+", "-")) and not line.startswith(("+++", "---"))] == [
        "-a = 1",
        "+a = 2",
        "+b = 3",
    ]
    assert bakeoff("diff", a, b, "--", "elsewhere").exit_code == 1
    assert sorted((tmp_path / ".git").rglob("*")) == before


def test_diff_says_when_the_commits_are_not_at_hand(
    bakeoff: Bakeoff, make_edition: MakeEdition, tmp_path: Path
) -> None:
    state = {"commit": "a" * 40, "branch": "main", "dirty": False, "diff": "", "code": "x"}
    a, b = two_editions(make_edition, tmp_path, {"git": state}, {"git": {**state, "commit": "b" * 40, "code": "y"}})
    assert "cannot be compared" in bakeoff("diff", a, b).stdout
