"""This machine: commands are spawned, everything else runs in warm workers. A warden ends all of it if we die."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from bakeoff.engine import processes
from bakeoff.engine.executors.base import Executor, Start
from bakeoff.engine.executors.commands import CommandLane
from bakeoff.engine.executors.finish import Finisher
from bakeoff.engine.executors.pool import WorkerPool
from bakeoff.engine.warden import Warden
from bakeoff.errors import Problem, SpecError
from bakeoff.records.layout import EditionPaths
from bakeoff.records.results import Result
from bakeoff.spec import registry, variables
from bakeoff.spec.plan import Plan
from bakeoff.spec.workload import CommandWorkload

_LOOK_AFTER_WARDEN = 0.5


@dataclass(slots=True)
class Local:
    """Commands or workers, together with the warden and the right to adopt orphans."""

    lane: Executor
    warden: Warden
    look_at: float = 0.0

    def capacity(self) -> int:
        return self.lane.capacity()

    def start(self, run: Start) -> None:
        self.lane.start(run)

    def wait(self, timeout: float) -> list[Result]:
        ended = self.lane.wait(timeout)
        if time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + _LOOK_AFTER_WARDEN
            self.warden.check()
        return ended

    def returned(self) -> list[Start]:
        return self.lane.returned()

    def running(self) -> list[tuple[Start, float]]:
        return self.lane.running()

    def recall(self) -> None:
        self.lane.recall()

    def stop(self) -> None:
        self.lane.stop()

    def close(self) -> None:
        try:
            self.lane.close()
        finally:
            self.warden.close()
            processes.become_subreaper(False)


def local(plan: Plan, paths: EditionPaths, *, jobs: int, mark: str, session: int, settle_after: float) -> Executor:
    """First ends what an earlier scheduler of this edition left running.

    `mark` names the edition. Processes carry the session too, so that the warden of a scheduler that was killed
    cannot mistake the next one's runs for its own.
    """
    env = environment(plan)
    processes.end_marked(f"{mark}:")
    shutil.rmtree(paths.scratch, ignore_errors=True)
    processes.become_subreaper()
    own = f"{mark}:{session}"
    warden = Warden(f"{own}:")
    try:
        return Local(_lane(plan, paths, jobs, own, settle_after, env), warden)
    except BaseException:
        warden.close()
        raise


def _lane(
    plan: Plan, paths: EditionPaths, jobs: int, mark: str, settle_after: float, env: dict[str, str]
) -> CommandLane | WorkerPool:
    experiment = plan.experiment
    workload = registry.workload(experiment.workload)
    finisher = Finisher(plan, paths, registry.settings(experiment.workload))
    if isinstance(workload, CommandWorkload):
        return CommandLane(
            workload, finisher, jobs=jobs, mark=mark, limits=experiment.limits, env=env,
            scratch=paths.scratch, settle_after=settle_after,
        )  # fmt: skip
    return WorkerPool(
        experiment.workload, finisher, jobs=jobs, mark=mark, limits=experiment.limits, env=env, base=plan.base,
        runs=paths.runs, scratch=paths.scratch, settle_after=settle_after, fresh=experiment.isolation == "fresh",
    )  # fmt: skip


def environment(plan: Plan) -> dict[str, str]:
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
