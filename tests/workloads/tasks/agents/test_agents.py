"""Agents by name, by table and by class; the two that need no model."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bakeoff.errors import UsageError
from bakeoff.sandbox.base import Mount
from bakeoff.workloads.tasks.agents.base import Assignment
from bakeoff.workloads.tasks.agents.clients import MACHINE
from bakeoff.workloads.tasks.agents.registry import SHIPPED, AgentEntry, agent
from bakeoff.workloads.tasks.workload import TasksParams
from workloads.tasks.clients import Bench

ASSIGNMENT = Assignment("Say 'hi'; $HOME `x`", "/app/repo", "gpt-x", "http://127.0.0.1:4000", "sk-token")


def table(**entry: Any) -> dict[str, AgentEntry]:
    params = TasksParams.model_validate({"path": "task", "agents": {"mine": {"command": "true", **entry}}})
    return params.agents


@pytest.mark.parametrize("name", SHIPPED)
def test_every_agent_that_ships_has_the_interface(name: str) -> None:
    made = agent(name)
    assert made.name == name
    assert made.wire in ("chat", "responses", "messages", None)
    assert made.needs_solution == (name == "oracle")


def test_an_unknown_agent_is_an_error_with_a_fix() -> None:
    with pytest.raises(UsageError, match="did you mean 'codex'"):
        agent("codx")
    with pytest.raises(UsageError, match=r"\[agents.zzz\] command"):
        agent("zzz")


def test_a_custom_class_is_an_agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(
        "class Own:\n"
        "    name, wire, needs_solution, version = 'own', None, False, '1'\n"
        "    def install(self, programs=''): return ()\n"
        "    def invocation(self, assignment): return assignment.instruction\n"
        "class Half:\n"
        "    name = 'half'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert agent("my_agents:Own").invocation(ASSIGNMENT) == ASSIGNMENT.instruction
    with pytest.raises(UsageError, match="lacks wire, version, install, invocation"):
        agent("my_agents:Half")
    for wrong in ("my_agents:Absent", "no_such_module:X"):
        with pytest.raises(UsageError, match="cannot be created"):
            agent(wrong)


def test_a_command_gets_its_values_and_never_takes_them_for_code(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    command = "printf '%s|' {instruction} {model} {base_url} {api_key} \"{workdir}\"; cat {instruction_file}"
    made = agent(
        "mine", table(command=command, env={"KEY": "k={api_key}"}, files={"{home}/c.json": '{{"u": "{url}"}}'})
    )
    told = bench.assignment(ASSIGNMENT.instruction, model="gpt-x", url=ASSIGNMENT.url, token="sk-token")
    invocation = made.invocation(told)
    ended = bench.call(invocation)
    said = ASSIGNMENT.instruction
    assert ended.stdout.decode() == f"{said}|gpt-x|http://127.0.0.1:4000/v1|sk-token|{bench.workdir}|{said}"
    assert invocation.env["KEY"] == "k=sk-token"
    assert (bench.home / "c.json").read_text() == '{"u": "http://127.0.0.1:4000"}'


def test_a_command_can_be_a_list_and_read_its_instruction_from_stdin(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    made = agent("mine", table(command=["cat", "-"], stdin="{instruction}", wire="none", version="7"))
    assert bench.call(made.invocation(bench.assignment("a; b"))).stdout == b"a; b"
    assert (made.wire, made.version, made.needs_solution) == (None, "7", False)


def test_the_files_of_a_command_are_mounted_below_its_programs(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("")
    made = agent("mine", table(mounts={"bin/tool": "tool"}), base=tmp_path)
    assert made.install() == (Mount(tmp_path / "tool", "/opt/bakeoff/bin/tool"),)
    with pytest.raises(UsageError, match="absent does not exist"):
        agent("mine", table(mounts={"x": "absent"}), base=tmp_path).install()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"command": "run {prompt}"}, r"unknown \{prompt\}"),
        ({"env": {"A": "{nope}"}}, r"unknown \{nope\}"),
        ({"command": ""}, "agents.mine.command"),
        ({"wire": "soap"}, "agents.mine.wire"),
        ({"shell": "sh"}, "agents.mine.shell"),
        ({"mounts": {"../x": "y"}}, "must be a name below"),
    ],
)
def test_the_error_for_a_wrong_table_names_its_key(entry: dict[str, Any], message: str) -> None:
    with pytest.raises((UsageError, ValidationError), match=message):
        agent("mine", table(**entry))


def test_a_table_may_take_the_place_of_an_agent_that_ships() -> None:
    assert agent("codex", {"codex": AgentEntry(command="true")}).version == "unknown"


def test_an_agent_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAKEOFF_AGENTS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, fix in (("codex", "npm install --prefix .agents @openai/codex"), ("mini", "pip install mini-swe-agent")):
        with pytest.raises(UsageError, match=fix):
            _ = agent(name).version


def test_a_client_on_the_path_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "lib/node_modules/@openai/codex"
    native = package / "node_modules/@openai" / f"codex-linux-{MACHINE}" / "vendor/triple"
    native.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "9.9.9"}')
    (package / "bin").mkdir()
    (package / "bin/codex.js").write_text("")
    (package / "bin/codex.js").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/codex").symlink_to(package / "bin/codex.js")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAKEOFF_AGENTS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert agent("codex").version == "9.9.9"
    assert agent("codex").install() == (Mount(native, "/opt/bakeoff/codex"),)


@pytest.mark.apt  # git
def test_the_oracle_applies_a_patch_or_runs_a_script(tmp_path: Path) -> None:
    bench, solution = Bench(tmp_path), tmp_path / "solution"
    solution.mkdir()
    told = bench.assignment("Do it.", solution=str(solution))
    none = bench.call(agent("oracle").invocation(told))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)  # it works in a directory of the repository
    made = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+made\n"
    (solution / "diff.patch").write_text(made.format("work/new.txt") + made.format("beside/new.txt"))
    patched = bench.call(agent("oracle").invocation(told))
    (solution / "solve.sh").write_text("echo $DEBIAN_FRONTEND > solved.txt\n")
    solved = bench.call(agent("oracle").invocation(told))
    assert (none.returncode, patched.returncode, solved.returncode) == (2, 0, 0)
    assert (bench.workdir / "new.txt").read_text() == (tmp_path / "beside/new.txt").read_text() == "made\n"
    assert (bench.workdir / "solved.txt").read_text() == "noninteractive\n"


def test_nop_does_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.call(agent("nop").invocation(bench.assignment("Do it."))).returncode == 0
    assert list(bench.workdir.iterdir()) == []
