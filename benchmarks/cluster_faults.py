"""Break a cluster on purpose while it runs an experiment, and check that every run is recorded once.

    cluster_faults.py ray cuts --times 20          # one node's link is cut at random moments; the node is replaced
    cluster_faults.py slurm cuts --times 20        # link and shared file system are cut, and come back after 60 s
    cluster_faults.py ray kills --times 30         # pilots, hosts, raylets or slurmd, and node supervisors are killed
    cluster_faults.py ray adopt adopt-late         # kill -9 of the scheduler with 8 attempts running, back after 5 s; 2 min
    cluster_faults.py ray loss --minutes 10        # 5 % of all packets are lost: no run may count as lost
    cluster_faults.py ray delay --minutes 10       # every packet takes 100 ms longer each way: no run may count as lost
    cluster_faults.py slurm pause                  # a pilot is stopped for 60 s: fenced, nothing is recorded twice
    cluster_faults.py slurm clock                  # a node's clock is an hour ahead
    cluster_faults.py ray upload                   # the link is cut while a directory of 600 MB comes home
    cluster_faults.py ray output                   # one run writes 1 GB; how much memory the scheduler takes

Every execution of a run leaves a line in a file that no fault hides, so that executions and records can be counted
against each other. Prints one JSON object for each fault, and keeps it in benchmarks/results/cluster_faults/ with --keep. Exits
with 1 when a check fails. A clock that is wrong is for Slurm only: Ray itself does not start with one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from measure import REPOSITORY, machine, rounded, say, versions

sys.path.insert(0, str(REPOSITORY / "tests"))
from bakeoff.errors import BakeoffError
from bakeoff.records.claims import list_claims, list_nodes
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from cluster.ray_nodes import RayCluster
from cluster.slow_link import SlowLink
from cluster.slurm import SlurmCluster

BAKEOFF = Path(sys.executable).with_name("bakeoff")
RESULTS = Path(__file__).parent / "results" / "cluster_faults"
PILOT = {"ray": "executors.ray.host", "slurm": "pilots.spool"}
KILLED = {
    "ray": (PILOT["ray"], "ray::Host", "raylet/raylet", "bakeoff.engine.processes"),
    "slurm": (PILOT["slurm"], "slurmd -D", "bakeoff.engine.processes"),
}
EXPIRY = 30
NOTICE_S, END_S = 35.0, 25.0
"""Seconds after a cut in which the scheduler notices, and in which the runs on that node end."""
LOST_SHARE, DELAY_S = 0.05, 0.1
UPLOAD = 600_000_000
AHEAD = (
    "export LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME=+1h FAKETIME_DONT_FAKE_MONOTONIC=1"
)
Figures = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """What an experiment is like: `pilots` times `slots` runs at a time, each of `seconds`."""

    runs: int
    seconds: float = 3.0
    pilots: int = 4
    slots: int = 2
    long: float = 0.0
    """Seconds of every fifth run, if that is another time."""
    setup: str = ""
    """A line of shell before pilots of Slurm start."""
    writes: int = 0
    """Bytes that each run writes, instead of a line."""


class Trial:
    """One experiment on a cluster, and the log of its executions: seed, time, node."""

    def __init__(self, engine: str, cluster: Any, shape: Shape) -> None:
        self.engine, self.cluster, self.shape = engine, cluster, shape
        self.place = Path(tempfile.mkdtemp(dir=cluster.home if engine == "ray" else cluster.shared))
        self.root = self.place / "results"
        # Not in the shared directory: a node that is cut off goes on for a while, and that has to be seen.
        self.log = Path(tempfile.mkstemp(prefix="executions-", dir=cluster.home)[1])
        self.written = Path(f"{self.log}.written")
        self.written.touch()
        body = f"sleep $([ $(({{seed}} % 5)) = 0 ] && echo {shape.long or shape.seconds} || echo {shape.seconds}); echo {{seed}} > {{out}}/result"
        if shape.writes:
            body = f"head -c {shape.writes} /dev/urandom > {{out}}/result; echo $(hostname) >> {self.written}"
        command = f"sh -c 'echo {{seed}} $(date +%s) $(hostname) >> {self.log}; {body}'"
        # Half of the pilots fill a node of eight CPUs, so that both nodes are used.
        options = [f"--cpus-per-task={8 * 2 // shape.pilots}"]
        slurm = f"time = 3000\noptions = {json.dumps(options)}\nsetup = {json.dumps([shape.setup] if shape.setup else [])}\n"
        cpus = min(2, 16 // (shape.pilots * shape.slots))
        ray = f"[resources]\ncpus = {cpus}\n"
        (self.place / "exp.toml").write_text(
            f'name = "faults"\nworkload = "command"\nseeds = {shape.runs}\n[params]\ncommand = {json.dumps(command)}\n'
            f'[executor]\nkind = "{engine}"\npilots = {shape.pilots}\nslots = {shape.slots}\nexpiry = {EXPIRY}\n'
            f"{slurm if engine == 'slurm' else ray}[retries]\nlost = 100\n[limits]\ntime = 300\n"
        )
        self.start()

    def start(self) -> None:
        """Start a scheduler, also again after it was killed."""
        argv = (BAKEOFF, "run", "exp.toml", "--yes", "--root", self.root)
        self.process = self.cluster.start(*argv, cwd=self.place, stdout=sys.stderr, stderr=sys.stderr)

    def kill(self) -> None:
        """kill -9 of the scheduler."""
        assert self.cluster.site.head.signal("bakeoff run exp.toml") > 0
        self.process.wait()

    def running(self) -> bool:
        return self.process.poll() is None

    def on(self, node: str) -> int:
        """How many runs are going on at this node now: shells of their commands, without what started those."""
        number = 0
        for pid in self.cluster.site[node].processes(self.log.name):
            try:
                number += Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0-c\0echo ")
            except OSError:
                continue  # it has ended
        return number

    def edition(self) -> Any:
        return closing(Edition.open(find_edition("faults", self.root)))

    def claims(self, host: str = "") -> set[tuple[int, int]]:
        """(run, attempt) of claims that pilots on this host have (default: on any)."""
        try:
            with self.edition() as edition:
                pilots = {node.node for node in list_nodes(edition) if host in ("", node.host)}
                return {(claim.position, claim.attempt) for claim in list_claims(edition) if claim.pilot in pilots}
        except BakeoffError:
            return set()  # it has not begun

    def lost_at(self, claims: set[tuple[int, int]]) -> list[float]:
        """When the scheduler counted these attempts as lost, by its clock; without those that were not, or never began."""
        with self.edition() as edition:
            entries = [edition.attempts(position, number)[0] for position, number in claims]
        return [entry["ended_at"] for entry in entries if entry["lost"] and entry["ended_at"] is not None]

    def result(self) -> tuple[Figures, list[Figures]]:
        """Figures and checks that hold for every fault: one success for each run, nothing twice, nothing left over."""
        code = self.process.wait()
        executed = Counter(int(line.split()[0]) for line in self.log.read_text().splitlines())
        with self.edition() as edition:
            statuses = dict(edition.counts())
            tried = [edition.attempts(run.position) for run in edition.runs()]
            walls = [run.wall_s or 0.0 for run in edition.runs()]
            nodes, claims = list_nodes(edition), list_claims(edition)
            left = [name for name in (".incoming", ".spool", ".ray.json") if (edition.paths.directory / name).exists()]
            files = [path.stat().st_size for path in edition.paths.runs.glob("*/out/result")]
        attempts = sum(map(len, tried))
        complete = sum(size == self.shape.writes if self.shape.writes else size > 0 for size in files)
        lost = sum(bool(entry["lost"]) for entries in tried for entry in entries)
        figures = {
            "exit_code": code, "runs": self.shape.runs, "statuses": statuses, "executions": executed.total(),
            "attempts": attempts, "lost_attempts": lost, "late_reports": sum(node.late for node in nodes),
            "pilots": len(nodes), "longest_run_s": max(walls, default=0.0), "shortest_run_s": min(walls, default=0.0),
        }  # fmt: skip
        once = sum(sum(entry["status"] == "succeeded" for entry in entries) == 1 for entries in tried)
        return figures, [
            is_("runs with exactly one success", once, self.shape.runs),
            is_("runs with their files at home", complete, self.shape.runs),
            is_("exit code", code, 0),
            is_("executions without a recorded attempt", max(0, executed.total() - attempts), 0),
            is_("claims, spools and arrivals that are left", len(claims) + len(left), 0),
        ]


def is_(what: str, value: float, wanted: float) -> Figures:
    return {"what": what, "value": value, "sense": "is", "bar": wanted, "holds": value == wanted}


def at_most(what: str, value: float | None, bar: float) -> Figures:
    return {
        "what": what, "value": value, "sense": "at most", "bar": bar, "holds": value is not None and value <= bar
    }  # fmt: skip


def at_least(what: str, value: float, bar: float) -> Figures:
    return {"what": what, "value": value, "sense": "at least", "bar": bar, "holds": value >= bar}


def wait_until(condition: Callable[[], bool], patience: float) -> float | None:
    """Seconds until the condition holds; None when it did not in time."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        if condition():
            return time.monotonic() - began
        time.sleep(0.1)
    return None


def cut_and_watch(trial: Trial, node: str, patience: float) -> tuple[float, float | None]:
    """Cut a node off for `patience` seconds. Seconds after which its last run was seen, and after which the scheduler had
    taken back all that the node held; None: it did not."""
    held = trial.claims(node)
    began, by_clock = time.monotonic(), time.time()
    trial.cluster.cut(node)
    seen = 0.0
    while (now := time.monotonic() - began) < patience:
        if trial.on(node):
            seen = now
        time.sleep(0.2)
    if held & trial.claims():
        return seen, None
    return seen, max((at - by_clock for at in trial.lost_at(held)), default=0.0)


def bring_back(trial: Trial, node: str) -> None:
    """A Ray node that was cut off has exited: it is replaced. One of Slurm gets its link and its files again."""
    if trial.engine == "ray":
        trial.cluster.replace(node)
    else:
        trial.cluster.restore(node)
        trial.cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)


def cuts(trial: Trial, given: argparse.Namespace, rng: random.Random) -> tuple[Figures, list[Figures]]:
    ended: list[float] = []
    noticed: list[float | None] = []
    while len(ended) < given.times and trial.running():
        wait_until(lambda: any(map(trial.on, trial.cluster.names)) or not trial.running(), 180)
        time.sleep(rng.uniform(0, 10))
        node = rng.choice(trial.cluster.names)
        if not (trial.on(node) and trial.claims(node)):
            continue
        seen, noticed_after = cut_and_watch(trial, node, 40 if trial.engine == "ray" else 60)
        ended.append(seen)
        noticed.append(noticed_after)
        say(f"cut {len(ended)}/{given.times} of {node}: last run seen after {seen} s, noticed after {noticed_after} s")
        bring_back(trial, node)
    slowest = None if None in noticed else max(noticed, default=None)
    return {"runs_ended_after_s": ended, "noticed_after_s": noticed}, [
        is_("cuts", len(ended), given.times),
        at_most("longest time from a cut to the end of the last run there, s", max(ended, default=None), END_S),
        at_most("longest time from a cut to its notice by the scheduler, s", slowest, NOTICE_S),
    ]


def kills(trial: Trial, given: argparse.Namespace, rng: random.Random) -> tuple[Figures, list[Figures]]:
    killed: Counter[str] = Counter()
    while killed.total() < given.times and trial.running():
        time.sleep(rng.uniform(2, 16))
        node, program = rng.choice(trial.cluster.names), rng.choice(KILLED[trial.engine])
        victims = list(trial.cluster.site[node].processes(program))
        if not victims or not trial.running():
            continue
        try:
            os.kill(rng.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed[program] += 1
        say(f"kill {killed.total()}/{given.times}: {program} on {node}")
        if program == "raylet/raylet":
            time.sleep(3)
            trial.cluster.replace(node)
        if program == "slurmd -D":
            time.sleep(3)
            trial.cluster.start_node(node)
    return {"killed": dict(killed)}, [is_("kills", killed.total(), given.times)]


def loss(trial: Trial, given: argparse.Namespace, rng: random.Random) -> tuple[Figures, list[Figures]]:
    for name in trial.cluster.names:
        trial.cluster.site[name].lose(LOST_SHARE)
    lasted = wait_until(lambda: not trial.running(), 60 * given.minutes)
    for name in trial.cluster.names:
        trial.cluster.site[name].lose(0)
    minutes = given.minutes if lasted is None else lasted / 60
    figures = {"packet_loss_each_way": LOST_SHARE, "minutes": minutes}
    return figures, [at_least("minutes of packet loss", minutes, 0.9 * given.minutes)]


def delay(trial: Trial, given: argparse.Namespace, rng: random.Random) -> tuple[Figures, list[Figures]]:
    site = trial.cluster.site
    with ExitStack() as stack:
        for name in trial.cluster.names:
            stack.enter_context(SlowLink(site, name, DELAY_S))
        trips = [site.head.run("ping", "-c", "5", "-i", "0.5", site[name].address) for name in trial.cluster.names]
        lasted = wait_until(lambda: not trial.running(), 60 * given.minutes)
    minutes = given.minutes if lasted is None else lasted / 60
    figures = {"delay_each_way_s": DELAY_S, "minutes": minutes, "ping": [trip.splitlines()[-1] for trip in trips]}
    return figures, [at_least("minutes of delay", minutes, 0.9 * given.minutes)]


def pause(trial: Trial, given: argparse.Namespace, rng: random.Random) -> tuple[Figures, list[Figures]]:
    node = trial.cluster.site[trial.cluster.names[0]]
    wait_until(lambda: trial.on(node.name) > 0, 120)
    time.sleep(2)
    victim = min(node.processes(PILOT[trial.engine]))
    os.kill(victim, signal.SIGSTOP)
    time.sleep(60)
    frozen = Path(f"/proc/{victim}").exists()
    if frozen:  # Slurm has ended it otherwise
        os.kill(victim, signal.SIGCONT)
    return {"stopped_s": 60}, [is_("pilots that were still there after 60 s", int(frozen), 1)]


def adopt(
    trial: Trial, given: argparse.Namespace, rng: random.Random, back_after: float = 5.0
) -> tuple[Figures, list[Figures]]:
    """Kill the scheduler when all runs are going on, and start it again."""
    wait_until(lambda: sum(map(trial.on, trial.cluster.names)) >= trial.shape.runs, 120)
    time.sleep(2)
    before = sum(map(trial.on, trial.cluster.names))
    trial.kill()
    time.sleep(back_after)
    after = sum(map(trial.on, trial.cluster.names))
    began = time.monotonic()
    trial.start()
    trial.process.wait()
    took = time.monotonic() - began
    executed = len(trial.log.read_text().splitlines())
    going_on = "still going on when it was back" if back_after < trial.shape.seconds / 2 else "over by then"
    return {"back_after_s": back_after, "second_session_s": took}, [
        is_("runs going on when the scheduler was killed", before, trial.shape.runs),
        is_(f"runs {going_on}", after if "still" in going_on else before - after, trial.shape.runs),
        is_("executions", executed, trial.shape.runs),
    ]


def clock(trial: Trial, given: argparse.Namespace, rng: random.Random) -> tuple[Figures, list[Figures]]:
    trial.process.wait()
    ahead = [line.split() for line in trial.log.read_text().splitlines()]
    skewed = sum(float(at) > time.time() + 3000 for _, at, _ in ahead)
    with trial.edition() as edition:
        walls = [run.wall_s if run.wall_s is not None else -1.0 for run in edition.runs()]
        ended = [entry["ended_at"] or 0.0 for run in edition.runs() for entry in edition.attempts(run.position)]
    return {"runs_with_the_wrong_clock": skewed}, [
        at_least("runs that saw a clock one hour ahead", skewed, 1),
        is_("negative durations", sum(wall < 0 for wall in walls), 0),
        at_most("longest run, s", max(walls), 60.0),
        is_("attempts that ended in the future", sum(at > time.time() + 5 for at in ended), 0),
    ]


def upload(trial: Trial, given: argparse.Namespace, rng: random.Random) -> tuple[Figures, list[Figures]]:
    """Cut the link while a directory is on its way; nothing of it may be seen at home."""
    wait_until(lambda: bool(trial.written.read_text()), 120)
    node = trial.written.read_text().split()[0]
    time.sleep(given.cut_after)
    held = trial.claims(node)
    began = time.monotonic()
    trial.cluster.cut(node)
    directory = find_edition("faults", trial.root).directory
    seen = 0
    while held & trial.claims() and time.monotonic() - began < 90:
        whole = [path for path in (directory / ".incoming").glob("*") if not path.name.endswith(".part")]
        seen += len(whole) + len(list((directory / "runs").glob("*")))
        time.sleep(0.1)
    noticed = time.monotonic() - began
    with trial.edition() as edition:
        early = sum(edition.counts().get(status, 0) for status in ("succeeded", "failed"))
    time.sleep(max(0.0, 40 - (time.monotonic() - began)))
    bring_back(trial, node)
    return {"bytes": UPLOAD, "cut_after_s": given.cut_after, "noticed_after_s": noticed}, [
        at_least("claims that were under way when the link was cut", len(held), 1),
        is_("half directories seen at home before the loss was recorded", seen, 0),
        is_("rows recorded before the loss", early, 0),
    ]


def output(trial: Trial, given: argparse.Namespace, rng: random.Random) -> tuple[Figures, list[Figures]]:
    """How much memory of its own (not shared with other processes) the scheduler has while the directory comes home."""
    sizes: list[int] = []
    while trial.running():
        for pid in trial.cluster.site.head.processes("bakeoff run exp.toml"):
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            sizes.append(1024 * sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")))
        time.sleep(0.2)
    early = sizes[len(sizes) // 10] if sizes else 0
    return {"growth_mb": (max(sizes, default=0) - early) / 1e6}, [
        at_most("peak of the scheduler's private memory, MB", max(sizes, default=0) / 1e6, 100.0)
    ]


FAULTS: dict[str, Callable[..., tuple[Figures, list[Figures]]]] = {
    f.__name__: f for f in (cuts, kills, adopt, loss, delay, pause, clock, upload, output)
} | {"adopt-late": partial(adopt, back_after=120.0)}


def shape(fault: str, given: argparse.Namespace) -> Shape:
    """The experiment for a fault: long enough to last."""
    match fault:
        case "cuts":
            return Shape(22 * given.times, 3.0, long=45.0)
        case "kills":  # one pilot on each node: a run that is lost twice while a neighbour survives fails, by design
            return Shape(40 * given.times, 5.0, pilots=2, slots=8)
        case "loss" | "delay":
            return Shape(int(155 * given.minutes), 3.0)
        case "adopt" | "adopt-late":
            return Shape(8, 30.0)
        case "clock":
            return Shape(60, setup=f"if [ $SLURMD_NODENAME = n1 ]; then {AHEAD}; fi")
        case "upload":
            return Shape(1, writes=UPLOAD, pilots=2, slots=1)
        case "output":
            return Shape(1, writes=1_000_000_000, pilots=2, slots=1)
    return Shape(300)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("ray", "slurm"))
    parser.add_argument("faults", choices=FAULTS, nargs="+", metavar="fault", help=", ".join(FAULTS))
    parser.add_argument("--times", type=int, default=20, help="how many cuts or kills")
    parser.add_argument("--minutes", type=float, default=10, help="how long packets are lost or late")
    parser.add_argument("--cut-after", type=float, default=1, help="seconds from the end of a run to the cut (upload)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help=f"write the JSON objects below {RESULTS.name}/ too")
    given = parser.parse_args()
    if "clock" in given.faults and given.engine == "ray":
        parser.error("clock is for slurm: Ray itself does not start with such a clock")
    with RayCluster() if given.engine == "ray" else SlurmCluster() as cluster:
        holds = [measure(fault, cluster, given) for fault in given.faults]
    sys.exit(0 if all(holds) else 1)


def measure(fault: str, cluster: Any, given: argparse.Namespace) -> bool:
    """Run one experiment with this fault, and print what came of it."""
    facts, began = machine(Path("/tmp")), time.monotonic()
    if given.engine == "slurm":
        cluster.reset()
    else:
        cluster.wait_for_nodes()
    trial = Trial(given.engine, cluster, shape(fault, given))
    figures, checks = FAULTS[fault](trial, given, random.Random(given.seed))
    more, always = trial.result()
    if fault in ("loss", "delay", "adopt", "adopt-late", "clock"):
        always.append(is_("attempts that counted as lost", more["lost_attempts"], 0))
    result = {
        "benchmark": "cluster_faults", "engine": given.engine, "fault": fault,
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "holds": all(each["holds"] for each in (*checks, *always)), "checks": rounded([*checks, *always]),
        "figures": rounded({**figures, **more, "took_s": time.monotonic() - began}),
        "machine": facts, "versions": versions("ray"),
    }  # fmt: skip
    text = json.dumps(result, indent=2)
    print(text, flush=True)
    if given.keep:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{given.engine}-{fault}.json").write_text(text + "\n")
    return bool(result["holds"])


if __name__ == "__main__":
    main()
