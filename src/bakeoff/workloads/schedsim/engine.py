"""The simulation: a heap of events in integer microseconds of virtual time, ordered by (time, sequence).

Nothing here draws from a shared stream, reads a clock or iterates over a set, so the same arguments give the same
result everywhere.

The loop is plain Python written for speed. Nearly all events are the ends of plain attempts: attempts that succeed and
that nobody watches. Such an attempt is a tuple on the heap and nothing else, and its way from ready to done is written
out in two functions, `_serve` and `_loop`, with few calls. Every other attempt (it will fail or time out, it has a
rival, the policy may want to look at it, or a trace is kept) is an `Attempt` and goes through `_start` and
`_finish_attempt`. A ready node is one number: its priority, its workflow and its node in separate bits, because heaps
of whole numbers are much faster than heaps of tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Any, NamedTuple

from bakeoff.errors import UsageError
from bakeoff.spec.plan import uncollected
from bakeoff.workloads.schedsim.draws import Service, Tables, stream
from bakeoff.workloads.schedsim.policies import Hedge, Policy, Restart, Wait
from bakeoff.workloads.schedsim.world import (
    CLASS,
    DECIDE,
    GOLDEN,
    KINDS,
    MASK,
    NODE_BITS,
    PLAN,
    Queue,
    Shape,
    Slots,
    Urgent,
    Workflow,
    build,
    mix,
    stops,
)  # fmt: skip

OK, FAILED, TIMEOUT = range(3)
RUNNING, UNWANTED, ENDED = range(3)
LOOKAHEAD = 64
"""How many ready calls are asked whether they may go to a more expensive tier before its slot stays free."""
_LOW = 0xFFFFFFFF
_NODE = (1 << NODE_BITS) - 1
_PRIORITY = 2 * NODE_BITS
"""A ready node is `priority << _PRIORITY | workflow << NODE_BITS | node`."""

Event = tuple[int, int, Slots | None, Any, Any, int]
"""(time, sequence, where, workflow, node, began): a plain attempt ends.
(time, sequence, None, handler, subject, 0): anything else; `handler(subject)` is called."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is simulated: everything but the policy."""

    shape: Shape
    tables: Tables
    workflows: int = 100
    iterations: int = 3
    seed: int = 1
    heavy_tail_prob: float = 0.02
    heavy_tail_mult: float = 50.0
    legacy_timeout: bool = False
    budget: int = 10_000_000
    """Of each workflow, in millionths."""
    max_in_flight: int = 200
    mixed_evidence: bool = False
    arrivals: Sequence[int] = ()
    """When each workflow arrives; empty: all at 0."""

    def service(self) -> Service:
        """The draws of this model."""
        return Service(self.shape, self.tables, self.heavy_tail_prob, self.heavy_tail_mult)


class TraceEvent(NamedTuple):
    """One line of the trace. `node` counts from 1 and is 0, as `kind` is -1, for a whole workflow."""

    event: str
    time: int
    workflow: int
    node: int
    kind: int
    attempt: int
    place: str
    duration: int
    remark: str


@dataclass(eq=False, slots=True)
class Attempt:
    """One attempt at a node that will fail, is watched, or has a rival. A plain attempt is none of these."""

    workflow: Workflow
    node: int
    kind: int
    number: int
    """Counted from 1."""
    where: Slots
    began: int
    ends: int
    outcome: int
    """OK, FAILED or TIMEOUT. It is known from the start, since all draws are."""
    event: int
    """The sequence number of its end."""
    state: int = RUNNING
    siblings: list[Attempt] | None = None
    """All attempts that race for the same result, when there are several."""

    def rivals(self) -> list[Attempt]:
        """Other attempts at the same node that still run."""
        return [other for other in self.siblings or () if other is not self and other.state == RUNNING]


class Engine:
    """One simulation. `run` it, then read `done`, `queues`, `horizon` and `trace`."""

    __slots__ = (
        "_budget", "_chains_only", "_children", "_counts", "_counts_left", "_events", "_evidence_seed", "_gone",
        "_hedged", "_held", "_kinds", "_limited", "_observes", "_open", "_priority", "_queue_of", "_sequence",
        "_service", "_slots", "_spent", "_watches", "_workflows", "done", "horizon", "model", "now", "policy", "queues",
        "shape", "trace",
    )  # fmt: skip

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
        self._workflows: list[Workflow] = []
        self._open = model.workflows
        self._slots = [slots for queue in self.queues for slots in queue.slots]
        self._limited = sum(slots.capacity for slots in self._slots) > model.max_in_flight
        self._held = False
        """Whether the limit on all attempts kept something from starting during this event."""
        self._spent = False
        """Whether the event at hand is still on the heap (`_push`)."""
        self._gone: set[int] = set()
        """Sequence numbers of events that will not happen: the ends of cancelled attempts."""
        self._hedged: dict[tuple[int, int], int] = {}
        """Duplicates that were asked for, by (workflow, node)."""
        seed = model.seed & MASK
        self._evidence_seed = mix(seed + GOLDEN & MASK) if model.mixed_evidence else seed
        self._counts = [model.shape.kinds.count(kind) for kind in range(len(KINDS))]
        # For every node of the longest workflow so far: its kind, its children and its queue (`_grow`).
        self._kinds: list[int] = []
        self._children: list[list[int]] = []
        self._queue_of: list[Queue] = []
        self._budget = model.budget
        self._chains_only = not model.shape.subqueries
        """Then Aggregate waits for the Plan alone, and a workflow can be over while its PDFs are still worked on."""
        self._observes = policy.observes
        # What a policy does not override need not be asked.
        self._watches = type(policy).patience is not Policy.patience
        asked = getattr(policy.priority, "__func__", None) is not Policy.priority
        self._priority = policy.priority if asked else None
        self._counts_left = asked or self._watches or policy.tiers == "ask"
        """Whether `Workflow.left` is kept up to date: only if a method of the policy can read it."""
        spills = policy.tiers == "spill" or not policy.options.routing
        asks = policy.tiers == "ask" and not spills
        for queue in self.queues:
            # Tiers that take no new calls matter only where duplicates and restarts may wait for them.
            queue.serving = queue.slots if spills or asks or self._watches else queue.slots[:1]
            for slots in queue.slots:
                slots.takes_new = slots is queue.slots[0] or spills or asks
                slots.picky = slots is not queue.slots[0] and asks
                watched = self._watches and (policy.watches_local or not slots.local)
                # Service times were drawn for speed 1 and with timeouts after the heavy tail.
                timed = not slots.local and (slots.speed != 1.0 or model.legacy_timeout)
                slots.plain = not (trace or watched or timed)

    @property
    def in_flight(self) -> int:
        """Attempts that run now."""
        return sum(slots.capacity - slots.free for slots in self._slots)

    @property
    def happened(self) -> int:
        """Events: nodes that became ready, attempts that started, attempts that ended."""
        attempts = sum(slots.calls for slots in self._slots)
        return 3 * attempts - sum(workflow.hedges + workflow.restarts for workflow in self.done)

    # -- the loop

    def run(self) -> None:
        """Simulate until nothing is left to happen."""
        with uncollected():
            self.policy.begin(self)
            self._arrivals()
            self._loop()

    def _loop(self) -> None:
        """Handle events in their order.

        The event at hand stays on the heap until the first new one takes its place (`_push`): replacing the smallest
        entry of a heap costs half as much as a pop and a push.
        """
        events, kinds, queue_of, priority = self._events, self._kinds, self._queue_of, self._priority
        children, counts, serve = self._children, self._counts_left, self._serve
        noted = self._observes or self.trace is not None
        while events:
            now, sequence, where, workflow, node, began = events[0]
            self.now = now
            self._spent = True
            if where is None or workflow.status:
                if self._handle(sequence, where, workflow, node, began):
                    continue
            else:
                # A plain attempt succeeded: free its slot, make its children ready, and serve both queues.
                where.free += 1
                where.busy += now - began
                kind = kinds[node]
                if counts:
                    workflow.left[kind] -= 1
                if noted:
                    self._note_success(where, workflow, node, now - began)
                own, fed = queue_of[node], None
                if kind == DECIDE:
                    fed = self._decide(workflow, node)
                else:
                    waits = workflow.waits
                    for child in children[node]:
                        waits[child] = left = waits[child] - 1
                        if not left:
                            fed = queue_of[child]
                            workflow.ready_at[child] = now
                            key = workflow.key + child
                            if priority is not None:
                                key += priority(workflow, child, kinds[child]) << _PRIORITY
                            heappush(fed.heap, key)
                            if noted and self.trace is not None:
                                self._note("NodeRunnable", workflow, child)
                if own.heap or where.urgent:
                    serve(own)
                # A pool without a free slot need not be looked at. A provider's other tiers may have room.
                if fed is not None and fed is not own and (fed.slots[0].free or not fed.local):
                    serve(fed)
                if kind == PLAN and self._chains_only:  # it feeds two queues then
                    self._serve_all()
            if self._held:
                self._held = False
                self._serve_all()
            if self._spent:
                heappop(events)
                self._spent = False

    def _handle(self, sequence: int, where: Slots | None, workflow: Any, node: Any, began: int) -> bool:
        """An event that is not the end of a plain attempt, or the end of one whose workflow is over.

        True when the end of a plain attempt took its place, which is then the next event.
        """
        if sequence in self._gone:
            self._gone.remove(sequence)
        elif where is None:
            return workflow(node) is True  # a handler and its subject
        else:
            self._finish_in_vain(self._attempt(sequence, where, workflow, node, began, self.now))
        return False

    def _at(self, time: int, handler: Callable[[Any], bool | None], subject: Any) -> None:
        """Have `handler(subject)` called at that time."""
        self._sequence += 1
        self._push((time, self._sequence, None, handler, subject, 0))

    def _push(self, event: Event) -> None:
        """Put an event on the heap; the first one during an event takes the place of that event.

        That event is still the smallest entry then: new events are not earlier and have higher sequence numbers.
        """
        if self._spent:
            self._spent = False
            heapreplace(self._events, event)
        else:
            heappush(self._events, event)

    def _arrivals(self) -> None:
        """Make the workflows, and start those that arrive at 0, whose first iterations are drawn together."""
        for number, time in enumerate(self.model.arrivals or [0] * self.model.workflows, 1):
            self._workflows.append(Workflow(number, stream(self.model.seed & MASK, number), time))
            if time:
                self._at(time, self._arrive, self._workflows[-1])
        waiting = [workflow for workflow in self._workflows if not workflow.arrived]
        draws = self._service.iterations([workflow.stream for workflow in waiting], 0)
        for workflow, (times, luck) in zip(waiting, draws, strict=True):
            self._grow(workflow, times, luck)
        self._serve_all()

    def _arrive(self, workflow: Workflow) -> None:
        """A workflow arrives later than at 0."""
        self._grow(workflow, *self._service.iteration(workflow.stream, 0))
        self._serve(self._queue_of[0])

    def _grow(self, workflow: Workflow, times: list[int], luck: list[int]) -> None:
        """The next iteration, of which the first node is ready at once and the others once that has succeeded."""
        first, shape = len(workflow.waits), self.shape
        if first == len(self._kinds):  # no workflow has come this far before
            if first + shape.size > _NODE:
                raise UsageError(
                    f"a workflow can have {_NODE:,} nodes at most; ask for fewer PDFs, subqueries or iterations"
                )
            self._kinds += shape.kinds
            self._children += [[first + child for child in children] for children in shape.children]
            self._queue_of += [self.queues[CLASS[kind]] for kind in shape.kinds]
        workflow.waits += shape.waits
        workflow.ready_at += [0] * shape.size
        workflow.times += times
        workflow.luck += luck
        workflow.left = [old + new for old, new in zip(workflow.left, self._counts, strict=True)]
        self._ready(workflow, first)

    # -- from ready to running

    def _ready(self, workflow: Workflow, node: int) -> None:
        """Put a node into its queue. `_loop` does the same for the children of a node."""
        kind = self._kinds[node]
        workflow.ready_at[node] = self.now
        priority = self._priority(workflow, node, kind) if self._priority is not None else 0
        heappush(self._queue_of[node].heap, (priority << _PRIORITY) + workflow.key + node)
        if self.trace is not None:
            self._note("NodeRunnable", workflow, node)

    def _serve(self, queue: Queue) -> None:
        """Start what can start. Duplicates and restarts first, then new work in the order of its priority."""
        now, heap, workflows = self.now, queue.heap, self._workflows
        for where in queue.serving:
            bucket, plain = where.bucket, where.plain
            while where.free:
                if where.urgent:
                    if self._serve_urgent(queue, where):
                        continue
                    break
                if not heap or not where.takes_new:
                    break
                # Only look: the call stays in the queue when it may not go here, or has to wait for a token. The bits
                # of a negative priority need no care: Python shifts and masks as in endless two's complement.
                key = heap[0]
                node = key & _NODE
                workflow = workflows[key >> NODE_BITS & _NODE]
                if workflow.status:
                    heappop(heap)  # it ended meanwhile
                    continue
                if self._limited and self.in_flight >= self.model.max_in_flight:
                    self._held = True  # another queue may have to be served when a slot anywhere is free again
                    return
                time = workflow.times[node]
                if bucket is not None:
                    if where.picky or workflow.cost + where.price > self._budget:
                        if not self._start_picked(queue, where):
                            break
                        continue
                    if bucket.take(now) and not self._token(queue, where):
                        break
                    plain = where.plain and time <= where.timeout and workflow.luck[node] >= where.fails_below
                heappop(heap)
                # First attempts are drawn already; a node in `tries` was tried before and needs new draws.
                if not plain or node in workflow.tries:
                    self._start(where, workflow, node, workflow.ready_at[node])
                    continue
                # What `_start` does for a plain attempt, without the call.
                workflow.cost += where.price
                where.free -= 1
                where.waits.append(now - workflow.ready_at[node])
                if workflow.started < 0:
                    workflow.started = now
                self._sequence = sequence = self._sequence + 1
                if self._spent:
                    self._spent = False
                    heapreplace(self._events, (now + time, sequence, where, workflow, node, now))
                else:
                    heappush(self._events, (now + time, sequence, where, workflow, node, now))

    def _serve_all(self, _: None = None) -> None:
        """Serve every queue. Also an event handler, which is why it takes a subject."""
        for queue in self.queues:
            self._serve(queue)

    def _start_picked(self, queue: Queue, where: Slots) -> bool:
        """Start the first ready call that its budget and the policy let go to this tier; False when there is none.

        Calls that are passed over go back into the queue. A workflow that cannot pay for the cheapest tier any more
        is over.
        """
        heap, budget = queue.heap, self._budget
        lowest = min(slots.price for slots in queue.slots)
        passed: list[int] = []
        picked = None
        while heap and picked is None and len(passed) < LOOKAHEAD:
            key = heappop(heap)
            workflow, node = self._workflows[key >> NODE_BITS & _NODE], key & _NODE
            if workflow.status:
                continue
            if workflow.cost + lowest > budget:
                self._end(workflow, "over_budget", node)
                continue
            admitted = not where.picky or self.policy.admits(workflow, node, self._kinds[node], where, len(passed))
            if admitted and workflow.cost + where.price <= budget:
                picked = key
            else:
                passed.append(key)
        for key in passed:
            heappush(heap, key)
        if picked is None:
            return False
        if not self._token(queue, where):
            heappush(heap, picked)
            return False
        workflow, node = self._workflows[picked >> NODE_BITS & _NODE], picked & _NODE
        self._start(where, workflow, node, workflow.ready_at[node])
        return True

    def _token(self, queue: Queue, where: Slots) -> bool:
        """Take a token; or have the queue served again when there is one."""
        assert where.bucket is not None
        wait = where.bucket.take(self.now)
        if not wait:
            return True
        if where.wakes_at <= self.now:  # else it is served at that time anyway
            where.wakes_at = self.now + wait
            self._at(where.wakes_at, self._serve, queue)
        return False

    def _serve_urgent(self, queue: Queue, where: Slots) -> bool:
        """Start the first duplicate or restart that waits here, or drop it; False when nothing more can start now."""
        urgent = where.urgent[0]
        workflow, primary = urgent.workflow, urgent.primary
        affordable = workflow.cost + where.price <= self._budget
        if workflow.status or (primary is not None and (primary.state != RUNNING or not affordable)):
            where.urgent.popleft()
            return True
        if not affordable:
            where.urgent.popleft()
            self._ready(workflow, urgent.node)
            self._at(self.now, self._serve, queue)  # a cheaper tier may have room, and `_serve` is past it
            return True
        if self._limited and self.in_flight >= self.model.max_in_flight:
            self._held = True
            return False
        if where.bucket is not None and not self._token(queue, where):
            return False
        where.urgent.popleft()
        self._start(where, workflow, urgent.node, urgent.since, primary)
        return True

    def _start(self, where: Slots, workflow: Workflow, node: int, since: int, primary: Attempt | None = None) -> None:
        """Start an attempt of any sort. `primary` is the attempt that it races, when it is a duplicate."""
        now = self.now
        kind = self._kinds[node]
        number = workflow.tries[node] = workflow.tries.get(node, 0) + 1
        if number == 1:
            time, luck = workflow.times[node], workflow.luck[node]
        else:
            time, luck = self._service.again(workflow.stream, node, kind, number)
        outcome = OK
        if where.bucket is not None:
            workflow.cost += where.price
            if where.speed != 1.0 or self.model.legacy_timeout:
                time, outcome = self._call(where, workflow, node, kind, number)
            elif time > where.timeout:
                time, outcome = where.timeout, TIMEOUT
            elif luck < where.fails_below:
                outcome = FAILED
        ends = now + time
        where.free -= 1
        where.waits.append(now - since)
        if workflow.started < 0:
            workflow.started = now
        self._sequence = sequence = self._sequence + 1
        if self.trace is not None:
            self._note("AttemptStart", workflow, node, number, where, 0, "hedge" if primary is not None else "")
        patience = None
        if primary is not None or (self._watches and (where.bucket is not None or self.policy.watches_local)):
            patience = self.policy.patience(kind, where)
            if patience is not None and now + patience >= ends:
                patience = None  # it is over before anybody looks
        if outcome == OK and patience is None and primary is None:
            self._push((ends, sequence, where, workflow, node, now))
            return
        attempt = Attempt(workflow, node, kind, number, where, now, ends, outcome, sequence)
        self._push((ends, sequence, None, self._finish_attempt, attempt, 0))
        if patience is not None:
            self._at(now + patience, self._look, attempt)
        if primary is not None:
            workflow.hedges += 1
            if primary.siblings is None:
                primary.siblings = [primary]
            primary.siblings.append(attempt)
            attempt.siblings = primary.siblings
            if self.trace is not None:
                self._note("HedgeLaunched", workflow, node, number, where, 0, "hedge")

    def _call(self, where: Slots, workflow: Workflow, node: int, kind: int, number: int) -> tuple[int, int]:
        """How long a call takes and how it ends, on a tier with another speed or with `legacy_timeout`."""
        time, luck = self._service.base(workflow.stream, node, kind, number)
        time = max(1, int(time / where.speed))
        outcome = FAILED if luck & _LOW < where.fails_below else OK
        if not self.model.legacy_timeout:
            time = self._service.with_tail(time, luck)
            return (time, outcome) if time <= where.timeout else (where.timeout, TIMEOUT)
        if outcome == OK and time > where.timeout:
            time, outcome = where.timeout, TIMEOUT
        return self._service.with_tail(time, luck), outcome

    # -- from running to the end

    def _decide(self, workflow: Workflow, node: int) -> Queue | None:
        """Stop the workflow or grow another iteration; then the queue that got its Plan is returned."""
        model, iteration = self.model, node // self.shape.size
        if iteration + 1 >= model.iterations or stops(
            self._evidence_seed, workflow.number, iteration, self.shape.pdfs, self.shape.subqueries
        ):
            self._end(workflow, "succeeded", node)
            return None
        self._grow(workflow, *self._service.iteration(workflow.stream, len(workflow.waits)))
        return self._queue_of[0]

    def _finish_attempt(self, attempt: Attempt) -> bool:
        """The end of an attempt that is not plain; True when it succeeded."""
        if attempt.state == UNWANTED or attempt.outcome != OK or attempt.workflow.status:
            self._finish_in_vain(attempt)
            return False
        attempt.state = ENDED
        for other in attempt.rivals():
            if other.where.local:  # it cannot be stopped, so it runs on and its result is thrown away
                other.state = UNWANTED
            else:
                self._cancel(other, "hedge_loser")
                if other.where.urgent:  # the end of a plain attempt looks at its own tier and at new calls only
                    self._at(self.now, self._serve, self._queue_of[attempt.node])
        # The rest is what happens at the end of a plain attempt, so it is made one, with the same time and sequence.
        attempt.workflow.tries[attempt.node] = attempt.number
        self._push((self.now, attempt.event, attempt.where, attempt.workflow, attempt.node, attempt.began))
        return True

    def _finish_in_vain(self, attempt: Attempt) -> None:
        """It failed, or nobody wants its result any more."""
        if attempt.state == UNWANTED or attempt.workflow.status:
            self._release(attempt, "unwanted")
        else:
            self._release(attempt)
            self._fail(attempt)
        self._serve(self._queue_of[attempt.node])

    def _attempt(self, event: int, where: Slots, workflow: Workflow, node: int, began: int, ends: int) -> Attempt:
        """A plain attempt as an `Attempt`, when its workflow ended before it did."""
        number = workflow.tries.get(node, 1)
        return Attempt(workflow, node, self._kinds[node], number, where, began, ends, OK, event)

    def _release(self, attempt: Attempt, unused: str = "") -> None:
        """Free the slot of an attempt that ended without a result to use.

        `unused` says why nobody uses its result; such time is counted as wasted. Empty for an attempt that failed.
        """
        attempt.state = ENDED
        workflow, where = attempt.workflow, attempt.where
        where.free += 1
        if self._open:
            where.busy += self.now - attempt.began
        else:  # what runs after the last workflow ended is not counted
            where.busy += max(0, self.horizon - attempt.began)
        if unused:
            where.cancelled += 1
            workflow.cancellations += 1
            workflow.wasted += self.now - attempt.began
            if self.trace is not None:
                self._note_attempt("AttemptCancel", attempt, unused)

    def _fail(self, attempt: Attempt) -> None:
        """Try again, or end the workflow; when a rival still runs, that one decides."""
        workflow, node, where, outcome = attempt.workflow, attempt.node, attempt.where, attempt.outcome
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
            self._note_attempt("AttemptFail", attempt, remark)
        if again:
            workflow.retries += 1
            self._ready(workflow, node)
        elif not others:
            self._end(workflow, "failed", node)

    def _end(self, workflow: Workflow, status: str, node: int) -> None:
        """The workflow is over; its calls that still run are cancelled, its local work runs on for nobody."""
        workflow.iterations = node // self.shape.size + 1
        workflow.status = status
        workflow.finished = self.now
        # Only a running workflow needs these; thousands of finished ones would fill the memory.
        workflow.waits, workflow.ready_at, workflow.times, workflow.luck = [], [], [], []
        self.done.append(workflow)
        self._open -= 1
        if not self._open:
            self.horizon = self.now
        if status != "succeeded" or self._chains_only:
            self._cancel_all(workflow)
        if self.trace is not None:
            done = TraceEvent("WorkflowDone", self.now, workflow.number, 0, -1, 0, "", workflow.makespan, status)
            self.trace.append(done)

    def _cancel_all(self, workflow: Workflow) -> None:
        """Cancel its calls in flight, in the order in which they would have ended, and serve everybody after that."""
        if self._spent:  # the event at hand is over, not in flight
            heappop(self._events)
            self._spent = False
        for ends, sequence, where, subject, node, began in sorted(self._events):
            if where is not None and subject is workflow and sequence not in self._gone:
                attempt = self._attempt(sequence, where, workflow, node, began, ends)
            elif subject == self._finish_attempt and node.workflow is workflow and node.state == RUNNING:
                # A handler and its subject, which is the attempt.
                attempt = node
            else:
                continue
            if not attempt.where.local:
                self._cancel(attempt, "workflow_over")
        # Not at once: the caller is in the middle of serving a queue or of ending an attempt.
        self._at(self.now, self._serve_all, None)

    # -- duplicates and restarts

    def _look(self, attempt: Attempt) -> None:
        """An attempt has outlasted its patience: do what the policy says."""
        workflow, node = attempt.workflow, attempt.node
        if attempt.state != RUNNING or workflow.status:
            return
        match self.policy.straggler(attempt):
            case Hedge(where):
                asked = self._hedged.get((workflow.number, node), 0)
                if asked < self.policy.options.hedges_per_node:
                    self._hedged[workflow.number, node] = asked + 1
                    where.urgent.append(Urgent(workflow, node, self.now, attempt))
                    self._serve(self._queue_of[node])
            case Restart(where) if not attempt.where.local and not attempt.rivals():  # a rival is the better bet
                workflow.restarts += 1
                self._cancel(attempt, "restarted")
                where.urgent.append(Urgent(workflow, node, self.now, None))
                self._serve(self._queue_of[node])
            case Wait(time):
                if self.now + time < attempt.ends:
                    self._at(self.now + time, self._look, attempt)

    def _cancel(self, attempt: Attempt, why: str) -> None:
        """Stop a call that runs. It stays paid, and its end, which is still on the heap, will not happen."""
        if self._observes:  # how long it would have taken is unknown, but longer than this
            attempt.where.seen[attempt.kind].add(self.now - attempt.began)
        self._gone.add(attempt.event)
        self._release(attempt, why)

    # -- the trace

    def _note_success(self, where: Slots, workflow: Workflow, node: int, duration: int) -> None:
        """What policies that observe, and the trace, keep of an attempt that succeeded."""
        if self._observes and where.bucket is not None:
            where.seen[self._kinds[node]].add(duration)
        if self.trace is not None:
            self._note("AttemptFinish", workflow, node, workflow.tries[node], where, duration, "ok")

    def _note_attempt(self, event: str, attempt: Attempt, remark: str) -> None:
        duration = self.now - attempt.began
        self._note(event, attempt.workflow, attempt.node, attempt.number, attempt.where, duration, remark)

    def _note(
        self, event: str, workflow: Workflow, node: int, number: int = 0, where: Slots | None = None, duration: int = 0,
        remark: str = "",
    ) -> None:  # fmt: skip
        assert self.trace is not None
        place = "" if where is None else where.name if where.local else where.label
        kind = self._kinds[node]
        self.trace.append(TraceEvent(event, self.now, workflow.number, node + 1, kind, number, place, duration, remark))
