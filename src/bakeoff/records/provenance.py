"""Where results came from: code, packages, machine, command line and environment, with secrets left out."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SECRET = re.compile(
    r"(?i)key|token|secret|passw|passphrase|[_-]pass$|^pass$|[_-]pwd$|credential|auth|cookie|_pat$|^pat$|private|dsn"
    r"|database_url|connection_?string|webhook|session"
)
"""Names of variables, options and URL parameters whose values are not recorded."""
REDACTED = "[redacted]"


def collect(base: Path, argv: Sequence[str], ignore: Sequence[Path] = ()) -> dict[str, Any]:
    """Facts about this process, as one session's provenance.

    `base` is the experiment file's directory; the repository that it is in is the code. `ignore` are files whose
    changes are not a change of code.
    """
    from importlib.metadata import distributions

    packages = {}
    for distribution in distributions():
        # Only two lines are read: parsing all metadata takes 30 times as long.
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        header = dict(re.findall(r"^(Name|Version):[ \t]*(\S+)", text.partition("\n\n")[0], re.MULTILINE))
        if "Name" in header:
            packages[header["Name"]] = header.get("Version", "")
    return {
        "git": git_state(base, ignore),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "host": platform.node(),
        "cores": os.cpu_count(),
        "argv": redact_argv(argv),
        "cwd": str(Path.cwd()),
        "base": str(base.absolute()),
        "env": redact(os.environ),
    }


# -- secrets


def redact(environment: Mapping[str, str]) -> dict[str, str]:
    """Names that sound secret lose their values; so do passwords and tokens inside URLs."""
    return {
        name: REDACTED if _SECRET.search(name) else redact_urls(value) for name, value in sorted(environment.items())
    }


def redact_urls(text: str) -> str:
    """`scheme://user:password@`, `https://token@` and `?api_key=...` without what is secret in them."""
    text = re.sub(r"(://[^/:@\s]*:)[^\s]*@", rf"\1{REDACTED}@", text)
    text = re.sub(r"(https?://)[^/:@\s]+@", rf"\1{REDACTED}@", text)
    return re.sub(
        r"([?&])([^=&\s]+)=([^&\s]+)",
        lambda match: f"{match[1]}{match[2]}={REDACTED}" if _SECRET.search(match[2]) else match[0],
        text,
    )


def redact_argv(argv: Sequence[str]) -> list[str]:
    """A command line without secrets: `--set params.api_key=...`, `--api-key ...` and the like lose their values."""
    shown: list[str] = []
    hide = False
    for part in argv:
        name, equals, _ = part.partition("=")
        secret = _SECRET.search(name) is not None
        if hide and not part.startswith("-"):
            shown.append(REDACTED)
        else:
            shown.append(f"{name}={REDACTED}" if equals and secret and "://" not in name else redact_urls(part))
        hide = part.startswith("-") and secret and not equals
    return shown


# -- code


def git_state(base: Path, ignore: Sequence[Path] = ()) -> dict[str, Any] | None:
    """Commit, branch and uncommitted diff of the repository that `base` is in; None outside of one.

    `code` is a digest of the content of the tracked files now, so that a commit of the same content is not a change.
    """
    top = git(base, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    root = Path(top.rstrip("\n"))
    ignored = [str(path.resolve().relative_to(root)) for path in ignore if path.resolve().is_relative_to(root)]
    commit = (git(base, "rev-parse", "--verify", "-q", "HEAD") or "").strip()
    excluded = [f":(exclude,top,literal){path}" for path in ignored]
    diff = git(root, "diff", "--no-ext-diff", "--binary", "HEAD" if commit else "--cached", "--", ".", *excluded) or ""
    return {
        "commit": commit or None,
        "branch": (git(base, "rev-parse", "--abbrev-ref", "HEAD") or "").strip() or None,
        "dirty": bool(diff),
        "diff": diff,
        "code": _tree(root, ignored) or hashlib.sha256(f"{commit}\0{diff}".encode()).hexdigest(),
    }


def _tree(root: Path, ignored: Sequence[str]) -> str | None:
    """The tree that committing everything would make, built in a copy of the index: the repository is not touched."""
    index, objects = (git(root, "rev-parse", "--git-path", name) for name in ("index", "objects"))
    if index is None or objects is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "index")
        if (root / index.strip()).exists():
            shutil.copy2(root / index.strip(), copy)  # with its time: git tells by it which entries to look at again
        env = {
            "GIT_INDEX_FILE": str(copy),
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str((root / objects.strip()).resolve()),
        }
        if git(root, "add", "--update", "--", ".", env=env) is None:
            return None
        if ignored:
            git(root, "update-index", "--force-remove", "--", *ignored, env=env)
        return (git(root, "write-tree", env=env) or "").strip() or None


def git(
    where: str | Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    errors: str = "replace",
) -> str | None:
    """What a git command prints in the directory `where`; None when it fails, hangs, or git is not installed.

    `errors` says what becomes of bytes that are not UTF-8, as in `bytes.decode`.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(where), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            errors=errors,
            timeout=30,
            env={**os.environ, **(env or {})},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def code_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What changed in the code between two sessions, in a few words; None when nothing did or it is not known."""
    old, new = before.get("git"), now.get("git")
    if not old or not new or old["code"] == new["code"]:
        return None
    if old["commit"] != new["commit"]:
        return f"commit {str(old['commit'])[:10]} became {str(new['commit'])[:10]}"
    return f"uncommitted changes on {str(new['commit'])[:10]} differ"
