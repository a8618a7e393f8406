"""Per-step series and trajectories: round trips, and what is left after a crash."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakeoff.records import series as series_module
from bakeoff.records.run import TrajectoryIndex
from bakeoff.records.series import Series, TrajectoryWriter, read_block, read_jsonl, read_trajectory
from bakeoff.spec.workload import Step, Tokens
from bakeoff.zstd import ZstdCompressor, ZstdError, ZstdFile, compressor, decompress

# Bytes that bakeoff wrote with the package zstandard 0.25, in each way that any version of it did: blocks of a series at
# once, trajectories as a stream without a content size; with a checksum, and without one before there were any.
WRITTEN_BLOCKS = {
    "without a checksum": "KLUv/SBGnQEANAKCoXYBpnNlcmllc4GkbG9zc5LEGAEAAgADAMQYAOA/ANDAPwYAKylAG0AMMDAY2ACa",
    "with a checksum": "KLUv/SRGnQEANAKCoXYBpnNlcmllc4GkbG9zc5LEGAEAAgADAMQYAOA/ANDAPwYAKylAG0AMMDAY2ACa4T1x0A==",
}
WRITTEN_TRAJECTORIES = {
    "without a checksum": ("KLUv/QBYTQEA+HsiYWN0aW9uIjogMCwgInJld2FyZCI6IDAuNX0KMTIDAGAWwG7AUE4=", 3),
    "with a checksum": ("KLUv/QRYTQEA+HsiYWN0aW9uIjogMCwgInJld2FyZCI6IDAuNX0KMTIDAGAWwG7AUE6zRVjo", 3),
    "flushed after each step": (
        "KLUv/QRY6AAAeyJhY3Rpb24iOiAwLCAicmV3YXJkIjogMC41fQpMAAAIMQIAYAqIFRBMAAAQezICAGAKDK4BAACzRVjo",
        3,
    ),
    "of a run that was killed": (
        "KLUv/QRY6AAAeyJhY3Rpb24iOiAwLCAicmV3YXJkIjogMC41fQpMAAAIMQIAYAqIFRA=",
        2,
    ),
}

points = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.dictionaries(st.sampled_from(["loss", "lr", "é", ""]), st.floats(allow_nan=True), max_size=3),
    ),
    max_size=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(points)
def test_a_series_comes_back_bit_by_bit(given_: list[tuple[int, dict[str, float]]]) -> None:
    series = Series()
    wanted: dict[str, list[tuple[int, bytes]]] = {}
    for step, values in given_:
        series.add(step, values)
        for name, value in values.items():
            wanted.setdefault(name, []).append((step, np.float64(value).tobytes()))
    found = read_block(series.block())
    assert {
        name: [(int(step), value.tobytes()) for step, value in zip(steps, values, strict=True)]
        for name, (steps, values) in found.items()
    } == wanted
    assert bool(series) == bool(wanted)


@pytest.mark.slow
def test_a_million_steps_are_small() -> None:
    series = Series()
    for step in range(1_000_000):
        series.add(step, {"loss": 0.5})
    block = series.block()
    assert len(block) < 4_000_000
    steps, values = read_block(block)["loss"]
    assert steps[-1] == 999_999 and values.sum() == 500_000


def test_a_value_that_is_no_number_leaves_no_half_point() -> None:
    series = Series()
    series.add(1, {"a": np.float32(0.5), "b": True})
    for bad in ("text", None, [1]):
        with pytest.raises((TypeError, ValueError)):
            series.add(2, {"a": bad})  # type: ignore[dict-item]
    with pytest.raises(OverflowError):
        series.add(2**70, {"a": 1.0})
    steps, values = read_block(series.block())["a"]
    assert steps.tolist() == [1] and values.tolist() == [0.5]


def test_a_block_of_a_later_version_is_refused() -> None:
    block = packed(msgspec.msgpack.encode({"v": 2, "series": {}}))
    with pytest.raises(ValueError, match="newer"):
        read_block(block)


def packed(content: bytes) -> bytes:
    """One frame that states how large its content is."""
    return compressor().compress(content, ZstdCompressor.FLUSH_FRAME)


@pytest.mark.parametrize("block", WRITTEN_BLOCKS.values(), ids=list(WRITTEN_BLOCKS))
def test_blocks_of_older_editions_are_read(block: str) -> None:
    steps, values = read_block(base64.b64decode(block))["loss"]
    assert steps.tolist() == [1, 2, 3] and values.tolist() == [0.5, 0.25, 0.125]


@pytest.mark.parametrize(("content", "steps"), WRITTEN_TRAJECTORIES.values(), ids=list(WRITTEN_TRAJECTORIES))
def test_trajectories_of_older_editions_are_read(tmp_path: Path, content: str, steps: int) -> None:
    (tmp_path / "t").write_bytes(base64.b64decode(content))
    assert list(read_trajectory(tmp_path / "t")) == [Step(action=n, reward=0.5) for n in range(steps)]


def test_no_more_than_the_limit_is_unpacked_whether_a_frame_states_its_size_or_not() -> None:
    zeros = bytes(1 << 20)
    stream = compressor()
    unstated = stream.compress(zeros) + stream.flush()
    for frame in (packed(zeros), unstated):
        assert decompress(frame, 1 << 20) == zeros
        with pytest.raises(ZstdError, match="more than 1,048,575 bytes"):
            decompress(frame, (1 << 20) - 1)


def test_a_block_that_is_cut_off_or_followed_by_something_is_damaged() -> None:
    series = Series()
    series.add(1, {"loss": 0.5})
    block = series.block()
    for bad, reason in ((block[:-1], "cut off"), (block + b"x", "followed"), (block + block, "followed")):
        with pytest.raises(ValueError, match=reason):
            read_block(bad)


def test_what_follows_the_end_of_a_trajectory_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "t", [Step(action=1)])
    with (tmp_path / "t").open("ab") as file:
        file.write(packed(b'{"action":2}\n'))
    with pytest.raises(ValueError, match="something follows"):
        list(read_trajectory(tmp_path / "t"))


def test_metrics_jsonl_is_read_line_by_line_and_torn_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"step": 1, "loss": 0.5, "note": "x", "ok": true}\n'
        b'{"_step": 2, "loss": NaN, "lr": Infinity}\n'
        b"\n"
        b'{"loss": 3}\n'
        b"[1, 2]\n"
        b"\xff\xfe\n"
        b'{"step": "x", "loss": 1}\n'
        b'{"step": Infinity, "loss": 1}\n'
        b'{"step": 99999999999999999999999, "loss": 1}\n'
        b'{"step": 9, "loss": 1' + b"0" * 400 + b"}\n"
        b'{"step": 4, "lo'
    )
    series, torn = read_jsonl(path)
    found = read_block(series.block())
    steps, losses = found["loss"]
    assert steps.tolist() == [1, 2, 3] and losses[0] == 0.5 and math.isnan(losses[1]) and losses[2] == 3
    assert (
        found["lr"][1].tolist() == [math.inf]
        and found["ok"][1].tolist() == [1.0]
        and set(found) == {"loss", "lr", "ok"}
    )
    assert torn == 7


def test_an_empty_file_is_an_empty_series(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"")
    series, torn = read_jsonl(tmp_path / "m")
    assert not series and torn == 0


def write(path: Path, steps: list[Step]) -> TrajectoryIndex:
    writer = TrajectoryWriter(path)
    for step in steps:
        writer.add(step)
    return writer.close()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
steps_ = st.builds(
    Step, observation=json_values, action=json_values, reward=st.none() | st.floats(allow_nan=False), done=st.booleans(),
    time_s=st.none() | st.floats(0, 1e9), info=st.dictionaries(st.text(), json_values, max_size=2), truth=json_values,
    tokens=st.none() | st.builds(Tokens, prompt_ids=st.lists(st.integers(0, 10**6)), logprobs=st.lists(st.floats(allow_nan=False))),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps_, max_size=6))
def test_a_trajectory_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    path = tmp_path_factory.mktemp("t") / "t.zst"
    index = write(path, steps)
    assert list(read_trajectory(path)) == steps
    assert index.steps == len(steps) and index.bytes == path.stat().st_size


def test_numbers_that_json_lacks_and_arrays_survive(tmp_path: Path) -> None:
    step = Step(
        observation=np.array([[1.0, math.nan]]), action=np.int64(3), reward=math.nan, info={"a": [math.inf, None]}
    )
    write(tmp_path / "t", [step, Step(reward=math.inf), Step(reward=0.5, observation={"null": None})])
    first, second, third = read_trajectory(tmp_path / "t")
    assert first.observation[0][0] == 1.0 and math.isnan(first.observation[0][1]) and first.action == 3
    assert first.reward is not None and math.isnan(first.reward) and first.info == {"a": [math.inf, None]}
    assert second.reward == math.inf and third.observation == {"null": None}


def test_rewards_are_summed_and_none_is_none(tmp_path: Path) -> None:
    assert write(tmp_path / "a", [Step(reward=1.0), Step(), Step(reward=0.5)]).reward == 1.5
    assert write(tmp_path / "b", [Step()]).reward is None


def test_what_no_file_can_hold_is_told(tmp_path: Path) -> None:
    writer = TrajectoryWriter(tmp_path / "t")
    with pytest.raises(TypeError, match="cannot hold a object"):
        writer.add(Step(observation=object()))
    writer.add(Step(action=1))
    assert writer.close().steps == 1 and [step.action for step in read_trajectory(tmp_path / "t")] == [1]


@pytest.mark.slow
def test_a_torn_trajectory_is_read_up_to_its_last_whole_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = [Step(observation=rng.random(50).tolist(), reward=float(n)) for n in range(2000)]
    write(tmp_path / "whole", steps)
    content = (tmp_path / "whole").read_bytes()
    seen = []
    for cut in np.linspace(0, len(content), 25).astype(int):
        (tmp_path / "torn").write_bytes(content[:cut])
        found = list(read_trajectory(tmp_path / "torn"))
        assert found == steps[: len(found)]
        seen.append(len(found))
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 2000 and seen[12] > 500


def test_a_trajectory_can_be_read_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_module, "FLUSH_AFTER", 0.0)
    writer = TrajectoryWriter(tmp_path / "t")
    for number in range(3):
        writer.add(Step(action=number))
        assert [step.action for step in read_trajectory(tmp_path / "t")] == list(range(number + 1))
    writer.close()


def test_lines_are_plain_json_for_other_tools(tmp_path: Path) -> None:
    write(tmp_path / "t", [Step(action="go", reward=1.0)])
    line: Any = json.loads(ZstdFile(tmp_path / "t").read())
    assert line == {"action": "go", "reward": 1.0}
