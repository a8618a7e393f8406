"""Container services for tests: a real dockerd or podman with its own data directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bakeoff.sandbox.base import choose
from bakeoff.sandbox.docker import Docker
from support.processes import eventually

CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
second = ["/usr/sbin/runc"]
"""


@contextmanager
def started(name: str, runtime: str = "runc") -> Iterator[Docker]:
    """A running service with its own data directory, which is removed afterwards. `second` is another name for runc."""
    program = {"docker": "dockerd", "podman": "podman"}[name]
    if shutil.which(program) is None:
        pytest.fail(f"{program} is not installed: run `make test`, or scripts/install-containers.sh", pytrace=False)
    home = Path(tempfile.mkdtemp(prefix="bakeoff-containers-", dir="/tmp"))
    before = dict(os.environ)
    (home / "containers.conf").write_text(CONTAINERS_CONF)
    (home / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\nrunroot = "{home}/run"\ngraphroot = "{home}/graph"\n'
    )
    os.environ.pop("CONTAINER_HOST", None)  # with it, podman would ask another service to be one
    os.environ["CONTAINERS_CONF"] = str(home / "containers.conf")
    os.environ["CONTAINERS_STORAGE_CONF"] = str(home / "storage.conf")
    words = [program, "--runtime", runtime, "system", "service", "--time", "0", f"unix://{home}/sock"]
    if program == "dockerd":
        words = [
            program,
            "--iptables=false",
            "--bridge=none",
            "--storage-driver=overlay2",
            "--data-root",
            f"{home}/data",
        ]
        words += ["--exec-root", f"{home}/exec", "-H", f"unix://{home}/sock", "--pidfile", f"{home}/pid"]
        words += ["--add-runtime", f"second={shutil.which('runc')}"]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *words], cwd=home, stdout=log, stderr=log)
    os.environ["DOCKER_HOST"] = os.environ["CONTAINER_HOST"] = f"unix://{home}/sock"
    try:
        service = choose(name)
        assert isinstance(service, Docker)
        eventually(lambda: server.poll() is not None or service.missing() is None)
        assert server.poll() is None, (home / "log").read_text()
        yield service
        service.client.close()
    finally:
        server.terminate()
        server.wait(timeout=60)
        os.environ.clear()
        os.environ.update(before)
        subprocess.run(["umount", "-q", "-R", f"{home}/graph/overlay"], check=False)
        shutil.rmtree(home, ignore_errors=True)
