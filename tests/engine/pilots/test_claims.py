"""The claim layer, over a transport without processes: what counts, what is dropped, what is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

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
    Report,
    Returned,
    Upward,
)
from bakeoff.engine.pilots.transport import PilotSetup
from bakeoff.engine.queue import Queue
from bakeoff.engine.scheduler import Scheduler, SessionSummary, Switch
from bakeoff.engine.session import Options, Session, open_session
from bakeoff.errors import BakeoffError, LeaseHeld
from bakeoff.records.claims import Claims, arms_by_kind, list_claims, list_nodes
from bakeoff.records.run import Attempt
from bakeoff.spec.load import load_plan
from support.processes import Lab
from support.simulated_cluster import Clock, virtual_time

EXPIRY = 0.3
SETUP = PilotSetup(
    workload="command", dialect="native", experiment="trial", edition="x", base="/", slots=2, limits={"grace": 0.1},
    resources={}, gpus=None, env={}, fresh=False, checkpoints=True, settle_after=1, code="code", heartbeat=0.05,
)  # fmt: skip


class Wire:
    """A transport and a launcher in one, without pilots: a test says what they do."""

    def __init__(self) -> None:
        self.arriving: list[tuple[str, Upward]] = []
        self.sent: list[tuple[str, Downward]] = []
        self.started: list[str] = []
        self.avoided: list[str] = []
        self.over: dict[str, str] = {}
        self.on_orders: Callable[[str, list[Order]], None] = lambda pilot, orders: None
        self.pilots: list[str] = []

    def known(self) -> list[str]:
        return self.pilots

    def open(self, pilots: Mapping[str, PilotSetup]) -> None:
        pass

    def receive(self) -> list[tuple[str, Upward]]:
        arriving, self.arriving = self.arriving, []
        return arriving

    def send(self, pilot: str, messages: Sequence[Downward]) -> None:
        for message in messages:
            self.sent.append((pilot, message))
            if isinstance(message, Orders):
                self.on_orders(pilot, message.orders)

    def recorded(self, tokens: Sequence[str]) -> None:
        pass

    def forget(self, pilot: str) -> None:
        pass

    def start(self, pilots: Sequence[str], *, avoid: Sequence[str]) -> None:
        self.started += pilots
        self.avoided = list(avoid)

    def ended(self) -> Mapping[str, str]:
        return self.over

    def explained(self, why: str) -> bool:
        return why == "PREEMPTED"

    def log(self, pilot: str) -> str:
        return "the last line of its log"

    def close(self) -> None:
        pass

    def hello(self, pilot: str, host: str = "n1", most: int = 4, refusal: str = "") -> None:
        self.arriving.append((pilot, Hello(NodeFacts(host, "a kind", "code"), 2, most, refusal)))

    def orders(self) -> list[tuple[str, Order]]:
        return [(pilot, order) for pilot, sent in self.sent if isinstance(sent, Orders) for order in sent.orders]


def result(order: Order, score: float = 1.0) -> Report:
    attempt = Attempt(**{name: getattr(order.attempt, name) for name in Attempt.__struct_fields__})
    attempt.status, attempt.metrics = "succeeded", {"score": score}
    attempt.started_at, attempt.ended_at = 1.0, 2.0
    return Report(order.token, attempt)


@pytest.fixture(autouse=True)
def clock() -> Iterator[Clock]:
    """Expiry and heartbeats pass while the scheduler sleeps, and not because this machine is slow."""
    clock = Clock()
    with virtual_time(clock):
        yield clock


@pytest.fixture
def session(lab: Lab) -> Iterator[Session]:
    lab.experiment("seeds = 4\nretries = { lost = 3 }\nparams = { command = 'true' }\n")
    with closing(open_session(load_plan(lab.place / "trial.toml"), Options(lab.root))) as session:
        yield session


class Bench:
    """A scheduler's parts, driven step by step."""

    def __init__(self, session: Session, wire: Wire | None = None, pilots: int = 1) -> None:
        self.wire = wire or Wire()
        self.session = session
        self.edition = session.edition
        self.claims = Claims(session.edition, "wire", session.number)
        self.executor = PilotExecutor(
            SETUP, session.edition.paths, self.claims, self.wire, self.wire, pilots=pilots, expiry=EXPIRY
        )
        claimed = {claim.position for claim in list_claims(session.edition)}
        self.queue = Queue(session.plan, session.edition, order_seed=session.order_seed, claimed=claimed)

    def scheduler(self, switch: Switch | None = None) -> Scheduler:
        return Scheduler(
            self.session.plan, self.edition, self.session.number, self.executor, self.queue, switch=switch or Switch()
        )  # fmt: skip

    def fill(self) -> None:
        while self.executor.capacity() > 0 and (attempt := self.queue.take()) is not None:
            self.executor.start(attempt)

    def ready(self, *pilots: str, host: str = "n1") -> None:
        """These pilots are there and have got attempts."""
        self.executor.wait(0)
        for pilot in pilots or self.wire.started:
            self.wire.hello(pilot, host)
        self.executor.wait(0)
        self.fill()
        self.executor.wait(0)

    def wait_for(self, number: int) -> list[Attempt]:
        back: list[Attempt] = []
        for _ in range(500):
            back += self.executor.wait(0.01)
            if len(back) >= number:
                return back
        raise AssertionError(f"{len(back)} of {number} attempts came back")


def test_a_claim_is_durable_before_its_attempt_is_handed_out(session: Session) -> None:
    bench = Bench(session)
    seen: list[bool] = []

    def look(pilot: str, orders: list[Order]) -> None:
        claimed = {claim.token: claim for claim in list_claims(session.edition)}
        seen.extend(order.token in claimed and claimed[order.token].pilot == pilot for order in orders)

    bench.wire.on_orders = look
    bench.ready()
    assert seen == [True] * 4
    tokens = [order.token for _, order in bench.wire.orders()]
    assert len(set(tokens)) == 4 and all(token.startswith("1.") for token in tokens)


def test_only_a_report_with_the_current_token_counts_and_others_are_counted(session: Session) -> None:
    bench = Bench(session)
    bench.ready()
    (pilot, order), *_ = bench.wire.orders()
    forged = result(order, 666.0)
    bench.wire.arriving = [(pilot, Report("1.0.1.0123456789abcdef", forged.attempt))]
    assert bench.executor.wait(0) == []
    bench.wire.arriving = [(pilot, result(order, 7.0)), (pilot, result(order, 8.0))]
    (attempt,) = bench.wait_for(1)
    assert attempt.metrics == {"score": 7.0}
    session.edition.finish([attempt], session.number)
    bench.executor.recorded([attempt])
    assert session.edition.run(0).metrics == {"score": 7.0}
    assert order.token not in {claim.token for claim in list_claims(session.edition)}
    bench.wire.arriving = [(pilot, result(order, 9.0))]
    bench.executor.wait(0)
    bench.executor._fleet.record(float("inf"))
    (node,) = list_nodes(session.edition)
    assert node.late >= 2 and node.host == "n1", "the forged one and the repeated one"


def test_silence_loses_the_attempts_and_what_comes_later_is_dropped(session: Session, clock: Clock) -> None:
    bench = Bench(session)
    began = clock.monotonic()
    bench.ready()
    (pilot, order), *_ = bench.wire.orders()
    lost = bench.wait_for(4)
    assert EXPIRY <= clock.monotonic() - began < EXPIRY + 0.1
    assert {(attempt.status, attempt.lost) for attempt in lost} == {("infra_error", "yes")}
    bench.wire.arriving = [(pilot, result(order))]
    assert bench.executor.wait(0) == []
    abandon = (pilot, Abandon([order.token]))
    bench.wire.arriving = [(pilot, Beat([(order.token, 1.0)], 4))]
    bench.executor.wait(0)
    assert abandon not in bench.wire.sent, "the beat may be older than a report that was read before it"
    bench.wire.arriving = [(pilot, Beat([(order.token, 1.0)], 4))]
    bench.executor.wait(0)
    assert abandon in bench.wire.sent, "a pilot that was cut off ends its old runs"


def test_a_pilot_that_falls_silent_is_one_loss_whenever_its_claims_were_handed_out(session: Session) -> None:
    bench = Bench(session)
    bench.executor.wait(0)
    (pilot,) = bench.wire.started
    bench.wire.hello(pilot, most=1)
    for most in range(2, 6):
        bench.executor.wait(0.02)
        bench.fill()
        bench.executor.wait(0.02)
        bench.wire.arriving = [(pilot, Beat([], most))]
    assert len({claim.heard for claim in bench.executor._held}) == 4
    assert len(bench.wait_for(4)) == 4
    bench.executor._fleet.record(float("inf"))
    (node,) = list_nodes(session.edition)
    assert node.lost == 1 and not bench.executor._fleet.left_out


def test_beats_keep_claims_and_only_those_they_name(session: Session, clock: Clock) -> None:
    bench = Bench(session)
    bench.ready()
    (pilot, kept), *others = bench.wire.orders()
    lost: list[Attempt] = []
    until = clock.monotonic() + 3 * EXPIRY
    while clock.monotonic() < until:
        bench.wire.arriving.append((pilot, Beat([(kept.token, 1.0)], 4)))
        lost += bench.executor.wait(0.02)
    assert sorted(attempt.position for attempt in lost) == [order.attempt.position for _, order in others]


def test_a_scheduler_that_was_paused_reads_before_it_expires_anything(
    session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bakeoff.engine.pilots.executor._PAUSE", 0.2)
    bench = Bench(session)
    bench.ready()
    (pilot, order), *_ = bench.wire.orders()
    clock.sleep(2 * EXPIRY)  # the scheduler stood still; one pilot beat meanwhile, and one report waits
    bench.wire.arriving = [(pilot, result(order))]
    assert [attempt.status for attempt in bench.executor.wait(0)] == ["succeeded"]
    assert bench.executor.wait(0) == [], "nobody could reach it, so silence does not count"


def test_a_run_that_is_lost_twice_while_its_neighbours_survive_has_failed(session: Session) -> None:
    bench = Bench(session, pilots=2)
    wire = bench.wire

    def pilots_do(pilot: str, orders: list[Order]) -> None:
        for order in orders:
            if order.attempt.position != 2:
                wire.arriving.append((pilot, result(order)))
            else:  # it begins, and then nothing more is heard of this pilot
                wire.arriving.append((pilot, Beat([(order.token, 1.0)], 0)))
                silent.add(pilot)

    silent: set[str] = set()
    wire.on_orders = pilots_do
    scheduler = bench.scheduler()
    receive = wire.receive

    def with_beats() -> list[tuple[str, Upward]]:
        for pilot in wire.started:
            if pilot not in greeted:
                greeted.add(pilot)
                wire.hello(pilot, most=1)
            elif pilot not in silent:
                wire.arriving.append((pilot, Beat([], 1)))
        return receive()

    greeted: set[str] = set()
    wire.receive = with_beats  # type: ignore[method-assign]
    summary = scheduler.run()
    assert summary.statuses == {"succeeded": 3, "failed": 1}
    run = session.edition.run(2)
    assert run.status == "failed" and "lost twice while other runs on its node survived" in str(run.error)
    assert [entry["lost"] for entry in session.edition.attempts(2)] == ["alone", "alone"]
    assert [entry["status"] for entry in session.edition.attempts(2)] == ["infra_error", "failed"]


def test_losses_have_their_own_budget_and_go_back_at_once(session: Session) -> None:
    bench = Bench(session)
    wire = bench.wire

    def preempted(pilot: str, orders: list[Order]) -> None:
        wire.arriving.append((pilot, Bye("preempted", [order.token for order in orders])))

    wire.on_orders = preempted
    receive = wire.receive

    def with_hello() -> list[tuple[str, Upward]]:
        for pilot in wire.started:
            if pilot not in greeted:
                greeted.add(pilot)
                wire.hello(pilot)
        return receive()

    greeted: set[str] = set()
    wire.receive = with_hello  # type: ignore[method-assign]
    summary = bench.scheduler().run()
    assert summary.statuses == {"infra_error": 4} and summary.attempts == 16, "retries.lost = 3"
    assert all(entry["lost"] == "yes" for entry in session.edition.attempts(0))


def test_a_node_that_was_lost_three_times_in_a_row_is_left_out(session: Session) -> None:
    bench = Bench(session)
    for number in range(1, 4):
        bench.executor.wait(SETUP.heartbeat)
        bench.wire.hello(f"1-{number}", host="bad", most=1)
        bench.executor.wait(0)
        bench.fill()
        bench.executor.wait(0)
        (attempt,) = bench.wait_for(1)
        session.edition.finish([attempt], session.number)
        bench.wire.over[f"1-{number}"] = "FAILED"
    bench.executor.wait(SETUP.heartbeat)
    assert bench.wire.avoided == ["bad"]
    bench.wire.hello(bench.wire.started[-1], host="bad")
    with pytest.raises(BakeoffError, match=r"every node .* is left out .bad: was lost 3 times in a row"):
        bench.executor.wait(0)


def cannot_start(order: Order) -> Report:
    report = result(order)
    report.attempt.status, report.attempt.metrics = "infra_error", {}
    report.attempt.error = "cannot start: No such file or directory: 'solver'"
    return report


def with_nodes(session: Session, seats: Mapping[str, int], sick: str) -> tuple[SessionSummary, list[tuple[str, int]]]:
    """Run with a pilot on each host of `seats`, one of which can start nothing; returns (host, position) of each order."""
    bench = Bench(session, pilots=len(seats))
    wire, receive = bench.wire, bench.wire.receive
    hosts: dict[str, str] = {}

    def with_beats() -> list[tuple[str, Upward]]:
        for pilot in wire.started:
            if pilot in hosts:
                wire.arriving.append((pilot, Beat([], seats[hosts[pilot]])))
            elif free := [host for host in seats if host not in hosts.values()]:
                hosts[pilot] = free[0]
                wire.hello(pilot, free[0], most=seats[free[0]])
        return receive()

    def answer(pilot: str, orders: list[Order]) -> None:
        wire.arriving += [(pilot, cannot_start(order) if hosts[pilot] == sick else result(order)) for order in orders]

    wire.receive = with_beats  # type: ignore[method-assign]
    wire.on_orders = answer
    summary = bench.scheduler().run()
    return summary, [(hosts[pilot], order.attempt.position) for pilot, order in wire.orders()]


@pytest.mark.parametrize("healthy_seats", [1, 4])
def test_a_run_that_a_node_could_not_start_is_tried_on_another_one(session: Session, healthy_seats: int) -> None:
    summary, orders = with_nodes(session, {"sick": 1, "healthy": healthy_seats}, sick="sick")
    assert summary.statuses == {"succeeded": 4}
    on_sick = [position for host, position in orders if host == "sick"]
    assert on_sick
    assert len(on_sick) == len(set(on_sick))


def test_a_node_that_starts_nothing_is_left_out_after_three_runs(lab: Lab) -> None:
    lab.experiment("seeds = 30\nparams = { command = 'true' }\n")
    with closing(open_session(load_plan(lab.place / "trial.toml"), Options(lab.root))) as session:
        summary, orders = with_nodes(session, {"sick": 1, "healthy": 1}, sick="sick")
    assert summary.statuses == {"succeeded": 30}
    assert sum(host == "sick" for host, _ in orders) == 3


def test_what_no_node_can_start_is_missing_after_its_retries(session: Session) -> None:
    summary, orders = with_nodes(session, {"only": 2}, sick="only")
    assert summary.statuses == {"infra_error": 4}
    assert len(orders) == 12, "retries.infra = 2"


def test_runs_of_a_node_that_was_cut_off_are_not_handed_to_it_again(session: Session, clock: Clock) -> None:
    """Its last beat was written before it had read its orders, so the claims on them expire a moment before it does."""
    bench = Bench(session, pilots=2)
    wire = bench.wire
    bench.executor.wait(0)
    cut, other = wire.started
    wire.hello(cut, "n1")
    wire.hello(other, "n2")
    bench.executor.wait(0)
    held: dict[str, Order] = {}

    def takes(pilot: str, orders: list[Order]) -> None:
        if pilot == cut and not taken:
            taken.append(pilot)
            began.append(clock.monotonic())
        if pilot == other:
            held.update((order.token, order) for order in orders)

    taken: list[str] = []
    began: list[float] = []
    wire.on_orders = takes
    receive = wire.receive

    def with_beats() -> list[tuple[str, Upward]]:
        if taken == [cut] and clock.monotonic() > began[0] + 0.03:
            taken.append("and its last beat")
            wire.arriving.append((cut, Beat([], 4)))
        if len(held) == 4:  # it has got the runs of the node that was lost, too
            wire.arriving += [(other, result(order)) for order in held.values()]
        wire.arriving.append((other, Beat([(token, 1.0) for token in held], 4)))
        return receive()

    wire.receive = with_beats  # type: ignore[method-assign]
    summary = bench.scheduler().run()
    assert summary.statuses == {"succeeded": 4}
    assert sorted(len(session.edition.attempts(position)) for position in range(4)) == [1, 1, 2, 2]


def test_pilots_that_are_cut_off_with_their_node_count_as_one_loss_and_not_as_neighbours(session: Session) -> None:
    bench = Bench(session, pilots=3)
    bench.executor.wait(0)
    first, second, third = bench.wire.started
    for pilot in bench.wire.started:
        bench.wire.hello(pilot, most=2)
    bench.executor.wait(0)
    bench.fill()
    bench.executor.wait(0)
    given: dict[str, list[tuple[str, float | None]]] = {pilot: [] for pilot in bench.wire.started}
    for pilot, order in bench.wire.orders():
        given[pilot].append((order.token, 1.0))
    for pilot in (first, second, third):  # they beat one after another, and then the link is cut
        bench.wire.arriving.append((pilot, Beat(given[pilot], 2)))
        bench.executor.wait(SETUP.heartbeat * 0.4)
    lost = bench.wait_for(4)
    assert {attempt.lost for attempt in lost} == {"yes"}
    assert bench.wire.avoided == [], "the node was lost once, and not once for each pilot"


def test_a_pilot_that_came_to_a_node_after_the_loss_is_no_neighbour_that_survived(session: Session) -> None:
    bench = Bench(session, pilots=2)
    bench.executor.wait(0)
    lost, later = bench.wire.started
    bench.wire.hello(lost)
    bench.executor.wait(0)
    bench.fill()
    bench.executor.wait(0)
    bench.wire.arriving.append((lost, Beat([(order.token, 1.0) for _, order in bench.wire.orders()], 4)))
    bench.executor.wait(0.01)
    bench.wire.hello(later, most=0)  # the machine crashed, and is back
    back: list[Attempt] = []
    while len(back) < 4:
        bench.wire.arriving.append((later, Beat([], 0)))
        back += bench.executor.wait(0.02)
    assert {attempt.lost for attempt in back} == {"yes"}


def test_a_silent_pilot_loses_what_it_got_last_as_well(session: Session) -> None:
    """What was handed to it after its last message does not wait for an expiry of its own."""
    bench = Bench(session)
    bench.executor.wait(0)
    bench.wire.hello(bench.wire.started[0])
    bench.executor.wait(0)
    for _ in range(2):
        attempt = bench.queue.take()
        assert attempt is not None
        bench.executor.start(attempt)
    bench.executor.wait(0.3 * EXPIRY)
    bench.fill()
    assert len(bench.wait_for(1)) == 4, "all of them come back in one go"


def test_a_late_report_is_settled_so_that_its_node_need_not_keep_it(session: Session) -> None:
    bench = Bench(session)
    bench.ready()
    (pilot, order), *_ = bench.wire.orders()
    bench.wait_for(4)
    settled: list[str] = []
    bench.wire.recorded = settled.extend  # type: ignore[method-assign,assignment]
    bench.wire.arriving = [(pilot, result(order))]
    bench.executor.wait(0)
    assert settled == [order.token]


def test_an_idle_pilot_that_fell_silent_is_given_nothing_until_it_speaks(session: Session, clock: Clock) -> None:
    bench = Bench(session)
    bench.executor.wait(0)
    (pilot,) = bench.wire.started
    bench.wire.hello(pilot)
    bench.executor.wait(0)
    assert bench.executor.capacity() == 4
    until = clock.monotonic() + 1.5 * EXPIRY
    while clock.monotonic() < until:
        bench.executor.wait(0.02)
    assert bench.executor.capacity() == 0 and len(bench.wire.started) == 2, "another one is started"
    bench.wire.arriving = [(pilot, Beat([], 4))]
    bench.executor.wait(0)
    assert bench.executor.capacity() == 4


def test_what_a_pilot_gives_back_is_not_an_attempt(session: Session) -> None:
    bench = Bench(session)
    bench.ready()
    pilot = bench.wire.started[0]
    bench.wire.arriving = [(pilot, Returned([order.token for _, order in bench.wire.orders()]))]
    back = bench.wait_for(4)
    assert all(attempt.status == "planned" and attempt.token is None for attempt in back)
    assert list_claims(session.edition) == []


def test_pilots_that_refuse_end_the_session_with_the_reason(session: Session) -> None:
    bench = Bench(session)
    with pytest.raises(BakeoffError, match="cannot start: n1 has other code"):
        for _ in range(20):
            bench.executor.wait(0)
            for pilot in bench.wire.started:
                bench.wire.hello(pilot, most=0, refusal="n1 has other code")
                bench.wire.arriving.append((pilot, Bye("n1 has other code", expected=False)))


def test_a_claim_that_another_scheduler_ended_cannot_be_recorded_again(session: Session) -> None:
    bench = Bench(session)
    bench.ready()
    (pilot, order), *_ = bench.wire.orders()
    bench.wire.arriving = [(pilot, result(order))]
    (attempt,) = bench.wait_for(1)
    bench.claims.drop([attempt])  # what a scheduler that took over does when it records the run
    with pytest.raises(LeaseHeld, match="taken over"):
        session.edition.finish([attempt], session.number)
    assert session.edition.attempts(attempt.position) == []


def test_the_next_session_adopts_claims_and_takes_in_what_finished(lab: Lab) -> None:
    lab.experiment("seeds = 4\nparams = { command = 'true' }\n")
    wire = Wire()
    with closing(open_session(load_plan(lab.place / "trial.toml"), Options(lab.root))) as first:
        Bench(first, wire).ready()  # and then its scheduler is killed
        orders = wire.orders()
    wire.pilots = list(wire.started)
    with closing(open_session(load_plan(lab.place / "trial.toml"), Options(lab.root))) as second:
        bench = Bench(second, wire)
        for pilot in wire.pilots:
            wire.hello(pilot)
        wire.arriving += [(pilot, result(order)) for pilot, order in orders[:3]]
        scheduler = bench.scheduler()
        scheduler.adopt(list_claims(second.edition))
        wire.on_orders = lambda pilot, orders: wire.arriving.extend((pilot, result(order)) for order in orders)
        wire.sent.clear()
        receive = wire.receive
        wire.receive = lambda: [*receive(), *((pilot, Beat([], 4)) for pilot in wire.pilots)]  # type: ignore[method-assign]
        summary = scheduler.run()
        assert summary.statuses == {"succeeded": 4}
        assert [order.attempt.position for _, order in wire.orders()] == [3], "only the one that was lost is done again"
        assert [len(second.edition.attempts(position)) for position in range(4)] == [1, 1, 1, 2]


def test_claims_and_nodes_are_the_same_in_postgres(
    lab: Lab, postgres_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAKEOFF_DATABASE_URL", postgres_url())
    lab.experiment("seeds = 4\nretries = { lost = 3 }\nparams = { command = 'true' }\n")
    with closing(open_session(load_plan(lab.place / "trial.toml"), Options(lab.root))) as session:
        bench = Bench(session)
        bench.ready()
        (pilot, order), *others = bench.wire.orders()
        assert len(list_claims(session.edition)) == 4
        bench.wire.arriving = [(pilot, result(order)), (pilot, Returned([other.token for _, other in others]))]
        done = next(attempt for attempt in bench.wait_for(4) if attempt.status == "succeeded")
        session.edition.finish([done], session.number)
        with pytest.raises(LeaseHeld, match="taken over"):
            session.edition.finish([done], session.number)
        bench.executor._fleet.record(float("inf"))
        bench.executor._fleet.record(float("inf"))
        assert list_claims(session.edition) == [] and len(session.edition.attempts(done.position)) == 1
        assert [(node.host, node.kind) for node in list_nodes(session.edition)] == [("n1", "a kind")]
        assert arms_by_kind(session.edition) == {"a kind": {"default": 1}}
        assert session.edition.attempts_by_node() == {pilot: {"succeeded": 1}} and session.edition.losses_alone(0) == 0
