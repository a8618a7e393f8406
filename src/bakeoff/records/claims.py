"""Claims on attempts that were handed to other machines, and the nodes that took them.

A claim is durable before its attempt is handed out, and `Edition.finish` deletes it in the transaction that records the
attempt. So whatever dies at whatever moment, an attempt has a claim or a record, and never two records.

    claims = Claims(edition, "slurm", session=3)
    claims.add([Claim(token, position, attempt=1, session=3, pilot="3-0", executor="slurm")])
    for claim in claims.all(): ...      # those that a killed scheduler left, too

Only the lease's holder writes here, as everywhere in an edition.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from bakeoff.records.edition import Edition
from bakeoff.records.run import Attempt


class Claim(msgspec.Struct, frozen=True):
    """One attempt that was handed to a pilot and has not come back."""

    token: str
    """(session, run, attempt, random), as one text; opaque to everybody but its maker."""
    position: int
    attempt: int
    session: int
    """The session that handed it out."""
    pilot: str
    executor: str


class NodeRecord(msgspec.Struct, frozen=True):
    """A pilot, or the node of a local session: where attempts ran."""

    node: str
    session: int
    executor: str
    host: str
    kind: str
    """Processor, cores, memory and devices in one line."""
    code: str
    seen_at: float
    lost: int = 0
    """How often it was lost with attempts on it."""
    late: int = 0
    """Reports that came after their claim was over, and were dropped."""


class Claims:
    """The claims of an edition, as one session's executor sees them."""

    def __init__(self, edition: Edition, executor: str, session: int) -> None:
        self._edition = edition
        self.executor = executor
        self.session = session

    def add(self, claims: Sequence[Claim]) -> None:
        """Record claims in one transaction. When this returns they are durable."""
        if not claims:
            return
        number = self._edition.edition_id
        with self._edition.database.transaction() as transaction:
            if transaction.uncertain and any(claim.token == claims[0].token for claim in self.all()):
                return  # the connection was lost after this very transaction had been committed
            transaction.many(
                "INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(number, c.token, c.position, c.attempt, c.session, c.pilot, c.executor) for c in claims],
            )

    def drop(self, over: Sequence[Claim | Attempt]) -> None:
        """Claims of attempts that came back without having begun, or are given up."""
        if over:
            with self._edition.database.transaction() as transaction:
                transaction.many(
                    "DELETE FROM claims WHERE edition_id = ? AND position = ? AND token = ?",
                    [(self._edition.edition_id, each.position, each.token) for each in over],
                )

    def all(self) -> list[Claim]:
        """Every claim of the edition, whoever made it, in plan order."""
        return list_claims(self._edition)

    def see(self, nodes: Sequence[NodeRecord]) -> None:
        """Record nodes, or what is new about them."""
        number = self._edition.edition_id
        with self._edition.database.transaction() as transaction:
            for n in nodes:
                transaction.run(
                    "INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (edition_id, node) DO UPDATE SET "
                    "seen_at = excluded.seen_at, lost = excluded.lost, late = excluded.late",
                    (number, n.node, n.session, n.executor, n.host, n.kind, n.code, n.seen_at, n.lost, n.late),
                )


def list_claims(edition: Edition) -> list[Claim]:
    """Every claim of the edition in plan order; none in a database that is older than claims."""
    if edition.database.version < 5:
        return []
    rows = edition.database.rows(
        "SELECT token, position, attempt, session, pilot, executor FROM claims WHERE edition_id = ? ORDER BY position",
        (edition.edition_id,),
    )
    return [Claim(*row) for row in rows]


def list_nodes(edition: Edition) -> list[NodeRecord]:
    """Where attempts ran, oldest first."""
    if edition.database.version < 5:
        return []
    rows = edition.database.rows(
        "SELECT node, session, executor, host, kind, code, seen_at, lost, late FROM nodes WHERE edition_id = ? "
        "ORDER BY session, node",
        (edition.edition_id,),
    )
    return [NodeRecord(*row) for row in rows]


def arms_by_kind(edition: Edition) -> dict[str, dict[str, int]]:
    """For each kind of node, how many counted runs of each arm ended on it."""
    if edition.database.version < 5:
        return {}
    rows = edition.database.rows(
        "SELECT n.kind, c.arm, COUNT(*) FROM runs r "
        "JOIN attempts a ON a.edition_id = r.edition_id AND a.position = r.position AND a.attempt = r.attempts "
        "JOIN nodes n ON n.edition_id = a.edition_id AND n.node = a.node "
        "JOIN cells c ON c.edition_id = r.edition_id AND c.cell = r.cell "
        "WHERE r.edition_id = ? GROUP BY n.kind, c.arm ORDER BY n.kind, MIN(c.cell)",
        (edition.edition_id,),
    )
    kinds: dict[str, dict[str, int]] = {}
    for kind, arm, number in rows:
        kinds.setdefault(kind, {})[arm] = int(number)
    return kinds


def local_node(session: int, host: str, kind: str, code: str) -> NodeRecord:
    """The record of the machine that runs a local session's attempts."""
    return NodeRecord(f"local-{session}", session, "local", host, kind, code, time.time())
