"""Agents on this machine without a sandbox: their mounts become links in a temporary directory."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bakeoff.workloads.tasks.agents.base import Assignment, Invocation, TaskAgent

REPOSITORY = Path(__file__).parents[3]
AGENTS = Path(os.environ.get("BAKEOFF_AGENTS", REPOSITORY / ".agents"))


@dataclass(frozen=True)
class Bench:
    """A home, a working directory and a place for programs, all empty."""

    folder: Path

    def __post_init__(self) -> None:
        for place in (self.workdir, self.home, self.programs):
            place.mkdir(parents=True)

    @property
    def workdir(self) -> Path:
        return self.folder / "work"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def programs(self) -> Path:
        return self.folder / "programs"

    def assignment(self, instruction: str, **more: object) -> Assignment:
        places = {"workdir": str(self.workdir), "home": str(self.home), "programs": str(self.programs)}
        return Assignment(instruction, **{**places, **more})  # type: ignore[arg-type]

    def install(self, agent: TaskAgent) -> None:
        for mount in agent.install(str(self.programs)):
            Path(mount.target).symlink_to(mount.source)

    def call(self, invocation: Invocation, timeout: float = 150) -> subprocess.CompletedProcess[bytes]:
        for name, content in invocation.files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(content)
        env = {"PATH": os.environ["PATH"], **invocation.env}
        return subprocess.run(
            invocation.argv, env=env, input=invocation.stdin, cwd=self.workdir, capture_output=True, timeout=timeout
        )
