"""A task's environment as an image and a sandbox: compose files, limits, networks, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bakeoff.errors import InfraError, SpecError
from bakeoff.sandbox.base import Image
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.environment import box_spec, built_for, limits, refused, replaces_image
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.model import Environment, Network, Step, Task
from workloads.tasks.tasked import harbor_task, write_files

CLIENT = """\
services:
  client:
    build: {context: box, dockerfile: Own, args: {BASE: host}}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    working_dir: /srv
    environment: ["TEST_DIR=${T_BENCH_TEST_DIR}", "LEVEL=3", "GIVEN"]
    volumes: ["${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}"]
    platform: linux/amd64
"""


def old_task(folder: Path, compose: str) -> Path:
    files = {"task.yaml": "instruction: Make it.\n", "run-tests.sh": "true\n", "docker-compose.yaml": compose}
    return write_files(folder, {**files, "box/Own": "ARG BASE\nFROM $BASE\n"})


def test_the_main_service_is_what_the_box_is_made_from(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    task = load_task(old_task(tmp_path / "t", CLIENT))
    assert (task.environment.context, task.notes) == (tmp_path / "t/box", ())
    assert (task.environment.env, task.workdir) == ({"LEVEL": "3", "GIVEN": "${GIVEN:-}"}, "/srv")
    assert built_for(task.environment, bubblewrap).workdir == "/srv"


def test_keys_that_a_sandbox_does_not_apply_are_noted(tmp_path: Path) -> None:
    text = "    tmpfs: [/x]\n    command: /serve\n    volumes: [./a:/a]\n    privileged: true\n"
    compose = CLIENT.replace('    command: ["sh", "-c", "sleep infinity"]\n', "").partition("    volumes")[0] + text
    notes = load_task(old_task(tmp_path / "t", compose)).notes
    assert [note.split()[2] for note in notes] == ["tmpfs", "command", "volumes", "privileged"]


@pytest.mark.parametrize("main", ["\n  main: {depends_on: [db]}", ""])
def test_a_task_of_several_services_is_refused_and_not_run_without_them(
    tmp_path: Path, bubblewrap: Bubblewrap, main: str
) -> None:
    compose = f"services:{main}\n  db: {{build: nowhere}}\n"
    task = load_task(harbor_task(tmp_path / "t", {"environment/docker-compose.yaml": compose}))
    assert task.notes == ("docker-compose.yaml: db would run beside the main service, and only one sandbox is run",)
    with pytest.raises(InfraError, match=r"environment/docker-compose.yaml: db would run .* cannot be run"):
        built_for(task.environment, bubblewrap)


@pytest.mark.parametrize("text", ["services: 3\n", "services: {client: {build: nowhere}}\n", "services: [\n"])
def test_a_compose_file_that_cannot_be_followed_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError, match=r"docker-compose.yaml"):
        load_task(old_task(tmp_path / "t", text))


def test_an_entrypoint_is_noted(tmp_path: Path) -> None:
    folder = harbor_task(tmp_path / "t", {"environment/Dockerfile": 'FROM host\nENTRYPOINT ["/serve"]\n'})
    assert load_task(folder).notes == ("Dockerfile: ENTRYPOINT: is not run",)
    (folder / "environment/Dockerfile").write_text("FROM host\nENTRYPOINT []\n")
    assert load_task(folder).notes == ()


def test_a_service_with_an_image_and_nothing_to_build_has_that(tmp_path: Path) -> None:
    task = load_task(old_task(tmp_path / "t", "services: {client: {image: python:3.12}}\n"))
    assert (task.environment.docker_image, task.environment.uploads) == ("python:3.12", False)


def test_a_box_has_the_tasks_limits_and_a_network_only_where_it_was_granted() -> None:
    environment = Environment(memory_mb=100, cpus=0.5, storage_mb=50, env={"A": "${B:-c}"})
    task = Task("org/a task!", "harbor", Path("/"), "d", "t", environment, (Step("main", "do"),))
    spec = box_spec(task, Image.host())
    assert (spec.limits.memory_mb, spec.limits.cpus, spec.limits.disk_mb, spec.env, spec.network) == (100, 0.5, 50, {"A": "c"}, False)  # fmt: skip
    assert spec.limits.pids is not None
    assert box_spec(task.with_network(), Image.host()).network
    closed = Environment(network=Network("no-network"))
    assert not box_spec(task.with_network(), Image.host(), environment=closed).network


@pytest.mark.parametrize(
    ("modes", "network"),
    [
        (("public", "public", "public"), True),
        (("public", "no-network", "public"), False),
        (("public", "public", "allowlist"), False),
        (("no-network", "public", "public"), False),
    ],
)
def test_a_box_has_a_network_only_where_everybody_in_it_asks_for_one(
    tmp_path: Path, modes: tuple[str, str, str], network: bool
) -> None:
    tables = zip(("environment", "agent", "verifier"), modes, strict=True)
    toml = "".join(f'[{name}]\nnetwork_mode = "{mode}"\n' for name, mode in tables)
    task = load_task(harbor_task(tmp_path / "t", toml=toml))
    assert box_spec(task.with_network(), Image.host()).network is network
    assert not box_spec(task, Image.host()).network
    assert bool(task.notes) is not network


def test_a_separate_verifier_has_its_own_network(tmp_path: Path) -> None:
    toml = '[agent]\nnetwork_mode = "no-network"\n[environment]\nnetwork_mode = "no-network"\n[verifier.environment]\nnetwork_mode = "public"\n'
    task = load_task(harbor_task(tmp_path / "t", toml=toml)).with_network()
    assert not box_spec(task, Image.host()).network and not task.notes
    assert box_spec(task, Image.host(), environment=task.first.verifier.environment).network


def test_a_windows_task_is_read_and_refused(tmp_path: Path) -> None:
    folder = harbor_task(tmp_path / "t", {"tests/test.bat": "exit"}, '[environment]\nos = "Windows"\n')
    (folder / "tests/test.sh").unlink()
    assert refused(load_task(folder).environment).startswith("environment.os: windows sandboxes are not available")


def test_a_named_image_that_is_not_at_hand_is_built_from_its_dockerfile(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    environment = load_task(
        harbor_task(tmp_path / "t", toml='[environment]\ndocker_image = "far/away:1"\n')
    ).environment
    assert "'far/away:1' is not in the store: Dockerfile is built instead" in replaces_image(environment, bubblewrap)
    assert not replaces_image(replace(environment, dockerfile=None), bubblewrap)
    assert not replaces_image(replace(environment, docker_image="host"), bubblewrap)


def test_a_task_that_names_no_limits_has_some_all_the_same() -> None:
    found = limits(Environment())
    assert found.memory_mb and found.disk_mb and found.pids
