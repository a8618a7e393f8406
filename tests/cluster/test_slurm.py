"""The executor `slurm` on a real Slurm: two nodes with their own network and mounts, and a shared directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bakeoff.records.claims import list_claims, list_nodes
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from cluster import kinds
from cluster.slurm import SlurmCluster
from support.processes import LONG, Lab, eventually

EXECUTOR = """
[executor]
kind = "slurm"
pilots = 2
slots = 2
expiry = 12
time = "20m"
options = ["--spread-job", "--ntasks-per-node=1", "--exclusive"]
"""
RUN = """
mkdir -p {out} ../began; echo x >> ../began/{seed}; hostname > ../began/host-{seed}; echo {seed} > {out}/seed.txt
while [ ! -e ../go ]; do sleep 0.1; done
echo "{{\\"score\\": $(( {seed} * 2 ))}}"
"""


class Desk:
    """An experiment on the shared file system, run from the head."""

    def __init__(self, cluster: SlurmCluster, place: Path) -> None:
        self.cluster, self.place, self.code = cluster, place, place / "code"
        self.code.mkdir(parents=True)
        self.root = place / "results"
        self.env: dict[str, str] = {}

    def write(self, text: str, **modules: str) -> None:
        (self.code / "trial.toml").write_text(text)
        for name, code in modules.items():
            (self.code / f"{name}.py").write_text(code)

    def start(self, *options: str, verb: str = "run", **popen: Any) -> subprocess.Popen[str]:
        env = {"BAKEOFF_ROOT": str(self.root), "BAKEOFF_DATABASE_URL": "", **self.env}
        argv = (sys.executable, "-P", "-m", "bakeoff", verb, "trial.toml", *options)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **popen}
        return self.cluster.start(*argv, env=env, cwd=self.code, **pipes)

    def run(self, *options: str, code: int = 0) -> str:
        process = self.start(*options)
        stdout, stderr = process.communicate(timeout=LONG)
        assert process.returncode == code, f"{stdout}\n{stderr}"
        return stdout + stderr

    def began(self) -> dict[str, int]:
        files = (self.place / "began").glob("[0-9]*")
        return {path.name: len(path.read_text().split()) for path in files}

    def go(self) -> None:
        (self.place / "go").touch()

    def edition(self, name: str = "trial") -> Edition:
        return Edition.open(find_edition(name, self.root))

    def attempts(self) -> list[list[dict[str, Any]]]:
        with closing(self.edition()) as edition:
            return [edition.attempts(run.position) for run in edition.runs()]


@pytest.fixture
def desk(slurm_cluster: SlurmCluster, request: pytest.FixtureRequest) -> Iterator[Desk]:
    desk = Desk(slurm_cluster, slurm_cluster.shared / request.node.name[:40])
    yield desk
    slurm_cluster.site.head.signal("bakeoff run trial.toml")


def test_runs_on_slurm_leave_what_local_ones_leave_and_nothing_in_the_queue(desk: Desk, lab: Lab) -> None:
    work = """
import platform, time
from pathlib import Path

def run(ctx):
    seen = Path("../seen")
    if seen.is_dir():  # on the cluster: until both nodes have begun one
        (seen / platform.node()).touch()
        while len(list(seen.iterdir())) < 2 and not ctx.cancelled:
            time.sleep(0.05)
    (ctx.directory / "out").mkdir()
    (ctx.directory / "out" / "x").write_text(str(ctx.rng("w").normal()))
    return ctx.seed
"""
    (desk.place / "seen").mkdir()
    file = "workload = 'python'\nseeds = 20\nparams = { function = 'work:run' }\n"
    desk.write(file + EXECUTOR, work=work)
    desk.run()
    with closing(desk.edition()) as edition:
        assert edition.counts() == {"succeeded": 20}
        assert {node.host for node in list_nodes(edition)} == {"n1", "n2"}
        used = {edition.attempts(position)[0]["node"] for position in range(20)}
        assert len(used) == 2, "both nodes were used"
        assert list_claims(edition) == []
    assert desk.cluster.jobs() == []
    lab.experiment(file, work=work)
    lab.run()
    runs = find_edition("trial", desk.root).runs
    for directory in (lab.directory() / "runs").iterdir():
        assert (runs / directory.name / "out" / "x").read_bytes() == (directory / "out" / "x").read_bytes()


def test_coding_tasks_and_markets_run_on_nodes_and_are_recorded_in_postgresql(
    desk: Desk, postgres_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BAKEOFF_DATABASE_URL", postgres_url())
    desk.env = {kinds.KEY_VARIABLE: kinds.KEY, "BAKEOFF_DATABASE_URL": os.environ["BAKEOFF_DATABASE_URL"]}
    calls = tmp_path / "calls"
    with kinds.model_on(desk.cluster.site.head, calls) as url:
        desk.write(kinds.coding(desk.code, url) + EXECUTOR.replace("slots = 2", "slots = 1"))
        process = desk.start()
        eventually(calls.exists, "an agent calls its model")
        during = kinds.files_with_key(desk.place)
        stdout, stderr = process.communicate(timeout=LONG)
        assert process.returncode == 0, stdout + stderr
    with closing(desk.edition("coding")) as edition:
        assert [run.metrics["total_score"] for run in edition.runs()] == [1.0, 1.0]
        assert {edition.attempts(position)[0]["node"] for position in range(2)} <= {"1-1", "1-2"}
    nodes = {desk.cluster.site[name].address for name in desk.cluster.names}
    assert {tuple(line.split()) for line in calls.read_text().splitlines()} <= {(node, "True") for node in nodes}
    assert [*during, *kinds.files_with_key(desk.place)] == []
    desk.write(kinds.MARKET + EXECUTOR)
    desk.run()
    with closing(desk.edition("market")) as edition:
        assert edition.counts() == {"succeeded": 2}
    assert not list(desk.root.rglob("experiment.db")), "PostgreSQL has it all"


def test_a_node_that_is_cut_off_loses_its_runs_to_the_other(desk: Desk) -> None:
    desk.write(f"seeds = 4\nparams = {{ command = '''{RUN}''' }}\n" + EXECUTOR)
    process = desk.start()
    eventually(lambda: len(desk.began()) == 4, "both nodes work")
    node = desk.cluster.site["n1"]
    desk.cluster.cut("n1")
    eventually(lambda: not list(node.processes("began")), "runs on the cut node end")
    desk.go()
    stdout, stderr = process.communicate(timeout=LONG)
    assert process.returncode == 0, stdout + stderr
    tried = desk.attempts()
    assert [entries[-1]["status"] for entries in tried] == ["succeeded"] * 4
    assert all(entry["lost"] for entries in tried for entry in entries[:-1]), "all others were lost with a node"
    assert sorted(len(entries) for entries in tried) == [1, 1, 2, 2], (tried, stderr)


def test_a_killed_scheduler_is_followed_by_one_that_adopts(desk: Desk) -> None:
    desk.write(f"seeds = 6\nparams = {{ command = '''{RUN}''' }}\n" + EXECUTOR)
    process = desk.start()
    eventually(lambda: len(desk.began()) == 4, "both nodes work")
    desk.cluster.site.head.signal("bakeoff run trial.toml")
    process.communicate(timeout=LONG)
    assert len(desk.cluster.jobs()) >= 1, "pilots outlive their scheduler"
    desk.go()
    desk.run()
    assert desk.began() == dict.fromkeys(map(str, range(6)), 1)
    assert [len(entries) for entries in desk.attempts()] == [1] * 6
    assert desk.cluster.jobs() == []


def test_ctrl_c_twice_leaves_nothing_in_the_queue_and_no_process(desk: Desk) -> None:
    desk.write(f"seeds = 8\nlimits = {{ grace = 1 }}\nparams = {{ command = '''{RUN}''' }}\n" + EXECUTOR)
    said = desk.place / "said"
    with said.open("wb") as stderr:
        process = desk.start(stderr=stderr)
    eventually(lambda: len(desk.began()) == 4, "both nodes work")
    desk.cluster.site.head.signal("bakeoff run trial.toml", 2)
    eventually(lambda: "starting nothing more" in said.read_text(), "the first signal is noticed")
    desk.cluster.site.head.signal("bakeoff run trial.toml", 2)
    process.communicate(timeout=LONG)
    assert process.returncode == 130, said.read_text()
    assert desk.cluster.jobs() == []
    for name in desk.cluster.names:
        assert not list(desk.cluster.site[name].processes("bakeoff.engine"))


def test_the_devices_that_slurm_assigned_are_shared_as_declared(desk: Desk) -> None:
    """Two pilots on each node get one of its two devices each, and give it to two runs at a time."""
    text = kinds.devices(desk.place / "seen")
    desk.write(text + '[executor]\nkind = "slurm"\npilots = 4\nslots = 2\nexpiry = 12\ntime = "20m"\n')
    desk.run()
    kinds.check_devices(desk.root / "devices" / "latest" / "runs")


def test_one_job_for_each_run_where_accounting_wants_it(desk: Desk) -> None:
    desk.go()
    text = EXECUTOR.replace("pilots = 2", "pilots = false").replace(', "--exclusive"', "")
    desk.write(f"seeds = 3\njobs = 2\nparams = {{ command = '''{RUN}''' }}\n" + text)
    desk.run()
    tried = desk.attempts()
    assert [entries[0]["status"] for entries in tried] == ["succeeded"] * 3
    assert len({entries[0]["node"] for entries in tried}) == 3


def test_a_node_with_other_modules_is_refused_and_gets_the_runs_of_one_that_is_set_aside(desk: Desk) -> None:
    for name in ("n1", "n2"):
        (desk.place / "modules" / name).mkdir(parents=True)
        (desk.place / "modules" / name / "lib.py").write_text(f"NODE = {name!r}\n")
    work = """
import lib, time
from pathlib import Path

def run(ctx):
    while not Path("../go").exists() and not ctx.cancelled:
        time.sleep(0.05)
    return {"node": lib.NODE}
"""
    setup = f'setup = ["export PYTHONPATH={desk.place}/modules/$SLURMD_NODENAME"]\n'
    desk.write(
        f"workload = 'python'\nseeds = 6\nparams = {{ function = 'work:run' }}\n{EXECUTOR}same_packages = true\n{setup}",
        work=work,
    )
    process = desk.start()

    def refused() -> dict[str, str]:
        with closing(desk.edition()) as edition:
            return {node.host: node.refused for node in list_nodes(edition) if node.refused}

    eventually((desk.root / "trial" / "latest").exists, "the edition is begun")
    ((other, why),) = eventually(refused, "a node is refused").items()
    first = {"n1": "n2", "n2": "n1"}[other]
    assert why.startswith(f"other packages than on {first}: lib files ")
    desk.go()
    stdout, stderr = process.communicate(timeout=LONG)
    assert process.returncode == 0, stdout + stderr
    assert f"warning: {other} gets no runs: other packages" in stderr
    with closing(desk.edition()) as edition:
        assert {run.metrics["node"] for run in edition.runs()} == {first}
    desk.run("--set-aside", first)
    with closing(desk.edition()) as edition:
        assert {(run.metrics["node"], run.attempts) for run in edition.runs()} == {(other, 2)}
