"""The built-in agent: four tools, and no mistake of a model stops it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from bakeoff.workloads.tasks.agents.registry import PROGRAM, Builtin
from workloads.tasks.clients import Bench
from workloads.tasks.proxied import lab
from workloads.tasks.scripted import Failure, Turn, say


def use(name: str, arguments: Any) -> Turn:
    return Turn(tools=((name, arguments),))


def work(
    folder: Path,
    turns: Sequence[Turn],
    files: dict[str, str] | None = None,
    failures: Sequence[Failure] = (),
    **more: Any,
) -> tuple[CompletedProcess[bytes], list[str], Path]:
    """How it ended, what its tools answered, and where it worked."""
    bench = Bench(folder)
    bench.install(Builtin())
    for name, content in (files or {}).items():
        (bench.workdir / name).write_text(content)
    with lab(folder, turns, failures=failures, provider={"retries": 0}) as here:
        told = bench.assignment("Do it.", model="m", url=here.proxy.url, token=here.run.token, **more)
        ended = bench.call(Builtin().invocation(told))
        steps = here.run.steps()
    heard = [m["content"] for step in steps for m in step.messages[:-1] if m["role"] == "tool" or "Result of" in str(m)]
    assert {step.agent for step in steps} <= {"main"}  # whatever happened, it was one conversation
    return ended, heard, bench.workdir


def test_the_program_needs_only_the_standard_library_of_python_3_7() -> None:
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 7))  # an image may be old
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_its_tools_read_write_edit_and_run(tmp_path: Path) -> None:
    turns = [
        use("read", {"path": "a.txt", "first": 2, "lines": 1}),
        use("edit", {"path": "a.txt", "old": "two", "new": "zwei"}),
        use("write", {"path": "deep/er/b.txt", "content": "new\n"}),
        use("bash", {"command": "cat a.txt deep/er/b.txt; exit 3"}),
        say("Done."),
    ]
    ended, heard, workdir = work(tmp_path, turns, {"a.txt": "one\ntwo\nthree\n"})
    assert ended.returncode == 0
    assert (workdir / "a.txt").read_text() == "one\nzwei\nthree\n"
    assert heard[0] == "     2  two\n[1 more lines]"
    assert heard[3] == "one\nzwei\nthree\nnew\n\n[exit code 3]"


MISTAKES = [
    (use("fly", {}), "no tool 'fly'"),
    (use("", {}), "no tool ''"),
    (use("bash", "{not json"), "not JSON"),
    (use("bash", "[1]"), "must be a JSON object"),
    (use("bash", "null"), "must be a JSON object"),
    (use("bash", {"cmd": "ls"}), "`command` must be given"),
    (use("bash", {"command": ["ls"]}), "`command` must be given"),
    (use("read", {"path": "absent"}), "No such file"),
    (use("read", {"path": "."}), "Is a directory"),
    (use("read", {"path": "a.txt", "first": 99}), "only 1 lines"),
    (use("write", {"path": "", "content": "x"}), "Error"),
    (use("edit", {"path": "a.txt", "old": "zzz", "new": ""}), "occurs 0 times"),
    (use("edit", {"path": "a.txt", "old": "o", "new": ""}), "occurs 2 times"),
    (use("edit", {"path": "a.txt", "old": "", "new": "x"}), "`old` is empty"),
    (use("bash", {"command": "sleep 60", "timeout": 1}), "stopped after 1 s"),
    (use("bash", {"command": "echo \x00"}), "Error"),
    (use("write", {"path": "a.txt", "content": "half a pair: \ud800"}), "surrogates not allowed"),
    (use("edit", {"path": "a.txt", "old": "f", "new": "\ud800"}), "surrogates not allowed"),
]


@pytest.mark.slow
def test_a_mistake_of_the_model_is_answered_and_it_goes_on(tmp_path: Path) -> None:
    """Every mistake is followed by something right: nothing but mistakes would end it."""
    right = use("bash", {"command": "true"})
    turns = [turn for call, _ in MISTAKES for turn in (call, right)]
    ended, heard, workdir = work(tmp_path, [*turns, say("I see \ud800.")], {"a.txt": "foo\n"})
    assert ended.returncode == 0, ended.stderr
    assert (workdir / "a.txt").read_text() == "foo\n"
    for (_, answer), said in zip(MISTAKES, heard[::2], strict=True):
        assert answer in said


def test_calls_that_a_model_writes_as_text_are_understood(tmp_path: Path) -> None:
    written = json.dumps({"name": "write", "arguments": {"path": "x.txt", "content": "x"}})
    turns = [say(f"I do.\n<tool_call>\n{written}\n</tool_call>"), say(f"```json\n{written}\n```"), say("Done.")]
    ended, heard, workdir = work(tmp_path, turns)
    assert (workdir / "x.txt").read_text() == "x"
    assert len(heard) == 2 and heard[0].startswith("Result of write:")
    assert ended.returncode == 0


def test_a_model_that_only_talks_is_shown_once_how_to_call_a_tool(tmp_path: Path) -> None:
    written = json.dumps({"name": "write", "arguments": {"path": "x.txt", "content": "x"}})
    ended, heard, workdir = work(tmp_path, [say("I would write x."), say(f"<tool_call>{written}"), say("Done.")])
    assert (ended.returncode, len(heard)) == (0, 1)
    assert (workdir / "x.txt").read_text() == "x"


def test_a_model_that_only_makes_mistakes_is_stopped(tmp_path: Path) -> None:
    ended, heard, _ = work(tmp_path, [use("fly", {})])
    assert (ended.returncode, len(heard)) == (3, 4)
    assert b"nothing but errors" in ended.stderr


def test_turns_are_bounded(tmp_path: Path) -> None:
    ended, _, _ = work(tmp_path, [use("bash", {"command": "true"})], max_turns=3)
    assert ended.returncode == 3 and b"all 3 turns" in ended.stderr


def test_much_output_is_shortened_in_the_middle(tmp_path: Path) -> None:
    _, heard, _ = work(tmp_path, [use("bash", {"command": "seq 100000"}), say("Long.")])
    assert len(heard[0]) < 17_000
    assert heard[0].startswith("1\n2\n") and "characters left out" in heard[0] and "\n100000\n" in heard[0]


def test_a_conversation_that_is_too_long_for_the_model_is_cut_and_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.install(Builtin())
    turns = [use("bash", {"command": "seq 2000"}), use("bash", {"command": "seq 10"}), say("Done.")]
    with lab(tmp_path, turns) as here:

        def too_long(body: dict[str, Any]) -> Failure | None:
            return Failure(400, {"error": {"message": "context length"}}) if len(json.dumps(body)) > 9000 else None

        here.model.judge = too_long
        told = bench.assignment("Do it.", model="m", url=here.proxy.url, token=here.run.token)
        ended = bench.call(Builtin().invocation(told))
        ends = [call.end for call in here.calls()]
    assert ended.returncode == 0, ended.stderr
    assert ends == ["answered", "refused", "answered", "answered"]


def test_an_endpoint_that_refuses_ends_it(tmp_path: Path) -> None:
    ended, _, _ = work(tmp_path, [say("hi")], failures=[Failure(401)])
    assert ended.returncode == 4 and b"answered 401" in ended.stderr


def test_its_commands_do_not_see_the_token(tmp_path: Path) -> None:
    _, heard, _ = work(tmp_path, [use("bash", {"command": "env"}), say("Done.")])
    assert "sk-bakeoff" not in heard[0] and "HOME=" in heard[0]
