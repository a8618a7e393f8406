"""A prepared task's hidden scripts, each in a fresh box: the start state plus the agent's diff.

Python is run by pytest. Anything else is started by its first line, or by bash, and passes when it exits with 0.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Box, BoxSpec, CommandResult, Image, Sandbox
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks.boxes import box_spec, filled_in, give, seen
from bakeoff.workloads.tasks.git import GitFailed, git
from bakeoff.workloads.tasks.guard import guard
from bakeoff.workloads.tasks.model import REPOSITORY, Rubric, Script, Task
from bakeoff.workloads.tasks.pytest_in_box import NO_PYTEST
from bakeoff.workloads.tasks.pytest_tools import LIBRARY, RUNNER, tools
from bakeoff.workloads.tasks.results import Case, CaseOutcome, RubricScore, ScriptResult
from bakeoff.workloads.tasks.start import StartState, apply_diff

REPORT = "/logs/verifier/junit.xml"
SEAL = "/logs/verifier/sealed"
NOT_STARTED = (126, 127)
LONGEST_REPORT = 1 << 24
LONGEST_MESSAGE = 4000


def run_scripts(
    task: Task, start: StartState, diff: bytes, sandbox: Sandbox, image: Image, *, logs: Path
) -> tuple[list[ScriptResult], tuple[str, ...]]:
    """Every script that speaks for a rubric, and the agent's files that did not count. PatchFailed for a bad diff."""
    scripts = [script for script in task.scripts if script.rubric_id]
    with scratch() as here:
        tree = here / "tree"
        start.copy(tree)
        apply_diff(tree, diff)
        with suppress(GitFailed):  # attributes of the agent's may keep git from reading its files
            git("add", "-A", "--sparse", at=tree)  # scripts may ask git what the agent changed
        guarded = guard(start.tree, tree, task.scripts)
        env = filled_in(task, "verifier", task.verifier.env)
        spec = box_spec(task, image, mounts=tools(), env=env)
        results = [_run_script(task, script, guarded.configurations[script.path], tree, sandbox, spec, logs) for script in scripts]  # fmt: skip
    return results, guarded.discounted


def _run_script(
    task: Task, script: Script, configuration: str, tree: Path, sandbox: Sandbox, spec: BoxSpec, logs: Path
) -> ScriptResult:
    output = logs / f"{script.path.replace('/', '__')}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    with sandbox.open(spec) as box:
        lay_out(task, tree, box, task.verifier.user)
        if script.by_pytest:
            ended, sealed, cases = _by_pytest(task, script, configuration, box, output)
        else:
            ended, sealed, cases = _by_exit_code(task, script, box, output), None, ()
    if sealed == NO_PYTEST:
        raise InfraError(f"{script.path} could not be run: {tail(output)}")
    program = _program(script)
    if sealed is None and ended.code in NOT_STARTED and not _has(program, sandbox, spec):
        raise InfraError(f"{script.path} could not be run: there is no {program!r} in the box")
    return _result(script, ended, cases, tail(output))


def _by_pytest(
    task: Task, script: Script, configuration: str, box: Box, output: Path
) -> tuple[CommandResult, str | None, tuple[Case, ...]]:
    """How pytest ended, what it sealed, and its cases where the two agree."""
    secret = secrets.token_hex(16)
    given = (LIBRARY, REPOSITORY, box.spec.workdir, f"{REPOSITORY}/{configuration}", REPORT, SEAL, f"{REPOSITORY}/{script.path}")  # fmt: skip
    argv = ["python3", "-I", seen(box, RUNNER), *(seen(box, path) for path in given)]
    ended = _ended(task, box, argv, output, f"{secret}\n".encode())
    sealed = _sealed(box, secret)
    return ended, sealed, _report(box) if sealed == str(ended.code) else ()


def _by_exit_code(task: Task, script: Script, box: Box, output: Path) -> CommandResult:
    path = seen(box, f"{REPOSITORY}/{script.path}")
    return _ended(task, box, [path] if script.content.startswith("#!") else ["bash", path], output)


def _ended(task: Task, box: Box, argv: list[str], output: Path, stdin: bytes | None = None) -> CommandResult:
    return box.run(
        argv,
        cwd=box.spec.workdir,
        timeout=task.verifier.timeout,
        stdin=stdin,
        stdout=output,
        stderr=output,
        user=task.verifier.user,
    )


def _program(script: Script) -> str:
    """What starts a script, by its first line."""
    if script.by_pytest:
        return "python3"
    if not script.content.startswith("#!"):
        return "bash"
    words = re.split(r"[ \t]+", script.content[2:].partition("\n")[0].strip(" \t"))
    if words[0].endswith("/env"):
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word] or words
    return words[0]


def _sealed(box: Box, secret: str) -> str | None:
    """How the runner says that it came to its end; None when something else ended it."""
    try:
        word, _, outcome = box.read(SEAL, 200).decode(errors="replace").partition(" ")
    except (OSError, UsageError):
        return None
    return outcome if secrets.compare_digest(word.encode(), secret.encode()) else None


def _has(program: str, sandbox: Sandbox, spec: BoxSpec) -> bool:
    """Asked of a box that no agent has touched."""
    with sandbox.open(spec) as box:
        return box.run(["sh", "-c", 'command -v "$1"', "sh", program]).ok


def lay_out(task: Task, tree: Path, box: Box, user: str | None) -> None:
    """The repository and what the task puts beside it; the repository belongs to `user`."""
    for file in task.overlays:
        if not file.target.startswith(f"{REPOSITORY}/"):
            box.write(file.target, file.read(), 0o755 if file.executable else 0o644)
    box.put(tree, REPOSITORY)
    box.write("/logs/verifier/.keep", b"")
    if user is not None:
        give(box, user, (REPOSITORY, "/logs"))  # git trusts nobody else's repository


def _result(script: Script, ended: CommandResult, cases: tuple[Case, ...], said: str) -> ScriptResult:
    """pytest's exit code of 0 alone is no pass: code under test can end the process with it before a test has run."""
    good = any(case.outcome == "passed" for case in cases) or not script.by_pytest
    bad = any(case.outcome in ("failed", "error") for case in cases)
    return ScriptResult(
        path=script.path,
        rubric_id=script.rubric_id or "",
        passed=ended.ok and good and not bad,
        code=ended.code,
        seconds=ended.seconds,
        cases=cases,
        output=said,
        timed_out=ended.timed_out,
        memory_killed=ended.memory_killed,
    )


def _report(box: Box) -> tuple[Case, ...]:
    """Single tests from the report; none where there is no report that can be read."""
    try:
        data = box.read(REPORT, LONGEST_REPORT)
    except (OSError, UsageError):
        return ()
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:  # pytest writes neither
        return ()
    try:
        tree = ElementTree.fromstring(data)
    except ElementTree.ParseError:
        return ()
    return tuple(_case(item) for item in tree.iter("testcase"))


def _case(item: ElementTree.Element) -> Case:
    outcome: CaseOutcome = "passed"
    message = ""
    kinds: tuple[tuple[str, CaseOutcome], ...] = (("failure", "failed"), ("error", "error"), ("skipped", "skipped"))
    for tag, meaning in kinds:
        found = item.find(tag)
        if found is not None:
            outcome, message = meaning, f"{found.get('message') or ''}\n{found.text or ''}".strip()[:LONGEST_MESSAGE]
            break
    name = "::".join(part for part in (item.get("classname"), item.get("name")) if part)
    return Case(name, outcome, _seconds(item.get("time")), message)


def _seconds(text: str | None) -> float:
    try:
        return float(text or 0.0)
    except ValueError:
        return 0.0


def tail(file: Path, most: int = 20_000) -> str:
    """The end of what was written."""
    if not file.is_file():
        return ""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - most))
        return opened.read().decode(errors="replace")


def rubric_scores(rubrics: Sequence[Rubric], scripts: Sequence[ScriptResult]) -> tuple[RubricScore, ...]:
    return tuple(_rubric_score(rubric, [one for one in scripts if one.rubric_id == rubric.id]) for rubric in rubrics)


def _rubric_score(rubric: Rubric, scripts: Sequence[ScriptResult]) -> RubricScore:
    passed = sum(script.passed for script in scripts)
    score = passed / len(scripts) if scripts else None
    return RubricScore(rubric.id, rubric.criterion, rubric.weight, score, len(scripts), passed)
