"""What engines start on nodes, without the engines: the script of a Slurm job, and the process that hosts a pilot on Ray."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bakeoff.engine.executors.slurm import SlurmLauncher, SlurmSettings
from bakeoff.spec.experiment import Resources


@pytest.mark.parametrize(
    ("limit", "given", "left"),
    [
        (None, {}, None),
        ("90s", {}, 90),
        ("90s", {"SLURM_JOB_START_TIME": "5000", "SLURM_JOB_END_TIME": "5200"}, 200),
    ],
)
def test_an_allocation_ends_by_the_clock_of_the_node(
    limit: str | None, given: dict[str, str], left: int | None, tmp_path: Path
) -> None:
    """slurmctld says when it begins and ends by its own clock, which may be hours off."""
    settings = SlurmSettings.model_validate({"kind": "slurm", "time": limit})
    script = SlurmLauncher(settings, Resources(), tmp_path, "name").script(["1-1"])
    *lines, last = script.splitlines()
    assert last.startswith("exec ")
    shell = "\n".join([*lines, "echo $BAKEOFF_ALLOCATION_ENDS"])
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")} | given
    ends = subprocess.run(["bash", "-c", shell], env=env, text=True, capture_output=True, check=True).stdout.strip()
    if left is None:
        assert ends == ""
    else:
        assert abs(float(ends) - time.time() - left) < 10


@pytest.mark.slow
def test_the_host_of_a_pilot_that_cannot_start_says_why_and_makes_room() -> None:
    """An actor that stayed would keep the CPUs that the next pilot needs."""
    code = """
import time
from bakeoff.engine.executors.ray.host import Host, decode_letters
from bakeoff.engine.pilots import messages
host = Host("1-1")
host.begin(b"this is not a setup", {})
[(number, letter)] = decode_letters(host.poll("scheduler", 0, [], 30.0))
bye = messages.decode_upward(letter.content)
print(type(bye).__name__, bye.expected, bye.why, flush=True)
host.poll("scheduler", number, [], 0.1)
time.sleep(60)
print("it is still here")
"""
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=50)
    assert done.returncode == 0 and "still here" not in done.stdout, done.stderr
    assert done.stdout.startswith("Bye False it ended with exit code 1 before it said anything"), done.stdout
    assert "DecodeError" in done.stdout or "ValidationError" in done.stdout, "the end of its log"
