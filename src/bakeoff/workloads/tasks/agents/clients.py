"""Published agent clients: Claude Code, Codex CLI, opencode and mini-swe-agent, and where they are on this machine.

They are looked for in `BAKEOFF_AGENTS`, then in `.agents` in the working directory or above it, then (npm packages)
on PATH. The npm packages carry a native program for each platform. Only that program is mounted into the sandbox,
so it needs neither Node nor the rest of the package.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Mount
from bakeoff.workloads.tasks.agents.base import PROGRAMS, Assignment, Invocation, TaskAgent
from bakeoff.workloads.tasks.proxy.wire import WireName

VARIABLE = "BAKEOFF_AGENTS"
DIRECTORY = ".agents"
MACHINE = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower(), "x64")
"""This processor in the words of npm packages."""
KEY = "MODEL_PROXY_KEY"
WEB_TOOLS = ("WebSearch", "WebFetch")
"""Tools of Claude Code that look outside the sandbox."""


def agent_directories() -> Iterator[Path]:
    """Directories in which clients may be installed for bakeoff, first choice first."""
    if named := os.environ.get(VARIABLE):
        yield Path(named)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / DIRECTORY).is_dir():
            yield folder / DIRECTORY


@dataclass(frozen=True, slots=True)
class Program:
    """An installed client."""

    path: Path
    """The native program, or its directory."""
    version: str


@cache
def _npm_program(package: str, native: str, inside: str, command: str, directories: tuple[Path, ...]) -> Program:
    """The file `inside` the platform's package `native`, with the version of `package`. Raises UsageError."""
    places = [folder / "node_modules" for folder in directories]
    if on_path := shutil.which(command):  # `npm install -g`: a link into lib/node_modules
        parents = Path(on_path).resolve().parents
        places += [folder for folder in parents if folder.name == "node_modules" and (folder / package).is_dir()]
    for modules in places:
        # npm puts a dependency beside the package, or below it when another version is beside it.
        for place in (modules / native, modules / package / "node_modules" / native):
            program = next(iter(sorted(place.glob(inside))), None)
            if program is not None:
                version = json.loads((modules / package / "package.json").read_text())["version"]
                return Program(program.resolve(), str(version))
    raise UsageError(
        f"{command} is not installed\n  fix: npm install --prefix {DIRECTORY} {package} "
        f"(or set {VARIABLE} to a directory that has node_modules/{package})"
    )


class NpmClient(TaskAgent):
    """A client from npm. `name` is also its command, and the name of its mount below `programs`."""

    package: str
    native: str
    """The package with the program for this machine."""
    inside: str
    """Where the program is in it, as a glob pattern."""

    def program(self) -> Program:
        """Raises UsageError when the client is not installed."""
        return _npm_program(self.package, self.native, self.inside, self.name, tuple(agent_directories()))

    @property
    def version(self) -> str:
        return self.program().version

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return (Mount(self.program().path, f"{programs}/{self.name}"),)


class Claude(NpmClient):
    """Anthropic's Claude Code. Options and variables: https://docs.anthropic.com/en/docs/claude-code/settings"""

    name = "claude"
    wire: WireName | None = "messages"
    package = "@anthropic-ai/claude-code"
    native = f"@anthropic-ai/claude-code-linux-{MACHINE}"
    inside = "claude"

    def invocation(self, assignment: Assignment) -> Invocation:
        turns = ("--max-turns", str(assignment.max_turns)) if assignment.max_turns is not None else ()
        argv = (
            f"{assignment.programs}/claude",
            "-p",
            *("--model", assignment.model),
            "--dangerously-skip-permissions",  # it runs in a sandbox
            *("--output-format", "stream-json"),
            "--verbose",  # which stream-json requires
            *("--disallowedTools", ",".join(WEB_TOOLS)),  # as Codex starts without its web search
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
            "CLAUDE_CODE_MAX_RETRIES": "2",  # the proxy retries, too
            # The gateway passes no beta header on, and a request that relies on one would be an error of the provider.
            "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",  # without this it refuses to skip permissions as root
        }
        if assignment.effort:
            env["CLAUDE_CODE_EFFORT_LEVEL"] = assignment.effort
        return Invocation(argv, env, stdin=assignment.instruction.encode())


class Codex(NpmClient):
    """OpenAI's Codex CLI. Its config.toml: https://github.com/openai/codex/blob/main/docs/config.md"""

    name = "codex"
    wire: WireName | None = "responses"
    package = "@openai/codex"
    native = f"@openai/codex-linux-{MACHINE}"
    inside = "vendor/*"  # a directory with `bin/` and the search tool that it calls

    def invocation(self, assignment: Assignment) -> Invocation:
        home = f"{assignment.home}/.codex"
        argv = (
            f"{assignment.programs}/codex/bin/codex",
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",  # it runs in a sandbox
            "--json",
            "-",  # the instruction comes on stdin, however long it is and whatever it begins with
        )
        effort = f"model_reasoning_effort = {json.dumps(assignment.effort)}\n" if assignment.effort else ""
        config = f"""\
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
        return Invocation(
            argv,
            env={"HOME": assignment.home, "CODEX_HOME": home, KEY: assignment.token, "RUST_LOG": "error"},
            files={f"{home}/config.toml": config.encode()},
            stdin=assignment.instruction.encode(),
        )


class Opencode(NpmClient):
    """opencode. Its opencode.json: https://opencode.ai/docs/config"""

    name = "opencode"
    wire: WireName | None = "chat"
    package = "opencode-ai"
    native = f"opencode-linux-{MACHINE}"
    inside = "bin/opencode"

    def invocation(self, assignment: Assignment) -> Invocation:
        place = f"{assignment.home}/.config/opencode/opencode.json"
        model = f"proxy/{assignment.model}"
        argv = (
            f"{assignment.programs}/opencode",
            "run",
            *("--format", "json"),
            *("--model", model),
            *("--title", "task"),  # or it would ask the model for one
        )
        env = {
            "HOME": assignment.home,
            "OPENCODE_CONFIG": place,
            # Without network each of these would only wait for its timeout.
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        effort = {"options": {"reasoningEffort": assignment.effort}} if assignment.effort else {}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "proxy",
            "options": {"baseURL": f"{assignment.url}/v1", "apiKey": assignment.token},
            "models": {assignment.model: {"name": assignment.model, **effort}},
        }
        config = {
            "model": model,
            "small_model": model,
            "provider": {"proxy": provider},
            # It runs in a sandbox; like all clients it starts without a web tool.
            "permission": {"*": "allow", "webfetch": "deny"},
            "autoupdate": False,
            "share": "disabled",
        }
        written = json.dumps(config, indent=1).encode()
        return Invocation(argv, env, {place: written}, stdin=assignment.instruction.encode())


# Not by PYTHONPATH, which the agent's commands would inherit: the task's Python must not see these packages.
START_MINI = """\
import site, sys
site.addsitedir(sys.argv.pop(1))
sys.path.insert(0, sys.path.pop())
from minisweagent.run.mini import app
app()
"""


@cache
def _mini_packages(directories: tuple[Path, ...]) -> Path:
    """The site-packages of the virtual environment `mini`. Raises UsageError."""
    for folder in directories:
        for packages in sorted(folder.glob("mini/lib/python3*/site-packages")):
            if (packages / "minisweagent").is_dir():
                return packages.resolve()
    raise UsageError(
        f"mini-swe-agent is not installed\n  fix: python3 -m venv {DIRECTORY}/mini && {DIRECTORY}/mini/bin/pip install "
        f"mini-swe-agent mcp (or set {VARIABLE} to a directory with such a `mini`)"
    )


class Mini(TaskAgent):
    """From PyPI: mini-swe-agent.

    Its variables and configuration: https://mini-swe-agent.com/latest/advanced/yaml_configuration/
    """

    name = "mini"
    wire: WireName | None = "chat"

    @property
    def version(self) -> str:
        metadata = next(_mini_packages(tuple(agent_directories())).glob("mini_swe_agent-*.dist-info"), None)
        return metadata.name.removesuffix(".dist-info").rpartition("-")[2] if metadata else "unknown"

    def install(self, programs: str = PROGRAMS) -> tuple[Mount, ...]:
        return (Mount(_mini_packages(tuple(agent_directories())), f"{programs}/mini"),)

    def invocation(self, assignment: Assignment) -> Invocation:
        place = f"{assignment.home}/task.yaml"
        argv = (
            # python3.11, say: compiled packages need the Python that they were installed for
            _mini_packages(tuple(agent_directories())).parent.name,
            "-I",
            "-c",
            START_MINI,
            f"{assignment.programs}/mini",
            *("-c", "mini.yaml", "-c", place),
            *("-m", f"openai/{assignment.model}"),
            *("-o", f"{assignment.home}/trajectory.json"),
            *("-y", "--exit-immediately"),
        )
        env = {
            "HOME": assignment.home,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_GLOBAL_CONFIG_DIR": f"{assignment.home}/.config/mini-swe-agent",
            "MSWEA_COST_TRACKING": "ignore_errors",  # it does not know the price of every model
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or litellm fetches a price list at start
            "OPENAI_API_KEY": assignment.token,
            "OPENAI_API_BASE": f"{assignment.url}/v1",
        }
        # In a file, so that an instruction may be longer than an argument can. The proxy limits spending, not mini.
        config: dict[str, object] = {
            "run": {"task": assignment.instruction},
            "agent": {"cost_limit": 0, "step_limit": assignment.max_turns or 0},
        }
        if assignment.effort:
            config["model"] = {"model_kwargs": {"reasoning_effort": assignment.effort}}
        return Invocation(argv, env, {place: json.dumps(config).encode()})
