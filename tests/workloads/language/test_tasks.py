"""Prompts, verifiers, splits and planning masks of the language tasks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bakeoff.errors import UsageError
from bakeoff.workloads.language.planning import Detector, found
from bakeoff.workloads.language.tasks import END, TASKS, Task


@pytest.mark.parametrize("name", TASKS)
def test_each_task_has_prompts_answers_and_a_verifier_that_agree(name: str) -> None:
    task = Task(name)
    train, heldout = task.prompts("train"), task.prompts("heldout")
    assert len(train) >= 2000 and 0.25 < len(heldout) / (len(train) + len(heldout)) < 0.4
    assert not {prompt.id for prompt in train} & {prompt.id for prompt in heldout}
    assert {len(prompt.words) for prompt in (*train, *heldout)} == {task.prompt_length}
    longest = 0
    for prompt in (*train[::7], *heldout[::7]):
        answers = task.answers(prompt)
        assert len(answers) == 4 and any(right for _, right in answers)
        for ids, right in answers:
            assert task.reward(prompt, ids) == right
            assert task.reward(prompt, ids[:-1]) == 0, "an answer that does not end is wrong"
            assert [number in task.planning_ids for number in ids] == [True, True, *[False] * (len(ids) - 2)]
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


def test_the_phrase_detector_is_a_literal_transcription_of_the_original() -> None:
    words = tuple(["b", "first", "add", "9", "+", "1", "=", "10", "first", "add"])
    phrases = ("first add",)

    def literal() -> list[bool]:
        marked = [False] * len(words)
        for start, end in itertools.product(range(len(words)), range(len(words) + 1)):
            if start < end <= start + 5:
                inside = f" {' '.join(words[start:end])} "
                shorter = f" {' '.join(words[start : end - 1])} "
                if " first add " in inside and " first add " not in shorter:
                    marked[start:end] = [True] * (end - start)
        return marked

    assert list(found(words, phrases)) == literal()
    task = Task("countdown")
    ids = np.array([task.encode(["first", "add", "9", END]), task.encode(["9", "first", "9", END])])
    assert Detector(task)(ids).tolist() == [[True, True, False, False], [False, True, False, False]]
    assert Detector(task, ["first add"])(ids).tolist() == [[True, True, False, False], [False] * 4]


def test_phrases_that_the_vocabulary_cannot_spell_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"cannot spell 'wait let me' \('wait' is not in it\); its plans are first add"
    ):
        Detector(Task("countdown"), ["wait let me"])
