"""A task as plain facts, for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bakeoff.workloads.tasks.model import Task
from bakeoff.workloads.tasks.proof import missing_reference
from bakeoff.workloads.tasks.repository import public_url


def described(task: Task) -> dict[str, Any]:
    """Everything but the content of what is hidden."""
    environment, repository = task.environment, task.repository
    wanted = {"cpus": environment.cpus, "memory_mb": environment.memory_mb, "storage_mb": environment.storage_mb}
    return {
        "id": task.id,
        "title": task.title,
        "format": task.format,
        "directory": task.directory,
        "digest": task.digest,
        "tags": list(task.tags),
        "repository": public_url(repository.url) if repository else None,
        "commit": repository.commit if repository else None,
        "subdir": (repository.subdir or None) if repository else None,
        "sparse": list(repository.sparse) if repository else [],
        "image": environment.docker_image or environment.dockerfile,
        "workdir": task.workdir,
        "network": environment.network.mode,
        "limits": {name: value for name, value in wanted.items() if value is not None},
        "agent_seconds": task.agent.timeout,
        "verifier_seconds": task.verifier.timeout,
        "verifier": task.verifier.mode if task.format != "prepared" else None,
        "variables": sorted(environment.env),
        "removed": list(task.removals),
        "overlays": [file.target for file in task.overlays],
        "hidden": [script.path for script in task.scripts],
        "reference": not missing_reference(task),
        "rubrics": [asdict(rubric) for rubric in task.rubrics],
        "untested": [rubric.id for rubric in task.untested],
        "steps": [
            {"name": step.name, "instruction": step.instruction, "min_reward": dict(step.min_reward)}
            for step in task.steps
        ],
        "notes": list(task.notes),
    }
