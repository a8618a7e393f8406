from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.snapshot import VERSION, generate, load, private_path
from bakeoff.workloads.market.world.world import World

SCENARIO = Scenario()


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    one, again = generate(SCENARIO, 7, tmp_path / "a"), generate(SCENARIO, 7, tmp_path / "b")
    assert one.id == again.id and one.public.name == f"benchmark-{one.id}.json"
    assert one.public.read_bytes() == again.public.read_bytes()
    assert one.private.read_bytes() == again.private.read_bytes()
    for other in (generate(SCENARIO, 8, tmp_path / "c"), generate(SCENARIO, 7, tmp_path / "d", secret="mine")):
        assert other.id != one.id
        assert other.public.read_bytes() != one.public.read_bytes()


def test_the_public_file_gives_nothing_away(tmp_path: Path) -> None:
    made = generate(SCENARIO, 4_242_424_242, tmp_path)
    text, private = made.public.read_text(), json.loads(made.private.read_text())
    assert "4242424242" not in text and private["key"] not in text
    assert set(json.loads(text)) == {
        "id", "version", "createdAt", "duration", "tickInterval", "ticks", "config", "initialState", "rules", "commitment",
    }  # fmt: skip
    assert "groundTruth" not in text and "theta" not in text and '"reliabilit' not in text
    assert made.private.stat().st_mode & 0o077 == 0


def test_the_private_file_is_the_truth_of_the_world(tmp_path: Path) -> None:
    made = generate(SCENARIO, 3, tmp_path)
    private = json.loads(made.private.read_text())
    world = load(made.public).world()
    truth = private["groundTruth"]
    told = world.truth()
    assert truth["marketOutcomes"] == {question.id: question.outcome for question in told.questions}
    assert truth["reliabilities"] == dict(told.reliability)
    for ticker, path in truth["priceHistory"].items():
        assert [point["tick"] for point in path] == list(range(31))
        assert [point["timestamp"] for point in path] == [1_735_689_600 + 60 * tick for tick in range(31)]
        assert [point["price"] for point in path] == pytest.approx(told.prices[ticker], rel=1e-8)
    outcomes: dict[str, bool | None] = {}
    while not world.done:
        world.advance()
        outcomes |= {view.id: view.outcome for view in world.resolved_markets()}
    assert {name: outcome for name, outcome in truth["marketOutcomes"].items() if outcome is not None} == outcomes


def test_what_was_changed_is_named(tmp_path: Path) -> None:
    made = generate(SCENARIO, 5, tmp_path)
    public, private = made.public.read_bytes(), made.private.read_bytes()

    def said(new_public: bytes = public, new_private: bytes | None = private) -> str:
        made.public.write_bytes(new_public)
        made.private.write_bytes(new_private) if new_private is not None else made.private.unlink()
        with pytest.raises(UsageError) as caught:
            load(made.public)
        return str(caught.value)

    assert "id" in said(public.replace(b'"tickInterval":60', b'"tickInterval":61'))
    assert "version" in said(public.replace(b'"version":"1.0.0"', b'"version":"0.9.0"'))
    assert "not JSON" in said(b"{")
    assert "no version" in said(b"{}")
    flipped = private.replace(b'"market-0":true', b'"market-0":null').replace(b'"market-0":false', b'"market-0":null')
    assert flipped == private or "commitment" in said(public, flipped)
    assert "commitment" in said(public, private.replace(b'"tick":1,', b'"tick":9,'))
    assert "commitment" in said(public, _other_key(private))
    assert "commitment" in said(public, private.replace(b'"seed":5', b'"seed":6'))
    assert "cut short" in said(public, private[:-20])
    assert "the private file" in said(private)
    assert "bakeoff market generate" in said(b'{"version": "1.0.0", "id": "1", "groundTruth": {}, "ticks": []}')
    assert "initialState" in said(_with_another_start(public))
    assert "not found" in said(public, None)
    made.public.write_bytes(public)
    made.private.write_bytes(private)
    assert load(made.public).seed == 5
    with pytest.raises(UsageError, match="nowhere"):
        load(tmp_path / "nowhere.json")


def _other_key(private: bytes) -> bytes:
    at = private.rindex(b'"key":"') + len(b'"key":"')
    return private[:at] + (b"f" if private[at : at + 1] != b"f" else b"0") + private[at + 1 :]


def _with_another_start(public: bytes) -> bytes:
    """Changed by somebody who knows how ids are made."""
    content = json.loads(public)
    del content["id"]
    content["initialState"]["perpetualMarkets"][0]["indexPrice"] += 1.0
    identity = hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]
    return canonical_json({"id": identity, **content}).encode()


def test_the_commitment_is_what_sha256sum_says_of_the_private_file(tmp_path: Path) -> None:
    made = generate(SCENARIO, 2, tmp_path)
    told = subprocess.run(["sha256sum", made.private], capture_output=True, text=True, check=True)
    assert told.stdout.split()[0] == json.loads(made.public.read_text())["commitment"]


def test_a_private_file_that_was_changed_is_not_taken_for_the_one_that_was_written(tmp_path: Path) -> None:
    made = generate(SCENARIO, 2, tmp_path)
    made.private.write_bytes(made.private.read_bytes().replace(b'"seed":2', b'"seed":3'))
    with pytest.raises(UsageError, match="--force"):
        generate(SCENARIO, 2, tmp_path)
    assert generate(SCENARIO, 2, tmp_path, force=True).fresh
    assert load(made.public).seed == 2


def test_a_path_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(UsageError, match="taken: cannot create this directory"):
        generate(SCENARIO, 2, tmp_path / "taken")


PROTOCOL = {
    "predictionMarkets": "id question yesShares noShares yesPrice noPrice totalVolume liquidity resolved createdAt resolveAt",
    "perpetualMarkets": "ticker price priceChange24h volume24h openInterest fundingRate nextFundingTime",
    "agents": "id name reputation totalPnl",
    "groupChats": "id name memberIds messageCount lastActivity",
}


def test_the_state_has_the_names_that_clients_of_the_protocol_know(tmp_path: Path) -> None:
    state = json.loads(generate(SCENARIO, 2, tmp_path).public.read_text())["initialState"]
    for table, names in PROTOCOL.items():
        assert set(names.split()) <= set(state[table][0]), table


def test_another_file_is_only_replaced_by_force(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    first = generate(SCENARIO, 1, path)
    assert first.fresh and private_path(path) == tmp_path / "mine.private.json"
    assert not generate(SCENARIO, 1, path).fresh
    with pytest.raises(UsageError, match="--force"):
        generate(SCENARIO, 2, path)
    assert generate(SCENARIO, 2, path, force=True).id != first.id
    assert not list(tmp_path.glob(".benchmark-*"))


def test_a_snapshot_plays_like_its_seed(tmp_path: Path) -> None:
    made = generate(SCENARIO, 11, tmp_path)
    ours, theirs = load(made.public).world(seats=2), World.create(SCENARIO, 11, seats=2)
    while not theirs.done:
        ours.advance()
        theirs.advance()
    assert (ours.state.ints == theirs.state.ints).all()


@pytest.mark.parametrize(
    "odd", [{"markets": 0}, {"perpetuals": 0}, {"agents": 0}, {"duration_minutes": 1}, {"perpetuals": 20}]
)
def test_odd_scenarios_have_snapshots_too(tmp_path: Path, odd: dict[str, int]) -> None:
    made = generate(Scenario(**odd), 1, tmp_path)  # type: ignore[arg-type]
    assert load(made.public).world().ticks == made.scenario.ticks
    assert json.loads(made.public.read_text())["version"] == VERSION


MEASURED = """
import resource, sys
from pathlib import Path
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.snapshot import generate, load
for minutes in (200, int(sys.argv[1])):
    made = generate(Scenario(duration_minutes=minutes), 1, Path(sys.argv[2]) / f"{minutes}.json")
    load(made.public)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_ticks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "30000", str(tmp_path)], capture_output=True, text=True, check=True
    )
    short, long = map(int, done.stdout.split())
    assert (tmp_path / "30000.private.json").stat().st_size > 5_000_000
    assert long - short < 6_000  # kilobytes: the spools' first megabyte each
