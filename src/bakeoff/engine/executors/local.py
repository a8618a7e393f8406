"""This machine: commands are spawned, everything else runs in warm workers. A warden ends all of it if we die."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass

from bakeoff.engine import processes
from bakeoff.engine.executors.base import Executor, Start
from bakeoff.engine.executors.commands import CommandLane
from bakeoff.engine.executors.finish import Finisher
from bakeoff.engine.executors.pool import WorkerPool
from bakeoff.errors import Problem, SpecError
from bakeoff.records.edition import Result
from bakeoff.records.layout import EditionPaths
from bakeoff.spec import registry, variables
from bakeoff.spec.plan import Plan
from bakeoff.spec.workload import CommandWorkload


@dataclass(frozen=True, slots=True)
class Local:
    """An executor together with the warden and the right to adopt orphans."""

    lane: Executor
    warden: subprocess.Popen[bytes]

    def capacity(self) -> int:
        return self.lane.capacity()

    def start(self, run: Start) -> None:
        self.lane.start(run)

    def wait(self, timeout: float) -> list[Result]:
        return self.lane.wait(timeout)

    def returned(self) -> list[Start]:
        return self.lane.returned()

    def running(self) -> list[tuple[Start, float]]:
        return self.lane.running()

    def recall(self) -> None:
        self.lane.recall()

    def stop(self) -> None:
        self.lane.stop()

    def close(self) -> None:
        self.lane.close()
        assert self.warden.stdin is not None
        self.warden.stdin.close()
        self.warden.wait()
        processes.become_subreaper(False)


def local(plan: Plan, paths: EditionPaths, *, jobs: int, mark: str, settle_after: float) -> Executor:
    """First ends what an earlier scheduler of this edition left running."""
    processes.end_marked(f"{mark}:")
    shutil.rmtree(paths.scratch, ignore_errors=True)
    processes.become_subreaper()
    warden = subprocess.Popen([sys.executable, "-m", "bakeoff.engine.warden", f"{mark}:"], stdin=subprocess.PIPE)
    return Local(_lane(plan, paths, jobs, mark, settle_after), warden)


def _lane(plan: Plan, paths: EditionPaths, jobs: int, mark: str, settle_after: float) -> Executor:
    experiment = plan.experiment
    workload = registry.workload(experiment.workload)
    finisher = Finisher(plan, paths, registry.settings(experiment.workload))
    env = _environment(plan)
    if isinstance(workload, CommandWorkload):
        return CommandLane(
            workload, finisher, jobs=jobs, mark=mark, limits=experiment.limits, env=env, base=plan.base,
            scratch=paths.scratch, settle_after=settle_after,
        )  # fmt: skip
    return WorkerPool(
        experiment.workload, finisher, jobs=jobs, mark=mark, limits=experiment.limits, env=env, base=plan.base,
        runs=paths.runs, scratch=paths.scratch, settle_after=settle_after, fresh=experiment.isolation == "fresh",
    )  # fmt: skip


def _environment(plan: Plan) -> dict[str, str]:
    """`${NAME}` in `env` is filled in only now, so that secrets are in no record."""
    known = variables.variables()
    filled = {}
    for name, text in plan.experiment.env.items():
        try:
            filled[name] = variables.expand(text, known)
        except variables.MissingVariable as missing:
            fix = f"export {missing.args[0]}=... before the run"
            raise SpecError([Problem(f"env.{name}", f"${{{missing.args[0]}}} is not set", fix)]) from missing
    return filled
