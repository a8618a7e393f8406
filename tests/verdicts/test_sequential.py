"""Running until it is decided: the verdicts are valid, and the path is the same whatever happens on the way."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakeoff.engine.node.workers import WorkerNode
from bakeoff.errors import UsageError
from bakeoff.records.run import Attempt
from bakeoff.results.editions import edition_results
from bakeoff.spec.experiment import Analysis, Sequential
from bakeoff.verdicts.question import Question
from bakeoff.verdicts.sequential import evidence_path
from bakeoff.verdicts.sequential.evidence_path import SequentialReport, path_of, sequential_rule
from support import editions
from support.processes import Lab, eventually

WORK = """
import time
def play(ctx, shift=0.0, slow=0.0):
    time.sleep(slow * float(ctx.rng("pace", own=True).random()))
    return {"score": shift + float(ctx.rng("noise", own=True).normal())}
"""
FILE = """
name = "trial"
workload = "python"
jobs = 2
retries = {{ infra = 0 }}
params = {{ function = "work:play", slow = {slow} }}
[[arms]]
name = "old"
[[arms]]
name = "new"
params = {{ shift = {shift} }}
[analysis]
metric = "score"
{analysis}
[sequential]
max_seeds = {most}
block = 4
"""


def experiment(lab: Lab, **changes: Any) -> Path:
    values = {"slow": 0.0, "shift": 1.5, "analysis": "", "most": 40, **changes}
    return lab.experiment(FILE.format(**values), work=WORK)


def told(lab: Lab) -> dict[str, Any]:
    """What the sequential test says, without what depends on when and where."""
    with closing(lab.edition()) as edition:
        return summary(evidence_path.report(edition_results(edition)))


def summary(found: SequentialReport) -> dict[str, Any]:
    (one,) = found.comparisons
    return {
        "verdict": one.verdict,
        "at": path_of(one).decided_at,
        "pairs": one.units,
        "differences": path_of(one).differences.tolist(),
        "e": path_of(one).paths.better.tolist(),
        "interval": (one.interval.low, one.interval.high),
    }


# -- validity

LAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "heavy tails": lambda rng, shape: rng.standard_t(2, size=shape),
    "scores in quarters": lambda rng, shape: rng.integers(0, 5, shape) / 4,
    "lognormal": lambda rng, shape: rng.lognormal(sigma=1.0, size=shape),
    "successes": lambda rng, shape: (rng.random(shape) < 0.3).astype(float),
}


@pytest.mark.parametrize("test", ["symmetric", "betting"])
@pytest.mark.parametrize("law", LAWS)
def test_two_equal_arms_are_told_apart_in_at_most_alpha_of_all_experiments(law: str, test: str) -> None:
    replicates, alpha = 2_000, 0.05
    rng = np.random.default_rng(1)
    draw = LAWS[law]
    d = draw(rng, (replicates, 60)) - draw(rng, (replicates, 60))
    width = float(np.abs(d).max()) + 1e-9
    analysis = Analysis(metric="score", alpha=alpha, bounds=(0.0, width))
    rule = sequential_rule(analysis, Sequential(max_seeds=60, test=test), 1)
    share = float((rule.stops(d)[1] > 0).mean())
    assert share <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / replicates)


def test_a_family_of_three_arms_has_one_error_rate() -> None:
    replicates, alpha, comparisons = 2_000, 0.05, 3
    rng = np.random.default_rng(2)
    control = rng.normal(size=(replicates, 60))
    rule = sequential_rule(Analysis(metric="score", alpha=alpha), Sequential(max_seeds=60), comparisons)
    wrong = np.zeros(replicates, dtype=bool)
    for _ in range(comparisons):
        wrong |= rule.stops(rng.normal(size=(replicates, 60)) - control)[1] > 0
    assert float(wrong.mean()) <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / replicates)


SEEN = """
name = "{name}"
seeds = 12
[params]
command = ["true"]
[[arms]]
name = "old"
[[arms]]
name = "new"
params = {{ arguments = ["-x"] }}
[analysis]
metric = "score"
{analysis}
[sequential]
max_seeds = {most}
block = 4
"""


def seen(place: Path, outcome: Callable[[str, int], Any], analysis: str = "", most: int = 12) -> SequentialReport:
    """The report on an edition in which every run became what `outcome` says: a score, a status, or None."""

    def became(arm: str, seed: int) -> dict[str, Any] | None:
        value = outcome(arm, seed)
        if value is None or isinstance(value, str):
            return value and {"status": value}
        return {"status": "succeeded", "metrics": {"score": float(value)}}

    text = SEEN.format(name="seen", analysis=analysis, most=most)
    with closing(editions.make_edition(place, "seen", became, text=text, files=False)) as edition:
        return evidence_path.report(edition_results(edition))


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-3, 9), min_size=24, max_size=24), st.sampled_from(["maximize", "minimize"]))
def test_the_confidence_sequence_excludes_zero_exactly_when_p_is_at_most_alpha(
    tmp_path: Path, scores: list[int], direction: str
) -> None:
    (one,) = seen(
        tmp_path, lambda arm, seed: scores[2 * seed + (arm == "new")], f"direction = '{direction}'"
    ).comparisons
    assert one.interval.excludes(0.0) == (one.p_adjusted <= 0.05)
    if one.verdict in ("better", "worse"):
        assert one.effect is not None
        assert one.interval.excludes(0.0)
        assert (one.effect > 0) == ((one.verdict == "better") == (direction == "maximize"))


@pytest.mark.slow
def test_asking_for_one_arm_of_a_family_does_not_lower_its_threshold(lab: Lab) -> None:
    file = experiment(lab, most=8)
    file.write_text(file.read_text().replace("[analysis]", "[[arms]]\nname = 'third'\n[analysis]"))
    lab.run()
    with closing(lab.edition()) as edition:
        assert path_of(evidence_path.report(edition_results(edition)).comparisons[0]).threshold == 80.0
        (one,) = evidence_path.report(edition_results(edition), question=Question(arms=("new",))).comparisons
    assert path_of(one).threshold == 80.0


# -- which pairs are looked at


def test_pairs_count_in_plan_order_and_only_up_to_the_first_seed_that_has_not_ended(tmp_path: Path) -> None:
    (one,) = seen(tmp_path, lambda arm, seed: None if (arm, seed) == ("old", 5) else seed + (arm == "new")).comparisons
    assert path_of(one).seeds == (0, 1, 2, 3, 4)


def test_copies_on_every_seed_decide_nothing(tmp_path: Path) -> None:
    (one,) = seen(tmp_path, lambda arm, seed: 2.5 if arm == "new" else 1.5).comparisons
    assert (one.verdict, one.reason) == ("undecided", "seed_has_no_effect")


def test_a_failed_run_counts_its_failure_score_and_without_one_the_call_is_wrong(tmp_path: Path) -> None:
    def outcome(arm: str, seed: int) -> Any:
        return "failed" if (arm, seed) == ("new", 3) else seed + 2.0 * (arm == "new")

    (one,) = seen(tmp_path, outcome, "failure_score = 1.0").comparisons
    assert path_of(one).differences[3] == pytest.approx(1.0 - 3.0)
    assert one.failed == 1
    with pytest.raises(UsageError, match="failure_score"):
        seen(tmp_path, outcome)


def test_a_lost_run_counts_at_the_end_that_speaks_against_the_verdict(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=24)

    def outcome(lost: int) -> Callable[[str, int], Any]:
        return lambda arm, seed: (
            "infra_error" if arm == "new" and seed < lost else 4.0 * (arm == "new") + noise[2 * seed + (arm == "new")]
        )

    whole, holed, shot = (seen(tmp_path, outcome(lost), "bounds = [-10, 10]").comparisons[0] for lost in (0, 1, 3))
    assert whole.verdict == "better"
    assert holed.missing == 1
    assert path_of(holed).paths.better[-1] < path_of(whole).paths.better[-1]
    assert (shot.verdict, shot.reason) == ("undecided", "missing")
    assert np.isnan(path_of(shot).differences[:3]).all()


# -- the run


@pytest.mark.slow
def test_it_stops_when_it_has_decided_and_the_edition_remembers_how(lab: Lab) -> None:
    experiment(lab)
    lab.run()
    found = told(lab)
    assert found["verdict"] == "better"
    assert found["pairs"] % 4 == 0
    assert found["at"] <= found["pairs"] < 40
    with closing(lab.edition()) as edition:
        spec = edition.facts()["spec"]
    assert spec["sequential"] == {
        "max_tasks": None, "max_seeds": 40, "block": 4, "test": "symmetric", "goal": "control", "futility": 0.0,
    }  # fmt: skip
    assert spec["seeds"] == list(range(40))


@pytest.mark.slow
def test_the_order_in_which_runs_finish_does_not_matter(lab: Lab) -> None:
    experiment(lab, slow=0.02)
    lab.run(jobs=1)
    alone = told(lab)
    lab.run(jobs=4, fresh=True)
    assert told(lab) == alone


def _has_done(lab: Lab, process: subprocess.Popen[str], runs: int) -> bool:
    return lab.statuses()["succeeded"] >= runs or process.poll() is not None


@pytest.mark.slow
def test_killed_and_started_again_it_goes_the_same_way(lab: Lab) -> None:
    experiment(lab, slow=0.08, shift=1.2)
    lab.run(jobs=2)
    undisturbed = told(lab)
    lab.root = lab.place / "disturbed"
    for runs in (2, 10):
        process = lab.start("run", "trial.toml")
        eventually(partial(_has_done, lab, process, runs))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    lab.cli("run", "trial.toml")
    assert told(lab) == undisturbed


@pytest.mark.slow
def test_a_run_that_was_lost_is_tried_again_with_the_next_block(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment(lab, shift=1.5)
    start, began = WorkerNode.start, set[int]()

    def start_or_fail(node: WorkerNode, attempt: Attempt) -> None:
        """The machine is away until the second block begins."""
        began.add(attempt.seed)
        if (attempt.arm, attempt.seed) == ("new", 1) and max(began) < 4:
            node.refuse(attempt, OSError("the machine is away"))
        else:
            start(node, attempt)

    monkeypatch.setattr(WorkerNode, "start", start_or_fail)
    lab.run(jobs=1)
    assert lab.statuses()["infra_error"] == 0
    run_id = next(row["run_id"] for row in lab.of_arm("new") if row["seed"] == 1)
    assert [attempt["status"] for attempt in lab.attempts(run_id)][-2:] == ["infra_error", "succeeded"]
    assert not np.isnan(told(lab)["differences"]).any()


@pytest.mark.slow
def test_at_the_planned_end_it_is_undecided_and_more_seeds_may_be_asked_for(lab: Lab) -> None:
    experiment(lab, shift=0.0, most=8)
    first = json.loads(lab.cli("run", "trial.toml", "--json", code=3).stdout)
    assert first["sequential"]["comparisons"][0]["reason"] in ("max_seeds", "futility")
    second = json.loads(lab.cli("run", "trial.toml", "--max-seeds", "16", "--json", code=3).stdout)
    assert first["edition"] == second["edition"]
    assert second["sequential"]["max_seeds"] == 16
    before, after = (run["sequential"]["comparisons"][0]["e_better"] for run in (first, second))
    assert len(after) > len(before)
    assert after[: len(before)] == before


@pytest.mark.slow
def test_futility_stops_early_when_it_was_asked_for(lab: Lab) -> None:
    experiment(lab, shift=0.0, most=40)
    lab.run(overrides=("sequential.futility=0.9",))
    with closing(lab.edition()) as edition:
        (one,) = evidence_path.report(edition_results(edition)).comparisons
    assert (one.verdict, one.reason) == ("undecided", "futility")
    assert one.units < 40


@pytest.mark.slow
def test_the_command_says_where_the_evidence_is_and_ends_with_0_when_decided(lab: Lab) -> None:
    experiment(lab)
    done = lab.cli("run", "trial.toml", "--until-decided")
    assert "of at most 40 pairs: new e(better) = " in done.stderr
    assert "Better: new against old on score" in done.stdout
    again = lab.cli("run", "trial.toml", "--until-decided")
    assert "Better: new against old on score" in again.stdout


@pytest.mark.slow
def test_interrupted_it_ends_with_130_and_goes_on_later(lab: Lab) -> None:
    experiment(lab, slow=0.3, shift=1.0)
    process = lab.start("run", "trial.toml")
    eventually(lambda: lab.statuses()["succeeded"] >= 2)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "continues from here" in stdout


# -- what cannot be


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("sequential.max_seeds=6",), "7 or more"),
        (("analysis.metric=",), "metric"),
        (("analysis.relative_margin=0.1",), "metric's unit"),
        (("sequential.test=betting",), "analysis.bounds"),
        (("tasks=[{name='a'}, {name='b'}]",), "analysis.tasks = 'fixed'"),
        (("arms=[{name='alone'}]",), "one arm"),
    ],
)
def test_what_could_never_give_a_valid_verdict_is_refused_before_anything_runs(
    lab: Lab, overrides: tuple[str, ...], message: str
) -> None:
    file = experiment(lab)
    if overrides == ("analysis.metric=",):
        file.write_text(file.read_text().replace('metric = "score"', ""))
        overrides = ()
    with pytest.raises(UsageError, match=message):
        lab.run(overrides=overrides)
    assert not lab.root.exists()


def test_runs_cannot_be_chosen_or_repeated_by_their_outcome(lab: Lab) -> None:
    experiment(lab)
    with pytest.raises(UsageError, match="--only and --retry-failed"):
        lab.run(retry_failed=True)


@pytest.mark.slow
def test_the_rule_is_fixed_once_it_has_begun(lab: Lab) -> None:
    experiment(lab)
    lab.run()
    with pytest.raises(UsageError, match=r"analysis\.alpha: 0\.05 became 0\.2"):
        lab.run(overrides=("analysis.alpha=0.2",))


@pytest.mark.slow
def test_fixed_and_sequential_editions_do_not_become_each_other(lab: Lab) -> None:
    file = experiment(lab)
    whole = file.read_text()
    lab.run()
    file.write_text(whole.partition("[sequential]")[0])
    with pytest.raises(UsageError, match="--until-decided"):
        lab.run()
    lab.run(fresh=True)
    file.write_text(whole)
    with pytest.raises(UsageError, match="fixed number of runs"):
        lab.run()


@pytest.mark.slow
def test_compare_reports_the_confidence_sequence_and_no_test_of_fixed_size(lab: Lab) -> None:
    experiment(lab)
    lab.run()
    found = json.loads(lab.look("compare", "trial", "--json").stdout)
    assert "comparisons" not in found
    (one,) = found["sequential"]["comparisons"]
    assert (one["verdict"], one["test"]) == ("better", "symmetric e-process")
    assert "fixed when it began" in lab.look("compare", "trial", "--alpha", "0.2", code=2).stderr


@pytest.mark.slow
def test_seeds_on_fixed_tasks_are_averaged_into_one_pair(lab: Lab) -> None:
    experiment(lab, analysis="tasks = 'fixed'")
    lab.run(overrides=("tasks=[{name='a'}, {name='b'}]",))
    with closing(lab.edition()) as edition:
        (one,) = evidence_path.report(edition_results(edition)).comparisons
        values = {(r["arm"], r["task"], r["seed"]): r["score"] for r in lab.rows()}
    expected = np.mean([values["new", task, 0] - values["old", task, 0] for task in "ab"])
    assert path_of(one).differences[0] == pytest.approx(expected)
    assert "on these 2 tasks only" in one.population


def test_an_edition_without_any_pair_yet_says_so(tmp_path: Path) -> None:
    found = seen(tmp_path, lambda arm, seed: None)
    assert not found.stopped and not found.decided
    assert found.line() == "no pair yet"


def test_a_failure_before_any_success_is_no_pair_yet_and_no_wrong_metric(tmp_path: Path) -> None:
    found = seen(tmp_path, lambda arm, seed: "failed" if (arm, seed) == ("new", 0) else None, "failure_score = 0.0")
    assert not found.stopped and found.line() == "no pair yet"
    with pytest.raises(UsageError, match="no run reports 'score'"):
        seen(tmp_path, lambda arm, seed: "failed", "failure_score = 0.0")


@pytest.mark.slow
def test_stopped_at_a_first_run_that_failed_it_ends_with_1_and_goes_on_later(lab: Lab) -> None:
    experiment(lab, analysis="failure_score = -9.0")
    work = lab.write("work.py", 'def play(ctx, **params):\n    raise ValueError("broken")\n')
    stopped = lab.cli("run", "trial.toml", "--fail-fast", "-j", "1", code=1)
    assert "0 succeeded, 1 failed, 7 missing" in stopped.stdout
    work.write_text(WORK)
    done = lab.cli("run", "trial.toml", "--allow-code-change", code=None)
    assert done.returncode in (0, 3), "decided or not"
    assert "new against old on score" in done.stdout
    assert "--retry-failed" not in done.stdout, "a sequential test refuses it"


def test_an_edition_with_a_fixed_number_of_runs_has_no_path_to_follow(tmp_path: Path) -> None:
    with closing(editions.make_edition(tmp_path, files=False)) as edition:
        assert not edition_results(edition).is_sequential
        with pytest.raises(UsageError, match="fixed number of runs"):
            evidence_path.report(edition_results(edition))
