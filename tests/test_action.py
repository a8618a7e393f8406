"""The GitHub action: the shell of each of its steps, run with the variables that a runner sets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

ACTION = yaml.safe_load((Path(__file__).parent.parent / "action.yml").read_text(encoding="utf-8"))
REPOSITORY = "someone/something"


@dataclass
class GitHub:
    """What a server that speaks the part of GitHub's interface which the action uses was asked to write."""

    address: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    may_write: bool = True
    tokens: set[str] = field(default_factory=set)


@pytest.fixture
def github() -> Iterator[GitHub]:
    state = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, code: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            state.tokens.add(self.headers["Authorization"])

        def _body(self) -> str:
            return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

        def do_GET(self) -> None:
            assert self.path.startswith(f"/repos/{REPOSITORY}/issues/7/comments")
            self._answer(200, state.comments)

        def do_POST(self) -> None:
            body = self._body()
            if not state.may_write:
                self._answer(403, {"message": "Resource not accessible by integration"})
                return
            assert self.path == f"/repos/{REPOSITORY}/issues/7/comments"
            state.comments.append({"id": 100 + len(state.comments), "body": body})
            self._answer(201, state.comments[-1])

        def do_PATCH(self) -> None:
            (comment,) = [each for each in state.comments if self.path.endswith(f"/issues/comments/{each['id']}")]
            comment["body"] = self._body()
            self._answer(200, comment)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Job:
    """The steps of the action, run in order as a runner does: `${{ }}` filled in, each with `bash -e`."""

    place: Path
    github: GitHub
    event: dict[str, Any] = field(default_factory=lambda: {"pull_request": {"number": 7}})
    log: str = ""

    @property
    def summary(self) -> str:
        return (self.place / "summary.md").read_text()

    def run(self, **given: str) -> int:
        inputs = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()}
        inputs |= {
            "package": "none",
            "token": "secret",
            **{name.replace("_", "-"): text for name, text in given.items()},
        }
        (self.place / "event.json").write_text(json.dumps(self.event))
        output = self.place / "output"
        for file in (output, self.place / "summary.md"):
            file.write_text("")
        runner = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.place),
            "RUNNER_TEMP": str(self.place), "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(self.place / "summary.md"),
            "GITHUB_EVENT_PATH": str(self.place / "event.json"), "GITHUB_API_URL": self.github.address,
            "GITHUB_REPOSITORY": REPOSITORY,
        }  # fmt: skip
        code = 0
        for step in ACTION["runs"]["steps"]:
            if step.get("if") == "inputs.comment == 'true'" and inputs["comment"] != "true":
                continue
            known = dict(line.split("=", 1) for line in output.read_text().splitlines())

            def value(match: re.Match[str], known: dict[str, str] = known) -> str:
                name = match[1].strip()
                return (
                    known[name.removeprefix("steps.gate.outputs.")]
                    if "steps." in name
                    else inputs[name.removeprefix("inputs.")]
                )

            env = {key: re.sub(r"\$\{\{(.*?)\}\}", value, text) for key, text in step["env"].items()}
            assert "${{" not in step["run"], "an input in a script could be run as code"
            script = self.place / "step.sh"
            script.write_text(step["run"])
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
            done = subprocess.run(command, cwd=self.place, env={**runner, **env}, capture_output=True, text=True)
            self.log += done.stdout + done.stderr
            code = done.returncode
            if code:
                break
        return code


@pytest.fixture
def job(tmp_path: Path, github: GitHub) -> Job:
    rows = [
        f"{arm},{seed},{1 + shift + seed % 5 / 100 + (seed * 7 + salt) % 11 / 1000}"
        for arm, shift, salt in (("main", 0, 0), ("same", 0, 5), ("worse", -1, 5))
        for seed in range(16)
    ]
    for arm in ("same", "worse"):
        kept = [row for row in rows if row.split(",")[0] in ("main", arm)]
        (tmp_path / f"{arm}.csv").write_text("\n".join(["arm,seed,score", *kept]) + "\n")
    return Job(tmp_path, github)


@pytest.mark.slow
def test_a_change_that_keeps_the_score_passes_and_the_comment_says_how_far_the_gate_can_be_trusted(job: Job) -> None:
    assert job.run(source="same.csv", max_regression="score=0.5") == 0, job.log
    assert "| score | same | may not regress by 0.5 |" in job.summary
    assert re.search(r"On identical inputs this gate would fail \d+\.\d % of the time", job.summary)
    (comment,) = job.github.comments
    assert comment["body"] == "<!-- bakeoff gate -->\n" + job.summary
    assert job.github.tokens == {"Bearer secret"} and "secret" not in job.log


@pytest.mark.slow
def test_a_regression_fails_and_a_later_push_changes_the_comment(job: Job) -> None:
    assert job.run(source="worse.csv", max_regression="score=0.5\n") == 1, job.log
    assert "# Gate: failed" in job.github.comments[0]["body"]
    assert job.run(source="same.csv", max_regression="score=0.5") == 0
    (comment,) = job.github.comments
    assert "# Gate: passed" in comment["body"]


@pytest.mark.slow
def test_too_little_evidence_has_an_exit_code_of_its_own(job: Job) -> None:
    assert job.run(source="same.csv", must_improve="score", comment="false") == 3, job.log
    assert "not enough evidence" in job.summary and job.github.comments == []


@pytest.mark.slow
def test_a_wrong_call_and_a_hostile_input_fail_with_the_error_in_the_summary(job: Job) -> None:
    assert job.run(source="$(touch hacked); gone.csv", max_regression="score=0.5") == 2, job.log
    assert "could not be run" in job.summary and "gone.csv" in job.summary
    assert not (job.place / "hacked").exists()


@pytest.mark.slow
def test_without_a_pull_request_or_permission_the_verdict_counts_all_the_same(job: Job) -> None:
    job.github.may_write = False
    assert job.run(source="same.csv", max_regression="score=0.5") == 0
    assert "::warning::the comment could not be written" in job.log
    job.event = {"ref": "refs/heads/main"}
    assert job.run(source="same.csv", max_regression="score=0.5") == 0
    assert "no comment" in job.log and job.github.comments == []


@pytest.mark.slow
def test_a_policy_and_further_options_reach_the_gate(job: Job) -> None:
    (job.place / "policy.toml").write_text("[metrics.score]\nmax_regression = 0.5\n")
    assert job.run(source="worse.csv", policy="policy.toml", options="--control\nworse", comment="false") == 0, job.log
    assert "| score | main |" in job.summary
