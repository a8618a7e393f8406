"""Measure what the scheduler costs on a cluster of 1,000 nodes with 64 slots each, which is simulated.

Scheduler, queue, executor, claims and the SQLite database are the real ones. The nodes are a discrete-event model in
virtual time (tests/support/simulated_cluster.py): nodes crash, are cut off, stand still and report late, leave, lose
orders and report twice; some are slow and some never work. It does a million runs, and takes minutes.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from measure import REPOSITORY, Options, check, machine, publish, say, versions, workspace

sys.path.insert(0, str(REPOSITORY / "tests"))
from bakeoff.engine.pilots.arrivals import Arrivals
from bakeoff.engine.pilots.executor import PilotExecutor
from bakeoff.engine.queue import Queue
from bakeoff.engine.scheduler import Scheduler
from bakeoff.engine.session import Options as HowToRun
from bakeoff.engine.session import open_session
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths
from bakeoff.records.run import Attempt
from bakeoff.spec.load import load_plan
from support.simulated_cluster import Clock, Cluster, Fault, executor_of, scheduler_of, virtual_time

SLOTS = 64
MEAN = 20.0
"""Seconds that a run takes on average."""
DISK = 0.002
"""Seconds that each transaction is charged for the disk."""
KINDS = ("crash", "cut", "stall", "leave", "drop")
METHOD = (
    "The real scheduler, queue, pilot executor and SQLite database in one process with a discrete-event model of the pilots. "
    "Every message is encoded and decoded as MessagePack; that it travels costs nothing. Runs take an exponentially "
    "distributed time, leave no directories and report one metric. Time is virtual: it passes while the scheduler sleeps, as "
    "much of it as the scheduler takes processor time, and 2 ms for each transaction, so a scheduler that is too slow makes the "
    "simulated nodes wait. The database is in memory (/dev/shm), so that the disk and other work on the machine do not matter. "
    "Processor time is that of the process without the model's own; each part's is without that of the parts that it calls. "
    "Trials run in processes of their own, as many at a time as there are cores. The cost of run directories is measured apart, on "
    "a real disk. One node in ten has a "
    "fault, one in 50 is five times slower, one report in 500 arrives twice, three hosts lose every pilot after two seconds. "
    "Checked while it runs: an attempt counts as lost only if the model lost it, and no pilot holds more than twice its slots. "
    "Checked at the end: every run has exactly one success, from its current claim; lost tries are those of the model; no claim "
    "is left; only hosts with three losses are left out."
)


class Meter:
    """Processor time by part, without that of the parts inside it; and what the disk is charged."""

    def __init__(self) -> None:
        self.parts: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self.waited = 0.0
        self._stack = ["the loop and the rest"]
        self._processor = 0.0
        self._mark = time.process_time()

    def processor(self) -> float:
        """Seconds of processor time that the scheduler took so far: the model's are left out."""
        self._charge()
        return self._processor

    def worked(self) -> float:
        """The same, and what it waited."""
        return self.processor() + self.waited

    def _charge(self) -> None:
        now = time.process_time()
        took, self._mark = now - self._mark, now
        part = self._stack[-1]
        self.parts[part] += took
        if part != "the model":
            self._processor += took

    def wrap(self, owner: Any, name: str, part: str, *, waits: bool = False) -> None:
        """Charge calls of a method to a part. `waits`: it is a transaction."""
        method: Callable[..., Any] = getattr(owner, name)

        def measured(*arguments: Any, **named: Any) -> Any:
            self._charge()
            self._stack.append(part)
            self.calls[part] += 1
            try:
                return method(*arguments, **named)
            finally:
                self._charge()
                self._stack.pop()
                self.waited += DISK * waits

        setattr(owner, name, measured)


def instrument(meter: Meter, scheduler: Scheduler, executor: PilotExecutor, cluster: Cluster, edition: Edition) -> None:
    """Split the scheduler's time into parts. The model's own time is one of them."""
    for name in ("advance", "sent", "taken"):
        meter.wrap(cluster, name, "the model")
    meter.wrap(cluster, "receive", "messages: decoding")
    meter.wrap(cluster, "send", "messages: encoding")
    meter.wrap(executor, "_handle", "messages: handling")
    meter.wrap(executor, "_hand_out", "handing out")
    meter.wrap(executor._fleet, "expired", "expiry of claims")
    meter.wrap(executor._fleet, "keep", "keeping pilots")
    meter.wrap(executor, "_balance", "balancing")
    meter.wrap(executor._fleet, "show_presence", "presence")
    meter.wrap(executor.claims, "see", "recording nodes", waits=True)
    meter.wrap(executor.claims, "add", "claims: recording", waits=True)
    meter.wrap(executor.claims, "drop", "claims: giving back", waits=True)
    meter.wrap(executor, "recorded", "files of runs")
    meter.wrap(executor._arrivals, "discard", "files of runs")
    meter.wrap(scheduler, "_fill", "taking from the queue")
    meter.wrap(scheduler, "_tick", "signs of life")
    meter.wrap(scheduler, "_record", "recording results: the rest")
    meter.wrap(edition, "beat", "signs of life: recording", waits=True)
    meter.wrap(edition, "finish", "recording results: database", waits=True)


@dataclass(slots=True)
class Milestones:
    """An observer: what the scheduler had spent when a further part of the runs had ended."""

    meter: Meter
    clock: Clock
    every: int
    runs: int = 0
    points: list[tuple[int, float, float]] = None  # type: ignore[assignment]
    """(runs, processor time, virtual time)"""

    def __post_init__(self) -> None:
        self.points = []

    def finished(self, attempt: Attempt) -> None:
        self.runs += attempt.final
        if attempt.final and self.runs % self.every == 0:
            self.points.append((self.runs, self.meter.processor(), self.clock.monotonic()))
            say(
                f"  {self.runs:,} runs: {self.points[-1][1]:.0f} s of the scheduler, {self.points[-1][2]:.0f} s virtual"
            )

    def tick(self, running: Sequence[Attempt]) -> None:
        pass

    def close(self) -> None:
        pass


def faults(nodes: int, until: float, seed: int = 5) -> list[Fault]:
    """One node in ten has one, spread over the time."""
    draw = random.Random(seed)
    return [
        Fault(draw.uniform(40.0, max(60.0, until)), KINDS[i % 5], draw.randrange(nodes), draw.choice((10.0, 25.0, 60.0, 90.0)))
        for i in range(max(5, nodes // 10))
    ]  # fmt: skip


def experiment(place: Path, runs: int) -> Path:
    place.mkdir()
    path = place / "simulated.toml"
    path.write_text(
        f'name = "simulated"\nworkload = "command"\nseeds = {runs // 4}\nparams = {{ command = "true" }}\n[matrix]\nx = [1, 2, 3, 4]\n'
    )
    return path


def trial(place: Path, nodes: int, runs: int, mean: float, startup: float = 30.0) -> dict[str, Any]:
    """Do so many runs on so many nodes, check the invariants, and return what it cost."""
    say(f"{nodes:,} nodes, {runs:,} runs of {mean:g} s")
    began = time.process_time()
    session = open_session(load_plan(experiment(place, runs)), HowToRun(place / "results"))
    planning = time.process_time() - began
    with closing(session):
        meter = Meter()
        clock = Clock(meter.worked)
        cluster = Cluster(
            clock, hosts=nodes + nodes // 20 + 4, slots=SLOTS, mean=mean, faults=faults(nodes, runs * mean / nodes / SLOTS),
            startup=startup, bad=range(nodes - 3, nodes),
        )  # fmt: skip
        milestones = Milestones(meter, clock, max(1, runs // 10))
        wall = time.perf_counter()
        with virtual_time(clock):
            executor = executor_of(session, cluster, nodes)
            scheduler = scheduler_of(session, executor, [milestones])
            instrument(meter, scheduler, executor, cluster, session.edition)
            summary = scheduler.run()
            virtual, processor, wall = clock.monotonic(), meter.processor(), time.perf_counter() - wall
            left_out = sorted(executor._fleet.left_out)
            executor.close()
        cluster.check(session.edition, left_out)
        late = session.edition.database.value("SELECT SUM(late) FROM nodes")
        size = Path(session.edition.database.place).stat().st_size
    # The middle, in which all slots are busy: neither the start nor the last long runs.
    (early, cpu_early, at_early), (later, cpu_later, at_later) = milestones.points[2], milestones.points[7]
    steady = (cpu_later - cpu_early) / (later - early)
    model = meter.parts.pop("the model")
    return {
        "nodes": nodes,
        "slots": nodes * SLOTS,
        "runs": runs,
        "mean_run_s": mean,
        "statuses": dict(summary.statuses),
        "attempts": summary.attempts,
        "faults": dict(cluster.happened),
        "lost": cluster.losses,
        "given_back": cluster.returned,
        "late_reports_dropped": late,
        "hosts_left_out": left_out,
        "virtual_s": virtual,
        "scheduler_cpu_s": processor,
        "scheduler_waited_s": meter.waited,
        "model_cpu_s": model,
        "wall_s": wall,
        "cpu_us_per_run": 1e6 * processor / runs,
        "cpu_us_per_run_steady": 1e6 * steady,
        "cpu_us_per_run_by_part": {part: 1e6 * s / runs for part, s in sorted(meter.parts.items(), key=lambda i: -i[1])},
        "calls": dict(meter.calls.most_common()),
        "cpu_us_per_run_by_tenth": [
            1e6 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in zip([(0, 0.0, 0.0), *milestones.points], milestones.points, strict=False)
        ],
        "steady_rate_per_virtual_s": (later - early) / (at_later - at_early),
        "steady_busy_share": (cpu_later - cpu_early) / (at_later - at_early),
        "database_bytes_per_run": size / runs,
        "planning_cpu_us_per_run": 1e6 * planning / runs,
    }  # fmt: skip


def memory(place: Path, nodes: int) -> dict[str, float]:
    """Bytes of resident memory that each claim takes in the scheduler while it is held."""
    runs = nodes * SLOTS * 2
    clock = Clock()
    with (
        closing(open_session(load_plan(experiment(place, runs)), HowToRun(place / "results"))) as session,
        virtual_time(clock),
    ):
        cluster = Cluster(clock, hosts=nodes, slots=SLOTS, mean=MEAN, startup=1.0)
        executor = executor_of(session, cluster, nodes)
        queue = Queue(session.plan, session.edition, order_seed=0)
        executor.wait(0)
        clock.sleep(5.0)
        executor.wait(0)
        cluster.sent = lambda name, messages, frames: None  # type: ignore[method-assign] # the model holds nothing
        gc.collect()
        before = _resident()
        while executor.capacity() > 0 and (attempt := queue.take()) is not None:
            executor.start(attempt)
        executor.wait(0)
        held = len(executor._held)
        gc.collect()
        return {"claims": held, "bytes_per_claim": (_resident() - before) / held}


def directories(number: int) -> dict[str, dict[str, float]]:
    """What it takes to put delivered run directories into their place, on a real disk: so many at a time."""
    figures = {}
    with workspace() as place:
        for batch in (1, 50):
            paths = EditionPaths(place / "experiment" / str(batch))
            paths.runs.mkdir(parents=True)
            arrivals = Arrivals(paths)
            arrivals.open()
            for run in range(number):
                arrivals.delivered(f"t{run}").mkdir()
                (arrivals.delivered(f"t{run}") / "out").write_text("a result")
            os.sync()
            wall, processor = time.perf_counter(), time.process_time()
            for run in range(number):
                arrivals.install(f"t{run}", f"run-{run}")
                if (run + 1) % batch == 0:
                    arrivals.sync()
                    for settled in range(run + 1 - batch, run + 1):
                        arrivals.settled(f"run-{settled}")
            took = time.process_time() - processor, time.perf_counter() - wall
            figures[f"{batch} at a time"] = {
                "cpu_us_per_run": 1e6 * took[0] / number,
                "wall_us_per_run": 1e6 * took[1] / number,
            }
    return figures


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def in_memory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it works")
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs of the large trial (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON object into this file")
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes of the large trial (default: %(default)s)")
    arguments = parser.parse_args()
    given = Options(arguments.quick, arguments.out)
    if given.quick:
        nodes, runs, sizes = 40, 10_000, [10]
    else:
        nodes, runs, sizes = arguments.nodes, arguments.runs, [n for n in (10, 30, 100, 300) if n < arguments.nodes]
    with in_memory() as directory, ProcessPoolExecutor(mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        facts = machine(directory)
        large_trial = pool.submit(trial, directory / "large", nodes, runs, MEAN)
        saturated_trial = pool.submit(trial, directory / "saturated", nodes, 300 * nodes, 0.2, 1.0)
        files = pool.submit(directories, 200 if given.quick else 1_000)
        held = pool.submit(memory, directory / "memory", nodes)
        smaller = [pool.submit(trial, directory / str(n), n, max(2_000, 200 * n), MEAN) for n in sizes]
        large, saturated, growth = large_trial.result(), saturated_trial.result(), [each.result() for each in smaller]
    rate = saturated["steady_rate_per_virtual_s"]
    slots = nodes * SLOTS
    lines = [
        check(
            f"{runs:,} runs on {nodes:,} simulated nodes: runs with exactly one success, from their current claim",
            f"{large['statuses'].get('succeeded', 0):,}", f"{runs:,}", large["statuses"].get("succeeded", 0) / runs, 1.0,
        ),
        check(
            f"share of one core that the scheduler takes while {slots:,} slots do runs of {MEAN:g} s",
            f"{large['steady_busy_share']:.2f}", "1", large["steady_busy_share"], 0.5, "under", "cores",
        ),
    ]  # fmt: skip
    figures = {
        "large": large,
        "saturated": saturated,
        "growth": growth,
        "memory": held.result(),
        "directories": files.result(),
        "largest_rate_runs_per_s": rate,
        "slots_starve_below_mean_run_s": slots / rate,
    }
    publish("scale", given, lines, figures, method=METHOD, facts=facts, programs=versions("msgspec"))


if __name__ == "__main__":
    main()
