"""Verdicts are counted when they are shown, and what is shown after the plan grew is corrected for it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bakeoff
from bakeoff.errors import UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.looks import read_growths, read_looks
from bakeoff.records.run import Attempt
from bakeoff.results.editions import edition_results
from bakeoff.spec import registry
from bakeoff.spec.load import load_plan
from bakeoff.verdicts.answer import answer, as_json, as_text
from bakeoff.verdicts.comparison import Comparison, compare
from bakeoff.verdicts.observations import observe
from bakeoff.verdicts.question import Compare, Gate
from bakeoff.verdicts.questions.gate import GateAnswer, policy
from bakeoff.verdicts.sequential.looks import METHOD
from support import editions
from support.processes import Lab

Score = Callable[[str, str, int, int], float | None]
"""(arm, task, seed, rollout) to a score; None leaves the run planned."""


class Growing:
    """An edition whose plan grows between looks."""

    def __init__(self, place: Path, score: Score) -> None:
        self.place, self.score = place, score
        self.edition: Edition | None = None

    def grow(
        self, seeds: int, *, arms: tuple[str, ...] = ("old", "new"), tasks: tuple[str, ...] = (), rollouts: int = 1,
        analysis: str = "", first: int = 0,
    ) -> None:  # fmt: skip
        entries = "".join(f"[[arms]]\nname = '{arm}'\nparams = {{ arguments = ['{arm}'] }}\n" for arm in arms)
        entries += "".join(f"[[tasks]]\nname = '{task}'\n" for task in tasks)
        text = (
            f"name = 'grown'\nseeds = '{first}..{first + seeds - 1}'\nrollouts = {rollouts}\n"
            f"params = {{ command = ['true'] }}\n{entries}[analysis]\nmetric = 'score'\n{analysis}\n"
        )
        if self.edition is None:
            self.edition = editions.make_edition(self.place, "grown", lambda arm, seed: None, text=text, files=False)
        file = self.place / "grown.toml"
        file.write_text(text)
        plan = load_plan(file)
        self.edition.add_cells(plan.cells, registry.settings("command"))
        self.edition.add_runs(plan)
        session = self.edition.begin_session(editions.provenance(self.place), self.edition.planned())
        attempts = []
        for run in self.edition.runs(["planned"]):
            value = self.score(run.arm, run.task, run.seed, run.rollout)
            if value is not None:
                order = next(each for each in plan if each.run_id == run.run_id)._replace(position=run.position)
                attempts.append(Attempt.of(order, status="succeeded", metrics={"score": value}))
        if attempts:
            self.edition.finish(attempts, session)
        self.edition.end_session(session, "done")

    def look(self, **question: Any) -> Comparison:
        assert self.edition is not None
        return answer(edition_results(self.edition), Compare.ask(**question)).comparisons[0]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Callable[[Score], Growing]]:
    made: list[Growing] = []

    def make(score: Score) -> Growing:
        made.append(Growing(tmp_path, score))
        return made[-1]

    yield make


def normal(shift: float = 0.0, seed: int = 0) -> Score:
    def score(arm: str, task: str, number: int, rollout: int) -> float:
        key = [seed, number, rollout, *map(ord, f"{arm}/{task}")]
        return shift * (arm == "new") + float(np.random.default_rng(key).normal())

    return score


def test_every_verdict_that_is_shown_is_recorded_once(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(2.0))
    trial.grow(8)
    assert trial.edition is not None
    for _ in range(2):
        trial.look()
    results = edition_results(trial.edition)
    answer(results, Gate.ask(policy=policy({"metrics": {"score": {"max_regression": 1.0}}})))
    answer(results, Compare(), verb="report")
    looks = read_looks(trial.edition)
    assert [(look.verb, look.kind, look.planned, look.ended) for look in looks] == [
        ("compare", "verdict", 16, 16), ("gate", "verdict", 16, 16), ("report", "verdict", 16, 16),
    ]  # fmt: skip
    assert looks[0].verdicts == {"new on score": "better"}
    trial.grow(12)
    (growth,) = read_growths(trial.edition)
    assert (growth.before, growth.after) == (16, 24)


def test_a_plan_that_grows_before_its_runs_ended_is_judged_as_if_planned_at_once(
    growing: Callable[[Score], Growing],
) -> None:
    whole = normal(1.0)
    trial = growing(lambda arm, task, seed, rollout: None if seed == 7 else whole(arm, task, seed, rollout))
    trial.grow(8)
    trial.score = whole
    trial.grow(20)
    verdict = trial.look()
    assert (verdict.decision.method, verdict.units) == ("sign-flip", 20)


def test_growth_after_the_planned_runs_ended_is_growth_after_a_look(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(1.0))
    trial.grow(8)
    trial.grow(20)
    verdict = trial.look()
    assert (verdict.decision.method, verdict.units) == (METHOD, 20)


def test_growth_after_a_verdict_is_judged_by_the_e_process_from_the_first_unit(
    growing: Callable[[Score], Growing],
) -> None:
    trial = growing(normal(1.5))
    trial.grow(8)
    first = trial.look()
    trial.grow(20)
    assert trial.edition is not None
    shown = answer(edition_results(trial.edition), Compare())
    (later,) = shown.comparisons
    assert (first.decision.method, later.decision.method) == ("sign-flip", METHOD)
    d = np.array([normal(1.5)("new", "default", s, 0) - normal()("old", "default", s, 0) for s in range(20)])
    from bakeoff.stats.sequential import confidence_sequence, symmetric_log_e

    highest = float(max(path.max() for path in symmetric_log_e(d)))
    assert later.p == pytest.approx(min(1.0, 4.0 * math.exp(-highest)))
    assert (later.verdict == "better") == (highest >= math.log(80.0))
    expected = confidence_sequence(d, 0.025)
    assert later.interval is not None
    assert (later.interval.low, later.interval.high) == pytest.approx((expected.low, expected.high))
    looks = json.loads(as_json(shown))["settings"]["looks"]
    assert looks["seen"][0]["verdicts"] == {"new on score": first.verdict}
    assert looks["growths"][0]["after"] == 40 and looks["sentence"] in as_text(shown)
    assert "first verdict" in looks["sentence"] and "16 of now 40 runs: new on score better" in looks["sentence"]


def test_a_sequential_test_may_be_watched_while_it_grows(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(0.2))
    for seeds in (8, 12, 16):
        trial.grow(seeds, analysis="[sequential]\nmax_seeds = 40")
        assert trial.edition is not None
        shown = answer(edition_results(trial.edition), Compare())
        assert "before the plan grew" not in as_text(shown)
    assert {look.kind for look in read_looks(trial.edition)} == {"sequential"}


def test_units_count_in_the_order_in_which_they_were_planned(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(1.0))
    trial.grow(8, first=100)
    trial.look()
    trial.grow(108, first=0)
    late = trial.look()
    d = np.array([
        normal(1.0)("new", "default", s, 0) - normal()("old", "default", s, 0) for s in [*range(100, 108), *range(100)]
    ])  # fmt: skip
    from bakeoff.stats.sequential import symmetric_log_e

    assert late.p == pytest.approx(min(1.0, 4.0 * math.exp(-max(path.max() for path in symmetric_log_e(d)))))


def test_a_look_before_the_planned_end_counts_and_leaves_the_whole_of_alpha(
    growing: Callable[[Score], Growing],
) -> None:
    whole = normal(1.5)
    trial = growing(lambda arm, task, seed, rollout: None if seed == 7 else whole(arm, task, seed, rollout))
    trial.grow(8)
    assert trial.look().reason == "not_final"
    trial.score = whole
    trial.grow(20)
    late = trial.look()
    from bakeoff.stats.sequential import symmetric_log_e

    d = np.array([whole("new", "default", s, 0) - whole("old", "default", s, 0) for s in range(20)])
    assert late.decision.method == METHOD
    assert late.p == pytest.approx(min(1.0, 2.0 * math.exp(-max(path.max() for path in symmetric_log_e(d)))))


def test_a_look_at_two_seeds_costs_nothing(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(1.0))
    trial.grow(2)
    assert trial.look().reason == "too_few"
    trial.grow(12)
    assert trial.look().decision.method == "sign-flip"
    assert trial.edition is not None and read_looks(trial.edition)[0].kind == "too few"


def test_more_rollouts_of_seeds_that_were_seen_decide_nothing(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(2.0))
    trial.grow(8)
    trial.look()
    trial.grow(8, rollouts=3)
    again = trial.look()
    assert (again.verdict, again.reason) == ("undecided", "looked")
    assert "--fresh" in again.sentence


def test_more_seeds_of_tasks_that_were_seen_decide_nothing_but_more_tasks_do(
    growing: Callable[[Score], Growing],
) -> None:
    trial = growing(normal(3.0))
    tasks = tuple(f"task{number}" for number in range(20))
    trial.grow(2, tasks=tasks[:8])
    trial.look()
    trial.grow(2, tasks=tasks)
    later = trial.look()
    assert (later.decision.method, later.verdict, later.units) == (METHOD, "better", 20)
    trial.grow(4, tasks=tasks)
    assert trial.look().reason == "looked"


def test_every_arm_that_was_ever_planned_counts(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(1.0))
    trial.grow(10)
    trial.look()
    trial.grow(10, arms=("old", "new", "third", "fourth"))
    alone = trial.look(arms=("new",))
    assert alone.p is not None and alone.p_adjusted == pytest.approx(min(1.0, 3 * alone.p))


def test_designs_without_an_e_process_get_a_quarter_of_the_level_for_each_plan_seen(
    growing: Callable[[Score], Growing],
) -> None:
    trial = growing(normal(1.0))
    plain = []
    for seeds in (8, 12, 16):
        trial.grow(seeds)
        plain.append(trial.look(unpaired=True))
    levels = [each.interval.level for each in plain if each.interval is not None]
    assert levels == pytest.approx([0.95, 1 - 0.05 / 4, 1 - 0.05 / 16])
    for each, share in zip(plain, (1, 4, 16), strict=True):
        assert each.p is not None and each.p_adjusted == pytest.approx(min(1.0, share * each.p))
        assert each.decision_interval is not None
        assert each.decision_interval.excludes(0.0) == (each.p_adjusted <= 0.05)


def test_a_gate_after_growth_has_a_lower_level_and_refuses_units_that_were_seen(
    growing: Callable[[Score], Growing],
) -> None:
    trial = growing(normal())
    rules = policy({"metrics": {"score": {"max_regression": 1.0}}})

    def gate() -> GateAnswer:
        assert trial.edition is not None
        return answer(edition_results(trial.edition), Gate.ask(policy=rules))

    trial.grow(10)
    assert gate().checks[0].interval is not None
    trial.grow(14)
    again = gate()
    assert again.checks[0].interval is not None
    assert again.checks[0].interval.level == pytest.approx(1 - 2 * 0.05 / 4)
    assert "looks" in json.loads(as_json(again))["settings"]
    trial.grow(14, rollouts=2)
    assert gate().checks[0].reason == "looked" and gate().exit_code == 3


def test_a_registered_end_allows_any_number_of_looks(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(2.0))
    final = "final = 12"
    trial.grow(8, analysis=final)
    early = trial.look()
    assert (early.reason, early.decision.p) == ("not_final", None)
    assert "at 12 units, and there are 8" in early.sentence
    trial.grow(12, analysis=final)
    there = trial.look()
    assert (there.decision.method, there.units, there.verdict) == ("sign-flip", 12, "better")
    trial.grow(30, analysis=final)
    after = trial.look()
    assert (after.units, after.p, after.effect) == (12, there.p, there.effect)


def test_a_registered_end_cannot_be_asked_for_afterwards(growing: Callable[[Score], Growing], lab: Lab) -> None:
    with pytest.raises(UsageError, match="before the first result"):
        Compare.ask(final=12)
    lab.experiment(
        "name = 'trial'\nworkload = 'python'\nseeds = 3\nparams = { function = 'work:play' }\n"
        "[[arms]]\nname = 'old'\n[analysis]\nmetric = 'score'\n",
        work="def play(ctx):\n    return {'score': 1.0}\n",
    )
    lab.run()
    with pytest.raises(UsageError, match=r"analysis\.final: None became 12"):
        lab.run(overrides=("analysis.final=12", "seeds=12"))


def test_an_edition_that_cannot_be_written_still_answers_and_says_so(
    growing: Callable[[Score], Growing], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = growing(normal(2.0))
    trial.grow(8)
    assert trial.edition is not None
    monkeypatch.setattr("bakeoff.records.looks.os.access", lambda path, mode: False)
    shown = answer(edition_results(trial.edition), Compare())
    assert shown.comparisons[0].verdict == "better"
    assert "could not be recorded" in as_text(shown)
    assert read_looks(trial.edition) == ()


def test_an_older_database_gains_the_tables_at_the_first_look(growing: Callable[[Score], Growing]) -> None:
    trial = growing(normal(2.0))
    trial.grow(8)
    assert trial.edition is not None
    with trial.edition.database.transaction() as transaction:
        transaction.run("DROP TABLE looks")
        transaction.run("DROP TABLE growths")
        transaction.run("UPDATE meta SET value = '3' WHERE key = 'schema'")
    with closing(Edition.open(trial.edition.paths)) as old:
        assert old.database.version == 3 and read_looks(old) == () and read_growths(old) == ()
        assert answer(edition_results(old), Compare()).comparisons[0].verdict == "better"
    with closing(Edition.open(trial.edition.paths)) as new:
        assert [look.kind for look in read_looks(new)] == ["verdict"]


@pytest.mark.slow
def test_looks_through_the_command_line_and_the_python_interface_are_counted(lab: Lab) -> None:
    file = lab.experiment(
        "name = 'trial'\nworkload = 'python'\njobs = 2\nseeds = 8\nparams = { function = 'work:play' }\n"
        "[[arms]]\nname = 'old'\n[[arms]]\nname = 'new'\nparams = { shift = 1.5 }\n[analysis]\nmetric = 'score'\n",
        work="def play(ctx, shift=0.0):\n    return {'score': shift + float(ctx.rng('noise', own=True).normal())}\n",
    )
    lab.run()
    (first,) = bakeoff.compare(bakeoff.load(file, root=lab.root))
    assert first.decision.method == "sign-flip"
    file.write_text(file.read_text().replace("seeds = 8", "seeds = 20"))
    lab.run()
    shown = json.loads(lab.cli("compare", "trial", "--json", code=None).stdout)
    assert shown["comparisons"][0]["method"] == METHOD
    assert shown["settings"]["looks"]["recorded"]
    assert "stays on record" in lab.cli("compare", "trial", code=None).stdout


# -- the error rate over all looks


@pytest.mark.slow
def test_growing_the_plan_until_it_is_decided_keeps_the_error_rate(tmp_path: Path) -> None:
    """Five looks at 8, 12, ... 24 seeds: 11 % by a new test at each look. The bound is 6.5 %, and the noise of 100."""
    from bakeoff.records.looks import Look
    from bakeoff.results.table import Results, Row
    from bakeoff.spec.experiment import Analysis

    rng = np.random.default_rng(5)
    replicates, wrong = 100, 0
    for _ in range(replicates):
        values = rng.normal(size=(24, 2))
        looks: tuple[Look, ...] = ()
        for stage, seeds in enumerate((8, 12, 16, 20, 24)):
            rows = [
                Row(arm, seed=s, metrics={"score": float(values[s, i])}, stage=max(0, (s - 4) // 4))
                for s in range(seeds)
                for i, arm in enumerate(("old", "new"))
            ]
            results = Results(rows, "simulated", Analysis(metric="score"), looks=looks)
            (verdict,) = compare([observe(results, "score")], verdict_only=True)
            if verdict.verdict != "undecided":
                wrong += 1
                break
            looks = (*looks, Look(float(stage), "compare", "verdict", 2 * seeds, 2 * seeds, "", {}))
    assert wrong / replicates <= 0.065 + 3 * math.sqrt(0.065 * 0.935 / replicates)
