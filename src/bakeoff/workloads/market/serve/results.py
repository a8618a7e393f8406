"""What a table leaves behind: a row for each agent that has called, and the trajectories of recorded turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bakeoff.records.rundir import TRAJECTORY as FILE
from bakeoff.records.series import TrajectoryWriter
from bakeoff.workloads.market.journal import Turn, step
from bakeoff.workloads.market.serve.game import Place, Seats


def summary(place: Place) -> dict[str, Any]:
    """Return one agent's result, as `result.json` has it."""
    session, attendance = place.session, place.attendance
    world, account = session.world, session.world.account(session.seat)
    return {
        "agent": place.name,
        "agentId": session.agent_id,
        "ticksProcessed": world.tick,
        "ticks": world.ticks,
        "done": world.done,
        "equity": account.equity,
        "totalPnl": round(account.equity - account.initial, 6),
        "balance": account.cash,
        "fees": account.fees,
        "funding": account.funding,
        "liquidations": account.liquidations,
        "trades": account.trades,
        "reputation": account.reputation,
        "actions": session.actions_taken,
        "lateTurns": attendance.late,
        "absentTurns": attendance.absent,
        "avgResponseTime": attendance.think_s / max(1, world.tick),
        "maxResponseTime": attendance.longest_think_s,
        "errors": attendance.errors,
    }


def summaries(table: Seats) -> dict[str, Any]:
    """Return a row for each agent that has called, and the names of the seats that nobody has called from."""
    rows = [summary(place) for place in table.places if place.attendance.called]
    return {"agents": rows, "neverCalled": [place.name for place in table.places if not place.attendance.called]}


class Trajectory:
    """A seat's trajectory, written turn by turn: 64 seats of 2,000 turns would take gigabytes of memory."""

    def __init__(self, path: Path, agent: str) -> None:
        self._path = path
        self._agent = agent
        self._began = 0.0
        self._writer: TrajectoryWriter | None = None

    def add(self, turn: Turn, done: bool = False) -> None:
        """Write one turn. The first one creates the file."""
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = TrajectoryWriter(self._path)
            self._began = turn.timestamp
        self._writer.add(step(turn, agent=self._agent, began=self._began, done=done))

    def close(self, turns: Sequence[Turn]) -> None:
        """Write the turns that are left, and close the file if there is one."""
        for number, turn in enumerate(turns, 1):
            self.add(turn, done=number == len(turns))
        if self._writer is not None:
            self._writer.close()


class Results:
    """The results of a table in a directory. Created before the first call: trajectories grow while the games go on."""

    def __init__(self, table: Seats, directory: Path, secret: str = "private") -> None:
        """`secret` is how the secret that drew the world is named; see `scenario.secret_label`."""
        self._table = table
        self._directory = directory
        self._secret = secret
        self._trajectories = {
            place.name: Trajectory(directory / place.name / FILE, place.name) for place in table.places
        }
        for place in table.places:
            place.attendance.on_turn = self._trajectories[place.name].add

    def write(self) -> None:
        """Write `comparison.json`, and for each agent `result.json` and, if turns were recorded, its trajectory."""
        content = summaries(self._table)
        self._directory.mkdir(parents=True, exist_ok=True)
        for row in content["agents"]:
            folder = self._directory / row["agent"]
            folder.mkdir(exist_ok=True)
            (folder / "result.json").write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")
        for place in self._table.places:
            self._trajectories[place.name].close(place.attendance.turns)
        ranked = sorted(content["agents"], key=lambda row: (-row["totalPnl"], row["agent"]))
        comparison = {
            "secret": self._secret,
            "agents": ranked,
            "best": ranked[0]["agent"] if ranked else None,
            "neverCalled": content["neverCalled"],
        }
        (self._directory / "comparison.json").write_text(json.dumps(comparison, indent=2) + "\n", encoding="utf-8")
