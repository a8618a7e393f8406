"""Where a repository's commits come from: a path, a bundle, or a server through a mirror that is kept.

A mirror is bare, keyed by URL, and has no remote: neither the URL nor what logs in to it is stored.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.cache import directory
from bakeoff.workloads.tasks.git import GitFailed, git, git_asks, git_with_users_settings
from bakeoff.workloads.tasks.model import Repository

TOKENS = ("PRIVATE_GITHUB_PAT", "GH_PAT")
"""Variables with a token for private repositories on GitHub."""
_FULL = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Commits:
    """A repository on this machine that has the start commit."""

    directory: Path
    commit: str
    """In full."""


def find_commits(repository: Repository, cache: Path | None = None) -> Commits | None:
    """The repository with its start commit; None where `url` is a plain directory of files without history."""
    place = Path(repository.url)
    if not place.is_absolute():
        return _mirrored(repository, cache or directory(), remote=True)
    if place.is_file():
        return _mirrored(repository, cache or directory(), remote=False)
    if not is_repository(place):
        if repository.commit != "HEAD":
            raise UsageError(
                f"repo.start_commit_sha: {place} is a plain directory and has no commit {repository.commit}\n"
                "  fix: leave it out, or give a git repository"
            )
        return None
    commit = _resolve(place, repository.commit)
    if commit is None:
        raise UsageError(_no_commit(repository))
    return Commits(place, commit)


def is_repository(place: Path) -> bool:
    """Whether `place` itself is a repository: one that it merely lies in does not count."""
    return (place / ".git").exists() or ((place / "HEAD").is_file() and (place / "objects").is_dir())


def public_url(url: str) -> str:
    """`url` without a name and password in it."""
    parts = urlsplit(url)
    if "@" not in parts.netloc or parts.scheme == "ssh":
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _mirrored(repository: Repository, cache: Path, *, remote: bool) -> Commits:
    with _mirror(repository.url, cache, remote=remote) as mirror:
        known = _resolve(mirror, _asked(repository))
        return Commits(mirror, known or _fetch(mirror, repository, remote=remote))


@contextmanager
def _mirror(url: str, cache: Path, *, remote: bool) -> Iterator[Path]:
    """The mirror of `url`, for one process at a time."""
    if remote:
        key = hashlib.sha256(public_url(url).encode()).hexdigest()
    else:  # a bundle by its content: another one may lie at the same place tomorrow
        with open(url, "rb") as file:
            key = hashlib.file_digest(file, "sha256").hexdigest()
    mirror = cache / "git" / f"{key[:24]}.git"
    mirror.parent.mkdir(parents=True, exist_ok=True)
    with open(mirror.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mirror / "HEAD").is_file():
            git("init", "-q", "--bare", "--template=", str(mirror))
        yield mirror


def _asked(repository: Repository) -> str:
    """A commit by its id, or what a name stood for when it was first asked: a task must not change under a benchmark."""
    if re.fullmatch(r"[0-9a-fA-F]{7,64}", repository.commit):
        return repository.commit
    return f"refs/asked/{hashlib.sha256(f'{repository.branch} {repository.commit}'.encode()).hexdigest()[:24]}"


def _fetch(mirror: Path, repository: Repository, *, remote: bool) -> str:
    """Bring the commit into the mirror: by itself where the server allows that, else with everything."""
    everything = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+HEAD:refs/tip"]
    single = [f"+{repository.commit}:refs/commits/{repository.commit}"] if _FULL.fullmatch(repository.commit) else []
    failure: GitFailed | None = None
    for refs in ([single] if single else []) + [everything]:
        try:
            _fetch_refs(mirror, repository.url, refs, remote=remote)
        except GitFailed as error:
            failure = error
            continue
        names = (f"refs/heads/{repository.branch}", "refs/tip") if repository.commit == "HEAD" else (repository.commit,)
        commit = next((found for name in names if (found := _resolve(mirror, name))), None)
        if commit is None:
            failure = None
        else:
            if (asked := _asked(repository)) != repository.commit:
                git("update-ref", asked, commit, at=mirror)
            return commit
    if failure is not None:
        said = failure.said.replace(repository.url, public_url(repository.url))
        raise InfraError(f"repo.git_url: {public_url(repository.url)} cannot be fetched: {said}")
    raise UsageError(_no_commit(repository))


def _fetch_refs(mirror: Path, url: str, refs: list[str], *, remote: bool) -> None:
    fetch = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--", url, *refs)
    if remote:
        git_with_users_settings(*fetch, at=mirror, env=_login(url))
    else:
        git(*fetch, at=mirror)


def _login(url: str) -> dict[str, str]:
    """A GitHub token as a header, in the environment of that one child: it stands in no file and in no command line."""
    token = next((os.environ[name] for name in TOKENS if os.environ.get(name)), None)
    if token is None or urlsplit(url).hostname != "github.com" or not url.startswith("https://"):
        return {}
    value = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.https://github.com/.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {value}",
    }


def _resolve(place: Path, name: str) -> str | None:
    if name.startswith("-"):
        return None
    return git_asks("rev-parse", "-q", "--verify", f"{name}^{{commit}}", at=place) or None


def _no_commit(repository: Repository) -> str:
    return (
        f"repo.start_commit_sha: {public_url(repository.url)} has no commit {repository.commit!r}\n"
        "  fix: give a commit that is in it, in full"
    )
