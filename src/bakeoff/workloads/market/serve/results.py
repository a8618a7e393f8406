"""What a served game leaves behind: one directory an agent, and a comparison of all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bakeoff.records.rundir import TRAJECTORY as FILE
from bakeoff.records.series import TrajectoryWriter
from bakeoff.workloads.market.journal import steps
from bakeoff.workloads.market.serve.table import Place, Table


def summary(place: Place) -> dict[str, Any]:
    """One agent's result in numbers."""
    session, kept = place.session, place.attendance
    world, account = session.world, session.world.account(session.seat)
    return {
        "agent": place.name,
        "agentId": session.agent_id,
        "ticksProcessed": world.tick,
        "ticks": world.ticks,
        "done": world.done,
        "equity": account.equity,
        "totalPnl": account.equity - account.initial,
        "balance": account.cash,
        "fees": account.fees,
        "funding": account.funding,
        "liquidations": account.liquidations,
        "trades": account.trades,
        "reputation": account.reputation,
        "actions": session.actions_taken,
        "lateTurns": kept.late,
        "absentTurns": kept.absent,
        "avgResponseTime": kept.think_s / max(1, world.tick),
        "maxResponseTime": kept.longest_think_s,
        "errors": kept.errors,
    }


def write(table: Table, directory: Path) -> None:
    """`comparison.json`, and for each agent `result.json` and, where turns were recorded, its trajectory."""
    found = [summary(place) for place in table.places]
    for place, told in zip(table.places, found, strict=True):
        folder = directory / place.name
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "result.json", told)
        if place.attendance.turns:
            trajectory = TrajectoryWriter(folder / FILE)
            for step in steps(place.attendance.turns, agent=place.name):
                trajectory.add(step)
            trajectory.close()
    ranked = sorted(found, key=lambda told: (-told["totalPnl"], told["agent"]))
    _write_json(directory / "comparison.json", {"agents": ranked, "best": ranked[0]["agent"]})


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
