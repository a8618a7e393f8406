"""Anthropic's Claude Code."""

from __future__ import annotations

from bakeoff.sandbox.base import Mount
from bakeoff.workloads.tasks.agents.face import PROGRAMS, Assignment, Invocation
from bakeoff.workloads.tasks.agents.installed import Program, npm_program
from bakeoff.workloads.tasks.proxy.wire.face import WireName


class Claude:
    name = "claude"
    wire: WireName | None = "messages"
    needs_solution = False

    @property
    def version(self) -> str:
        return _program().version

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return (Mount(_program().path, f"{programs}/claude"),)

    def invocation(self, assignment: Assignment) -> Invocation:
        turns = ("--max-turns", str(assignment.max_turns)) if assignment.max_turns is not None else ()
        argv = (
            f"{assignment.programs}/claude",
            "-p",
            "--model",
            assignment.model,
            "--dangerously-skip-permissions",  # the box is the sandbox
            "--output-format",
            "stream-json",
            "--verbose",
            *turns,
        )
        env = {
            "HOME": assignment.home,
            "ANTHROPIC_BASE_URL": assignment.url,
            "ANTHROPIC_API_KEY": assignment.token,
            # Side questions go to the same model, so that a run measures one model and not two.
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": assignment.model,
            "CLAUDE_CODE_SUBAGENT_MODEL": assignment.model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",  # it refuses to skip permissions as root otherwise
        }
        if assignment.effort:
            env["CLAUDE_CODE_EFFORT_LEVEL"] = assignment.effort
        return Invocation(argv, env, stdin=assignment.instruction.encode())


def _program() -> Program:
    return npm_program("@anthropic-ai/claude-code", "@anthropic-ai/claude-code-linux-{machine}", "claude", "claude")
