"""Start-up files in a sandbox in which an agent worked, before tests run there: they go back to the image's.

The loader, shells, Python, pytest and git read files that nobody names on a command line. An agent that may write to
them could decide how it is tested. `cleaned` resets them, gives the tests a home directory of their own, and lists the
programs of the image that are not what they were. Packages that the agent installed stay.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Box
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.environment import chown

LONGEST = 1 << 26
MOST_LISTED = 200
MOST_COMPARED = 2000
CACHES = (".cache/uv", ".cache/pip", ".npm/_cacache")
"""Below a home directory: where installers keep packages that they unpack again without a look at their content."""

# `(?s:` because the name of a file may contain a line end.
# ld.so(8); bash(1), INVOCATION; environment(5); git-config(1); pip's configuration; nsswitch.conf(5) names libraries that
# every program loads.
_SETTINGS = re.compile(
    r"(?s:/usr/(local/)?etc/(npmrc|gitconfig|pip\.conf|xdg/.+)"
    r"|/etc/(ld\.so\.(preload|conf|cache)|ld\.so\.conf\.d/.+|environment|profile|profile\.d/.+|bash\.bashrc|bashrc|bash\.bash_logout"
    r"|zsh.*|csh\..*|inputrc|gitconfig|pip\.conf|xdg/.+|npmrc|nsswitch\.conf|python[^/]*/.+|security/pam_env\.conf))"
)
# https://docs.python.org/3/library/site.html
_CUSTOM = re.compile(r"(?s:.*/(sitecustomize|usercustomize)(\.[^/]*|/__init__\.[^/]*))")
_PTH = re.compile(r"(?s:.*\.pth)")
_BYTECODE = re.compile(r"(?s:.*\.pyc)")
_STANDARD_LIBRARY = re.compile(
    r"(?s:/usr/(local/)?lib/python3[^/]*/(?!site-packages/|dist-packages/).+|/opt/[^/]+/lib/python3[^/]*/(?!site-packages/).+)"
)
# A false virtual environment around a Python of the image, and what comes before its library on sys.path:
# https://docs.python.org/3/library/sys_path_init.html
_PREFIX = re.compile(r"(?s:/(usr/)?(local/)?(s?bin/)?(pyvenv\.cfg|pybuilddir\.txt)|/usr/(local/)?lib/python3\d*\.zip)")
_ENVIRONMENT = re.compile(r"(?s:.*/pyvenv\.cfg)")
_ENTRY_POINTS = re.compile(r"(?s:.*\.(dist-info|egg-info)/entry_points\.txt)")
_READ_AT_START = re.compile(
    "|".join(
        f"({kind.pattern})"
        for kind in (_SETTINGS, _CUSTOM, _PTH, _BYTECODE, _STANDARD_LIBRARY, _PREFIX, _ENVIRONMENT, _ENTRY_POINTS)
    )
)
_PROGRAMS = re.compile(r"(?s:/(usr/(local/)?)?(s?bin|lib|lib32|lib64|libexec)/.+)")
_ON_PATH = re.compile(r"(?s:/(usr/(local/)?)?s?bin/[^/]+)")


def read_at_start(path: str) -> bool:
    """Whether a program reads a file of this path without being told to."""
    return _READ_AT_START.fullmatch(path) is not None


def is_program(path: str) -> bool:
    """Whether a file of this path is a program, or a library that programs load."""
    return _PROGRAMS.fullmatch(path) is not None


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
    with ExitStack() as stack:
        opened: list[Box] = []

        def image() -> Box:
            """The untouched sandbox, opened when something is asked of it: most agents change nothing of this kind."""
            if not opened:
                opened.append(stack.enter_context(fresh()))
            return opened[0]

        old, entries = _image_home(box, image, user)
        # An agent may leave any number of files, so only those are kept in mind that matter here.
        changes = {
            path: known
            for path, known in box.changes()
            if (read_at_start(path) or is_program(path) or path.startswith(f"{old}/"))
            and not f"{path}/".startswith(work)
        }
        discounted = [path for path, known in sorted(changes.items()) if _reset(box, image, path, known)]
        if "/etc/ld.so.cache" in discounted:
            box.run(["ldconfig"], user="root")  # the agent's libraries stay, in directories that the image names
        changed = _changed_programs(box, image, changes, set(discounted))
        below = [path[len(old) + 1 :] for path in changes if path.startswith(f"{old}/")]
        stale = {cache for cache in CACHES if any(f"{path}/".startswith(f"{cache}/") for path in below)}
        home = _new_home(box, image, user, old, entries, below, stale)
    shown = changed[:MOST_LISTED] + [f"{len(changed) - MOST_LISTED} more"] * (len(changed) > MOST_LISTED)
    listed = [path for path in discounted if not _BYTECODE.fullmatch(path)] + [
        f"{old}/{cache}" for cache in sorted(stale)
    ]
    # Names are the agent's, and may be any bytes.
    names = [[os.fsencode(path).decode(errors="replace") for path in paths] for paths in (listed[:MOST_LISTED], shown)]
    return Cleaned({"HOME": home}, tuple(names[0]), tuple(names[1]))


def _reset(box: Box, image: Callable[[], Box], path: str, known: bool) -> bool:
    """Reset one file, if programs read it at their start. Returns whether it was one and had changed."""
    if not _READ_AT_START.fullmatch(path):
        return False
    now = _read(box, path)
    if _PTH.fullmatch(path) and not known:
        return now is not None and (kept := _harmless(now)) != now and _write(box, path, kept)
    if _STANDARD_LIBRARY.fullmatch(path) and not known and (shadow := _shadow(image, path)):
        return _remove(box, shadow)
    if _ENTRY_POINTS.fullmatch(path) and not known:
        if now is None or b"pytest11" not in now:
            return False
        return _remove(box, os.path.dirname(path)) or _write(box, path, b"")  # pip would install it again
    if not (
        _SETTINGS.fullmatch(path)
        or _CUSTOM.fullmatch(path)
        or _PTH.fullmatch(path)
        or _BYTECODE.fullmatch(path)
        or _PREFIX.fullmatch(path)
        or (known and (_STANDARD_LIBRARY.fullmatch(path) or _ENVIRONMENT.fullmatch(path)))
    ):
        return False
    before = _read(image(), path) if known else None
    if before is None:
        if _PREFIX.fullmatch(path) and now is not None and _remove(box, path):
            return True
        # Emptied and not removed: `rm` is the agent's. An empty file does nothing at any of these places.
        return now is not None and now != b"" and _write(box, path, b"")
    return now != before and _write(box, path, before)


def _harmless(pth: bytes) -> bytes:
    """A .pth file without what Python would execute: lines that begin with `import`, whatever ends a line.

    Lines that are paths only add directories at the end of sys.path: packages installed in place need them.
    """
    text = pth.decode("utf-8-sig", errors="surrogateescape")
    lines = text.splitlines(keepends=True)
    if not any(line.startswith(("import ", "import\t")) for line in lines):
        return pth
    kept = "".join(line for line in lines if not line.startswith(("import ", "import\t")))
    return kept.encode(errors="surrogateescape")


def _shadow(image: Callable[[], Box], path: str) -> str | None:
    """What has to go so that a new file does not take the place of a module of the standard library; None for nothing.

    In one directory a package comes before an extension module, and that before a .py file (importlib's FileFinder).
    Extension modules are in `lib-dynload`, after everything else.
    """
    root = re.match(r".*?/lib/python3[^/]*", path)
    parts = path[root.end() + 1 :].split("/") if root is not None else []
    for number, part in enumerate(parts):
        folder = "/".join([root[0] if root is not None else "", *parts[:number]])
        stem, comes_first = part.partition(".")[0], number < len(parts) - 1 or part.endswith(".so")
        script = 'test -e "$1/$2.py" && exit "$3"; test -e "$1/$2" && exit 1; ls "$1/lib-dynload/$2".*.so'
        if image().run(["sh", "-c", script, "sh", folder, stem, "0" if comes_first else "1"]).ok:
            return f"{folder}/{part}"
    return None


def _remove(box: Box, path: str) -> bool:
    """Remove a file or directory. Returns whether it is gone: `rm` may be the agent's."""
    box.run(["rm", "-rf", path], user="root")
    return _read(box, path) is None


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


def _image_home(box: Box, image: Callable[[], Box], user: str | None) -> tuple[str, Mapping[str, bytes | None]]:
    """The home directory of a user in the image, and what is in it (see _HOMES)."""
    key = (box.spec.image, user)
    if key not in _HOMES:
        script = 'printf "%s\\n" "$HOME"; ls -A "$HOME"'
        lines = image().run(["sh", "-c", script], user=user).stdout.decode(errors="replace").splitlines() or ["/root"]
        entries = {name: _read(image(), f"{lines[0]}/{name}") if name.startswith(".") else None for name in lines[1:]}
        _HOMES[key] = (lines[0].rstrip("/"), entries)
    return _HOMES[key]


def _new_home(
    box: Box,
    image: Callable[[], Box],
    user: str | None,
    old: str,
    entries: Mapping[str, bytes | None],
    below: Sequence[str],
    stale: Collection[str],
) -> str:
    """Make a home directory for the tests: settings and caches of installers are the image's, the rest are links.

    `old` is the home directory of the image with its `entries`, `below` what the agent changed in it, `stale` the caches
    among that. The name is drawn at random, so that the agent could not put anything there.
    """
    added = {path.partition("/")[0] for path in below}
    home = f"/tmp/home-{secrets.token_hex(8)}"
    with scratch() as here:
        here.chmod(0o755)

        def link(name: str) -> None:
            (here / name).symlink_to(f"{old}/{name}")

        for name in sorted({*entries, *added} - {"", ".", ".."}):
            content = entries.get(name)
            if content is not None:
                (here / name).write_bytes(content)
            elif any(cache.startswith(f"{name}/") for cache in stale):
                (here / name).mkdir()
                listed = (
                    image().run(["ls", "-A", f"{old}/{name}"], user=user).stdout.decode(errors="replace").split("\n")
                )
                own = {path.split("/")[1] for path in below if path.startswith(f"{name}/")}
                for each in sorted({*listed, *own} - {"", ".", ".."}):
                    if f"{name}/{each}" not in stale:
                        link(f"{name}/{each}")
            elif name != ".config" and not (name.startswith(".") and name in added and _is_file(box, f"{old}/{name}")):
                link(name)
        for cache in stale:
            with suppress(UsageError):  # the image has none
                image().get(f"{old}/{cache}", here / cache)
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
