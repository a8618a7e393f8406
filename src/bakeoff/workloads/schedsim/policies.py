"""Scheduling policies: the base class, the six built-in ones, and how a policy is found by name.

The simulation calls `begin` once, then asks: which ready node goes first (`priority`), may this call go to this tier
(`admits`, only when `tiers` is "ask"), how long until an attempt looks stuck (`patience`), and what to do about it
then (`straggler`). Every method has a default, so a policy is a small class that overrides some of them:

    from bakeoff.workloads.schedsim.policies import Policy

    class Newest(Policy):
        tiers = "spill"

        def priority(self, workflow, node, kind):
            return -workflow.number  # smaller goes first

Times are integer microseconds of virtual time, prices integer millionths. A policy must not use chance, clocks or
anything besides its arguments and `self.sim`: the same questions must get the same answers.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.schedsim.draws import Tables, mean_ms, median_ms
from bakeoff.workloads.schedsim.world import CLASS, DECIDE, EMBED, EXTRACT, KINDS, MILLION, PLAN, Shape, Slots, Workflow

if TYPE_CHECKING:
    from bakeoff.workloads.schedsim.engine import Attempt, Engine


@dataclass(frozen=True, slots=True)
class Hedge:
    """Start a second attempt there, ahead of new work; whichever succeeds first wins, and the other is cancelled."""

    where: Slots


@dataclass(frozen=True, slots=True)
class Restart:
    """Give the attempt up and start over there, ahead of new work. Local work cannot be given up."""

    where: Slots


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after so many microseconds."""

    time: int


Action = Hedge | Restart | Wait | None


@dataclass(frozen=True, slots=True)
class Options:
    """The parameters of a run that concern policies."""

    routing: bool = True
    """False: the first tier that has room, as listed; no escalation, no hedging; every node counts as 100 ms."""
    hedging: bool = True
    escalation: bool = True
    dag_priority: bool = True
    spill: bool = False
    hedge_stretch: float = 1.5
    hedges_per_node: int = 1
    escalation_threshold: float = 0.5


class Policy:
    """The base class. It is a policy too: first come, first served over workflows, on the cheapest tier only."""

    tiers: Literal["cheapest", "spill", "ask"] = "cheapest"
    """Which tiers of a provider serve its queue: the cheapest alone, any that has room (cheapest first), or those
    that `admits` accepts for each node."""
    watches_local = False
    """Whether `patience` is asked about local attempts too."""
    observes = False
    """Whether `Slots.seen` is kept up to date."""

    def __init__(self, options: Options) -> None:
        self.options = options
        if options.spill and self.tiers == "cheapest":
            self.tiers = "spill"

    def begin(self, sim: Engine) -> None:
        """Called before the first event. `sim` may be read at any time."""
        self.sim = sim

    def priority(self, workflow: Workflow, node: int, kind: int) -> int:
        """Smaller goes first. Asked when a node becomes ready; ties go to the older workflow, then the lower node."""
        return 0

    def admits(self, workflow: Workflow, node: int, kind: int, where: Slots, ahead: int) -> bool:
        """Whether a ready call may start on a tier that is not the cheapest. `ahead` calls go before it."""
        return True

    def patience(self, kind: int, where: Slots) -> int | None:
        """How long after its start an attempt is shown to `straggler`; None for never."""
        return None

    def straggler(self, attempt: Attempt) -> Action:
        """What to do about an attempt that still runs."""
        return None


# -- estimates

UNIT = 100_000
"""Every node counts as 100 ms when routing is off."""


def expected_times(tables: Tables, shape: Shape) -> list[int]:
    """The expected service time of each kind of node, without the heavy tail, in microseconds."""
    tokens = shape.plan_tokens(0)
    return [
        round(1000 * mean_ms(tables.latency[kind], tokens if number == PLAN else 0))
        for number, kind in enumerate(KINDS)
    ]


def upward_ranks(shape: Shape, times: Sequence[int]) -> list[int]:
    """For each kind of node the time from its start to the end of its iteration along the longest path.

    `times` are estimates for each kind of node, in microseconds. A Plan counts with all that it will grow, so a
    workflow that has not been expanded yet does not look nearly done. (HEFT's upward rank: Topcuoglu, Hariri and Wu,
    IEEE Transactions on Parallel and Distributed Systems 13(3), 2002.)
    """
    places = [0] * shape.size
    ranks = [0] * len(KINDS)
    for place in reversed(range(shape.size)):  # children come after their parents
        kind = shape.kinds[place]
        places[place] = times[kind] + max((places[child] for child in shape.children[place]), default=0)
        ranks[kind] = max(ranks[kind], places[place])
    return ranks


# -- the built-in policies


class FifoCheapest(Policy):
    """`fifo_cheapest`: the oldest workflow first, its nodes in the order of their ids, on the cheapest tier only."""


class CriticalPath(Policy):
    """`critical_path`: the longest remaining path first across all workflows, with nothing on top.

    The order that looks right on paper and serves workflows breadth-first; kept to measure what that costs. Estimates
    are coarse on purpose: the median for provider calls, 100 ms for local work, and a Plan counts only itself.
    """

    _AGE = 10
    """Ten microseconds of age weigh as much as one of path."""

    def begin(self, sim: Engine) -> None:
        super().begin(sim)
        times = [UNIT] * len(KINDS)
        if self.options.routing:
            for kind in (PLAN, EMBED, EXTRACT, DECIDE):  # those that providers serve
                tokens = sim.shape.plan_tokens(0) if kind == PLAN else 0
                times[kind] = round(1000 * median_ms(sim.model.tables.latency[KINDS[kind]], tokens))
        self.ranks = upward_ranks(sim.shape, times)
        self.ranks[PLAN] = times[PLAN]

    def priority(self, workflow: Workflow, node: int, kind: int) -> int:
        """All workflows age alike, so only their beginnings count and a score need not be computed again."""
        if not self.options.dag_priority:
            return 0
        return workflow.started // self._AGE - self.ranks[kind]


class DagCheapest(Policy):
    """`dag_cheapest`: the oldest workflow first, and within it the node with the longest path to the end.

    The order of workflows comes first, since longest-path-first across workflows serves the early nodes of all of
    them before the late nodes of any, and everything ends late together.
    """

    _AFTER = 1 << 44
    """More than any rank in microseconds, so that no rank outweighs the order of workflows."""

    def begin(self, sim: Engine) -> None:
        super().begin(sim)
        self.expected = expected_times(sim.model.tables, sim.shape)
        self.ranks = upward_ranks(sim.shape, self.expected if self.options.routing else [UNIT] * len(KINDS))
        self._order = [self._AFTER - rank for rank in self.ranks] if self.options.dag_priority else None

    def priority(self, workflow: Workflow, node: int, kind: int) -> int:
        """The workflow's number first, then the longest path."""
        if self._order is None:
            return 0
        return workflow.number * self._AFTER + self._order[kind]


class DagEscalation(DagCheapest):
    """`dag_escalation`: as `dag_cheapest`, and a call that its workflow waits for may buy its way past the queue.

    A ready call goes to a more expensive tier that has room when the time its workflow gains, divided by the extra
    price, reaches the threshold (milliseconds for each unit of price). The wait for the cheap tier is the time until
    the calls ahead and this one are started, at the pace at which that tier completes calls or gets tokens now. The
    call's slack is no gain: how much longer the longest path is that its workflow still has to go.
    """

    observes = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.escalation and self.tiers == "cheapest":
            self.tiers = "ask"

    def admits(self, workflow: Workflow, node: int, kind: int, where: Slots, ahead: int) -> bool:
        """Compare what the call gains with what it costs more."""
        cheapest = self.sim.queues[CLASS[kind]].slots[0]
        extra = (where.price - cheapest.price) / MILLION
        sooner = self.wait(cheapest, kind, ahead) + self.typical(cheapest, kind) - self.typical(where, kind)
        longest = max(rank for rank, left in zip(self.ranks, workflow.left, strict=True) if left)
        slack = longest - self.ranks[kind]
        gain = (sooner - slack) / 1000
        return gain > 0 and gain >= self.options.escalation_threshold * extra

    def typical(self, where: Slots, kind: int) -> int:
        """The median of recent calls there; the expectation of the law before there are any."""
        return where.seen[kind].quantile(0.50, self.expected[kind])

    def wait(self, where: Slots, kind: int, ahead: int) -> float:
        """Until a call with so many ahead of it would start there."""
        assert where.bucket is not None
        for_slot = where.seen[kind].mean(self.expected[kind]) / where.capacity
        return (ahead + 1) * max(for_slot, where.bucket.period() if where.free else 0.0)


class Full(DagEscalation):
    """`full`: as `dag_escalation`, and a call that takes far longer than most gets a rival on another tier.

    A call is a straggler when it has been served for longer than `hedge_stretch` times the 95th percentile of its
    kind. The rival starts on the tier where it is expected to end first, ahead of new work. Whichever succeeds first
    wins; the other is cancelled at once, stays charged, and its time is counted as wasted. (Hedged requests, with the
    95th percentile as the usual delay: Dean and Barroso, "The Tail at Scale", CACM 56(2), 2013.)
    """

    _ENOUGH = 20
    """Observations before a 95th percentile means anything. Until then `_UNSEEN` times the expected time."""
    _UNSEEN = 3

    def patience(self, kind: int, where: Slots) -> int | None:
        """Embeddings are never hedged: only nodes that an LLM serves count as critical."""
        if not (self.options.hedging and self.options.routing) or kind == EMBED:
            return None
        seen = where.seen[kind]
        high = seen.quantile(0.95, 0) if len(seen) >= self._ENOUGH else self._UNSEEN * self.expected[kind]
        return round(self.options.hedge_stretch * high)

    def straggler(self, attempt: Attempt) -> Action:
        """A rival on the other tier where it would end first, the cheaper one when that is equal."""
        kind = attempt.kind
        others = [slots for slots in self.sim.queues[CLASS[kind]].slots if slots is not attempt.where]
        if not others:
            return None

        def done_after(where: Slots) -> tuple[float, int]:
            wait = 0.0 if where.free else self.wait(where, kind, len(where.urgent))
            return wait + self.typical(where, kind), where.price

        return Hedge(min(others, key=done_after))


class RestartStragglers(DagEscalation):
    """`restart_stragglers`: as `dag_escalation`, and an attempt that looks stuck is given up and started over in place.

    A second attempt beside the first (`full`) holds two slots until one of them is done. With a heavy tail, an attempt
    that has taken several times the median will most likely take much longer still, so its slot is worth more than
    its result. How soon depends on what a new call costs: early on the cheapest tier, late on a more expensive one,
    which also moves work to the cheap tier. Local work cannot be given up; it costs nothing either, so it gets a
    second attempt beside the first.
    """

    # The constants were chosen on seeds 1000 to 1039, with 10, 50 and 100 workflows.
    CHEAPEST, DEARER, EMBEDDING = 3.0, 8.0, 5.0
    """Given up after this many times the median of its kind on that tier. The median does not move when the longest
    are cut short, so restarting does not cause more restarting."""
    LOCAL = 6.0
    """Local work gets its second attempt after this many times its expected time."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.watches_local = options.hedging and options.routing

    def patience(self, kind: int, where: Slots) -> int | None:
        """A multiple of the median there, by what a new call would cost."""
        if not (self.options.hedging and self.options.routing):
            return None
        if where.local:
            return round(self.LOCAL * self.expected[kind])
        times = self.CHEAPEST if where is self.sim.queues[CLASS[kind]].slots[0] else self.DEARER
        return round((self.EMBEDDING if kind == EMBED else times) * self.typical(where, kind))

    def straggler(self, attempt: Attempt) -> Action:
        """Start over in the same place; beside the first attempt where that cannot be stopped."""
        return Hedge(attempt.where) if attempt.where.local else Restart(attempt.where)


# -- by name

POLICIES: dict[str, type[Policy]] = {
    "fifo_cheapest": FifoCheapest,
    "dag_cheapest": DagCheapest,
    "dag_escalation": DagEscalation,
    "full": Full,
    "critical_path": CriticalPath,
    "restart_stragglers": RestartStragglers,
}


def check_name(name: str) -> str:
    """The name, if it is a built-in policy or has the form `module:Class`. Raises ValueError otherwise.

    Whether a user's module exists is only seen when a run imports it.
    """
    module, colon, cls = name.partition(":")
    if name in POLICIES or (colon and all(part.isidentifier() for part in (*module.split("."), *cls.split(".")))):
        return name
    hint = did_you_mean(name, POLICIES, f"one of {', '.join(POLICIES)}, or module:Class")
    raise ValueError(f"unknown policy {name!r}; {hint}")


@cache
def policy_class(name: str) -> type[Policy]:
    """The class of a built-in policy, or of a user's, named `module:Class`. Raises UsageError when there is none."""
    if name in POLICIES:
        return POLICIES[name]
    try:
        cls = pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"policy {name!r} cannot be imported: {error}") from error
    if not isinstance(cls, type) or not issubclass(cls, Policy):
        raise UsageError(f"policy {name!r} is not a subclass of {Policy.__module__}.Policy")
    return cls
