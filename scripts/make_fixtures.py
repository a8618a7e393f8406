"""Make the files in tests/fixtures/ with the tools that write such files. Not part of `make test`.

Each tool is installed in a virtual environment of its own, whose Python runs this script:

    python -m venv /tmp/inspect && /tmp/inspect/bin/pip install inspect-ai openai
    /tmp/inspect/bin/python scripts/make_fixtures.py inspect
    python -m venv /tmp/lm-eval && /tmp/lm-eval/bin/pip install torch==2.13.0 && /tmp/lm-eval/bin/pip install lm-eval
    /tmp/lm-eval/bin/python scripts/make_fixtures.py lm-eval
    python3.12 -m venv /tmp/harbor && /tmp/harbor/bin/pip install harbor
    /tmp/harbor/bin/python scripts/make_fixtures.py harbor

Inspect runs with its mock model and lm-eval with its dummy model. Harbor's trials need containers, so its own classes write the
results here, and no trial runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"


# -- Inspect


def inspect(home: Path) -> None:
    from inspect_ai import Task, eval, eval_retry, task
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
    from inspect_ai.scorer import Score, accuracy, includes, match, mean, scorer
    from inspect_ai.solver import generate, solver

    failing: set[str] = set()
    snapshot: dict[str, Path] = {}

    def answer(name: str, text: str) -> Any:
        output = ModelOutput.from_content(name, text)
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    @modelapi(name="scripted")
    class Scripted(ModelAPI):  # `eval_retry` makes the model anew from its name
        async def generate(self, input: Any, **_: Any) -> Any:
            return answer("scripted/model", str(int(input[-1].text.partition("+")[0]) + 1))

    @solver
    def maybe_fail(ids: list[str]) -> Any:
        async def solve(state: Any, _generate: Any) -> Any:
            if snapshot and str(state.sample_id) == "9":
                (log,) = snapshot["from"].glob("*.eval")
                shutil.copyfile(log, snapshot["to"])
            if str(state.sample_id) in {*ids, *failing}:
                raise RuntimeError("tool crashed" if int(state.sample_id) % 2 else "503 from the sandbox")
            return state

        return solve

    @scorer(metrics={"*": [mean()]})
    def parts() -> Any:
        async def score(state: Any, target: Any) -> Any:
            text = state.output.completion
            return Score(value={"length": len(text), "right": float(text == target.text)})

        return score

    @scorer(metrics=[accuracy()])
    def letters() -> Any:
        async def score(state: Any, target: Any) -> Any:
            return Score(value="C" if state.output.completion == target.text else "P" if state.epoch == 1 else "N")

        return score

    @task
    def sums(skill: str = "none") -> Any:
        ids = ["3", "4", "7"] if skill == "calculator" else []
        data = [Sample(id=i, input=f"{i}+1", target=str(i + 1)) for i in range(1, 13)]
        return Task(dataset=data, solver=[maybe_fail(ids), generate()], scorer=match(), name="sums")

    @task
    def words() -> Any:
        data = [Sample(id=f"w{i}", input=f"{i}", target=str(i)) for i in range(1, 9)]
        return Task(dataset=data, solver=generate(), scorer=[letters(), parts(), includes()], name="words")

    def model(name: str, answers: list[str]) -> Any:
        def reply(messages: Any, *_: Any) -> Any:
            number = int(messages[-1].text.partition("+")[0])
            return answer(f"mockllm/{name}", answers[number - 1])

        return get_model(f"mockllm/{name}", custom_outputs=reply)

    settings: dict[str, Any] = {"max_samples": 1, "display": "none", "log_realtime": False}
    right = [str(i + 1) for i in range(1, 13)]

    def run(directory: str, what: Any, llm: Any, **more: Any) -> Any:
        (log,) = eval(what, model=llm, log_dir=str(home / directory), **{**settings, "fail_on_error": False, **more})
        return log

    # A third of the answers are wrong without the skill; with it three samples crash and the others are right.
    run("skill", sums("none"), model("model", [text if i % 3 else "0" for i, text in enumerate(right, 1)]))
    run("skill", sums("calculator"), model("model", right))
    # Two models, two epochs, three scorers of which one gives a dict; logs in JSON.
    for name, wrong in (("small", 2), ("large", 8)):
        answers = ["no" if i % wrong == 0 else str(i) for i in range(1, 9)]
        run("epochs", words(), model(name, answers), epochs=2, log_format="json")
    # An error and a score.
    failing.update({"2", "5"})
    run("score-on-error", sums("none"), model("model", right), score_on_error=True)
    # Ends with the first error; then it is retried.
    failing.clear()
    failing.add("5")
    log = run("retried", sums("none"), "scripted/model", fail_on_error=True)
    failing.clear()
    eval_retry(log.location, log_dir=str(home / "retried"), **settings)
    # A log that is still being written: a copy while the ninth sample runs.
    with tempfile.TemporaryDirectory() as scratch:
        (home / "started").mkdir()
        snapshot.update({"from": Path(scratch), "to": home / "started" / "started.eval"})
        (log,) = eval(sums("none"), model=model("model", right), log_dir=scratch, **{**settings, "log_buffer": 1})
        snapshot.clear()
        shutil.copyfile(log.location, home / "started" / "finished.eval")
    run("limited", sums("none"), model("model", right), limit=5)


# -- lm-eval

LM_TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{{target}}}}}"
{more}
"""
CHOICES = """
doc_to_choice: "{{choices}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""
FILTERS = """
generation_kwargs: {until: ["."]}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
filter_list:
  - {name: strict-match, filter: [{function: regex, regex_pattern: "^(lol)$"}, {function: take_first}]}
  - {name: flexible-extract, filter: [{function: regex, regex_pattern: "(l)"}, {function: take_first}]}
"""


def lm_eval(home: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for name, kind, target, more in (
            ("sums_mc", "multiple_choice", "gold", CHOICES),
            ("echo", "generate_until", "answer", FILTERS),
        ):
            data = Path(scratch, f"{name}.jsonl")
            rows = [
                {
                    "question": f"{i} + 1 =",
                    "choices": [str(i + 1), str(i)],
                    "gold": i % 2,
                    "answer": "lol" if i % 3 else "l",
                }
                for i in range(20)
            ]
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            text = LM_TASK.format(name=name, data=data, kind=kind, target=target, more=more)
            Path(scratch, f"{name}.yaml").write_text(text)
        for directory, arm, seed, more in (
            ("models", "small", 1, ()), ("models", "large", 2, ()), ("seeds", "small", 1, ()), ("seeds", "small", 2, ()),
            ("seeds", "large", 1, ()), ("seeds", "large", 2, ()), ("limited", "small", 1, ("--limit", "5")),
        ):  # fmt: skip
            subprocess.run(
                [sys.executable, "-m", "lm_eval", "run", "--model", "dummy", "--model_args", f"pretrained={arm}", "--tasks",
                 "sums_mc" if directory == "seeds" else "sums_mc,echo", "--include_path", scratch, "--log_samples",
                 "--output_path", str(home / directory), "--seed", str(seed), *more],
                check=True, env={"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": scratch, "HOME": scratch, "PATH": "/usr/bin:/bin"},
            )  # fmt: skip
        for path in home.rglob("*.json*"):
            path.write_text(path.read_text().replace(scratch, "/data"))


# -- Harbor


def harbor(home: Path) -> None:
    from harbor.models.agent.context import AgentContext
    from harbor.models.job.config import JobConfig
    from harbor.models.job.result import JobResult, JobStats
    from harbor.models.task.id import LocalTaskId
    from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
    from harbor.models.trial.result import AgentInfo, ExceptionInfo, ModelInfo, StepResult, TrialResult
    from harbor.models.verifier.result import VerifierResult

    start = datetime(2026, 11, 1, 12, tzinfo=UTC)
    tasks = [f"task-{number}" for number in range(1, 7)]

    def exception(kind: str) -> Any:
        return ExceptionInfo(
            exception_type=kind, exception_message="it broke", exception_traceback="", occurred_at=start
        )

    def job(
        name: str, model: str, attempts: int, reward: Any, errors: dict[tuple[int, int], str], day: int = 0
    ) -> None:
        directory = home / name
        directory.mkdir(parents=True)
        agent = AgentConfig(name="terminus-2", model_name=model)
        config = JobConfig(job_name=name, jobs_dir=Path("jobs"), n_attempts=attempts, agents=[agent])
        (directory / "config.json").write_text(config.model_dump_json(indent=4))
        results = []
        for number, task in enumerate(tasks):
            for attempt in range(attempts):
                kind = errors.get((number, attempt))
                if kind == "absent":
                    continue
                trial = directory / f"{task}__{attempt}"
                trial.mkdir()
                own = TrialConfig(task=TaskConfig(path=Path("tasks") / task), trial_name=trial.name, agent=agent)
                (trial / "config.json").write_text(own.model_dump_json(indent=4))
                if kind == "killed":
                    continue
                in_step = kind is not None and kind.startswith("step:")
                without_reward = kind is not None and kind.endswith("!")
                info = exception(kind.removeprefix("step:").rstrip("!")) if kind is not None else None
                provider, _, called = model.partition("/")
                result = TrialResult(
                    task_name=task, trial_name=trial.name, trial_uri=f"file:///jobs/{name}/{trial.name}",
                    task_id=LocalTaskId(path=Path("tasks") / task), task_checksum=f"{number:040x}", config=own,
                    agent_info=AgentInfo(name="terminus-2", version="2.0", model_info=ModelInfo(name=called, provider=provider)),
                    agent_result=AgentContext(n_input_tokens=10, n_output_tokens=5),
                    verifier_result=None if without_reward else VerifierResult(rewards={"reward": reward(number, attempt)}),
                    exception_info=None if in_step else info,
                    step_results=[StepResult(step_name="one", exception_info=info)] if in_step else None,
                    started_at=start + timedelta(days=day), finished_at=start + timedelta(days=day, minutes=5),
                )  # fmt: skip
                (trial / "result.json").write_text(result.model_dump_json(indent=4))
                if name.startswith("models/") and attempt == number == 0:
                    harbor_trajectory(trial, called)
                results.append(result)
        stats = JobStats.from_trial_results(results, n_total_trials=len(tasks) * attempts)
        whole = JobResult(
            id=f"00000000-0000-0000-0000-{abs(hash((name, day))) % 10**12:012d}", started_at=start + timedelta(days=day),
            finished_at=start + timedelta(days=day, hours=1), n_total_trials=len(tasks) * attempts, stats=stats,
        )  # fmt: skip
        (directory / "result.json").write_text(whole.model_dump_json(indent=4, exclude={"trial_results"}))

    job("models/small", "openai/small", 2, lambda task, attempt: float((task + attempt) % 3 == 0), {})
    job("models/large", "openai/large", 2, lambda task, attempt: float((task + attempt) % 3 != 0), {})
    causes = {
        (0, 0): "AgentTimeoutError", (0, 1): "ContextWindowExceededError!", (1, 0): "SandboxBuildFailedError!",
        (1, 1): "ApiRateLimitError", (2, 0): "VerifierTimeoutError!", (2, 1): "CancelledError!",
        (3, 0): "NonZeroAgentExitCodeError", (3, 1): "SomethingNewError!", (4, 0): "step:AgentSafetyRefusalError",
        (4, 1): "step:EnvironmentStartTimeoutError", (5, 0): "killed", (5, 1): "absent",
    }  # fmt: skip
    job("causes/small", "openai/small", 2, lambda task, attempt: 1.0, causes)
    job("causes/large", "openai/large", 2, lambda task, attempt: 1.0, {})
    job("reruns/first", "openai/small", 1, lambda task, attempt: 0.0, {})
    job("reruns/second", "openai/small", 1, lambda task, attempt: 1.0, {}, day=1)
    job("reruns/large", "openai/large", 1, lambda task, attempt: 1.0, {})


def harbor_trajectory(trial: Path, model: str) -> None:
    """Write what an agent with ATIF leaves in its trial."""
    from harbor.models.trajectories import Agent, Observation, ObservationResult, Step, ToolCall, Trajectory

    call = ToolCall(tool_call_id="call_1", function_name="bash_command", arguments={"keystrokes": "cat sum.txt\n"})
    steps = [
        Step(step_id=1, source="user", message="Write the sum into sum.txt."),
        Step(
            step_id=2, source="agent", message="I look at the file.", reasoning_content="It may exist.", tool_calls=[call],
            observation=Observation(results=[ObservationResult(source_call_id="call_1", content="no such file")]),
        ),
        Step(step_id=3, source="agent", message=f"{model} is done."),
    ]  # fmt: skip
    agent = Agent(name="terminus-2", version="2.0", model_name=model)
    (trial / "agent").mkdir()
    text = Trajectory(agent=agent, steps=steps, session_id=trial.name).model_dump_json(indent=2, exclude_none=True)
    (trial / "agent" / "trajectory.json").write_text(text)


MAKERS = {"inspect": inspect, "lm-eval": lm_eval, "harbor": harbor}

if __name__ == "__main__":
    for name in sys.argv[1:] or sys.exit(f"name a tool: {', '.join(MAKERS)}"):
        shutil.rmtree(FIXTURES / name, ignore_errors=True)
        (FIXTURES / name).mkdir(parents=True)
        MAKERS[name](FIXTURES / name)
