"""Which pilot holds which claim, and the state that each claim is in.

A claim is one attempt that was given to one pilot. Its states:

| state | what has happened | what becomes of the attempt |
|---|---|---|
| handed out | the claim is in the database and its order was sent, by this session or by an earlier one | |
| named | a beat of its pilot named it: the order has arrived | |
| reported | its pilot sent a result | recorded with that result |
| returned | its pilot gave it back: the attempt had not begun | planned again, without being counted |
| expired | its pilot was silent for too long, or beats and has not named it for so long | recorded as lost |
| lost | its pilot left before the attempt ended, or the engine says that the pilot never began | recorded as lost |
| cancelled | the session is stopped, and its pilot does not answer | recorded as cancelled |

    handed out ---> named ---> reported | returned | expired | lost | cancelled
         '-------------------------^

A pilot holds a claim in the first two states. The other states are ends, and a claim ends once: whatever is heard of it
later changes nothing. The database (records/claims.py) has the claim from before it is handed out until its attempt is
recorded, or until it is returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from bakeoff.records.claims import Token
from bakeoff.records.run import Attempt


class ClaimState(Enum):
    """The states of a claim, as in the table above."""

    HANDED_OUT = "handed out"
    NAMED = "named"
    REPORTED = "reported"
    RETURNED = "returned"
    EXPIRED = "expired"
    LOST = "lost"
    CANCELLED = "cancelled"


ENDS = frozenset(ClaimState) - {ClaimState.HANDED_OUT, ClaimState.NAMED}
NEXT = {ClaimState.HANDED_OUT: ENDS | {ClaimState.NAMED}, ClaimState.NAMED: ENDS | {ClaimState.NAMED}}
"""The states that may follow a state; none follows an end."""


@dataclass(slots=True)
class HeldClaim:
    """A claim, its attempt, and the pilot that has or had it."""

    token: Token
    attempt: Attempt
    pilot: str
    heard: float
    """`time.monotonic()` of the last beat that named it, or of when it was handed out."""
    state: ClaimState = ClaimState.HANDED_OUT
    directory: bool = False
    """Its report came with a run directory."""


@dataclass(slots=True)
class _Holder:
    """What one pilot holds, by token."""

    most: int = 0
    claims: dict[str, HeldClaim] = field(default_factory=dict)


_NOTHING = _Holder()


class HeldClaims:
    """The one place that knows which pilot holds which claims, and which pilots may take more. Others ask.

    Every change of a claim's state is made here: by `hand_out`, `name` and `end`.
    """

    def __init__(self) -> None:
        self._held: dict[str, HeldClaim] = {}
        self._reported: dict[str, HeldClaim] = {}
        """Those that are reported and not yet recorded."""
        self._holders: defaultdict[str, _Holder] = defaultdict(_Holder)
        self._rooms: dict[str, int] = {}

    # -- what is asked

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldClaim]:
        return iter(self._held.values())

    def of(self, pilot: str) -> list[HeldClaim]:
        """Return the claims that the pilot holds."""
        return list(self._holders.get(pilot, _NOTHING).claims.values())

    def count(self, pilot: str) -> int:
        """Return how many claims the pilot holds."""
        return len(self._holders.get(pilot, _NOTHING).claims)

    def most(self, pilot: str) -> int:
        """Return how many claims the pilot may hold."""
        return self._holders.get(pilot, _NOTHING).most

    def rooms(self) -> Mapping[str, int]:
        """Return how many more claims each pilot may hold, without those that are full: there may be thousands."""
        return self._rooms

    def is_over(self, token: str) -> bool:
        """Whether nothing that comes for this claim counts any more: it has ended, or never was."""
        return token not in self._held and token not in self._reported

    # -- what changes

    def allow(self, pilot: str, most: int) -> None:
        """Set how many claims the pilot may hold."""
        holder = self._holders[pilot]
        if holder.most != most:
            holder.most = most
            self._count_room(pilot, holder)

    def forget(self, pilot: str) -> None:
        """Drop a pilot that is gone and holds nothing."""
        assert not self.count(pilot)
        self._holders.pop(pilot, None)
        self._rooms.pop(pilot, None)

    def hand_out(self, token: Token, attempt: Attempt, pilot: str, now: float) -> None:
        """Let the pilot hold a new claim, or one that an earlier session handed out."""
        holder = self._holders[pilot]
        self._held[token] = holder.claims[token] = HeldClaim(token, attempt, pilot, now)
        self._count_room(pilot, holder)

    def name(self, named: Sequence[tuple[str, float | None]], now: float) -> set[str]:
        """Take in what a beat names: tokens, and when their attempts began. Returns those that are over."""
        over = set()
        for token, began in named:
            claim = self._held.get(token)
            if claim is not None:
                claim.state, claim.heard, claim.attempt.started_at = ClaimState.NAMED, now, began
            elif token not in self._reported:
                over.add(token)
        return over

    def end(self, token: str, state: ClaimState) -> HeldClaim | None:
        """Move a claim to one of its ends, so that its pilot holds it no longer. None when it has ended before."""
        claim = self._held.pop(token, None)
        if claim is None:
            return None
        assert state in NEXT[claim.state]
        claim.state = state
        holder = self._holders[claim.pilot]
        del holder.claims[token]
        self._count_room(claim.pilot, holder)
        if state is ClaimState.REPORTED:
            self._reported[token] = claim
        return claim

    def recorded(self, token: str) -> HeldClaim | None:
        """Drop a reported claim whose result is durable. None for claims with other ends, which are dropped before."""
        return self._reported.pop(token, None)

    def _count_room(self, pilot: str, holder: _Holder) -> None:
        if (room := holder.most - len(holder.claims)) > 0:
            self._rooms[pilot] = room
        else:
            self._rooms.pop(pilot, None)
