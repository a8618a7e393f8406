"""Harbor and terminal-bench directories are read directly; unknown keys are told, missing files named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.errors import SpecError
from bakeoff.workloads.tasks.environment import filled_in
from bakeoff.workloads.tasks.harbor import without_canary
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.model import Network
from bakeoff.workloads.tasks.schema import Artifact
from workloads.tasks.tasked import harbor_task, write_files

WHOLE = """\
schema_version = "1.4"
source = "hub"
artifacts = ["/app/out", { source = "/app/data", destination = "data", exclude = ["*.tmp"] }]

[task]
name = "org/name"
version = "2.0"
description = "What it is."
keywords = ["a", "b"]
authors = [{ name = "n", email = "n@x" }]

[metadata]
difficulty = "hard"
anything = { goes = 1 }

[agent]
timeout_sec = 120
user = 1000
network_mode = "allowlist"
allowed_hosts = ["pypi.org"]

[verifier]
timeout_sec = 60.5
env = { KEY = "${API_KEY:-none}" }
user = "root"

[[verifier.collect]]
command = "pg_dump > /logs/artifacts/dump.sql"
timeout_sec = 5

[environment]
build_timeout_sec = 100
docker_image = "python:3.11"
cpus = 2
memory_mb = 1024
storage_mb = 2048
network_mode = "no-network"
env = { A = "1" }
workdir = "/srv"
skills_dir = "/skills"
gpus = 0
gpu_types = ["H100"]

[[environment.mcp_servers]]
name = "files"
transport = "stdio"
command = "serve"
args = ["x"]

[environment.healthcheck]
command = "true"
retries = 5

[solution]
env = { B = "2" }
"""


def test_every_table_of_the_schema_is_understood(tmp_path: Path) -> None:
    task = load_task(harbor_task(tmp_path / "t", toml=WHOLE))
    told = " ".join(task.notes)
    assert len(task.notes) == 3 and all(name in told for name in ("mcp_servers", "skills_dir", "HTTP proxy"))
    assert (task.id, task.title, task.tags) == ("org/name", "name", ("a", "b"))
    assert task.artifacts == (
        Artifact(source="/app/out"),
        Artifact(source="/app/data", destination="data", exclude=("*.tmp",)),
    )
    assert (task.first.agent.timeout, task.first.agent.user, task.first.agent.network) == (
        120,
        "1000",
        Network("allowlist", ("pypi.org",)),
    )
    assert (task.first.verifier.timeout, task.first.verifier.user, task.first.verifier.mode) == (60.5, "root", "shared")
    assert task.first.verifier.env == {"KEY": "${API_KEY:-none}"}
    assert task.first.verifier.collect[0].command.startswith("pg_dump")
    environment = task.environment
    assert (environment.docker_image, environment.cpus, environment.memory_mb, environment.storage_mb) == ("python:3.11", 2, 1024, 2048)  # fmt: skip
    assert (environment.network.mode, environment.workdir) == ("no-network", "/srv")
    assert environment.healthcheck is not None and environment.healthcheck.retries == 5
    assert task.first.solution is not None and task.first.solution.env == {"B": "2"}


def test_the_older_keys_are_understood(tmp_path: Path) -> None:
    toml = 'version = "1.0"\n[metadata]\ntags = ["old"]\n[environment]\nmemory = "2G"\nstorage = "512M"\nallow_internet = false\n'
    task = load_task(harbor_task(tmp_path / "t", toml=toml))
    assert (task.environment.memory_mb, task.environment.storage_mb) == (2048, 512)
    assert task.environment.network.mode == "no-network"
    assert (task.id, task.tags, task.notes) == ("t", ("old",), ())


def test_only_a_whole_value_is_a_variable_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "7")
    texts = "{ A = '${GIVEN}', B = '${NONE:-x}', C = 'Hi ${name}, $$5', D = '$(pwd)' }"
    toml = f"[environment]\nenv = {texts}\n[verifier]\nenv = {texts}\n[solution]\nenv = {texts}\n"
    task = load_task(harbor_task(tmp_path / "t", toml=toml))
    assert task.first.solution is not None
    for env in (task.environment.env, task.first.verifier.env, task.first.solution.env):
        assert filled_in(task, "environment", env) == {"A": "7", "B": "x", "C": "Hi ${name}, $$5", "D": "$(pwd)"}


def test_unknown_keys_and_newer_schemas_are_noted(tmp_path: Path) -> None:
    toml = 'schema_version = "1.9"\nshiny = 1\n[environment]\ntypo = 2\n[[steps]]\nname = "a"\nextra = 3\n'
    files = {"steps/a/instruction.md": "x", "steps/a/tests/test.sh": "true"}
    notes = " ".join(load_task(harbor_task(tmp_path / "t", files, toml)).notes)
    assert all(word in notes for word in ("shiny", "environment.typo", "steps.0.extra", "1.9"))


def test_steps_take_from_the_task_what_they_do_not_say(tmp_path: Path) -> None:
    toml = """
multi_step_reward_strategy = "final"
[agent]
timeout_sec = 9
[verifier]
timeout_sec = 8
env = { A = "task" }
collect = [{ command = "first" }]
[[steps]]
name = "one"
min_reward = 0.5
[[steps]]
name = "two"
min_reward = { quality = 0.2 }
[steps.agent]
timeout_sec = 4
[steps.verifier]
env = { B = "step" }
collect = [{ command = "second" }]
"""
    files = {
        "steps/one/instruction.md": "first",
        "steps/one/tests/test.sh": "true",
        "steps/one/workdir/setup.sh": "true",
        "steps/two/instruction.md": "second",
        "steps/two/solution/solve.sh": "true",
    }
    task = load_task(harbor_task(tmp_path / "t", files, toml))
    one, two = task.steps
    assert (one.name, one.instruction, one.agent.timeout, dict(one.min_reward)) == ("one", "first", 9, {"reward": 0.5})
    assert (two.agent.timeout, two.verifier.timeout, dict(two.min_reward)) == (4, 8, {"quality": 0.2})
    assert two.verifier.env == {"A": "task", "B": "step"}
    assert [folder.name for folder in one.verifier.tests] == ["tests", "tests"]
    assert [folder.parent.name for folder in one.verifier.tests] == ["t", "one"]
    assert [[hook.command for hook in step.verifier.collect] for step in task.steps] == [["first"], ["first", "second"]]
    assert one.workdir is not None and one.solution is not None and two.solution is not None
    assert (one.solution.source, two.solution.source) == (tmp_path / "t/solution", tmp_path / "t/steps/two/solution")
    assert task.multi_step_reward == "final"


@pytest.mark.parametrize("toml", ['[verifier]\nenvironment_mode = "separate"\n', "[verifier.environment]\ncpus = 1\n"])
def test_a_separate_verifier_needs_no_test_script_but_its_own_image(tmp_path: Path, toml: str) -> None:
    folder = harbor_task(tmp_path / "t", {"tests/Dockerfile": "FROM host\n"}, toml)
    (folder / "tests/test.sh").unlink()
    task = load_task(folder)
    assert task.first.verifier.mode == "separate"
    assert (
        task.first.verifier.environment is not None
        and task.first.verifier.environment.dockerfile == folder / "tests/Dockerfile"
    )


@pytest.mark.parametrize("toml", ['[verifier]\nenvironment_mode = "separate"\n', "[verifier.environment]\ncpus = 1\n"])
def test_a_separate_verifier_without_its_own_image_has_the_tasks(tmp_path: Path, toml: str) -> None:
    folder = harbor_task(tmp_path / "t", toml=toml)
    verifier = load_task(folder).first.verifier
    assert verifier.environment is not None and verifier.environment.dockerfile == folder / "environment/Dockerfile"
    assert not verifier.tests_in_image
    (folder / "tests/test.sh").unlink()
    with pytest.raises(SpecError, match=r"tests/test.sh: is needed"):
        load_task(folder)


def test_a_steps_separate_verifier_falls_back_to_the_tasks_tests(tmp_path: Path) -> None:
    toml = '[verifier]\nenvironment_mode = "separate"\n[environment]\nmemory_mb = 77\n[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n[steps.verifier.environment]\ndocker_image = "grader:1"\n'
    files = {f"steps/{name}/{file}": "true" for name in "ab" for file in ("instruction.md", "tests/test.sh")}
    folder = harbor_task(tmp_path / "t", {**files, "tests/Dockerfile": "FROM host\n"}, toml)
    one, two = (step.verifier for step in load_task(folder).steps)
    assert one.environment is not None and two.environment is not None
    assert (one.environment.dockerfile, one.environment.memory_mb) == (folder / "tests/Dockerfile", 77)
    assert (two.environment.docker_image, two.environment.dockerfile) == ("grader:1", None)
    assert one.tests_in_image and two.tests_in_image


def test_keys_and_files_that_are_not_used_are_noted(tmp_path: Path) -> None:
    toml = '[environment]\ngpus = 1\nenv = { KEY = "${MY_KEY}" }\n[verifier.environment]\nskills_dir = "/s"\n[verifier.environment.healthcheck]\ncommand = "true"\n'
    files = {"trajectory.json": "{}", "tests/.harborignore": "*.md\n"}
    names = (
        "environment.gpus",
        "environment.env.KEY: agents see MY_KEY of this machine",
        "verifier.environment.healthcheck",
        "verifier.environment.skills_dir",
        "trajectory.json",
        "tests/.harborignore",
    )
    notes = load_task(harbor_task(tmp_path / "t", files, toml)).notes
    assert len(notes) == len(names) and all(name in note for name, note in zip(names, notes, strict=True)), notes


def test_scripts_with_windows_line_endings_are_noted(tmp_path: Path) -> None:
    folder = harbor_task(tmp_path / "t")
    (folder / "tests/test.sh").write_bytes(b"#!/bin/sh\r\ntrue\r\n")
    assert load_task(folder).notes == ("tests/test.sh: its lines end with CR LF, and no shell runs that",)


@pytest.mark.parametrize(
    ("gone", "key"),
    [("instruction.md", "instruction.md"), ("tests/test.sh", "tests/test.sh"), ("environment", "environment/")],
)
def test_missing_files_are_named(tmp_path: Path, gone: str, key: str) -> None:
    folder = harbor_task(tmp_path / "t")
    (folder / gone).rename(tmp_path / "away")
    with pytest.raises(SpecError) as raised:
        load_task(folder)
    assert f"{folder}: {key}: is needed" in str(raised.value)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[agent]\ntimeout_sec = -1\n", ["task.toml:2", "agent.timeout_sec"]),
        ('[environment]\nnetwork_mode = "some"\n', ["environment.network_mode"]),
        ('[environment]\nnetwork_mode = "public"\nallowed_hosts = ["x"]\n', ["allowed_hosts"]),
        ('[[environment.mcp_servers]]\nname = "x"\n', ["needs url"]),
        ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1\n', ["verifier", "separate"]),
        ('[[steps]]\nname = "a"\n[[steps]]\nname = "a"\n', ["steps", "two steps 'a'"]),
        ('[[steps]]\nname = ".."\n', ["steps.0.name"]),
        ('multi_step_reward_strategy = "best"\n', ["multi_step_reward_strategy"]),
        ("[agent\n", ["task.toml:1", "not valid TOML"]),
    ],
)
def test_wrong_values_are_named_with_their_line(tmp_path: Path, toml: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as raised:
        load_task(harbor_task(tmp_path / "t", toml=toml))
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"), [(b"caf\xe9\n", "not UTF-8"), (b"# canary\n\n", "instruction.md: is needed")]
)
def test_an_instruction_that_says_nothing_is_refused(tmp_path: Path, text: bytes, words: str) -> None:
    folder = harbor_task(tmp_path / "t")
    (folder / "instruction.md").write_bytes(text)
    with pytest.raises(SpecError, match=words):
        load_task(folder)


def test_canary_lines_are_stripped_from_the_top_only() -> None:
    text = "<!-- BENCHMARK canary GUID 1 -->\n# harbor-canary 2\n\nDo it.\n# canary stays\n"
    assert without_canary(text) == "Do it.\n# canary stays\n"
    assert without_canary("# A heading\nDo it.\n") == "# A heading\nDo it.\n"


YAML = """\
# canary line in a comment
instruction: |
  Make it work.
difficulty: easy
category: tools
tags: [a, b]
parser_name: pytest
max_agent_timeout_sec: 180
max_test_timeout_sec: 30
run_tests_in_same_shell: false
author_name: n
new_key: 1
"""


def test_a_terminal_bench_task_is_mapped(tmp_path: Path) -> None:
    files = {
        "task.yaml": YAML,
        "Dockerfile": "FROM debian\n",
        "docker-compose.yaml": "services: {}\n",
        "run-tests.sh": "pytest $TEST_DIR\n",
        "tests/test_it.py": "",
        "solution.sh": "true\n",
    }
    task = load_task(write_files(tmp_path / "old", files))
    assert (task.id, task.format, task.first.instruction) == ("old", "terminal-bench", "Make it work.\n")
    assert (task.first.agent.timeout, task.first.verifier.timeout) == (180, 30)
    assert task.first.verifier.parser == "pytest" and task.first.verifier.env == {"TEST_DIR": "/tests"}
    assert {"tests", "solution.sh", "run-tests.sh"} <= set(task.environment.withheld)
    assert any("new_key" in note for note in task.notes)


def test_a_terminal_bench_task_without_its_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"run-tests.sh: is needed"):
        load_task(write_files(tmp_path / "old", {"task.yaml": YAML, "Dockerfile": "FROM x\n"}))


def test_the_first_terminal_bench_tasks_had_descriptions(tmp_path: Path) -> None:
    yaml = "descriptions:\n  - {key: hard, description: Guess.}\n  - {key: base, description: Do it.}\nrun_tests_in_same_shell: true\n"
    files = {"task.yaml": yaml, "Dockerfile": "FROM x\n", "run-tests.sh": "true\n"}
    task = load_task(write_files(tmp_path / "old", files))
    assert task.first.instruction == "Do it."
    assert [note.split(":")[1].strip() for note in task.notes] == ["run_tests_in_same_shell"]
