"""OpenAI's Codex CLI."""

from __future__ import annotations

import json

from bakeoff.sandbox.base import Mount
from bakeoff.workloads.tasks.agents.face import PROGRAMS, Assignment, Invocation
from bakeoff.workloads.tasks.agents.installed import Program, npm_program
from bakeoff.workloads.tasks.proxy.wire.face import WireName

KEY = "MODEL_PROXY_KEY"


class Codex:
    name = "codex"
    wire: WireName | None = "responses"
    needs_solution = False

    @property
    def version(self) -> str:
        return _program().version

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return (Mount(_program().path, f"{programs}/codex"),)

    def invocation(self, assignment: Assignment) -> Invocation:
        home = f"{assignment.home}/.codex"
        argv = (
            f"{assignment.programs}/codex/bin/codex",
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",  # the box is the sandbox
            "--json",
            "-",  # the instruction comes on stdin, however long it is and whatever it begins with
        )
        return Invocation(
            argv,
            env={"HOME": assignment.home, "CODEX_HOME": home, KEY: assignment.token, "RUST_LOG": "error"},
            files={f"{home}/config.toml": _config(assignment).encode()},
            stdin=assignment.instruction.encode(),
        )


def _program() -> Program:
    """The directory with `bin/` and the search tool beside it."""
    return npm_program("@openai/codex", "@openai/codex-linux-{machine}", "vendor/*", "codex")


def _config(assignment: Assignment) -> str:
    effort = f"model_reasoning_effort = {json.dumps(assignment.effort)}\n" if assignment.effort else ""
    return f"""\
model = {json.dumps(assignment.model)}
model_provider = "proxy"
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
check_for_update_on_startup = false
{effort}
[model_providers.proxy]
name = "proxy"
base_url = {json.dumps(assignment.url + "/v1")}
wire_api = "responses"
env_key = "{KEY}"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false

[history]
persistence = "none"
"""
