"""Recorded calls become a trajectory in which every message occurs once."""

from __future__ import annotations

from pathlib import Path

from workloads.tasks.proxied import (
    Lab,
    lab,
    result,
    said,
    user,
)
from workloads.tasks.scripted import say, shell


def conversation(here: Lab, rounds: int) -> None:
    messages = [user("do it")]
    for _ in range(rounds):
        reply = here.ask(messages=messages, tools=True).json()["choices"][0]["message"]
        messages += [reply, *(result(call["id"], "fine") for call in reply.get("tool_calls", []))]


def test_the_transcript_is_the_conversation_once(tmp_path: Path) -> None:
    turns = [shell("one", text="First."), shell("two", "three"), say("Done.")]
    with lab(tmp_path, turns, side=say("A title")) as here:
        here.ask(text="make a title")
        conversation(here, 3)
        here.run.close()
        steps = here.run.steps("codex")
        lines = here.run.record.read_text().count("do it")
    assert [step.agent for step in steps] == ["codex", "codex", "codex", "side-1"]
    told = [message for step in steps[:3] for message in step.messages]
    assert [message["role"] for message in told] == [
        *["user", "assistant", "tool", "assistant", "tool", "tool", "assistant"]
    ]
    assert [[call["arguments"] for call in step.tool_calls] for step in steps] == [
        [{"command": "one"}],
        [{"command": "two"}, {"command": "three"}],
        [],
        [],
    ]
    assert [step.done for step in steps] == [False, False, False, True]
    assert steps[0].info["tools"][0]["function"]["name"] == "bash" and "tools" not in steps[1].info
    assert steps[0].info["usage"] == {"input": 100, "output": 10}
    assert lines == 1


def test_a_branch_carries_its_whole_history_and_says_what_of_it_is_copied(tmp_path: Path) -> None:
    with lab(tmp_path, [say("Which?"), say("Gone.")]) as here:
        for way in ("left", "right"):
            if way == "left":
                here.ask(messages=[user("go")])
            here.ask(messages=[user("go"), said("Which?"), user(way)])
        steps = here.run.steps()
    assert [step.agent for step in steps] == ["main", "main", "side-1"]
    assert steps[2].messages == [user("go"), said("Which?"), user("right"), said("Gone.")]
    assert (steps[2].info["copied"], steps[2].info["branch"]) == (2, True)


def test_a_run_without_a_call_has_an_empty_transcript(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        totals = here.run.close()
        assert here.run.steps() == []
    assert (totals.calls, totals.tokens, totals.cost) == (0, 0, 0.0)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        here.ask()
        here.run.close()
    whole = here.run.record.read_bytes()
    here.run.record.write_bytes(whole + whole[: len(whole) // 2])
    assert len(here.calls()) == 1
