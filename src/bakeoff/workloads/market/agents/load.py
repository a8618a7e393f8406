"""Load an agent by its name.

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.market.agents.base import Agent

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
    "generator-cracker": "probes:GeneratorCracker",
    "cheap-side": "probes:CheapSide",
    "both-sides": "probes:BothSides",
    "always-long": "probes:AlwaysLong",
    "unbounded-stake": "probes:UnboundedStake",
    "wash-trader": "probes:WashTrader",
    "price-pusher": "probes:PricePusher",
}
"""Agents that ship with bakeoff: module in this package, and class."""
_SHIPPED = frozenset(_PACKAGE + place for place in BASELINES.values())


def load(spec: str, options: Mapping[str, Any] | None = None, *, base: Path | None = None) -> Agent:
    """Return the agent that `spec` names. `options` go to its constructor.

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

        return hosted(rest, settings, base)
    if kind == "cmd":
        from bakeoff.workloads.market.agents.process import LinesAgent

        cls, arguments, settings = LinesAgent, (rest,), {"cwd": base, **settings}
    elif kind == "policy":
        from bakeoff.workloads.market.agents.learned import PolicyAgent

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
