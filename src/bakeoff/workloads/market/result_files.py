"""Directories that `bakeoff market run --output` wrote, as results: agents that played the same world are its arms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from bakeoff.results.importers.files import read_whole_json
from bakeoff.results.importers.foreign import ForeignRun, Item, Measure, Reading, Source

CAMPAIGN, RESULT = "comparison.json", "result.json"


class MarketResults:
    """The importer (entry-point group `bakeoff.importers`).

    An agent that draws nothing plays a world in one way, so all its runs are the same, and none is left out: another agent is
    compared with what it always does.
    """

    name = "market"

    def claims(self, path: Path) -> list[Path]:
        if not (path / CAMPAIGN).is_file():
            return []
        return sorted(path.glob(f"**/{RESULT}"))

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        from bakeoff.workloads.market.workload import CLOCKED, MarketWorkload

        plays: dict[str, list[str]] = {}
        for path in paths:
            result = read_whole_json(path, "bakeoff market run")
            agent, steady = str(result["agentId"]), result["metrics"].keys() - CLOCKED
            plays.setdefault(agent, []).append(json.dumps({name: result["metrics"][name] for name in sorted(steady)}))
            yield ForeignRun(
                labels={"agent": agent},
                header={"seed": result["seed"], "secret": result["secret"]},
                source=Source(path),
                task=str(result["benchmarkId"]),
                metrics=result["metrics"],
                outcome="scored",
                started_at=result["startTime"],
                ended_at=result["endTime"],
            )
        yield Reading(
            "bakeoff market run",
            metrics={"total_pnl": Measure("maximize")}
            | {name: Measure(way) for name, way in MarketWorkload.directions.items()},
            notes=[
                "these runs share one world: the verdict is about agents' own randomness in it, not about other worlds"
            ],
            remarks=[
                f"{agent} draws nothing: its {len(played)} runs are the same"
                for agent, played in plays.items()
                if len(played) > 1 and len(set(played)) == 1
            ],
        )
