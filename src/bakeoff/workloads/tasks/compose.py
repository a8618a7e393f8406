"""The main service of a compose file, as far as one box can stand for it. What it cannot do is told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bakeoff.errors import Problem, SpecError
from bakeoff.workloads.tasks.model import Environment
from bakeoff.workloads.tasks.schema import read_tree

FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
READ = frozenset({"build", "image", "environment", "working_dir"})
HARMLESS = frozenset({"container_name", "hostname", "platform", "tty", "stdin_open", "init", "restart", "pull_policy", "labels",
                      "expose", "ports", "networks", "depends_on", "logging", "stop_grace_period"})  # fmt: skip
"""About other containers, or about keeping this one alive."""
_OF_THE_RUNNER = re.compile(r"\$\{?(T_BENCH_|HOST_|ENV_|MAIN_|PREBUILT_|CONTEXT_DIR|TEST_DIR|CPUS|MEMORY)")
"""Variables by which a runner tells a compose file its own names and places."""
_SLEEPS = re.compile(r"sleep\s+infinity|tail\s+-f\s+/dev/null|^(/bin/)?(ba)?sh$")


def composed(environment: Environment, file: Path, main: str) -> tuple[Environment, tuple[str, ...]]:
    """`environment` with what the service `main` of `file` says, if anything, and notes on what is not followed."""
    services = read_tree(file).get("services")
    if not isinstance(services, dict) or not all(isinstance(one, dict) for one in services.values()):
        raise SpecError([Problem("services", "has to be a table of services", "write it as compose does")], file)
    service: dict[str, Any] = services.get(main, {})
    others = tuple(name for name in services if name != main)
    found = replace(environment, compose=file, services=others)
    found = _built(found, service, file)
    env = {**environment.env, **dict(_variables(service.get("environment")))}
    workdir = environment.workdir or service.get("working_dir")
    notes = tuple(f"{file.name}: {main}: {one}" for one in _not_followed(service))
    return replace(found, env=env, workdir=workdir), (*notes, *([f"{file.name}: {_alone(others)}"] if others else []))


def refusal(environment: Environment) -> str:
    """Why no box can stand for the whole file."""
    return f"{environment.compose}: {_alone(environment.services)}, so the task cannot be run"


def _alone(others: tuple[str, ...]) -> str:
    return f"{', '.join(others)} would run beside the main service, and only one box is run"


def _built(environment: Environment, service: Mapping[str, Any], file: Path) -> Environment:
    """What the image is built from: the service's own `build`, else the Dockerfile that lies beside, else its image."""
    build = service.get("build")
    table = {"context": build} if isinstance(build, str) else build if isinstance(build, dict) else {}
    context = str(table.get("context") or ".")
    here = file.parent if _OF_THE_RUNNER.search(context) else (file.parent / context).resolve()
    dockerfile = here / str(table.get("dockerfile") or "Dockerfile")
    if table and not dockerfile.is_file():
        raise SpecError([Problem("services.build", f"there is no {dockerfile}", "correct its context")], file)
    if table:
        args = dict(_variables(table.get("args")))
        return replace(environment, context=here, dockerfile=dockerfile, build_args=args)
    image = service.get("image")
    if image and environment.dockerfile is None and not _OF_THE_RUNNER.search(str(image)):
        return replace(environment, docker_image=environment.docker_image or str(image))
    return environment


def _variables(given: Any) -> Iterator[tuple[str, str]]:
    """`[A=1]` or `{A: 1}`, without those that a runner fills in. `A` alone is this machine's, by name."""
    pairs = given.items() if isinstance(given, dict) else (str(one).partition("=")[::2] for one in given or ())
    for name, value in pairs:
        bare = value is None or (not isinstance(given, dict) and not value and f"{name}=" not in given)
        text = f"${{{name}:-}}" if bare else str(value).replace("$$", "$")
        if not _OF_THE_RUNNER.search(text):
            yield str(name), text


def _not_followed(service: Mapping[str, Any]) -> Iterator[str]:
    for name, value in service.items():
        if name in READ | HARMLESS:
            continue
        if name in ("command", "entrypoint") and _SLEEPS.search(
            " ".join(value) if isinstance(value, list) else str(value)
        ):
            continue
        if name == "volumes" and all(_OF_THE_RUNNER.search(str(one)) for one in value or ()):
            continue
        if name == "deploy" and _OF_THE_RUNNER.search(str(value)):
            continue
        yield f"{name} is not applied to the box"
    build = service.get("build")
    for name in sorted(set(build) - {"context", "dockerfile", "args"}) if isinstance(build, dict) else ():
        yield f"build.{name} is not applied"
