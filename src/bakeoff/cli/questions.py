"""Click options for questions, made from the models in `verdicts/question.py`, and how an answer is printed.

A field's docstring is its help text, its annotation gives the option's type, and `Flag` its spelling.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from bakeoff.cli.options import F, Several
from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Summary
from bakeoff.verdicts.question import SUMMARY_FIELDS, Flag, Question

if TYPE_CHECKING:
    from bakeoff.results.sources import Pair
    from bakeoff.results.table import Results
    from bakeoff.verdicts.answer import Answer

COLUMNS = ("arm", "task", "seed", "rollout", "step", "status", "value")
_FIELD = "Column of a table, or header field, `path` or `path:REGEX` of another tool's logs,"
FIELDS = {"arm": _FIELD, "task": _FIELD, "seed": _FIELD}
Reruns = Literal["newest", "seeds", "refuse"]
JUDGING = (
    "summary", "window", "last", "threshold", "percentile", "smoothing", "direction", "failure_score", "bounds", "tasks",
    "seeds", "cluster", "copies", "statistic", "unpaired", "intersect", "strict",
)  # fmt: skip
"""How runs are judged: what `compare` and `gate` share."""
_SPECIAL: dict[str, dict[str, Any]] = {
    "metric": {"multiple": True, "metavar": "NAME", "help": "What gets a verdict; can be repeated, and all of them are one family (default: the declared ones)."},
    "summary": {"names": ("--summary", "--summary.type"), "help": "How a series becomes one number (default: auc, when a metric is a series and nothing else is declared)."},
    "direction": {"multiple": True, "metavar": "[METRIC=]maximize|minimize", "help": "Which way is better; METRIC= for one metric alone. Can be repeated."},
    "bounds": {"metavar": "LOW HIGH"},
    "window": {"metavar": "PART", "help": "Part of a series: 'last 25%', 'first 20%' or steps such as '100..500'."},
    "smoothing": {"help": "Exponential smoothing of a series first: the share that the past keeps."},
    "percentile": {"help": "With percentile: which one."},
    "control": {"metavar": "ARM"},
    "cluster": {"metavar": "COLUMN|none"},
}  # fmt: skip
"""Options that take more than their field says."""


def question_options(model: type[Question], *names: str) -> Callable[[F], F]:
    """A decorator that adds the named fields of a question as options, in this order; fields of a summary too."""

    def decorate(function: F) -> F:
        for name in reversed(names):
            function = _option(model, name)(function)
        return function

    return decorate


def _option(model: type[Question], name: str) -> Any:
    field = (
        Summary.model_fields["type" if name == "summary" else name] if name in ("summary", *SUMMARY_FIELDS) else None
    )
    field = field or model.model_fields[name]
    special = dict(_SPECIAL.get(name, {}))
    flag = next((each for each in field.metadata if isinstance(each, Flag)), None)
    names = special.pop("names", flag.names if flag else (f"--{name.replace('_', '-')}",))
    settings: dict[str, Any] = {
        "help": field.description,
        **_type_settings(field.annotation, field.metadata),
        **special,
    }
    if flag is not None and flag.metavar:
        settings["metavar"] = flag.metavar
    if settings.get("multiple"):
        settings.pop("nargs", None)
    if flag is not None and flag.several:
        settings = {"help": settings["help"], "metavar": settings["metavar"], "cls": Several}
    if name in ("direction", "metric"):
        settings.pop("type", None)
    default = field.default
    if isinstance(default, int | float) and not isinstance(default, bool) and name not in ("alpha",):
        settings |= {"default": default, "show_default": True}
    return click.option(*names, name, **settings)


def _type_settings(annotation: Any, metadata: Sequence[Any]) -> dict[str, Any]:
    """What an annotation means for click: choices, ranges, flags, pairs and repeated values."""
    kind, marks = annotation, list(metadata)
    while hasattr(kind, "__metadata__") or get_origin(kind) in (Union, types.UnionType):  # Annotated, `X | None`
        if hasattr(kind, "__metadata__"):
            kind, marks = kind.__origin__, [*marks, *kind.__metadata__]
        else:
            (kind,) = [part for part in get_args(kind) if part is not type(None)]
    if kind is bool:
        two_sided = any(isinstance(each, Flag) and "/" in each.names[0] for each in marks)
        return {"default": None} if two_sided else {"is_flag": True}
    if get_origin(kind) is Literal:
        return {"type": click.Choice(get_args(kind))}
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if parts[-1] is Ellipsis:
            return {"multiple": True, **_type_settings(parts[0], [])}
        return {"nargs": len(parts), "type": parts[0]}
    ends: dict[str, Any] = {}
    for limit in (part for each in marks for part in (each.metadata if isinstance(each, FieldInfo) else [each])):
        match limit:
            case Ge(value):
                ends |= {"min": value}
            case Gt(value):
                ends |= {"min": value, "min_open": True}
            case Le(value):
                ends |= {"max": value}
            case Lt(value):
                ends |= {"max": value, "max_open": True}
    ranges = {int: click.IntRange, float: click.FloatRange}
    return {"type": ranges[kind](**ends) if ends and kind in ranges else kind}


def ask(model: type[Question], options: Mapping[str, Any], **fields: Any) -> Any:
    """The question that the options ask; options that belong to something else are left out."""
    known = {*model.model_fields, *SUMMARY_FIELDS}
    given = {
        name: value
        for name, value in options.items()
        if name in known and value is not None and value is not False and value != ()
    }
    return model.ask(**{**given, **fields})


# -- which runs

_RUNS = [
    click.argument("names", nargs=-1, metavar="[SOURCE]..."),
    click.option("--baseline", cls=Several, metavar="RUN...", help="Runs of the control: directories, patterns or ids; several may follow."),
    click.option("--candidate", cls=Several, metavar="RUN...", help="Runs of the candidate, likewise."),
    click.option("--control-run-ids", cls=Several, metavar="RUN...", help="Like --baseline, but two independent samples unless both arms have the same seeds."),
    click.option("--candidate-run-ids", cls=Several, metavar="RUN...", help="Runs of the candidate beside --control-run-ids."),
    click.option("--pairs", cls=Several, metavar="JSON...", help='Pairs of runs: {"control": RUN, "candidate": RUN, "seed": N}, several of them or one list; seed may be left out.'),
]  # fmt: skip
_COLUMNS = [
    *(
        click.option(f"--{role}-from", f"--{role}-column", f"{role}_column", metavar="FIELD" if role in FIELDS else "COLUMN", help=f"{FIELDS.get(role, 'Column of a table')} that holds the {role} (default: found by its usual names).")
        for role in COLUMNS
    ),
    click.option("--ignore", "ignore", multiple=True, metavar="COLUMN", help="A column of a table that looks like an identifier and is none. Can be repeated."),
    click.option("--keep-duplicates", is_flag=True, help="Rows of a table that are equal in everything are separate runs."),
    click.option("--infra-error", metavar="REGEX", help="Runs in logs of other tools whose error this matches are missing, not failed."),
    click.option("--reruns", type=click.Choice(get_args(Reruns)), help="Logs of other tools with the same arm and tasks: take the newest, number them as seeds, or refuse (default: refuse)."),
]  # fmt: skip


WAYS = ("names", "baseline", "candidate", "control_run_ids", "candidate_run_ids", "pairs")
"""The options of `run_options` that name runs."""


def run_options(function: F) -> F:
    """All the ways to name runs."""
    for option in reversed([*_RUNS, *_COLUMNS]):
        function = option(function)
    return function


def column_options(function: F) -> F:
    """What a table calls its columns, for verbs that take any source of runs by its name alone."""
    for option in reversed(_COLUMNS):
        function = option(function)
    return function


def columns(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the options say about a table's columns and other tools' fields: those of `importers.table_roles.Columns` and of
    `importers.identity.Overrides`."""
    roles = {role: options[f"{role}_column"] for role in COLUMNS}
    others = ("ignore", "keep_duplicates", "infra_error", "reruns")
    return {**roles, **{name: options[name] for name in others}}


def open_runs(options: Mapping[str, Any], root: Path) -> Results:
    """The results that names and flags mean; one way of naming runs at a time."""
    from bakeoff.results import sources

    ways = {
        "names": bool(options["names"]),
        "--baseline and --candidate": bool(options["baseline"] or options["candidate"]),
        "--control-run-ids and --candidate-run-ids": bool(options["control_run_ids"] or options["candidate_run_ids"]),
        "--pairs": bool(options["pairs"]),
    }
    if sum(ways.values()) > 1:
        raise UsageError(f"name runs in one way: {' or '.join(way for way, used in ways.items() if used)}")
    if ways["--pairs"]:
        return sources.open_pairs(parse_pairs(options["pairs"]), root)
    if ways["--baseline and --candidate"]:
        sides = (options["baseline"], options["candidate"])
        return sources.open_sides(*sides, root, ("baseline", "candidate"), as_samples=False)
    if ways["--control-run-ids and --candidate-run-ids"]:
        sides = (options["control_run_ids"], options["candidate_run_ids"])
        return sources.open_sides(*sides, root, ("control", "candidate"), as_samples=True)
    return sources.open_results(options["names"], root, columns(options))


def parse_pairs(texts: Sequence[str]) -> list[Pair]:
    """JSON objects one by one, or lists of them."""
    from bakeoff.results.sources import Pair

    pairs = []
    for text in texts:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise UsageError(f"--pairs: {text[:60]!r} is not JSON: {error}") from error
        for entry in value if isinstance(value, list) else [value]:
            known = isinstance(entry, dict) and set(entry) <= {"control", "candidate", "seed"}
            if not known or not all(isinstance(entry.get(side), str) for side in ("control", "candidate")):
                raise UsageError(f'--pairs: {json.dumps(entry)[:80]} should be {{"control": RUN, "candidate": RUN}}')
            seed = entry.get("seed")
            if seed is not None and not isinstance(seed, int):
                raise UsageError(f"--pairs: the seed {seed!r} is not a whole number")
            pairs.append(Pair(entry["control"], entry["candidate"], seed))
    return pairs


# -- the answer


def print_answer(answer: Answer, as_json: bool, *, verbose: bool = True, **more: Any) -> None:
    """JSON with `more` facts, or text for people: drawn on a terminal, plain in a pipe. COLUMNS gives a pipe a width."""
    from bakeoff.cli.display import print_json
    from bakeoff.verdicts.answer import as_text

    if as_json:
        print_json({**answer.facts(), **more})
        return
    import shutil

    is_wide = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = shutil.get_terminal_size().columns if is_wide else None
    # https://no-color.org; click takes colours out of a pipe by itself.
    click.echo(as_text(answer, width, verbose=verbose), color=False if os.environ.get("NO_COLOR") else None)


def write_answer(
    answer: Answer, *, csv: Path | None = None, markdown: Path | None = None, json: Path | None = None
) -> None:
    """Into the files that options name."""
    from bakeoff.verdicts.answer import as_csv, as_json, as_markdown

    if csv is not None:
        csv.write_text(as_csv(answer), encoding="utf-8")
    if markdown is not None:
        markdown.write_text(as_markdown(answer), encoding="utf-8")
    if json is not None:
        json.write_text(as_json(answer) + "\n", encoding="utf-8")
