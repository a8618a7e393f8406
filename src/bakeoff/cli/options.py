"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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


def run_argument(function: F) -> F:
    return click.argument("run", metavar="RUN")(function)
