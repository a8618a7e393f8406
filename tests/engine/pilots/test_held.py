"""Which pilot holds which claim: the states of a claim, and that nobody's account of it differs from another's."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.engine.pilots.held import ENDS, NEXT, ClaimState, HeldClaims
from bakeoff.engine.pilots.messages import Beat, Bye, Returned
from bakeoff.engine.session import Options, open_session
from bakeoff.records.claims import list_claims
from bakeoff.records.run import Attempt
from bakeoff.spec.load import load_plan
from engine.pilots.test_claims import EXPIRY, Bench, Wire, result
from support.simulated_cluster import Clock, virtual_time


def attempt(position: int = 0) -> Attempt:
    return Attempt(position, f"a__s{position}__000000000000", 0, "a", "default", position, 0, 1)


def test_a_claim_passes_through_its_states_and_ends_once() -> None:
    """Every state, what may follow it, and what the claim's pilot holds then."""
    assert {ClaimState.HANDED_OUT, ClaimState.NAMED, *ENDS} == set(ClaimState)
    assert {ClaimState.HANDED_OUT: ENDS | {ClaimState.NAMED}, ClaimState.NAMED: ENDS | {ClaimState.NAMED}} == NEXT
    for named in (False, True):
        for end in ENDS:
            held = HeldClaims()
            held.allow("1-1", 1)
            assert held.is_over("t"), "it never was"
            held.hand_out("t", attempt(), "1-1", now=0.0)
            (claim,) = held.of("1-1")
            assert (claim.state, held.count("1-1"), held.rooms()) == (ClaimState.HANDED_OUT, 1, {})
            if named:
                assert held.name([("t", 5.0), ("unknown", None)], now=1.0) == {"unknown"}
                assert (claim.state, claim.heard, claim.attempt.started_at) == (ClaimState.NAMED, 1.0, 5.0)
            assert held.end("t", end) is claim and claim.state is end
            assert (len(held), held.of("1-1"), held.rooms()) == (0, [], {"1-1": 1})
            for other in ENDS:
                assert held.end("t", other) is None and claim.state is end, "a claim ends once"
            waits = end is ClaimState.REPORTED
            assert held.is_over("t") is not waits, "until its result is recorded, its pilot may name it"
            assert held.name([("t", 5.0)], now=2.0) == (set() if waits else {"t"})
            assert (held.recorded("t") is claim) is waits and held.is_over("t")


def test_only_an_end_ends_a_claim() -> None:
    held = HeldClaims()
    held.hand_out("t", attempt(), "1-1", now=0.0)
    with pytest.raises(AssertionError):
        held.end("t", ClaimState.HANDED_OUT)


EVENTS = ("hello", "hand out", "beat", "report", "return", "leave", "never begin", "expire", "record", "adopt")


class Accounts:
    """A scheduler whose loop a test drives step by step. After each step, all accounts of the claims are compared."""

    def __init__(self, place: Path, clock: Clock) -> None:
        self._file, self._root, self._clock = place / "trial.toml", place / "results", clock
        self._file.write_text(
            'workload = "command"\nseeds = 12\nretries = { lost = 99 }\nparams = { command = "true" }\n'
        )
        self.wire = Wire()
        self._open()

    def _open(self) -> None:
        """Begin a session, which adopts what the one before left."""
        self.session = open_session(load_plan(self._file), Options(self._root))
        self.wire.pilots = list(self.wire.started)
        bench = Bench(self.session, self.wire, pilots=2)
        self.executor, self.queue, self.scheduler = bench.executor, bench.queue, bench.scheduler()
        self.scheduler.adopt(list_claims(self.session.edition))

    def happen(self, event: str, number: int) -> None:
        held, pilots = self.executor._held, list(self.executor._fleet.pilots)
        orders = self.wire.orders()[-number:]
        match event:
            case "hello":
                for pilot in self.wire.started[-2:]:
                    self.wire.hello(pilot, host=f"host of {pilot}")
            case "hand out":
                self.scheduler._fill()
            case "beat":
                for pilot in pilots:
                    named: list[tuple[str, float | None]] = [(claim.token, 1.0) for claim in held.of(pilot)]
                    self.wire.arriving.append((pilot, Beat(named[:number], 4)))
            case "report":
                self.wire.arriving += [(pilot, result(order)) for pilot, order in orders]
            case "return":
                self.wire.arriving += [(pilot, Returned([order.token])) for pilot, order in orders]
            case "leave":
                for pilot in pilots[:1]:
                    self.wire.arriving.append((pilot, Bye("preempted", [c.token for c in held.of(pilot)][:number])))
            case "never begin":
                self.wire.over.update(dict.fromkeys(self.wire.started[-1:], "PREEMPTED"))
                self._clock.sleep(EXPIRY / 2)
            case "expire":
                for _ in range(4):  # in steps: a pause of the scheduler does not count as silence
                    self._clock.sleep(EXPIRY / 2)
                    self._step()
            case "record":
                self.scheduler._record()
            case "adopt":  # the scheduler is killed, and the next one goes on
                self.session.close()
                self._open()
        self._step()
        self._check()

    def _step(self) -> None:
        for attempt in self.executor.wait(0):
            if attempt.status == "planned":
                self.queue.give_back(attempt)
                del self.scheduler._in_flight[attempt.position]
            else:
                self.scheduler._note(attempt)

    def _check(self) -> None:
        held, pilots = self.executor._held, self.executor._fleet.pilots
        by_token = {claim.token: claim.pilot for claim in held}
        assert by_token == {claim.token: name for name in pilots for claim in held.of(name)}
        assert sum(held.count(name) for name in pilots) == len(held) == len(by_token)
        rooms = {name: held.most(name) - held.count(name) for name in pilots}
        assert held.rooms() == {name: room for name, room in rooms.items() if room > 0}
        in_database = {claim.token: claim.pilot for claim in list_claims(self.session.edition)}
        unrecorded = {attempt.token for attempt in self.scheduler._ended}
        assert by_token.keys().isdisjoint(unrecorded)
        assert in_database.keys() == by_token.keys() | unrecorded
        assert by_token.items() <= in_database.items()


@settings(max_examples=25, deadline=None)
@given(events=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(1, 5)), min_size=10, max_size=40))
def test_pilots_fleet_scheduler_and_database_agree_whatever_happens(events: list[tuple[str, int]]) -> None:
    clock = Clock()
    with TemporaryDirectory() as place, virtual_time(clock):
        accounts = Accounts(Path(place), clock)
        for event, number in [("never begin", 1), ("hello", 1), ("hand out", 1), *events]:
            accounts.happen(event, number)
        accounts.session.close()
