"""What runs ran with: code, packages and kinds of nodes, and where these differ between runs that are judged together.

    shares = read_shares(edition, edition.sessions())
    Conditions(find_differences(shares)).sentence
    # "Different packages: numpy 1.26.4 on n1 (24 runs), numpy 2.0.1 on n2 (16 runs)."

Only runs with an outcome count. What is not recorded (imported runs, editions of older versions) differs from nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from bakeoff.records.claims import NodeRecord, list_nodes
from bakeoff.records.packages import EDITABLE, PYTHON, counted_packages
from bakeoff.records.recorded import Recorded
from bakeoff.records.run import rescored_sessions

What = Literal["code", "packages", "nodes"]
MAX_NAMED = 4
"""Packages, versions, hosts and arms that a sentence names."""
_FIRST = (
    PYTHON, "bakeoff", "torch", "jax", "tensorflow", "numpy", "scipy", "transformers", "vllm", "accelerate", "trl", "gymnasium",
    "stable-baselines3", "pandas", "polars", "scikit-learn", "openai", "anthropic", "litellm",
)  # fmt: skip
"""Packages that are named first, since results depend on them most often."""


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """The time and provenance of one session."""

    edition: str
    number: int
    started_at: float
    seen_at: float
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class Nodes:
    """The nodes of an edition. They are read when somebody asks for one: runs of a single node differ in nothing."""

    edition: Recorded

    @cached_property
    def by_name(self) -> Mapping[str, NodeRecord]:
        return {node.node: node for node in list_nodes(self.edition)}


@dataclass(frozen=True)
class Share:
    """Runs of one arm whose outcome comes from one session and one node."""

    arm: str
    session: RecordedSession
    place: str | None
    """Name of the node; None in an edition that is older than nodes."""
    runs: int
    commands: bool
    """The runs are commands, which may use another Python than the node's."""
    nodes: Nodes

    @property
    def node(self) -> NodeRecord | None:
        return None if self.place is None else self.nodes.by_name.get(self.place)

    @property
    def host(self) -> str:
        return self.node.host if self.node is not None else str(self.session.provenance.get("host") or "")

    @cached_property
    def packages(self) -> Mapping[str, str]:
        """Versions by name, of packages that may change what a run measures."""
        packages: Mapping[str, str] = self.node.packages if self.node is not None else {}
        origin = self.session.provenance
        if not packages and (self.node is None or self.node.executor == "local"):
            # An edition of an older version: the process that ran its runs is the one that its session recorded.
            python = {PYTHON: str(origin["python"])} if origin.get("python") else {}
            packages = {**(origin.get("packages") or {}), **python}
        return counted_packages(packages)


@dataclass(frozen=True, slots=True)
class Version:
    """One of several versions of something that runs ran with."""

    name: str
    """`commit 1a2b3c`, `numpy 1.26.4`, or the kind of a node; empty where the only name is where it was."""
    where: tuple[str, ...]
    """Hosts, sessions or editions that had it; empty where they say nothing."""
    runs: Mapping[str, int]
    """How many runs of each arm."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which runs differ besides their arms."""

    what: What
    versions: tuple[Version, ...]
    detail: str = ""
    commands: bool = False

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(arm for version in self.versions for arm in version.runs))

    @property
    def apart(self) -> tuple[str, str] | None:
        """Two arms that have no version in common, so that the arms' difference cannot be told from it."""
        return next((pair for pair in combinations(self.arms, 2) if self.separates(*pair)), None)

    def separates(self, a: str, b: str) -> bool:
        """Whether the versions of both arms are known and all different."""
        had = [{number for number, version in enumerate(self.versions) if arm in version.runs} for arm in (a, b)]
        return all(had) and not had[0] & had[1]

    @property
    def sentence(self) -> str:
        noun = "kinds of nodes" if self.what == "nodes" else self.what
        whose = " of the Python that runs bakeoff" if self.what == "packages" and self.commands else ""
        detail = f" ({self.detail})" if self.detail else ""
        listed = ", ".join(_described(version, self.arms) for version in self.versions[:MAX_NAMED])
        return f"Different {noun}{whose}{detail}: {listed}{_more(len(self.versions) - MAX_NAMED, 'version')}."

    @property
    def cause(self) -> str:
        """What the arms' difference may be due to where they have no version in common."""
        by_host = self.what == "packages" and all(version.where for version in self.versions)
        return "machines" if by_host or self.what == "nodes" else self.what

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        versions = [{"name": each.name, "where": list(each.where), "runs": dict(each.runs)} for each in self.versions]
        return {"what": self.what, "detail": self.detail, "versions": versions, "apart": list(self.apart or ())}


@dataclass(frozen=True, slots=True)
class Conditions:
    """Everything in which runs that are judged together differ besides their arms."""

    differences: Sequence[Difference]

    @property
    def sentence(self) -> str:
        sentences = [difference.sentence for difference in self.differences]
        if (pair := next((each.apart for each in self.differences if each.apart is not None), None)) is not None:
            a, b = pair
            apart = [each for each in self.differences if each.separates(a, b)]
            same = _and(["kind of node" if each.what == "nodes" else each.what for each in apart])
            causes = _and(list(dict.fromkeys(each.cause for each in apart)))
            sentences.append(f"{a} and {b} never had the same {same}, so their difference may be that of the {causes}.")
        return " ".join(sentences)

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"differences": [difference.facts() for difference in self.differences]}


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _described(version: Version, arms: Sequence[str]) -> str:
    """`numpy 1.26.4 on n1 (24 runs)`; runs by arm where the arms' numbers differ."""
    where = ", ".join(version.where[:MAX_NAMED]) + _more(len(version.where) - MAX_NAMED, "")
    named = f"{version.name} on {where}" if version.name and where else version.name or where
    counts = [version.runs.get(arm, 0) for arm in arms]
    total = sum(counts)
    if len(arms) == 1 or (min(counts) and max(counts) - min(counts) <= 1):
        return f"{named} ({total} run{'s' if total > 1 else ''})"
    by_arm = ", ".join(f"{arm} {count}" for arm, count in list(version.runs.items())[:MAX_NAMED])
    return f"{named} (runs: {by_arm}{_more(len(version.runs) - MAX_NAMED, 'arm')})"


def _more(number: int, noun: str) -> str:
    return f" and {number} more{f' {noun}' if noun else ''}{'s' if noun and number > 1 else ''}" if number > 0 else ""


# -- reading


def read_shares(edition: Recorded, rows: Sequence[dict[str, Any]]) -> tuple[Share, ...]:
    """What every run with an outcome ran with, in plan order of the arms. A score that was computed again is no run.

    `rows` are `edition.sessions()`.
    """
    facts = edition.facts()
    name = f"{facts['experiment']}/{facts['edition']}"
    rescored = rescored_sessions(rows)
    sessions = {
        row["session"]: RecordedSession(name, row["session"], row["started_at"], row["seen_at"], row["provenance"])
        for row in rows
    }
    nodes = Nodes(edition)
    counted = edition.database.rows(
        f"SELECT c.arm, a.session, {'a.node' if edition.database.version > 4 else 'NULL'} AS place, COUNT(*) FROM runs r "
        "JOIN attempts a ON a.edition_id = r.edition_id AND a.position = r.position AND a.attempt = "
        "(SELECT MAX(b.attempt) FROM attempts b WHERE b.edition_id = r.edition_id AND b.position = r.position "
        f"AND b.session NOT IN ({', '.join(str(int(number)) for number in [-1, *rescored])})) "
        "JOIN cells c ON c.edition_id = r.edition_id AND c.cell = r.cell "
        "WHERE r.edition_id = ? AND r.status IN ('succeeded', 'failed', 'timeout') "
        "GROUP BY c.arm, a.session, place ORDER BY MIN(c.cell), a.session, place",
        (edition.edition_id,),
    )
    return tuple(
        Share(arm, sessions[session], place, int(number), facts["workload"] == "command", nodes)
        for arm, session, place, number in counted
        if session in sessions
    )


# -- comparing


def find_differences(shares: Sequence[Share]) -> list[Difference]:
    """In what runs differ besides their arms: code and packages wherever they do, nodes where no two arms can be compared
    on nodes of one kind."""
    if len({(id(share.session), share.place) for share in shares}) < 2:
        return []
    found = [_code(shares), _packages(shares)]
    nodes = _nodes(shares)
    if nodes is not None and nodes.apart is not None:
        found.append(nodes)
    return [difference for difference in found if difference is not None]


def _code(shares: Sequence[Share]) -> Difference | None:
    """Sessions in order of time; each belongs to the first one before it that had the same code."""
    known = {id(share.session): share.session for share in shares}.values()
    sessions = sorted(
        (each for each in known if each.provenance.get("git") or each.provenance.get("files")),
        key=lambda each: each.started_at,
    )
    running = [(each.started_at, each.seen_at) for each in sessions]
    groups: list[list[RecordedSession]] = []
    detail = ""
    for session in sessions:
        for group in groups:
            change = _code_change(group[0].provenance, session.provenance, running)
            if change is None:
                group.append(session)
                break
            detail = detail or change
        else:
            groups.append([session])
    if len(groups) < 2:
        return None
    commits = [str((group[0].provenance.get("git") or {}).get("commit") or "")[:10] for group in groups]
    named = all(commits) and len(set(commits)) == len(commits)
    versions = []
    for group, commit in zip(groups, commits, strict=True):
        ids = {id(session) for session in group}
        part = [share for share in shares if id(share.session) in ids]
        where = () if named else _places(group, sessions)
        versions.append(Version(f"commit {commit}" if named else "", where, _by_arm(part)))
    return Difference("code", tuple(versions), "" if named else detail)


def _code_change(a: Mapping[str, Any], b: Mapping[str, Any], running: Sequence[tuple[float, float]]) -> str | None:
    """`provenance.code_change`, also between two experiments.

    The digest of each leaves out its own experiment file, so digests of two experiments differ in any case. The same
    commit with the same uncommitted changes, but for these files, is the same code; and a script that only one of them
    uses belongs to its arms.
    """
    from bakeoff.records.provenance import code_change  # not for runs of one session

    files = [str(each.get("experiment") or "") for each in (a, b)]
    if files[0] == files[1]:
        return code_change(a, b, running)
    own = {Path(file).name for file in files if file}
    git_a, git_b = a.get("git"), b.get("git")
    if git_a and git_b and git_a.get("commit") == git_b.get("commit") and _patches(git_a, own) == _patches(git_b, own):
        git_b = git_a
    known_a, known_b = (((each.get("files") or {}).get("files") or {}) for each in (a, b))
    a, b = (
        {
            **each,
            "git": git,
            "files": {"files": {name: each["files"]["files"][name] for name in known_a if name in known_b}},
        }
        for each, git in ((a, git_a), (b, git_b))
    )
    return code_change(a, b, running)


def _patches(git: Mapping[str, Any], without: Iterable[str]) -> list[str]:
    """Uncommitted changes, file by file."""
    patches = re.split(r"^(?=diff --git )", str(git.get("diff") or ""), flags=re.MULTILINE)
    names = tuple(f"/{name}" for name in without)
    return [patch for patch in patches if patch and not patch.partition("\n")[0].endswith(names)]


def _packages(shares: Sequence[Share]) -> Difference | None:
    known = [share for share in shares if share.packages]
    differing = _differing(known)
    if not differing:
        return None
    groups: dict[tuple[str | None, ...], list[Share]] = {}
    for share in known:
        groups.setdefault(tuple(share.packages.get(name) for name in differing), []).append(share)
    by_host = len({share.host for share in known}) > 1
    versions = []
    for key, part in groups.items():
        pairs = list(zip(differing, key, strict=True))[:MAX_NAMED]
        name = ", ".join(f"{package} {version}" if version else f"no {package}" for package, version in pairs)
        where = tuple(sorted({share.host for share in part})) if by_host else ()
        versions.append(Version(name, where, _by_arm(part)))
    more = len(differing) - MAX_NAMED
    detail = f"{MAX_NAMED} of {len(differing)} that differ" if more > 0 else ""
    return Difference("packages", tuple(versions), detail, any(share.commands for share in known))


def _differing(shares: Sequence[Share]) -> list[str]:
    """Names of packages of which there are several versions, or that some hosts have and others do not.

    A package that was installed on a host, or removed from it, between two sessions is no other version of anything.
    """
    # Pilots of one kind of node share their packages: there are few different ones.
    hosts: dict[tuple[tuple[str, str], ...], set[str]] = {}
    for share in shares:
        hosts.setdefault(tuple(sorted(share.packages.items())), set()).add(share.host)
    environments = [(dict(packages), places) for packages, places in hosts.items()]
    names = {name for packages, _ in environments for name in packages}
    differing = []
    for name in names:
        having = [places for packages, places in environments if name in packages]
        lacking = [places for packages, places in environments if name not in packages]
        several = len({packages[name] for packages, _ in environments if name in packages} - {EDITABLE}) > 1
        if several or (lacking and not set().union(*having) & set().union(*lacking)):
            differing.append((not several, _FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return [name for _, _, name in sorted(differing)]


def _nodes(shares: Sequence[Share]) -> Difference | None:
    kinds: dict[str, list[Share]] = {}
    for share in shares:
        if share.node is not None and share.node.kind:
            kinds.setdefault(share.node.kind, []).append(share)
    versions = [
        Version(kind, tuple(sorted({share.host for share in part})), _by_arm(part)) for kind, part in kinds.items()
    ]
    return Difference("nodes", tuple(versions)) if len(versions) > 1 else None


def _places(group: Sequence[RecordedSession], sessions: Sequence[RecordedSession]) -> tuple[str, ...]:
    """Names of sessions in one edition, else of editions."""
    if len({session.edition for session in sessions}) == 1:
        return tuple(f"session {session.number}" for session in group)
    several = len({session.edition for session in group}) == len(group)
    return tuple(each.edition if several else f"{each.edition} session {each.number}" for each in group)


def _by_arm(shares: Iterable[Share]) -> dict[str, int]:
    runs: dict[str, int] = {}
    for share in shares:
        runs[share.arm] = runs.get(share.arm, 0) + share.runs
    return runs
