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
