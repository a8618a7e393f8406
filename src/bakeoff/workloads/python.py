"""The `python` workload: `package.module:function`, called with the parameters and the context in a warm worker."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, field_validator

from bakeoff.errors import InfraError, Problem
from bakeoff.spec.identity import flatten
from bakeoff.spec.plan import Cell, Plan
from bakeoff.spec.workload import FINISHED, Outcome, RunContext, Scalar

PROVIDED = ("ctx", "context", "seed")
"""Arguments that a function gets if it has a parameter of that name."""


class PythonParams(BaseModel):
    model_config = ConfigDict(extra="allow")
    settings: ClassVar[frozenset[str]] = frozenset({"function"})
    free_numbers: ClassVar[bool] = True

    function: str
    """`package.module:function`; modules beside the experiment file can be imported."""

    @field_validator("function")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        if not _is_function_name(value):
            raise ValueError(f"{value!r} must be 'package.module:function'")
        return value


@cache  # a plan validates every cell, and cells mostly differ in other parameters
def _is_function_name(value: str) -> bool:
    module, colon, name = value.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


class PythonWorkload:
    kind: ClassVar[str] = "python"
    revision: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = PythonParams

    def check_plan(self, plan: Plan, env: Mapping[str, str]) -> Iterator[Problem]:
        """Functions that cannot be found, or not be called with the parameters of a cell; each once."""
        from bakeoff.spec.expand import origin  # only the scheduler needs these
        from bakeoff.workloads.functions import Call, flaws

        calls: dict[Call, Cell] = {}
        for cell in plan.cells:
            names = tuple(name for name in cell.params if name != "function")
            calls.setdefault(Call(cell.params["function"], names), cell)
        found: dict[Problem, None] = {}
        for cell, listed in zip(calls.values(), flaws(list(calls), plan.base, env), strict=True):
            for key, message, fix in listed:
                found[Problem(origin(plan.experiment, cell.arm, cell.task, key), message, fix)] = None
        yield from found

    def reads(self, cells: Sequence[Cell], base: Path) -> list[frozenset[str] | None]:
        """Return the arguments that the function's source reads, and what it takes from its context."""
        from bakeoff.workloads.functions import uses  # only the scheduler needs it

        functions = [cell.params["function"] for cell in cells]
        known = {function: uses(function, base) for function in set(functions)}
        return [known[function] for function in functions]

    def unused(self, name: str) -> str:
        if name == "seed":
            return "the function reads neither ctx.seed nor an argument seed, and draws no random numbers"
        return f"the function has an argument {name} and never reads it"

    def run(self, params: PythonParams, ctx: RunContext) -> Outcome:
        """Call the function with the parameters, and with `ctx`, `context` or `seed` where it takes them."""
        arguments = dict(params.model_extra or {})
        provided = {"ctx": ctx, "context": ctx, "seed": ctx.seed}
        try:
            function, accepted = _function(params.function)
            arguments |= {name: provided[name] for name in accepted if name not in arguments}
            return as_outcome(function(**arguments))
        except InfraError as error:  # it would be tried again, and no function may choose that
            raise RuntimeError(f"the function raised InfraError: {error}") from error


@cache
def _function(name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function, and which of `ctx`, `context` and `seed` it takes."""
    function: Any = pkgutil.resolve_name(name)
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some functions written in C have no signature
        return function, ()
    return function, tuple(name for name in PROVIDED if name in parameters)


def as_outcome(value: Any) -> Outcome:
    """What a function returned, as an `Outcome`.

    A table of metrics (nested tables become dotted names), one number (the metric `value`), an Outcome, or None.
    Raises TypeError for a metric that is not a scalar, and for an Outcome that is none: a function either succeeded or
    failed, and cannot ask for another try.
    """
    match value:
        case Outcome():
            if value.status not in FINISHED:
                raise TypeError(f"a function ends with one of {', '.join(sorted(FINISHED))}, not {value.status!r}")
            return replace(value, metrics={name: _scalar(name, item) for name, item in value.metrics.items()})
        case None:
            return Outcome()
        case Mapping():
            return Outcome({name: _scalar(name, item) for name, item in flatten(dict(value)).items()})
        case _:
            return Outcome({"value": _scalar("value", value)})


def _scalar(name: str, value: Any) -> Scalar:
    """The value as a plain Python scalar, which a database can hold."""
    if hasattr(value, "item"):  # numpy and torch scalars
        try:
            value = value.item()
        except (ValueError, RuntimeError):
            pass  # an array of several numbers; the error below names it
    for kind in (bool, int, float, str):  # bool first: it is an int too
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise TypeError(f"metric {name!r} is a {type(value).__name__}; metrics are numbers, and series go through ctx.log")
