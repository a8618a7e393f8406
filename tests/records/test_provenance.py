"""Where results came from: secrets stay out, and a change of code is told apart from none. Repositories are real."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakeoff.records.provenance import code_change, collect, environment, git_state
from bakeoff.records.secrets import REDACTED, hide, hide_argv


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DB_PASS", "SENTRY_DSN", "Authorization",
     "SLACK_WEBHOOK_URL", "my_credentials", "COMPANY_INTERNAL_THING", "HISTFILE", "LESSOPEN", "SSH_AUTH_SOCK"],
)  # fmt: skip
def test_a_variable_that_nobody_allowed_is_not_recorded(name: str) -> None:
    assert environment({name: "hush"}) == {}


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "PWD", "LANG", "OMP_NUM_THREADS", "PYTHONPATH", "CUDA_VISIBLE_DEVICES"]
)
def test_variables_that_say_how_code_runs_are_recorded(name: str) -> None:
    assert environment({name: "value"}) == {name: "value"}


@pytest.mark.parametrize(
    "name", ["BAKEOFF_DATABASE_URL", "BAKEOFF_MARKET_SECRET", "RAY_AUTH_TOKEN", "UV_PUBLISH_TOKEN"]
)
def test_an_allowed_name_that_sounds_secret_loses_its_value(name: str) -> None:
    assert environment({name: "hush"}) == {name: REDACTED}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://me:hush@host/db", f"postgresql://me:{REDACTED}@host/db"),
        ("redis://:hush@host", f"redis://:{REDACTED}@host"),
        ("a http://u:hu/s@h@host b", f"a http://u:{REDACTED}@host b"),
        ("https://hush@github.com/x.git", f"https://{REDACTED}@github.com/x.git"),
        ("https://host/x?a=1&api_key=hush&b=2", f"https://host/x?a=1&api_key={REDACTED}&b=2"),
        ("https://host:443/path?x=1", "https://host:443/path?x=1"),
        ("git@github.com:me/x.git", "git@github.com:me/x.git"),
    ],
)
def test_secrets_inside_urls_are_taken_out(value: str, shown: str) -> None:
    assert environment({"PATH": value}) == {"PATH": shown}
    assert hide_argv(["run", value]) == ["run", shown]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text("abc:/@?", max_size=10), st.text("xyz/:", min_size=1, max_size=8))
def test_a_password_in_a_url_is_never_shown(host: str, password: str) -> None:
    secret = f"hush{password}hush"
    assert secret not in hide(f"postgres://me:{secret}@{host}")


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.path, check=True, capture_output=True, text=True)
        return done.stdout

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def commit(self, *names: str) -> None:
        self.git("add", *(names or ["-A"]))
        self.git("commit", "-q", "-m", "x", "--allow-empty")

    def state(self) -> dict[str, Any]:
        return {"git": git_state(self.path, [self.path / "exp [1].toml"])}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    repository = Repository(tmp_path / "repo with space")
    repository.write("train.py", "one\n")
    repository.write("lib/net.py", "net\n")
    repository.write("exp [1].toml", "seeds = 1\n")
    repository.commit()
    return repository


def test_the_state_of_a_repository_is_told(repository: Repository) -> None:
    state = repository.state()["git"]
    assert state["commit"] == repository.git("rev-parse", "HEAD").strip()
    assert state["branch"] == "main" and state["dirty"] is False and state["diff"] == ""
    repository.write("train.py", "two\n")
    state = repository.state()["git"]
    assert state["dirty"] is True and "-one\n+two\n" in state["diff"]


def test_what_the_files_say_counts_and_not_how_it_was_committed(repository: Repository) -> None:
    repository.write("train.py", "two\n")
    dirty = repository.state()
    repository.git("add", "train.py")
    staged = repository.state()
    repository.commit()
    committed = repository.state()
    repository.commit()  # an empty one
    again = repository.state()
    assert code_change(dirty, staged) is code_change(dirty, committed) is code_change(staged, again) is None
    assert dirty["git"]["commit"] != committed["git"]["commit"]


def test_a_change_of_the_experiment_file_itself_is_no_change(repository: Repository) -> None:
    before = repository.state()
    repository.write("exp [1].toml", "seeds = 2\n")
    changed = repository.state()
    repository.commit()
    assert code_change(before, changed) is code_change(before, repository.state()) is None
    assert changed["git"]["diff"] == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.write("train.py", "two\n"),
        lambda r: (r.path / "train.py").unlink(),
        lambda r: (r.path / "train.py").chmod(0o755),
        lambda r: (r.path / "lib" / "net.py").rename(r.path / "lib" / "web.py") and r.git("add", "-A"),
        lambda r: (r.write("new.py", "x"), r.git("add", "new.py")),
    ],
)
def test_every_change_of_tracked_files_is_a_change(repository: Repository, change: Any) -> None:
    before = repository.state()
    change(repository)
    told = code_change(before, repository.state())
    assert told is not None and told.startswith("uncommitted changes on ")
    repository.commit()
    told = code_change(before, repository.state())
    assert told is not None and told.startswith("commit ") and " became " in told


def test_files_that_git_does_not_know_are_no_change(repository: Repository) -> None:
    before = repository.state()
    repository.write("bakeoff-runs/x/experiment.db", "results")
    assert code_change(before, repository.state()) is None


def test_looking_at_a_repository_does_not_touch_it(repository: Repository) -> None:
    repository.write("train.py", "two\n")
    repository.write("lib/net.py", "staged\n")
    repository.git("add", "lib/net.py")

    def everything() -> dict[str, bytes]:
        return {
            str(p): p.read_bytes()
            for p in sorted((repository.path / ".git").rglob("*"))
            if p.is_file() and p.name != "index"
        }

    before, status = everything(), repository.git("status", "--porcelain")
    repository.state()
    assert everything() == before and repository.git("status", "--porcelain") == status


def test_a_repository_without_a_commit_and_a_place_outside_of_any_are_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None
    fresh = Repository(tmp_path / "fresh")
    fresh.write("a", "1")
    fresh.git("add", "a")
    before = {"git": git_state(fresh.path)}
    assert before["git"] is not None and before["git"]["commit"] is None
    fresh.commit()
    assert code_change(before, {"git": git_state(fresh.path)}) is None
    assert code_change({"git": None}, before) is None


def test_a_subdirectory_sees_the_whole_repository(repository: Repository) -> None:
    before = {"git": git_state(repository.path / "lib")}
    repository.write("train.py", "two\n")
    assert code_change(before, {"git": git_state(repository.path / "lib")}) is not None


def test_provenance_can_be_stored_and_names_what_matters(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hush")
    found = collect(repository.path, ["bakeoff", "run", "--set", "params.token=hush"])
    text = json.dumps(found)
    assert "hush" not in text and "MY_API_KEY" not in found["env"]
    assert {"git", "packages", "python", "platform", "host", "cores", "argv", "cwd", "base", "env"} <= set(found)
    assert found["packages"]["pydantic"]
