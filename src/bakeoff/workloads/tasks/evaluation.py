"""What a rollout leaves for people and programs: evaluation_results.json, scoring_results.md, notes and the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.records import whole
from bakeoff.workloads.tasks.attempt import Attempt
from bakeoff.workloads.tasks.changes import lines_changed, touched
from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.proxy.records import Totals
from bakeoff.workloads.tasks.results import Verification
from bakeoff.workloads.tasks.scoring.custom import Measured
from bakeoff.workloads.tasks.scoring.judge import Judgement, weighted

RESULTS, SCORING, LOG = "evaluation_results.json", "scoring_results.md", "logs/eval.log"
DIFF = "artifacts/diff.patch"
_LONGEST_OUTPUT = 20_000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A verified rollout, with the judge's and one's own scores."""

    task: Task
    run: Mapping[str, Any]
    """run_id, agent, agent_version, model, sandbox, seed, rollout."""
    attempt: Attempt
    totals: Totals
    judged: tuple[Judgement, ...] = ()
    measured: Measured = field(default_factory=Measured)

    @property
    def verification(self) -> Verification:
        return self.attempt.verification

    @property
    def total_score(self) -> float | None:
        """What tests say; the judge's score where there are none."""
        score = self.verification.score
        return score if score is not None else weighted(self.judged)

    @property
    def diff_lines(self) -> int | None:
        diff = self.attempt.diff
        return None if diff is None else lines_changed(diff)

    @property
    def seconds(self) -> float:
        return sum(worked.seconds for worked in self.attempt.worked)

    def standard(self) -> dict[str, float | int | str | None]:
        """Metrics that every run has, None where this one has no value."""
        found = self.verification
        used = self.totals
        cases = found.cases
        judge = weighted(self.judged)
        agreed = [one.agreement for one in self.judged if one.agreement is not None]
        metrics: dict[str, float | int | str | None] = {
            "total_score": self.total_score,
            "passed": int(found.passed) if found.score is not None else None,
            "agent_status": self.attempt.worked[-1].status if self.attempt.worked else "ok",
            "seconds": self.seconds,
            "verify_seconds": found.seconds,
            "tests": len(cases) or None,
            "tests_passed": sum(case.outcome == "passed" for case in cases) if cases else None,
            "diff_lines": self.diff_lines,
            "tokens": used.tokens if used.calls else None,
            "input_tokens": used.input_tokens if used.calls else None,
            "output_tokens": used.output_tokens if used.calls else None,
            "cost": used.cost if used.calls else None,
            "model_calls": used.calls,
            "tool_calls": used.tool_calls,
            "budget_hit": used.limit,
            "judge_score": judge,
            "judge_agreement": sum(agreed) / len(agreed) if agreed else None,
        }
        return metrics | {f"reward_{name}": value for name, value in found.rewards.items() if name != "reward"}

    def metrics(self) -> dict[str, float | int | str | None]:
        """The run's row in the table."""
        return {name: value for name, value in (self.standard() | self.measured.values).items() if value is not None}

    def facts(self) -> dict[str, Any]:
        """evaluation_results.json."""
        found, used = self.verification, self.totals
        score = self.total_score
        facts: dict[str, Any] = {
            "task_id": self.task.id,
            **self.run,
            "instruction": "\n\n".join(step.instruction for step in self.task.steps),
            "total_score": score,
            "passed": found.passed,
            "status": found.status,
            "error": found.error or None,
            "evaluation": {
                "rubrics": {rubric.id: _rubric(rubric) for rubric in found.rubrics},
                "untested": list(found.untested),
                "total_score": score,
                "max_score": 1.0,
            },
            "test_results": {script.path: _script(script) for script in found.scripts},
            "rewards": dict(found.rewards),
            "steps": [asdict(step) for step in found.steps],
            "discounted": list(found.discounted),
            "left_out": list(self.attempt.left_out),
            "diff_lines": self.diff_lines,
            "agent_metrics": {
                "status": [worked.status for worked in self.attempt.worked],
                "exit_code": [worked.code for worked in self.attempt.worked],
                "tokens_total": used.tokens,
                "tokens_input": used.input_tokens,
                "tokens_cached": used.cached_tokens,
                "tokens_output": used.output_tokens,
                "tool_calls_total": used.tool_calls,
                "model_calls": used.calls,
                "time_taken_seconds": self.seconds,
                "money_spent_usd": used.cost,
                "budget_hit": used.limit,
            },
            "custom_metrics": {"values": self.measured.values, "missing": self.measured.problems},
        }
        if self.judged:
            facts["lm_evaluation"] = {
                "weighted_score": weighted(self.judged),
                "rubric_scores": [one.facts() for one in self.judged],
            }
        return facts


def _rubric(rubric: Any) -> dict[str, Any]:
    scored = rubric.score is not None
    return {
        "criterion": rubric.criterion,
        "weight": rubric.weight,
        "score": rubric.score,
        "max_score": 1.0,
        "weighted_score": rubric.score * rubric.weight if scored else None,
        "test_count": rubric.tests,
        "tests_passed": rubric.passed,
    }


def _script(script: Any) -> dict[str, Any]:
    cases = {
        case.name: {"outcome": case.outcome, "seconds": case.seconds, "message": case.message} for case in script.cases
    }
    return {
        "success": script.passed,
        "exit_code": script.code,
        "timed_out": script.timed_out,
        "seconds": script.seconds,
        "cases": cases,
        "output": script.output[-_LONGEST_OUTPUT:],
    }


def write(evaluation: Evaluation, directory: Path) -> None:
    """All files of a rollout; each replaces an older one whole."""
    diff = evaluation.attempt.diff
    if diff is not None:
        _put(directory / DIFF, diff)
    _put(directory / RESULTS, json.dumps(evaluation.facts(), indent=2).encode())
    _put(directory / SCORING, scoring(evaluation).encode())
    _put(directory / "artifacts/notes.md", notes(evaluation).encode())
    _put(directory / "artifacts/repo_info.json", json.dumps(repo_info(evaluation), indent=2).encode())
    _put(directory / LOG, log(evaluation).encode())


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole.write_bytes(path, data)


def repo_info(evaluation: Evaluation) -> dict[str, Any]:
    repository = evaluation.task.repository
    files = touched(evaluation.attempt.diff)
    if repository is None:
        return {"remote_urls": [], "branch": None, "start_commit": None, "touched_files": files}
    return {
        "remote_urls": [repository.url] if "://" in repository.url else [],
        "branch": repository.branch,
        "start_commit": repository.commit,
        "touched_files": files,
    }


def notes(evaluation: Evaluation) -> str:
    run = evaluation.run
    who = f"{run['agent']} {run['agent_version']}" + (f", {run['model']}" if run["model"] else "")
    files = "".join(f"- {name}\n" for name in touched(evaluation.attempt.diff)) or "Nothing was changed.\n"
    return f"# {evaluation.task.title}\n\n{who}, in {run['sandbox']}.\n\n## Files changed\n\n{files}"


def scoring(evaluation: Evaluation) -> str:
    """scoring_results.md."""
    found, score = evaluation.verification, evaluation.total_score
    shown = "no score" if score is None else f"{score:.1%}"
    lines = [
        f"# {evaluation.task.title}",
        "",
        f"Run `{evaluation.run['run_id']}` of task `{evaluation.task.id}`: **{shown}**",
        "",
    ]
    if found.error:
        lines += [found.error, ""]
    if found.rubrics:
        lines += ["| rubric | weight | score | scripts passed |", "|---|---|---|---|"]
        for rubric in found.rubrics:
            value = "untested" if rubric.score is None else f"{rubric.score:.0%}"
            lines.append(f"| {rubric.id} | {rubric.weight:g} | {value} | {rubric.passed} of {rubric.tests} |")
        lines.append("")
    if found.rewards:
        lines += [
            "| reward | value |",
            "|---|---|",
            *(f"| {name} | {value:g} |" for name, value in found.rewards.items()),
            "",
        ]
    for one in evaluation.judged:
        value = "missing" if one.score is None else f"{one.score:.0%}"
        agreement = "" if one.agreement is None else f", agreement {one.agreement:.2f}"
        lines += [f"## Judge: {one.rubric.id}", "", f"{value} by {len(one.scores)} votes{agreement}.", ""]
        lines += [f"> {vote.reasoning or vote.error}" for vote in one.votes] + [""]
    failed = [case for case in found.cases if case.outcome in ("failed", "error")]
    if failed:
        lines += ["## Tests that failed", ""]
        lines += [f"- `{case.name}`: {case.message.partition(chr(10))[0]}" for case in failed] + [""]
    used = evaluation.totals
    cost = "unknown" if used.cost is None else f"${used.cost:.4f}"
    lines += [
        "| agent time | model calls | tokens | cost | diff lines |", "|---|---|---|---|---|",
        f"| {evaluation.seconds:.1f} s | {used.calls} | {used.tokens} | {cost} | {evaluation.diff_lines} |", "",
    ]  # fmt: skip
    return "\n".join(lines)


def log(evaluation: Evaluation) -> str:
    """logs/eval.log: what the verifier did, in order."""
    found = evaluation.verification
    lines = [f"verification {found.status} in {found.seconds:.2f} s" + (f": {found.error}" if found.error else "")]
    for name in evaluation.attempt.left_out:
        lines.append(f"too large for the diff, so left out of it: {name}")
    for name in found.discounted:
        lines.append(f"put back to the start state: {name}")
    for script in found.scripts:
        lines += [f"== {script.path}: exit {script.code} in {script.seconds:.2f} s", script.output]
    for step in found.steps:
        lines += [f"== {step.name}: {step.status}, exit {step.code}, rewards {dict(step.rewards)}", step.output]
    return "\n".join(lines) + "\n"
