"""A Ray cluster without namespaces (`ray.cluster_utils.Cluster`), which needs no root; and a second one in its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from support.processes import LONG, eventually

_NODES = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@contextmanager
def two_nodes() -> Iterator[str]:
    """A head and two nodes with one CPU each; yields the address."""
    env = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", _NODES], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(LONG)
        process.stdout.close()


def actors(address: str) -> list[str]:
    """Return names of actors that the cluster has."""
    code = (
        "import ray\n"
        f"ray.init(address={address!r}, log_to_driver=False, logging_level='ERROR')\n"
        "print(*[entry['name'] for entry in ray.util.list_named_actors(all_namespaces=True)])"
    )
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, text=True, stdout=subprocess.PIPE, check=True
    ).stdout.split()


@pytest.mark.slow
def test_an_edition_that_leaves_the_cluster_ends_its_actors(tmp_path: Path) -> None:
    """They held the CPUs of the cluster for ten minutes, and a later experiment waited for them."""
    began, go = tmp_path / "began", tmp_path / "go"
    command = f"echo {{seed}} >> {began}; while [ ! -e {go} ]; do sleep 0.1; done"
    (tmp_path / "moved.toml").write_text(
        f"workload = 'command'\nseeds = 3\nparams = {{ command = '{command}' }}\n"
        "executor = { kind = 'ray', pilots = 2, slots = 1 }\n"
    )
    argv = [sys.executable, "-P", "-m", "bakeoff", "run", "moved.toml"]
    with two_nodes() as address:
        env = {**os.environ, "RAY_ADDRESS": address, "BAKEOFF_ROOT": str(tmp_path / "results")}
        scheduler = subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: began.exists() and len(began.read_text().split()) == 2, "both nodes work")
        scheduler.kill()
        scheduler.wait()
        assert len(actors(address)) == 2
        go.touch()
        subprocess.run([*argv, "--executor", "local"], cwd=tmp_path, env=env, check=True, capture_output=True)
        assert actors(address) == []


@pytest.mark.slow
def test_an_edition_that_one_cluster_began_is_finished_by_another(tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    command = f"echo {{seed}} >> {began}; while [ ! -e {go} ]; do sleep 0.1; done; echo {{seed}} > {{out}}/seed.txt"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "moved.toml").write_text(
        f"workload = 'command'\nseeds = 5\nparams = {{ command = '{command}' }}\n"
        "executor = { kind = 'ray', pilots = 2, slots = 1, expiry = 6 }\n"
    )

    def start(address: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-P", "-m", "bakeoff", "run", "moved.toml"]
        env = {**os.environ, "RAY_ADDRESS": address, "BAKEOFF_ROOT": str(tmp_path / "results")}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(argv, cwd=tmp_path / "code", env=env, text=True, **pipes)

    with two_nodes() as address:
        scheduler = start(address)
        eventually(lambda: began.exists() and len(began.read_text().split()) == 2, "both nodes work")
        scheduler.send_signal(signal.SIGKILL)
        scheduler.communicate()
    go.touch()
    with two_nodes() as address:
        scheduler = start(address)
        output, _ = scheduler.communicate(timeout=LONG)
    assert scheduler.returncode == 0, output
    executions = Counter(began.read_text().split())
    assert sum(executions.values()) == 7, "only the two runs that were lost with the first cluster were done again"
    with closing(Edition.open(find_edition("moved", tmp_path / "results"))) as edition:
        assert edition.counts() == {"succeeded": 5}
        for run in edition.runs():
            *lost, last = [attempt["status"] for attempt in edition.attempts(run.position)]
            assert last == "succeeded" and lost in ([], ["infra_error"])  # what waited there was lost, too
            assert lost or executions[str(run.seed)] == 1
            assert (edition.paths.run(run.run_id) / "out" / "seed.txt").read_text().strip() == str(run.seed)
