"""Jobs of Harbor: a directory with one directory for each trial, `result.json` and `config.json` in both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bakeoff.results.importers.files import read_whole_json, seconds
from bakeoff.results.importers.foreign import (
    DIRECTORY,
    ForeignRun,
    Item,
    Log,
    Mean,
    Measure,
    Message,
    Outcome,
    Reading,
    Source,
    Transcript,
)
from bakeoff.results.importers.transcripts import Unchanged, file_state, message_of

TOOL = "Harbor"
RESULT, CONFIG = "result.json", "config.json"
TRAJECTORY = "agent/trajectory.json"
"""What agents write that keep a trajectory in Harbor's own format (ATIF). A trial of several steps has one for each step."""
_ROLES = {"agent": "assistant"}
_CAUSES = {
    "sandbox_failed": "EnvironmentStartTimeoutError SandboxBuildFailedError AgentSetupTimeoutError HealthcheckError "
    "SandboxLikelyOutOfMemoryError MemoryLimitExceededError SSHAccessError GKEExecStreamClosedError GKEPodNotFoundError "
    "RuntimeRequestError AddTestsDirError DownloadVerifierDirError",
    "model_provider_failed": "ApiError ApiRateLimitError ApiInternalServerError ApiOverloadedError ApiConnectionClosedError "
    "ApiResponseStalledError UnknownApiError NetworkConnectionError ApiConnectionError ApiUsageLimitError RateLimitError "
    "InternalServerError ServiceUnavailableError APIConnectionError APIError Timeout BadRequestError "
    "UnprocessableEntityError UnsupportedParamsError APIResponseValidationError BudgetExceededError "
    "AgentAuthenticationError ModelNotFoundError ApiProviderResourceNotFoundError AuthenticationError "
    "PermissionDeniedError NotFoundError",
    "harbor_failed": "ServiceOperationsUnsupportedError VercelScopeError DspyImportError MissingExtraError RegradeError",
    "agent": "AgentTimeoutError ContextWindowExceededError OutputTokenExceededError ContextLengthExceededError "
    "OutputLengthExceededError AgentSafetyRefusalError ContentPolicyViolationError",
    "verifier_failed": "VerifierTimeoutError RewardFileNotFoundError RewardFileEmptyError VerifierOutputParseError",
    "cancelled": "CancelledError",
}
"""Harbor's own table of causes (`models/trial/error_policy.py`, 0.25). Types that are not in it are unclassified."""
CAUSE = {name: cause for cause, names in _CAUSES.items() for name in names.split()}


class HarborJobs:
    """A job, a trial, or a directory of jobs."""

    name = "Harbor"

    def claims(self, path: Path) -> list[Path]:
        if not path.is_dir():
            return []
        if _is_trial(path):
            return [path]
        if _is_job(path):
            return [path]
        return sorted(place for place in path.iterdir() if (place / CONFIG).is_file() and _is_job(place))

    def misses(self, path: Path) -> str | None:
        """Say why a path that could be a job is none."""
        if path.is_file() and path.name == RESULT:
            return f"a job is a directory; name {path.parent}"
        if path.is_dir() and (path / RESULT).is_file():
            return f"{RESULT} has no n_total_trials, and no directory in it has a trial's {RESULT}"
        return None

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        jobs = [_Job(path) for path in paths]
        sums: dict[str, dict[str, None]] = {}
        for job in jobs:
            for trial in job.trials:
                sums.setdefault(trial.task, {}).setdefault(trial.checksum)
        causes: Counter[str] = Counter()
        names: dict[str, None] = {}
        unit, means = True, []
        for job in jobs:
            for trial in job.trials:
                task = trial.task
                if len([each for each in sums[task] if each]) > 1 and trial.checksum:
                    task = f"{task}@{trial.checksum[:8]}"
                outcome = trial.outcome(causes)
                metrics = trial.rewards if outcome == "scored" else {}
                names |= dict.fromkeys(sorted(trial.rewards, key=lambda name: name != "reward"))
                unit = unit and not any(value < 0 or value > 1 for value in trial.rewards.values())  # NaN is neither
                yield ForeignRun(
                    labels=trial.labels, source=Source(trial.path), header=trial.result or trial.config, log=job.log,
                    task=task, group=trial.dataset, run=str(trial.path), outcome=outcome, error=trial.error, metrics=metrics,
                    started_at=seconds((trial.result or {}).get("started_at")),
                    ended_at=seconds((trial.result or {}).get("finished_at")), transcript=trial.transcript(),
                )  # fmt: skip
            absent = list(job.absent())
            yield from absent
            if (unknown := job.planned - len(job.trials) - len(absent)) > 0:
                causes["planned on tasks without a directory (not read)"] += unknown
            means += job.means(list(names))
        measure = Measure("maximize", (0, 1) if unit else None)
        remarks = [f"{number} trial{'' if number == 1 else 's'} {text}" for text, number in causes.items()]
        changed = [task for task, known in sums.items() if len([each for each in known if each]) > 1]
        notes = [f"task {task} has several contents (checksums), and each is a task of its own" for task in changed]
        yield Reading(TOOL, "", dict.fromkeys(names, measure), means, notes, unit="trial", remarks=remarks)


class _Trial:
    """One trial's directory."""

    def __init__(self, path: Path, job: str) -> None:
        self.path = path
        self.result: dict[str, Any] | None = read_whole_json(path / RESULT, TOOL) if (path / RESULT).is_file() else None
        self.config: dict[str, Any] = (self.result or {}).get("config") or read_whole_json(path / CONFIG, TOOL)
        facts = self.result or {}
        self.checksum = str(facts.get("task_checksum") or "")
        place = (self.config.get("task") or {}).get("path") or (self.config.get("task") or {}).get("name") or path.name
        self.task = str(facts.get("task_name") or Path(str(place)).name)
        # Harbor's own word for trials of no dataset.
        self.dataset = str(facts.get("source") or (self.config.get("task") or {}).get("source") or "adhoc")
        self.labels = self._labels(facts, job)
        self.exceptions = [
            each["exception_info"]
            for each in (facts, *(facts.get("step_results") or []))
            if isinstance(each, dict) and each.get("exception_info")
        ]
        rewards = ((facts.get("verifier_result") or {}).get("rewards")) or {}
        self.rewards = {str(name): value for name, value in rewards.items() if isinstance(value, int | float)}

    def _labels(self, facts: Mapping[str, Any], job: str) -> dict[str, Any]:
        agent, info = self.config.get("agent") or {}, facts.get("agent_info") or {}
        model = info.get("model_info") or {}
        name = info.get("name") or agent.get("name") or agent.get("import_path") or "agent"
        called = "/".join(part for part in (model.get("provider"), model.get("name")) if part) or agent.get(
            "model_name"
        )
        labels: dict[str, Any] = {"agent": f"{name}@{called}" if called else name}
        # Trials without a result have no version: only what the configuration says may tell arms apart.
        labels |= {f"kwargs.{key}": str(value) for key, value in sorted((agent.get("kwargs") or {}).items())}
        labels |= {"skills": " ".join(agent["skills"])} if agent.get("skills") else {}
        return labels | {DIRECTORY: job}

    @property
    def error(self) -> str | None:
        if not self.exceptions:
            return None
        return "; ".join(f"{each.get('exception_type')}: {each.get('exception_message')}" for each in self.exceptions)

    def outcome(self, causes: Counter[str]) -> Outcome:
        """Say how the trial ended, and count causes for the reading line."""
        if self.result is None:
            causes["without a result (missing)"] += 1
            return "missing"
        kinds = [CAUSE.get(str(each.get("exception_type")), "unclassified") for each in self.exceptions]
        others = [kind for kind in kinds if kind != "agent"]
        if others and others[0] == "unclassified":
            causes["with an unclassified error (failed)"] += 1
            return "failed"
        if others:
            causes[f"with cause {others[0]} (missing)"] += 1
            return "missing"
        if not self.rewards and (self.config.get("verifier") or {}).get("disable"):
            causes["without verification (missing)"] += 1
            return "missing"
        return "scored" if self.rewards else "failed"

    def transcript(self) -> Transcript | None:
        """Return what reads the trial's trajectories, if its agent wrote any; not all do."""
        steps = [Path(str(each.get("step_name"))).name for each in (self.result or {}).get("step_results") or ()]
        files = [place / TRAJECTORY for place in (self.path, *(self.path / "steps" / step for step in steps))]
        parts = [
            Unchanged(partial(read_trajectory, path), path, state) for path in files if (state := file_state(path))
        ]
        return partial(_read_all, parts) if parts else None


def _read_all(parts: Sequence[Transcript], source: Source) -> list[Message]:
    return [message for part in parts for message in part(source)]


def read_trajectory(path: Path, _: Source) -> list[Message]:
    """Read the messages of an ATIF file, and of the files beside it that continue it."""
    messages: list[Message] = []
    known: set[Path] = set()
    while path not in known:
        known.add(path)
        content = read_whole_json(path, TOOL)
        for step in content["steps"]:
            if not step.get("is_copied_context"):
                messages += _messages(step)
        if following := content.get("continued_trajectory_ref"):
            path = path.with_name(Path(str(following)).name)
    return messages


def _messages(step: Mapping[str, Any]) -> list[Message]:
    role = _ROLES.get(step["source"], step["source"])
    said = message_of({**step, "role": role, "content": step.get("message")})
    results = (step.get("observation") or {}).get("results") or []
    answers = [
        message_of({"role": "tool", "content": each.get("content"), "tool_call_id": each.get("source_call_id")})
        for each in results
    ]
    return [said, *answers]


class _Job:
    """A job's directory, or one trial of it."""

    def __init__(self, path: Path) -> None:
        alone = _is_trial(path)
        self.path = path.parent if alone else path
        self.result = {} if alone or not (path / RESULT).is_file() else read_whole_json(path / RESULT, TOOL)
        config = {} if alone or not (path / CONFIG).is_file() else read_whole_json(path / CONFIG, TOOL)
        self.attempts = config.get("n_attempts")
        self.planned = int(self.result.get("n_total_trials") or 0)
        places = [path] if alone else sorted(place for place in path.iterdir() if _is_trial(place))
        self.trials = [_Trial(place, self.path.name) for place in places]
        self.log = Log(self.path, seconds(self.result.get("started_at")), str(self.result.get("id") or ""))

    def absent(self) -> Iterator[ForeignRun]:
        """Yield planned attempts that left no directory."""
        if not self.attempts:
            return
        known: dict[tuple[str, str], list[_Trial]] = {}
        for trial in self.trials:
            known.setdefault((trial.task, str(trial.labels)), []).append(trial)
        for trials in known.values():
            for number in range(len(trials), self.attempts):
                first = trials[0]
                yield ForeignRun(
                    labels=first.labels, source=Source(self.path, f"{first.task}__attempt_{number}"), header=first.config,
                    log=self.log, task=first.task, group=first.dataset, outcome="missing", error="the attempt left no directory",
                )  # fmt: skip

    def means(self, names: Sequence[str]) -> list[Mean]:
        evals = ((self.result.get("stats") or {}).get("evals")) or {}
        own = [
            each.get("mean")
            for stats in evals.values()
            for each in stats.get("metrics") or []
            if isinstance(each, dict)
        ]
        if len(evals) != 1 or len(own) != 1 or not isinstance(own[0], int | float) or not names:
            return []
        return [Mean(names[0], float(own[0]), log=self.path, name="mean")]


def _is_trial(path: Path) -> bool:
    """Whether a directory is a trial's: its result, or its configuration while there is none, names a task."""
    for name, sign in ((RESULT, b'"trial_name"'), (CONFIG, b'"trial_name"')):
        with suppress(OSError), (path / name).open("rb") as file:
            return sign in file.read(4096) or sign in file.read(1 << 16)
    return False


def _is_job(path: Path) -> bool:
    with suppress(OSError), (path / RESULT).open("rb") as file:
        if b'"n_total_trials"' in file.read(4096):
            return True
    return any(_is_trial(place) for place in path.iterdir() if place.is_dir()) if path.is_dir() else False
