"""Images from Dockerfiles without a daemon: each RUN is a command in a box, and what it wrote is a layer.

A layer is named by a digest over everything that it depends on (the layers below it, the instruction, variables, and the
content of copied files), so the same Dockerfile is built once, and one that differs at its end shares its beginning.
"""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import json
import os
import posixpath
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.sandbox import cache, dockerfile, images
from bakeoff.sandbox.bubblewrap import BubblewrapBox
from bakeoff.sandbox.dockerfile import IGNORED, Instruction
from bakeoff.sandbox.images import Stored
from bakeoff.sandbox.spec import BoxSpec, Image

_SHELL = ("/bin/sh", "-c")
_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Known to every RUN without being part of the image, as docker has it."""
_HARMLESS_MOUNTS = ("type=cache", "type=tmpfs")


class BuildError(BakeoffError):
    """A RUN of a Dockerfile failed."""


Open = Callable[[BoxSpec], BubblewrapBox]


def build(context: Path, file: Path, args: Mapping[str, str], open_box: Open) -> Stored:
    instructions = dockerfile.parse(file)
    if not any(each.word == "FROM" for each in instructions):
        raise UsageError(f"{file}: no FROM line")
    builder = _Builder(context, file, args, open_box)
    for instruction in instructions:
        builder.follow(instruction)
    return builder.finish()


@dataclass
class _Stage:
    """An image in the making."""

    base: Stored
    digest: str
    args: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = _SHELL

    def values(self) -> dict[str, str]:
        return {**self.args, **self.base.env}


class _Builder:
    def __init__(self, context: Path, file: Path, args: Mapping[str, str], open_box: Open) -> None:
        self._context = context
        self._file = file
        self._given = dict(args)
        self._open = open_box
        self._before: dict[str, str] = {}
        """Arguments before the first FROM."""
        self._stages: dict[str, _Stage] = {}
        self._stage: _Stage | None = None
        self._ignored = _ignore_rules(context)

    def follow(self, instruction: Instruction) -> None:
        if instruction.word in IGNORED:
            return
        if instruction.word == "FROM":
            self._from(instruction.expanded(self._before))
        elif self._stage is None:
            if instruction.word != "ARG":
                raise self._wrong(instruction, "comes before any FROM")
            self._before |= self._arg(instruction.expanded(self._before), self._before)
        else:
            expanded = (
                instruction if instruction.word in ("RUN", "SHELL") else instruction.expanded(self._stage.values())
            )
            getattr(self, f"_{instruction.word.lower()}")(expanded, self._stage)

    def finish(self) -> Stored:
        assert self._stage is not None
        stage = self._stage
        told = json.dumps([stage.base.layers, stage.base.env, stage.base.workdir, stage.base.user, stage.base.host])
        stored = replace(stage.base, digest=hashlib.sha256(told.encode()).hexdigest())
        images.save(stored)
        return stored

    def _wrong(self, instruction: Instruction, problem: str) -> UsageError:
        return UsageError(f"{self._file}:{instruction.line}: {instruction.word}: {problem}")

    def _from(self, instruction: Instruction) -> None:
        name, *alias = instruction.rest.split()
        if name in self._stages:
            found = self._stages[name]
            base, digest = found.base, found.digest
        else:
            try:
                base = Stored("") if name == "scratch" else images.find(name)
            except UsageError as error:
                raise self._wrong(instruction, str(error)) from None
            digest = _told("from", base.digest or name)
        self._stage = _Stage(base, digest)
        self._stages[str(len({id(stage) for stage in self._stages.values()}))] = self._stage
        if len(alias) == 2 and alias[0].lower() == "as":
            self._stages[alias[1]] = self._stage

    def _arg(self, instruction: Instruction, _: object) -> dict[str, str]:
        found = {}
        for word in instruction.words():
            name, _, default = word.partition("=")
            found[name] = self._given.get(name, default or self._before.get(name, ""))
        if self._stage is not None:
            self._stage.args |= found
        return found

    def _env(self, instruction: Instruction, stage: _Stage) -> None:
        found = dockerfile.pairs(instruction.rest, f"{self._file}:{instruction.line}: ENV")
        stage.base = replace(stage.base, env={**stage.base.env, **found})

    def _workdir(self, instruction: Instruction, stage: _Stage) -> None:
        stage.base = replace(stage.base, workdir=_absolute(instruction.rest.strip("\"'"), stage))

    def _user(self, instruction: Instruction, stage: _Stage) -> None:
        stage.base = replace(stage.base, user=instruction.rest.strip())

    def _shell(self, instruction: Instruction, stage: _Stage) -> None:
        stage.shell = tuple(instruction.words())

    def _run(self, instruction: Instruction, stage: _Stage) -> None:
        for name, value in instruction.flags:
            if name == "mount" and not value.startswith(_HARMLESS_MOUNTS):
                raise self._wrong(instruction, f"--mount={value} is not supported here; only caches and tmpfs are")
        argv = dockerfile.exec_form(instruction.rest) or [*stage.shell, instruction.rest or instruction.text]
        stdin = instruction.text.encode() if instruction.text and instruction.rest else None
        depends = ("run", argv, instruction.text, stage.args, stage.base.env, stage.base.workdir, stage.base.user)

        def make(box: BubblewrapBox) -> None:
            passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            ended = box.run(argv, env={**passed, **stage.args, **stage.base.env}, stdin=stdin)
            if not ended.ok:
                said = (ended.stdout + ended.stderr)[-2000:].decode(errors="replace").strip()
                raise BuildError(f"{self._file}:{instruction.line}: RUN ended with code {ended.code}:\n{said}")

        self._add_layer(stage, _told(stage.digest, *depends), make)

    def _copy(self, instruction: Instruction, stage: _Stage) -> None:
        *sources, target = instruction.words()
        if instruction.name:
            self._copy_text(instruction, stage, sources, target)
            return
        if not sources:
            raise self._wrong(instruction, "give a source and a target")
        origin = instruction.flag("from")
        if origin is not None:
            self._copy_from(instruction, stage, origin, sources, target)
            return
        found = [path for source in sources for path in self._matches(instruction, source)]
        content = [(str(path.relative_to(self._context)), self._content(path)) for path in found]
        chown, chmod = instruction.flag("chown"), instruction.flag("chmod")
        destination = _absolute(target, stage)
        into = target.endswith("/") or len(found) > 1 or target in (".", "./")
        digest = _told(stage.digest, instruction.word, content, destination, into, chown, chmod)

        def make(box: BubblewrapBox) -> None:
            with tempfile.TemporaryDirectory() as scratch:
                for path in found:
                    copy = self._filtered(path, Path(scratch), chmod)
                    if instruction.word == "ADD" and path.is_file() and tarfile.is_tarfile(path):
                        copy = _extracted(path, Path(scratch))
                    place = destination if copy.is_dir() or not into else posixpath.join(destination, path.name)
                    box.put_as(chown, copy, place)

        self._add_layer(stage, digest, make)

    def _copy_text(self, instruction: Instruction, stage: _Stage, sources: list[str], target: str) -> None:
        if sources:
            raise self._wrong(instruction, "a text behind << and files together; write a COPY for each")
        destination, chown, chmod = _absolute(target, stage), instruction.flag("chown"), instruction.flag("chmod")
        place = posixpath.join(destination, instruction.name) if target.endswith("/") else destination
        digest = _told(stage.digest, "text", instruction.text, instruction.name, place, chown, chmod)

        def make(box: BubblewrapBox) -> None:
            with tempfile.TemporaryDirectory() as scratch:
                file = Path(scratch, instruction.name)
                file.write_text(instruction.text)
                file.chmod(int(chmod or "644", 8))
                box.put_as(chown, file, place)

        self._add_layer(stage, digest, make)

    def _add(self, instruction: Instruction, stage: _Stage) -> None:
        if "://" in instruction.rest:
            raise self._wrong(instruction, "nothing is downloaded; put the file into the context and COPY it")
        self._copy(instruction, stage)

    def _copy_from(self, instruction: Instruction, stage: _Stage, origin: str, sources: list[str], target: str) -> None:
        try:
            other = self._stages[origin].base if origin in self._stages else images.find(origin)
        except UsageError as error:
            raise self._wrong(instruction, str(error)) from None
        destination = _absolute(target, stage)
        into = target.endswith("/") or len(sources) > 1
        digest = _told(stage.digest, "copy", list(other.layers), sources, destination, into, instruction.flags)

        def make(box: BubblewrapBox) -> None:
            images.save(saved := replace(other, digest=_told(other.layers)))
            with tempfile.TemporaryDirectory() as scratch, self._open(BoxSpec(image=saved.image, user="0")) as taken:
                for number, source in enumerate(sources):
                    copy = Path(scratch, str(number), PurePosixPath(source).name or "root")
                    taken.get(posixpath.join("/", source), copy)
                    place = posixpath.join(destination, copy.name) if into and not copy.is_dir() else destination
                    box.put_as(instruction.flag("chown"), copy, place)

        self._add_layer(stage, digest, make)

    def _add_layer(self, stage: _Stage, digest: str, make: Callable[[BubblewrapBox], None]) -> None:
        stage.digest = digest
        with _locked(digest):
            if not images.has_layer(digest):
                below = replace(stage.base, digest=_told("below", digest))
                images.save(below)
                user = stage.base.user or "0"
                box = self._open(BoxSpec(image=_image(below), network=True, user=user, keep_layer=True, name="build"))
                try:
                    make(box)
                except BaseException:
                    box.close()
                    if box.layer is not None:
                        cache.remove(box.layer)
                    raise
                box.close()
                assert box.layer is not None
                images.keep_layer(digest, box.layer)
        stage.base = stage.base.with_layer(digest)

    def _matches(self, instruction: Instruction, source: str) -> list[Path]:
        relative = posixpath.normpath(source.lstrip("/"))
        if relative.startswith(".."):
            raise self._wrong(instruction, f"{source} lies outside of the context {self._context}")
        found = [self._context] if relative == "." else sorted(self._context.glob(relative))
        found = [path for path in found if not self._is_ignored(path)]
        if not found:
            raise self._wrong(instruction, f"{source}: no such file in the context {self._context}")
        return found

    def _content(self, path: Path) -> str:
        if path.is_file():
            with path.open("rb") as file:
                return f"{path.stat().st_mode:o} {hashlib.file_digest(file, 'sha256').hexdigest()}"
        with tempfile.TemporaryDirectory() as scratch:
            return images.tree_digest(self._filtered(path, Path(scratch), None))

    def _filtered(self, path: Path, scratch: Path, chmod: str | None) -> Path:
        """A copy without what .dockerignore names, with the modes asked for. A single file may do without."""
        if path.is_file() and chmod is None:
            return path
        target = Path(tempfile.mkdtemp(dir=scratch), path.name or "context")
        _copy_tree(path, target, self._is_ignored, int(chmod, 8) if chmod else None)
        return target

    def _is_ignored(self, path: Path) -> bool:
        relative = path.relative_to(self._context).as_posix()
        ignored = False
        for pattern, keep in self._ignored:
            if any(fnmatch.fnmatch(part, pattern) for part in (relative, *_above(relative))):
                ignored = not keep
        return ignored


def _copy_tree(source: Path, target: Path, ignored: Callable[[Path], bool], mode: int | None) -> None:
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        target.mkdir()
        for path in source.iterdir():
            if not ignored(path):
                _copy_tree(path, target / path.name, ignored, mode)
        target.chmod(mode if mode is not None else source.stat().st_mode & 0o7777)
    elif source.is_file():
        target.write_bytes(source.read_bytes())
        target.chmod(mode if mode is not None else source.stat().st_mode & 0o7777)


def _extracted(path: Path, scratch: Path) -> Path:
    target = Path(tempfile.mkdtemp(dir=scratch))
    with tarfile.open(path) as file:
        file.extractall(target, filter="data")
    return target


def _ignore_rules(context: Path) -> list[tuple[str, bool]]:
    rules = context / ".dockerignore"
    lines = [line.strip() for line in rules.read_text().splitlines()] if rules.is_file() else []
    told = [line for line in lines if line and not line.startswith("#")]
    return [(line.lstrip("!").strip("/").removeprefix("**/"), line.startswith("!")) for line in told]


def _above(relative: str) -> Iterator[str]:
    for path in PurePosixPath(relative).parents:
        if path.name:
            yield str(path)


def _absolute(path: str, stage: _Stage) -> str:
    return posixpath.normpath(posixpath.join(stage.base.workdir or "/", path))


def _image(stored: Stored) -> Image:
    return Image.host() if stored.host and not stored.layers else stored.image


def _told(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=list).encode()).hexdigest()


@contextmanager
def _locked(digest: str) -> Iterator[None]:
    """One builder at a time for each layer; the lock goes with its holder."""
    with (cache.directory("images", "locks") / digest).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
