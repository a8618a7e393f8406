"""git, and where a repository's commits come from: a path, a bundle, or a server through a mirror that is kept.

git runs as a child process that reads no settings but ours, so the same task gives the same bytes on every machine.
A mirror is bare, keyed by URL, and has no remote: neither the URL nor the login to it is stored.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.sandbox.cache import directory
from bakeoff.workloads.tasks.model import Repository

WHEN = "2000-01-01T00:00:00+0000"
"""The date of commits that we make: the same content has the same id everywhere."""
WHO = "start"
TOKENS = ("PRIVATE_GITHUB_PAT", "GH_PAT")
"""Variables with a token for private repositories on GitHub."""
_FULL = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")

# Variables and settings are those of git(1) and git-config(1).
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
# No hook, file-system monitor or `ext::` transport runs: a repository's own configuration could name any program there.
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
    """git ended with an error; `output` is what it wrote to standard error."""

    def __init__(self, args: tuple[str, ...], output: bytes) -> None:
        self.output = output.decode(errors="replace").strip()
        super().__init__(f"git {args[0]} failed: {self.output or 'without a message'}")


def git(*args: str, at: Path | None = None, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> bytes:
    """The standard output of `git ARGS`, run in the directory `at`. GitFailed if it exits with an error.

    git("diff", "--binary", start, end, at=tree)
    """
    result = _run(args, at, stdin, {**_clean(), **_OURS, **(env or {})})
    if result.returncode:
        raise GitFailed(args, result.stderr)
    return result.stdout


def git_query(*args: str, at: Path | None = None) -> str | None:
    """The standard output of `git ARGS` as text, or None if git exits with an error."""
    result = _run(args, at, None, {**_clean(), **_OURS})
    return result.stdout.decode(errors="replace").strip() if result.returncode == 0 else None


def _run(
    args: tuple[str, ...], at: Path | None, stdin: bytes | None, env: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run git to its end, without a terminal to ask at. UsageError if it is not installed."""
    try:
        return subprocess.run(_argv(args), cwd=at, env=env, capture_output=True, input=stdin or b"")
    except FileNotFoundError as error:
        raise UsageError("git is not installed; a task's repository cannot be read\n  fix: install git") from error


def _argv(args: tuple[str, ...]) -> list[str]:
    """git with our settings, which win over those of the repository that it works on."""
    return ["git", *(part for setting in _SETTINGS for part in ("-c", setting)), *args]


def _clean() -> dict[str, str]:
    """This process's environment without variables that would point git at another repository."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name == "GIT_SSH_COMMAND"
    }


def copy_objects(source: Path, target: Path, commit: str) -> None:
    """Copy every object that is reachable from `commit`, and nothing else, from one repository into another."""
    env = {**_clean(), **_OURS}
    pack = ("pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset")
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(_argv(pack), cwd=source, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as packing,
    ):  # fmt: skip
        assert packing.stdin is not None and packing.stdout is not None
        # Small enough for the pipe's buffer, so this cannot wait for a reader.
        packing.stdin.write(f"{commit}\n".encode())
        packing.stdin.close()
        index = ("index-pack", "--stdin", "--fix-thin")
        indexed = subprocess.run(_argv(index), cwd=target, env=env, stdin=packing.stdout, capture_output=True)
        packing.stdout.close()
        if packing.wait():
            errors.seek(0)
            raise GitFailed(pack, errors.read())
    if indexed.returncode:
        raise GitFailed(index, indexed.stderr)


@dataclass(frozen=True, slots=True)
class Commits:
    """A repository on this machine that has the start commit."""

    directory: Path
    commit: str
    """In full."""


def find_commits(repository: Repository, cache: Path | None = None) -> Commits | None:
    """The repository on this machine with its start commit; None if `url` is a plain directory of files.

    A URL or a bundle is fetched into a mirror below `cache` unless the commit is there already. Raises UsageError if
    there is no such commit, InfraError if the server cannot be reached.
    """
    place = Path(repository.url)
    remote = not place.is_absolute()
    if remote or place.is_file():
        with _mirror(repository.url, cache or directory(), remote=remote) as mirror:
            known = _resolve(mirror, _wanted_ref(repository))
            return Commits(mirror, known or _fetch(mirror, repository, remote=remote))
    if not is_repository(place):
        if repository.commit != "HEAD":
            raise UsageError(
                f"repo.start_commit_sha: {place} is a plain directory and has no commit {repository.commit}\n"
                "  fix: remove it, or give a git repository"
            )
        return None
    commit = _resolve(place, repository.commit)
    if commit is None:
        raise UsageError(_no_commit(repository))
    return Commits(place, commit)


def is_repository(place: Path) -> bool:
    """Whether `place` itself is a repository, as opposed to a directory inside one."""
    return (place / ".git").exists() or ((place / "HEAD").is_file() and (place / "objects").is_dir())


def public_url(url: str) -> str:
    """`url` without a user name and password."""
    parts = urlsplit(url)
    if "@" not in parts.netloc or parts.scheme == "ssh":  # ssh needs the user and has no password in the URL
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@contextmanager
def _mirror(url: str, cache: Path, *, remote: bool) -> Iterator[Path]:
    """The mirror of `url`, locked for this process."""
    if remote:
        key = hashlib.sha256(public_url(url).encode()).hexdigest()
    else:  # a bundle by its content: another one may be at the same path tomorrow
        with open(url, "rb") as file:
            key = hashlib.file_digest(file, "sha256").hexdigest()
    mirror = cache / "git" / f"{key[:24]}.git"
    mirror.parent.mkdir(parents=True, exist_ok=True)
    # Held until the commit is resolved: two runs of a benchmark may want the same repository at once.
    with open(mirror.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mirror / "HEAD").is_file():
            git("init", "-q", "--bare", "--template=", str(mirror))
        yield mirror


def _wanted_ref(repository: Repository) -> str:
    """A commit id as it is; for a name the ref that keeps its first answer: a task must not change in a benchmark."""
    if re.fullmatch(r"[0-9a-fA-F]{7,64}", repository.commit):
        return repository.commit
    return f"refs/asked/{hashlib.sha256(f'{repository.branch} {repository.commit}'.encode()).hexdigest()[:24]}"


def _fetch(mirror: Path, repository: Repository, *, remote: bool) -> str:
    """Fetch the commit into the mirror: alone if the server allows that, else with everything. Returns its id."""
    # Servers may refuse a commit that is not the tip of a ref (uploadpack.allowReachableSHA1InWant, git-config(1)).
    everything = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+HEAD:refs/tip"]
    single = [f"+{repository.commit}:refs/commits/{repository.commit}"] if _FULL.fullmatch(repository.commit) else []
    failure: GitFailed | None = None
    for refs in ([single] if single else []) + [everything]:
        fetch = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--", repository.url, *refs)
        try:
            if remote:
                # Servers are reached with the user's own settings: credentials, proxies and keys are there.
                env = {**_clean(), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **_login(repository.url)}
                result = _run(fetch, mirror, None, env)
                if result.returncode:
                    raise GitFailed(fetch, result.stderr)
            else:
                git(*fetch, at=mirror)
        except GitFailed as error:
            failure = error
            continue
        names = (f"refs/heads/{repository.branch}", "refs/tip") if repository.commit == "HEAD" else (repository.commit,)
        commit = next((commit for name in names if (commit := _resolve(mirror, name))), None)
        if commit is None:
            failure = None
        else:
            if (ref := _wanted_ref(repository)) != repository.commit:
                git("update-ref", ref, commit, at=mirror)
            return commit
    if failure is not None:
        message = failure.output.replace(repository.url, public_url(repository.url))
        raise InfraError(f"repo.git_url: {public_url(repository.url)} cannot be fetched: {message}")
    raise UsageError(_no_commit(repository))


def _login(url: str) -> dict[str, str]:
    """A GitHub token as a header, in the environment of one child process: in no file and on no command line."""
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
    """The commit that `name` means in a repository; None for an unknown name, and for one that git takes as option."""
    if name.startswith("-"):
        return None
    return git_query("rev-parse", "-q", "--verify", f"{name}^{{commit}}", at=place) or None


def _no_commit(repository: Repository) -> str:
    return (
        f"repo.start_commit_sha: {public_url(repository.url)} has no commit {repository.commit!r}\n"
        "  fix: give a commit that is in it, in full"
    )
