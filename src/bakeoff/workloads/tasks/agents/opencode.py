"""opencode."""

from __future__ import annotations

import json

from bakeoff.sandbox.base import Mount
from bakeoff.workloads.tasks.agents.face import PROGRAMS, Assignment, Invocation
from bakeoff.workloads.tasks.agents.installed import Program, npm_program
from bakeoff.workloads.tasks.proxy.wire.face import WireName


class Opencode:
    name = "opencode"
    wire: WireName | None = "chat"
    needs_solution = False

    @property
    def version(self) -> str:
        return _program().version

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return (Mount(_program().path, f"{programs}/opencode"),)

    def invocation(self, assignment: Assignment) -> Invocation:
        config = f"{assignment.home}/.config/opencode/opencode.json"
        argv = (
            f"{assignment.programs}/opencode",
            "run",
            "--format",
            "json",
            "--model",
            f"proxy/{assignment.model}",
            "--title",
            "task",
        )
        env = {
            "HOME": assignment.home,
            "OPENCODE_CONFIG": config,
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        written = json.dumps(_config(assignment), indent=1).encode()
        return Invocation(argv, env, {config: written}, stdin=assignment.instruction.encode())


def _program() -> Program:
    return npm_program("opencode-ai", "opencode-linux-{machine}", "bin/opencode", "opencode")


def _config(assignment: Assignment) -> dict[str, object]:
    effort = {"options": {"reasoningEffort": assignment.effort}} if assignment.effort else {}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "proxy",
        "options": {"baseURL": f"{assignment.url}/v1", "apiKey": assignment.token},
        "models": {assignment.model: {"name": assignment.model, **effort}},
    }
    return {
        "model": f"proxy/{assignment.model}",
        "small_model": f"proxy/{assignment.model}",
        "provider": {"proxy": provider},
        "permission": {"*": "allow"},  # the box is the sandbox
        "autoupdate": False,
        "share": "disabled",
    }
