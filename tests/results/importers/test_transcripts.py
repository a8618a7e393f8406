"""What was said in runs of other tools, read from files that the tools wrote."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.results.importers import inspect_logs
from bakeoff.results.importers.foreign import Message, Source
from bakeoff.results.importers.transcripts import Unchanged, conversation, file_state, message_of
from bakeoff.results.sources import open_results
from bakeoff.results.table import Row

FIXTURES = Path(__file__).parents[2] / "fixtures"


def rows_of(*names: str) -> list[Row]:
    return list(open_results([str(FIXTURES / name) for name in names], Path("root")).rows)


def said(row: Row) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in row.messages()]


@pytest.mark.parametrize(
    ("source", "member", "messages"),
    [
        ("inspect/skill", "4_epoch_1", [("user", "4+1"), ("assistant", "5")]),
        ("inspect/started/started.eval", "1_epoch_1", [("user", "1+1"), ("assistant", "2")]),
        ("inspect/epochs", "w1_epoch_2", [("user", "1"), ("assistant", "1")]),
        ("nemo", "1", [("user", "Add 0 and 1."), ("assistant", "1")]),
        ("verifiers01", "3", [("user", "Add 1 and 1."), ("assistant", "2")]),
        ("lm-eval/models/large", "0", [("user", "0 + 1 ="), ("assistant", "lol")]),
    ],
)
def test_messages_are_those_of_the_run(source: str, member: str, messages: list[tuple[str, str]]) -> None:
    rows = [row for row in rows_of(source) if row.source is not None and row.source.member == member]
    assert messages in [said(row) for row in rows]


def test_every_sample_of_a_log_has_its_own_question() -> None:
    for row in rows_of("inspect/skill"):
        assert row.source is not None and row.source.member is not None
        number = row.source.member.partition("_epoch_")[0]
        assert said(row)[0] == ("user", f"{number}+1")


def test_a_choice_has_the_likelihood_that_the_model_gave_it() -> None:
    row = next(row for row in rows_of("lm-eval/models/large") if row.task.startswith("sums_mc/"))
    assert said(row) == [
        ("user", "0 + 1 ="),
        ("choice", " 1 (log-likelihood -0.4614066977419776)"),
        ("choice", " 0 (log-likelihood -0.530355716123445)"),
    ]


def test_an_episode_has_the_messages_of_its_nodes_or_its_prompt_alone() -> None:
    rows = rows_of("verifiers")
    by_task = {(row.arm, row.task): said(row) for row in rows}
    assert by_task["small", "sums/1"] == [("user", "Add 1 and 1."), ("assistant", "3")]
    assert by_task["large", "sums/1"] == [("user", "Add 1 and 1."), ("assistant", "2")]
    assert by_task["small", "sums/5"] == [("user", "Add 5 and 1.")]


def test_a_trial_has_the_trajectory_of_its_agent() -> None:
    rows = [row for row in rows_of("harbor/models/small", "harbor/models/large") if row.transcript is not None]
    assert [row.task for row in rows] == ["task-1", "task-1"]
    question, look, answer, done = rows[0].messages()
    assert (question.role, look.role, answer.role, done.role) == ("user", "assistant", "tool", "assistant")
    assert look.reasoning == "It may exist."
    (call,) = look.tool_calls
    assert call["function"]["name"] == "bash_command"
    assert json.loads(call["function"]["arguments"]) == {"keystrokes": "cat sum.txt\n"}
    assert (answer.content, answer.tool_call_id) == ("no such file", call["id"])


def test_a_trajectory_is_read_to_its_last_file_and_what_it_copies_only_once(tmp_path: Path) -> None:
    trial = tmp_path / "small" / "task-1__0"
    shutil.copytree(FIXTURES / "harbor/models/small", tmp_path / "small")
    first = trial / "agent" / "trajectory.json"
    content = json.loads(first.read_text())
    summary = {"step_id": 1, "source": "user", "message": "In short.", "is_copied_context": True}
    more = {"step_id": 2, "source": "agent", "message": "More."}
    (trial / "agent" / "trajectory.cont-1.json").write_text(json.dumps({**content, "steps": [summary, more]}))
    first.write_text(json.dumps({**content, "continued_trajectory_ref": "trajectory.cont-1.json"}))
    (row,) = open_results([str(trial)], tmp_path / "root").rows
    assert [text for _, text in said(row)] == [
        "Write the sum into sum.txt.", "I look at the file.", "no such file", "small is done.", "More.",
    ]  # fmt: skip


def promptfoo_database(place: Path) -> Path:
    path = place / "promptfoo.db"
    path.write_bytes(gzip.decompress((FIXTURES / "promptfoo/promptfoo.db.gz").read_bytes()))
    return path


def test_all_files_of_promptfoo_say_the_same(tmp_path: Path) -> None:
    places = [FIXTURES / "promptfoo/eval.json", FIXTURES / "promptfoo/eval.jsonl", promptfoo_database(tmp_path)]
    answers = [
        sorted(said(row) for row in open_results([str(place)], tmp_path / "root").rows if row.status == "succeeded")
        for place in places
    ]
    assert answers[0] == answers[1] == answers[2]
    assert [("user", "Add 1 and 1."), ("assistant", "3")] in answers[0]


def copied(place: Path) -> tuple[Path, Row]:
    path = place / "log.eval"
    path.write_bytes(next((FIXTURES / "inspect/skill").glob("*.eval")).read_bytes())
    return path, open_results([str(path)], place / "root").rows[0]


def same_size(path: Path) -> None:
    """Write another log of the same size, with the times of the old one."""
    times = path.stat()
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes() + b" "),
        lambda path: path.unlink(),
        same_size,
    ],
)
def test_a_file_that_changed_since_it_was_read_is_refused(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path, row = copied(tmp_path)
    assert row.messages()
    change(path)
    with pytest.raises(UsageError, match=r"log\.eval changed since its runs were read; read it again"):
        row.messages()


def test_a_file_that_was_read_again_gives_its_new_messages(tmp_path: Path) -> None:
    path = tmp_path / "sums" / "results.jsonl"
    shutil.copytree(FIXTURES / "verifiers01/sums--small/abc", path.parent)
    assert said(open_results([str(path)], tmp_path / "root").rows[0])[0] == ("user", "Add 0 and 1.")
    path.write_text(path.read_text().replace("Add 0 and 1.", "Add 0 and 9."))
    assert said(open_results([str(path)], tmp_path / "root").rows[0])[0] == ("user", "Add 0 and 9.")


def test_reading_a_log_opens_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    entry = inspect_logs._entry
    monkeypatch.setattr(inspect_logs, "_entry", lambda file, each: opened.append(each.filename) or entry(file, each))
    _, row = copied(tmp_path)
    assert opened == ["header.json", "summaries.json"]
    row.messages()
    assert opened[2:] == ["header.json", "samples/1_epoch_1.json"]


def test_a_log_without_samples_has_no_messages(tmp_path: Path) -> None:
    path, _ = copied(tmp_path)
    assert inspect_logs.transcript(Source(path, "99_epoch_1")) == []


def test_what_cannot_be_read_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("{}")

    def broken(source: Source) -> list[Message]:
        raise KeyError("prompt")

    state = file_state(path)
    assert state is not None
    with pytest.raises(UsageError, match=r"log\.jsonl:1: its messages cannot be read: KeyError: 'prompt'"):
        Unchanged(broken, path, state)(Source(path, "1"))


@pytest.mark.parametrize(
    "call",
    [
        {"id": "a", "function": "add", "arguments": {"x": 1}, "type": "function"},
        {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}},
        {"id": "a", "name": "add", "arguments": '{"x": 1}'},
        {"tool_call_id": "a", "function_name": "add", "arguments": {"x": 1}},
    ],
)
def test_calls_of_every_tool_get_one_shape(call: dict[str, object]) -> None:
    message = message_of({"role": "assistant", "content": None, "tool_calls": [call]})
    assert message.content == ""
    assert message.as_recorded()["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
    ]


def test_parts_of_a_message_become_text_and_reasoning() -> None:
    parts = [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": "yes"},
        {"type": "image", "image": "data:"},
    ]
    message = message_of({"role": "assistant", "content": parts})
    assert (message.content, message.reasoning) == ("yes\n[image]", "hm")


@pytest.mark.parametrize("text", ["[1, 2]", "[not json", '[{"content": "no role"}]'])
def test_a_prompt_that_only_looks_like_a_conversation_is_text(text: str) -> None:
    assert conversation(text, "user") == [Message("user", text)]


def test_a_prompt_that_is_a_conversation_is_one() -> None:
    text = json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1"}])
    assert conversation(text, "user") == [Message("system", "Be brief."), Message("user", "1+1")]
