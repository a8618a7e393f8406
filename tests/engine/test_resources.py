"""Resources of a run decide how many fit on a machine, and which devices each may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.engine import hardware
from bakeoff.errors import SpecError, UsageError
from bakeoff.spec.experiment import Resources
from bakeoff.spec.load import load_plan
from support.processes import Lab


@given(
    st.integers(1, 6),
    st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.9, 1, 2, 3]),
    st.lists(st.booleans(), max_size=60),
)
def test_no_device_is_ever_shared_by_more_than_its_shares(devices: int, share: float, moves: list[bool]) -> None:
    names = tuple(f"gpu{number}" for number in range(devices))
    slots = hardware.DeviceSlots(names, share)
    held: list[tuple[str, ...]] = []
    for take in moves:
        if take:
            taken = slots.take()
            assert (taken is None) == (len(held) >= slots.total)
            held += [taken] if taken is not None else []
        elif held:
            slots.give(held.pop(0))
        load = {name: sum(name in devices for devices in held) * min(share, 1) for name in names}
        assert all(value <= 1 + 1e-9 for value in load.values())
        assert all(len(set(devices)) == max(1, int(share)) for devices in held)


def test_devices_are_those_that_were_assigned_then_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in hardware.VISIBLE:
        monkeypatch.delenv(name, raising=False)
    assert hardware.find_devices(2) == ("0", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert hardware.find_devices(None) == ("4", "7") and hardware.find_devices(1) == ("4",)
    with pytest.raises(UsageError, match=r"executor.gpus declares 3 devices, and this process may use 2 \('4,7'\)"):
        hardware.find_devices(3)


def test_what_does_not_fit_is_refused_with_what_there_is(tmp_path: Path) -> None:
    assert hardware.fitting(Resources(cpus=os.cpu_count()), (), 8) == 1
    assert hardware.fitting(Resources(gpus=0.5), ("0", "1"), 8) == 4
    with pytest.raises(UsageError, match=r"resources.gpus: a run needs 1, and .* has 0 devices; declare them"):
        hardware.fitting(Resources(gpus=1), (), 8)
    file = tmp_path / "trial.toml"
    file.write_text('params = { command = "true" }\n[resources]\ngpus = 1.5\n')
    with pytest.raises(SpecError, match=r"trial.toml:3: resources.gpus: a run takes a share of one device"):
        load_plan(file)


COUNT = """
import os, sys, time, pathlib
def run(ctx):
    running = pathlib.Path(ctx.base) / "running"
    mine = running / str(ctx.seed)
    mine.touch()
    (running.parent / "began" / str(ctx.seed)).touch()
    while len(list((running.parent / "began").iterdir())) < 4: time.sleep(0.01)
    at_once = len(list(running.iterdir()))
    mine.unlink()
    return {"at_once": at_once, "device": os.environ["CUDA_VISIBLE_DEVICES"], "hip": os.environ["HIP_VISIBLE_DEVICES"]}
"""
COMMAND = """touch running/{seed} began/{seed}
while [ $(ls began | wc -l) -lt 4 ]; do sleep 0.01; done
n=$(ls running | wc -l); rm running/{seed}
echo "{{\\"at_once\\": $n, \\"device\\": \\"$CUDA_VISIBLE_DEVICES\\", \\"hip\\": \\"$ASCEND_RT_VISIBLE_DEVICES\\"}}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["python", "command"])
def test_half_devices_let_four_runs_share_two(lab: Lab, workload: str) -> None:
    (lab.place / "running").mkdir()
    (lab.place / "began").mkdir()
    params = "function = 'count:run'" if workload == "python" else f"command = '''{COMMAND}'''"
    lab.experiment(
        f"workload = '{workload}'\nseeds = 12\njobs = 8\n[params]\n{params}\n"
        "[resources]\ngpus = 0.5\n[executor]\ngpus = 2\n",
        count=COUNT,
    )
    assert lab.run().statuses == {"succeeded": 12}
    rows = lab.rows()
    assert max(row["at_once"] for row in rows) == 4
    assert {row["device"] for row in rows} == {0, 1} or {row["device"] for row in rows} == {"0", "1"}
    assert all(row["hip"] == row["device"] for row in rows)


@pytest.mark.slow
def test_status_warns_when_arms_ran_on_different_kinds_of_nodes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in hardware.VISIBLE:
        monkeypatch.delenv(name, raising=False)
    arms = "[[arms]]\nname = 'a'\n[[arms]]\nname = 'b'\n"
    lab.experiment(f"params = {{ command = 'true' }}\nresources.gpus = 1\nexecutor.gpus = 1\n{arms}")
    lab.cli("run", "trial.toml", "--only", "arm=a")
    assert "kinds of nodes" not in lab.look("status", "trial").output
    lab.cli("run", "trial.toml", "--set", "executor.gpus=2")
    assert "arms ran on different kinds of nodes" in lab.look("status", "trial").output
