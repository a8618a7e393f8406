"""Build images from Dockerfiles without a daemon: each RUN is a command in a box, and what it wrote is a layer.

A layer is named by a digest over everything that it depends on (the layers below it, the instruction, variables,
and the content of copied files), so the same Dockerfile is built once, and one that differs at its end shares its
beginning.

    stored = build(Path("task"), Path("task/Dockerfile"), {"VERSION": "1"}, Bubblewrap().open)
    box = Bubblewrap().open(BoxSpec(image=stored.image))
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
from bakeoff.sandbox import archives, cache, dockerfile, images
from bakeoff.sandbox.base import DEFAULT_PATH, BoxSpec, Image
from bakeoff.sandbox.bubblewrap import BubblewrapBox
from bakeoff.sandbox.cache import scratch
from bakeoff.sandbox.dockerfile import Context, Instruction, copy_tree, unquoted
from bakeoff.sandbox.images import Stored

_DEFAULT_SHELL: tuple[str, ...] = ("/bin/sh", "-c")
_SCRIPT = "/.run"
_WILDCARDS = frozenset("*?[")
_OCTAL = re.compile(r"[0-7]{3,4}")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Passed to every RUN without being part of the image, as docker does."""
_HARMLESS_MOUNTS = ("type=cache", "type=tmpfs")
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
_PLATFORM_ARGS = {
    f"{where}{what}": value
    for where in ("TARGET", "BUILD")
    for what, value in (("OS", "linux"), ("ARCH", _ARCHITECTURE), ("PLATFORM", f"linux/{_ARCHITECTURE}"))
}
"""Values that an ARG with one of these names has by default."""
_FLAGS = {
    "ADD": {"chown", "chmod", "link"},
    "COPY": {"chown", "chmod", "link", "from"},
    "FROM": {"platform"},
    "RUN": {"mount", "network"},
}
"""Flags that are followed, or that change nothing here."""

OpenBox = Callable[[BoxSpec], BubblewrapBox]


class BuildError(BakeoffError):
    """A RUN of a Dockerfile failed."""


def build(context: Path, file: Path, args: Mapping[str, str], open_box: OpenBox) -> Stored:
    """Build `file` with the files of `context` and return the image, which is in the store then.

    Raises UsageError, with the line, for what the Dockerfile does wrong or is not supported; BuildError when a RUN
    fails.
    """
    instructions = dockerfile.parse(file)
    if not any(instruction.word == "FROM" for instruction in instructions):
        raise UsageError(f"{file}: no FROM line")
    builder = _Builder(context, file, args, open_box)
    for instruction in instructions:
        builder.follow(instruction)
    assert builder.stage is not None
    base = builder.stage.base
    identity = json.dumps([base.layers, base.env, base.workdir, base.user, base.host])
    stored = replace(base, digest=hashlib.sha256(identity.encode()).hexdigest())
    images.save(stored)
    return stored


@dataclass
class _Stage:
    """An image in the making. `digest` names its uppermost layer, or what it starts from."""

    base: Stored
    digest: str
    args: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = _DEFAULT_SHELL

    def absolute(self, path: str) -> str:
        """A path as an instruction means it: from the working directory."""
        return posixpath.normpath(posixpath.join(self.base.workdir or "/", path))


class _Builder:
    """Follows the instructions of one Dockerfile in order."""

    def __init__(self, context: Path, file: Path, args: Mapping[str, str], open_box: OpenBox) -> None:
        """`args` are values for ARG that the caller chose; `open_box` makes the boxes that steps run in."""
        self._context = Context(context, file)
        self._file = file
        self._build_args = dict(args)
        self._open = open_box
        self._global_args: dict[str, str] = {}
        """Those before the first FROM."""
        self._stages: dict[str, _Stage] = {}
        """By name and by number."""
        self.stage: _Stage | None = None
        """The one that instructions are for; the last one is the image."""

    def follow(self, instruction: Instruction) -> None:
        """Carry out one instruction."""
        word = instruction.word
        if word in dockerfile.IGNORED:
            return
        if word != "FROM" and self.stage is None:
            if word != "ARG":
                raise self._error(instruction, "comes before any FROM")
            self._global_args |= self._arg(instruction.expanded(self._global_args))
            return
        for flag in instruction.flags:
            if flag.name not in _FLAGS.get(word, set()):
                raise self._error(instruction, f"--{flag.name} is not supported here")
            if flag.name == "chmod" and not _OCTAL.fullmatch(flag.value) and "$" not in flag.value:
                raise self._error(instruction, f"--chmod={flag.value}: give a mode in octal, such as 755")
            if flag.name == "mount" and not flag.value.startswith(_HARMLESS_MOUNTS):
                problem = f"--mount={flag.value} is not supported here; use type=cache or type=tmpfs"
                raise self._error(instruction, problem)
        if word == "FROM":
            self._from(instruction.expanded({**_PLATFORM_ARGS, **self._global_args}))
            return
        stage = self.stage
        assert stage is not None
        if word not in ("RUN", "SHELL"):  # in those two, the shell that runs later reads the variables
            instruction = instruction.expanded({"PATH": DEFAULT_PATH, **stage.args, **stage.base.env})
        match word:
            case "ARG":
                stage.args |= self._arg(instruction)
            case "ENV":
                try:
                    pairs = instruction.pairs()
                except ValueError as error:
                    raise self._error(instruction, str(error)) from None
                stage.base = replace(stage.base, env={**stage.base.env, **pairs})
            case "WORKDIR":
                path = stage.absolute(unquoted(instruction.rest, instruction.values))
                stage.base = replace(stage.base, workdir=path)
            case "USER":
                stage.base = replace(stage.base, user=unquoted(instruction.rest, instruction.values))
            case "SHELL":
                stage.shell = tuple(instruction.words())
            case "RUN":
                self._run(instruction, stage)
            case _:  # COPY and ADD
                self._copy(instruction, stage)

    def _error(self, instruction: Instruction, problem: str) -> UsageError:
        """An error with the file and line of an instruction."""
        return UsageError(f"{self._file}:{instruction.line}: {instruction.word}: {problem}")

    def _from(self, instruction: Instruction) -> None:
        """Begin a stage, on an earlier stage or on an image of the store."""
        name, *alias = instruction.words()
        earlier = self._stages.get(name.lower())
        if earlier is not None:
            self.stage = _Stage(earlier.base, earlier.digest, shell=earlier.shell)
        else:
            try:
                base = Stored("") if name == "scratch" else images.find(name)
            except UsageError as error:
                raise self._error(instruction, str(error)) from None
            self.stage = _Stage(base, _digest("from", base.digest or name))
        number = len({id(stage) for stage in self._stages.values()})  # a stage with a name is there twice
        self._stages[str(number)] = self.stage
        if len(alias) == 2 and alias[0].lower() == "as":
            self._stages[alias[1].lower()] = self.stage

    def _arg(self, instruction: Instruction) -> dict[str, str]:
        """The values of the names in an ARG: from the caller, else the default, else from before the first FROM."""
        known = {**(_PLATFORM_ARGS if self.stage is not None else {}), **self._global_args}
        values = {}
        for word in instruction.words():
            name, equals, default = word.partition("=")
            value = self._build_args.get(name, default if equals else known.get(name))
            if value is not None:
                values[name] = value
        return values

    def _run(self, instruction: Instruction, stage: _Stage) -> None:
        """RUN: a command in a box with network, with ARG and ENV as its variables."""
        script = instruction.rest
        if instruction.heredoc:  # the whole script, or input of the command in the first line, for the shell to read
            script = f"{script}\n{instruction.heredoc}{instruction.heredoc_name}\n" if script else instruction.heredoc
        argv = dockerfile.exec_form(script) or [*stage.shell, script]
        base = stage.base
        digest = _digest(stage.digest, "run", argv, stage.args, base.env, base.workdir, base.user)
        with self._layer(stage, digest) as box:
            if box is None:
                return
            proxies = {name: os.environ[name] for name in _PROXY_VARIABLES if name in os.environ}
            own_interpreter = script.startswith("#!")
            if own_interpreter:
                box.write(_SCRIPT, script.encode(), 0o755)
            result = box.run([_SCRIPT] if own_interpreter else argv, env={**proxies, **stage.args, **base.env})
            if own_interpreter:
                box.run(["rm", "-f", _SCRIPT], cwd="/", user="0")
            if not result.ok:
                output = (result.stdout + result.stderr)[-2000:].decode(errors="replace").strip()
                raise BuildError(f"{self._file}:{instruction.line}: RUN ended with code {result.code}:\n{output}")

    def _copy(self, instruction: Instruction, stage: _Stage) -> None:
        """COPY, and ADD of local files: from a here-document, from another stage, or from the context."""
        if instruction.word == "ADD" and "://" in instruction.rest:
            raise self._error(instruction, "nothing is downloaded; put the file into the context and COPY it")
        *sources, target = instruction.words()
        destination = stage.absolute(target)
        chown, chmod = instruction.flag("chown"), instruction.flag("chmod")
        if instruction.heredoc_name:
            if sources:
                raise self._error(instruction, "a text behind << and files together; write a COPY for each")
            text, name = instruction.heredoc, instruction.heredoc_name
            place = posixpath.join(destination, name) if target.endswith("/") else destination
            with self._layer(stage, _digest(stage.digest, "text", text, name, place, chown, chmod)) as box:
                if box is not None:
                    with scratch("build") as directory:
                        file = directory / name
                        file.write_text(text)
                        file.chmod(int(chmod or "644", 8))
                        box.put_as(chown, file, place)
            return
        if not sources:
            raise self._error(instruction, "give a source and a target")
        if (origin := instruction.flag("from")) is not None:
            self._copy_from_stage(instruction, stage, origin, sources, target)
            return
        try:
            paths = [path for source in sources for path in self._context.find(source)]
        except UsageError as error:
            raise self._error(instruction, str(error)) from None
        content = self._context.content(paths)
        into = target.endswith("/") or len(paths) > 1 or target in (".", "./")
        digest = _digest(stage.digest, instruction.word, content, destination, into, chown, chmod)
        with self._layer(stage, digest) as box:
            if box is None:
                return
            with scratch("build") as directory:
                for path in paths:
                    copy = self._context.filtered(path, directory, chmod)
                    if instruction.word == "ADD" and path.is_file() and tarfile.is_tarfile(path):
                        copy = Path(tempfile.mkdtemp(dir=directory))
                        archives.unpack_layer(path, copy)
                    box.put_as(chown, copy, destination, path.name if into else "")

    def _copy_from_stage(
        self, instruction: Instruction, stage: _Stage, origin: str, sources: list[str], target: str
    ) -> None:
        """COPY --from, of an earlier stage or an image: open a box on it and take the files out."""
        try:
            earlier = self._stages.get(origin.lower())
            other = earlier.base if earlier is not None else images.find(origin)
        except UsageError as error:
            raise self._error(instruction, str(error)) from None
        destination = stage.absolute(target)
        into = target.endswith("/") or len(sources) > 1 or any(_WILDCARDS & set(source) for source in sources)
        chown, chmod = instruction.flag("chown"), instruction.flag("chmod")
        flags = [(flag.name, flag.value) for flag in instruction.flags]
        digest = _digest(stage.digest, "copy", list(other.layers), sources, destination, into, flags)
        with self._layer(stage, digest) as box:
            if box is None:
                return
            # A stage has no name in the store; saved under a digest, a box can start from it.
            images.save(saved := replace(other, digest=_digest(other.layers)))
            with scratch("build") as directory, self._open(BoxSpec(image=saved.image, user="0")) as other_box:
                for number, source in enumerate(sources):
                    place = directory / str(number)
                    path_inside = PurePosixPath("/", source)
                    parts = path_inside.parts
                    fixed = next((n for n, part in enumerate(parts) if _WILDCARDS & set(part)), None)
                    if fixed is None:
                        copies = [place / (path_inside.name or "root")]
                        other_box.get(str(path_inside), copies[0], all_links=True)
                    else:  # take the directory above the pattern, and match it here
                        other_box.get(str(PurePosixPath(*parts[:fixed])), place, all_links=True)
                        copies = sorted(place.glob(str(PurePosixPath(*parts[fixed:]))))
                        if not copies:
                            raise UsageError(f"COPY --from: {path_inside}: no such file")
                    for path in copies:
                        copy = path
                        if chmod is not None:
                            copy = directory / f"{number}-{path.name}"
                            copy_tree(path, copy, int(chmod, 8))
                        box.put_as(chown, copy, destination, path.name if into else "")

    @contextmanager
    def _layer(self, stage: _Stage, digest: str) -> Iterator[BubblewrapBox | None]:
        """Put the layer `digest` on the stage.

        Yields a box on the layers below for the caller to fill, and keeps what it wrote as the layer. Yields None when
        the store has the layer already. After an error in the body nothing is kept.
        """
        stage.digest = digest
        # One builder at a time for each layer; the kernel releases the lock when its holder dies (flock(2)).
        with (cache.directory("images", "locks") / digest).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if images.layer(digest).is_dir():
                yield None
            else:
                below = replace(stage.base, digest=_digest("below", digest))
                images.save(below)
                spec = BoxSpec(
                    image=Image.host() if below.host and not below.layers else below.image,
                    workdir=stage.base.workdir,
                    network=True,  # RUN apt-get install ...; docker build does the same
                    user=stage.base.user or "0",
                    keep_layer=True,
                    name="build",
                )
                box = self._open(spec)
                try:
                    yield box
                except BaseException:
                    box.close()
                    if box.layer is not None:
                        cache.remove(box.layer)
                    raise
                box.close()
                assert box.layer is not None
                images.keep_layer(digest, box.layer)
        stage.base = replace(stage.base, layers=(digest, *stage.base.layers))


def _digest(*parts: object) -> str:
    """The name of a layer: a digest over JSON of everything that it depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=list).encode()).hexdigest()
