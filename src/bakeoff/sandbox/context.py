"""What a build may copy: the files of its context, without what `.dockerignore` names."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from bakeoff.errors import UsageError
from bakeoff.sandbox import images
from bakeoff.sandbox.scratch import scratch


class Context:
    def __init__(self, directory: Path, file: Path) -> None:
        """`file` is the Dockerfile, which may have a .dockerignore of its own."""
        self._directory = directory
        self._ignored = _ignore_rules(directory, file)

    def find(self, source: str) -> list[Path]:
        """What a COPY means by `source`, which may be a pattern."""
        relative = posixpath.normpath(source.lstrip("/"))
        if relative.startswith(".."):
            raise UsageError(f"{source} lies outside of the context {self._directory}")
        found = [self._directory] if relative == "." else sorted(self._directory.glob(relative))
        found = [self._followed(path) for path in found if path.is_dir() or not self._is_ignored(path)]
        if not found:
            raise UsageError(f"{source}: no such file in the context {self._directory}")
        return found

    def _followed(self, path: Path) -> Path:
        """A link that is named itself stands for what it leads to, which lies in the context too."""
        if not path.is_symlink():
            return path
        top, end = self._directory.resolve(), path.resolve()
        if not end.is_relative_to(top) or not end.exists():
            raise UsageError(f"{path.name} is a link to {os.readlink(path)}: no such file in the context")
        return self._directory / end.relative_to(top) if end.is_dir() else path

    def content(self, paths: Sequence[Path]) -> list[tuple[str, str]]:
        """For each path where it is and a digest of what is there."""
        return [(str(path.relative_to(self._directory)), self._digest(path)) for path in paths]

    def _digest(self, path: Path) -> str:
        if path.is_file():
            with path.open("rb") as file:
                return f"{path.stat().st_mode:o} {hashlib.file_digest(file, 'sha256').hexdigest()}"
        with scratch("build") as here:
            return images.tree_digest(self.filtered(path, here, None))

    def filtered(self, path: Path, here: Path, chmod: str | None) -> Path:
        """A copy without what .dockerignore names, with the modes asked for. A single file may do without."""
        if path.is_file() and chmod is None:
            return path
        target = Path(tempfile.mkdtemp(dir=here), path.name or "context")
        copy_tree(path, target, int(chmod, 8) if chmod else None, self._is_ignored)
        return target

    def _is_ignored(self, path: Path) -> bool:
        relative = path.relative_to(self._directory).as_posix()
        ignored = False
        for pattern, keep in self._ignored:
            if any(pattern.fullmatch(part) for part in (relative, *_above(relative))):
                ignored = not keep
        return ignored


def copy_tree(
    source: Path, target: Path, mode: int | None = None, ignored: Callable[[Path], bool] = lambda _: False
) -> None:
    """`source` with every mode set to `mode`, where one is given."""
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        target.mkdir()
        for path in source.iterdir():
            if not ignored(path):
                copy_tree(path, target / path.name, mode, ignored)
            elif path.is_dir() and not path.is_symlink():  # something in it may be wanted all the same
                copy_tree(path, target / path.name, mode, ignored)
                if not any((target / path.name).iterdir()):
                    (target / path.name).rmdir()
        target.chmod(mode if mode is not None else source.stat().st_mode & 0o7777)
    elif source.is_file():
        target.write_bytes(source.read_bytes())
        target.chmod(mode if mode is not None else source.stat().st_mode & 0o7777)


def _ignore_rules(context: Path, file: Path) -> list[tuple[re.Pattern[str], bool]]:
    """Patterns, and whether what they match is kept; the last that matches counts."""
    own = file.with_name(f"{file.name}.dockerignore")
    rules = own if own.is_file() else context / ".dockerignore"
    lines = [line.strip() for line in rules.read_text().splitlines()] if rules.is_file() else []
    told = [line for line in lines if line and not line.startswith("#")]
    return [(_pattern(line.lstrip("!").strip()), line.startswith("!")) for line in told]


def _pattern(text: str) -> re.Pattern[str]:
    """`*` stays within a directory, `**` does not."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", posixpath.normpath(text).strip("/"))
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(known.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts))


def _above(relative: str) -> Iterator[str]:
    for path in PurePosixPath(relative).parents:
        if path.name:
            yield str(path)
