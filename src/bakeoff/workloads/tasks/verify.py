"""Verification of a prepared task: hidden scripts on the start state plus the agent's diff, each in a fresh sandbox.

pytest runs Python scripts. Any other script is started by its first line, or by bash, and passes by its exit code.
`verify_diff` is the entry point. Harbor tasks are verified in their own sandbox (`harbor_run.py`).

pytest can be steered by files: configuration, conftest.py, packages that shadow a module, stale bytecode, plugins by
entry point. In the tree that is tested, all of these go back to the start state before the hidden files are written
(`guard`), so that an agent's diff cannot decide how it is tested.

Sandboxes need no pytest: a copy of ours, with what it imports, is mounted read-only at /opt/hidden-tests together with
the runner, `pytest_in_box.py`.
"""

from __future__ import annotations

import compileall
import configparser
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import Box, BoxSpec, Image, Mount, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.diff import PatchFailed, apply_diff
from bakeoff.workloads.tasks.environment import NOT_STARTED, box_spec, built_for, command_path, filled_in, lay_out, tail
from bakeoff.workloads.tasks.model import REPOSITORY, Script, Task
from bakeoff.workloads.tasks.pytest_in_box import NO_PYTEST
from bakeoff.workloads.tasks.repository import GitFailed, git
from bakeoff.workloads.tasks.results import Case, CaseOutcome, RubricScore, ScriptResult, Verification, weighted
from bakeoff.workloads.tasks.start import StartState, place_file, real_parent, remove, start_state

REPORT = "/logs/verifier/junit.xml"
SEAL = "/logs/verifier/sealed"
LONGEST_REPORT = 1 << 24
LONGEST_MESSAGE = 4000

TOOLS = "/opt/hidden-tests"
"""Where pytest and its runner are in the sandbox."""
RUNNER = f"{TOOLS}/run.py"
LIBRARY = f"{TOOLS}/lib"
NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
FOR_OLDER_PYTHONS = ("exceptiongroup", "tomli", "typing_extensions")
COMPILED = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging")
LIBRARY_REVISION = "1"


def verify_diff(task: Task, diff: bytes, sandbox: Sandbox, *, logs: Path) -> Verification:
    """Run a prepared task's hidden tests on the start state plus `diff`; their output goes to the directory `logs`.

    The status is `error` only if a sandbox, an image or pytest is not available. Nothing that the agent's code does
    leads to it. A diff that does not apply is `patch_failed`.
    """
    if task.format != "prepared":
        raise UsageError(f"{task.directory}: a {task.format} task is verified in its sandbox, not from a diff")
    began = time.monotonic()
    try:
        start = start_state(task)
        image = built_for(task.environment, sandbox).image
        results, discounted = run_scripts(task, start, diff, sandbox, image, logs=logs)
    except PatchFailed as error:
        return Verification("patch_failed", seconds=time.monotonic() - began, error=str(error))
    except InfraError as error:
        return Verification("error", seconds=time.monotonic() - began, error=str(error))
    rubrics = []
    for rubric in task.rubrics:
        passed = [result.passed for result in results if result.rubric_id == rubric.id]
        score = sum(passed) / len(passed) if passed else None
        rubrics.append(RubricScore(rubric.id, rubric.criterion, rubric.weight, score, len(passed), sum(passed)))
    return Verification(
        "scored",
        score=weighted((rubric.score, rubric.weight) for rubric in rubrics),
        rubrics=tuple(rubrics),
        scripts=tuple(results),
        discounted=discounted,
        seconds=time.monotonic() - began,
    )


def run_scripts(
    task: Task, start: StartState, diff: bytes, sandbox: Sandbox, image: Image, *, logs: Path
) -> tuple[list[ScriptResult], tuple[str, ...]]:
    """The result of every script that has a rubric, and the agent's files that did not count.

    Raises PatchFailed for a diff that does not apply.
    """
    with scratch() as here:
        tree = here / "tree"
        start.copy(tree)
        apply_diff(tree, diff)
        with suppress(GitFailed):  # the agent's .gitattributes may keep git from reading its files
            git("add", "-A", "--sparse", at=tree)  # scripts may ask git what the agent changed
        guarded = guard(start.tree, tree, task.scripts)
        env = filled_in(task, "verifier", task.first.verifier.env)
        spec = box_spec(task, image, mounts=tools(), env=env)
        results = [
            _run_script(task, script, guarded.configurations[script.path], tree, sandbox, spec, logs)
            for script in task.scripts
            if script.rubric_id
        ]
    return results, guarded.discounted


def _run_script(
    task: Task, script: Script, configuration: str, tree: Path, sandbox: Sandbox, spec: BoxSpec, logs: Path
) -> ScriptResult:
    """Run one script in a fresh sandbox. InfraError if pytest or the script's interpreter is not in it."""
    output = logs / f"{script.path.replace('/', '__')}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    sealed: str | None = None
    cases: tuple[Case, ...] = ()
    with sandbox.open(spec) as box:
        lay_out(task, tree, box, task.first.verifier.user)
        # The secret comes through standard input, so code under test does not find it in a file or in /proc.
        secret = secrets.token_hex(16)
        path = command_path(box, f"{REPOSITORY}/{script.path}")
        if script.by_pytest:
            paths = (RUNNER, LIBRARY, REPOSITORY, box.spec.workdir, f"{REPOSITORY}/{configuration}", REPORT, SEAL)
            argv = ["python3", "-I", *(command_path(box, place) for place in paths), path]
        else:
            argv = [path] if script.content.startswith("#!") else ["bash", path]
        ended = box.run(
            argv,
            cwd=box.spec.workdir,
            timeout=task.first.verifier.timeout,
            stdin=f"{secret}\n".encode() if script.by_pytest else None,
            stdout=output,
            stderr=output,
            user=task.first.verifier.user,
        )
        if script.by_pytest:
            sealed = _sealed(box, secret)
            cases = _report(box) if sealed == str(ended.code) else ()
    if sealed == NO_PYTEST:
        raise InfraError(f"{script.path} could not be run: {tail(output)}")
    if sealed is None and ended.code in NOT_STARTED:
        # The agent's code may exit with such a code too: look for the program in a sandbox that it never touched.
        program = _program(script)
        with sandbox.open(spec) as untouched:
            there = untouched.run(["sh", "-c", 'command -v "$1"', "sh", program]).ok
        if not there:
            raise InfraError(f"{script.path} could not be run: there is no {program!r} in the sandbox")
    # pytest's exit code of 0 alone is no pass: code under test can end the process with it before a test has run.
    good = any(case.outcome == "passed" for case in cases) or not script.by_pytest
    bad = any(case.outcome in ("failed", "error") for case in cases)
    return ScriptResult(
        path=script.path,
        rubric_id=script.rubric_id or "",
        passed=ended.ok and good and not bad,
        code=ended.code,
        seconds=ended.seconds,
        cases=cases,
        output=tail(output),
        timed_out=ended.timed_out,
        memory_killed=ended.memory_killed,
    )


def _program(script: Script) -> str:
    """The program that starts a script: the one in its first line, else bash; python3 for pytest."""
    if script.by_pytest:
        return "python3"
    if not script.content.startswith("#!"):
        return "bash"
    words = re.split(r"[ \t]+", script.content[2:].partition("\n")[0].strip(" \t"))
    if words[0].endswith("/env"):
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word] or words
    return words[0]


def _sealed(box: Box, secret: str) -> str | None:
    """The exit code that the runner sealed with the secret; None if something else ended the process."""
    try:
        word, _, outcome = box.read(SEAL, 200).decode(errors="replace").partition(" ")
    except (OSError, UsageError):
        return None
    # The agent's code can write this file, but does not know the secret.
    return outcome if secrets.compare_digest(word.encode(), secret.encode()) else None


def _report(box: Box) -> tuple[Case, ...]:
    """The tests in pytest's JUnit report; none if there is no report that can be read."""
    try:
        data = box.read(REPORT, LONGEST_REPORT)
    except (OSError, UsageError):
        return ()
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:  # pytest writes neither; they can make XML grow without end
        return ()
    try:
        tree = ElementTree.fromstring(data)
    except ElementTree.ParseError:
        return ()
    kinds: tuple[tuple[str, CaseOutcome], ...] = (("failure", "failed"), ("error", "error"), ("skipped", "skipped"))
    cases = []
    for item in tree.iter("testcase"):
        outcome: CaseOutcome = "passed"
        message = ""
        for tag, meaning in kinds:
            entry = item.find(tag)
            if entry is not None:
                text = f"{entry.get('message') or ''}\n{entry.text or ''}"
                outcome, message = meaning, text.strip()[:LONGEST_MESSAGE]
                break
        name = "::".join(part for part in (item.get("classname"), item.get("name")) if part)
        try:
            seconds = float(item.get("time") or 0.0)
        except ValueError:
            seconds = 0.0
        cases.append(Case(name, outcome, seconds, message))
    return tuple(cases)


def tools() -> tuple[Mount, ...]:
    """The pytest runner and library as read-only mounts."""
    return (Mount(Path(__file__).with_name("pytest_in_box.py"), RUNNER), Mount(library(), LIBRARY))


def library() -> Path:
    """A directory with pytest and what it needs, made once for each set of versions.

    All of it is plain Python, so any interpreter in a sandbox can read it.
    """
    distributions = installed()
    versions = " ".join([LIBRARY_REVISION, *(f"{package.name}={package.version}" for package in distributions)])
    home = cache.directory("pytest")
    place = home / hashlib.sha256(versions.encode()).hexdigest()[:16]
    if not place.is_dir():
        # Made aside and renamed, so that another process never mounts half of it.
        made = Path(tempfile.mkdtemp(prefix="new.", dir=home))
        made.chmod(0o755)  # mkdtemp makes 0700, and tests may run as another user
        for file in (file for package in distributions for file in package.files or ()):
            if file.parts[0] != ".." and "__pycache__" not in file.parts:
                (made / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(file.locate()), made / file)
        for name in COMPILED:  # once here, and not in every sandbox
            compileall.compile_dir(made / name, quiet=2, workers=1)
        try:
            made.rename(place)
        except OSError:  # another process was faster
            cache.remove(made)
    return place


def installed() -> list[Distribution]:
    """pytest and what it needs, as installed here. UsageError that says how to get them if one is missing."""
    packages = []
    for name in (*NEEDED, *FOR_OLDER_PYTHONS):
        try:
            packages.append(distribution(name))
        except PackageNotFoundError:
            if name in NEEDED:
                raise UsageError(
                    f"hidden tests are run by pytest, and {name} is not installed\n  fix: pip install 'bakeoff[tasks]'"
                ) from None
    return packages


TEST_FOLDERS = frozenset({"test", "tests", "testing", "spec", "specs"})
# Loaded by pytest or Python without being named: https://docs.python.org/3/library/site.html for the *customize
# modules and .pth files, https://docs.pytest.org/en/stable/reference/customize.html and writing_plugins.html for
# conftest.py, configuration files and plugins that a .dist-info directory declares.
STEERING = frozenset(
    {"conftest.py", "sitecustomize.py", "usercustomize.py", "sitecustomize", "usercustomize", "__pycache__"}
)
STEERING_SUFFIXES = (".pth", ".egg-link", ".dist-info", ".egg-info", ".pyc")
CONFIGURATIONS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
OWN_NAME = ".hidden-tests"
"""Name of the configuration that hidden tests run with, so that the repository's is never read."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """What `guard` did to a tree."""

    discounted: tuple[str, ...]
    """The agent's files that were reset, from the repository's top."""
    configurations: dict[str, str]
    """Each script's configuration file, from the repository's top."""


def guard(start: Path, tree: Path, scripts: Sequence[Script]) -> Guarded:
    """Reset in `tree` what could steer the hidden tests to what it is in `start`, and write the tests there.

    `start` is the start state, `tree` a copy of it with the agent's diff applied.
    """
    discounted: list[str] = []
    # In both trees: what the agent added or changed, and what it removed.
    for top in (tree, start):
        for place in _walk(top):
            if place.name in STEERING or place.name.endswith(STEERING_SUFFIXES):
                discounted += _reset(start, tree, place.relative_to(top).as_posix())
    for location in sorted(test_locations(start, scripts)):
        discounted += _reset(start, tree, location)
    for script in scripts:
        discounted += _reset_shadows(start, tree, script.path)
        # Written last, over whatever is there now.
        place_file(tree, script.path, script.content.encode(), executable=script.rubric_id is not None)
    # Hidden files replace the agent's by design, and bytecode is made by running tests: neither is worth reporting.
    hidden = {script.path for script in scripts}
    reported = {path for path in discounted if path not in hidden and not path.endswith(".pyc")}
    return Guarded(
        tuple(sorted(reported)),
        {script.path: _configuration(start, tree, scripts, script.path) for script in scripts if script.rubric_id},
    )


def test_locations(start: Path, scripts: Sequence[Script]) -> set[str]:
    """Directories that belong to the tests: above a script and named like one, or made by hidden files only."""
    locations: set[str] = set()
    for script in scripts:
        above = [str(parent) for parent in reversed(PurePosixPath(script.path).parents) if str(parent) != "."]
        named = next((folder for folder in above if PurePosixPath(folder).name in TEST_FOLDERS), None)
        unknown = next((folder for folder in above if not (start / folder).exists()), None)
        if named or unknown:
            locations.add(named or unknown or "")
    # A directory inside another one is covered by it.
    return {folder for folder in locations if not any(folder.startswith(f"{other}/") for other in locations)}


def _walk(top: Path) -> Iterator[Path]:
    """Everything below `top` but `.git`. Links are yielded and not followed. The caller may remove directories."""
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not (name == ".git" and Path(folder) == top)]
        for name in sorted((*folders, *files)):
            yield Path(folder, name)


def _reset(start: Path, tree: Path, relative: str) -> list[str]:
    """Make `relative` in `tree` what it is in `start`; returns the files that this changed."""
    before, after = start / relative, tree / relative
    changed = sorted(
        f"{relative}/{name}" if name != "." else relative
        for name in {*_files(before), *_files(after)}
        if _fingerprint(before / name) != _fingerprint(after / name)
    )
    if not changed:
        return []
    real_parent(tree, relative)  # a link of the agent's in the way would lead the copy out of the tree
    remove(after)
    if before.is_dir() and not before.is_symlink():
        shutil.copytree(before, after, symlinks=True)
    elif before.is_symlink():
        after.symlink_to(os.readlink(before))
    elif before.is_file():
        shutil.copy2(before, after)
    return changed


def _files(place: Path) -> set[str]:
    """The files and links below a directory; `.` for a file or link itself; empty if there is nothing."""
    if place.is_dir() and not place.is_symlink():
        return {file.relative_to(place).as_posix() for file in _walk(place) if file.is_symlink() or not file.is_dir()}
    return {"."} if place.is_symlink() or place.exists() else set()


def _fingerprint(file: Path) -> tuple[str, bytes] | None:
    """What makes a file different from another: its kind, whether it is executable, and its content."""
    if file.is_symlink():
        return ("link", os.fsencode(os.readlink(file)))
    if not file.is_file():
        return ("directory", b"") if file.is_dir() else None
    return ("program" if file.stat().st_mode & 0o100 else "file", file.read_bytes())


def _reset_shadows(start: Path, tree: Path, path: str) -> Iterator[str]:
    """Reset packages and extension modules that Python would import instead of the script beside them."""
    script = PurePosixPath(path)
    folder = tree / script.parent
    # A package, and then an extension module, comes before a .py file of the same name (importlib's FileFinder).
    if script.suffix != ".py" or folder.is_symlink() or not folder.is_dir():
        return
    for place in sorted(folder.iterdir()):
        shadow = place.name == script.stem or (
            place.name.split(".")[0] == script.stem and place.suffix in (".so", ".pyd")
        )
        if shadow:
            yield from _reset(start, tree, place.relative_to(tree).as_posix())


def _configuration(start: Path, tree: Path, scripts: Sequence[Script], path: str) -> str:
    """Write the configuration that the start state (or a hidden file) has for the script under our own name.

    Looks where pytest would: from the script's directory upwards, in the order of CONFIGURATIONS. Returns the path.
    """
    hidden = {script.path: script.content for script in scripts}
    folder, name, text = PurePosixPath("."), "pytest.ini", "[pytest]\n"
    for place in (parent / file for parent in PurePosixPath(path).parents for file in CONFIGURATIONS):
        candidate = hidden.get(str(place))
        if candidate is None and (start / place).is_file() and not (start / place).is_symlink():
            candidate = (start / place).read_text(encoding="utf-8", errors="replace")
        if candidate is not None and configures(place.name, candidate):
            folder, name, text = place.parent, place.name, candidate
            break
    if not name.endswith("pytest.toml"):  # pytest reads that format by this name only
        name = f"{OWN_NAME}{PurePosixPath(name).suffix}"
    target = str(folder / name)
    place_file(tree, target, text.encode())
    return target


def configures(name: str, text: str) -> bool:
    """Whether pytest would take its settings from a file of this name and content."""
    if name in ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"):
        return True
    if name == "pyproject.toml":
        try:
            return "pytest" in tomllib.loads(text).get("tool", {})
        except tomllib.TOMLDecodeError:
            return False
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error:
        return False
    return parser.has_section("pytest" if name == "tox.ini" else "tool:pytest")
