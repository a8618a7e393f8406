"""A cluster that exists only as a model, in virtual time: for what no test can have, such as a thousand nodes.

`Cluster` is a `Transport` and a `Launcher` in one. Its pilots are a discrete-event model of engine/pilots/pilot.py: they
start late, say hello, beat, take attempts that last for a random time, report, give back and leave. Scheduler, executor,
queue and database are the real ones:

    clock = Clock()
    cluster = Cluster(clock, hosts=20, slots=4, mean=10.0, faults=[Fault(30.0, "crash", host=3)])
    summary = simulate(session, cluster, clock)
    cluster.check(session.edition)

Every message is encoded and decoded as on a real transport. The model sees each order, so it knows which claim is the
current one of a run, which attempts it lost and which pilots may be given up; it raises `Broken` as soon as the scheduler
hands out something that contradicts that.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from bakeoff.engine.pilots.executor import PilotExecutor
from bakeoff.engine.pilots.messages import (
    Abandon,
    Beat,
    Bye,
    Downward,
    Hello,
    NodeFacts,
    Order,
    Orders,
    Quit,
    Recall,
    Report,
    Returned,
    Stop,
    Upward,
    decode_downward,
    decode_upward,
    encode,
)
from bakeoff.engine.pilots.transport import PilotSetup
from bakeoff.engine.queue import Queue
from bakeoff.engine.scheduler import Observer, Scheduler, SessionSummary, Switch
from bakeoff.engine.session import Session
from bakeoff.records.claims import Claims, list_claims
from bakeoff.records.edition import Edition

EPOCH = 1.7e9
"""`Clock.time()` when the simulation begins."""
HEARTBEAT, UNREACHABLE = 5.0, 20.0
SOON = 0.5
"""A beat comes no sooner than so many seconds after the one before (pilot.py)."""
CODE = "code"
_KNOWN_LATE = 30.0
"""Seconds after which the engine says that a pilot ended, if it ever does."""


class Broken(AssertionError):
    """The scheduler did something that it must not do."""


class Killed(Exception):
    """The scheduler is killed at this moment."""


class Clock:
    """Stands in for the module `time` where the scheduler looks at it. `worked` are seconds that pass because the
    scheduler is busy; by default it takes no time."""

    def __init__(self, worked: Callable[[], float] = lambda: 0.0) -> None:
        self._slept = 0.0
        self._worked = worked

    def monotonic(self) -> float:
        return self._slept + self._worked()

    def time(self) -> float:
        return EPOCH + self.monotonic()

    def sleep(self, seconds: float) -> None:
        self._slept += seconds


@contextmanager
def virtual_time(clock: Clock) -> Iterator[None]:
    """The scheduler's modules use `clock` for `time`."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (
            "engine.scheduler",
            "engine.queue",
            "engine.pilots.executor",
            "engine.pilots.fleet",
            "records.edition",
        ):
            patch.setattr(f"bakeoff.{module}.time", clock)
        yield


@dataclass(frozen=True, slots=True)
class Fault:
    """Something happens to the pilot that is on a host then, if there is one."""

    at: float
    kind: Literal["crash", "cut", "stall", "leave", "drop"]
    """`crash`: it is gone. `cut`: it is out of reach for `seconds`, and ends itself after `UNREACHABLE`. `stall`: it
    stands still for `seconds` and then goes on as if nothing had happened. `leave`: its allocation ends. `drop`: the next
    orders for it are lost on their way."""
    host: int
    seconds: float = 0.0


@dataclass(slots=True)
class _Pilot:
    """A pilot of the model."""

    name: str
    host: int = -1
    slowness: float = 1.0
    latency: float = 0.0
    state: Literal["queued", "starting", "up", "over"] = "queued"
    waiting: deque[Order] = field(default_factory=deque)
    running: dict[str, tuple[Order, float]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    fresh: dict[str, float | None] = field(default_factory=dict)
    """What came or began since the last beat."""
    beat_at: float = 0.0
    beats_soon: bool = False
    away: float = 0.0
    """Out of reach until then."""
    up: list[bytes] = field(default_factory=list)
    down: list[bytes] = field(default_factory=list)
    """What waits until it is in reach."""
    leaves: bool = False
    drops: bool = False
    died: bool = False
    silent: float = 0.0
    """The longest time that it was out of reach."""
    given: set[str] = field(default_factory=set)
    """Tokens that it gave back."""
    lost: set[str] = field(default_factory=set)
    """Tokens that it said are lost, or that never reached it."""
    current: int = 0
    """Claims that it has, as the scheduler must see it."""


class Cluster:
    """`hosts` machines with `slots` each. An attempt takes `mean` seconds on average, exponentially distributed; one host
    in `slow` takes five times as long. One report in `twice` arrives twice. Pilots on hosts in `bad` die soon after they
    have said hello. With `keeps` every message is kept for the next scheduler, as in a spool."""

    def __init__(
        self,
        clock: Clock,
        *,
        hosts: int,
        slots: int,
        mean: float,
        faults: Sequence[Fault] = (),
        slow: int = 50,
        twice: int = 500,
        bad: Sequence[int] = (),
        startup: float = 30.0,
        expiry: float = 30.0,
        seed: int = 1,
        keeps: bool = False,
    ) -> None:
        self.expiry = expiry
        self.setup = PilotSetup(
            workload="command", dialect="native", experiment="simulated", edition="x", base="/", slots=slots,
            limits={"grace": 5.0}, resources={}, gpus=None, env={}, fresh=False, checkpoints=False, settle_after=1.0,
            code=CODE, heartbeat=HEARTBEAT, unreachable=UNREACHABLE,
        )  # fmt: skip
        self._clock = clock
        self._random = random.Random(seed)
        self._slots, self._mean, self._slow, self._twice, self._startup = slots, mean, slow, twice, startup
        self._bad = frozenset(bad)
        self._at = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._free = deque(range(hosts))
        self._queued: deque[_Pilot] = deque()
        self._on: dict[int, _Pilot] = {}
        self._pilots: dict[str, _Pilot] = {}
        self._open: dict[str, None] = {}
        """Pilots that the scheduler has not forgotten."""
        self._arrived: list[tuple[str, bytes]] = []
        self._kept: list[tuple[str, bytes]] | None = [] if keeps else None
        self._ended: dict[str, str] = {}
        self._claims: dict[int, tuple[str, int, str]] = {}
        """The current claim of each run: token, number of the attempt, pilot."""
        self.kills: list[float] = []
        """When the scheduler is killed, latest first."""
        self.executed = 0
        """Attempts that ended by themselves."""
        self.returned = 0
        self.losses = 0
        """Attempts that were lost, and handed out again."""
        self.losses_on: Counter[int] = Counter()
        """Faults by host that may have lost something."""
        self.happened: Counter[str] = Counter()
        for fault in faults:
            self._schedule(fault.at, self._strike, fault)

    # -- Transport

    def known(self) -> list[str]:
        if self._kept is not None:  # the next scheduler reads everything once more
            self._arrived = [*self._kept, *self._arrived]
            self._kept.clear()
        return list(self._open)

    def open(self, pilots: Mapping[str, PilotSetup]) -> None:
        for name in pilots:
            self._pilots[name] = _Pilot(name)
            self._open[name] = None

    def receive(self) -> list[tuple[str, Upward]]:
        self.advance()
        arrived, self._arrived = self._arrived, []
        messages = [(name, decode_upward(frame)) for name, frame in arrived]
        self.taken(messages)
        return messages

    def send(self, pilot: str, messages: Sequence[Downward]) -> None:
        self.sent(pilot, messages, [encode(message) for message in messages])

    def recorded(self, tokens: Sequence[str]) -> None:
        self._maybe_killed()

    def forget(self, pilot: str) -> None:
        self._open.pop(pilot, None)
        self._ended.pop(pilot, None)

    def close(self) -> None:
        """Also of the launcher: all that are left end."""
        for pilot in list(self._on.values()):
            self._over(pilot)
        self._queued.clear()

    # -- Launcher

    def start(self, pilots: Sequence[str], *, avoid: Sequence[str]) -> None:
        for name in pilots:
            self._queued.append(self._pilots[name])
        avoided = {int(host[1:]) for host in avoid}
        self._free = deque(host for host in self._free if host not in avoided)
        self._place(self._clock.monotonic())

    def ended(self) -> Mapping[str, str]:
        return self._ended

    def explained(self, why: str) -> bool:
        return why in ("NODE_FAIL", "TIMEOUT")

    def log(self, pilot: str) -> str:
        return ""

    # -- the model's clock

    def advance(self) -> None:
        """Let happen what is due."""
        self._maybe_killed()
        events, now = self._events, self._clock.monotonic()
        while events and events[0][0] <= now:
            self._at, _, act, arguments = heapq.heappop(events)
            act(*arguments)
        self._at = now

    def _schedule(self, at: float, act: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, act, arguments))

    def _maybe_killed(self) -> None:
        if self.kills and self._clock.monotonic() >= self.kills[-1]:
            self.kills.pop()
            raise Killed

    # -- what the scheduler may do

    def sent(self, name: str, messages: Sequence[Downward], frames: list[bytes]) -> None:
        """The scheduler sent these: check orders against what the model knows, and let them travel."""
        pilot = self._pilots[name]
        for message in messages:
            if isinstance(message, Orders):
                for order in message.orders:
                    self._ordered(pilot, order)
                if pilot.drops:
                    pilot.drops = False
                    pilot.lost.update(order.token for order in message.orders)
                    self.losses_on[pilot.host] += 1
                    return
        self._schedule(self._clock.monotonic() + pilot.latency, self._deliver, pilot, frames)

    def _ordered(self, pilot: _Pilot, order: Order) -> None:
        position, number = order.attempt.position, order.attempt.number
        before = self._claims.get(position)
        if before is not None:
            token, earlier, name = before
            holder = self._pilots[name]
            if number == earlier + 1:
                silent = holder.silent + HEARTBEAT + 1 > self.expiry
                if not (holder.died or silent or token in holder.lost):
                    raise Broken(f"{token} counts as lost, and {name} is well")
                self.losses += 1
            elif number == earlier and (token in holder.given or holder.state == "over"):
                self.returned += 1
            else:
                raise Broken(f"run {position}: attempt {number} after attempt {earlier}, which {name} has")
        elif number != 1:
            raise Broken(f"run {position}: the first attempt has number {number}")
        self._claims[position] = (order.token, number, pilot.name)
        pilot.current += 1
        if pilot.current > 2 * self._slots and not pilot.silent and not pilot.lost:
            raise Broken(f"{pilot.name} holds {pilot.current} of {2 * self._slots}")

    def taken(self, messages: Sequence[tuple[str, Upward]]) -> None:
        """The scheduler has these now."""
        if self._kept is not None:
            self._kept += [(name, encode(message)) for name, message in messages]
        for name, message in messages:
            pilot = self._pilots[name]
            if isinstance(message, Report):
                pilot.current -= 1
            elif isinstance(message, Returned):
                pilot.current -= len(message.tokens)

    # -- the life of pilots

    def _place(self, at: float) -> None:
        """Pilots that the engine has queued get hosts that are free."""
        while self._queued and self._free:
            pilot, host = self._queued.popleft(), self._free.popleft()
            pilot.host, pilot.state, self._on[host] = host, "starting", pilot
            pilot.slowness = 5.0 if host % self._slow == self._slow - 1 else 1.0
            pilot.latency = self._random.uniform(0.002, 0.25)
            self._schedule(at + self._random.uniform(0.1, self._startup), self._begin, pilot)

    def _begin(self, pilot: _Pilot) -> None:
        if pilot.state != "starting":
            return
        pilot.state = "up"
        facts = NodeFacts(f"n{pilot.host}", "a simulated node", CODE)
        self._post(pilot, Hello(facts, self._slots, 2 * self._slots))
        waiting, pilot.down = pilot.down, []
        self._deliver(pilot, waiting)
        self._beat(pilot)
        if pilot.host in self._bad:
            self._schedule(self._at + 2.0, self._strike, Fault(0.0, "crash", pilot.host))

    def _over(self, pilot: _Pilot, why: str = "", after: float = 0.0) -> None:
        """The pilot is no more; its host is free. The engine says why, if it does."""
        if pilot.state == "over":
            return
        pilot.state = "over"
        pilot.waiting.clear()
        pilot.running.clear()
        if self._on.pop(pilot.host, None) is not None:
            self._free.append(pilot.host)
        if why:
            self._schedule(self._at + after, self._tell_end, pilot, why)
        self._place(self._at)

    def _tell_end(self, pilot: _Pilot, why: str) -> None:
        if pilot.name in self._open:
            self._ended[pilot.name] = why

    def _strike(self, fault: Fault) -> None:
        pilot = self._on.get(fault.host)
        if pilot is None or pilot.state != "up" or self._at < pilot.away:
            return
        self.happened[fault.kind] += 1
        if fault.kind == "crash":
            self._die(pilot)
        elif fault.kind == "drop":
            pilot.drops = True
        elif fault.kind == "leave":
            self._give_back(pilot, list(pilot.waiting))
            pilot.lost.update(pilot.running)
            self._post(pilot, Bye("the allocation ended", sorted(pilot.running)))
            self._over(pilot, "TIMEOUT", 1.0)
        else:
            if fault.kind == "cut" and fault.seconds > UNREACHABLE:
                self._schedule(self._at + UNREACHABLE, self._die, pilot)
            pilot.away = self._at + fault.seconds
            pilot.silent = max(pilot.silent, fault.seconds)
            if pilot.silent + HEARTBEAT + 1 > self.expiry:
                self.losses_on[pilot.host] += 1
            self._schedule(pilot.away, self._back, pilot)

    def _die(self, pilot: _Pilot) -> None:
        if pilot.state == "up":
            pilot.died = True
            self.losses_on[pilot.host] += 1
            self._over(pilot, *(("NODE_FAIL", _KNOWN_LATE) if self._random.random() < 0.5 else ()))

    def _back(self, pilot: _Pilot) -> None:
        """It is in reach again."""
        if pilot.state != "up":
            return
        up, pilot.up = pilot.up, []
        down, pilot.down = pilot.down, []
        for frame in up:
            self._schedule(self._at + pilot.latency, self._arrive, pilot, frame)
        self._deliver(pilot, down)

    # -- messages

    def _post(self, pilot: _Pilot, message: Upward) -> None:
        frame = encode(message)
        for _ in range(2 if isinstance(message, Report) and self._random.randrange(self._twice) == 0 else 1):
            if self._at < pilot.away:
                pilot.up.append(frame)
            else:
                self._schedule(self._at + pilot.latency, self._arrive, pilot, frame)

    def _arrive(self, pilot: _Pilot, frame: bytes) -> None:
        if pilot.name in self._open:
            self._arrived.append((pilot.name, frame))

    def _deliver(self, pilot: _Pilot, frames: list[bytes]) -> None:
        if pilot.state in ("queued", "starting") or (pilot.state == "up" and self._at < pilot.away):
            pilot.down += frames
            return
        for frame in frames:
            if pilot.state != "up":
                return
            match decode_downward(frame):
                case Orders(orders):
                    fresh = [order for order in orders if order.token not in pilot.known]
                    pilot.known.update(order.token for order in fresh)
                    pilot.waiting.extend(fresh)
                    pilot.fresh.update((order.token, None) for order in fresh)
                    self._begin_attempts(pilot)
                    self._beat_soon(pilot)
                case Recall(tokens):
                    self._give_back(pilot, [order for order in pilot.waiting if order.token in tokens])
                case Abandon(tokens):
                    self._abandon(pilot, set(tokens))
                case Stop(running):
                    self._give_back(pilot, list(pilot.waiting))
                    for token in list(pilot.running) if running else ():
                        self._report(pilot, token, "cancelled")
                case Quit(now):
                    pilot.leaves = True
                    if now:
                        pilot.waiting.clear()
                        pilot.running.clear()
                    self._maybe_leave(pilot)

    def _beat_soon(self, pilot: _Pilot) -> None:
        if not pilot.beats_soon:
            pilot.beats_soon = True
            self._schedule(max(self._at, pilot.beat_at + SOON), self._beat_now, pilot)

    def _beat_now(self, pilot: _Pilot) -> None:
        pilot.beats_soon = False
        if pilot.state == "up" and pilot.fresh:
            self._say_beat(pilot, list(pilot.fresh.items()), whole=False)

    def _beat(self, pilot: _Pilot) -> None:
        """Every heartbeat."""
        if pilot.state == "up":
            held: list[tuple[str, float | None]]
            held = [(token, EPOCH + began) for token, (_, began) in pilot.running.items()]
            self._say_beat(pilot, held + [(order.token, None) for order in pilot.waiting], whole=True)
            self._schedule(self._at + HEARTBEAT, self._beat, pilot)

    def _say_beat(self, pilot: _Pilot, held: list[tuple[str, float | None]], *, whole: bool) -> None:
        pilot.beat_at, pilot.fresh = self._at, {}
        self._post(pilot, Beat(held, 2 * self._slots, whole))

    # -- attempts

    def _begin_attempts(self, pilot: _Pilot) -> None:
        while pilot.waiting and len(pilot.running) < self._slots:
            order = pilot.waiting.popleft()
            pilot.running[order.token] = order, self._at
            pilot.fresh[order.token] = EPOCH + self._at
            duration = 0.01 + self._random.expovariate(1 / self._mean) * pilot.slowness
            self._schedule(self._at + duration, self._end_attempt, pilot, order.token)

    def _end_attempt(self, pilot: _Pilot, token: str) -> None:
        if token in pilot.running:  # otherwise the pilot is over, or the attempt was abandoned
            self.executed += 1
            self._report(pilot, token, "succeeded")
            self._begin_attempts(pilot)
            if pilot.fresh:
                self._beat_soon(pilot)
            self._maybe_leave(pilot)

    def _report(self, pilot: _Pilot, token: str, status: Literal["succeeded", "cancelled"]) -> None:
        order, began = pilot.running.pop(token)
        attempt = order.attempt
        attempt.status, attempt.params, attempt.node = status, "{}", pilot.name
        attempt.started_at, attempt.ended_at = EPOCH + began, EPOCH + self._at
        attempt.metrics = {"claim": _metric_of(token)}
        self._post(pilot, Report(token, attempt))

    def _give_back(self, pilot: _Pilot, orders: Sequence[Order]) -> None:
        if orders:
            tokens = {order.token for order in orders}
            pilot.given |= tokens
            pilot.waiting = deque(order for order in pilot.waiting if order.token not in tokens)
            self._post(pilot, Returned(sorted(tokens)))

    def _abandon(self, pilot: _Pilot, tokens: set[str]) -> None:
        pilot.waiting = deque(order for order in pilot.waiting if order.token not in tokens)
        for token in tokens & pilot.running.keys():
            del pilot.running[token]
        self._begin_attempts(pilot)
        self._maybe_leave(pilot)

    def _maybe_leave(self, pilot: _Pilot) -> None:
        if pilot.leaves and not pilot.running and not pilot.waiting:
            self._post(pilot, Bye("nothing left to do"))
            self._over(pilot)

    # -- the end

    def check(self, edition: Edition, left_out: Sequence[str] = ()) -> None:
        """Raise `Broken` unless every run has one success, that of its current claim, and losses are those of the model."""
        runs = 0
        for run in edition.runs():
            runs += 1
            token, number, _ = self._claims[run.position]
            if run.status != "succeeded":
                raise Broken(f"{run.run_id}: {run.status} ({run.error})")
            if run.attempts != number or run.metrics != {"claim": _metric_of(token)}:
                raise Broken(f"{run.run_id}: recorded {run.attempts} {run.metrics}, current is {number} {token}")
        if (claims := list_claims(edition)) != []:
            raise Broken(f"claims are left: {claims[:3]}")
        odd = edition.database.value(
            "SELECT COUNT(*) FROM runs r WHERE r.attempts <> (SELECT COUNT(*) FROM attempts a WHERE "
            "a.edition_id = r.edition_id AND a.position = r.position) OR 1 <> (SELECT COUNT(*) FROM attempts a WHERE "
            "a.edition_id = r.edition_id AND a.position = r.position AND a.status = 'succeeded' AND a.attempt = r.attempts)"
        )
        if odd:
            raise Broken(f"{odd} runs do not have one success as their last attempt")
        lost = edition.database.value("SELECT COUNT(*) FROM attempts WHERE lost IS NOT NULL AND status = 'infra_error'")
        if lost != self.losses:
            raise Broken(f"{lost} lost attempts are recorded, and {self.losses} were lost")
        if edition.database.value("SELECT COUNT(*) FROM attempts") != runs + lost:
            raise Broken("there are attempts that neither succeeded nor were lost")
        for host in left_out:
            if self.losses_on[int(host[1:])] < 3:
                raise Broken(f"{host} is left out after {self.losses_on[int(host[1:])]} losses")


def _metric_of(token: str) -> int:
    """What an attempt under this claim reports as its metric."""
    return int(token[-12:], 16)


def executor_of(session: Session, cluster: Cluster, pilots: int) -> PilotExecutor:
    """The real executor over the model."""
    return PilotExecutor(
        cluster.setup, session.edition.paths, Claims(session.edition, "simulated", session.number), cluster, cluster,
        pilots=pilots, expiry=cluster.expiry,
    )  # fmt: skip


def scheduler_of(session: Session, executor: PilotExecutor, observers: Sequence[Observer] = ()) -> Scheduler:
    """The real scheduler, which has adopted what an earlier one left."""
    claims = list_claims(session.edition)
    queue = Queue(session.plan, session.edition, order_seed=0, claimed={claim.position for claim in claims})
    scheduler = Scheduler(
        session.plan, session.edition, session.number, executor, queue, switch=Switch(), observers=observers
    )
    scheduler.adopt(claims)
    return scheduler


def simulate(session: Session, cluster: Cluster, clock: Clock, pilots: int) -> tuple[SessionSummary, PilotExecutor]:
    """Do all runs of the session in virtual time."""
    with virtual_time(clock):
        executor = executor_of(session, cluster, pilots)
        summary = scheduler_of(session, executor).run()
        executor.close()
    return summary, executor
