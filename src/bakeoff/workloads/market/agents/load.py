"""An agent by its name: one that ships with bakeoff, a class of yours, a program, or a language model.

momentum                    an agent that ships with bakeoff
package.module:Class        a class that can be imported
path/to/file.py:Class       a class in a file
process:path/to/file.py:Class   the same in a process of its own: it can neither hang this one nor look into it
cmd:python my_agent.py      a program that speaks JSON-RPC in lines
llm:MODEL                   a language model; options say where it is served
policy:FILE                 a policy that `bakeoff market train` wrote
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError, did_you_mean
from bakeoff.workloads.market.agents.face import Agent

_HERE = "bakeoff.workloads.market.agents."
BASELINES: dict[str, str] = {
    "null": "passive:Null",
    "buy-and-hold": "passive:BuyAndHold",
    "random": "chance:Random",
    "momentum": "chartist:Momentum",
    "mean-reversion": "chartist:MeanReversion",
    "follow-the-news": "reader:FollowTheNews",
    "follow-insider": "reader:FollowInsider",
    "market-price": "forecaster:MarketForecaster",
    "kelly-bayes": "bayes:KellyBayes",
    "clairvoyant": "clairvoyant:Clairvoyant",
    "generator-cracker": "cracker:GeneratorCracker",
    "cheap-side": "probes:CheapSide",
    "both-sides": "probes:BothSides",
    "always-long": "probes:AlwaysLong",
    "unbounded-stake": "probes:UnboundedStake",
    "wash-trader": "probes:WashTrader",
    "price-pusher": "probes:PricePusher",
}
"""Agents that ship with bakeoff: module and class, below this package."""


def load(spec: str, options: Mapping[str, Any] | None = None, *, base: Path | None = None) -> Agent:
    """The agent. `options` go to its constructor; paths and modules are looked for in `base` too."""
    base = base or Path.cwd()
    if spec.startswith("cmd:"):
        from bakeoff.workloads.market.agents.lines import LinesAgent

        return _made(spec, LinesAgent, {"cwd": base, **(options or {})}, spec.removeprefix("cmd:"))
    if spec.startswith("process:"):
        from bakeoff.workloads.market.agents.host import hosted

        return hosted(spec.removeprefix("process:"), options or {}, base)
    if spec.startswith("policy:"):
        from bakeoff.workloads.market.agents.learned import PolicyAgent

        return _made(spec, PolicyAgent, options or {}, base / spec.removeprefix("policy:"))
    if spec.startswith("llm:"):
        from bakeoff.workloads.market.agents.llm import LlmAgent

        return _made(spec, LlmAgent, {"model": spec.removeprefix("llm:"), **(options or {})})
    return _made(spec, agent_class(spec, base), options or {})


def _made(spec: str, cls: Any, options: Mapping[str, Any], *args: Any) -> Agent:
    try:
        agent = cls(*args, **options)
    except TypeError as error:
        raise UsageError(f"agent {spec!r} does not take these options: {error}") from error
    missing = [name for name in ("reset", "act") if not callable(getattr(agent, name, None))]
    if missing:
        raise UsageError(f"agent {spec!r} has no method {missing[0]!r}; an agent has reset(brief) and act(seat)")
    if inspect.iscoroutinefunction(agent.act) or inspect.isgeneratorfunction(agent.act):
        raise UsageError(f"agent {spec!r}: act is no coroutine or generator, but a function that acts and returns")
    if not isinstance(getattr(agent, "name", None), str):
        agent.name = spec
    found: Agent = agent
    return found


def agent_class(spec: str, base: Path) -> type:
    """The class that a name, `module:Class` or `file.py:Class` means."""
    if spec.startswith(("http:", "https:")):
        raise UsageError(f"agent {spec!r}: agents call the world; give yours the address of `bakeoff market serve`")
    if spec in BASELINES:
        module, _, name = BASELINES[spec].partition(":")
        found: type = getattr(importlib.import_module(_HERE + module), name)
        return found
    where, colon, name = spec.rpartition(":")
    if not colon or not name.isidentifier():
        raise UsageError(f"unknown agent {spec!r}; {_hint(spec)}")
    module_found = _from_file(base / where, spec) if where.endswith(".py") else _imported(where, spec, base)
    found_class = getattr(module_found, name, None)
    if not isinstance(found_class, type):
        raise UsageError(f"agent {spec!r}: {where} has no class {name!r}")
    return found_class


def shipped(agent: Agent) -> bool:
    """Whether it is one of ours: those are known to answer, and may ask for what others cannot see."""
    cls = type(agent)
    return f"{cls.__module__}:{cls.__qualname__}" in _shipped_classes()


@cache
def _shipped_classes() -> frozenset[str]:
    return frozenset(_HERE + name for name in BASELINES.values())


def _hint(spec: str) -> str:
    known = f"one of {', '.join(BASELINES)}; or module:Class, file.py:Class, process:..., cmd:PROGRAM, llm:MODEL, policy:FILE"
    return did_you_mean(spec, BASELINES, known)


def _imported(module: str, spec: str, base: Path) -> Any:
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise UsageError(f"agent {spec!r} cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(path: Path, spec: str) -> Any:
    path = path.resolve()
    found = importlib.util.spec_from_file_location(f"bakeoff_agent_{path.stem}", path)
    if found is None or found.loader is None or not path.is_file():
        raise UsageError(f"agent {spec!r}: there is no file {path}")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses and pickle look there
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"agent {spec!r}: {path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
