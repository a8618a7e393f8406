"""The files that make up the code of an experiment where git does not say: outside of a repository, or not tracked.

    files = code_files(base, results=root)
    changed_files(before, files, running=[(started_at, seen_at)])       # ["train.py"]
    code_digest(base, ignore=root)                                      # whether two machines have the same code

What counts is chosen so that ordinary work is no change of code. Files that are new do not count, as in git: code that
uses one has changed as well. Text that a program may have written (JSON, YAML, prompts) counts only when the code
mentions its name, other data only when a parameter names the file, and neither when it changed while runs were running:
then it is their output. Source code always counts,
unless runs wrote it before as well. Notebooks do not: they change whenever they are looked at.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bakeoff.trees import walk

if TYPE_CHECKING:
    from bakeoff.spec.plan import Plan

SOURCE = frozenset(
    (
        ".py", ".pyx", ".pxd", ".sh", ".bash", ".zsh", ".js", ".mjs", ".cjs", ".ts", ".lua", ".r", ".jl", ".rb", ".pl", ".c",
        ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".rs", ".go", ".java", ".kt", ".scala", ".swift", ".f90", ".m", ".sql",
    )
)  # fmt: skip
"""Endings of source code."""
CONFIGURATION = frozenset(
    (".toml", ".yaml", ".yml", ".ini", ".cfg", ".conf", ".jinja", ".jinja2", ".j2", ".tmpl", ".prompt")
)
"""Endings of configuration, which code may mention without the ending (`--config-name base`)."""
TEXT = frozenset((".json", ".txt", ".md"))
"""Endings of prompts and settings, and of much that programs write: code has to mention the whole name."""
_NAMES = frozenset(("Makefile", "Dockerfile", "makefile"))
_LEFT_OUT = re.compile(r"\..*|__pycache__|node_modules|site-packages|wandb|mlruns|.*\.egg-info")
"""Directories without code of an experiment: caches, and what trackers write."""
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")
"""What a virtual environment has in it, whatever it is called: `env` may be a package of the experiment."""
LARGEST = 1 << 20
"""Bytes of a file that is read; of a larger one only its size counts."""
MOST_ENTRIES, MOST_FILES = 20_000, 2_000
_LONGEST_PATH = 4096
"""Characters of a path (limits.h, PATH_MAX)."""
_SLACK = 0.1
"""Seconds after a session in which a file may still have been its output: clocks of file systems are coarse. Whoever edits
a file right after `run` has ended edits it after that."""


class CodeFile(msgspec.Struct, frozen=True, array_like=True):
    """One file as it was when a session began."""

    digest: str
    """Of its content; its size in bytes, if it is too large to be read."""
    changed_at: float


class CodeFiles(msgspec.Struct, frozen=True):
    """The files that count as code."""

    files: dict[str, CodeFile]
    """By path from the experiment file's directory."""
    incomplete: bool = False
    """There are so many files that only the first ones were looked at."""


def code_files(
    base: Path,
    results: Path | None,
    *,
    listed: Iterable[Path] | None = None,
    named: Iterable[Path] = (),
    source: str = "",
) -> CodeFiles:
    """Look at the files below `base` that count as code.

    `results` is a directory without code. `listed` are the candidates, where git names them (default: all below `base`
    that no .gitignore leaves out). `named` are files that count as well, whatever their ending, and `source` is the text of
    the experiment file, which may mention some.
    """
    entries = list(islice(listed if listed is not None else _walk(base, results), MOST_ENTRIES))
    incomplete = len(entries) >= MOST_ENTRIES
    code = [*(path for path in entries if path.suffix.lower() in SOURCE or path.name in _NAMES), *named]
    contents = {path: content for path in code[:MOST_FILES] if (content := _content(path)) is not None}
    texts = [source, *(content.decode(errors="replace") for content in contents.values() if isinstance(content, bytes))]
    mentioned = set(re.findall(r"[\w][\w.-]*", "\n".join(texts)))
    for path in entries:
        ending = path.suffix.lower()
        used = ending in CONFIGURATION | TEXT and path.name in mentioned
        used = used or (ending in CONFIGURATION and path.stem in mentioned)
        if used and len(contents) < MOST_FILES:
            content = _content(path)
            if content is not None:
                contents[path] = content
    files = {}
    for path, content in contents.items():
        digest = f"{content} bytes" if isinstance(content, int) else hashlib.sha256(content).hexdigest()[:16]
        try:
            files[os.path.relpath(path, base)] = CodeFile(digest, path.stat().st_mtime)
        except OSError:
            continue  # it vanished meanwhile
    return CodeFiles(files, incomplete or len(code) > MOST_FILES)


def named_files(plan: Plan) -> list[Path]:
    """Return files that parameters name: data below the experiment file's directory, and source code elsewhere."""
    words = {
        word
        for cell in plan.cells
        for value in cell.params.values()
        for text in (value if isinstance(value, list) else [value])
        if isinstance(text, str)
        for word in re.split(r"[\s=,;]+", text)
        if re.search(r"[/.]", word) and len(word) < _LONGEST_PATH and "\0" not in word
    }
    paths = {Path(os.path.normpath(plan.base / word)) for word in words}
    return sorted(
        path
        for path in paths
        if (path.suffix.lower() in SOURCE or path.name in _NAMES or path.is_relative_to(plan.base))
        and _content(path) is not None
    )


def changed_files(before: CodeFiles, now: CodeFiles, running: Sequence[tuple[float, float]] = ()) -> list[str]:
    """Paths of files that changed or are gone since `before`, without what runs wrote.

    `running` has the times (start, end) in which runs were running. Files that are new do not count.
    """

    def written_by_runs(file: CodeFile) -> bool:
        return any(start <= file.changed_at <= end + _SLACK for start, end in running)

    changed = []
    for path, was in before.files.items():
        code = Path(path).suffix.lower() in SOURCE or Path(path).name in _NAMES
        current = now.files.get(path)
        if current is None:
            if code and not now.incomplete:
                changed.append(path)
        elif current.digest != was.digest:
            # Source code that somebody edited during a run counts; what runs write time after time does not.
            output = written_by_runs(current) and (not code or written_by_runs(was))
            if not output:
                changed.append(path)
    return sorted(changed)


def code_digest(base: Path, ignore: Path | None = None) -> str:
    """Return a digest of the code that runs: bakeoff's own, every Python file below `base`, and the Python version.

    It depends on contents and relative names alone, so that the same code has the same digest on every machine. `base` is
    the experiment file's directory, and `ignore` one that holds no code, such as the results. Of a directory with very many
    files, only the first ones count.
    """
    digest = hashlib.sha256(f"{sys.version_info[:2]}\n".encode())
    for root in (Path(__file__).parent.parent, base):
        for entry in _python_files(root, ignore):
            digest.update(entry)
    return digest.hexdigest()[:16]


def module_digest(path: Path) -> str:
    """Return a digest of the Python files of a module: a file, or a package with everything below it."""
    digest = hashlib.sha256()
    for entry in _python_files(path) if path.is_dir() else (path.read_bytes(),):
        digest.update(entry)
    return digest.hexdigest()[:12]


def _python_files(root: Path, ignore: Path | None = None) -> Iterator[bytes]:
    """Yield name and content of every Python file below `root`, in a fixed order."""
    for path in islice(_walk(root, ignore), MOST_ENTRIES):
        if path.suffix == ".py" and (content := _content(path)) is not None:
            size, text = (content, b"") if isinstance(content, int) else (len(content), content)
            yield f"{path.relative_to(root).as_posix()}\0{size}\0".encode() + text


def _content(path: Path) -> bytes | int | None:
    """The file's content, or its size when it is too large; None for what is no regular file or cannot be read."""
    try:
        if not path.is_file():
            return None
        size = path.stat().st_size
        return size if size > LARGEST else path.read_bytes()
    except OSError:
        return None


def _walk(base: Path, ignore: Path | None) -> Iterator[Path]:
    """Yield every file below `base` that may be code, in a fixed order. `ignore` is a directory without code."""
    rules: dict[str, Callable[[str, bool], bool]] = {}
    for folder, folders, names in walk(base):
        above = [(place, rule) for place, rule in rules.items() if f"{folder}/".startswith(f"{place}/")]
        if ".gitignore" in names and (rule := _gitignore(Path(folder, ".gitignore"))) is not None:
            rules[folder] = rule
            above.append((folder, rule))

        def is_ignored(
            path: str, directory: bool, above: list[tuple[str, Callable[[str, bool], bool]]] = above
        ) -> bool:
            return any(rule(os.path.relpath(path, place), directory) for place, rule in above)

        paths = {name: os.path.join(folder, name) for name in folders}
        folders[:] = sorted(
            name
            for name, path in paths.items()
            if not _LEFT_OUT.fullmatch(name)
            and not any(os.path.exists(os.path.join(path, mark)) for mark in _ENVIRONMENTS)
            and (ignore is None or Path(path) != ignore)
            and not is_ignored(path, directory=True)
        )
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.startswith(".") and not name.endswith("~") and not is_ignored(path, directory=False):
                yield Path(path)


def _gitignore(path: Path) -> Callable[[str, bool], bool] | None:
    """The rule of a .gitignore for paths below its directory (gitignore(5)); None when it cannot be read."""
    content = _content(path)
    if not isinstance(content, bytes):
        return None
    patterns: list[tuple[re.Pattern[str], bool, bool]] = []
    for line in content.decode(errors="replace").splitlines():
        text = line.rstrip()
        if not text or text.startswith("#"):
            continue
        keep = text.startswith("!")
        text = text[1:] if keep else text
        directories = text.endswith("/")
        text = text.rstrip("/")
        anchored = "/" in text
        regex = "".join(
            {"**/": "(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))
            for part in re.split(r"(\*\*/|/\*\*|\*|\?)", text.lstrip("/"))
        )
        patterns.append((re.compile(regex if anchored else f"(?:.*/)?{regex}"), keep, directories))

    def is_ignored(name: str, directory: bool) -> bool:
        ignored = False
        for pattern, keep, directories in patterns:
            if (directory or not directories) and pattern.fullmatch(name):
                ignored = not keep
        return ignored

    return is_ignored
