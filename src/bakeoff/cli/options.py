"""Options that several verbs share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click

_STAMP = re.compile(r"^(\d{8})__(\d\d)-(\d\d)-(\d\d)")
F = TypeVar("F", bound=Callable[..., Any])


def root_option(function: F) -> F:
    return click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="BAKEOFF_ROOT",
        show_envvar=True,
        default="bakeoff-runs",
        show_default=True,
        metavar="DIR",
        help="Where results are kept.",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output.")(
        function
    )


def edition_argument(function: F) -> F:
    return click.argument("name", metavar="[EXPERIMENT]", default="latest")(function)


def edition_options(function: F) -> F:
    """[EXPERIMENT], --latest and --rollout STAMP, which the function gets as one edition's name.

    A stamp is the name of an edition, or that name as the task benchmark writes it: 20250824__12-34-56 for
    20250824-123456.
    """

    @functools.wraps(function)
    def with_name(*args: Any, name: str, latest: bool, rollout: str | None, **options: Any) -> Any:
        if latest and rollout:
            raise click.UsageError("--latest and --rollout name two editions; give one")
        if rollout is not None:
            stamp = _STAMP.sub(r"\1-\2\3\4", rollout)
            name = f"{name}/{stamp}"
        return function(*args, name=name, **options)

    argument = click.argument("name", metavar="[EXPERIMENT]", default="latest")
    latest = click.option("--latest", is_flag=True, help="The newest edition (the default).")
    rollout = click.option("--rollout", metavar="STAMP", help="Another edition, such as 20250824__12-34-56.")
    return cast(F, argument(latest(rollout(with_name))))


def run_argument(function: F) -> F:
    return click.argument("run", metavar="RUN")(function)


class Several(click.Option):
    """An option that takes every value up to the next one: `--baseline run_s*` as a shell expands it.

    It can be repeated too. Only works on a command of class `SeveralValues`.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        settings["multiple"] = True
        super().__init__(*args, **settings)


class SeveralValues(click.Command):
    """A command whose `Several` options may be followed by several values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = {name for option in self.params if isinstance(option, Several) for name in option.opts}
        return super().parse_args(ctx, list(repeated(args, names)))


def repeated(args: Sequence[str], names: set[str]) -> Iterator[str]:
    """`--flag a b c` as `--flag a --flag b --flag c`, for flags in `names`; everything else as it is."""
    flag, first = "", True
    for position, arg in enumerate(args):
        if arg == "--":
            yield from args[position:]
            return
        if _is_flag(arg):
            flag, first = arg if arg in names else "", True
            yield arg
        else:
            yield from (arg,) if first or not flag else (flag, arg)
            first = False


def _is_flag(arg: str) -> bool:
    """`-j` and `--jobs`, but not `-1` and not a dash alone."""
    return len(arg) > 1 and arg[0] == "-" and (arg[1] == "-" or arg[1].isalpha())
