"""One box stands for a compose file's main service; what it cannot do is told, and other services are not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.errors import InfraError, SpecError
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.environment import built_for
from bakeoff.workloads.tasks.loading import load_task
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


def test_what_a_box_does_not_do_is_told(tmp_path: Path) -> None:
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


def test_a_program_that_the_image_would_start_with_is_told(tmp_path: Path) -> None:
    folder = harbor_task(tmp_path / "t", {"environment/Dockerfile": 'FROM host\nENTRYPOINT ["/serve"]\n'})
    assert load_task(folder).notes == ("Dockerfile: ENTRYPOINT: is not run",)
    (folder / "environment/Dockerfile").write_text("FROM host\nENTRYPOINT []\n")
    assert load_task(folder).notes == ()


def test_a_service_with_an_image_and_nothing_to_build_has_that(tmp_path: Path) -> None:
    task = load_task(old_task(tmp_path / "t", "services: {client: {image: python:3.12}}\n"))
    assert (task.environment.docker_image, task.environment.uploads) == ("python:3.12", False)
