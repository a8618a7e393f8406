"""A judge's answers become votes; an answer without a score is a missing vote, and never 0 or a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.workloads.tasks.proxy.providers import Provider
from bakeoff.workloads.tasks.results import weighted
from bakeoff.workloads.tasks.schema import Rubric
from bakeoff.workloads.tasks.scoring import Judgement, JudgeSettings, judge
from workloads.tasks.scripted import Failure, ScriptedModel, say


def judged(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[Judgement]:
    """One rubric for each answer, two votes each."""
    monkeypatch.setenv("JUDGE_KEY", "k")
    rubrics = [Rubric(id=str(number), criterion=f"criterion {number}.", weight=1.0) for number in range(len(answers))]
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
        '<think>Is it {"score": 0}? No.</think>{"score": 0.5}',
    )
    assert [judgement.score for judgement in judged(monkeypatch, *answers)] == [0.25, 1.0, 1.0, 1.0, 0.5]


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
def test_an_answer_without_a_verdict_is_a_missing_vote(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    (judgement,) = judged(monkeypatch, answer)
    assert (judgement.score, judgement.agreement, weighted([(judgement.score, 1.0)])) == (None, None, None)
    assert judgement.facts()["missing"] == 2
    assert all(vote.error for vote in judgement.votes)


def failing(failures: list[Failure], env_key: str = "") -> tuple[Judgement, list[str | None]]:
    """One vote from an endpoint that fails first, and the keys that it was given."""
    with ScriptedModel([say('{"score": 1}')], failures=failures, side=None) as model:
        settings = JudgeSettings(model="j", base_url=f"{model.url}/v1", env_key=env_key, votes=1)
        (judgement,) = judge(
            [Rubric(id="r", criterion="It works.", weight=1.0)],
            instruction="Do.",
            diff="+x",
            tests={},
            settings=settings,
        )
        return judgement, [asked.headers.get("authorization") for asked in model.requests]


def test_a_busy_endpoint_is_waited_for_as_long_as_it_says() -> None:
    judgement, asked = failing([Failure(429, headers={"retry-after": "0"})] * 3)
    assert (judgement.score, asked) == (1.0, [None] * 4)


def test_a_refusal_is_reported_and_not_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("JUDGE_KEY=the-key-in-a-file\n")
    monkeypatch.chdir(tmp_path)
    refused = Failure(401, {"error": {"message": "the-key-in-a-file is not a key"}})
    judgement, asked = failing([refused] * 4, "JUDGE_KEY")
    assert asked == ["Bearer the-key-in-a-file"]
    assert "401" in str(judgement.votes[0].error) and "is not a key" in str(judgement.votes[0].error)
    assert "the-key-in-a-file" not in str(judgement.votes[0].error)


def test_a_judge_shares_the_rates_of_the_provider_at_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path))
    rubrics = [Rubric(id="a", criterion="", weight=1)]
    with ScriptedModel([], side=say('{"score": 1}')) as model:
        settings = JudgeSettings(model="m", base_url=f"{model.url}/v1/", env_key="", votes=3)
        provider = Provider(base_url=f"{model.url}/v1", requests_per_minute=100)
        other = Provider(base_url=f"{model.url}/v1", env_key="ANOTHER_KEY", requests_per_minute=100)
        for providers, counted in (({"x": provider}, 3), ({"x": other}, 3)):
            judge(rubrics, instruction="", diff="+x", tests={}, settings=settings, providers=providers)
            files = list((tmp_path / "rates").iterdir())
            assert sum(file.stat().st_size for file in files) == counted * 24  # one entry for each call
        assert len(model.requests) == 6
