"""`bakeoff launch --to slurm`: a batch job that starts a Ray cluster inside its allocation."""

from __future__ import annotations

import sys
from pathlib import Path

from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from cluster.slurm import SlurmCluster

BAKEOFF = Path(sys.executable).with_name("bakeoff")
FILE = """
name = "inside"
workload = "command"
seeds = 8
jobs = 2
[params]
command = "hostname; sleep 1; echo {seed} > {out}/result"
"""


def test_an_experiment_runs_on_a_ray_cluster_inside_an_allocation(slurm_cluster: SlurmCluster) -> None:
    place = slurm_cluster.shared / "launched"
    place.mkdir()
    (place / "exp.toml").write_text(FILE)
    for name in slurm_cluster.names:  # machines of a real cluster have their own /tmp
        slurm_cluster.site[name].run("mkdir", "-p", "/tmp/ray")
        slurm_cluster.site[name].run("mount", "-t", "tmpfs", "own", "/tmp/ray")
    setup = f"export PATH={BAKEOFF.parent}:$PATH RAY_raylet_start_wait_time_s=120"
    arguments = ["--to", "slurm", "--nodes", "2", "--time", "10m", "--setup", setup, "--root", place / "results"]
    output = slurm_cluster.run(BAKEOFF, "launch", "exp.toml", *arguments, cwd=place, timeout=400)
    assert "completed" in output
    edition = Edition.open(find_edition("inside", place / "results"))
    try:
        assert edition.counts() == {"succeeded": 8}
    finally:
        edition.close()
    hosts = {path.read_text().strip() for path in (place / "results").glob("inside/latest/runs/*/stdout.txt")}
    assert hosts == {"n1", "n2"}
    assert slurm_cluster.jobs() == []
    for name in slurm_cluster.names:
        assert not list(slurm_cluster.site[name].processes("raylet"))
        slurm_cluster.site[name].run("umount", "--lazy", "/tmp/ray")
