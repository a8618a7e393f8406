"""What scheduler and pilots tell each other. Every transport carries these, encoded as MessagePack.

Messages between one scheduler and one pilot arrive in order. One may arrive twice: whoever gets it ignores the second
one, because tokens are unique.
"""

from __future__ import annotations

import msgspec

from bakeoff.records.run import Attempt


class Order(msgspec.Struct, array_like=True, frozen=True):
    """One attempt that is claimed for a pilot."""

    token: str
    """Names the claim. It is opaque: pilots only repeat it."""
    attempt: Attempt
    resumes: bool = False
    """The run has a directory at home, which the pilot fetches first (`Link.fetch`)."""
    files: dict[str, str] = {}
    """Paths in the parameters that nodes do not have, and where they are below the digest (attachments.py)."""


# -- from the scheduler


class Orders(msgspec.Struct, tag="orders", array_like=True, frozen=True):
    """Attempts for the pilot to run."""

    orders: list[Order]


class Presence(msgspec.Struct, tag="presence", array_like=True, frozen=True):
    """A scheduler is there. Sent with every heartbeat."""

    session: int
    clock: float
    """`time.time()` of the scheduler, by which pilots correct their own."""


class Stop(msgspec.Struct, tag="stop", array_like=True, frozen=True):
    """Give back what has not begun. With `running`, end what is running as well: it is reported as cancelled."""

    running: bool


class Recall(msgspec.Struct, tag="recall", array_like=True, frozen=True):
    """Give back those of these that have not begun: another pilot has nothing to do."""

    tokens: list[str]


class Abandon(msgspec.Struct, tag="abandon", array_like=True, frozen=True):
    """These claims are no longer the pilot's: end their runs and report nothing."""

    tokens: list[str]


class Quit(msgspec.Struct, tag="quit", array_like=True, frozen=True):
    """Leave: when nothing is held any more, or with `now` at once."""

    now: bool = False


# -- from a pilot


class NodeFacts(msgspec.Struct, array_like=True, frozen=True):
    """Where a pilot runs."""

    host: str
    kind: str
    """Processor, cores, memory and devices in one line: nodes with the same line are of one kind."""
    code: str
    """Digest of the code that the pilot would run (`records.codefiles.code_digest`)."""
    pid: int = 0
    packages: dict[str, str] = {}
    """Versions of the packages and digests of the local modules there, by name (`records.packages`)."""


class Hello(msgspec.Struct, tag="hello", array_like=True, frozen=True):
    """The first message of a pilot."""

    node: NodeFacts
    slots: int
    most: int
    """How many attempts it holds at most."""
    refusal: str = ""
    """Why it takes no attempts, such as other code than the scheduler's; it leaves then."""


class Beat(msgspec.Struct, tag="beat", array_like=True, frozen=True):
    """The pilot lives, and holds these claims."""

    held: list[tuple[str, float | None]]
    """Token, and when its attempt began (None when it waits)."""
    most: int
    whole: bool = True
    """Whether these are all that it holds; otherwise, what came or began since the last beat."""


class Report(msgspec.Struct, tag="report", array_like=True, frozen=True):
    """An attempt ended; its result is in it. Times are by the scheduler's clock."""

    token: str
    attempt: Attempt
    directory: bool = False
    """It has a run directory, which has been delivered."""


class Returned(msgspec.Struct, tag="returned", array_like=True, frozen=True):
    """Attempts that have not begun and will not, here."""

    tokens: list[str]


class Bye(msgspec.Struct, tag="bye", array_like=True, frozen=True):
    """The pilot leaves. Attempts that it had begun and could not finish are lost."""

    why: str
    lost: list[str] = []
    expected: bool = True
    """The engine asked for it (an allocation that ends, preemption): nobody's fault."""


Downward = Orders | Presence | Stop | Recall | Abandon | Quit
Upward = Hello | Beat | Report | Returned | Bye

encode = msgspec.msgpack.Encoder().encode
decode_downward = msgspec.msgpack.Decoder(Downward).decode
decode_upward = msgspec.msgpack.Decoder(Upward).decode
