"""Pydantic's validation errors in our words: the key, what is wrong with it, and what was probably meant."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from bakeoff.errors import Problem, did_you_mean
from bakeoff.spec.locate import KeyPath

_FIXES = {
    "list_type": "write it as a list: [...]",
    "dict_type": "write it as a table",
    "model_type": "write it as a table",
}


def problems(error: ValidationError, model: type[BaseModel], prefix: KeyPath = (), given: Any = None) -> list[Problem]:
    """Pydantic's errors in our words, with a did-you-mean for unknown keys.

    `given` is what was validated: parts of a location that are not in it only name a branch of a union.
    """
    found: dict[str, Problem] = {}
    for item in error.errors(include_url=False):
        location = (*prefix, *_place(item["loc"], given))
        problem = _problem(item, ".".join(str(part) for part in location), model)
        earlier = found.get(problem.key)
        if earlier is not None and earlier.message != problem.message:  # branches of a union, all of them refused
            problem = Problem(problem.key, f"{earlier.message}, or {problem.message}", earlier.fix or problem.fix)
        found[problem.key] = problem
    return list(found.values())


def _problem(item: Any, key: str, model: type[BaseModel]) -> Problem:
    if item["type"] == "extra_forbidden":
        owner = _model_at(model, item["loc"][:-1])
        names = list(owner.model_fields) if owner else []
        params = "; what a run is given belongs into params" if "params" in names else ""
        fix = did_you_mean(str(item["loc"][-1]), names, f"known keys: {', '.join(names)}{params}")
        return Problem(key, "unknown key", fix)
    if item["type"] == "missing":
        return Problem(key, "is needed", f"add {item['loc'][-1]} = ...")
    message = item["msg"].removeprefix("Value error, ")
    return Problem(key, message[0].lower() + message[1:] if message else "is wrong", _FIXES.get(item["type"], ""))


def _place(location: Sequence[str | int], given: Any) -> KeyPath:
    """`location` without what is not in `given`; its last part may name something that is missing there."""
    here: Any = given
    place: list[str | int] = []
    for number, part in enumerate(location):
        inside = here if isinstance(here, dict) else dict(enumerate(here)) if isinstance(here, list) else {}
        last = number == len(location) - 1
        if part in inside:
            here = inside[part]
        elif str(part).startswith("function-") or (given is not None and not (last and isinstance(here, dict))):
            continue
        place.append(part)
    return tuple(place)


def _model_at(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    """The model that the table at `location` is an instance of."""
    here: Any = model
    named = False  # inside a table whose keys are names, one part of the place is such a name
    for part in location:
        if isinstance(part, int) or named:
            named = False
            continue
        if not (isinstance(here, type) and issubclass(here, BaseModel)):
            return None
        if part in here.model_fields:
            annotation = here.model_fields[part].annotation
            here, named = _inner_model(annotation), get_origin(annotation) is dict
        elif part != here.__name__:  # a union's branch is called after its model
            return None
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _inner_model(annotation: Any) -> Any:
    if get_origin(annotation) in (list, tuple, dict, Annotated, Union, types.UnionType):
        return next((found for arg in get_args(annotation) if (found := _inner_model(arg)) is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
