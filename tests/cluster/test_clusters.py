"""The clusters that tests run on do what the tests rely on."""

from __future__ import annotations

from pathlib import Path

from cluster.ray_nodes import RayCluster
from cluster.slurm import SlurmCluster
from support.processes import eventually


def test_a_slurm_job_runs_on_both_nodes_and_a_cut_takes_the_link_and_the_shared_files(
    slurm_cluster: SlurmCluster,
) -> None:
    output = slurm_cluster.shared / "hosts"
    slurm_cluster.run("sbatch", "--wait", "--nodes=2", f"--output={output}", "--wrap", "srun hostname")
    assert sorted(output.read_text().split()) == ["n1", "n2"]
    node = slurm_cluster.site["n1"]
    slurm_cluster.cut("n1")
    assert node.run("ls", slurm_cluster.shared) == ""
    assert "unreachable" in node.run("sh", "-c", "exec 2>&1; ip route get 10.99.0.1; true")
    slurm_cluster.restore("n1")
    assert "hosts" in node.run("ls", slurm_cluster.shared)
    assert slurm_cluster.kill("n2") == 1
    slurm_cluster.reset()
    assert slurm_cluster.usable() == {"n1", "n2"}


def test_a_ray_node_is_on_its_own_machine_and_sees_no_hidden_directory(ray_cluster: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert {ray_cluster.site[name].address for name in ("n1", "n2")} <= ray_cluster.alive()
    node = ray_cluster.site["n1"]
    node.hide(tmp_path)
    assert node.run("ls", tmp_path) == "" and (tmp_path / "file").exists()
    node.show(tmp_path)
    assert len(list(node.processes("raylet/raylet"))) == 1
    assert ray_cluster.kill("n1") == 1
    ray_cluster.replace("n1")
    eventually(lambda: any(ray_cluster.site["n1"].processes("raylet/raylet")), "the node is back")
