"""git as a child process that reads no settings but ours, so the same task gives the same bytes on every machine."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bakeoff.errors import BakeoffError, UsageError

WHEN = "2000-01-01T00:00:00+0000"
"""The date of commits that we make: the same content has the same id everywhere."""
WHO = "start"
_OURS = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ADVICE": "0",
    "GIT_AUTHOR_NAME": WHO,
    "GIT_AUTHOR_EMAIL": f"{WHO}@localhost",
    "GIT_AUTHOR_DATE": WHEN,
    "GIT_COMMITTER_NAME": WHO,
    "GIT_COMMITTER_EMAIL": f"{WHO}@localhost",
    "GIT_COMMITTER_DATE": WHEN,
    "LC_ALL": "C",
}
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.autocrlf=false",
    "core.logAllRefUpdates=false",
    "core.untrackedCache=false",
    "protocol.ext.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.directory=*",
)


class GitFailed(BakeoffError):
    """git ended with an error; `said` is what it wrote."""

    def __init__(self, args: tuple[str, ...], said: str) -> None:
        self.said = said
        super().__init__(f"git {args[0]} failed: {said or 'it did not say why'}")


def git(*args: str, at: Path | None = None, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> bytes:
    """What `git ARGS` prints, run in `at`."""
    done = _run(args, at, stdin, {**_clean(), **_OURS, **(env or {})})
    if done.returncode:
        raise GitFailed(args, _text(done.stderr))
    return done.stdout


def git_asks(*args: str, at: Path | None = None) -> str | None:
    """One line that git answers, or None where it has no answer."""
    done = _run(args, at, None, {**_clean(), **_OURS})
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


def git_with_users_settings(*args: str, at: Path, env: Mapping[str, str]) -> None:
    """For talking to servers, where credentials, proxies and keys are the user's."""
    done = _run(args, at, None, {**_clean(), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **env})
    if done.returncode:
        raise GitFailed(args, _text(done.stderr))


def git_copies_objects(source: Path, target: Path, commit: str) -> None:
    """Everything that can be reached from `commit`, and nothing else, from one repository into another."""
    env = {**_clean(), **_OURS}
    pack = ("pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset")
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(_argv(pack), cwd=source, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said) as packing,
    ):  # fmt: skip
        assert packing.stdin is not None and packing.stdout is not None
        packing.stdin.write(f"{commit}\n".encode())
        packing.stdin.close()
        index = ("index-pack", "--stdin", "--fix-thin")
        done = subprocess.run(_argv(index), cwd=target, env=env, stdin=packing.stdout, capture_output=True)
        packing.stdout.close()
        if packing.wait():
            said.seek(0)
            raise GitFailed(pack, _text(said.read()))
    if done.returncode:
        raise GitFailed(index, _text(done.stderr))


def _run(
    args: tuple[str, ...], at: Path | None, stdin: bytes | None, env: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            _argv(args),
            cwd=at,
            env=env,
            capture_output=True,
            input=stdin or b"",
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed; a task's repository cannot be read\n  fix: install git") from error


def _argv(args: tuple[str, ...]) -> list[str]:
    return ["git", *(part for setting in _SETTINGS for part in ("-c", setting)), *args]


def _clean() -> dict[str, str]:
    """This process's environment without what would point git at another repository."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name == "GIT_SSH_COMMAND"
    }


def _text(data: bytes) -> str:
    return data.decode(errors="replace").strip()
