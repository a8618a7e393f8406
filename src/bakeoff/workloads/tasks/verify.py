"""Verification of a prepared task: hidden scripts on the start state plus the agent's diff, each in a fresh sandbox.

pytest runs Python scripts. Any other script is started by its first line, or by bash, and passes by its exit code.
`verify_diff` is the entry point. Harbor tasks are verified in their own sandbox (`harbor_run.py`).

An agent's diff cannot decide how it is tested: files that steer pytest are reset first (`guard.py`); the runner
(`pytest_in_box.py`) keeps the outcome out of the reach of the work; a test passes only if it says that it came to its end
(`witness.py`); and tests of the reference's run that are missing have failed (`expected.py`).

Sandboxes need no pytest: a copy of ours, with what it imports, is mounted read-only at /opt/hidden-tests together with
the runner.
"""

from __future__ import annotations

import compileall
import hashlib
import json
import math
import posixpath
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from bakeoff.errors import InfraError, UsageError, install
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import Box, BoxSpec, Image, Mount, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks import hidden_values, pytest_in_box, witness
from bakeoff.workloads.tasks.diff import PatchFailed, apply_diff
from bakeoff.workloads.tasks.environment import NOT_STARTED, box_spec, built_for, command_path, filled_in, lay_out, tail
from bakeoff.workloads.tasks.expected import CHANGED, Expected, function_of, judged, plain_tests
from bakeoff.workloads.tasks.guard import guard, selects_tests
from bakeoff.workloads.tasks.honeypots import hit
from bakeoff.workloads.tasks.launcher import Launcher
from bakeoff.workloads.tasks.model import REPOSITORY, Script, Task
from bakeoff.workloads.tasks.pytest_in_box import NO_PYTEST
from bakeoff.workloads.tasks.repository import GitFailed, git
from bakeoff.workloads.tasks.results import Case, CaseOutcome, RubricScore, ScriptResult, Verification, weighted
from bakeoff.workloads.tasks.start import StartState, start_state

REPORT = "/logs/verifier/report.json"
ORDERS = "/logs/verifier/orders.json"
LONGEST_REPORT = 1 << 26
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
    leads to it. A diff that does not apply is `patch_failed`. Work that tampers with its tests scores 0.
    """
    return judged(task, sandbox, run_hidden_tests(task, diff, sandbox, logs=logs))


def run_hidden_tests(task: Task, diff: bytes, sandbox: Sandbox, *, logs: Path) -> Verification:
    """`verify_diff` for a diff that we trust, such as the reference: what the runner noticed does not count."""
    if task.format != "prepared":
        raise UsageError(f"{task.directory}: a {task.format} task is verified in its sandbox, not from a diff")
    began = time.monotonic()
    try:
        start = start_state(task)
        image = built_for(task.environment, sandbox).image
        results, discounted = run_scripts(task, start, diff, sandbox, image, logs=logs)
        honeypots = _honeypots(task, start, diff, sandbox, image) if task.honeypots else None
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
        honeypots=honeypots,
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
        work = None
        if task.first.verifier.isolation == "launcher":  # tests see the start state, and call the work elsewhere
            work, tree = tree, here / "tests"
            start.copy(tree)
        guarded = guard(start.tree, tree, task.scripts)
        env = filled_in(task, "verifier", task.first.verifier.env)
        spec = replace(box_spec(task, image, mounts=tools(), env=env), tracing=False)
        run = partial(_run_script, task, tree, work, sandbox, spec, logs, guarded.configurations)
        results = [
            _complete(task, sandbox, start.tree, script, run(script)) for script in task.scripts if script.rubric_id
        ]
    return results, guarded.discounted


def _honeypots(task: Task, start: StartState, diff: bytes, sandbox: Sandbox, image: Image) -> tuple[str, ...]:
    """The honeypots that the agent went into, looked for in a fresh sandbox with its whole diff."""
    with scratch() as here, sandbox.open(box_spec(task, image)) as box:
        tree = here / "tree"
        start.copy(tree)
        apply_diff(tree, diff)
        lay_out(task, tree, box, None)
        return hit(task, box)


def _complete(task: Task, sandbox: Sandbox, start: Path, script: Script, result: ScriptResult) -> ScriptResult:
    """`result` with a failure for each test that the work kept from running: of the reference's, or in the source."""
    if not (result.passed and result.cases):
        return result
    passed = {case.id for case in result.cases if case.outcome == "passed"}
    reported = {function_of(case.id) for case in result.cases}
    expected = Expected.load(task, sandbox)
    if expected is not None and script.path in expected.tests:
        missing = [test for test in expected.tests[script.path] if test not in passed]
    else:
        missing = [name for name in plain_tests(script.content) if name not in reported]
        missing = [] if missing and selects_tests(start) else missing
    lost = tuple(Case(name, "error", message="this test did not pass, or did not run at all") for name in missing)
    return replace(result, passed=result.passed and not lost, cases=(*result.cases, *lost))


def _run_script(
    task: Task,
    tree: Path,
    work: Path | None,
    sandbox: Sandbox,
    spec: BoxSpec,
    logs: Path,
    configurations: Mapping[str, str],
    script: Script,
) -> ScriptResult:
    """Run one script in a fresh sandbox. InfraError if pytest or the script's interpreter is not in it.

    `work` is the tree of the work, if tests call it through a launcher.
    """
    output = logs / f"{script.path.replace('/', '__')}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    limit = task.first.verifier.timeout
    report: dict[str, Any] = {}
    launcher: Launcher | None = None
    with ExitStack() as stack:
        if work is not None:
            place = stack.enter_context(sandbox.open(replace(spec, mounts=())))
            lay_out(task, work, place, task.first.agent.user)
            modules = task.first.verifier.modules
            launcher = stack.enter_context(
                Launcher(place, user=task.first.agent.user, seconds=limit, modules=modules, top=REPOSITORY)
            )
            spec = replace(spec, mounts=(*spec.mounts, *launcher.mounts))
        box = stack.enter_context(sandbox.open(spec))
        lay_out(task, tree, box, task.first.verifier.user)
        path = command_path(box, f"{REPOSITORY}/{script.path}")
        hidden = {command_path(box, f"{REPOSITORY}/{each.path}"): each for each in task.scripts}
        if script.by_pytest:
            configuration = f"{REPOSITORY}/{configurations[script.path]}"
            # A file, which the runner removes before anything else: its arguments can be read in /proc.
            # Without a reference nobody knows what tests compare with, so what they mention is trusted.
            text = "" if task.first.solution is not None else " ".join(each.content for each in task.scripts)
            orders = {
                "hidden": list(hidden),
                "launched": launcher is not None,
                "modules": task.first.verifier.modules,
                "local": _packages_of_tests(task),
                "trusted": sorted(set(re.findall(r"\w+", text))),
            }
            box.write(ORDERS, json.dumps(orders).encode())
            paths = (RUNNER, LIBRARY, REPOSITORY, box.spec.workdir, configuration, REPORT, ORDERS)
            argv = ["python3", "-I", *(command_path(box, place) for place in paths), path]
        else:
            argv = [path] if script.content.startswith("#!") else ["bash", path]
        ended = box.run(
            argv,
            env=launcher.env(box) if launcher is not None else None,
            cwd=box.spec.workdir,
            timeout=limit,
            stdout=output,
            stderr=output,
            user=task.first.verifier.user,
        )
        if launcher is not None:
            launcher.check()
        if script.by_pytest:
            report = _report(box) if not ended.timed_out else {}
            marks = [_text(mark) for mark in report.get("marks", ())]
        else:
            marks = [
                f"{CHANGED}{each.path}" for each in hidden.values() if _content(box, each) != each.content.encode()
            ]
    if script.by_pytest and ended.code == NO_PYTEST:
        raise InfraError(f"{script.path} could not be run: {tail(output)}")
    if not report and ended.code in NOT_STARTED:
        # The agent's code may exit with such a code too: look for the program in a sandbox that it never touched.
        program = _program(script)
        with sandbox.open(spec) as untouched:
            there = untouched.run(["sh", "-c", 'command -v "$1"', "sh", program]).ok
        if not there:
            raise InfraError(f"{script.path} could not be run: there is no {program!r} in the sandbox")
    cases = tuple(_cases(report))
    # pytest's exit code of 0 alone is not a pass: code under test can end the process with it before a test has run.
    good = any(case.outcome == "passed" for case in cases) or not script.by_pytest
    bad = any(case.outcome in ("failed", "error") for case in cases)
    passed = ended.ok and good and not bad
    # Tests that fail may leave values of theirs as they never are otherwise.
    marks = [mark for mark in marks if passed or not mark.startswith(hidden_values.CHANGED)]
    return ScriptResult(
        path=script.path,
        rubric_id=script.rubric_id or "",
        passed=passed,
        code=ended.code,
        seconds=ended.seconds,
        cases=cases,
        output=tail(output),
        timed_out=ended.timed_out,
        memory_killed=ended.memory_killed,
        marks=tuple(_shortened(mark) for mark in marks),
    )


def _packages_of_tests(task: Task) -> list[str]:
    """Packages that hold hidden files: tests inside a package of the work are imported from the tests' own tree."""
    folders = {posixpath.dirname(script.path) for script in task.scripts}
    return sorted(folder.removeprefix("src/").replace("/", ".") for folder in folders if folder)


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


def _report(box: Box) -> dict[str, Any]:
    """The runner's report; empty if there is none that can be read."""
    try:
        report = json.loads(box.read(REPORT, LONGEST_REPORT))
    except (OSError, UsageError, ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def _cases(report: Mapping[str, Any]) -> Iterator[Case]:
    """The tests in a report. The work can write what it likes into it, but no pass without the runner's exit code."""
    outcomes: dict[str, CaseOutcome] = {
        "passed": "passed",
        "failed": "failed",
        "error": "error",
        "skipped": "skipped",
    }
    for entry in report.get("cases", ()):
        if not isinstance(entry, dict):
            continue
        seconds = entry.get("seconds")
        yield Case(
            _text(entry.get("name")),
            outcomes.get(str(entry.get("outcome")), "error"),
            float(seconds) if isinstance(seconds, int | float) and math.isfinite(seconds) else 0.0,
            _text(entry.get("message") or "")[:LONGEST_MESSAGE],
            _text(entry.get("case")),
        )


def _text(value: object) -> str:
    """A value of a report as text that can be written: JSON may hold half of a surrogate pair, which UTF-8 cannot."""
    return str(value).encode(errors="replace").decode()


def _content(box: Box, script: Script) -> bytes | None:
    """A hidden file as it is in the sandbox now; None if it is gone."""
    try:
        return box.read(f"{REPOSITORY}/{script.path}", LONGEST_REPORT)
    except (OSError, UsageError):
        return None


def _shortened(mark: str) -> str:
    """A mark with paths from the repository's top, whichever sandbox it comes from."""
    before, _, after = mark.partition(CHANGED)
    return f"{CHANGED}{after.rpartition(f'{REPOSITORY}/')[2]}" if after and not before else mark


def tools() -> tuple[Mount, ...]:
    """The pytest runner and library as read-only mounts."""
    return (
        Mount(Path(pytest_in_box.__file__), RUNNER),
        Mount(Path(witness.__file__), f"{TOOLS}/witness.py"),
        Mount(Path(hidden_values.__file__), f"{TOOLS}/hidden_values.py"),
        Mount(library(), LIBRARY),
    )


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
                    f"hidden tests are run by pytest, and {name} is not installed\n  fix: {install('tasks')}"
                ) from None
    return packages
