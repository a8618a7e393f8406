"""Trajectories of the market world, from a played experiment to training data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bakeoff.export.exporting import export
from bakeoff.export.rollouts import Filters
from bakeoff.results.editions import edition_results
from bakeoff.results.table import Results
from bakeoff.workloads.market import snapshot
from bakeoff.workloads.market.scenario import scenario
from support.processes import Lab
from workloads.market.scripted_model import calls, scripted

pytestmark = pytest.mark.slow
EXPERIMENT = """
name = "traded"
workload = "market"
seeds = [1, 2]
rollouts = 2
[params]
save_trajectories = true
[[arms]]
name = "llm"
params = {{ agent = "llm:scripted", options = {{ base_url = "{url}", api_key = "x" }}, duration_minutes = 3, perpetuals = 1 }}
[[arms]]
name = "random"
params = {{ agent = "random", benchmark = "snapshot.json" }}
"""


def trader(body: dict[str, Any]) -> Any:
    """Opens a position in each turn, and then ends it."""
    if body["messages"][-1]["role"] == "tool":
        return calls(("endTurn", {}))
    seen = json.loads(body["messages"][-1]["content"])
    ticker = seen["perpetualMarkets"][0]["ticker"]
    return calls(("openPosition", {"ticker": ticker, "side": "LONG", "size": 100, "leverage": 1}))


@pytest.fixture(scope="module")
def traded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    with scripted(trader) as model, Lab(tmp_path_factory.mktemp("traded")) as lab:
        snapshot.generate(scenario(duration_minutes=3, perpetuals=1), 7, lab.place / "snapshot.json")
        lab.experiment(EXPERIMENT.format(url=model.url), "traded")
        lab.run("traded", jobs=1)
        assert lab.statuses("traded") == {"succeeded": 8}
        with closing(lab.edition("traded")) as edition:
            yield edition_results(edition)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rollouts_of_one_world_by_one_policy_are_a_group(traded: Results, tmp_path: Path) -> None:
    summary = export(traded, "trl-grpo", Filters(), output=tmp_path / "grpo.jsonl")
    assert (summary.groups, summary.rollouts) == (2, 4)
    assert summary.equal_groups == 2  # the script draws nothing, so rollouts do not differ
    assert {row["advantage"] for row in rows(tmp_path / "grpo.jsonl")} == {0.0}


def test_on_a_scenario_file_rollouts_are_one_group_whatever_the_seed_of_the_agent(
    traded: Results, tmp_path: Path
) -> None:
    summary = export(traded, "art", Filters(arms=["random"]), render=True, output=tmp_path / "art.jsonl")
    assert (summary.groups, summary.rollouts, summary.equal_groups) == (1, 4, 0)
    (group,) = rows(tmp_path / "art.jsonl")
    assert "seed" not in group["metadata"]
    assert [one["metadata"]["seed"] for one in group["trajectories"]] == [1, 1, 2, 2]


def test_a_language_models_turns_keep_their_tools_and_calls(traded: Results, tmp_path: Path) -> None:
    export(traded, "trl-sft", Filters(arms=["llm"]), output=tmp_path / "sft.jsonl")
    found = rows(tmp_path / "sft.jsonl")
    assert len(found) == 4 * 3 * 2  # rollouts, ticks, replies
    assert {"openPosition", "endTurn"} <= {tool["function"]["name"] for tool in found[0]["tools"]}
    names = [row["completion"][0]["tool_calls"][0]["function"]["name"] for row in found]
    assert names == ["openPosition", "endTurn"] * 12
    assert found[0]["completion"][0]["tool_calls"][0]["function"]["arguments"]["size"] == 100


def test_what_was_hidden_stays_hidden(traded: Results, tmp_path: Path) -> None:
    export(traded, "parquet", Filters(), output=tmp_path / "steps.parquet")
    assert "truth" not in pl.read_parquet_schema(tmp_path / "steps.parquet")
    export(traded, "jsonl", Filters(), output=tmp_path / "steps.jsonl")
    assert b"theta" not in (tmp_path / "steps.jsonl").read_bytes()
    export(traded, "jsonl", Filters(), with_truth=True, output=tmp_path / "truth.jsonl")
    assert b"theta" in (tmp_path / "truth.jsonl").read_bytes()


def test_the_rewards_of_an_episode_add_up_to_what_it_earned(traded: Results, tmp_path: Path) -> None:
    export(traded, "parquet", Filters(), output=tmp_path / "steps.parquet")
    steps = pl.read_parquet(tmp_path / "steps.parquet")
    earned = steps.group_by("run_id").agg(pl.col("reward").sum(), pl.col("return").first())
    assert (earned["reward"] - earned["return"]).abs().max() < 1e-9
    pnl = {run.run_id: run.metrics["total_pnl"] for run in traded.rows}
    assert all(pnl[run_id] == pytest.approx(reward, abs=1e-6) for run_id, reward, _ in earned.rows())
