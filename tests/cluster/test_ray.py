"""Experiments on a Ray cluster without a shared file system: the results root is hidden from its nodes."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bakeoff.records.claims import list_nodes
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from cluster import kinds
from cluster.kinds import KEY_VARIABLE
from cluster.ray_nodes import RayCluster
from support.processes import LONG, eventually

BAKEOFF = Path(sys.executable).with_name("bakeoff")
KEY = "sk-" + "q7Zt" * 6
EXECUTOR = '[executor]\nkind = "ray"\nslots = 4\nexpiry = 15\n'
COMMANDS = """
name = "commands"
workload = "command"
seeds = 12
[params]
command = '''
echo {seed} on $(hostname) > /dev/stderr; echo {arm}-{seed} > {out}/result; test -n "$KEY" || exit 1
if [ -d "$SEEN" ]; then
    touch $SEEN/$(hostname)
    for i in $(seq 600); do [ $(ls $SEEN | wc -l) -ge 2 ] && break; sleep .1; done
fi
'''
[[arms]]
name = "a"
[[arms]]
name = "b"
[env]
KEY = "${SECRET_KEY}"
SEEN = "${SEEN}"
"""
"""If the directory SEEN is there, its runs last until one has begun on each of two nodes."""


class Experiment:
    """A directory with experiment files, and a results root that nodes do not see."""

    def __init__(self, cluster: RayCluster, place: Path) -> None:
        self.cluster, self.place = cluster, place
        place.mkdir()
        self.root = place / "results"
        self.root.mkdir()
        self.env = {"BAKEOFF_ROOT": str(self.root), "SECRET_KEY": KEY, "SEEN": ""}

    def write(self, text: str, **modules: str) -> Path:
        for name, code in modules.items():
            (self.place / f"{name}.py").write_text(code)
        path = self.place / "exp.toml"
        path.write_text(text)
        return path

    def run(self, *options: str | Path, check: bool = True) -> str:
        return self.cluster.run(BAKEOFF, "run", "exp.toml", *options, env=self.env, cwd=self.place, check=check)

    def start(self, **popen: Any) -> Any:
        return self.cluster.start(BAKEOFF, "run", "exp.toml", env=self.env, cwd=self.place, **popen)

    @contextmanager
    def edition(self, name: str) -> Iterator[Edition]:
        edition = Edition.open(find_edition(name, self.root))
        try:
            yield edition
        finally:
            edition.close()

    def left(self) -> list[str]:
        """What is left of pilots: actors, processes on nodes, and CPUs that Ray still counts as used."""
        code = (
            "import ray\nray.init(log_to_driver=False, logging_level='ERROR')\n"
            "print(*[a['name'] for a in ray.util.list_named_actors(all_namespaces=True)])\n"
            "import time\nfor _ in range(100):\n"
            "    used = ray.cluster_resources()['CPU'] - ray.available_resources().get('CPU', 0)\n"
            "    if not used: break\n"
            "    time.sleep(0.1)\n"
            "else:\n    print('CPUs in use:', used)\n"
        )
        left = self.cluster.run(sys.executable, "-c", code).split()
        for name in self.cluster.names:
            left += map(str, self.cluster.site[name].processes("bakeoff.e"))
            left += map(str, self.cluster.site[name].processes("ray::Host"))
        return left


@pytest.fixture
def experiment(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Experiment]:
    made = Experiment(ray_cluster, tmp_path / "experiment")
    ray_cluster.hide(tmp_path)
    yield made
    ray_cluster.show(tmp_path)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("out/*")}


def test_commands_run_once_on_both_nodes_with_the_files_of_a_local_run_and_leave_nothing(
    experiment: Experiment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    experiment.write(COMMANDS + EXECUTOR)
    experiment.env["SEEN"] = str(tmp_path_factory.mktemp("seen"))
    experiment.run()
    with experiment.edition("commands") as edition:
        assert edition.counts() == {"succeeded": 24}
        assert {run.attempts for run in edition.runs()} == {1}
    runs = experiment.root / "commands" / "latest" / "runs"
    hosts = Counter(path.read_text().split()[-1] for path in runs.glob("*/stderr.txt"))
    assert set(hosts) == {"n1", "n2"} and hosts.total() == 24
    assert experiment.left() == []
    found = files(runs)
    experiment.write(COMMANDS)
    experiment.env["SEEN"] = ""
    experiment.run("--fresh")
    assert files(experiment.root / "commands" / "latest" / "runs") == found
    # The key reached the runs, which fail without it, and no file of Ray or of the edition.
    for place in (experiment.root, experiment.cluster.home):
        assert not [path for path in place.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_functions_run_from_the_directory_that_ray_sent_and_large_output_comes_home(experiment: Experiment) -> None:
    code = """
import hashlib, random
def run(ctx):
    block = random.Random(ctx.seed).randbytes(1 << 20)
    with open(ctx.directory / "large", "wb") as file:
        for _ in range(6):
            file.write(block)
    return {"score": ctx.seed}
"""
    text = 'name = "large"\nworkload = "python"\nseeds = 4\nparams = { function = "bulky:run" }\n'
    experiment.write(text + EXECUTOR, bulky=code)
    experiment.run()
    with experiment.edition("large") as edition:
        assert edition.counts() == {"succeeded": 4}
    import random

    for path in (experiment.root / "large" / "latest" / "runs").glob("*/large"):
        seed = int(path.parent.name.split("__s")[1].split("__")[0])
        assert path.read_bytes() == random.Random(seed).randbytes(1 << 20) * 6
    assert not list((experiment.root / "large" / "latest").glob(".incoming*"))


def test_coding_tasks_run_on_nodes_and_are_recorded_in_postgresql(
    experiment: Experiment, postgres_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is outside of the directory that Ray sends, and nodes see neither.

    benchmarks/cluster_same.py has the market world as well: on Ray each node compiles it first, which takes half a minute.
    """
    monkeypatch.setenv("BAKEOFF_DATABASE_URL", postgres_url())
    experiment.env |= {KEY_VARIABLE: kinds.KEY, "BAKEOFF_DATABASE_URL": os.environ["BAKEOFF_DATABASE_URL"]}
    executor = EXECUTOR.replace("slots = 4", "slots = 1\npilots = 2")
    calls = experiment.place.parent / "calls"
    with kinds.model_on(experiment.cluster.site.head, calls) as url:
        experiment.write(kinds.coding(experiment.place, url) + executor + f'secrets = ["{KEY_VARIABLE}"]\n')
        scheduler = experiment.start()
        eventually(calls.exists, "an agent calls its model")
        during = kinds.files_with_key(experiment.place, experiment.cluster.home)
        assert scheduler.wait(LONG) == 0
    with experiment.edition("coding") as edition:
        assert [run.metrics["total_score"] for run in edition.runs()] == [1.0, 1.0]
        assert {node.host for node in list_nodes(edition)} <= {"n1", "n2"}
    nodes = {experiment.cluster.site[name].address for name in experiment.cluster.names}
    assert {tuple(line.split()) for line in calls.read_text().splitlines()} <= {(node, "True") for node in nodes}
    assert [*during, *kinds.files_with_key(experiment.place, experiment.cluster.home)] == []
    assert not list(experiment.root.rglob("experiment.db")), "PostgreSQL has it all"


def test_a_scheduler_that_was_killed_adopts_what_still_runs(experiment: Experiment) -> None:
    """Each execution leaves a line on its node; nothing is executed twice."""
    log = Path("/tmp") / f"{experiment.place.parent.name}.executions"
    command = f"sh -c 'echo {{seed}} >> {log}; sleep 6; echo done > {{out}}/result'"
    text = f'name = "adopted"\nworkload = "command"\nseeds = 8\n[params]\ncommand = "{command}"\n'
    experiment.write(text + EXECUTOR)
    try:
        scheduler = experiment.start()
        eventually(lambda: log.exists() and len(log.read_text().split()) == 8, "all 8 run")
        experiment.cluster.site.head.signal("bakeoff run exp.toml")
        scheduler.wait()
        experiment.run()
        with experiment.edition("adopted") as edition:
            assert edition.counts() == {"succeeded": 8}
            assert {run.attempts for run in edition.runs()} == {1}
        assert sorted(map(int, log.read_text().split())) == list(range(8))
        assert experiment.left() == []
    finally:
        log.unlink(missing_ok=True)


def test_stopping_twice_ends_what_runs_on_nodes(experiment: Experiment) -> None:
    text = 'name = "stopped"\nworkload = "command"\nseeds = 4\nparams = { command = "sleep 3041" }\n'
    experiment.write(text + EXECUTOR)
    said = experiment.place.parent / "said"
    with said.open("wb") as stderr:
        scheduler = experiment.start(stderr=stderr)
    nodes = [experiment.cluster.site[name] for name in experiment.cluster.names]
    eventually(lambda: sum(len(list(node.processes("sleep 3041"))) for node in nodes) >= 4, "the runs are going")
    experiment.cluster.site.head.signal("bakeoff run exp.toml", signal.SIGINT)
    eventually(lambda: "starting nothing more" in said.read_text(), "the first signal is noticed")
    experiment.cluster.site.head.signal("bakeoff run exp.toml", signal.SIGINT)
    assert scheduler.wait(LONG) == 130
    assert not [pid for node in nodes for pid in node.processes("sleep 3041")]
    assert experiment.left() == []


def test_the_devices_that_ray_assigned_are_shared_as_declared(
    experiment: Experiment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two pilots on each node get one of its two devices each, and give it to two runs at a time."""
    text = kinds.devices(tmp_path_factory.mktemp("shared") / "seen")
    experiment.write(text + '[executor]\nkind = "ray"\npilots = 4\nslots = 2\n')
    experiment.run()
    kinds.check_devices(experiment.root / "devices" / "latest" / "runs")


def test_one_actor_for_each_run_where_accounting_wants_it(experiment: Experiment) -> None:
    text = (
        'name = "single"\nworkload = "command"\nseeds = 3\njobs = 2\nparams = { command = "echo {seed} > {out}/x" }\n'
    )
    experiment.write(text + '[executor]\nkind = "ray"\npilots = false\n')
    experiment.run()
    with experiment.edition("single") as edition:
        assert edition.counts() == {"succeeded": 3}
        assert len({edition.attempts(position)[0]["node"] for position in range(3)}) == 3
    assert experiment.left() == []


def test_a_cluster_that_is_not_there_is_named(experiment: Experiment) -> None:
    experiment.write(COMMANDS + EXECUTOR + 'address = "127.0.0.1:1"\n')
    process = experiment.cluster.start(
        "sh", "-c", f"exec {BAKEOFF} run exp.toml 2>&1", env=experiment.env, cwd=experiment.place, stdout=-1
    )
    output = process.communicate(timeout=120)[0]
    assert "cannot connect to Ray (127.0.0.1:1)" in output and process.returncode == 1
