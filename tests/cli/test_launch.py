"""`bakeoff launch` writes jobs for SkyPilot, KubeRay and Slurm, starts them and brings results home."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.processes import Lab

FILE = """
name = "Far Away"
workload = "command"
seeds = 3
jobs = 4
[params]
command = "echo {seed} > {out}/result"
[env]
KEY = "${SECRET_KEY}"
[resources]
cpus = 2
memory = "2GB"
"""
ROOT = Path(__file__).parents[2]
KEY = "sk-" + "w8Yp" * 6


@pytest.fixture
def far(lab: Lab) -> Lab:
    lab.environment["SECRET_KEY"] = KEY
    lab.experiment(FILE, helper="x = 1\n")
    return lab


def launch(lab: Lab, *options: str) -> subprocess.CompletedProcess[str]:
    process = lab.start("launch", "trial.toml", *options, cwd=lab.place)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(options, process.returncode, out, err)


def dry(lab: Lab, *options: str) -> str:
    done = launch(lab, "--dry-run", *options)
    assert done.returncode == 0, done.stderr
    assert not lab.root.exists() and KEY not in done.stdout + done.stderr
    return done.stdout


def test_a_sky_task_asks_for_what_the_runs_need_and_names_keys_without_values(far: Lab) -> None:
    task = yaml.safe_load(dry(far, "--to", "sky", "--nodes", "3", "--option", "resources.infra=aws"))
    assert task["name"] == "bakeoff-far-away" and task["num_nodes"] == 3 and task["workdir"] == str(far.place)
    assert task["resources"] == {"cpus": "8+", "memory": "8+", "infra": "aws"}
    assert task["secrets"] == {"SECRET_KEY": None}
    assert "bakeoff run trial.toml --jobs 12 --executor ray --root ~/bakeoff-runs" in task["run"]


def test_a_ray_job_carries_the_experiment_and_refers_to_its_secret(far: Lab) -> None:
    text = dry(far, "--to", "kuberay", "--image", "me/ray:1", "--nodes", "2", "--time", "1h", "--set", "seeds=5")
    files, job = yaml.safe_load_all(text)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert spec["activeDeadlineSeconds"] == 3600 and spec["shutdownAfterJobFinishes"] is False
    assert "--set seeds=5 --jobs 8 --executor ray" in spec["entrypoint"]
    cluster = spec["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    assert head["containers"][0]["image"] == "me/ray:1" and head["volumes"][0]["configMap"] == {
        "name": "bakeoff-far-away"
    }
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 2
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "8", "memory": "8000000000"}
    reference = {"name": "bakeoff-far-away", "key": "SECRET_KEY"}
    assert container["env"] == [{"name": "SECRET_KEY", "valueFrom": {"secretKeyRef": reference}}]
    data = gzip.decompress(base64.b64decode(files["binaryData"]["experiment.tar.gz"]))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert sorted(archive.getnames()) == ["helper.py", "trial.toml"]


def test_a_batch_script_is_valid_bash_and_keeps_other_users_out_of_its_cluster(far: Lab) -> None:
    script = dry(far, "--to", "slurm", "--nodes", "2", "--time", "1d2h", "--gpus", "1", "--option", "partition=gpu")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    for line in ("--partition=gpu", "--nodes=2", "--time=1-02:00:00", "--gres=gpu:1", "--cpus-per-task=8"):
        assert f"#SBATCH {line}\n" in script
    assert "RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}" in script


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "skye"], "'skye' is not one of 'sky', 'kuberay', 'slurm'"),
        (["--to", "kuberay"], "kuberay needs --image"),
        (["--to", "sky", "--option", "resource.infra=aws"], "no such key; did you mean 'resources'"),
        (["--to", "sky", "--option", "resources"], "write KEY=VALUE"),
        (["--to", "sky", "--option", "num_nodes.more=1"], "num_nodes is a value, not a table"),
        (["--to", "slurm", "--time", "soon"], "--time"),
        (["--to", "slurm", "--memory", "much"], "--memory"),
        (["--to", "slurm", "--nodes", "0"], "--nodes"),
    ],
)
def test_a_wrong_call_names_the_option_and_the_fix(far: Lab, options: list[str], message: str) -> None:
    done = launch(far, "--dry-run", *options)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_gpus_without_a_kind_are_any_that_skypilot_finds_cheapest(far: Lab) -> None:
    done = launch(far, "--dry-run", "--to", "sky", "--gpus", "4")
    assert done.returncode == 0 and "accelerators:\n" in done.stdout and "L4: 4\n" in done.stdout, done.stderr
    chosen = launch(far, "--dry-run", "--to", "sky", "--gpus", "4", "--option", "resources.accelerators=A100:4")
    assert "A100:4" in chosen.stdout and "L4" not in chosen.stdout


def test_a_key_that_is_not_set_is_named_before_anything_starts(lab: Lab) -> None:
    lab.experiment(FILE)
    done = launch(lab, "--to", "slurm")
    assert done.returncode == 2 and "SECRET_KEY is not set" in done.stderr and not lab.root.exists()


def test_a_directory_that_is_too_large_for_kubernetes_is_refused(far: Lab) -> None:
    (far.place / "data").write_bytes(os.urandom(1_000_000))
    done = launch(far, "--dry-run", "--to", "kuberay", "--image", "me/ray:1")
    assert done.returncode == 2 and "fit into a Kubernetes ConfigMap" in done.stderr


def test_a_program_that_is_missing_is_named(far: Lab) -> None:
    far.environment["PATH"] = "/nowhere"
    done = launch(far, "--to", "kuberay", "--image", "me/ray:1")
    assert done.returncode == 1 and "kubectl is not on PATH" in done.stderr


KUBECTL = """#!/bin/sh
# A cluster in which the job has run: it records its calls, and its pod has the results.
echo "$@" >> {log}
case "$1 $2" in
    "apply -f") [ "$3" = - ] && cat >> {log} || true ;;
    "get rayjob") echo '{{"status": {{"jobStatus": "SUCCEEDED", "rayClusterName": "c1"}}}}' ;;
    "get pods") printf head-1 ;;
    "exec head-1") exec sh -c "$(echo "$6" | sed 's|cd /tmp|cd {pod}/tmp|')" ;;
esac
"""


def test_results_come_home_from_a_pod_and_the_key_goes_through_a_pipe(far: Lab, tmp_path: Path) -> None:
    """kubectl is a script here, because no Kubernetes can be had; the results are those of a real run."""
    log, pod = tmp_path / "calls", tmp_path / "pod"
    (pod / "tmp").mkdir(parents=True)
    process = far.start("run", "trial.toml", "--root", str(pod / "tmp" / "bakeoff-runs"), cwd=far.place)
    assert process.wait(120) == 0
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(log=log, pod=pod))
    program.chmod(0o755)
    far.environment["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    done = launch(far, "--to", "kuberay", "--image", "me/ray:1")
    assert done.returncode == 0, done.stderr
    calls = log.read_text()
    assert f'"SECRET_KEY": "{KEY}"' in calls and "delete secret bakeoff-far-away" in calls
    assert KEY not in "".join(path.read_text() for path in far.root.rglob("*.yaml"))
    listed: Any = json.loads(far.start("ls", "--json", stdout=subprocess.PIPE).communicate(timeout=60)[0])
    assert "Far_Away" in json.dumps(listed)
    (edition,) = [path for path in (far.root / "Far_Away").iterdir() if path.is_dir() and path.name[0].isdigit()]
    assert len(list((edition / "runs").glob("*/out/result"))) == 3


@pytest.mark.launchers
@pytest.mark.slow
def test_skypilot_itself_accepts_the_task(far: Lab, tmp_path: Path) -> None:
    """The real package reads it (in its own virtual environment: its dependencies are many)."""
    task = tmp_path / "task.yaml"
    task.write_text(dry(far, "--to", "sky", "--nodes", "2", "--option", "resources.use_spot=true"))
    code = (
        "import sky, sys; task = sky.Task.from_yaml(sys.argv[1]); "
        "(r,) = task.resources; print(task.num_nodes, r.cpus, r.memory, r.use_spot)"
    )
    python = Path(os.environ.get("BAKEOFF_LAUNCHERS", ROOT / ".launchers")) / "bin" / "python"
    assert python.exists(), "SkyPilot is not installed: run `make test`, or scripts/install-launchers.sh"
    env = {**os.environ, "HOME": str(tmp_path), "SECRET_KEY": KEY, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run([python, "-c", code, task], text=True, capture_output=True, env=env, cwd=tmp_path)
    assert done.stdout.split() == ["2", "8+", "8+", "True"], done.stderr
