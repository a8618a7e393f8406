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
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.records.codefiles import CodeFiles, changed_files, code_files
from bakeoff.records.secrets import REDACTED, hide, hide_argv, sounds_secret

_ENVIRONMENT = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|TMPDIR|PWD|HOSTNAME|CI|EDITOR|DISPLAY"
    r"|(?:LD_LIBRARY|DYLD_LIBRARY|VIRTUAL_ENV|CONDA|MAMBA|UV|PIP|POETRY|NIX)(?:_[A-Z0-9_]+|PATH)?|VIRTUAL_ENV|LD_PRELOAD"
    r"|PYTHON[A-Z0-9_]*|OMP_[A-Z0-9_]+|MKL_[A-Z0-9_]+|KMP_[A-Z0-9_]+|GOMP_[A-Z0-9_]+|OPENBLAS_[A-Z0-9_]+|BLIS_[A-Z0-9_]+"
    r"|VECLIB_[A-Z0-9_]+|NUMEXPR_[A-Z0-9_]+|NUMBA_[A-Z0-9_]+|POLARS_[A-Z0-9_]+|MALLOC_[A-Z0-9_]+|GLIBC_TUNABLES"
    r"|CUDA_[A-Z0-9_]+|CUBLAS_[A-Z0-9_]+|CUDNN_[A-Z0-9_]+|NVIDIA_[A-Z0-9_]+|NCCL_[A-Z0-9_]+|ROCR?_[A-Z0-9_]+|HIP_[A-Z0-9_]+"
    r"|HSA_[A-Z0-9_]+|TORCH[A-Z0-9]*_[A-Z0-9_]+|PYTORCH_[A-Z0-9_]+|TF_[A-Z0-9_]+|XLA_[A-Z0-9_]+|JAX_[A-Z0-9_]+"
    r"|TOKENIZERS_PARALLELISM|HF_(?:HOME|HUB_[A-Z_]+|DATASETS_[A-Z_]+)|TRANSFORMERS_[A-Z0-9_]+|VLLM_[A-Z0-9_]+|RAY_[A-Z0-9_]+"
    r"|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT)|SLURM_[A-Z0-9_]+|PBS_[A-Z0-9_]+|LSB_[A-Z0-9_]+"
    r"|DOCKER_HOST|CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|BAKEOFF_[A-Z0-9_]+|MPLBACKEND|COLUMNS|LINES|SHLVL"
)
"""Variables that say how code runs: paths, locale, threads, accelerators, schedulers of a cluster, and ours."""


def collect(
    base: Path,
    argv: Sequence[str],
    ignore: Sequence[Path] = (),
    results: Path | None = None,
    named: Sequence[Path] = (),
) -> dict[str, Any]:
    """Facts about this process, as one session's provenance.

    `base` is the experiment file's directory; the repository that it is in is the code, and files that git does not
    track (`untracked_code`). `ignore` are files whose changes are not a change of code, `results` is a directory
    without code, and `named` are further files that runs use.
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
        "files": msgspec.to_builtins(untracked_code(base, ignore, results, named)),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "host": platform.node(),
        "cores": os.cpu_count(),
        "argv": hide_argv(argv),
        "cwd": str(Path.cwd()),
        "base": str(base.absolute()),
        "env": environment(os.environ),
    }


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are recorded, without secrets. All others stay out, whatever their names."""
    known = {name: value for name, value in sorted(variables.items()) if _ENVIRONMENT.fullmatch(name)}
    return {name: REDACTED if sounds_secret(name) else hide(value) for name, value in known.items()}


# -- code

_MOST_NAMED = 5
"""Changed files that are named."""


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
        "diff": hide(diff),
        "code": _tree(root, ignored) or hashlib.sha256(f"{commit}\0{diff}".encode()).hexdigest(),
    }


def untracked_code(
    base: Path, ignore: Sequence[Path] = (), results: Path | None = None, named: Sequence[Path] = ()
) -> CodeFiles:
    """Code and configuration of an experiment that git does not track: all of it outside of a repository."""
    listed = None
    # In a directory that git ignores, everything is as it is outside of a repository.
    if git(base, "rev-parse", "--show-toplevel") is not None and git(base, "check-ignore", "-q", ".") is None:
        others = git(base, "ls-files", "--others", "--exclude-standard", "-z", "--", ".") or ""
        inside = [base / name for name in others.split("\0") if name]
        listed = [path for path in inside if results is None or not path.is_relative_to(results)]
    mentions = ""
    for path in ignore[:1]:
        with suppress(OSError):
            mentions = path.read_text(errors="replace")
    left_out = {path.absolute() for path in ignore}
    found = code_files(base.absolute(), results, listed=listed, named=named, source=mentions)
    outside = {os.path.relpath(path, base.absolute()) for path in left_out}
    return msgspec.structs.replace(
        found, files={name: file for name, file in found.files.items() if name not in outside}
    )


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


def code_is_known(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether `code_change` can tell: both are in git, or neither is and both have files that were all looked at."""
    if before.get("git") or now.get("git"):
        return bool(before.get("git") and now.get("git"))
    looked_at = (each.get("files") or {} for each in (before, now))
    return all(each.get("files") and not each.get("incomplete") for each in looked_at)


def code_change(
    before: Mapping[str, Any], now: Mapping[str, Any], running: Sequence[tuple[float, float]] = ()
) -> str | None:
    """Say what changed in the code between two sessions, in a few words; None when nothing did or it is not known.

    `running` are the times (start, end) of sessions: what changed then may be the output of runs.
    """
    old, new = before.get("git"), now.get("git")
    if old and new and old.get("code") != new.get("code"):
        if old.get("commit") != new.get("commit"):
            return f"commit {str(old.get('commit'))[:10]} became {str(new.get('commit'))[:10]}"
        return f"uncommitted changes on {str(new.get('commit'))[:10]} differ"
    if bool(old) != bool(new) or not before.get("files") or not now.get("files"):
        return None  # the session of an older version, or code that was put under version control meanwhile
    changed = changed_files(
        msgspec.convert(before["files"], CodeFiles), msgspec.convert(now["files"], CodeFiles), running
    )
    if not changed:
        return None
    more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
    return f"{', '.join(changed[:_MOST_NAMED])}{more} {'differ' if len(changed) > 1 else 'differs'}"
