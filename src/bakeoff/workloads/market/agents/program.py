"""Programs of agents that we do not trust: what they may see, and how they are started.

A program runs in a box of the project's own sandbox (bubblewrap), a new one for each episode. It sees this machine's
programs, a Python environment and its own files, all read-only, and an empty home. It sees no network, no other process,
no other file, and of our environment only what `environment` lists. So the secret that draws a world, the truth, results and
its own earlier episodes are out of reach. Without bubblewrap such agents are refused, unless the user accepts that
(`without_sandbox`): then they get the same environment, but see everything that the user can.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import (
    DEFAULT_PATH,
    UNSANDBOXED,
    VARIABLE,
    BoxSpec,
    CommandResult,
    Limits,
    Mount,
    Sandbox,
    choose,
)  # fmt: skip

PASSED = ("LANG", "LANGUAGE", "TZ")
"""Variables of ours that every program gets, with all that begin with `LC_`. PATH and HOME are its own."""
OURS = "BAKEOFF_"
"""Variables that begin with it are never passed on."""
LIMITS = Limits(memory_mb=4096, pids=256, disk_mb=1024, output_mb=16)
"""Of one program. Without them one agent could take the memory or the processes that the others need."""
_ACCEPT = (
    "run as you and can read the secret that draws the worlds, and your files: accept that with --unsandboxed of "
    "`bakeoff market run`, or --sandbox none of `bakeoff run`"
)
_VISIBLE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""What a box with this machine's programs has anyway, but for /usr/local and /usr/src."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a program may see beyond the defaults, and what it must not see in any case."""

    mounts: tuple[str, ...] = ()
    """Files and directories, read-only; relative ones are below the experiment's directory."""
    env: tuple[str, ...] = ()
    """`NAME=value`, or `NAME` for the value that we have."""
    network: bool = False
    hidden: tuple[Path, ...] = ()
    """Results, secrets, private files. A directory that holds one of them is never shown as a whole."""


def usable_sandbox() -> Sandbox:
    """Return the sandbox for programs of agents. Raises UsageError with the fix when there is none."""
    sandbox = choose(accepted=bool(os.environ.get(UNSANDBOXED)))
    if sandbox.name not in ("bubblewrap", "none"):
        raise UsageError(f"cmd: and process: agents run in bubblewrap, not in {sandbox.name}; unset SANDBOX_BACKEND")
    if sandbox.name == "none" and not os.environ.get(UNSANDBOXED):
        raise UsageError(f"without a sandbox cmd: and process: agents {_ACCEPT}, or unset SANDBOX_BACKEND")
    if (reason := sandbox.missing()) is not None:
        raise UsageError(
            f"cmd: and process: agents run in a sandbox, which cannot be used here: {reason}. Without it they {_ACCEPT}"
        )
    return sandbox


@contextmanager
def without_sandbox() -> Iterator[None]:
    """While it lasts, programs run without a sandbox: the user has accepted that."""
    before = {name: os.environ.get(name) for name in (VARIABLE, UNSANDBOXED)}
    os.environ |= {VARIABLE: "none", UNSANDBOXED: "1"}
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


class Program:
    """A running program with pipes to it: `stdin` and `stdout` are our ends, which do not block."""

    def __init__(self, argv: Sequence[str], spec: BoxSpec) -> None:
        """Start it. Raises UsageError when there is no sandbox, InfraError when the box cannot be made."""
        self._box = usable_sandbox().open(spec)
        theirs_in, self.stdin = os.pipe()
        self.stdout, theirs_out = os.pipe()
        for end in (self.stdin, self.stdout):
            os.set_blocking(end, False)  # a program that does not read must not block the episode
        self._pipes = (theirs_in, theirs_out)
        self._ended = threading.Event()
        self.result: CommandResult | None = None
        """How it ended, once it has."""
        self.error = ""
        """Why it could not run."""
        threading.Thread(target=self._run, args=(list(argv),), name="agent program", daemon=True).start()

    def _run(self, argv: list[str]) -> None:
        """Wait for its end, on a thread of its own."""
        try:
            self.result = self._box.run(argv, pipes=self._pipes)
        except Exception as error:
            self.error = f"cannot be started: {error}"
        finally:
            for end in self._pipes:
                os.close(end)
            self._ended.set()

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for its end at most that long. Returns whether it has ended."""
        return self._ended.wait(seconds)

    def close_stdin(self) -> None:
        """Tell it that nothing more comes."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def close(self) -> None:
        """Kill it and everything it started, and remove its box."""
        if not self.gone:
            self._box.end_processes()
            self._ended.wait()
        self.close_stdin()
        os.close(self.stdout)
        self._box.close()

    @property
    def stderr(self) -> bytes:
        """The end of what it wrote to standard error, once it has ended."""
        return self.result.stderr if self.result is not None else b""


def box_spec(argv: Sequence[str], files: Iterable[Path], base: Path, access: Access) -> BoxSpec:
    """Return the box for a program that starts in `base`. `files` are its own. Raises UsageError.

    Everything is mounted where it is on this machine, so that paths mean the same inside.
    """
    variables = environment(access)
    if shutil.which(base / argv[0] if "/" in argv[0] else argv[0], path=variables["PATH"]) is None:
        raise UsageError(f"there is no program {argv[0]!r}")
    hidden = [path.resolve() for path in access.hidden]
    shown: dict[str, Path] = {}
    for path in (*files, *_environment(argv[0])):
        for part in _parts(path, base, hidden):
            shown.setdefault(os.path.abspath(part), part.resolve())
    for name in access.mounts:
        path = (base / name).absolute()
        if not path.exists():
            raise UsageError(f"mounts: there is no {path}")
        inside = [each for each in hidden if each.is_relative_to(path.resolve())]
        if inside:
            raise UsageError(f"mounts: {path} holds {inside[0]}, which agents must not see; name what they need in it")
        shown[os.path.abspath(path)] = path.resolve()
    mounts = [Mount(source, target) for target, source in shown.items() if not _is_visible(target)]
    # A mount inside another one is there already, and its mount point could not be made: the outer one is read-only.
    targets = {mount.target for mount in mounts}
    outer = [mount for mount in mounts if not any(str(parent) in targets for parent in Path(mount.target).parents)]
    return BoxSpec(
        mounts=tuple(outer),
        env=variables,
        workdir=str(base.absolute()),
        limits=LIMITS,
        network=access.network,
        name="agent",
    )


def environment(access: Access) -> dict[str, str]:
    """Return the variables of a program: PATH, language and time zone, and those that `access` names.

    Raises UsageError for one that is not set, or that is ours.
    """
    bins = [str(Path(sys.executable).parent), *os.environ.get("PATH", DEFAULT_PATH).split(os.pathsep)]
    if "VIRTUAL_ENV" in os.environ:
        bins.insert(0, str(Path(os.environ["VIRTUAL_ENV"], "bin")))
    variables = {"PATH": os.pathsep.join(dict.fromkeys(bins))}
    variables |= {name: os.environ[name] for name in os.environ if name in PASSED or name.startswith("LC_")}
    for entry in access.env:
        name, given, value = entry.partition("=")
        if name.startswith(OURS):
            raise UsageError(f"env: {name} is not for agents")
        if not given and name not in os.environ:
            raise UsageError(f"env: the variable {name} is not set; set it, or write {name}=VALUE")
        variables[name] = value if given else os.environ[name]
    return variables


def files_of(words: Iterable[str], base: Path) -> list[Path]:
    """Return the files and directories that the words of a command name, seen from `base`."""
    return [path for word in words if word and (path := base / word).exists() and path.resolve() != base.resolve()]


def _parts(path: Path, base: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield what is shown for a file or directory that a program needs.

    A directory is shown whole, and so is the directory of a file, for the modules and data beside it. One that holds the
    experiment, the user's home, a shared place or something hidden is not: of it only the file itself, files with the same
    ending (modules import each other) and Python packages.
    """
    directory = path if path.is_dir() else path.parent
    place = directory.resolve()
    avoided = [base.resolve(), Path.home().resolve(), *map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")), *hidden]

    def shows_nothing_else(each: Path) -> bool:
        return not any(one.is_relative_to(each) for one in avoided) and not any(
            each.is_relative_to(one) for one in hidden
        )

    if shows_nothing_else(place) and not any(place.glob("*.private.json")):
        yield directory
        return
    ending = path.suffix if path.is_file() else ".py"
    for each in sorted(directory.iterdir()):
        wanted = each.suffix == ending != "" if each.is_file() else (each / "__init__.py").is_file()
        if (each == path and each.resolve() not in hidden) or (wanted and shows_nothing_else(each.resolve())):
            yield each


def _environment(program: str) -> Iterator[Path]:
    """Yield the directories of our Python environment, and of the one that a program belongs to."""
    interpreters = [Path(sys.executable)]
    if "/" in program and (Path(program).parent.parent / "pyvenv.cfg").is_file():
        interpreters.append(Path(program))
    elif "VIRTUAL_ENV" in os.environ:
        interpreters.append(Path(os.environ["VIRTUAL_ENV"], "bin", "python"))
    for interpreter in interpreters:
        prefix = interpreter.parent.parent
        base = Path(sys.base_prefix) if interpreter.samefile(sys.executable) else interpreter.resolve().parent.parent
        if prefix != base:
            yield prefix
        if str(base) not in ("/usr", "/usr/local", "/"):
            yield base
        elif str(base) == "/usr/local":  # the standard library and the interpreter, not whatever else is there
            yield from (Path(sysconfig.get_path("stdlib")), interpreter.resolve())
            yield from Path("/usr/local/lib").glob("libpython*")
        for site in prefix.glob("lib/python*/site-packages"):
            for file in site.glob("*.pth"):  # where packages lie that were installed for editing
                for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                    if line and not line.startswith(("import ", "import\t", "#")) and (site / line).is_dir():
                        yield site / line


def _is_visible(path: str) -> bool:
    """Whether a box has this path without a mount."""
    place = Path(path)
    if any(place.is_relative_to(each) for each in ("/usr/local", "/usr/src")):
        return False
    return any(place.is_relative_to(each) for each in _VISIBLE)
