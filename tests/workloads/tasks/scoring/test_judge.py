"""What a judge says becomes votes; what is no vote is missing, and never 0 or a guess."""

from __future__ import annotations

import pytest

from bakeoff.workloads.tasks.model import Rubric
from bakeoff.workloads.tasks.scoring.judge import Judgement, JudgeSettings, judge, weighted
from workloads.tasks.scripted import ScriptedModel, say


def judged(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[Judgement]:
    """One rubric for each answer, two votes each."""
    monkeypatch.setenv("JUDGE_KEY", "k")
    rubrics = [Rubric(str(number), f"criterion {number}.", 1.0) for number in range(len(answers))]
    scripts = {rubric.criterion: [say(text)] for rubric, text in zip(rubrics, answers, strict=True)}
    with ScriptedModel([], scripts=scripts, side=None) as model:
        settings = JudgeSettings(model="j", base_url=f"{model.url}/v1", env_key="JUDGE_KEY", votes=2)
        return judge(rubrics, instruction="Do it.", diff="+x", tests={}, settings=settings)


def test_a_verdict_may_stand_among_prose_and_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = (
        '{"score": 0.25}',
        'Sure: {ok}\n```json\n{"score": 1, "reasoning": "it says {x}"}\n```\nDone {thanks}.',
        '[{"score": 1}]',
        '{"score": 1} and, to say it again, {"score": 1}',
    )
    assert [one.score for one in judged(monkeypatch, *answers)] == [0.25, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "answer",
    [
        "I cannot help with that.",
        '{"score": 1,',
        '{"score": "0.8"}',
        '{"score": 80}',
        '{"score": true}',
        '{"score": NaN}',
        '{"verdict": 1}',
        'The change holds {"score": 1}. Mine: {"score": 0}',
        '{"score": ' + "[" * 5000,
    ],
)
def test_what_is_no_verdict_is_missing(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    (found,) = judged(monkeypatch, answer)
    assert (found.score, found.agreement, found.facts()["missing"], weighted([found])) == (None, None, 2, None)
    assert all(vote.error for vote in found.votes)
