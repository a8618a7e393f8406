"""A pilot: a long-lived process on a node that runs the attempts it is sent, in slots, and reports what came of them.

It opens a local node (engine/node) in scratch of its machine, so spawning, warm workers, limits, captured output and
the supervisor are those of the local executor. Its connection (connection.py) has threads of its own, so it goes on while a file
system hangs, and ends its runs when nothing could be sent for `unreachable` seconds.

    run_pilot(setup, link, "3-0")      # returns when the pilot has left, with the reason

What it decides by itself:

* It takes nothing when its code is not the scheduler's, or a variable of the experiment is not set here.
* It starts nothing that may take longer than its allocation lasts, and gives such attempts back.
* On SIGTERM (the allocation ends, or it is preempted) it gives back what waits, ends what runs, and says so.
* Without a scheduler it does what it holds, and leaves after `linger` seconds without anything to do.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bakeoff.engine import hardware
from bakeoff.engine.executors import NodeSetup
from bakeoff.engine.node.node import Node, add_note, open_node
from bakeoff.engine.pilots.arrivals import checkpoint_state, remove
from bakeoff.engine.pilots.attachments import with_places
from bakeoff.engine.pilots.connection import Connection, print_error, without_directory
from bakeoff.engine.pilots.messages import (
    Abandon,
    Beat,
    Bye,
    Downward,
    Hello,
    NodeFacts,
    Order,
    Orders,
    Presence,
    Quit,
    Recall,
    Report,
    Returned,
    Stop,
)
from bakeoff.engine.pilots.scratch import Scratch
from bakeoff.engine.pilots.transport import Link, PilotSetup
from bakeoff.errors import BakeoffError
from bakeoff.records.codefiles import code_digest
from bakeoff.records.layout import EditionPaths
from bakeoff.records.packages import installed_packages, local_modules
from bakeoff.records.rundir import CHECKPOINT
from bakeoff.spec import formats
from bakeoff.spec.experiment import Limits, Resources

ALLOCATION_ENDS = "BAKEOFF_ALLOCATION_ENDS"
"""When the pilot's allocation ends, in seconds since the epoch by the node's own clock; set by the adapter."""
NODE = "BAKEOFF_NODE"
"""The engine's name of the node; set by the adapter where it may differ from the host's."""
_MARGIN = 10.0
"""Seconds before the end of an allocation in which results still have to go home."""
_PROBE_PATIENCE = 60.0
_SKEWED = 5.0
"""A clock that differs from the scheduler's by less than so many seconds is left as it is."""
_SAVE_INTERVAL = 1.0
_PATIENCE = 5.0
"""Seconds after which a checkpoint is copied although it changes between any two looks."""
_NEVER_SAVED = (
    "warning: no copy of its checkpoint came home, because files changed during every copy or could not be copied; "
    "write each to another name and rename it"
)
_LOOK_INTERVAL = 0.25
"""Seconds between two looks at the checkpoints of all runs."""
_SAVE_SHARE = 20
"""Between two copies of a checkpoint there is at least so much time as so many copies take."""
_BUSY, _IDLE = 0.005, 0.1
"""Seconds that the node waits for its runs, with free slots and without anything to do."""


class Pilot:
    """One pilot, from Hello to Bye."""

    def __init__(self, setup: PilotSetup, link: Link, name: str) -> None:
        self._setup = setup
        self._link = link
        self._name = name
        self._limits = Limits.model_validate(setup.limits)
        self._scratch = Scratch(name)
        self._paths = EditionPaths(self._scratch.path / setup.experiment / setup.edition)
        self._paths.runs.mkdir(parents=True)
        self._runs = str(self._paths.runs)  # for what is asked about every attempt
        self._files = self._scratch.path / "files"
        """What orders need and this node does not have, by digest."""
        self._waiting: deque[Order] = deque()
        self._running: dict[int, Order] = {}
        """Orders that the node has, by position."""
        self._fetching: dict[str, Order] = {}
        """Orders whose directories are on their way here, by token."""
        self._abandoned: set[str] = set()
        self._known: set[str] = set()
        """Tokens of all orders that ever came: one may arrive twice."""
        self._saved: dict[str, tuple[float, object]] = {}
        """For a run with a checkpoint: when it may be saved again, and what it was like when it was saved last."""
        self._look_at = 0.0
        self._skew: float | None = None
        self._scheduler_seen = self._busy_at = time.monotonic()
        self._beat_at = 0.0
        self._beat_soon = 0.0
        self._named: set[tuple[str, float | None]] = set()
        """What beats have said since the last whole one."""
        self._stopping: bool | None = None
        """None, or whether what runs is to end as well."""
        self._quit = False
        self._terminated = False
        ends = os.environ.get(ALLOCATION_ENDS)
        self._ends = None if not ends else time.monotonic() + float(ends) - time.time()
        self._connection = Connection(link)

    # -- the life of a pilot

    def run(self) -> str:
        """Say hello, work, leave. Returns why it left."""
        try:
            refusal, node_setup, facts = self._prepare()
            if refusal or node_setup is None:
                self._connection.post(Hello(facts, self._setup.slots, 0, refusal))
                self._connection.post(Bye(refusal, expected=False))
                self._connection.close(self._setup.unreachable)
                return refusal
            node = open_node(node_setup)
            try:
                signal.signal(signal.SIGTERM, self._on_sigterm)
                self._connection.post(Hello(facts, self._setup.slots, 2 * node.width()))
                why = self._work(node)
            except BaseException as error:
                why = str(error) if isinstance(error, BakeoffError) else f"{type(error).__name__}: {error}"
                print_error()
                self._connection.bring_home(self._setup.unreachable)  # what has ended is not lost
                lost = [*(order.token for order in self._running.values()), *self._connection.carrying]
                self._connection.post(Bye(why, lost, expected=False))
            finally:
                node.close()
            silent = time.monotonic() - self._connection.reached > self._setup.unreachable
            self._connection.close(0.5 if silent else self._setup.unreachable)
            return why
        finally:
            self._scratch.close()

    def _prepare(self) -> tuple[str, NodeSetup | None, NodeFacts]:
        """Why it cannot take attempts (empty: it can), the setup of its node, and what it is."""
        setup, refusal, env = self._setup, "", {}
        base = Path(setup.base)
        host = os.environ.get(NODE) or platform.node()
        resources = Resources.model_validate(setup.resources)
        devices: tuple[str, ...] = ()
        code = code_digest(base, base / setup.results if setup.results else None)
        try:
            os.environ.update(setup.variables)
            known = formats.variables()
            env = {name: formats.expand(text, known) for name, text in setup.env.items()}
            devices = hardware.find_devices(setup.gpus) if resources.gpus else ()
            hardware.fitting(resources, devices, 1)
        except formats.MissingVariable as missing:
            refusal = f"env: ${{{missing.args[0]}}} is not set on {host}"
        except BakeoffError as error:
            refusal = str(error)
        if code != setup.code:
            refusal = (
                f"{host} has other code (digest {code}) than the scheduler ({setup.code}): install the same "
                "bakeoff and the same files there"
            )
        if not refusal and setup.probe:
            refusal = _failed_probe(setup.probe, base)
        if self._limits.time is not None and self._outlasts(time.monotonic()):
            # Otherwise it would give everything back, and so would the pilot after it, and the one after that.
            left = (self._ends or 0.0) - time.monotonic()
            refusal = (
                f"limits.time: a run may take {self._limits.time:g} s, and the allocation on {host} ends in {left:.0f} s: "
                "ask for a longer one (executor.time), or lower limits.time"
            )
        packages = {**installed_packages(), **local_modules(base.absolute())}
        facts = NodeFacts(host, hardware.kind_of_node(devices), code, os.getpid(), packages)
        if refusal:
            return refusal, None, facts
        slots = setup.slots
        if resources.gpus:  # the engine may have assigned fewer devices than the slots would need
            slots = min(slots, hardware.DeviceSlots(devices, resources.gpus).total)
        return (
            "",
            NodeSetup(
                workload=setup.workload,
                dialect=setup.dialect,
                paths=self._paths,
                base=base,
                jobs=slots,
                limits=self._limits,
                resources=resources,
                gpus=devices,
                env=env,
                fresh=setup.fresh,
                checkpoints=setup.checkpoints,
                settle_after=setup.settle_after,
                # Of its own: a scheduler of the same edition on this machine sweeps what carries the edition's mark.
                edition_mark=f"pilot-{self._name}-{os.urandom(6).hex()}",
                session=0,
            ),
            facts,
        )

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True

    def _work(self, node: Node) -> str:
        """The loop. Returns why it ended."""
        while True:
            for message in self._connection.take():
                self._handle(message, node)
            if self._connection.broken is not None:
                node.stop(running=True)
                return (
                    f"it cannot exchange messages: {type(self._connection.broken).__name__}: {self._connection.broken}"
                )
            now = time.monotonic()
            if now - self._connection.reached > self._setup.unreachable:
                # Its claims expire soon, and then others do its runs: two must not go on at once.
                node.stop(running=True)
                why = f"the control plane could not be reached for {self._setup.unreachable:g} s"
                return f"{why}: {self._connection.trouble}" if self._connection.trouble else why
            if self._connection.stuck():
                raise BakeoffError("run directories could not be brought home")
            if self._terminated:
                return self._leave_early(node)
            if self._stopping is not None:
                self._give_back(list(self._waiting))
                node.stop(running=self._stopping)
            self._start(node, now)
            held = bool(self._running or self._waiting or self._fetching or self._connection.carrying)
            if held:
                self._busy_at = now
            for attempt in node.wait(_IDLE if not held and now - self._busy_at > 1 else _BUSY):
                self._ended(attempt.position, attempt.status == "planned")
            self._save(now)
            self._beat(node, now)
            if not held and not self._running:
                if self._quit or (self._setup.once and self._known):
                    self._connection.post(Bye("nothing left to do"))
                    return "nothing left to do"
                alone = now - self._scheduler_seen
                if alone > self._setup.absent + self._setup.linger and now - self._busy_at > self._setup.linger:
                    self._connection.post(Bye("no scheduler came"))
                    return "no scheduler came"

    def _leave_early(self, node: Node) -> str:
        """The allocation ends: give back what waits, end what runs, and report what ended in time."""
        self._give_back(list(self._waiting))
        node.stop(running=True)
        deadline = time.monotonic() + min(self._limits.grace, _MARGIN) + 1.0
        lost = {order.token for order in self._running.values()}
        self._connection.post(Returned(list(self._fetching)))
        while self._running and time.monotonic() < deadline:
            for attempt in node.wait(0.05):
                order = self._running[attempt.position]
                if attempt.status not in ("cancelled", "planned"):
                    lost.discard(order.token)  # it ended by itself
                    self._ended(attempt.position, False)
                else:
                    directory = self._paths.runs / order.attempt.run_id
                    if directory.is_dir() and (directory / CHECKPOINT).is_dir() and order.token not in self._abandoned:
                        self._connection.save(
                            order.token, directory
                        )  # it may have written a checkpoint in its last seconds
                    del self._running[attempt.position]
        while self._connection.saving and time.monotonic() < deadline + _MARGIN:
            time.sleep(0.02)
        self._connection.bring_home(deadline + _MARGIN - time.monotonic())
        lost |= self._connection.carrying.keys()
        self._connection.post(Bye("the allocation ended or was preempted", sorted(lost - self._abandoned)))
        return "terminated"

    # -- messages

    def _handle(self, message: Downward, node: Node) -> None:
        self._scheduler_seen = time.monotonic()
        match message:
            case Orders(orders):
                fresh = [order for order in orders if order.token not in self._known]
                self._known.update(order.token for order in fresh)
                self._waiting.extend(fresh)
                self._stopping = None
            case Presence(_, clock):
                skew = time.time() - clock
                self._skew = skew if self._skew is None else min(self._skew, skew)
            case Stop(running):
                self._stopping = running
            case Recall(tokens):
                self._give_back([order for order in self._waiting if order.token in tokens])
            case Abandon(tokens):
                self._abandon(set(tokens), node)
            case Quit(now):
                self._quit = True
                if now:
                    self._abandon({order.token for order in (*self._waiting, *self._running.values())}, node)

    def _abandon(self, tokens: set[str], node: Node) -> None:
        """End these runs and say nothing about them."""
        self._abandoned |= tokens
        self._waiting = deque(order for order in self._waiting if order.token not in tokens)
        for position, order in self._running.items():
            if order.token in tokens:
                node.end(position)

    def _give_back(self, orders: Sequence[Order]) -> None:
        if orders:
            gone = {order.token for order in orders}
            self._waiting = deque(order for order in self._waiting if order.token not in gone)
            self._connection.post(Returned([order.token for order in orders]))

    def _beat(self, node: Node, now: float) -> None:
        """A sign of life with all that it holds, every heartbeat. Soon after something came or began, only that."""
        whole = now >= self._beat_at
        if not whole and now < self._beat_soon:
            return
        held = [(order.token, self._scheduler_time(order.attempt.started_at)) for order in self._running.values()]
        held += [(order.token, None) for order in (*self._waiting, *self._fetching.values())]
        held += self._connection.carrying.copy().items()  # a large directory takes longer than a claim lasts
        if whole:
            self._beat_at = now + self._setup.heartbeat
            self._named.clear()
        else:  # the scheduler has the rest, and a thousand pilots with a hundred claims each would keep it busy
            held = [entry for entry in held if entry not in self._named]
            if not held:
                return
        self._beat_soon = now + 0.5
        self._named.update(held)
        self._connection.post(Beat(held, 2 * node.width(), whole))

    def _scheduler_time(self, at: float | None) -> float | None:
        """A time of this node's clock by the scheduler's, if they differ."""
        return at if at is None or self._skew is None or abs(self._skew) < _SKEWED else at - self._skew

    # -- attempts

    def _start(self, node: Node, now: float) -> None:
        """Start what there is room for, and give back what would outlast the allocation."""
        if self._waiting and self._outlasts(now):
            self._give_back(list(self._waiting))
            self._quit = True
        while self._connection.fetched:
            order, error = self._connection.fetched.popleft()
            del self._fetching[order.token]
            if error is None:
                if order.files:
                    order.attempt.params = with_places(order.attempt.params, order.files, self._files)
                self._waiting.appendleft(Order(order.token, order.attempt))
            else:
                self._running[order.attempt.position] = order
                node.refuse(order.attempt, error)
        for _ in range(min(len(self._waiting), node.capacity())):
            order = self._waiting.popleft()
            if order.resumes or order.files:
                self._fetching[order.token] = order
                self._connection.fetch(order, self._paths.runs / order.attempt.run_id, self._files)
            else:
                self._running[order.attempt.position] = order
                node.start(order.attempt)

    def _outlasts(self, now: float) -> bool:
        """Whether a run that begins now may last longer than the allocation."""
        return self._ends is not None and now + (self._limits.time or 0.0) + self._limits.grace + _MARGIN > self._ends

    def _ended(self, position: int, unbegun: bool) -> None:
        order = self._running.pop(position)
        attempt = order.attempt
        directory = os.path.join(self._runs, attempt.run_id)
        self._saved.pop(order.token, None)
        if order.token in self._abandoned:
            remove(Path(directory))
            return
        if unbegun:
            if self._stopping is None:
                self._waiting.appendleft(order)  # a worker left; another one takes it
            else:
                self._connection.post(Returned([order.token]))
            return
        if order.token in self._connection.unsaved:
            add_note(attempt, _NEVER_SAVED)
        attempt.params = "{}"  # the scheduler has them
        attempt.started_at = self._scheduler_time(attempt.started_at)
        attempt.ended_at = self._scheduler_time(attempt.ended_at)
        attempt.node = self._name
        if os.path.isdir(directory) and not os.path.islink(directory):
            # Its own place until it is delivered: the run may come back here meanwhile.
            leaving = self._scratch.path / "leaving" / order.token
            report = Report(order.token, attempt, True)
            try:
                leaving.parent.mkdir(exist_ok=True)
                os.chmod(directory, 0o700)  # a run may have closed it, and then it cannot be renamed
                os.rename(directory, leaving)
            except OSError as error:
                self._connection.post(without_directory(report, Path(directory), error))
            else:
                self._connection.deliver(report, leaving)
        else:
            self._connection.post(Report(order.token, attempt))

    def _save(self, now: float) -> None:
        """Send home a run's directory when its checkpoint changed and has been left alone since the last look.

        A copy of files that are being written would be a checkpoint that never was. So it is copied when two looks, half
        a second apart or more, see the same files, sizes and times; or after some time without such looks. In both cases the
        link drops a copy during which the files changed.
        """
        if not self._setup.checkpoints or self._connection.saving or now < self._look_at:
            return
        for order in self._running.values():
            at, last = self._saved.get(order.token, (0.0, None))
            if now < at:
                continue
            state = checkpoint_state(self._paths.runs / order.attempt.run_id)
            if not state or state == last:
                self._saved[order.token] = (now + 1.0, last)
            elif isinstance(last, _Pending) and (last.state == state or now - last.since > _PATIENCE):
                self._connection.save(order.token, self._paths.runs / order.attempt.run_id)
                self._saved[order.token] = (now + max(_SAVE_INTERVAL, _SAVE_SHARE * self._connection.save_took), state)
                return
            else:
                since = last.since if isinstance(last, _Pending) else now
                self._saved[order.token] = (now + 0.5, _Pending(state, since))
        self._look_at = now + _LOOK_INTERVAL


@dataclass(frozen=True, slots=True)
class _Pending:
    """A checkpoint that changed, as it was at the last look."""

    state: object
    since: float
    """When it was first seen to have changed since it was saved."""


def _failed_probe(command: str, base: Path) -> str:
    """Run the experiment's probe command. Returns why the node gets no runs; empty when it does."""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=base, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_PROBE_PATIENCE, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"executor.probe failed: {error}"
    said = done.stdout.decode(errors="replace").strip().rpartition("\n")[2]
    return f"executor.probe failed: exit code {done.returncode}: {said}" if done.returncode else ""


def run_pilot(setup: PilotSetup, link: Link, name: str) -> str:
    """Be a pilot until there is nothing left to do. Returns why it left."""
    return Pilot(setup, link, name).run()
