"""Start-up files in a sandbox in which an agent worked, before tests run there: they go back to the image's.

The loader, shells, Python, pytest and git read files that nobody names on a command line. An agent that may write to
them could decide how it is tested. `cleaned` resets them, gives the tests a home directory of their own, and lists the
programs of the image that are not what they were. Packages that the agent installed stay.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Box
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.environment import chown

LONGEST = 1 << 26
MOST_LISTED = 200
MOST_COMPARED = 2000

# ld.so(8); bash(1), INVOCATION; environment(5); git-config(1); pip's configuration; nsswitch.conf(5) names libraries that
# every program loads.
_SETTINGS = re.compile(
    r"/etc/(ld\.so\.(preload|conf|cache)|ld\.so\.conf\.d/.+|environment|profile|profile\.d/.+|bash\.bashrc|bashrc|bash\.bash_logout"
    r"|zsh.*|csh\..*|inputrc|gitconfig|pip\.conf|xdg/.+|npmrc|nsswitch\.conf|python[^/]*/.+|security/pam_env\.conf)"
)
# https://docs.python.org/3/library/site.html
_CUSTOM = re.compile(r".*/(sitecustomize|usercustomize)(\.[^/]*|/__init__\.[^/]*)")
_PTH = re.compile(r".*\.pth")
_BYTECODE = re.compile(r".*\.pyc")
_STANDARD_LIBRARY = re.compile(
    r"/usr/(local/)?lib/python3[^/]*/(?!site-packages/|dist-packages/).+|/opt/[^/]+/lib/python3[^/]*/(?!site-packages/).+"
)
_ENTRY_POINTS = re.compile(r".*\.(dist-info|egg-info)/entry_points\.txt")
_READ_AT_START = re.compile(
    "|".join(f"({kind.pattern})" for kind in (_SETTINGS, _CUSTOM, _PTH, _BYTECODE, _STANDARD_LIBRARY, _ENTRY_POINTS))
)
_PROGRAMS = re.compile(r"/(usr/(local/)?)?(s?bin|lib|lib32|lib64|libexec)/.+")
_ON_PATH = re.compile(r"/(usr/(local/)?)?s?bin/[^/]+")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A sandbox that is ready for tests."""

    env: Mapping[str, str]
    """Variables for the tests: their home directory."""
    discounted: tuple[str, ...] = ()
    """Files that went back to the image's."""
    changed_programs: tuple[str, ...] = ()


_HOMES: dict[tuple[object, str | None], tuple[str, Mapping[str, bytes | None]]] = {}
"""By image and user: the home directory, and what is in it; None for anything but a plain file with a dot."""


def cleaned(box: Box, fresh: Callable[[], Box], user: str | None, workdir: str) -> Cleaned:
    """Reset start-up files of `box` to those in an untouched one that `fresh` opens. No process runs in `box`.

    `user` runs the tests. Below `workdir` is the agent's work, which is left alone.
    """
    work = f"{workdir.rstrip('/')}/"
    changes = {path: known for path, known in box.changes().items() if not f"{path}/".startswith(work)}
    with ExitStack() as stack:
        opened: list[Box] = []

        def image() -> Box:
            """The untouched sandbox, opened when something is asked of it: most agents change nothing of this kind."""
            if not opened:
                opened.append(stack.enter_context(fresh()))
            return opened[0]

        discounted = [path for path, known in sorted(changes.items()) if _reset(box, image, path, known)]
        if "/etc/ld.so.cache" in discounted:
            box.run(["ldconfig"], user="root")  # the agent's libraries stay, in directories that the image names
        changed = _changed_programs(box, image, changes, set(discounted))
        home = _home(box, image, user, changes)
    shown = changed[:MOST_LISTED] + [f"{len(changed) - MOST_LISTED} more"] * (len(changed) > MOST_LISTED)
    listed = [path for path in discounted if not _BYTECODE.fullmatch(path)]
    # Names are the agent's, and may be any bytes.
    names = [[os.fsencode(path).decode(errors="replace") for path in paths] for paths in (listed[:MOST_LISTED], shown)]
    return Cleaned({"HOME": home}, tuple(names[0]), tuple(names[1]))


def _reset(box: Box, image: Callable[[], Box], path: str, known: bool) -> bool:
    """Reset one file, if programs read it at their start. Returns whether it was one and had changed."""
    if not _READ_AT_START.fullmatch(path):
        return False
    now = _read(box, path)
    if _PTH.fullmatch(path) and not known:
        # Lines that are paths only add directories at the end of sys.path: packages installed in place need them.
        kept = b"".join(
            line for line in (now or b"").splitlines(keepends=True) if not line.startswith((b"import ", b"import\t"))
        )
        return now is not None and kept != now and _write(box, path, kept)
    if _ENTRY_POINTS.fullmatch(path) and not known:
        if now is None or b"pytest11" not in now:
            return False
        box.run(["rm", "-rf", os.path.dirname(path)], user="root")  # so that pip would install it again
        return _read(box, path) is None or _write(box, path, b"")
    if not (
        _SETTINGS.fullmatch(path)
        or _CUSTOM.fullmatch(path)
        or _PTH.fullmatch(path)
        or _BYTECODE.fullmatch(path)
        or (known and _STANDARD_LIBRARY.fullmatch(path))
    ):
        return False
    before = _read(image(), path) if known else None
    if before is None:
        # Emptied and not only removed: `rm` is the agent's. An empty file does nothing at any of these places.
        return now is not None and now != b"" and _write(box, path, b"")
    return now != before and _write(box, path, before)


def _write(box: Box, path: str, data: bytes) -> bool:
    try:
        box.write(path, data)
    except UsageError:
        return False
    return True


def _read(box: Box, path: str) -> bytes | None:
    """The content of a plain file; None for anything else."""
    try:
        return box.read(path, LONGEST)
    except (OSError, UsageError):
        return None


def _changed_programs(box: Box, image: Callable[[], Box], changes: Mapping[str, bool], reset: set[str]) -> list[str]:
    """Programs and libraries of the image that are not what they were, and new programs that are found before them."""
    candidates = [path for path, known in changes.items() if known and path not in reset and _PROGRAMS.fullmatch(path)]
    changed = []
    for path in sorted(candidates)[:MOST_COMPARED]:
        before = _read(image(), path)
        if before is not None and before != _read(box, path) and not _BYTECODE.fullmatch(path):
            changed.append(path)
    added = [path for path, known in changes.items() if not known and _ON_PATH.fullmatch(path)][:MOST_COMPARED]
    if added:
        names = sorted({os.path.basename(path) for path in added})
        script = 'for name in "$@"; do command -v "$name" >/dev/null && printf "%s\\n" "$name"; done'
        said = image().run(["sh", "-c", script, "sh", *names]).stdout.decode(errors="replace").split("\n")
        changed += [path for path in sorted(added) if os.path.basename(path) in said]
    return changed


def _home(box: Box, image: Callable[[], Box], user: str | None, changes: Mapping[str, bool]) -> str:
    """Make a home directory for the tests: settings are the image's, everything else is a link to what is there.

    Its name is drawn at random, so that the agent could not put anything there.
    """
    key = (box.spec.image, user)
    if key not in _HOMES:
        script = 'printf "%s\\n" "$HOME"; ls -A "$HOME"'
        lines = image().run(["sh", "-c", script], user=user).stdout.decode(errors="replace").splitlines() or ["/root"]
        entries = {name: _read(image(), f"{lines[0]}/{name}") if name.startswith(".") else None for name in lines[1:]}
        _HOMES[key] = (lines[0].rstrip("/"), entries)
    old, known = _HOMES[key]
    added = {path[len(old) + 1 :].partition("/")[0] for path in changes if path.startswith(f"{old}/")}
    home = f"/tmp/home-{secrets.token_hex(8)}"
    with scratch() as here:
        here.chmod(0o755)
        for name in sorted({*known, *added} - {"", ".", ".."}):
            content = known.get(name)
            if content is not None:
                (here / name).write_bytes(content)
            elif name != ".config" and not (name.startswith(".") and name in added and _is_file(box, f"{old}/{name}")):
                (here / name).symlink_to(f"{old}/{name}")
        box.put(here, home)
    if user is not None:
        chown(box, user, (home,))
    return home


def _is_file(box: Box, path: str) -> bool:
    """Whether a plain file is there, of whatever size."""
    try:
        box.read(path, 0)
    except UsageError as error:
        return "more than" in str(error)
    except OSError:
        return False
    return True
