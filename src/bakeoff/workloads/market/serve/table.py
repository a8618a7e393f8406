"""Who may sit where: every agent has a token, and a token opens one seat and no other."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bakeoff.workloads.market.attendance import Attendance
from bakeoff.workloads.market.rpc import refusal
from bakeoff.workloads.market.serve.game import Game
from bakeoff.workloads.market.session import Session


@dataclass(frozen=True, slots=True)
class Place:
    """One agent's seat in one game. `name` is unique at its table."""

    name: str
    game: Game
    attendance: Attendance

    @property
    def session(self) -> Session:
        return self.attendance.session


class Table:
    """All seats of one shared game, or of several separate ones, behind their tokens."""

    def __init__(self, games: Sequence[Game], tokens: Mapping[str, str] | None = None) -> None:
        """`tokens` are by name of the place; those that are missing are drawn."""
        self.games = list(games)
        seats = [(game, seat) for game in games for seat in game.seats]
        self.places = [Place(f"player-{number}", game, seat) for number, (game, seat) in enumerate(seats, 1)]
        given = tokens or {}
        self.tokens = {place.name: given.get(place.name) or secrets.token_urlsafe(24) for place in self.places}
        # Looked up by digest, so that the time it takes tells nothing about the tokens.
        self._by_token = {_digest(self.tokens[place.name]): place for place in self.places}
        if len(self._by_token) != len(self.places):
            raise ValueError("two agents have the same token")

    def place(self, token: str | None, agent_id: str | None = None) -> Place:
        """The place that a token opens. An agent id may be named too, and must then be the right one."""
        if not token:
            raise refusal("not_authenticated", "send your token: Authorization: Bearer TOKEN")
        found = self._by_token.get(_digest(token))
        if found is None:
            raise refusal("authentication_failed", "this token opens no seat")
        if agent_id and agent_id not in (found.name, found.session.agent_id):
            raise refusal("authentication_failed", "this token belongs to another agent than x-agent-id says")
        return found

    def session(self, token: str | None, agent_id: str | None = None) -> Session:
        return self.place(token, agent_id).session

    @property
    def done(self) -> bool:
        return all(game.world.done for game in self.games)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
