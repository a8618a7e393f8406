"""Read a Dockerfile into instructions, and the files of its build context. build.py carries the instructions out.

The language is that of docs.docker.com/reference/dockerfile: parser directives, continued lines, here-documents,
shell and exec form, quotes and variables; and `.dockerignore` for the context.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from bakeoff.errors import UsageError
from bakeoff.sandbox import images
from bakeoff.sandbox.cache import scratch

IGNORED = frozenset(["CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"])
"""About running a container, which a box does not do."""
KNOWN = frozenset(["ADD", "ARG", "COPY", "ENV", "FROM", "RUN", "SHELL", "USER", "WORKDIR"])

_DIRECTIVE = re.compile(r"#\s*(?P<name>\w+)\s*=\s*(?P<value>\S.*?)\s*$")
# `<<EOF`, `<<-EOF`, `<<"EOF"` as a word of its own, so that `$((1<<3))` is not one.
_HEREDOC = re.compile(r"(?<!\S)<<(?P<dash>-?)(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)(?!\S)")
_NAME = re.compile(r"\w+")
_MODIFIER = re.compile(r"(?P<colon>:?)(?P<kind>[-+?])")
_WILDCARD = re.compile(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])")
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_FLAG = re.compile(r"--(?P<name>\w[\w-]*)(?:=(?P<value>\S*))?\s*")


@dataclass(frozen=True, slots=True)
class Flag:
    """`--name=value` behind an instruction."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile, with its lines joined."""

    word: str
    rest: str
    """Everything after the word and its flags."""
    flags: tuple[Flag, ...]
    line: int
    heredoc: str = ""
    """The text of the here-document behind it."""
    heredoc_name: str = ""
    """The word that ends the here-document, which is also what COPY calls the file."""
    literal: bool = False
    """Whether that word was quoted: then `$` in the text is an ordinary character."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What variables in `rest` stand for."""

    def flag(self, name: str) -> str | None:
        """The value of a flag, None when it is not there."""
        return next((flag.value for flag in self.flags if flag.name == name), None)

    def expanded(self, values: Mapping[str, str]) -> Instruction:
        """The instruction with `values` for its variables."""
        flags = tuple(Flag(flag.name, unquoted(flag.value, values)) for flag in self.flags)
        heredoc = self.heredoc
        if not self.literal:
            heredoc = "".join(_read(heredoc, values, split=False, quotes=False))
        return replace(self, flags=flags, heredoc=heredoc, values=values)

    def words(self) -> list[str]:
        """The rest as a list: in exec form (JSON), or words with quotes, as COPY and SHELL take them."""
        listed = exec_form(self.rest)
        return words(self.rest, self.values) if listed is None else [unquoted(word, self.values) for word in listed]

    def pairs(self) -> dict[str, str]:
        """The rest of an ENV: `A=1 B="two words"`, or the old `A one`. ValueError for a word without `=`."""
        first, _, after = self.rest.partition(" ")
        if "=" not in first:
            return {first: unquoted(after.strip(), self.values)}
        pairs = {}
        for word in words(self.rest, self.values):
            name, equals, value = word.partition("=")
            if not equals:
                raise ValueError(f"{word!r}: write NAME=value")
            pairs[name] = value
        return pairs


def parse(path: Path) -> list[Instruction]:
    """The instructions of a Dockerfile. UsageError, with the line, for one that is not supported."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not in UTF-8: {error}") from error
    escape = "\\"
    for line in lines:  # parser directives are comments at the very top
        if (directive := _DIRECTIVE.match(line)) is None:
            break
        if directive["name"].lower() == "escape":
            escape = directive["value"]
            break
    instructions = []
    number = 0
    while number < len(lines):
        first = number + 1
        text, number = _join_lines(lines, number, escape)
        if not text:
            continue
        word, rest = [*text.split(None, 1), ""][:2]
        word, rest = word.upper(), rest.strip()
        if word not in KNOWN | IGNORED:
            known = ", ".join(sorted(KNOWN))
            raise UsageError(f"{path}:{first}: {word}: not supported here; supported are {known}")
        flags = []
        while word in ("ADD", "COPY", "FROM", "RUN") and (flag := _FLAG.match(rest)):
            flags.append(Flag(flag["name"], flag["value"] or ""))
            rest = rest[flag.end() :]
        instruction = Instruction(word, rest.strip(), tuple(flags), first)
        if word in ("RUN", "COPY", "ADD") and (opened := _HEREDOC.search(rest)):
            end = next((n for n in range(number, len(lines)) if lines[n].strip() == opened["end"]), None)
            if end is None:
                raise UsageError(f"{path}:{first}: no line {opened['end']!r} ends the text that begins here")
            heredoc, number = "\n".join(lines[number:end]) + "\n", end + 1
            if word != "RUN" or rest == opened[0]:  # otherwise the text belongs to a command, and the shell reads it
                rest = rest[: opened.start()].strip() + rest[opened.end() :]
                heredoc = re.sub(r"^\t+", "", heredoc, flags=re.MULTILINE) if opened["dash"] else heredoc
            instruction = replace(
                instruction,
                rest=rest.strip(),
                heredoc=heredoc,
                heredoc_name=opened["end"],
                literal=bool(opened["quote"]),
            )
        instructions.append(instruction)
    return instructions


def _join_lines(lines: list[str], number: int, escape: str) -> tuple[str, int]:
    """One instruction over as many lines as it has, and the number of the next line. Comments between are dropped."""
    parts: list[str] = []
    while number < len(lines):
        line = lines[number].rstrip()
        number += 1
        if line.lstrip().startswith("#"):
            continue
        if parts and not line:  # docker tolerates an empty line inside a continued instruction, with a warning
            continue
        continued = line.endswith(escape)
        parts.append(line.removesuffix(escape) if continued else line)
        if not continued:
            break
    return "".join(parts).strip(), number


def unquoted(text: str, values: Mapping[str, str]) -> str:
    """A text without its quotes, and with values in place of variables."""
    return "".join(_read(text, values, split=False))


def words(text: str, values: Mapping[str, str]) -> list[str]:
    """Words as a shell reads them, except that the value of a variable is never split."""
    return list(_read(text, values, split=True))


def _read(text: str, values: Mapping[str, str], split: bool, quotes: bool = True) -> Iterator[str]:
    """Words of a text. Without `split` all of it is one word; without `quotes` only `$` and `\\$` are special."""
    word: str | None = None
    at, quoted = 0, False
    while at < len(text):
        piece = text[at]
        at += 1
        if piece == "'" and quotes and not quoted:
            end = text.find("'", at)
            end = len(text) if end < 0 else end
            piece, at = text[at:end], end + 1
        elif piece == '"' and quotes:
            quoted, piece = not quoted, ""
        elif (
            piece == "\\" and text[at : at + 1] and (text[at] == "$" or (quotes and (not quoted or text[at] in '"\\')))
        ):
            piece = text[at]
            at += 1
        elif piece == "$":
            piece, at = _variable(text, at, values)
        elif piece.isspace() and split and not quoted:
            if word is not None:
                yield word
            word = None
            continue
        word = (word or "") + piece
    if word is not None:
        yield word


def _variable(text: str, at: int, values: Mapping[str, str]) -> tuple[str, int]:
    """The value of the variable behind a `$`, and where it ends.

    It is NAME, {NAME}, {NAME:-default}, {NAME:+other} or {NAME:?message}; without the colon, empty counts as set.
    """
    braced = text.startswith("{", at)
    name = _NAME.match(text, at + braced)
    if name is None:
        return "$", at
    value = values.get(name[0])
    if not braced:
        return value or "", name.end()
    modifier = _MODIFIER.match(text, name.end())
    start = modifier.end() if modifier else name.end()
    end, depth = start, 1
    while end < len(text):  # find the brace that closes ours: defaults may hold variables themselves
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            break
        end += 1
    if modifier is None:
        return value or "", end + 1
    is_set = bool(value) if modifier["colon"] else value is not None
    other = text[start:end]
    if modifier["kind"] == "?" and not is_set:
        raise UsageError(f"${{{name[0]}}} is not set: {unquoted(other, values)}")
    if modifier["kind"] == "+":
        return unquoted(other, values) if is_set else "", end + 1
    return value or "" if is_set else unquoted(other, values), end + 1


def exec_form(text: str) -> list[str] | None:
    """`["a", "b"]` as a list; None when the text is not in that form."""
    if not text.startswith("["):
        return None
    try:
        listed = json.loads(text)
    except ValueError:
        return None
    return listed if isinstance(listed, list) and all(isinstance(word, str) for word in listed) else None


@dataclass(frozen=True, slots=True)
class _IgnoreRule:
    """One line of a .dockerignore. `keep` is set for a line with `!`; the last rule that matches a path counts."""

    pattern: re.Pattern[str]
    keep: bool


class Context:
    """The files that a build may copy: those of its directory, without what `.dockerignore` names."""

    def __init__(self, directory: Path, file: Path) -> None:
        """`file` is the Dockerfile; `<its name>.dockerignore` beside it goes before `.dockerignore`."""
        self._directory = directory
        specific = file.with_name(f"{file.name}.dockerignore")
        ignore_file = specific if specific.is_file() else directory / ".dockerignore"
        lines = [line.strip() for line in ignore_file.read_text().splitlines()] if ignore_file.is_file() else []
        self._rules: list[_IgnoreRule] = []
        for line in lines:
            if line and not line.startswith("#"):
                pattern = posixpath.normpath(line.lstrip("!").strip()).strip("/")
                # `*` and `?` stay within a directory, `**` does not; `[a-z]` means the same to a regular expression.
                parts = [
                    _WILDCARDS.get(part) or (part if part.startswith("[") else re.escape(part))
                    for part in _WILDCARD.split(pattern)
                ]
                self._rules.append(_IgnoreRule(re.compile("".join(parts)), line.startswith("!")))

    def find(self, source: str) -> list[Path]:
        """What COPY means by `source`, which may be a pattern. UsageError when that is nothing, or outside."""
        relative = posixpath.normpath(source.lstrip("/"))
        if relative.startswith(".."):
            raise UsageError(f"{source} is outside of the context {self._directory}")
        matches = [self._directory] if relative == "." else sorted(self._directory.glob(relative))
        found = []
        for path in matches:
            if not path.is_dir() and self._is_ignored(path):
                continue
            if path.is_symlink():  # COPY follows a link that it names, but never out of the context
                top, end = self._directory.resolve(), path.resolve()
                if not end.is_relative_to(top) or not end.exists():
                    raise UsageError(f"{path.name} is a link to {os.readlink(path)}: no such file in the context")
                path = self._directory / end.relative_to(top) if end.is_dir() else path
            found.append(path)
        if not found:
            raise UsageError(f"{source}: no such file in the context {self._directory}")
        return found

    def content(self, paths: Sequence[Path]) -> list[tuple[str, str]]:
        """For each path its name in the context and a digest of what is there."""
        content = []
        for path in paths:
            if path.is_file():
                with path.open("rb") as file:
                    digest = f"{path.stat().st_mode:o} {hashlib.file_digest(file, 'sha256').hexdigest()}"
            else:
                with scratch("build") as directory:
                    digest = images.tree_digest(self.filtered(path, directory, None))
            content.append((str(path.relative_to(self._directory)), digest))
        return content

    def filtered(self, path: Path, directory: Path, chmod: str | None) -> Path:
        """A copy in `directory` without what is ignored, with all modes set to `chmod`. A file may be its own copy."""
        if path.is_file() and chmod is None:
            return path
        target = Path(tempfile.mkdtemp(dir=directory), path.name or "context")
        copy_tree(path, target, int(chmod, 8) if chmod else None, self._is_ignored)
        return target

    def _is_ignored(self, path: Path) -> bool:
        """Whether the last rule that matches the path, or a directory above it, says that it is left out."""
        relative = PurePosixPath(path.relative_to(self._directory).as_posix())
        candidates = [str(relative), *(str(above) for above in relative.parents if above.name)]
        ignored = False
        for rule in self._rules:
            if any(rule.pattern.fullmatch(candidate) for candidate in candidates):
                ignored = not rule.keep
        return ignored


def copy_tree(
    source: Path, target: Path, mode: int | None = None, ignored: Callable[[Path], bool] = lambda _: False
) -> None:
    """Copy files, directories and links, with every mode set to `mode` unless that is None."""
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        target.mkdir()
        for path in source.iterdir():
            if not ignored(path):
                copy_tree(path, target / path.name, mode, ignored)
            elif path.is_dir() and not path.is_symlink():  # a later rule may keep something below it
                copy_tree(path, target / path.name, mode, ignored)
                if not any((target / path.name).iterdir()):
                    (target / path.name).rmdir()
        target.chmod(mode if mode is not None else source.stat().st_mode & 0o7777)
    elif source.is_file():
        target.write_bytes(source.read_bytes())
        target.chmod(mode if mode is not None else source.stat().st_mode & 0o7777)
