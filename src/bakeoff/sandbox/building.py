"""Images from Dockerfiles without a daemon: each RUN is a command in a box, and what it wrote is a layer.

A layer is named by a digest over everything that it depends on (the layers below it, the instruction, variables, and the
content of copied files), so the same Dockerfile is built once, and one that differs at its end shares its beginning.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import posixpath
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from bakeoff.errors import BakeoffError, UsageError
from bakeoff.sandbox import cache, dockerfile, images
from bakeoff.sandbox.bubblewrap import BubblewrapBox
from bakeoff.sandbox.context import Context, copy_tree
from bakeoff.sandbox.dockerfile import IGNORED, Instruction
from bakeoff.sandbox.images import Stored
from bakeoff.sandbox.scratch import scratch
from bakeoff.sandbox.spec import DEFAULT_PATH, BoxSpec, Image

_SHELL: tuple[str, ...] = ("/bin/sh", "-c")
_PROGRAM = "/.run"
_PATTERN = frozenset("*?[")
_OCTAL = re.compile(r"[0-7]{3,4}")
_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Known to every RUN without being part of the image, as docker has it."""
_HARMLESS_MOUNTS = ("type=cache", "type=tmpfs")
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
_MACHINE = {
    f"{where}{what}": value
    for where in ("TARGET", "BUILD")
    for what, value in (("OS", "linux"), ("ARCH", _ARCHITECTURE), ("PLATFORM", f"linux/{_ARCHITECTURE}"))
}
"""What an ARG of these names stands for when nobody says otherwise."""
_FLAGS = {
    "ADD": {"chown", "chmod", "link"},
    "COPY": {"chown", "chmod", "link", "from"},
    "FROM": {"platform"},
    "RUN": {"mount", "network"},
}
"""Options that are followed, or change nothing here."""


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
        return {"PATH": DEFAULT_PATH, **self.args, **self.base.env}


class _Builder:
    def __init__(self, context: Path, file: Path, args: Mapping[str, str], open_box: Open) -> None:
        self._context = Context(context, file)
        self._file = file
        self._given = dict(args)
        self._open = open_box
        self._before: dict[str, str] = {}
        """Arguments before the first FROM."""
        self._stages: dict[str, _Stage] = {}
        self._stage: _Stage | None = None

    def follow(self, instruction: Instruction) -> None:
        if instruction.word in IGNORED:
            return
        if instruction.word == "FROM":
            self._check(instruction)
            self._from(instruction.expanded({**_MACHINE, **self._before}))
        elif self._stage is None:
            if instruction.word != "ARG":
                raise self._wrong(instruction, "comes before any FROM")
            self._before |= self._arg(instruction.expanded(self._before), self._before)
        else:
            self._check(instruction)
            as_it_is = instruction.word in ("RUN", "SHELL")
            expanded = instruction if as_it_is else instruction.expanded(self._stage.values())
            getattr(self, f"_{instruction.word.lower()}")(expanded, self._stage)

    def _check(self, instruction: Instruction) -> None:
        for name, value in instruction.flags:
            if name not in _FLAGS.get(instruction.word, set()):
                raise self._wrong(instruction, f"--{name} is not supported here")
            if name == "chmod" and not _OCTAL.fullmatch(value) and "$" not in value:
                raise self._wrong(instruction, f"--chmod={value}: give a mode in octal, such as 755")
            if name == "mount" and not value.startswith(_HARMLESS_MOUNTS):
                raise self._wrong(instruction, f"--mount={value} is not supported here; only caches and tmpfs are")

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
        name, *alias = instruction.words()
        shell = _SHELL
        if name.lower() in self._stages:
            found = self._stages[name.lower()]
            base, digest, shell = found.base, found.digest, found.shell
        else:
            try:
                base = Stored("") if name == "scratch" else images.find(name)
            except UsageError as error:
                raise self._wrong(instruction, str(error)) from None
            digest = _told("from", base.digest or name)
        self._stage = _Stage(base, digest, shell=shell)
        self._stages[str(len({id(stage) for stage in self._stages.values()}))] = self._stage
        if len(alias) == 2 and alias[0].lower() == "as":
            self._stages[alias[1].lower()] = self._stage

    def _arg(self, instruction: Instruction, _: object) -> dict[str, str]:
        found = {}
        for word in instruction.words():
            name, equals, default = word.partition("=")
            known = {**(_MACHINE if self._stage is not None else {}), **self._before}
            value = self._given.get(name, default if equals else known.get(name))
            if value is not None:
                found[name] = value
        if self._stage is not None:
            self._stage.args |= found
        return found

    def _env(self, instruction: Instruction, stage: _Stage) -> None:
        found = instruction.pairs(f"{self._file}:{instruction.line}: ENV")
        stage.base = replace(stage.base, env={**stage.base.env, **found})

    def _workdir(self, instruction: Instruction, stage: _Stage) -> None:
        stage.base = replace(stage.base, workdir=_absolute(instruction.whole(), stage))

    def _user(self, instruction: Instruction, stage: _Stage) -> None:
        stage.base = replace(stage.base, user=instruction.whole())

    def _shell(self, instruction: Instruction, stage: _Stage) -> None:
        stage.shell = tuple(instruction.words())

    def _run(self, instruction: Instruction, stage: _Stage) -> None:
        script = instruction.rest
        if instruction.text:  # all of the script, or read by the command in the first line, as the shell sees to
            script = f"{script}\n{instruction.text}{instruction.name}\n" if script else instruction.text
        program = script if script.startswith("#!") else ""
        argv = dockerfile.exec_form(script) or [*stage.shell, script]
        depends = ("run", argv, stage.args, stage.base.env, stage.base.workdir, stage.base.user)

        def make(box: BubblewrapBox) -> None:
            passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            with _written(box, program) as own:
                ended = box.run(own or argv, env={**passed, **stage.args, **stage.base.env})
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
        try:
            found = [path for source in sources for path in self._context.find(source)]
        except UsageError as error:
            raise self._wrong(instruction, str(error)) from None
        content = self._context.content(found)
        chown, chmod = instruction.flag("chown"), instruction.flag("chmod")
        destination = _absolute(target, stage)
        into = target.endswith("/") or len(found) > 1 or target in (".", "./")
        digest = _told(stage.digest, instruction.word, content, destination, into, chown, chmod)

        def make(box: BubblewrapBox) -> None:
            with scratch("build") as here:
                for path in found:
                    copy = self._context.filtered(path, here, chmod)
                    if instruction.word == "ADD" and path.is_file() and tarfile.is_tarfile(path):
                        copy = _extracted(path, here)
                    _put(box, chown, copy, destination, path.name if into else "")

        self._add_layer(stage, digest, make)

    def _copy_text(self, instruction: Instruction, stage: _Stage, sources: list[str], target: str) -> None:
        if sources:
            raise self._wrong(instruction, "a text behind << and files together; write a COPY for each")
        destination, chown, chmod = _absolute(target, stage), instruction.flag("chown"), instruction.flag("chmod")
        place = posixpath.join(destination, instruction.name) if target.endswith("/") else destination
        digest = _told(stage.digest, "text", instruction.text, instruction.name, place, chown, chmod)

        def make(box: BubblewrapBox) -> None:
            with scratch("build") as here:
                file = here / instruction.name
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
            known = self._stages.get(origin.lower())
            other = known.base if known is not None else images.find(origin)
        except UsageError as error:
            raise self._wrong(instruction, str(error)) from None
        destination = _absolute(target, stage)
        into = target.endswith("/") or len(sources) > 1 or any(_PATTERN & set(source) for source in sources)
        chown, chmod = instruction.flag("chown"), instruction.flag("chmod")
        digest = _told(stage.digest, "copy", list(other.layers), sources, destination, into, instruction.flags)

        def make(box: BubblewrapBox) -> None:
            images.save(saved := replace(other, digest=_told(other.layers)))
            with scratch("build") as here, self._open(BoxSpec(image=saved.image, user="0")) as other_box:
                for number, source in enumerate(sources):
                    for path in _taken(other_box, PurePosixPath("/", source), here / str(number)):
                        copy = path
                        if chmod is not None:
                            copy = here / f"{number}-{path.name}"
                            copy_tree(path, copy, int(chmod, 8))
                        _put(box, chown, copy, destination, path.name if into else "")

        self._add_layer(stage, digest, make)

    def _add_layer(self, stage: _Stage, digest: str, make: Callable[[BubblewrapBox], None]) -> None:
        stage.digest = digest
        with _locked(digest):
            if not images.has_layer(digest):
                below = replace(stage.base, digest=_told("below", digest))
                images.save(below)
                user, workdir = stage.base.user or "0", stage.base.workdir
                spec = BoxSpec(image=_image(below), workdir=workdir, network=True, user=user, keep_layer=True, name="build")  # fmt: skip
                box = self._open(spec)
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


@contextmanager
def _written(box: BubblewrapBox, program: str) -> Iterator[list[str]]:
    """A text that names its own interpreter, as a command for the time being."""
    if not program:
        yield []
        return
    box.write(_PROGRAM, program.encode(), 0o755)
    yield [_PROGRAM]
    box.run(["rm", "-f", _PROGRAM], cwd="/", user="0")


def _put(box: BubblewrapBox, owner: str | None, source: Path, target: str, name: str) -> None:
    """A directory's content goes to `target`; a file too, or into it under `name`."""
    box.put_as(owner, source, posixpath.join(target, name) if name and not source.is_dir() else target)


def _taken(box: BubblewrapBox, source: PurePosixPath, here: Path) -> list[Path]:
    """What `source`, which may be a pattern, names in a box, copied."""
    fixed = next((number for number, part in enumerate(source.parts) if _PATTERN & set(part)), None)
    if fixed is None:
        copy = here / (source.name or "root")
        box.get(str(source), copy, all_links=True)
        return [copy]
    box.get(str(PurePosixPath(*source.parts[:fixed])), here, all_links=True)
    found = sorted(here.glob(str(PurePosixPath(*source.parts[fixed:]))))
    if not found:
        raise UsageError(f"COPY --from: {source}: no such file")
    return found


def _extracted(path: Path, here: Path) -> Path:
    from bakeoff.sandbox.unpack import ArchivedLayer

    target = Path(tempfile.mkdtemp(dir=here))
    ArchivedLayer("", path).unpack(target)
    return target


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
