"""The interface of an agent: a `Brief` before the first tick, and a `Seat` in every turn.

An agent is any object with a `name`, `reset(brief)` and `act(seat)`. It may also have `close()`, which is called after
the last tick. `act` is called once per tick, and returning from it ends the turn:

    class Buyer:
        name = "buyer"

        def reset(self, brief: Brief) -> None: ...

        def act(self, seat: Seat) -> None:
            for market in seat.markets():
                if market.yes_price < 0.3:
                    seat.buy(market.id, "YES", dollars=10)

`attempt` and `steer` place orders the way the shipped agents do: a refused order is skipped.

`load` returns an agent by its name:

    momentum                        an agent that ships with bakeoff
    package.module:Class            a class that can be imported
    path/to/file.py:Class           a class in a file
    process:path/to/file.py:Class   the same class in its own process: it can neither hang this one nor look into it
    cmd:python my_agent.py          a program that speaks JSON-RPC in lines
    llm:MODEL                       a language model; options say where it is served
    policy:FILE                     a policy that `bakeoff market train` wrote
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.market.rpc import RpcError

if TYPE_CHECKING:
    import numpy as np

    from bakeoff.workloads.market.agents.program import Access
    from bakeoff.workloads.market.session import Session
    from bakeoff.workloads.market.world import views


MIN_ORDER = 10.0
"""Dollars. The world refuses smaller orders for perpetuals, and smaller orders for shares are not worth an action."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent knows before the first tick."""

    agent_id: str
    seat: int
    ticks: int
    scenario: Mapping[str, Any]
    """Public parameters: duration, interval, numbers of markets, regime, tier, fees, limits."""
    action_budget: int
    response_timeout: float | None
    rng: np.random.Generator
    """The agent's own random generator. Draw from it and runs with the same seed repeat."""
    rules: str = ""
    """How the world works, in English; serves as a system prompt."""
    model: Any = None
    """Reliabilities of sources and chats, by id (`World.reliability`). Only shipped agents that ask for it get it."""
    truth: Any = None
    """The hidden state. Only shipped agents that ask for it get it."""


@runtime_checkable
class Agent(Protocol):
    """What `Episode` plays. See the module's docstring for an example."""

    name: str

    def reset(self, brief: Brief) -> None:
        """Prepare for an episode. Called once, before the first tick."""

    def act(self, seat: Seat) -> None:
        """Play one turn. An exception is recorded as a crash; what was done before it stands."""


@dataclass(slots=True)
class LlmCall:
    """One exchange with a language model. Agents report it with `Seat.record_llm`, and trajectories keep it."""

    messages: list[dict[str, Any]]
    """The conversation that was sent, with the reply as its last message."""
    model: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    latency_s: float = 0.0
    error: str | None = None


class Seat:
    """An agent's access to the world. A refused action raises `RpcError`, whose `type` says why.

    Typed views (`markets()` and so on) are cheaper than `observe()`, which renders everything as JSON.
    """

    __slots__ = ("_session", "llm_calls")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.llm_calls: list[LlmCall] = []

    # -- reading

    @property
    def tick(self) -> int:
        """The current tick, from 0 to `ticks - 1`."""
        return self._session.world.tick

    @property
    def ticks(self) -> int:
        """Ticks of the episode."""
        return self._session.world.ticks

    @property
    def actions_left(self) -> int:
        """Actions that this turn still allows; refused ones count too."""
        return self._session.actions_left

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline of this turn, or None without a deadline."""
        return self._session.seconds_left

    def clock_facts(self) -> dict[str, Any]:
        """`{tick, ticks, timestamp, done}`, as `a2a.endTurn` answers."""
        return self._session.clock_facts()

    def observe(self) -> dict[str, Any]:
        """Everything that this seat may see now, ready for JSON."""
        return self._session.observe()

    def markets(self) -> list[views.MarketView]:
        """Open prediction markets."""
        # The lock: other agents may act in the same world from their own threads.
        with self._session.lock:
            return self._session.world.markets()

    def perpetuals(self) -> list[views.PerpView]:
        """Perpetual futures, with the story that each of them is in."""
        with self._session.lock:
            return self._session.world.perpetuals()

    def account(self) -> views.Account:
        """The agent's own money, in dollars."""
        with self._session.lock:
            return self._session.world.account(self._session.seat)

    def positions(self) -> views.PositionsView:
        """The agent's own shares (`markets`) and perpetual positions (`perps`)."""
        with self._session.lock:
            return self._session.world.positions(self._session.seat)

    def posts(self, limit: int = 50) -> list[views.PostView]:
        """The public feed, newest first."""
        with self._session.lock:
            return self._session.world.posts(self._session.seat, limit)

    def chats(self) -> list[views.ChatView]:
        """Group chats that the agent has joined or is invited to."""
        with self._session.lock:
            return self._session.chats()

    def trades(self, limit: int = 50) -> list[views.TradeView]:
        """Trades of everybody, newest first."""
        with self._session.lock:
            return self._session.world.trades(limit)

    # -- acting

    def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Call any method of the protocol by its `a2a.*` name."""
        return self._session.call(method, params, idempotency_key=idempotency_key)

    def buy(self, market_id: str, side: Literal["YES", "NO"], dollars: float) -> dict[str, Any]:
        """Spend `dollars`, fee included, on shares of one side. A share of the right side pays 1."""
        return self.call("a2a.buyShares", {"marketId": market_id, "outcome": side, "amount": dollars})

    def sell(self, market_id: str, side: Literal["YES", "NO"], shares: float) -> dict[str, Any]:
        """Sell shares that the agent holds."""
        return self.call("a2a.sellShares", {"marketId": market_id, "outcome": side, "shares": shares})

    def open(self, ticker: str, side: Literal["LONG", "SHORT"], size: float, leverage: float = 1.0) -> dict[str, Any]:
        """Open a perpetual position of `size` dollars of notional value, or add to it; margin is size / leverage.

        An order against a position reduces it first.
        """
        return self.call(
            "a2a.openPosition", {"ticker": ticker, "side": side, "size": size, "leverage": float(leverage)}
        )

    def close(self, ticker: str, size: float | None = None) -> dict[str, Any]:
        """Close a perpetual position, or `size` dollars of it. `ticker` may also be the position's id."""
        params: dict[str, Any] = {"positionId": ticker}
        if size is not None:
            params["size"] = size
        return self.call("a2a.closePosition", params)

    def post(
        self,
        content: str,
        market_id: str | None = None,
        side: Literal["YES", "NO"] | None = None,
        probability: float | None = None,
    ) -> dict[str, Any]:
        """Write to the feed. A stated probability is scored when the market resolves."""
        params = {"content": content, "marketId": market_id, "outcome": side, "probability": probability}
        return self.call("a2a.createPost", {name: value for name, value in params.items() if value is not None})

    def join(self, chat_id: str) -> dict[str, Any]:
        """Join a group chat that has invited the agent."""
        return self.call("a2a.joinGroup", {"groupId": chat_id})

    def message(self, chat_id: str, content: str) -> dict[str, Any]:
        """Write to a group chat that the agent has joined."""
        return self.call("a2a.sendMessage", {"chatId": chat_id, "content": content})

    def end_turn(self) -> None:
        """Allow no more actions in this tick. Returning from `act` does the same."""
        self._session.end_turn()

    def record_llm(self, call: LlmCall) -> None:
        """Keep an exchange with a language model for the trajectory."""
        self.llm_calls.append(call)


# -- orders of the shipped agents


def attempt(action: Callable[..., dict[str, Any]], *args: Any, **options: Any) -> dict[str, Any] | None:
    """Call `action` (`seat.buy`, `seat.open`, ...) and return its answer, or None when it is refused.

    attempt(seat.buy, market.id, "YES", 10.0)
    """
    try:
        return action(*args, **options)
    except RpcError:
        return None


def signed_size(positions: Iterable[views.PerpPositionView], ticker: str) -> float:
    """Return the notional value of the position in `ticker`: negative when short, 0 without a position."""
    sizes = (view.size if view.side == "LONG" else -view.size for view in positions if view.ticker == ticker)
    return next(sizes, 0.0)


def steer(seat: Seat, ticker: str, held: float, target: float, leverage: float = 1.0) -> None:
    """Move a perpetual position from `held` to `target` signed dollars.

    A position on the wrong side is closed first. Differences below `MIN_ORDER` are left alone.
    """
    if held and (target == 0 or (target > 0) != (held > 0)):
        attempt(seat.close, ticker)
        held = 0.0
    missing = target - held
    if abs(missing) < MIN_ORDER:
        return
    if held and (missing > 0) != (held > 0):
        attempt(seat.close, ticker, abs(missing))
    else:
        attempt(seat.open, ticker, "LONG" if target > 0 else "SHORT", abs(missing), leverage)


# -- agents by name

_PACKAGE = "bakeoff.workloads.market.agents."
BASELINES: dict[str, str] = {
    "null": "baselines:Null",
    "buy-and-hold": "baselines:BuyAndHold",
    "random": "baselines:Random",
    "momentum": "baselines:Momentum",
    "mean-reversion": "baselines:MeanReversion",
    "follow-the-news": "baselines:FollowTheNews",
    "follow-insider": "baselines:FollowInsider",
    "market-price": "baselines:MarketForecaster",
    "kelly-bayes": "bayes:KellyBayes",
    "clairvoyant": "bayes:Clairvoyant",
    "generator-cracker": "baselines:GeneratorCracker",
    "cheap-side": "baselines:CheapSide",
    "both-sides": "baselines:BothSides",
    "always-long": "baselines:AlwaysLong",
    "unbounded-stake": "baselines:UnboundedStake",
    "wash-trader": "baselines:WashTrader",
    "price-pusher": "baselines:PricePusher",
}
"""Agents that ship with bakeoff: module in this package, and class."""
_SHIPPED = frozenset(_PACKAGE + place for place in BASELINES.values())


def load(
    spec: str, options: Mapping[str, Any] | None = None, *, base: Path | None = None, access: Access | None = None
) -> Agent:
    """Return the agent that `spec` names. `options` go to its constructor, `access` is what a program of it may see.

        load("momentum", {"window": 10})

    Paths and modules are looked up in `base` (default: the working directory). Raises UsageError when there is no such
    agent, when it does not accept the options, or when the class is not an agent.
    """
    base = base or Path.cwd()
    kind, _, rest = spec.partition(":")
    cls: Any
    arguments: tuple[Any, ...] = ()
    settings = dict(options or {})
    if kind == "process":
        from bakeoff.workloads.market.agents.process import hosted
        from bakeoff.workloads.market.agents.program import Access

        return hosted(rest, settings, base, access or Access())
    if kind == "cmd":
        from bakeoff.workloads.market.agents.process import LinesAgent

        cls, arguments, settings = LinesAgent, (rest,), {"cwd": base, "access": access, **settings}
    elif kind == "policy":
        from bakeoff.workloads.market.policy import PolicyAgent

        cls, arguments = PolicyAgent, (base / rest,)
    elif kind == "llm":
        from bakeoff.workloads.market.agents.llm import LlmAgent

        cls, settings = LlmAgent, {"model": rest, **settings}
    else:
        cls = agent_class(spec, base)
    try:
        agent = cls(*arguments, **settings)
    except TypeError as error:
        raise UsageError(f"agent {spec!r} does not accept these options: {error}") from error
    missing = [name for name in ("reset", "act") if not callable(getattr(agent, name, None))]
    if missing:
        raise UsageError(f"agent {spec!r} has no method {missing[0]!r}; an agent has reset(brief) and act(seat)")
    # Calling such a function would only create an object: the agent would seem to do nothing.
    if inspect.iscoroutinefunction(agent.act) or inspect.isgeneratorfunction(agent.act):
        raise UsageError(f"agent {spec!r}: act must be a plain function that acts and returns, not a coroutine")
    if not isinstance(getattr(agent, "name", None), str):
        agent.name = spec
    loaded: Agent = agent
    return loaded


def in_process_warning(spec: str) -> str | None:
    """Return what to tell the owner of a contest about an agent whose code runs beside the world; None for all others."""
    if ":" not in spec or spec.partition(":")[0] in ("process", "cmd", "llm", "policy"):
        return None
    return (
        f"agent {spec} runs in the process that holds the world, so it can read the secret and everything that "
        f"will happen; if you do not trust it, name it process:{spec}"
    )


def agent_class(spec: str, base: Path) -> type:
    """Return the class that a shipped agent's name, `module:Class` or `file.py:Class` means, or raise UsageError."""
    if spec.startswith(("http:", "https:")):
        raise UsageError(f"agent {spec!r}: agents call the world; give yours the address of `bakeoff market serve`")
    if spec in BASELINES:
        where, _, name = BASELINES[spec].partition(":")
        shipped_class: type = getattr(importlib.import_module(_PACKAGE + where), name)
        return shipped_class
    where, colon, name = spec.rpartition(":")
    if not colon or not name.isidentifier():
        forms = "module:Class, file.py:Class, process:..., cmd:PROGRAM, llm:MODEL, policy:FILE"
        hint = did_you_mean(spec, BASELINES, f"one of {', '.join(BASELINES)}; or {forms}")
        raise UsageError(f"unknown agent {spec!r}; {hint}")
    cls = getattr(_module(where, spec, base), name, None)
    if not isinstance(cls, type):
        raise UsageError(f"agent {spec!r}: {where} has no class {name!r}")
    return cls


def _module(where: str, spec: str, base: Path) -> Any:
    """Import a module by name, with `base` on the path, or execute a file below `base`."""
    try:
        if not where.endswith(".py"):
            if str(base) not in sys.path:
                sys.path.insert(0, str(base))
            return importlib.import_module(where)
        path = (base / where).resolve()
        file_spec = importlib.util.spec_from_file_location(f"bakeoff_agent_{path.stem}", path)
        if file_spec is None or file_spec.loader is None or not path.is_file():
            raise UsageError(f"agent {spec!r}: there is no file {path}")
        module = importlib.util.module_from_spec(file_spec)
        sys.modules[file_spec.name] = module  # dataclasses and pickle look the module up there
        file_spec.loader.exec_module(module)
        return module
    except UsageError:
        raise
    except Exception as error:  # whatever the user's module raises while it is executed
        raise UsageError(f"agent {spec!r}: {where} cannot be imported: {type(error).__name__}: {error}") from error


def shipped(agent: Agent) -> bool:
    """Whether the agent is one of ours. Those answer without a deadline, and may ask for what others cannot see."""
    cls = type(agent)
    return f"{cls.__module__}:{cls.__qualname__}" in _SHIPPED
