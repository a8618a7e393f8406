"""Calls are matched with those that they continue, and become a trajectory in which every message occurs once."""

from __future__ import annotations

from pathlib import Path

from bakeoff.workloads.tasks.proxy.records import Call, Conversations
from bakeoff.workloads.tasks.proxy.wire import ModelRequest
from workloads.tasks.proxied import (
    Json,
    Lab,
    lab,
    result,
    said,
    system,
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


class Talk:
    """Calls one after the other."""

    def __init__(self) -> None:
        self.known, self.count = Conversations(), 0

    def call(
        self, messages: list[Json], reply: Json | None, previous: str | None = None, id: str | None = None
    ) -> Call:
        self.count += 1
        call = Call(number=self.count, wire="chat", end="answered" if reply else "upstream", time_s=0.0, reply=reply)
        self.known.add(call, ModelRequest("m", False, messages, [], {}, previous), id)
        return call


def test_a_conversation_that_grows_is_one() -> None:
    talk, history, places = Talk(), [system("s"), user("do it")], []
    for turn in range(4):
        reply = said(f"step {turn}", f"c{turn}")
        places.append(talk.call(history, reply))
        history = [*history, reply, result(f"c{turn}")]
    assert [place.conversation for place in places] == [1, 1, 1, 1]
    assert [place.parent for place in places] == [None, 1, 2, 3]
    assert [place.kept for place in places] == [0, 3, 5, 7]


def test_a_client_may_rewrite_its_history() -> None:
    talk = Talk()
    talk.call([system("now 12:00"), user("do it <reminder>")], said("I will.", "c1"))
    rewritten = said("", "c1")  # the text was dropped, the arguments written anew
    rewritten["tool_calls"][0]["function"]["arguments"] = '{"a":1}'
    place = talk.call([system("now 12:01"), user("do it"), rewritten, result("c1")], said("Done."))
    assert (place.conversation, place.parent, place.branch, place.kept) == (1, 1, False, 3)


def test_sub_agents_and_side_questions_are_separate_conversations() -> None:
    talk = Talk()
    title = talk.call([system("Make a title"), user("do it")], said("A title"))
    main = talk.call([system("You code"), user("do it, please")], said("", "c1"))
    helper = talk.call([system("You code"), user("find the file")], said("", "h1"))
    helper_again = talk.call([system("You code"), user("find the file"), said("", "h1"), result("h1")], said("OK"))
    main_again = talk.call([system("You code"), user("do it, please"), said("", "c1"), result("c1")], said("OK"))
    assert [place.conversation for place in (title, main, helper, helper_again, main_again)] == [1, 2, 3, 3, 2]
    last = talk.call(
        [system("You code"), user("do it, please"), said("", "c1"), result("c1"), said("OK"), user("more")], said("x")
    )
    assert (last.conversation, last.parent) == (2, 5)  # both said OK; the beginning decides


def test_a_second_way_from_the_same_reply_is_a_branch() -> None:
    talk = Talk()
    start = [user("do it")]
    talk.call(start, said("Which?"))
    first = talk.call([*start, said("Which?"), user("left")], said("Went left"))
    second = talk.call([*start, said("Which?"), user("right")], said("Went right"))
    assert (first.conversation, first.branch) == (1, False)
    assert (second.conversation, second.branch, second.parent) == (2, True, 1)


def test_the_same_question_again_is_another_sample_of_its_answer() -> None:
    talk = Talk()
    talk.call([user("roll a die")], said("3"))
    again = talk.call([user("roll a die")], said("5"))
    assert (again.conversation, again.branch, again.parent, again.kept) == (2, True, 1, 1)


def test_a_call_without_an_answer_takes_no_place() -> None:
    talk = Talk()
    talk.call([user("do it")], said("", "c1"))
    failed = talk.call([user("do it"), said("", "c1"), result("c1")], None)
    retried = talk.call([user("do it"), said("", "c1"), result("c1")], said("Done"))
    assert failed.conversation is None
    assert (retried.conversation, retried.branch, retried.parent) == (1, False, 1)


def test_a_history_that_was_summed_up_begins_a_conversation_or_branches_where_it_differs() -> None:
    talk = Talk()
    talk.call([user("do it")], said("", "c1"))
    talk.call([user("do it"), said("", "c1"), result("c1")], said("", "c2"))
    summed = talk.call([user("do it"), said("I did a lot."), user("go on")], said("Fine"))
    fresh = talk.call([user("Summary of all so far"), said("Noted."), user("go on")], said("Fine"))
    assert (summed.branch, summed.kept) == (True, 1)
    assert (fresh.branch, fresh.conversation) == (False, 3)


def test_a_server_that_keeps_the_conversation_is_followed_by_its_ids() -> None:
    talk = Talk()
    talk.call([system("s"), user("do it")], said("", "c1"), id="resp_1")
    place = talk.call([system("s"), result("c1")], said("Done"), previous="resp_1", id="resp_2")
    assert (place.conversation, place.parent, place.kept) == (1, 1, 1)
