"""Many arms: losers leave, the rest goes on, and the last one is named; killed and resumed it decides the same."""

from __future__ import annotations

import json
import math
import os
import signal
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.results.editions import edition_results
from bakeoff.stats.sequential import Race, race, symmetric_log_e
from bakeoff.verdicts.sequential import evidence_path
from support.processes import Lab, eventually

WORK = """
import time
def play(ctx, shift=0.0, slow=0.0):
    time.sleep(slow)
    return {"score": shift + float(ctx.rng("noise", own=True).normal())}
"""


def experiment(lab: Lab, goal: str = "best", slow: float = 0.0, most: int = 24, **shifts: float) -> Path:
    arms = shifts or {"a": 0.0, "b": 0.0, "c": 3.0, "d": 0.5}
    entries = "".join(f"[[arms]]\nname = '{arm}'\nparams = {{ shift = {shift} }}\n" for arm, shift in arms.items())
    return lab.experiment(
        "name = 'trial'\nworkload = 'python'\njobs = 2\nretries = { infra = 0 }\n"
        f"params = {{ function = 'work:play', slow = {slow} }}\n{entries}"
        f"[analysis]\nmetric = 'score'\n[sequential]\nmax_seeds = {most}\nblock = 4\ngoal = '{goal}'\n",
        work=WORK,
    )


def followed(values: np.ndarray) -> Race:
    return race(values, values, [values.shape[1]] * values.shape[0])


def told(lab: Lab) -> dict[str, Any]:
    with closing(lab.edition()) as edition:
        found = evidence_path.report(edition_results(edition)).race
    assert found is not None
    return found.facts()


# -- the rule


@pytest.mark.parametrize(("arms", "spread"), [(2, 0.0), (5, 0.0), (5, 1.0)])
def test_the_best_arm_leaves_in_at_most_alpha_of_all_races(arms: int, spread: float) -> None:
    rng = np.random.default_rng(1)
    replicates, wrong = 300, 0
    for _ in range(replicates):
        values = rng.normal(size=(arms, 40))
        values[1:] -= spread
        found = followed(values)
        if spread:
            wrong += 0 not in found.survivors
        else:  # all are equal, so any arm that is named is named wrongly
            wrong += len(found.survivors) == 1
    assert wrong / replicates <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / replicates)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(1, 25), st.integers(0, 10_000))
def test_an_arm_leaves_exactly_where_another_one_that_is_in_reaches_the_bar(arms: int, pairs: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(arms, pairs)) + np.arange(arms)[:, None]
    found = followed(values)
    bar = math.log(2 * (arms - 1) / 0.05)
    for arm in range(arms):
        left = int(found.left_at[arm])
        others = [o for o in range(arms) if o != arm]
        for pair in range(1, (left or found.pairs) + 1):
            alive = [o for o in others if not found.left_at[o] or found.left_at[o] >= pair]
            reached = any(symmetric_log_e(values[o] - values[arm])[0][pair - 1] >= bar for o in alive)
            assert reached == (pair == left)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10_000), st.integers(1, 20))
def test_what_an_arm_does_after_it_left_changes_nothing(arms: int, seed: int, more: int) -> None:
    values = np.random.default_rng(seed).normal(size=(arms, 20)) + 2.0 * np.arange(arms)[:, None]
    found = followed(values)
    cut = values.copy()
    known = [20] * arms
    for arm in range(arms):
        if left := int(found.left_at[arm]):
            known[arm] = min(20, left + more)
            cut[arm, left:] = np.nan
    again = race(cut, cut, known)
    assert again.left_at.tolist() == found.left_at.tolist() and again.left_to.tolist() == found.left_to.tolist()


# -- the run


@pytest.mark.slow
def test_losers_get_no_more_seeds_and_the_best_arm_is_named(lab: Lab) -> None:
    experiment(lab, most=60, a=0.0, b=0.0, c=3.0, d=1.8)
    done = lab.cli("run", "trial.toml")
    assert "Best: c of 4 arms on score" in done.stdout and "at most 5 %" in done.stdout
    found = told(lab)
    runs = Counter(row["arm"] for row in lab.rows())
    assert found["best"] == "c" and runs["c"] == max(runs.values()) > min(runs.values())
    for runner in found["runners"]:
        if runner["left_at"] is not None:
            assert runs[runner["arm"]] == 4 * math.ceil(runner["left_at"] / 4)
    report = json.loads(lab.look("compare", "trial", "--json").stdout)["sequential"]
    assert report["race"]["best"] == "c" and report["decided"]
    assert all(each["control"] == "c" and each["threshold"] == 240.0 for each in report["comparisons"])
    assert "leave --control" in lab.look("compare", "trial", "--arms", "a", code=2).stderr


@pytest.mark.slow
def test_at_the_planned_end_the_arms_that_are_left_are_named(lab: Lab) -> None:
    experiment(lab, most=12, a=-4.0, b=0.0, c=0.0)
    done = lab.cli("run", "trial.toml", code=3)
    assert "Undecided: 2 of 3 arms are left on score at the planned end of 12 pairs: " in done.stdout
    assert done.stdout.count("missing") == 1 and "0 missing" in done.stdout
    again = json.loads(lab.cli("run", "trial.toml", "--max-seeds", "16", "--json", code=None).stdout)
    assert again["sequential"]["race"]["pairs"] == 16
    assert Counter(row["arm"] for row in lab.rows())["a"] < 16


@pytest.mark.slow
def test_killed_and_resumed_the_same_arms_leave_at_the_same_pairs(lab: Lab) -> None:
    experiment(lab, slow=0.05)
    lab.run(jobs=2)
    undisturbed = told(lab)
    lab.root = lab.place / "disturbed"
    for runs in (6, 20):
        process = lab.start("run", "trial.toml")
        eventually(partial(lambda n, p: lab.statuses()["succeeded"] >= n or p.poll() is not None, runs, process))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    lab.cli("run", "trial.toml")
    assert told(lab) == undisturbed
    with closing(lab.edition()) as edition:
        assert edition.complete


@pytest.mark.slow
def test_runs_that_an_arm_never_began_before_it_left_are_withdrawn(lab: Lab) -> None:
    """A budget ends the session inside a block; when it is raised, the arms that have left are not run."""
    file = experiment(lab, most=24, a=-6.0, b=0.0, c=0.0)
    file.write_text(f"{file.read_text()}[budget]\nruns = 28\n")
    lab.run(overrides=("sequential.block=12", "jobs=1"))
    assert lab.statuses()["planned"] > 0
    lab.run(overrides=("sequential.block=12", "jobs=1", "budget.runs=1000"))
    runs = Counter(row["arm"] for row in lab.rows())
    assert runs["a"] < 12 and runs["b"] == runs["c"] == 24
    assert lab.statuses()["planned"] == 0


@pytest.mark.slow
def test_with_a_control_an_arm_leaves_when_it_is_decided_against_it(lab: Lab) -> None:
    experiment(lab, goal="control", a=0.0, b=4.0, c=0.0)
    lab.cli("run", "trial.toml", code=3)
    runs = Counter(row["arm"] for row in lab.rows())
    assert runs["a"] == runs["c"] > runs["b"]
    with closing(lab.edition()) as edition:
        found = {each.candidate: each for each in evidence_path.report(edition_results(edition)).comparisons}
    assert found["b"].verdict == "better" and found["b"].units == runs["b"] and found["c"].units == runs["c"]


@pytest.mark.slow
def test_the_goal_is_fixed_once_it_has_begun_and_takes_one_metric(lab: Lab) -> None:
    experiment(lab, most=8)
    with pytest.raises(UsageError, match="needs one metric"):
        lab.run(overrides=("analysis.primary=['cost']",))
    lab.run()
    with pytest.raises(UsageError, match=r"sequential\.goal: 'best' became 'control'"):
        lab.run(overrides=("sequential.goal=control",))
