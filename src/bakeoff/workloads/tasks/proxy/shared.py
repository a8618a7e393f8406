"""What the proxies of different processes share: the rates of a provider, and the budget of an experiment.

Every run has its own proxy in its own worker process, and a provider counts the calls of all of them together. Both
numbers are therefore in small files, each changed under a lock of the kernel (flock(2)), which is released however its
holder dies. A write is one call of a few kilobytes, so a killed process leaves the old content or the new one.

    call = await rates.enter(tokens=1200)      # waits until there is room
    ...
    await rates.correct(call, tokens=1350)     # what it used
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import random
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bakeoff.records.layout import BUDGET_FILE, BUDGET_USED_UP
from bakeoff.sandbox import cache

MINUTE = 60.0
LONGEST_LOOK = 1.0
"""Seconds between two looks for room: another process may have freed some."""
FIRST_LOOK = 0.02
SPENT = "budget.spent"
"""File of an edition beside BUDGET_FILE: what calls have used."""
_ENTRY = struct.Struct("<ddQ")  # when on the monotonic clock, tokens, which call
_SUM = struct.Struct("<qdd")  # session, dollars, tokens
_HELD = struct.Struct("<QQQdd")  # which call, machine, process, dollars, tokens
_Held = tuple[int, int, int, float, float]
_MACHINE = int.from_bytes(hashlib.blake2b(os.uname().nodename.encode(), digest_size=8).digest())


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[int]:
    """An open file that no other process changes. The event loop goes on while another one holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.005)
        yield fd
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Rates:
    """Most requests and tokens in any minute, over all runs on this machine that use the same provider and key.

    The file holds the calls of the last minute. The monotonic clock is the same in all processes (clock_gettime(2)) and
    begins again when the machine does; entries from its future are left from before.
    """

    path: Path
    requests: float | None
    tokens: float | None

    @classmethod
    def of(cls, base_url: str, key_name: str | None, requests: float | None, tokens: float | None) -> Rates | None:
        """The rates of a provider; None when it has none."""
        if requests is None and tokens is None:
            return None
        name = hashlib.blake2b(f"{base_url}\0{key_name}".encode(), digest_size=12).hexdigest()
        return cls(cache.directory("rates") / name, requests, tokens)

    async def enter(self, tokens: float) -> int:
        """Wait until a call that uses about so many tokens has room, and count it. Returns its number."""
        number = random.getrandbits(64)
        while (seconds := await self._enter(number, tokens)) > 0:
            await asyncio.sleep(min(seconds, LONGEST_LOOK) * random.uniform(0.9, 1.1))
        return number

    async def _enter(self, number: int, tokens: float) -> float:
        """Count a call if there is room for it. Returns 0, or the seconds after which there may be."""
        async with _locked(self.path) as fd:
            now = time.monotonic()
            entries = [entry for entry in _entries(fd) if now - MINUTE < entry[0] <= now]
            entries.sort()
            waits = [0.0]
            if self.requests is not None and len(entries) >= self.requests:
                # The call that has to be a minute old before this one is one too many no more.
                waits.append(entries[len(entries) - int(self.requests)][0] + MINUTE - now)
            if self.tokens is not None:
                used = sum(entry[1] for entry in entries)
                for when, freed, _ in entries:  # one call alone may use more than a minute allows
                    if used + tokens <= self.tokens:
                        break
                    waits.append(when + MINUTE - now)
                    used -= freed
            if max(waits) == 0.0:
                entries.append((now, tokens, number))
            _write(fd, b"".join(_ENTRY.pack(*entry) for entry in entries))
            return max(waits)

    async def correct(self, number: int, tokens: float) -> None:
        """Replace the estimate of the call with this number by what it used."""
        async with _locked(self.path) as fd:
            entries = [(when, tokens if own == number else used, own) for when, used, own in _entries(fd)]
            _write(fd, b"".join(_ENTRY.pack(*entry) for entry in entries))


def _entries(fd: int) -> list[tuple[float, float, int]]:
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    return list(_ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]))


def _write(fd: int, data: bytes) -> None:
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))


@dataclass(frozen=True, slots=True)
class Hold:
    """What is reserved for one call in the budget of its experiment."""

    number: int
    cost: float
    tokens: float


@dataclass(frozen=True, slots=True)
class ExperimentBudget:
    """What all runs of an experiment may spend together, in dollars and tokens; None is no limit.

    The file has what calls have used, and then what is held for each running call. What a killed process held counts as
    used: its provider may have been at work.
    """

    path: Path
    session: int
    cost: float | None
    tokens: float | None
    spent_before: tuple[float, float]

    @classmethod
    def read(cls, edition: Path, cost_metric: str) -> ExperimentBudget | None:
        """The budget of an edition; None when its experiment file sets none. Another `cost_metric` is no limit here."""
        try:
            table = json.loads((edition / BUDGET_FILE).read_bytes())
        except (OSError, ValueError):
            return None
        spent = (float(table["spent"]["cost"]), float(table["spent"]["tokens"]))
        cost = table["cost"] if table["cost_metric"] == cost_metric else None
        return cls(edition / SPENT, int(table["session"]), cost, table["tokens"], spent)

    @property
    def used_up(self) -> bool:
        """Whether a call of any run was refused in this session."""
        return (self.path.parent / BUDGET_USED_UP).exists()

    async def hold(self, needs: tuple[float, float], most: tuple[float, float]) -> Hold | None:
        """Hold the `most` dollars and tokens that a call can use; None if what it `needs` is not left.

        A call that would fit alone, and does not fit beside those of other runs, waits until one of them ends. Alone it
        gets what is left.
        """
        number, seconds = random.getrandbits(64), FIRST_LOOK
        while True:
            async with _locked(self.path) as fd:
                spent, held = self._load(fd)
                if (name := self._exceeded(spent, needs)) is not None:
                    # The scheduler looks for this file: it would start more runs, since something is left.
                    (self.path.parent / BUDGET_USED_UP).write_text(name)
                    return None
                beside = tuple(one + sum(column) for one, column in zip(spent, _amounts(held), strict=True))
                if not held or self._exceeded((beside[0], beside[1]), most) is None:
                    kept = Hold(number, *self._within(spent, most))
                    held.append((number, _MACHINE, os.getpid(), kept.cost, kept.tokens))
                    self._store(fd, spent, held)
                    return kept
            await asyncio.sleep(seconds)
            seconds = min(LONGEST_LOOK, 1.5 * seconds)

    async def settle(self, hold: Hold, cost: float, tokens: float) -> None:
        """Replace what was held for a call by what it used."""
        async with _locked(self.path) as fd:
            spent, held = self._load(fd)
            self._store(fd, (spent[0] + cost, spent[1] + tokens), [entry for entry in held if entry[0] != hold.number])

    def _exceeded(self, spent: tuple[float, float], more: tuple[float, float]) -> str | None:
        """The limit that `more` dollars and tokens would exceed."""
        for name, limit, now, added in zip(("cost", "tokens"), (self.cost, self.tokens), spent, more, strict=True):
            if limit is not None and (now >= limit or now + added > limit):
                return name
        return None

    def _within(self, spent: tuple[float, float], most: tuple[float, float]) -> tuple[float, float]:
        """As much of `most` as is left."""
        cost = most[0] if self.cost is None else min(most[0], self.cost - spent[0])
        return cost, most[1] if self.tokens is None else min(most[1], self.tokens - spent[1])

    def _load(self, fd: int) -> tuple[tuple[float, float], list[_Held]]:
        """What was used so far, and what is held. A new session begins with what the edition knows, if that is more."""
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        session, cost, tokens = _SUM.unpack_from(data) if len(data) >= _SUM.size else (-1, 0.0, 0.0)
        rest = data[_SUM.size :]
        held: list[_Held] = list(_HELD.iter_unpack(rest[: len(rest) // _HELD.size * _HELD.size]))
        lost = [entry for entry in held if session != self.session or _is_lost(entry)]
        for entry in lost:
            cost, tokens = cost + entry[3], tokens + entry[4]
        if session != self.session:
            cost, tokens = max(cost, self.spent_before[0]), max(tokens, self.spent_before[1])
        return (cost, tokens), [entry for entry in held if entry not in lost]

    def _store(self, fd: int, spent: tuple[float, float], held: list[_Held]) -> None:
        _write(fd, _SUM.pack(self.session, *spent) + b"".join(_HELD.pack(*entry) for entry in held))


def _amounts(held: list[_Held]) -> tuple[list[float], list[float]]:
    return [entry[3] for entry in held], [entry[4] for entry in held]


def _is_lost(entry: _Held) -> bool:
    """Whether the process that held this is gone. Those of other machines are believed."""
    if entry[1] != _MACHINE or entry[2] == os.getpid():
        return False
    try:
        os.kill(entry[2], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
