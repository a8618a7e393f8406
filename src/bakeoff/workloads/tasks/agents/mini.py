"""mini-swe-agent."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Mount
from bakeoff.workloads.tasks.agents.face import PROGRAMS, Assignment, Invocation
from bakeoff.workloads.tasks.agents.installed import DIRECTORY, VARIABLE, agent_directories
from bakeoff.workloads.tasks.proxy.wire.face import WireName

# Without PYTHONPATH, which the commands of the agent would inherit: a task's own Python must not see these packages.
START = """\
import site, sys
site.addsitedir(sys.argv.pop(1))
sys.path.insert(0, sys.path.pop())
from minisweagent.run.mini import app
app()
"""


class Mini:
    name = "mini"
    wire: WireName | None = "chat"
    needs_solution = False

    @property
    def version(self) -> str:
        found = next(_packages().glob("mini_swe_agent-*.dist-info"), None)
        return found.name.removesuffix(".dist-info").rpartition("-")[2] if found else "unknown"

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return (Mount(_packages(), f"{programs}/mini"),)

    def invocation(self, assignment: Assignment) -> Invocation:
        config = f"{assignment.home}/task.yaml"
        argv = (
            _packages().parent.name,  # python3.11: compiled packages want the Python that they were installed for
            "-I",
            "-c",
            START,
            f"{assignment.programs}/mini",
            *("-c", "mini.yaml", "-c", config),
            *("-m", f"openai/{assignment.model}"),
            *("-o", f"{assignment.home}/trajectory.json"),
            *("-y", "--exit-immediately"),
        )
        env = {
            "HOME": assignment.home,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_GLOBAL_CONFIG_DIR": f"{assignment.home}/.config/mini-swe-agent",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_API_KEY": assignment.token,
            "OPENAI_API_BASE": f"{assignment.url}/v1",
        }
        return Invocation(argv, env, {config: json.dumps(_config(assignment)).encode()})


def _config(assignment: Assignment) -> dict[str, object]:
    """In a file, so that an instruction may be as long as it likes. Spending is the proxy's business."""
    effort = {"model": {"model_kwargs": {"reasoning_effort": assignment.effort}}} if assignment.effort else {}
    limits = {"cost_limit": 0, "step_limit": assignment.max_turns or 0}
    return {"run": {"task": assignment.instruction}, "agent": limits, **effort}


def _packages() -> Path:
    return _found(tuple(agent_directories()))


@cache
def _found(directories: tuple[Path, ...]) -> Path:
    for folder in directories:
        for packages in sorted(folder.glob("mini/lib/python3*/site-packages")):
            if (packages / "minisweagent").is_dir():
                return packages.resolve()
    raise UsageError(
        f"mini-swe-agent is not installed\n  fix: python3 -m venv {DIRECTORY}/mini && {DIRECTORY}/mini/bin/pip install "
        f"mini-swe-agent mcp (or set {VARIABLE} to a directory with such a `mini`)"
    )
