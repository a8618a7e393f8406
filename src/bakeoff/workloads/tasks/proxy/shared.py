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
SPENT = "budget.spent"
"""File of an edition beside BUDGET_FILE: what calls have used."""
_ENTRY = struct.Struct("<ddQ")  # when on the monotonic clock, tokens, which call
_SUM = struct.Struct("<qdd")  # session, dollars, tokens


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
class ExperimentBudget:
    """What all runs of an experiment may spend together, in dollars and tokens; None is no limit.

    `spent` of each call is added when the call ends; what running calls are expected to use counts, too.
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

    async def reserve(self, cost: float, tokens: float) -> bool:
        """Whether a call that is expected to use this fits. If so, it is counted."""
        async with _locked(self.path) as fd:
            dollars, used = self._sum(fd)
            for name, limit, now, more in (("cost", self.cost, dollars, cost), ("tokens", self.tokens, used, tokens)):
                if limit is not None and (now >= limit or now + more > limit):
                    # The scheduler looks for this file: it would start more runs, since something is left.
                    (self.path.parent / BUDGET_USED_UP).write_text(name)
                    return False
            self._store(fd, dollars + cost, used + tokens)
            return True

    async def settle(self, cost: float, tokens: float) -> None:
        """Add the difference between what a call used and what was reserved for it."""
        async with _locked(self.path) as fd:
            dollars, used = self._sum(fd)
            self._store(fd, dollars + cost, used + tokens)

    def _sum(self, fd: int) -> tuple[float, float]:
        """Dollars and tokens so far. A new session begins with what the edition knows, if that is more."""
        data = os.pread(fd, _SUM.size, 0)
        session, cost, tokens = _SUM.unpack(data) if len(data) == _SUM.size else (-1, 0.0, 0.0)
        if session != self.session:
            cost, tokens = max(cost, self.spent_before[0]), max(tokens, self.spent_before[1])
        return cost, tokens

    def _store(self, fd: int, cost: float, tokens: float) -> None:
        _write(fd, _SUM.pack(self.session, max(0.0, cost), max(0.0, tokens)))
