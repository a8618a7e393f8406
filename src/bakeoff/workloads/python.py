"""The `python` workload: `package.module:function`, called with the parameters and the context in a warm worker."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, field_validator

from bakeoff.spec.workload import Outcome, RunContext


class PythonParams(BaseModel):
    model_config = ConfigDict(extra="allow")
    settings: ClassVar[frozenset[str]] = frozenset({"function"})

    function: str
    """`package.module:function`; modules beside the experiment file can be imported."""

    @field_validator("function")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        module, colon, name = value.partition(":")
        if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
            raise ValueError(f"{value!r} must be 'package.module:function'")
        return value


class PythonWorkload:
    kind: ClassVar[str] = "python"
    revision: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = PythonParams

    def run(self, params: PythonParams, ctx: RunContext) -> Outcome:
        function, wanted = _function(params.function)
        arguments = dict(params.model_extra or {})
        offered = {"ctx": ctx, "context": ctx, "seed": ctx.seed}
        arguments |= {name: offered[name] for name in wanted if name not in arguments}
        return as_outcome(function(**arguments))


@cache
def _function(name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function, and which of `ctx`, `context` and `seed` it takes."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    parameters = inspect.signature(found).parameters
    return found, tuple(name for name in ("ctx", "context", "seed") if name in parameters)


def as_outcome(value: Any) -> Outcome:
    """A table of metrics, one number (the metric `value`), an Outcome, or nothing."""
    match value:
        case Outcome():
            return value
        case None:
            return Outcome()
        case Mapping():
            return Outcome({str(key): _scalar(key, item) for key, item in value.items()})
        case _:
            return Outcome({"value": _scalar("value", value)})


def _scalar(name: Any, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item"):  # numpy and torch scalars
        return value.item()
    raise TypeError(f"metric {name!r} is a {type(value).__name__}; metrics are numbers, and series go through ctx.log")
