"""A verified rollout with its scores, and the files that it leaves for people and programs.

| file | content |
|---|---|
| `evaluation_results.json` | everything, with `total_score` at the top |
| `scoring_results.md` | scores, failed tests, tokens and cost, to read |
| `artifacts/diff.patch`, `artifacts/diff-N.patch` for each of several steps, `artifacts/notes.md`, `artifacts/repo_info.json` | the work |
| `logs/eval.log` | what the verifier did, in order |

`evaluate` asks the judge and runs custom metrics; `settle` writes the files and decides what the run came to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.records.layout import atomic_write
from bakeoff.sandbox.base import Sandbox
from bakeoff.spec.workload import SELF_REPORTED, Outcome
from bakeoff.workloads.tasks.attempt import TaskAttempt, repeated
from bakeoff.workloads.tasks.causes import Reason
from bakeoff.workloads.tasks.diff import lines_changed, readable, touched
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.proxy.providers import Provider
from bakeoff.workloads.tasks.proxy.records import Totals
from bakeoff.workloads.tasks.results import Verification, weighted
from bakeoff.workloads.tasks.scoring import Judgement, JudgeSettings, Measured, judge, measure

RESULTS, SCORING, LOG = "evaluation_results.json", "scoring_results.md", "logs/eval.log"
DIFF = "artifacts/diff.patch"
STEP_DIFF = "artifacts/diff-{}.patch"
"""What changed in one step, counted from 1; only where several were reached."""
NOTHING_SCORES = (
    "nothing scores this task\n  fix: add test scripts for a rubric with a weight, or judge = { model = ... }"
)
BROKEN = ("verification", "judge")
"""Reasons of a failure that `bakeoff eval` may remove: the recorded work was not scored."""
_LONGEST_OUTPUT = 20_000
SCORES = ("total_score", "passed", "tampered", "tests", "tests_passed", "judge_score", "judge_agreement")
"""Metrics that come from the tests, or from a judge who is told what the tests say."""
Metrics = dict[str, float | int | str | None]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed."""

    reason: Reason
    text: str

    def outcome(self, metrics: Metrics) -> Outcome:
        """The outcome of a run that failed for this reason; its metrics say the reason, too."""
        return Outcome({**metrics, "failure": self.reason}, "failed", f"{self.reason}: {self.text}")


def is_isolated(task: Task, sandbox: str) -> bool:
    """Whether tests of the task score work that never runs beside them. Without a sandbox everything runs together."""
    return task.isolated and sandbox != "none"


def spent(used: Totals) -> Metrics:
    """Metrics of what a run used, and how much of it is estimated.

    Without a model call, tokens and cost are unknown (an agent without a proxy), not 0. A call that got no answer may
    have been paid, too.
    """
    known = used.calls or used.tokens
    return {
        "tokens": used.tokens if known else None,
        "tokens_estimated": used.tokens_estimated or None,
        "input_tokens": used.input_tokens if known else None,
        "input_tokens_cached": used.cached_tokens or None,
        "input_tokens_estimated": used.input_estimated or None,
        "output_tokens": used.output_tokens if known else None,
        "output_tokens_estimated": used.output_estimated or None,
        "cost": used.cost,
        "cost_estimated": used.cost_estimated or None,
        "cost_uncached": used.cost_uncached if used.cached_tokens else None,
    }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A verified rollout with the judge's scores and custom metrics."""

    task: Task
    run: Mapping[str, Any]
    """run_id, agent, agent_version, model, sandbox, seed, rollout, task_digest."""
    attempt: TaskAttempt
    totals: Totals
    judged: tuple[Judgement, ...] = ()
    measured: Measured = field(default_factory=Measured)

    @property
    def verification(self) -> Verification:
        return self.attempt.verification

    @property
    def total_score(self) -> float | None:
        """The score of the tests; the judge's if there are no tests."""
        score = self.verification.score
        return score if score is not None else self.judge_score

    @property
    def judge_score(self) -> float | None:
        """The weighted mean of the judge's scores; None if no rubric has one."""
        return weighted((judgement.score, judgement.rubric.weight) for judgement in self.judged)

    @property
    def diff_lines(self) -> int | None:
        diff = self.attempt.diff
        return None if diff is None else lines_changed(diff)

    @property
    def seconds(self) -> float:
        """How long the agent worked, over all steps."""
        return sum(result.seconds for result in self.attempt.agent)

    def standard(self) -> Metrics:
        """Metrics that every run has; None if this run has no value."""
        verification, used = self.verification, self.totals
        cases = verification.cases
        agreements = [judgement.agreement for judgement in self.judged if judgement.agreement is not None]
        metrics: Metrics = {
            "total_score": self.total_score,
            "passed": int(verification.passed) if verification.score is not None else None,
            "tampered": int(bool(verification.tampered)) if verification.score is not None else None,
            "honeypot": None if verification.honeypots is None else int(bool(verification.honeypots)),
            "honeypots_hit": None if verification.honeypots is None else len(verification.honeypots),
            "agent_status": self.attempt.agent[-1].status if self.attempt.agent else "ok",
            "seconds": self.seconds,
            "verify_seconds": verification.seconds,
            "tests": len(cases) or None,
            "tests_passed": sum(case.outcome == "passed" for case in cases) if cases else None,
            "diff_lines": self.diff_lines,
            **spent(used),
            "model_calls": used.calls,
            "tool_calls": used.tool_calls,
            "budget_hit": used.limit,
            "limits_met": ", ".join(used.limits_met) or None,
            "denied": ", ".join(used.denied) or None,
            "judge_score": self.judge_score,
            "judge_agreement": sum(agreements) / len(agreements) if agreements else None,
        }
        return metrics | {f"reward_{name}": value for name, value in verification.rewards.items() if name != "reward"}

    @property
    def failure(self) -> Failure | None:
        """Why the run failed; None for one that is scored. It does not depend on the score."""
        verification = self.verification
        if self.totals.broken is not None:
            return Failure("provider", self.totals.broken)
        if verification.status != "scored":
            return Failure(
                "verification" if verification.status == "error" else verification.status, verification.error
            )
        if self.total_score is None and self.judged:
            errors = (vote.error for judgement in self.judged for vote in judgement.votes)
            return Failure("judge", f"the judge gave no score: {next(errors, '')}")
        return None

    def metrics(self) -> Metrics:
        """The run's metrics in the results table."""
        own = {SELF_REPORTED: ", ".join(self.self_reported) or None}
        values = self.standard() | self.measured.values | own
        return {name: value for name, value in values.items() if value is not None}

    @property
    def isolated(self) -> bool:
        """Whether the work had no part in the sandbox of the tests that scored it."""
        return is_isolated(self.task, str(self.run["sandbox"]))

    @property
    def self_reported(self) -> list[str]:
        """Metrics that the work could have written: everything that is measured where it runs.

        This goes by how the run was scored, whatever was noticed. What a judge or a function of the experiment makes of
        the tests' results is as good as these.
        """
        names = set(self.measured.beside_the_work)
        if self.verification.score is not None and not self.isolated:
            names |= {*SCORES, *self.measured.values, *(f"reward_{name}" for name in self.verification.rewards)}
        if self.task.repository is None:  # honeypots look at the sandbox that the agent left
            names |= {"honeypot", "honeypots_hit"}
        known = self.standard() | self.measured.values
        return [name for name, value in known.items() if name in names and value is not None]

    def facts(self) -> dict[str, Any]:
        """The content of evaluation_results.json."""
        verification, used, agent = self.verification, self.totals, self.attempt.agent
        score = self.total_score
        rubrics = {
            rubric.id: {
                "criterion": rubric.criterion,
                "weight": rubric.weight,
                "score": rubric.score,
                "max_score": 1.0,
                "weighted_score": rubric.score * rubric.weight if rubric.score is not None else None,
                "test_count": rubric.tests,
                "tests_passed": rubric.passed,
            }
            for rubric in verification.rubrics
        }
        scripts = {
            script.path: {
                "success": script.passed,
                "exit_code": script.code,
                "timed_out": script.timed_out,
                "seconds": script.seconds,
                "cases": {
                    case.name: {"outcome": case.outcome, "seconds": case.seconds, "message": case.message}
                    for case in script.cases
                },
                "output": script.output[-_LONGEST_OUTPUT:],
            }
            for script in verification.scripts
        }
        facts: dict[str, Any] = {
            "task_id": self.task.id,
            **self.run,
            "instruction": "\n\n".join(step.instruction for step in self.task.steps),
            "total_score": score,
            "passed": verification.passed,
            "status": verification.status,
            "error": verification.error or None,
            "evaluation": {
                "rubrics": rubrics,
                "untested": list(verification.untested),
                "total_score": score,
                "max_score": 1.0,
            },
            "isolated": self.isolated,
            "self_reported": self.self_reported,
            "test_results": scripts,
            "rewards": dict(verification.rewards),
            "steps": [asdict(step) for step in verification.steps],
            "discounted": list(verification.discounted),
            "tampered": list(verification.tampered),
            "honeypots": {pot.id: pot.id in (verification.honeypots or ()) for pot in self.task.honeypots},
            "changed_programs": list(
                dict.fromkeys(name for step in verification.steps for name in step.changed_programs)
            ),
            "left_out": [entry.path for entry in self.attempt.left_out],
            "diff_lines": self.diff_lines,
            "agent_metrics": {
                "status": [result.status for result in agent],
                "exit_code": [result.code for result in agent],
                "tokens_total": used.tokens,
                "tokens_input": used.input_tokens,
                "tokens_cached": used.cached_tokens,
                "tokens_output": used.output_tokens,
                "tokens_estimated": used.tokens_estimated,
                "money_estimated_usd": used.cost_estimated,
                "tool_calls_total": used.tool_calls,
                "model_calls": used.calls,
                "time_taken_seconds": self.seconds,
                "money_spent_usd": used.cost,
                "budget_hit": used.limit,
                "limits_met": list(used.limits_met),
                "denied": list(used.denied),
            },
            "custom_metrics": {"values": self.measured.values, "missing": self.measured.problems},
        }
        if self.judged:
            facts["lm_evaluation"] = {
                "weighted_score": self.judge_score,
                "rubric_scores": [judgement.facts() for judgement in self.judged],
            }
        return facts


def evaluate(
    task: Task,
    run: Mapping[str, Any],
    attempt: TaskAttempt,
    totals: Totals,
    sandbox: Sandbox,
    *,
    judge_settings: JudgeSettings | None = None,
    metrics: list[str] | None = None,
    providers: Mapping[str, Provider] | None = None,
) -> Evaluation:
    """Score a verified attempt by the judge and by custom metrics.

    `run` are the facts that `Evaluation.run` lists, `metrics` names of functions, `providers` those of the
    experiment, whose rates the judge shares. A rollout that was not scored by its tests is not judged or measured.
    """
    verification = attempt.verification
    if verification.status != "scored":  # a judge must not score what the verifier could not
        return Evaluation(task, run, attempt, totals)
    diff = attempt.diff or b""
    judged: tuple[Judgement, ...] = ()
    if judge_settings is not None and task.rubrics:
        tests = {case.name: case.outcome == "passed" for case in verification.cases}
        settings = judge_settings

        def ask() -> tuple[Judgement, ...]:
            return tuple(
                judge(
                    task.rubrics,
                    instruction=task.first.instruction,
                    diff=readable(diff),
                    tests=tests,
                    settings=settings,
                    providers=providers,
                )
            )

        # Without tests the judge alone scores the run, so no vote at all is worth asking again.
        judged = repeated(ask, lambda judged: verification.score is None and not any(one.scores for one in judged))
    evaluation = Evaluation(task, run, attempt, totals, judged)
    rewards = dict(verification.rewards)
    # What custom metrics get: everything measured so far, so that they can build on it.
    facts = {**run, **evaluation.metrics(), "diff": diff.decode(errors="replace"), "rewards": rewards}
    taken = {*evaluation.standard(), SELF_REPORTED, "failure"}
    try:
        measured = repeated(lambda: measure(task, metrics or [], facts, diff, sandbox, taken))
    except Exception as error:  # a missing metric fails no run
        measured = Measured(problems={"metrics": f"{type(error).__name__}: {error}"})
    return Evaluation(task, run, attempt, totals, judged, measured)


def settle(evaluation: Evaluation, directory: Path) -> Outcome:
    """Write the rollout's files into `directory`, then say what the run came to.

    What broke once the agent was at work is a failure, whatever the score, and never a reason to try again: an agent
    that could void a try would void those that it got wrong. Raises UsageError if nothing scores the task.
    """
    write(evaluation, directory)
    if evaluation.failure is not None:
        return evaluation.failure.outcome(evaluation.metrics())
    if evaluation.total_score is None:
        raise UsageError(f"{evaluation.task.directory}: {NOTHING_SCORES}")
    # Into the run's output: a missing metric is not an error of the run.
    for name, problem in evaluation.measured.problems.items():
        print(f"metric {name} is missing: {problem}", flush=True)
    return Outcome(evaluation.metrics())


def keep(evaluation: Evaluation, directory: Path) -> None:
    """Store collected work before it is verified, so that `bakeoff eval` finds it whatever happens next."""
    _write_all(directory, {RESULTS: _encoded(evaluation.facts())}, evaluation.attempt)


def write(evaluation: Evaluation, directory: Path) -> None:
    """Write all files of a rollout. Each replaces an older one atomically."""
    diff, repository = evaluation.attempt.diff, evaluation.task.repository
    info = {
        "remote_urls": [repository.url] if repository is not None and "://" in repository.url else [],
        "branch": repository.branch if repository is not None else None,
        "start_commit": repository.commit if repository is not None else None,
        "touched_files": touched(diff),
    }
    run = evaluation.run
    who = f"{run['agent']} {run['agent_version']}" + (f", {run['model']}" if run["model"] else "")
    changed = "".join(f"- {name}\n" for name in touched(diff)) or "Nothing was changed.\n"
    texts = {
        RESULTS: _encoded(evaluation.facts()),
        SCORING: scoring(evaluation),
        "artifacts/notes.md": f"# {evaluation.task.title}\n\n{who}, in {run['sandbox']}.\n\n## Files changed\n\n{changed}",
        "artifacts/repo_info.json": _encoded(info),
        LOG: log(evaluation),
    }
    _write_all(directory, texts, evaluation.attempt)


def _encoded(tree: Mapping[str, Any]) -> str:
    return json.dumps(tree, indent=2)


def _write_all(directory: Path, texts: Mapping[str, str], attempt: TaskAttempt) -> None:
    # File names of an agent may be any bytes, and names that we read from a tree have surrogates for them.
    files = {name: text.encode(errors="backslashreplace") for name, text in texts.items()}
    if attempt.diff is not None:
        files[DIFF] = attempt.diff
    if len(attempt.diffs) > 1:
        files |= {STEP_DIFF.format(n): diff for n, diff in enumerate(attempt.diffs, 1) if diff is not None}
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        atomic_write(directory / name, data)


def scoring(evaluation: Evaluation) -> str:
    """The content of scoring_results.md."""
    verification, score = evaluation.verification, evaluation.total_score
    shown = "no score" if score is None else f"{score:.1%}"
    lines = [
        f"# {evaluation.task.title}",
        "",
        f"Run `{evaluation.run['run_id']}` of task `{evaluation.task.id}`: **{shown}**",
        "",
    ]
    if verification.error:
        lines += [verification.error, ""]
    if verification.rubrics:
        lines += ["| rubric | weight | score | scripts passed |", "|---|---|---|---|"]
        for rubric in verification.rubrics:
            value = "untested" if rubric.score is None else f"{rubric.score:.0%}"
            lines.append(f"| {rubric.id} | {rubric.weight:g} | {value} | {rubric.passed} of {rubric.tests} |")
        lines.append("")
    if verification.rewards:
        rows = [f"| {name} | {value:g} |" for name, value in verification.rewards.items()]
        lines += ["| reward | value |", "|---|---|", *rows, ""]
    for judgement in evaluation.judged:
        value = "missing" if judgement.score is None else f"{judgement.score:.0%}"
        agreement = "" if judgement.agreement is None else f", agreement {judgement.agreement:.2f}"
        lines += [f"## Judge: {judgement.rubric.id}", "", f"{value} by {len(judgement.scores)} votes{agreement}.", ""]
        lines += [f"> {vote.reasoning or vote.error}" for vote in judgement.votes] + [""]
    failed = [case for case in verification.cases if case.outcome in ("failed", "error")]
    if failed:
        lines += ["## Failed tests", ""]
        lines += [f"- `{case.name}`: {case.message.partition(chr(10))[0]}" for case in failed] + [""]
    used = evaluation.totals
    about = "~" if used.estimated else ""  # the provider did not count all of it
    cost = "unknown" if used.cost is None else f"{about}${used.cost:.4f}"
    lines += [
        "| agent time | model calls | tokens | cost | diff lines |", "|---|---|---|---|---|",
        f"| {evaluation.seconds:.1f} s | {used.calls} | {about}{used.tokens} | {cost} | {evaluation.diff_lines} |", "",
    ]  # fmt: skip
    if evaluation.self_reported:
        lines += [
            f"Self-reported, since the work ran where it was measured: {', '.join(evaluation.self_reported)}.",
            "",
        ]
    if used.denied:
        lines += [f"The agent asked for services of the provider that it may not use: {', '.join(used.denied)}.", ""]
    if used.limits_met:
        lines += [f"The agent met limits of the model gateway: {', '.join(used.limits_met)}.", ""]
    return "\n".join(lines)


def log(evaluation: Evaluation) -> str:
    """The content of logs/eval.log."""
    verification = evaluation.verification
    error = f": {verification.error}" if verification.error else ""
    lines = [f"verification {verification.status} in {verification.seconds:.2f} s{error}"]
    lines += [f"left out: {entry.path}: {entry.why}" for entry in evaluation.attempt.left_out]
    lines += [f"reset to the start state: {name}" for name in verification.discounted]
    lines += [f"tampered: {name}" for name in verification.tampered]
    lines += [f"went into the honeypot: {name}" for name in verification.honeypots or ()]
    for script in verification.scripts:
        lines += [f"== {script.path}: exit {script.code} in {script.seconds:.2f} s", script.output]
    for step in verification.steps:
        lines += [f"== {step.name}: {step.status}, exit {step.code}, rewards {dict(step.rewards)}", step.output]
    return "\n".join(lines) + "\n"
