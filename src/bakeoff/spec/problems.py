"""Pydantic's validation errors in our words: the key, what is wrong with it, and what was probably meant."""

from __future__ import annotations

import difflib
import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from bakeoff.errors import Problem
from bakeoff.spec.locate import KeyPath


def problems(error: ValidationError, model: type[BaseModel], prefix: KeyPath = ()) -> list[Problem]:
    """Pydantic's errors in our words, with a did-you-mean for unknown keys."""
    found = []
    for item in error.errors(include_url=False):
        location = (*prefix, *(part for part in item["loc"] if not str(part).startswith("function-")))
        key = ".".join(str(part) for part in location)
        if item["type"] == "extra_forbidden":
            owner = _model_at(model, item["loc"][:-1])
            names = list(owner.model_fields) if owner else []
            close = difflib.get_close_matches(str(item["loc"][-1]), names, n=1)
            fix = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(names)}"
            found.append(Problem(key, "unknown key", fix))
        elif item["type"] == "missing":
            found.append(Problem(key, "is needed", f"add {location[-1]} = ..."))
        else:
            message = item["msg"].removeprefix("Value error, ")
            found.append(Problem(key, message[0].lower() + message[1:] if message else "is wrong"))
    return found


def _model_at(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    """The model that the table at `location` is an instance of."""
    here: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        if not (isinstance(here, type) and issubclass(here, BaseModel)) or part not in here.model_fields:
            return None
        here = _inner_model(here.model_fields[part].annotation)
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _inner_model(annotation: Any) -> Any:
    if get_origin(annotation) in (list, Union, types.UnionType):
        return next((found for arg in get_args(annotation) if (found := _inner_model(arg)) is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
