"""What holds in every simulation, whatever the policy: nothing lost, no limit exceeded, no node too early, no chance."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.workloads.schedsim import engine
from bakeoff.workloads.schedsim.draws import DEFAULT, Gamma, Tables, load_tables
from bakeoff.workloads.schedsim.engine import Attempt, Engine, Model, TraceEvent
from bakeoff.workloads.schedsim.policies import POLICIES, Action, FifoCheapest, Hedge, Options, Restart
from bakeoff.workloads.schedsim.world import (
    CLASS,
    DECIDE,
    EMBEDDING,
    KINDS,
    LLM,
    PLAN,
    TOKEN,
    Bucket,
    Shape,
    Slots,
    shape,
)  # fmt: skip
from workloads.schedsim.simulated import HARSH, SimpyModel, run

ENDS = ("AttemptFinish", "AttemptFail", "AttemptCancel")


@st.composite
def runs(draw: st.DrawFn) -> Engine:
    """Small simulations of all kinds, also harsh ones: scarce tokens, many failures, tight limits and budgets."""
    return run(
        seed=draw(st.integers(0, 2**64 - 1)),
        policy=draw(st.sampled_from(sorted(POLICIES))),
        workflows=draw(st.integers(1, 6)),
        pdfs=draw(st.integers(1, 4)),
        subqueries=draw(st.integers(0, 3)),
        iters=draw(st.integers(1, 3)),
        heavy_tail_prob=draw(st.sampled_from([0.0, 0.02, 0.3])),
        enable_model_routing=draw(st.booleans()),
        disable_hedging=draw(st.booleans()),
        disable_escalation=draw(st.booleans()),
        spill=draw(st.booleans()),
        hedges_per_node=draw(st.integers(0, 2)),
        max_in_flight=draw(st.sampled_from([1, 3, 200])),
        budget=draw(st.sampled_from([0.0, 0.1, 10.0])),
        legacy_timeout=draw(st.booleans()),
        tiers=draw(st.sampled_from([str(HARSH), None])),
    )


def events(sim: Engine) -> list[TraceEvent]:
    assert sim.trace is not None
    return sim.trace


@settings(max_examples=60, deadline=None)
@given(runs())
def test_every_attempt_that_starts_ends_exactly_once(sim: Engine) -> None:
    open_: set[tuple[int, int, int]] = set()
    for event in events(sim):
        key = (event.workflow, event.node, event.attempt)
        if event.event == "AttemptStart":
            assert key not in open_
            open_.add(key)
        elif event.event in ENDS:
            open_.remove(key)
    assert not open_
    assert len(sim.done) == sim.model.workflows and {w.number for w in sim.done} == set(range(1, len(sim.done) + 1))
    assert all(slots.free == slots.capacity for queue in sim.queues for slots in queue.slots)
    starts = Counter(event.event for event in events(sim))["AttemptStart"]
    assert starts == sum(slots.calls for queue in sim.queues for slots in queue.slots)


@settings(max_examples=60, deadline=None)
@given(runs())
def test_no_slot_no_bucket_and_no_limit_on_all_attempts_is_ever_exceeded(sim: Engine) -> None:
    capacity = {s.name if s.local else s.label: s.capacity for queue in sim.queues for s in queue.slots}
    buckets = {
        s.label: Bucket(s.bucket.rate / 1000, s.bucket.size // TOKEN) for q in sim.queues for s in q.slots if s.bucket
    }
    busy: Counter[str] = Counter()
    for event in events(sim):
        place = event.place
        if event.event == "AttemptStart":
            busy[place] += 1
            assert busy[place] <= capacity[place]
            assert busy.total() <= sim.model.max_in_flight
            assert place not in buckets or buckets[place].take(event.time) == 0, "there was a token"
        elif event.event in ENDS:
            busy[place] -= 1


@settings(max_examples=60, deadline=None)
@given(runs())
def test_no_node_starts_before_all_that_it_depends_on_has_succeeded(sim: Engine) -> None:
    parents: dict[int, list[int]] = defaultdict(list)
    for place, children in enumerate(sim.shape.children):
        for child in children:
            parents[child].append(place)
    succeeded: set[tuple[int, int]] = set()
    for event in events(sim):
        workflow, node = event.workflow, event.node
        iteration, place = divmod(node - 1, sim.shape.size)
        if event.event == "AttemptStart":
            assert (workflow, node) not in succeeded
            assert all((workflow, iteration * sim.shape.size + parent + 1) in succeeded for parent in parents[place])
            assert place or not iteration or (workflow, iteration * sim.shape.size) in succeeded, (
                "DecideNext before Plan"
            )
        elif event.event == "AttemptFinish":
            assert (workflow, node) not in succeeded, "a node succeeds once"
            succeeded.add((workflow, node))
    for done in sim.done:
        nodes = [node for number, node in succeeded if number == done.number]
        if done.status == "succeeded" and sim.shape.subqueries:
            assert len(nodes) == done.iterations * sim.shape.size


@settings(max_examples=60, deadline=None)
@given(runs())
def test_time_only_moves_forward_and_money_adds_up_within_the_budget(sim: Engine) -> None:
    times = [event.time for event in events(sim)]
    assert times == sorted(times) and all(event.duration >= 0 for event in events(sim))
    assert all(workflow.cost <= sim.model.budget for workflow in sim.done)
    paid = sum(slots.calls * slots.price for queue in sim.queues for slots in queue.slots)
    assert paid == sum(workflow.cost for workflow in sim.done)
    for slots in (slots for queue in sim.queues for slots in queue.slots):
        assert 0 <= slots.busy <= slots.capacity * sim.horizon
        assert all(wait >= 0 for wait in slots.waits)


@pytest.mark.parametrize("policy", ["full", "restart_stragglers"])
@pytest.mark.parametrize("changes", [{}, {"budget": 0.5}, {"max_in_flight": 6}, {"tiers": str(HARSH)}], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_a_duplicate_or_restart_never_waits_beside_a_free_slot_and_a_token(
    policy: str, changes: dict[str, Any], seed: int
) -> None:
    sim = run(seed, policy=policy, workflows=6, hedges_per_node=2, heavy_tail_prob=0.3, **changes)
    places = {s.name if s.local else s.label: s for queue in sim.queues for s in queue.slots}
    waits = {place: iter(slots.waits) for place, slots in places.items()}
    restarted = {(e.workflow, e.node, e.attempt + 1) for e in events(sim) if e.remark == "restarted"}
    waiting = defaultdict(list)  # by place: (asked for, started)
    for event in events(sim):
        if event.event == "AttemptStart":
            wait = next(waits[event.place])
            if event.remark == "hedge" or (event.workflow, event.node, event.attempt) in restarted:
                waiting[event.place].append((event.time - wait, event.time))
    free = {place: slots.capacity for place, slots in places.items()}
    buckets = {p: Bucket(s.bucket.rate / 1000, s.bucket.size // TOKEN) for p, s in places.items() if s.bucket}
    for time, group in itertools.groupby(events(sim), lambda event: event.time):
        for event in group:
            if event.event == "AttemptStart":
                free[event.place] -= 1
                if event.place in buckets:
                    buckets[event.place].take(time)
            elif event.event in ENDS:
                free[event.place] += 1
        in_flight = sum(places[place].capacity - left for place, left in free.items())
        for place in waiting:
            token = place not in buckets or copy(buckets[place]).take(time) == 0
            if free[place] and token and in_flight < sim.model.max_in_flight:
                assert not [each for each in waiting[place] if each[0] <= time < each[1]]


class RestartWhereItIs(FifoCheapest):
    """Every tier takes calls; a Plan on the expensive tier is started again after two seconds."""

    tiers = "spill"

    def patience(self, kind: int, where: Slots) -> int | None:
        return 2_000_000 if kind == PLAN and where is not self.sim.queues[LLM].slots[0] else None

    def straggler(self, attempt: Attempt) -> Action:
        return Restart(attempt.where)


def test_a_restart_that_its_workflow_cannot_pay_goes_to_a_cheaper_tier_with_a_free_slot_at_once() -> None:
    base = load_tables()
    tiers = [
        t.model_copy(update={"concurrency": 1, "timeout_ms": 1e6}) if t.provider == "llm_provider" else t
        for t in base.tiers
    ]
    at_once = 0
    for seed in range(40):
        model = Model(
            shape(1, 1), base.model_copy(update={"tiers": tiers}), workflows=2, seed=seed, heavy_tail_prob=0.5,
            budget=90_000,
        )  # fmt: skip
        sim = Engine(model, RestartWhereItIs(Options()), trace=True)
        sim.run()
        busy: Counter[str] = Counter()
        for number, event in enumerate(events(sim)):
            busy[event.place] += (event.event == "AttemptStart") - (event.event in ENDS)
            if event.remark == "restarted" and not busy["llm_provider_0"]:
                at_once += 1
                again = [e for e in events(sim)[number:] if e.event == "AttemptStart" and e.workflow == event.workflow]
                assert (again[0].place, again[0].time) == ("llm_provider_0", event.time)
    assert at_once


def outcome(sim: Engine) -> list[Any]:
    return [sim.trace, [(w.number, w.finished, w.cost, w.status, w.wasted) for w in sim.done]]


ABLATIONS = ("disable_hedging", "disable_escalation", "disable_dag_priority")
NO_OPS = [
    *(("fifo_cheapest", flag) for flag in ABLATIONS),
    *(("dag_cheapest", flag) for flag in ABLATIONS[:2]),
    *(("critical_path", flag) for flag in ABLATIONS[:2]),
    ("dag_escalation", "disable_hedging"),
]


@pytest.mark.parametrize(("policy", "flag"), NO_OPS)
def test_an_ablation_that_takes_nothing_away_changes_nothing(policy: str, flag: str) -> None:
    given = {"policy": policy, "workflows": 8}
    assert outcome(run(**given)) == outcome(run(**given, **{flag: True}))


@pytest.mark.parametrize(
    ("policy", "flag"),
    [(p, f) for p in POLICIES for f in ABLATIONS if (p, f) not in NO_OPS],
)
def test_every_other_ablation_changes_something(policy: str, flag: str) -> None:
    given = {"policy": policy, "workflows": 12, "pdfs": 10, "subqueries": 4}
    assert outcome(run(**given)) != outcome(run(**given, **{flag: True}))


def test_all_policies_decide_differently() -> None:
    made = [outcome(run(policy=policy, workflows=12, pdfs=10, subqueries=4)) for policy in POLICIES]
    assert all(a != b for i, a in enumerate(made) for b in made[:i])


def test_time_scale_changes_nothing() -> None:
    assert outcome(run(time_scale=1)) == outcome(run(time_scale=1000))


def test_policies_meet_the_same_first_attempts() -> None:
    """Common random numbers: what a policy does cannot change how long another node's first attempt takes."""

    def durations(policy: str) -> dict[tuple[int, int], int]:
        made = events(run(policy=policy, disable_hedging=True, workflows=6))
        return {(e.workflow, e.node): e.duration for e in made if e.event == "AttemptFinish" and e.attempt == 1}

    one, other = durations("fifo_cheapest"), durations("full")
    both = one.keys() & other.keys()
    assert len(both) > 0.9 * len(one) and all(one[key] == other[key] for key in both)


@pytest.mark.slow
def test_averaged_over_200_seeds_another_slot_does_not_raise_mean_flow_time() -> None:
    tables = load_tables()
    for provider in ("llm_provider", "embed_provider"):
        more = tables.model_copy(
            update={
                "tiers": [
                    t.model_copy(update={"concurrency": t.concurrency + 1})
                    if t.provider == provider and t.id == 0
                    else t
                    for t in tables.tiers
                ]
            }
        )
        assert mean_flow(more) <= mean_flow(tables)
    pools = tables.pools
    for name in ("cpu", "io"):
        wider = tables.model_copy(update={"pools": pools.model_copy(update={name: getattr(pools, name) + 1})})
        assert mean_flow(wider) <= mean_flow(tables)


def mean_flow(tables: Tables) -> float:
    total = 0
    for seed in range(200):
        sim = Engine(Model(shape(3, 2), tables, workflows=3, seed=seed), FifoCheapest(Options()))
        sim.run()
        total += sum(workflow.finished for workflow in sim.done)
    return total


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_same_model_in_simpy_ends_every_workflow_at_the_same_microsecond(seed: int) -> None:
    model = Model(shape(10, 4), load_tables(), workflows=15, seed=seed)
    sim = Engine(model, FifoCheapest(Options()))
    sim.run()
    theirs = SimpyModel(model)
    assert theirs.run() == {workflow.number: workflow.finished for workflow in sim.done}
    assert theirs.events == sim.happened


class Duplicates(FifoCheapest):
    """`fifo_cheapest`, and an LLM call that takes longer than `AFTER` gets a duplicate on the other tier."""

    AFTER = 1_000_000

    def patience(self, kind: int, where: Slots) -> int | None:
        return self.AFTER if CLASS[kind] == LLM else None

    def straggler(self, attempt: Attempt) -> Action:
        cheapest, other = self.sim.queues[LLM].slots
        return Hedge(other) if attempt.where is cheapest else None


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_same_model_in_simpy_agrees_when_duplicates_wait_for_a_scarce_tier(seed: int) -> None:
    base = load_tables()
    few = {("llm_provider", 0): 8, ("llm_provider", 1): 1}  # a queue of duplicates, and often none of new calls
    tiers = [
        t.model_copy(update={"concurrency": few.get((t.provider, t.id), t.concurrency), "rate": 1000, "burst": 1000})
        for t in base.tiers
    ]
    model = Model(
        shape(4, 3), base.model_copy(update={"tiers": tiers}), workflows=10, seed=seed, heavy_tail_prob=0.2,
        heavy_tail_mult=20.0, budget=10**9,
    )  # fmt: skip
    sim = Engine(model, Duplicates(Options()))
    sim.run()
    assert {workflow.status for workflow in sim.done} == {"succeeded"}
    assert max(sim.queues[LLM].slots[1].waits) > 1_000_000 and sim.queues[LLM].slots[1].cancelled
    theirs = SimpyModel(model, hedge_after=Duplicates.AFTER)
    assert theirs.run() == {workflow.number: workflow.finished for workflow in sim.done}
    assert theirs.events == sim.happened


def mmc_wait(servers: int, load: float, mean: float) -> float:
    """The mean wait of M/M/c by Erlang's formula."""
    offered = servers * load
    last = offered**servers / math.factorial(servers) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    return waits * mean / (servers * (1 - load))


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (4, 0.8)])
def test_mean_waits_are_those_of_queueing_theory(servers: int, load: float) -> None:
    import numpy as np

    jobs, mean = 25_000, 100_000
    alone = Shape(1, 1, (DECIDE,), ((),), (0,))
    base = load_tables()
    tiers = [
        t.model_copy(update={"concurrency": servers, "rate": 1e6, "burst": 10**6, "p_fail": 0.0, "timeout_ms": 1e9})
        for t in base.tiers
    ]
    latency = {**base.latency, KINDS[DECIDE]: Gamma(law="gamma", shape=1, scale=mean / 1000)}
    tables = base.model_copy(update={"tiers": tiers, "latency": latency})
    waits = []
    for seed in range(2):
        gaps = np.random.default_rng(seed).exponential(mean / servers / load, jobs)
        arrivals = np.maximum(1, np.cumsum(gaps).astype(int)).tolist()
        model = Model(alone, tables, jobs, 1, seed, 0.0, 1.0, budget=10**12, max_in_flight=10**6, arrivals=arrivals)
        sim = Engine(model, FifoCheapest(Options()))
        sim.run()
        waits.append(np.mean(sim.queues[LLM].slots[0].waits[jobs // 10 :]))
    assert np.mean(waits) == pytest.approx(mmc_wait(servers, load, mean), rel=0.08)


def test_a_node_that_keeps_failing_ends_its_workflow_as_failed() -> None:
    sim = run(tiers=str(HARSH), workflows=30, seed=5)
    failed = [workflow for workflow in sim.done if workflow.status == "failed"]
    assert failed and any(workflow.status == "succeeded" for workflow in sim.done)
    last = {event.workflow: event for event in events(sim) if event.event == "WorkflowDone"}
    assert all(last[workflow.number].remark == "failed" for workflow in failed)
    after = [event for event in events(sim) for w in failed if event.workflow == w.number and event.time > w.finished]
    assert all(event.place in ("cpu", "io") and event.remark == "unwanted" for event in after), (
        "only local work runs on"
    )


def test_a_budget_is_kept_and_what_cannot_be_paid_ends_the_workflow() -> None:
    sim = run(budget=0.1, policy="full")
    assert {workflow.status for workflow in sim.done} == {"over_budget"}
    assert all(0.05e6 < workflow.cost <= 0.1e6 for workflow in sim.done)


def test_a_heavy_tail_is_cut_at_the_timeout_unless_the_old_order_is_asked_for() -> None:
    given = {"workflows": 20, "heavy_tail_prob": 0.2, "policy": "dag_cheapest"}
    cut, old = run(**given), run(**given, legacy_timeout=True)

    def longest(sim: Engine) -> int:
        return max(event.duration for event in events(sim) if event.event in ENDS and event.place == "llm_provider_0")

    assert longest(cut) == 30_000_000 < longest(old)
    tier = lambda sim: sim.queues[CLASS[DECIDE]].slots[0]  # noqa: E731
    assert tier(cut).timeouts > 20 * tier(old).timeouts


@pytest.mark.parametrize("policy", ["fifo_cheapest", "dag_cheapest", "critical_path"])
def test_strict_cheapest_uses_one_tier_and_spill_uses_both(policy: str, tmp_path: Path) -> None:
    wide = tmp_path / "wide.toml"  # the default pools are so small that embeddings hardly ever queue
    wide.write_text(DEFAULT.read_text().replace("cpu = 4", "cpu = 50").replace("io = 2", "io = 50"))
    for spill in (False, True):
        sim = run(policy=policy, spill=spill, workflows=8, pdfs=10, tiers=str(wide))
        assert all(sim.queues[number].slots[0].calls for number in (LLM, EMBEDDING))
        assert [sim.queues[number].slots[1].calls > 0 for number in (LLM, EMBEDDING)] == [spill, spill]


def test_without_routing_any_tier_is_used_and_nothing_is_hedged() -> None:
    sim = run(policy="full", enable_model_routing=False, workflows=8)
    assert sim.queues[LLM].slots[1].calls and not any(workflow.hedges for workflow in sim.done)


def test_hedges_start_after_service_start_on_another_tier_once_and_losers_are_paid() -> None:
    sim = run(policy="full", workflows=30, pdfs=10, subqueries=4)
    started = {(e.workflow, e.node, e.attempt): e for e in events(sim) if e.event == "AttemptStart"}
    hedges = [event for event in events(sim) if event.event == "HedgeLaunched"]
    assert len(hedges) == sum(workflow.hedges for workflow in sim.done) > 10
    assert max(Counter((hedge.workflow, hedge.node) for hedge in hedges).values()) == 1
    for hedge in hedges:
        primary = started[hedge.workflow, hedge.node, hedge.attempt - 1]
        assert primary.place != hedge.place and hedge.time > primary.time + 500_000
    lost = [event for event in events(sim) if event.remark == "hedge_loser"]
    assert lost and sum(event.duration for event in lost) == sum(workflow.wasted for workflow in sim.done)
    won = {(event.workflow, event.node): event.time for event in events(sim) if event.event == "AttemptFinish"}
    assert all(won[event.workflow, event.node] == event.time for event in lost), "cancelled at once"


def test_a_restart_gives_up_the_first_attempt_and_local_work_is_never_given_up() -> None:
    sim = run(policy="restart_stragglers", workflows=30, pdfs=10, subqueries=4)
    restarted = [event for event in events(sim) if event.remark == "restarted"]
    assert len(restarted) == sum(workflow.restarts for workflow in sim.done) > 10
    assert not any(event.place in ("cpu", "io") for event in restarted)
    assert any(event.remark == "unwanted" and event.place in ("cpu", "io") for event in events(sim))


def test_a_workflow_with_more_nodes_than_fit_into_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_NODE", 20)
    with pytest.raises(UsageError, match="20 nodes at most"):
        run(pdfs=3, subqueries=2)
