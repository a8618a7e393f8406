"""W&B runs: offline files as the real client writes them, and runs as its API gives them."""

from __future__ import annotations

import math
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bakeoff.errors import UsageError
from bakeoff.results.importers.foreign import ForeignRun
from bakeoff.results.importers.wandb_runs import BLOCK, FILE_HEADER, Wandb, _records, of_api, online
from bakeoff.results.table import Results

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_a_server_needs_the_package_and_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"pip install .*\[wandb\]"):
        list(online("a/b/c"))


class TestFiles:
    def write(self, path: Path, records: list[bytes]) -> None:
        """A log as LevelDB frames it: records cut where a block ends."""
        data = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
        assert len(data) == FILE_HEADER
        for record in records:
            left, first = record, True
            while first or left:
                room = BLOCK - len(data) % BLOCK
                if room < 7:
                    data += b"\0" * room
                    room = BLOCK
                piece, left = left[: room - 7], left[room - 7 :]
                kind = 1 if first and not left else 2 if first else 4 if not left else 3
                data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
                first = False
        path.write_bytes(bytes(data))

    def test_records_that_blocks_cut_are_put_together_again(self, tmp_path: Path) -> None:
        records = [bytes([i % 251]) * size for i, size in enumerate((5, BLOCK - 40, 3, 2 * BLOCK + 17, 0, 9))]
        self.write(tmp_path / "run.wandb", records)
        assert list(_records(tmp_path / "run.wandb")) == records

    def test_a_torn_end_is_left_out(self, tmp_path: Path) -> None:
        self.write(tmp_path / "run.wandb", [b"whole", b"torn" * 10])
        whole = (tmp_path / "run.wandb").read_bytes()
        (tmp_path / "run.wandb").write_bytes(whole[:-5])
        assert list(_records(tmp_path / "run.wandb")) == [b"whole"]

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "run.wandb").write_bytes(b"something else")
        with pytest.raises(UsageError, match="not a file that wandb wrote"):
            list(_records(tmp_path / "run.wandb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_fields_of_the_configuration_name_arms_and_tasks(read: Callable[..., Results]) -> None:
    results = read("wandb", arm="group", task="config.task", seed="config.seed")
    assert set(results.arms) == {"old", "new"} and results.tasks == ["maze"]
    assert read("wandb", arm="config.optimizer.lr", seed="config.seed").arms == ["0.1"]
    with pytest.raises(UsageError, match=r"--arm-from lr: no such field; .*config\.optimizer\.lr"):
        read("wandb", arm="lr")


def test_a_run_that_the_real_client_wrote_offline_is_read_back(tmp_path: Path) -> None:
    import wandb

    config = {"seed": 7, "condition": "ctl", "opt": {"lr": 0.1}}
    with wandb.init(mode="offline", project="p", name="ctl_s7", config=config, dir=str(tmp_path)) as run:
        for step in range(5):
            run.log({"overview/reward": 0.5 + step, "loss": math.nan if step == 3 else 1.0}, step=10 * step)
        run.summary["score"] = 3
    wandb.teardown()  # its own process writes the file, and may still be at it
    (directory,) = (path for path in (tmp_path / "wandb").iterdir() if path.name.startswith("offline-run-"))
    files = Wandb().claims(directory)
    assert files == Wandb().claims(directory.parent), "the link latest-run is not a second run"
    found, _ = Wandb().read(files)
    assert isinstance(found, ForeignRun)
    assert (found.labels, found.seed, found.outcome) == ({"arm": "ctl"}, 7, "scored")
    steps, values = found.series["overview/reward"]
    assert (list(steps), list(values)) == ([0, 10, 20, 30, 40], [0.5, 1.5, 2.5, 3.5, 4.5])
    assert math.isnan(found.series["loss"][1][3])
    assert found.metrics == {"score": 3.0}


class TestApi:
    def run(self, state: str = "finished", **config: Any) -> Any:
        """What the client's `Run` object offers of a run."""
        history = [{"_step": s, "reward": float(s)} for s in (0, 5, 10)] + [{"_step": 7, "other": 1.0}]

        def scan_history(keys: list[str]) -> Iterator[dict[str, Any]]:
            assert len([key for key in keys if key != "_step"]) == 1, "one key at a time"
            return iter([row for row in history if all(key in row for key in keys)])

        summary = {"reward": 10.0, "other": 1.0, "_runtime": 3, "text": "x", "gone": "NaN"}
        return SimpleNamespace(
            path=["me", "p", "id1"], name="trxl.seed3", state=state, config=config, summary=summary, scan_history=scan_history
        )  # fmt: skip

    def test_series_are_fetched_one_key_at_a_time_when_they_are_asked_for(self) -> None:
        found = of_api(self.run())
        assert list(found.series) == ["reward", "other", "gone"]
        assert [list(part) for part in found.series["reward"]] == [[0, 5, 10], [0, 5, 10]]

    def test_a_group_names_the_arm_where_the_configuration_does_not(self) -> None:
        run = self.run()
        run.group = "wide"
        assert (of_api(run).labels, of_api(run).seed) == ({"arm": "wide"}, 3)

    def test_who_it_is_stands_in_its_configuration_or_in_its_name(self) -> None:
        assert (of_api(self.run()).labels, of_api(self.run()).seed) == ({"arm": "trxl"}, 3)
        told = of_api(self.run(condition="big", seed=9, task="maze"))
        assert (told.labels, told.seed, told.task) == ({"arm": "big"}, 9, "maze")

    @pytest.mark.parametrize(("state", "outcome"), [
        ("finished", "scored"), ("failed", "failed"), ("crashed", "missing"), ("killed", "missing"), ("running", "running"),
    ])  # fmt: skip
    def test_states_become_outcomes(self, state: str, outcome: str) -> None:
        assert of_api(self.run(state)).outcome == outcome


def test_logs_beside_the_runs_of_w_and_b_are_named_as_not_read(read: Callable[..., Results], tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(FIXTURES / "wandb", project / "wandb")
    assert not any("is read of" in note for note in read(project).notes)
    shutil.copytree(FIXTURES / "tensorboard" / "slow_s0", project / "runs" / "slow_s0")
    notes = [note for note in read(project).notes if "is read of" in note]
    assert notes == [f"only wandb is read of {project}; {project / 'runs'} is of training logs: name it to read that"]
