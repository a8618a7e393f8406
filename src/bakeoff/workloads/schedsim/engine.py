"""The simulation: a heap of events in integer microseconds of virtual time, ordered by (time, sequence).

Nothing here draws from a shared stream, reads a clock or iterates over a set, so the same arguments give the same
result everywhere. The loop is plain Python written for speed: tuples on heapq, slots, whole numbers, and the way of an
attempt that simply succeeds (`_start`, `_finish`, `_serve`) with few calls; what is rare has functions of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from bakeoff.spec.plan import uncollected
from bakeoff.workloads.schedsim.attempt import ENDED, FAILED, OK, RUNNING, TIMEOUT, UNWANTED, Attempt, Facts
from bakeoff.workloads.schedsim.draws import stream
from bakeoff.workloads.schedsim.hashing import GOLDEN, MASK, mix, stops
from bakeoff.workloads.schedsim.model import Model
from bakeoff.workloads.schedsim.policies.interface import Hedge, Policy, Restart, Wait
from bakeoff.workloads.schedsim.resources import Entry, Queue, Slots, build
from bakeoff.workloads.schedsim.workflow import CLASS, DECIDE, NODES, PLAN, Workflow

LOOKAHEAD = 64
"""How many ready calls are asked whether they may go to a dearer tier before its slot stays free."""
_LOW = 0xFFFFFFFF
_TIES = 2 * NODES
"""Bits below a priority: workflow number, then node."""

Event = tuple[int, int, Callable[[Any], None], Any]
TraceEvent = tuple[str, int, int, int, int, int, str, int, str]
"""(event, time, workflow, node id or 0, kind or -1, attempt, place, duration, remark)"""


class Engine:
    __slots__ = (
        "_asks", "_budget", "_chains_only", "_children", "_counts", "_events", "_evidence_seed", "_finishes", "_gone",
        "_hedged", "_held", "_kinds", "_limited", "_observes", "_open", "_plain", "_priority", "_queue_of", "_seed",
        "_sequence", "_service", "_size", "_slots", "_spills", "_watches", "_watches_local", "done", "horizon",
        "model", "now", "policy", "queues", "shape", "trace",
    )  # fmt: skip
    """Without them the interpreter looks up so many attributes the slow way."""

    def __init__(self, model: Model, policy: Policy, *, trace: bool = False) -> None:
        self.model = model
        self.policy = policy
        self.shape = model.shape
        self.queues = build(model.tables, by_price=policy.options.routing)
        self.now = 0
        self.horizon = 0
        """When the last workflow ended."""
        self.done: list[Workflow] = []
        """Workflows in the order in which they ended."""
        self.trace: list[TraceEvent] | None = [] if trace else None
        self._service = model.service()
        self._events: list[Event] = []
        self._sequence = 0
        self._open = model.workflows
        self._slots = [slots for queue in self.queues for slots in queue.slots]
        self._limited = sum(slots.capacity for slots in self._slots) > model.max_in_flight
        self._held = False
        self._gone: set[int] = set()
        """Sequence numbers of events that will not happen: the ends of cancelled attempts."""
        self._hedged: dict[tuple[int, int], int] = {}
        self._seed = model.seed & MASK
        self._evidence_seed = mix(self._seed + GOLDEN & MASK) if model.mixed_evidence else self._seed
        self._kinds = model.shape.kinds
        self._size = model.shape.size
        self._children = model.shape.children
        self._counts = model.shape.counts
        self._queue_of = [self.queues[number] for number in CLASS]
        self._spills = policy.tiers == "spill" or not policy.options.routing
        self._asks = policy.tiers == "ask" and not self._spills
        self._watches = type(policy).patience is not Policy.patience
        self._watches_local = policy.watches_local
        self._observes = policy.observes
        self._priority = policy.priority
        self._budget = model.budget
        self._chains_only = not model.shape.subqueries
        self._plain = not model.legacy_timeout
        self._finishes = self._finish  # bound once

    @property
    def in_flight(self) -> int:
        return sum(slots.capacity - slots.free for slots in self._slots)

    @property
    def happened(self) -> int:
        """Events: nodes that became ready, attempts that started, attempts that ended."""
        attempts = sum(slots.calls for slots in self._slots)
        return 3 * attempts - sum(workflow.hedges + workflow.restarts for workflow in self.done)

    # -- the loop

    def run(self) -> None:
        with uncollected():
            self.policy.begin(self)
            self._arrivals()
            events = self._events
            gone = self._gone
            while events:
                self.now, number, happens, what = heappop(events)
                if gone and number in gone:
                    gone.remove(number)
                    continue
                happens(what)
                if self._held:  # the limit on all attempts kept something from starting
                    self._held = False
                    self._serve_all()

    def _at(self, time: int, happens: Callable[[Any], None], what: Any) -> None:
        self._sequence += 1
        heappush(self._events, (time, self._sequence, happens, what))

    def _arrivals(self) -> None:
        for number, time in enumerate(self.model.arrivals or [0] * self.model.workflows, 1):
            workflow = Workflow(number, stream(self._seed, number), time)
            if time:
                self._at(time, self._arrive, workflow)
            else:
                self._grow(workflow)
        self._serve_all()

    def _arrive(self, workflow: Workflow) -> None:
        self._grow(workflow)
        self._serve(self._queue_of[self._kinds[0]])

    def _grow(self, workflow: Workflow) -> None:
        """The next iteration, of which the first node is ready at once and the others once that has succeeded."""
        first = len(workflow.waits)
        workflow.grow(self.shape.waits, *self._service.iteration(workflow.stream, first))
        workflow.left = [old + new for old, new in zip(workflow.left, self._counts, strict=True)]
        self._ready(workflow, first, self._kinds[0])

    # -- from ready to running

    def _ready(self, workflow: Workflow, node: int, kind: int) -> Queue:
        """Put a node into its queue, which is returned."""
        queue = self._queue_of[kind]
        workflow.ready_at[node] = self.now
        key = (self._priority(workflow, node, kind) << _TIES) + workflow.key + node
        heappush(queue.heap, (key, node, workflow))
        if self.trace is not None:
            self._note_ready(workflow, node, kind)
        return queue

    def _note_ready(self, workflow: Workflow, node: int, kind: int) -> None:
        assert self.trace is not None
        self.trace.append(("NodeRunnable", self.now, workflow.number, node + 1, kind, 0, "", 0, ""))

    def _serve(self, queue: Queue) -> None:
        """Start what can start. Duplicates and restarts first, then new work in the order of its priority."""
        heap = queue.heap
        where = queue.slots[0]
        if where.bucket is None and not where.urgent and not self._limited:  # the usual case in a pool
            while where.free and heap:
                _, node, workflow = heappop(heap)
                if not workflow.status:
                    self._start(where, workflow, node, workflow.ready_at[node])
            return
        takes_new, picky = True, False
        for where in queue.slots:
            while where.free:
                if where.urgent:
                    if self._serve_urgent(where):
                        continue
                    break
                if not heap or not takes_new:
                    break
                workflow = heap[0][2]
                if workflow.status:
                    heappop(heap)  # it ended meanwhile
                    continue
                if self._limited and self.in_flight >= self.model.max_in_flight:
                    self._held = True
                    return
                if picky or workflow.cost + where.price > self._budget:
                    if not self._start_picked(queue, where, picky):
                        break
                    continue
                if where.bucket is not None and where.bucket.take(self.now) and not self._token(where):
                    break
                node = heappop(heap)[1]
                self._start(where, workflow, node, workflow.ready_at[node])
            takes_new, picky = self._spills or self._asks, self._asks

    def _start_picked(self, queue: Queue, where: Slots, picky: bool) -> bool:
        """Start the first call that may go to this tier, if there is one, and a token for it."""
        entry = self._pick(queue, where, picky)
        if entry is None:
            return False
        if not self._token(where):
            heappush(queue.heap, entry)
            return False
        _, node, workflow = entry
        self._start(where, workflow, node, workflow.ready_at[node])
        return True

    def _token(self, where: Slots) -> bool:
        """Take one; or be woken when there is one."""
        assert where.bucket is not None
        wait = where.bucket.take(self.now)
        if not wait:
            return True
        if where.wakes_at <= self.now:
            where.wakes_at = self.now + wait
            self._at(where.wakes_at, self._wake, where)
        return False

    def _wake(self, where: Slots) -> None:
        self._serve(next(queue for queue in self.queues if where in queue.slots))

    def _pick(self, queue: Queue, where: Slots, picky: bool) -> Entry | None:
        """The first of the ready calls that its budget and the policy let go to this tier."""
        heap, budget = queue.heap, self._budget
        lowest = min(slots.price for slots in queue.slots)
        passed: list[Entry] = []
        found = None
        while heap and found is None and len(passed) < LOOKAHEAD:
            entry = heappop(heap)
            _, node, workflow = entry
            if workflow.status:
                continue
            if workflow.cost + lowest > budget:
                self._end(workflow, "over_budget", node)
                continue
            kind = self._kinds[node % self._size]
            admitted = not picky or self.policy.admits(workflow, node, kind, where, len(passed))
            if admitted and workflow.cost + where.price <= budget:
                found = entry
            else:
                passed.append(entry)
        for entry in passed:
            heappush(heap, entry)
        return found

    def _serve_urgent(self, where: Slots) -> bool:
        """Look at the first duplicate or restart that waits here; False when nothing more can start now."""
        workflow, node, since, primary = where.urgent[0]
        affordable = workflow.cost + where.price <= self._budget
        if workflow.status or (primary is not None and (primary.state != RUNNING or not affordable)):
            where.urgent.popleft()
            return True
        if not affordable:
            where.urgent.popleft()
            self._ready(workflow, node, self._kinds[node % self._size])
            return True
        if self._limited and self.in_flight >= self.model.max_in_flight:
            self._held = True
            return False
        if where.bucket is not None and not self._token(where):
            return False
        where.urgent.popleft()
        self._start(where, workflow, node, since, primary)
        return True

    def _start(self, where: Slots, workflow: Workflow, node: int, since: int, primary: Attempt | None = None) -> None:
        now = self.now
        kind = self._kinds[node % self._size]
        number = workflow.tries[node] + 1
        workflow.tries[node] = number
        outcome = OK
        if number == 1:
            time = workflow.times[node]
        else:
            time, luck = self._service.again(workflow.stream, node, kind, number)
        if where.bucket is not None:
            workflow.cost += where.price
            if number == 1:
                luck = workflow.luck[node]
            if where.speed != 1.0 or not self._plain:
                time, outcome = self._unusual(where, workflow, node, kind, number)
            elif time > where.timeout:
                time, outcome = where.timeout, TIMEOUT
            elif luck & _LOW < where.fails_below:
                outcome = FAILED
        ends = now + time
        facts = (workflow, node, kind, number, where, now, ends, outcome)
        where.free -= 1
        where.waits.append(now - since)
        if workflow.started < 0:
            workflow.started = now
        sequence = self._sequence = self._sequence + 1
        if self.trace is not None:
            self._note("AttemptStart", facts, 0, "hedge" if primary is not None else "")
        if primary is not None or (self._watches and (self._watches_local or where.bucket is not None)):
            self._start_watched(facts, sequence, primary)
        else:
            heappush(self._events, (ends, sequence, self._finishes, facts))

    def _start_watched(self, facts: Facts, sequence: int, primary: Attempt | None) -> None:
        """An attempt with a rival, or one that the policy wants to look at before it ends."""
        _, _, kind, _, where, now, ends, _ = facts
        patience = self.policy.patience(kind, where)
        looked_at = patience is not None and now + patience < ends  # else it is over before anybody looks
        if primary is None and not looked_at:
            heappush(self._events, (ends, sequence, self._finishes, facts))
            return
        attempt = Attempt(facts, sequence)
        heappush(self._events, (ends, sequence, self._finish_watched, attempt))
        if looked_at:
            assert patience is not None
            self._at(now + patience, self._look, attempt)
        if primary is not None:
            self._race(primary, attempt)

    def _unusual(self, where: Slots, workflow: Workflow, node: int, kind: int, number: int) -> tuple[int, int]:
        """How long a call takes and how it ends, on a tier with another speed or with the old order of things."""
        time, luck = self._service.base(workflow.stream, node, kind, number)
        time = max(1, int(time / where.speed))
        outcome = FAILED if luck & _LOW < where.fails_below else OK
        if self._plain:
            time = self._service.with_tail(time, luck)
            return (time, outcome) if time <= where.timeout else (where.timeout, TIMEOUT)
        if outcome == OK and time > where.timeout:
            time, outcome = where.timeout, TIMEOUT
        return self._service.with_tail(time, luck), outcome

    # -- from running to the end

    def _finish(self, facts: Facts) -> None:
        workflow, node, kind, _, where, began, ends, outcome = facts
        if outcome or workflow.status:  # it failed, or nobody waits for it
            self._finish_in_vain(Attempt(facts, 0))
            return
        where.free += 1
        time = ends - began
        where.busy += time
        workflow.left[kind] -= 1
        if self._observes and where.bucket is not None:
            where.seen[kind].add(time)
        if self.trace is not None:
            self._note("AttemptFinish", facts, time, "ok")
        own, fed = self._queue_of[kind], None
        if kind == DECIDE:
            fed = self._decide(workflow, node)
        else:
            waits, place = workflow.waits, node % self._size
            for child in self._children[place]:
                child += node - place
                left = waits[child] - 1
                waits[child] = left
                if not left:
                    child_kind = self._kinds[child % self._size]
                    fed = self._queue_of[child_kind]
                    workflow.ready_at[child] = self.now
                    key = (self._priority(workflow, child, child_kind) << _TIES) + workflow.key + child
                    heappush(fed.heap, (key, child, workflow))
                    if self.trace is not None:
                        self._note_ready(workflow, child, child_kind)
        if own.heap or where.urgent:
            self._serve(own)
        if fed is not None and fed is not own and (fed.slots[0].free or not fed.local):
            self._serve(fed)
        if kind == PLAN and self._chains_only:  # it feeds two queues then
            self._serve_all()

    def _finish_watched(self, attempt: Attempt) -> None:
        if attempt.state == UNWANTED or attempt.facts[7] != OK or attempt.workflow.status:
            self._finish_in_vain(attempt)
            return
        attempt.state = ENDED
        for other in attempt.rivals():
            self._lose(other)
        self._finish(attempt.facts)

    def _finish_in_vain(self, attempt: Attempt) -> None:
        """It failed, or nobody wants its result any more."""
        unwanted = attempt.state == UNWANTED or attempt.workflow.status
        self._free(attempt)
        if unwanted:
            self._waste(attempt, "unwanted")
        else:
            self._fail(attempt)
        self._serve(self._queue_of[attempt.kind])

    def _free(self, attempt: Attempt) -> None:
        attempt.state = ENDED
        where = attempt.where
        where.free += 1
        if self._open:
            where.busy += self.now - attempt.began
        else:  # what runs after the last workflow ended is not counted
            where.busy += max(0, self.horizon - attempt.began)

    def _decide(self, workflow: Workflow, node: int) -> Queue | None:
        """Enough evidence, or another iteration; the queue that got something."""
        model, iteration = self.model, node // self._size
        if iteration + 1 >= model.iterations or stops(
            self._evidence_seed, workflow.number, iteration, self.shape.pdfs, self.shape.subqueries
        ):
            self._end(workflow, "succeeded", node)
            return None
        self._grow(workflow)
        return self._queue_of[PLAN]

    def _fail(self, attempt: Attempt) -> None:
        workflow, node, kind, _, where, _, _, outcome = attempt.facts
        why = "timeout" if outcome == TIMEOUT else "failed"
        where.failures += outcome == FAILED
        where.timeouts += outcome == TIMEOUT
        if self._observes:
            where.seen[attempt.kind].add(self.now - attempt.began)
        failures = workflow.failures[node] = workflow.failures.get(node, 0) + 1
        others = attempt.rivals()
        again = not others and failures <= where.retries
        if self.trace is not None:
            remark = f"{why}_retry" if again else f"{why}_rival_runs" if others else why
            self._note("AttemptFail", attempt.facts, self.now - attempt.began, remark)
        if again:
            workflow.retries += 1
            self._ready(workflow, node, kind)
        elif not others:
            self._end(workflow, "failed", node)

    def _end(self, workflow: Workflow, status: str, node: int) -> None:
        """The workflow is over; its calls that still run are cancelled, its local work runs on for nobody."""
        workflow.iterations = node // self._size + 1
        workflow.close(status, self.now)
        self.done.append(workflow)
        self._open -= 1
        if not self._open:
            self.horizon = self.now
        if status != "succeeded" or self._chains_only:
            self._cancel_all(workflow)
        if self.trace is not None:
            time = self.now - workflow.started if workflow.started >= 0 else 0
            self.trace.append(("WorkflowDone", self.now, workflow.number, 0, -1, 0, "", time, status))

    def _cancel_all(self, workflow: Workflow) -> None:
        """Its calls in flight, in the order in which they would have ended."""
        for _, number, happens, what in sorted(self._events, key=lambda event: event[:2]):
            if happens == self._finish_watched:
                attempt = what
            elif happens == self._finishes:
                attempt = Attempt(what, number)
            else:
                continue
            running = attempt.state == RUNNING and number not in self._gone
            if running and attempt.workflow is workflow and not attempt.where.local:
                self._cancel(attempt, "workflow_over")
        self._at(self.now, self._serve_all, None)

    def _serve_all(self, _: None = None) -> None:
        for queue in self.queues:
            self._serve(queue)

    # -- duplicates and restarts

    def _look(self, attempt: Attempt) -> None:
        """An attempt has outlasted its patience."""
        if attempt.state != RUNNING or attempt.workflow.status:
            return
        match self.policy.straggler(attempt):
            case Hedge(where):
                self._hedge(attempt, where)
            case Restart(where) if not attempt.where.local and not attempt.rivals():
                attempt.workflow.restarts += 1
                self._cancel(attempt, "restarted")
                where.urgent.append((attempt.workflow, attempt.node, self.now, None))
                self._serve(self._queue_of[attempt.kind])
            case Wait(time):
                if self.now + time < attempt.facts[6]:
                    self._at(self.now + time, self._look, attempt)

    def _hedge(self, attempt: Attempt, where: Slots) -> None:
        key = (attempt.workflow.number, attempt.node)
        asked = self._hedged.get(key, 0)
        if asked < self.policy.options.hedges_per_node:
            self._hedged[key] = asked + 1
            where.urgent.append((attempt.workflow, attempt.node, self.now, attempt))
            self._serve(self._queue_of[attempt.kind])

    def _race(self, primary: Attempt, attempt: Attempt) -> None:
        attempt.workflow.hedges += 1
        if primary.siblings is None:
            primary.siblings = [primary]
        primary.siblings.append(attempt)
        attempt.siblings = primary.siblings
        if self.trace is not None:
            self._note("HedgeLaunched", attempt.facts, 0, "hedge")

    def _lose(self, attempt: Attempt) -> None:
        """Its rival was first. Local work cannot be stopped, so it runs on and its result is thrown away."""
        if attempt.where.local:
            attempt.state = UNWANTED
        else:
            self._cancel(attempt, "hedge_loser")

    def _cancel(self, attempt: Attempt, why: str) -> None:
        if self._observes:  # how long it would have taken is unknown, but longer than this
            attempt.where.seen[attempt.kind].add(self.now - attempt.began)
        self._gone.add(attempt.event)
        self._free(attempt)
        self._waste(attempt, why)

    def _waste(self, attempt: Attempt, why: str) -> None:
        attempt.where.cancelled += 1
        attempt.workflow.cancellations += 1
        attempt.workflow.wasted += self.now - attempt.began
        if self.trace is not None:
            self._note("AttemptCancel", attempt.facts, self.now - attempt.began, why)

    def _note(self, event: str, facts: Facts, duration: int, remark: str) -> None:
        assert self.trace is not None
        workflow, node, kind, number, where, _, _, _ = facts
        place = where.name if where.local else where.label
        self.trace.append((event, self.now, workflow.number, node + 1, kind, number, place, duration, remark))
