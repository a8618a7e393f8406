"""A plan of many runs: it begins quickly, and memory and descriptors stay flat while it goes on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.processes import LONG, Lab, eventually

RUNS = 100_000 if os.environ.get("BAKEOFF_TEST_WHOLE") == "1" else 20_000


def _resident(pid: int) -> float:
    """Megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
def test_memory_stays_flat_over_a_long_plan(lab: Lab) -> None:
    lab.experiment(
        f'workload = "python"\njobs = 2\nseeds = {RUNS // 2}\nparams = {{ function = "nothing:run" }}\n[matrix]\nx = [1, 2]',
        nothing="def run(x, seed): return {'value': x + seed}",
    )
    process = lab.start("run", "trial.toml", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: lab.statuses()["succeeded"] > RUNS / 5, "a fifth is done", patience=5 * LONG)
    early, open_early = _resident(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))
    late, open_late = early, open_early
    while process.poll() is None:
        try:
            late, open_late = _resident(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))
        except (OSError, ValueError, IndexError):
            break
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    assert process.wait(timeout=LONG) == 0
    assert lab.statuses() == {"succeeded": RUNS}
    assert late - early < 15, f"{early:.0f} MB became {late:.0f} MB"
    assert open_late <= open_early + 4
