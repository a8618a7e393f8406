"""Prompts, verifiers, splits and planning masks of the language tasks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bakeoff.errors import UsageError
from bakeoff.workloads.language.planning import exact, found, phrases
from bakeoff.workloads.language.tasks import END, TASKS, Task


@pytest.mark.parametrize("name", TASKS)
def test_each_task_has_prompts_answers_and_a_verifier_that_agree(name: str) -> None:
    task = Task(name)
    train, heldout = task.prompts("train"), task.prompts("heldout")
    assert len(train) >= 2000 and 0.25 < len(heldout) / (len(train) + len(heldout)) < 0.4
    assert not {prompt.id for prompt in train} & {prompt.id for prompt in heldout}
    assert {len(prompt.words) for prompt in (*train, *heldout)} == {task.prompt_length}
    longest, plans = 0, task.rules.plans
    for prompt in (*train[::7], *heldout[::7]):
        answers = task.answers(prompt)
        assert len(answers) == 4 ** len(plans) and any(right for _, right in answers)
        for words, right in answers:
            ids = task.encode([*words, END])
            assert task.reward(prompt, ids) == right
            assert task.reward(prompt, ids[:-1]) == 0, "an answer that does not end is wrong"
            starts = {words.index(plan.word) for plan in plans}
            assert [number in task.planning_ids for number in ids] == [
                place in starts or place - 1 in starts for place in range(len(ids))
            ]
            longest = max(longest, len(ids))
    assert longest == task.longest_answer


def test_the_split_does_not_depend_on_who_asks() -> None:
    assert [prompt.id for prompt in Task("modular").prompts("heldout")[:3]] == [
        prompt.id for prompt in Task("modular").prompts("heldout")[:3]
    ]
    assert Task("countdown").digest != Task("modular").digest


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("first subtract 9 - 1 = 8", 1),
        ("first subtract 1 - 9 = 8", 0),  # the arithmetic is wrong
        ("first add 9 - 1 = 8", 0),  # not the plan that was carried out
        ("first subtract 9 - 1 = 7", 0),
        ("first subtract 10 - 2 = 8", 0),  # other numbers
        ("first multiply 1 * 8 = 8", 0),
        ("first subtract 9 - 1 = 8 8", 0),
        ("subtract 9 - 1 = 8", 0),
        ("", 0),
    ],
)
def test_countdown_accepts_right_answers_only(answer: str, reward: float) -> None:
    task = Task("countdown")
    prompt = next(p for split in ("train", "heldout") for p in task.prompts(split) if p.facts == (9, 1, 8))
    assert task.reward(prompt, task.encode([*answer.split(), END])) == reward


def test_countdown_accepts_either_order_where_it_does_not_matter() -> None:
    task = Task("countdown")
    prompt = next(p for split in ("train", "heldout") for p in task.prompts(split) if p.facts == (9, 1, 10))
    for answer in ("first add 9 + 1 = 10", "first add 1 + 9 = 10"):
        assert task.reward(prompt, task.encode([*answer.split(), END])) == 1


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("first add 3 + 5 = 8 then multiply 8 * 4 = 32", 1),
        ("first add 5 + 3 = 8 then multiply 4 * 8 = 32", 1),  # another order
        ("first add 3 + 5 = 8 then multiply 8 * 4 = 31", 0),
        ("first add 3 + 5 = 9 then multiply 8 * 4 = 32", 0),  # a wrong result on the way
        ("first multiply 8 * 4 = 32 then add 3 + 5 = 8", 0),  # 8 was not there yet
        ("first multiply 5 * 4 = 20 then add 20 + 3 = 23", 0),  # the arithmetic holds, the target is missed
        ("first add 3 + 5 = 8 then multiply 8 * 8 = 64", 0),  # a number used twice
        ("first add 3 + 5 = 8", 0),  # the second plan is missing
        ("first add 3 + 5 = 8 then add 8 * 4 = 32", 0),  # not the plan that was carried out
        ("then multiply 8 * 4 = 32 first add 3 + 5 = 8", 0),
        ("first add 3 + 5 = 8 then multiply 8 * 4 = 32 then multiply", 0),
    ],
)
def test_countdown_of_three_numbers_accepts_right_answers_only(answer: str, reward: float) -> None:
    task = Task("countdown3")
    prompt = next(p for split in ("train", "heldout") for p in task.prompts(split) if p.facts == (3, 5, 4, 32))
    assert task.reward(prompt, task.encode([*answer.split(), END])) == reward


def test_countdown_of_three_numbers_may_combine_any_two_first() -> None:
    task = Task("countdown3")
    prompt = next(p for split in ("train", "heldout") for p in task.prompts(split) if p.facts == (3, 5, 4, 6))
    for answer in ("first subtract 5 - 3 = 2 then add 2 + 4 = 6", "first subtract 4 - 3 = 1 then add 5 + 1 = 6"):
        assert task.accepts(prompt, answer.split())


def test_a_warm_start_aims_at_strategies_that_can_still_lead_to_a_right_answer() -> None:
    import torch

    from bakeoff.workloads.language.pretrain import choices

    task = Task("countdown3")
    prompt = next(p for p in task.prompts("train") if sum(right for _, right in task.answers(p)) == 1)
    solved = task.answers(prompt)
    answers = torch.tensor([[task.encode([*words, END]) for words, _ in solved]])
    right = torch.tensor([[float(is_right) for _, is_right in solved]])
    places, weights = choices(task, answers, right)
    assert places.tolist() == [[[1, 8]] * 16]
    winner = int(right.argmax())
    for number in range(16):
        on_the_way = number // 4 == winner // 4
        first, second = (
            (1 - plan.known) / 4 + plan.known * leads
            for plan, leads in zip(task.rules.plans, (on_the_way, number == winner), strict=True)
        )
        second = second if on_the_way else 1 / 4  # nothing helps any more
        assert (weights[0, number] / 4).tolist() == pytest.approx([first, second])


def test_the_phrase_detector_is_a_literal_transcription_of_the_original() -> None:
    words = tuple(["b", "first", "add", "9", "+", "1", "=", "10", "first", "add"])
    wanted = ("first add",)

    def literal() -> list[bool]:
        marked = [False] * len(words)
        for start, end in itertools.product(range(len(words)), range(len(words) + 1)):
            if start < end <= start + 5:
                inside = f" {' '.join(words[start:end])} "
                shorter = f" {' '.join(words[start : end - 1])} "
                if " first add " in inside and " first add " not in shorter:
                    marked[start:end] = [True] * (end - start)
        return marked

    assert list(found(words, wanted)) == literal()
    task = Task("countdown")
    ids = np.array([task.encode(["first", "add", "9", END]), task.encode(["9", "first", "9", END])])
    assert exact(task, task)(ids).tolist() == [[True, True, False, False], [False, True, False, False]]
    assert phrases(task, task, ["first add"])(ids).tolist() == [[True, True, False, False], [False] * 4]


def test_phrases_that_the_vocabulary_cannot_spell_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"cannot spell 'wait let me' \('wait' is not in it\); its plans are first add"
    ):
        phrases(Task("countdown"), Task("countdown"), ["wait let me"])
