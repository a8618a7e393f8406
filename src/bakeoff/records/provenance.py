"""Where results came from: code, packages, machine, command line and environment, with secrets left out."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SECRET = re.compile(r"(?i)key|token|secret|passw|credential|auth|cookie|_pat$|^pat$|private|dsn|database_url|session")
REDACTED = "[redacted]"


def collect(base: Path, argv: Sequence[str], ignore: Sequence[Path] = ()) -> dict[str, Any]:
    """Facts about this process. `ignore` are files whose changes are not a change of code."""
    from importlib.metadata import distributions

    packages = {dist.metadata["Name"]: dist.version for dist in distributions() if dist.metadata["Name"]}
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


def redact(environment: Mapping[str, str]) -> dict[str, str]:
    """Names that sound secret lose their values; so do URLs with a password in them."""
    return {
        name: REDACTED if _SECRET.search(name) else re.sub(r"(://[^/:@\s]*:)[^@/\s]+@", rf"\1{REDACTED}@", value)
        for name, value in sorted(environment.items())
    }


def redact_argv(argv: Sequence[str]) -> list[str]:
    """`--set params.api_key=...` and the like lose their values too."""
    shown = []
    for part in argv:
        name, equals, _ = part.partition("=")
        shown.append(f"{name}={REDACTED}" if equals and _SECRET.search(name) else part)
    return shown


def git_state(base: Path, ignore: Sequence[Path] = ()) -> dict[str, Any] | None:
    """Commit, tree and uncommitted diff of the repository that `base` is in; None outside of one.

    `code` is a digest of what the tracked files say now, so that a commit of the same content is no change.
    """
    top = _git(base, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    root = Path(top.strip())
    excluded = [f":(exclude,top){path.resolve().relative_to(root)}" for path in ignore if path.resolve().is_relative_to(root)]
    commit = (_git(base, "rev-parse", "--verify", "-q", "HEAD") or "").strip()
    diff = _git(root, "diff", "--binary", "HEAD" if commit else "--cached", "--", ".", *excluded) or ""
    # The index plus the work tree, without touching either: the tree of HEAD and the diff on top of it.
    listing = _git(root, "ls-tree", "-r", "HEAD", "--", ".") if commit else ""
    ignored = {str(path.resolve().relative_to(root)) for path in ignore if path.resolve().is_relative_to(root)}
    kept = "\n".join(line for line in (listing or "").splitlines() if line.partition("\t")[2] not in ignored)
    return {
        "commit": commit or None,
        "branch": (_git(base, "rev-parse", "--abbrev-ref", "HEAD") or "").strip() or None,
        "dirty": bool(diff),
        "diff": diff,
        "code": hashlib.sha256(f"{kept}\0{diff}".encode()).hexdigest(),
    }


def _git(where: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(where), *arguments], capture_output=True, text=True, errors="replace", timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def code_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What changed in the code between two sessions, in a few words; None when nothing did or git cannot tell."""
    old, new = before.get("git"), now.get("git")
    if not old or not new or old["code"] == new["code"]:
        return None
    if old["commit"] != new["commit"]:
        return f"commit {str(old['commit'])[:10]} became {str(new['commit'])[:10]}"
    return f"uncommitted changes on {str(new['commit'])[:10]} differ"
