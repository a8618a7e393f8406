"""A call is matched with the call that it continues, and conversations that run side by side are kept apart."""

from __future__ import annotations

from bakeoff.workloads.tasks.proxy.conversations import Conversations, Place
from workloads.tasks.proxied import Json, result, said, system, user


class Talk:
    """Calls one after the other."""

    def __init__(self) -> None:
        self.known, self.count = Conversations(), 0

    def call(
        self, messages: list[Json], reply: Json | None, previous: str | None = None, id: str | None = None
    ) -> Place:
        self.count += 1
        return self.known.add(self.count, messages, previous, reply, id)


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
