"""Claims on attempts that were handed to other machines, and the nodes that took them.

A claim is durable before its attempt is handed out, and `Edition.finish` deletes it in the transaction that records the
attempt; `drop` deletes one that is returned. Its states in between are in engine/pilots/held.py. So whatever dies at whatever moment, an attempt has a claim or a record, and never two records.

    claims = Claims(edition, "slurm", session=3)
    claims.add([Claim(token, position, attempt=1, session=3, pilot="3-0", executor="slurm")])
    for claim in claims.all(): ...      # those that a killed scheduler left, too

Only the lease's holder writes here, as everywhere in an edition.
"""

from __future__ import annotations

import errno
import hashlib
import platform
import re
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NewType, TypeGuard

import msgspec

from bakeoff.errors import Damaged, StorageError, UsageError
from bakeoff.records.looks import SET_ASIDE, Look, record_look
from bakeoff.records.packages import installed_packages
from bakeoff.records.run import OPEN, Attempt, rescored_sessions
from bakeoff.records.rundir import CHECKPOINT
from bakeoff.trees import remove_tree

if TYPE_CHECKING:
    from bakeoff.records.edition import Edition
    from bakeoff.records.recorded import Recorded

_TOKEN = re.compile(r"(\d{1,18})\.(\d{1,18})\.(\d{1,18})\.[0-9a-f]{16}", re.ASCII)
_PILOT = re.compile(r"\d{1,18}-\d{1,18}", re.ASCII)
_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


Token = NewType("Token", str)
"""The name of a claim, and of a directory on its way home."""
PilotName = NewType("PilotName", str)
"""The name of a pilot, and of its directory in the spool."""


def new_token(session: int, position: int, attempt: int) -> Token:
    """Name a new claim. Directories on their way home carry this name, so nothing else is accepted as one."""
    return Token(f"{session}.{position}.{attempt}.{secrets.token_hex(8)}")


def is_token(text: object) -> TypeGuard[Token]:
    """Whether `new_token` could have made it. An edition, a spool or a node may name anything."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def token_from(text: object) -> Token:
    """A token that another machine names. Raises OSError for what is none, as for anything that cannot be delivered."""
    if not is_token(text):
        raise OSError(errno.EINVAL, f"{text!r} is not the token of a claim")
    return text


def pilot_name(session: int, number: int) -> PilotName:
    """Name a session's pilot."""
    return PilotName(f"{session}-{number}")


def is_pilot_name(text: object) -> TypeGuard[PilotName]:
    """Whether `pilot_name` could have made it."""
    return isinstance(text, str) and _PILOT.fullmatch(text) is not None


class Claim(msgspec.Struct, frozen=True):
    """One attempt that was handed to a pilot and has not come back."""

    token: Token
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
    packages: dict[str, str] = {}
    """Versions that it had, by name (`records.packages`); empty where they are not known."""
    refused: str = ""
    """Why it was given nothing, or nothing more."""

    @property
    def environment(self) -> str | None:
        """Digest of its packages."""
        return hashlib.sha256(_encode(self.packages)).hexdigest()[:16] if self.packages else None


class Claims:
    """The claims of an edition, as one session's executor sees them."""

    def __init__(self, edition: Edition, executor: str, session: int) -> None:
        self.edition = edition
        self.executor = executor
        self.session = session

    def add(self, claims: Sequence[Claim]) -> None:
        """Record claims in one transaction. When this returns they are durable."""
        if not claims:
            return
        number = self.edition.edition_id
        with self.edition.database.transaction() as transaction:
            if transaction.uncertain and any(claim.token == claims[0].token for claim in self.all()):
                return  # the connection was lost after this very transaction had been committed
            transaction.many(
                "INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(number, c.token, c.position, c.attempt, c.session, c.pilot, c.executor) for c in claims],
            )

    def drop(self, over: Sequence[Claim | Attempt]) -> None:
        """Delete claims that were returned (their attempts had not begun), or that nobody adopts."""
        if over:
            with self.edition.database.transaction() as transaction:
                transaction.many(
                    "DELETE FROM claims WHERE edition_id = ? AND position = ? AND token = ?",
                    [(self.edition.edition_id, each.position, each.token) for each in over],
                )

    def all(self) -> list[Claim]:
        """Every claim of the edition, whoever made it, in plan order."""
        return list_claims(self.edition)

    def see(self, nodes: Sequence[NodeRecord]) -> None:
        """Record nodes, or what is new about them."""
        number = self.edition.edition_id
        with self.edition.database.transaction() as transaction:
            for digest, node in {node.environment: node for node in nodes if node.packages}.items():
                transaction.run(
                    "INSERT INTO environments (edition_id, digest, packages) VALUES (?, ?, ?) "
                    "ON CONFLICT (edition_id, digest) DO NOTHING",
                    (number, digest, _encode(node.packages).decode()),
                )
            for n in nodes:
                transaction.run(
                    "INSERT INTO nodes (edition_id, node, session, executor, host, kind, code, seen_at, lost, late, "
                    "environment, refused) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (edition_id, node) DO UPDATE SET "
                    "seen_at = excluded.seen_at, lost = excluded.lost, late = excluded.late, refused = excluded.refused",
                    (
                        number, n.node, n.session, n.executor, n.host, n.kind, n.code, n.seen_at, n.lost, n.late,
                        n.environment, n.refused or None,
                    ),
                )  # fmt: skip

    def see_this_machine(self, kind: str) -> None:
        """Record this machine, whose hardware is of this `kind`, as the node of all attempts that name none."""
        code = (self.edition.sessions()[-1]["provenance"].get("git") or {}).get("code") or ""
        node = NodeRecord(
            f"local-{self.session}", self.session, self.executor, platform.node(), kind, code[:16], time.time(),
            packages=installed_packages(),
        )  # fmt: skip
        self.see([node])
        self.edition.node = node.node


def list_claims(edition: Recorded) -> list[Claim]:
    """Every claim of the edition in plan order; none in a database that is older than claims.

    Tokens and pilots become names of files, and an edition may come from anybody: raises Damaged for what we never write.
    """
    if edition.database.version < 5:
        return []
    rows = edition.database.rows(
        "SELECT token, position, attempt, session, pilot, executor FROM claims WHERE edition_id = ? ORDER BY position",
        (edition.edition_id,),
    )
    claims = []
    for token, position, attempt, session, pilot, executor in rows:
        if not is_token(token) or token.split(".")[1:3] != [str(position), str(attempt)]:
            raise Damaged(edition.paths.directory, f"{token!r} cannot be the token of a claim")
        if not is_pilot_name(pilot):
            raise Damaged(edition.paths.directory, f"{pilot!r} cannot be the name of a pilot")
        claims.append(Claim(token, position, attempt, session, pilot, executor))
    return claims


def list_nodes(edition: Recorded) -> list[NodeRecord]:
    """Where attempts ran, oldest first."""
    if edition.database.version < 5:
        return []
    environments: dict[str, dict[str, str]] = {}
    version = edition.database.version
    if version >= 6:
        for digest, text in edition.database.rows(
            "SELECT digest, packages FROM environments WHERE edition_id = ?", (edition.edition_id,)
        ):
            environments[digest] = _decode(text)
    rows = edition.database.rows(
        f"SELECT node, session, executor, host, kind, code, seen_at, lost, late, "
        f"{'environment' if version >= 6 else 'NULL'}, {'refused' if version >= 7 else 'NULL'} "
        "FROM nodes WHERE edition_id = ? ORDER BY session, node",
        (edition.edition_id,),
    )
    return [
        msgspec.structs.replace(NodeRecord(*facts), packages=environments.get(digest, {}), refused=refused or "")
        for *facts, digest, refused in rows
    ]


def set_aside(edition: Edition, host: str) -> int:
    """Discard all results of a host, of every arm and whatever they are, and plan their runs again. Returns how many.

    This is recorded as a look, and the host gets nothing more. It is done once for a host: who could discard results
    as often as he likes would keep the ones that he likes. Raises UsageError.
    """
    nodes = list_nodes(edition)
    hosts = sorted({node.host for node in nodes})
    name = f"{edition.paths.experiment}/{edition.paths.name}"
    if host not in hosts:
        raise UsageError(
            f"--set-aside: {name} has no results of {host!r}; it has results of {', '.join(hosts) or 'none'}"
        )
    if any(node.host == host and node.refused == SET_ASIDE for node in nodes):
        raise UsageError(f"--set-aside: results of {host} in {name} were set aside before; that is possible once")
    rescored = [-1, *rescored_sessions(edition.sessions())]
    here = [node.node for node in nodes if node.host == host]
    positions = [
        (edition.edition_id, position)
        for (position,) in edition.database.rows(
            "SELECT r.position FROM runs r JOIN attempts a ON a.edition_id = r.edition_id AND a.position = r.position "
            "AND a.attempt = (SELECT MAX(b.attempt) FROM attempts b WHERE b.edition_id = r.edition_id "
            f"AND b.position = r.position AND b.session NOT IN ({', '.join(map(str, rescored))})) "
            f"WHERE r.edition_id = ? AND r.status NOT IN ({', '.join(map(repr, OPEN))}) "
            f"AND a.node IN ({', '.join('?' * len(here))})",
            (edition.edition_id, *here),
        )
    ]
    look = Look(time.time(), SET_ASIDE, "means", edition.end_of_plan(), len(positions), host, {})
    if not record_look(edition, look):  # first: who is killed now has looked, and discarded nothing
        raise StorageError(f"--set-aside: it cannot be recorded in {name}")
    run_ids = [edition.run(position).run_id for _, position in positions]
    edition.discard(positions)
    with edition.database.transaction() as transaction:
        transaction.run(
            "UPDATE nodes SET refused = ? WHERE edition_id = ? AND host = ?", (SET_ASIDE, edition.edition_id, host)
        )
    for run_id in run_ids:
        checkpoint = edition.paths.run(run_id) / CHECKPOINT  # the next attempt would go on from it
        if checkpoint.is_dir() and not checkpoint.is_symlink():
            remove_tree(checkpoint)
    return len(positions)


def arms_by_kind(edition: Recorded) -> dict[str, dict[str, int]]:
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
