"""A scenario as two files: a public one that everyone may see, and a private one with the truth.

The public file names its world without revealing it: no seed, no key. The private file beside it holds both, and
everything that will happen. The public file's commitment is the SHA-256 of the private one, so nobody can change the
truth afterwards; the key in the private file keeps anyone from finding the truth by hashing guesses. The same
scenario, seed and secret give the same bytes. A truth of any length is written with the same memory.

    written = generate(Scenario(), seed=7, output=Path("benchmarks"))
    world = load(written.public).world()
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import msgspec

from bakeoff.errors import UsageError
from bakeoff.records.layout import atomic_write
from bakeoff.spec.identity import canonical_json
from bakeoff.workloads.market import scenario as scenarios
from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.reader import EPOCH, digits
from bakeoff.workloads.market.world.rules import ticker_of
from bakeoff.workloads.market.world.truth import chronicle
from bakeoff.workloads.market.world.views import plains
from bakeoff.workloads.market.world.world import World

VERSION = "1.0.0"
_OPENING = b'{"groundTruth":'
_TAIL = 4096
_PRIVATE_TAIL = rb',"key":"([0-9a-f]{32})",(?:"secret":"([^"\\]*)",)?"seed":([0-9]+),"version":"([^"]*)"\}\n?\Z'
_CONFIG = {
    "durationMinutes": "duration_minutes",
    "tickInterval": "tick_interval",
    "numPredictionMarkets": "markets",
    "numPerpetualMarkets": "perpetuals",
    "numAgents": "agents",
    "regime": "regime",
    "tier": "tier",
    "tape": "tape",
}
"""Names in the public file's `config` and in `Scenario`."""


@dataclass(frozen=True, slots=True)
class Written:
    """The two files of a snapshot. `fresh` is False when they existed already with the same content."""

    id: str
    public: Path
    private: Path
    scenario: Scenario
    fresh: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that was read and verified."""

    path: Path
    id: str
    scenario: Scenario
    key: bytes
    seed: int
    public: dict[str, Any]
    secret: str
    """How results name the secret that drew it: its `scenario.secret_label`, or `private` if the file has only the key."""

    def world(self, seats: int = 1) -> World:
        """The world at tick 0."""
        return World.from_key(self.scenario, self.key, seats)


# -- writing


def generate(
    scenario: Scenario,
    seed: int,
    output: Path | None = None,
    *,
    secret: str | None = None,
    keep: bool = False,
    force: bool = False,
) -> Written:
    """Write both files. `output` is the public file or a directory for it; the default is `benchmarks/`.

    With `keep` the private file holds the secret too, for one that was drawn and is written nowhere else.

    Raises UsageError when other content is there already, unless `force` is set.
    """
    key = scenarios.world_key(scenario, seed, secret)
    target = Path("benchmarks") if output is None else output
    named = target.suffix == ".json" and not target.is_dir()
    directory = target.parent if named else target
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "" if named else "; the name of a file ends in .json"
        raise UsageError(f"{directory}: cannot create this directory: {error.strerror}{hint}") from error
    # The public file needs the digest of the private one, so that is written first, under a temporary name.
    spool = tempfile.NamedTemporaryFile(dir=directory, prefix=".benchmark-", delete=False)  # noqa: SIM115
    try:
        with spool:
            kept = {"secret": secret} if keep else {}
            commitment = _write_private(spool, scenario, {"key": key.hex(), "seed": seed, "version": VERSION, **kept})
        world = World.from_key(scenario, key)
        content = {
            "version": VERSION,
            "createdAt": EPOCH,
            "duration": scenario.ticks * scenario.tick_interval,
            "tickInterval": scenario.tick_interval,
            "ticks": scenario.ticks,
            "config": {theirs: getattr(scenario, ours) for theirs, ours in _CONFIG.items()},
            "initialState": game_state(world),
            "rules": world.public_model(),
            "commitment": commitment,
        }
        identity = _content_id(content)
        path = target if named else directory / f"benchmark-{identity}.json"
        text = canonical_json({"id": identity, **content}).encode() + b"\n"
        private = private_path(path)
        if path.exists() and path.read_bytes() == text and private.exists() and _digest(private) == commitment:
            return Written(identity, path, private, scenario, fresh=False)
        if (path.exists() or private.exists()) and not force:
            raise UsageError(f"{path}: other content is there; give another --output, or --force to replace it")
        os.replace(spool.name, private)
    finally:
        with suppress(FileNotFoundError):  # it has become the private file
            os.unlink(spool.name)
    atomic_write(path, text)
    return Written(identity, path, private, scenario, fresh=True)


def private_path(public: Path) -> Path:
    """The private file that belongs to a public one: `x.json` has `x.private.json`."""
    return public.with_name(public.name.removesuffix(".json") + ".private.json")


def game_state(world: World) -> dict[str, Any]:
    """The state of a game as everyone sees it, ready for JSON."""
    return {
        "tick": world.tick,
        "timestamp": world.time,
        "predictionMarkets": plains(world.markets()),
        "perpetualMarkets": plains(world.perpetuals()),
        "agents": plains(world.background()),
        "posts": plains(world.posts()),
        "groupChats": plains(world.chats(0)),
    }


def _content_id(content: dict[str, Any]) -> str:
    """The id of a public file: a digest of everything else in it."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_private(out: IO[bytes], scenario: Scenario, last: dict[str, Any]) -> str:
    """Stream the private file. Returns the commitment. `last` (key, seed) ends it, where `_read_private` finds it."""
    tail, key = canonical_json(last), bytes.fromhex(last["key"])
    digest = hashlib.sha256()
    with ExitStack() as stack:
        for piece in chain([_OPENING], _ground_truth(scenario, key, stack), [b",", tail[1:].encode(), b"\n"]):
            digest.update(piece)
            out.write(piece)
    return digest.hexdigest()


def _ground_truth(scenario: Scenario, key: bytes, stack: ExitStack) -> Iterator[bytes]:
    """The truth as canonical JSON, in pieces. Its lists grow in spools on disk while the world is played once."""
    tickers = [ticker_of(a) for a in range(scenario.assets)]
    outcomes, questions, stories = (_Spool(stack) for _ in range(3))
    paths = {ticker: _Spool(stack) for ticker in tickers}
    for chapter in chronicle(scenario, key):
        for tick, prices in enumerate(chapter.prices.tolist(), chapter.first):
            time = EPOCH + tick * scenario.tick_interval
            for ticker, price in zip(tickers, prices, strict=True):
                paths[ticker].add(f'{{"price":{digits(price)!r},"tick":{tick},"timestamp":{time}}}')
        for question in chapter.questions:
            outcomes.add(f"{canonical_json(question.id)}:{canonical_json(question.outcome)}")
            questions.add(canonical_json(asdict(question)))
        for story in chapter.stories:
            stories.add(canonical_json(asdict(story)))
    # By hand, but as `canonical_json` would write it: keys in alphabetical order, no spaces.
    yield b'{"marketOutcomes":{'
    yield from outcomes.pieces()
    yield b'},"priceHistory":{'
    for number, ticker in enumerate(sorted(tickers)):
        yield f'{"," if number else ""}"{ticker}":['.encode()
        yield from paths[ticker].pieces()
        yield b"]"
    yield b'},"questions":['
    yield from questions.pieces()
    reliability = World.from_key(scenario, key).reliability()
    yield f'],"reliabilities":{canonical_json(reliability)},"stories":['.encode()
    yield from stories.pieces()
    yield b"]}"


class _Spool:
    """The inside of a JSON list that may not fit into memory."""

    def __init__(self, stack: ExitStack) -> None:
        self._file = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=1 << 20))  # noqa: SIM115
        self._empty = True

    def add(self, text: str) -> None:
        """Append one element, already in JSON."""
        self._file.write(text.encode() if self._empty else b"," + text.encode())
        self._empty = False

    def pieces(self) -> Iterator[bytes]:
        """Everything that was added, in pieces of up to a megabyte."""
        self._file.seek(0)
        while piece := self._file.read(1 << 20):
            yield piece


# -- reading


def load(path: Path) -> Snapshot:
    """Read a public file and the private one beside it. Raises UsageError when they do not belong together."""
    public = _read_public(path)
    beside = private_path(path)
    if not beside.exists():
        raise UsageError(f"{beside}: not found; the world cannot be played without it, so keep both files together")
    key, seed, secret = _read_private(beside)
    if _digest(beside) != public["commitment"]:
        raise UsageError(f"{beside}: does not match the commitment in {path.name}; one of the two files was changed")
    config = {"tape": "anonymous", **public["config"]}  # files from before there was a choice do not have it
    values = {ours: config.get(theirs) for theirs, ours in _CONFIG.items()}
    scenario = scenarios.scenario(**values)
    if key == scenarios.world_key(scenario, seed, scenarios.PUBLISHED_SECRET):
        label = scenarios.PUBLISHED
    else:
        label = "private" if secret is None else scenarios.secret_label(secret)
    snapshot = Snapshot(path, public["id"], scenario, key, seed, public, label)
    # Through JSON and back, since tuples become lists there.
    if msgspec.json.decode(canonical_json(game_state(snapshot.world()))) != public["initialState"]:
        raise UsageError(f"{path}: initialState: not that of the private file's key; generate it again")
    return snapshot


def _read_public(path: Path) -> dict[str, Any]:
    """The content of a public file, checked as far as it can be without the private one."""
    try:
        public = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(public, dict) or "version" not in public:
        raise UsageError(f"{path}: not a market snapshot: it has no version")
    if public["version"] != VERSION:
        raise UsageError(f"{path}: version {public['version']!r}; this program reads {VERSION!r}: generate it again")
    if "key" in public:
        raise UsageError(f"{path}: this is the private file of a snapshot; give the public one, without `.private`")
    for name in ("id", "config", "initialState", "commitment"):
        if name not in public:
            raise UsageError(f"{path}: {name}: missing; only files of `bakeoff market generate` can be played")
    if public["id"] != _content_id({name: value for name, value in public.items() if name != "id"}):
        raise UsageError(f"{path}: id: does not match the content; the file was changed after it was generated")
    if not isinstance(public["config"], dict):
        raise UsageError(f"{path}: config: not a table")
    return public


def _read_private(path: Path) -> tuple[bytes, int, str | None]:
    """Key, seed, and the secret if it was drawn for this file. They are at the end of the file, so a long truth need not be parsed."""
    with path.open("rb") as file:
        opening = file.read(len(_OPENING))
        # The tail is far shorter than _TAIL, even with the longest seed.
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        match = re.search(_PRIVATE_TAIL, file.read())
    if match is None or opening != _OPENING:
        raise UsageError(f"{path}: not the private file of a market snapshot, or cut short: generate it again")
    if (version := match[4].decode()) != VERSION:
        raise UsageError(f"{path}: version {version!r}; this program reads {VERSION!r}: generate it again")
    return bytes.fromhex(match[1].decode()), int(match[3]), match[2].decode() if match[2] else None
