"""The interface of engines: how messages and run directories travel, and how pilots are started and ended.

An adapter implements three protocols:

* `Transport`, the scheduler's end. `PilotExecutor` calls it from the scheduler's one thread, so no method may block
  for long; an engine whose calls block has a thread of its own behind it.
* `Link`, the pilot's end. `exchange` is called by one thread and the other methods by another one; both may hang. An
  `exchange` that fails or hangs for `PilotSetup.unreachable` seconds makes the pilot end its runs.
* `Launcher`, which asks the engine for pilots.

On the node the adapter starts whatever makes a `Link` and calls `run_pilot(setup, link, name)` (pilot.py).

Run directories travel whole. A pilot runs attempts in scratch of its node:

    Order.resumes  -> Link.fetch(run_id, there)      the directory at home, with checkpoint/ and attempts/, comes down
    while it runs  -> Link.save(token, directory)    now and then, when checkpoint/ changed: a copy goes home
    it ended       -> Link.deliver(token, directory) goes home, and after that its Report is sent

What was delivered lies in `Arrivals.delivered(token)`, and what was saved in `Arrivals.saved(token)`: complete, synced,
on the file system of `runs/`. `Transport.receive` returns a Report with `directory` only when that is so. The executor
renames it into its place and then returns the attempt to the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bakeoff.engine.pilots.messages import Downward, Upward
from bakeoff.records.claims import PilotName


class PilotSetup(msgspec.Struct, frozen=True):
    """What a pilot has to know before its first attempt. It holds no secret, so it may lie in a file."""

    workload: str
    dialect: str
    experiment: str
    edition: str
    base: str
    """The experiment file's directory on the node."""
    slots: int
    limits: dict[str, Any]
    """`spec.experiment.Limits` as a table."""
    resources: dict[str, Any]
    """`spec.experiment.Resources` as a table."""
    gpus: int | None
    """Declared devices; None: the node's own are detected."""
    env: dict[str, str]
    """As in the experiment file: `${NAME}` is filled in on the node, from its own environment."""
    fresh: bool
    checkpoints: bool
    settle_after: float
    code: str
    """Digest of the scheduler's code (`records.codefiles.code_digest`); a pilot that has other code leaves."""
    results: str = ""
    """Where results are, relative to `base`: not code. Empty when they are elsewhere."""
    heartbeat: float = 5.0
    unreachable: float = 20.0
    """Seconds without the control plane after which a pilot ends its runs. Less than the expiry of claims."""
    absent: float = 30.0
    """Seconds without a sign of the scheduler after which there is none."""
    linger: float = 600.0
    """Seconds that a pilot with nothing left to do waits for the next scheduler."""
    once: bool = False
    """Leave after the first attempt: one job of the engine for each run."""
    probe: str = ""
    """Shell command that has to succeed before the pilot takes attempts."""
    variables: dict[str, str] = {}
    """Added to the pilot's own environment before anything else, such as the chosen sandbox. No secrets."""


class Link(Protocol):
    """A pilot's end. Every method raises OSError when the control plane cannot be reached; the pilot tries again."""

    def exchange(self, messages: Sequence[Upward]) -> list[Downward]:
        """Send `messages`, and return what arrived since the last call.

        Called at least four times a second, also with nothing to send: that it returns proves that the control plane
        can be reached. What was sent stays available to the next scheduler, whatever becomes of the pilot, or
        for as long as the pilot lives where the engine has no place for it.
        """

    def fetch(self, name: str, directory: Path) -> None:
        """Bring the directory of the run `name` at home to `directory`, which does not exist yet.

        If the transport attaches files to orders (attachments.py), `name` may also be the digest of such files.
        """

    def deliver(self, token: str, directory: Path) -> None:
        """Bring the run's directory home, so that it is there before the Report that is sent next."""

    def save(self, token: str, directory: Path) -> None:
        """As `deliver`, for a run that goes on; it replaces what was saved before."""


class Transport(Protocol):
    """The scheduler's end."""

    def known(self) -> list[str]:
        """Pilots that were opened by earlier sessions of this edition and may still live."""

    def open(self, pilots: Mapping[PilotName, PilotSetup]) -> None:
        """Make a place for each pilot, before the launcher starts them."""

    def receive(self) -> list[tuple[str, Upward]]:
        """(pilot, message) of everything that arrived since the last call; does not wait.

        The first call also returns what was sent to earlier sessions and was not recorded by them. It may return more
        than that: reports of claims that are over are dropped.
        """

    def send(self, pilot: str, messages: Sequence[Downward]) -> None:
        """Send to one pilot. A pilot that is gone is not an error."""

    def recorded(self, tokens: Sequence[str]) -> None:
        """These claims are over and durable: pilots need not keep their reports any longer."""

    def forget(self, pilot: str) -> None:
        """The pilot has left or was given up, and nothing more is expected of it."""

    def close(self) -> None:
        """The session is over and all pilots have left: remove what is only needed to talk to them."""


class Launcher(Protocol):
    """Asks the engine for pilots. What it says about them explains losses and never decides them."""

    def start(self, pilots: Sequence[str], *, avoid: Sequence[str]) -> None:
        """Ask for these pilots, if possible not on the hosts `avoid`. Raises BakeoffError when the engine refuses."""

    def ended(self) -> Mapping[str, str]:
        """Pilots that are over as far as the engine knows, and its word for why (`PREEMPTED`, `exit code 1`).

        Called several times a second; asks the engine every few seconds at most.
        """

    def explained(self, why: str) -> bool:
        """Whether such an end is the engine's own doing: preemption, a node that failed, an allocation that is over."""

    def log(self, pilot: str) -> str:
        """The last lines of what the pilot printed, for an error message; empty when there are none."""

    def close(self) -> None:
        """End every pilot of this edition that is left, and return when the engine has none any more."""
