"""Options and arguments that several verbs share, and what they mean.

@click.command()
@edition_argument
@root_option
@json_option
def command(name: str, root: Path, as_json: bool) -> None: ...
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from bakeoff.errors import UsageError

if TYPE_CHECKING:
    from bakeoff.records.layout import EditionPaths
    from bakeoff.spec.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, dir_okay=False)
_STAMP = re.compile(r"^(\d{8})__(\d\d)-(\d\d)-(\d\d)")

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="BAKEOFF_ROOT",
    show_envvar=True,
    default="bakeoff-runs",
    show_default=True,
    metavar="DIR",
    help="Where results are kept.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output.")
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the file, such as seeds=5. Can be repeated.",
)


def _experiment_names(ctx: click.Context, _argument: click.Parameter, incomplete: str) -> list[str]:
    """For shell completion: the experiments below the root that start like this."""
    root = Path(ctx.params.get("root") or os.environ.get("BAKEOFF_ROOT") or "bakeoff-runs")
    names = (path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else ()
    return sorted(name for name in (*names, "latest") if name.startswith(incomplete))


edition_argument = click.argument("name", metavar="[EXPERIMENT]", default="latest", shell_complete=_experiment_names)
run_argument = click.argument("run", metavar="RUN")


def only_experiment_file() -> Path:
    """The experiment file of the working directory, for verbs whose FILE was left out; says which one it takes.

    Raises click.UsageError unless there is exactly one.
    """
    from bakeoff.cli import print_note
    from bakeoff.spec.load import experiment_files

    files = experiment_files(Path())
    if not files:
        raise click.UsageError(
            "name an experiment file: there is none in this directory; `bakeoff init` writes one to start from"
        )
    if len(files) > 1:
        listed = ", ".join(file.name for file in files[:20]) + (", ..." if len(files) > 20 else "")
        raise click.UsageError(f"name an experiment file; there are {len(files)} in this directory: {listed}")
    print_note(f"taking {files[0]}, the only experiment file in this directory")
    return files[0]


def edition_options(function: F) -> F:
    """[EXPERIMENT], --latest and --rollout STAMP, which the function gets as the name of one edition.

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

    latest = click.option("--latest", is_flag=True, help="The newest edition (the default).")
    rollout = click.option("--rollout", metavar="STAMP", help="Another edition, such as 20250824__12-34-56.")
    return cast(F, edition_argument(latest(rollout(with_name))))


def experiment_options(function: F) -> F:
    """[EXPERIMENT] or --exp_dir DIR, which the function gets as `name` and `directory`; see `find_experiment`."""
    argument = click.argument("name", metavar="[EXPERIMENT]", required=False)
    directory = click.option(
        "--exp_dir",
        "--exp-dir",
        "directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="An experiment's directory instead of its name. It may be a sweep that another tool ran.",
    )
    return argument(directory(function))


def note_shadowed(names: Sequence[str], root: Path) -> None:
    """Print a note for each name of an experiment that could also mean a directory here."""
    from bakeoff.cli import print_note
    from bakeoff.records.layout import shadowed

    for name in names:
        if (note := shadowed(name.partition(":")[0], root)) is not None:
            print_note(note)


def find_edition(name: str, root: Path) -> EditionPaths:
    """The edition that a name means (`records.layout.find_edition`); says so when it could also mean a directory here."""
    from bakeoff.records import layout

    note_shadowed([name], root)
    return layout.find_edition(name, root)


def find_experiment(name: str | None, directory: Path | None, root: Path) -> EditionPaths | Path:
    """The edition that [EXPERIMENT] or --exp_dir names (default: the newest).

    Returns `directory` itself when it holds no edition: then another tool may have written it.
    """
    from bakeoff.records.layout import editions, is_edition

    if directory is None:
        return find_edition(name or "latest", root)
    if name is not None:
        raise UsageError(f"name the experiment ({name}) or its directory (--exp_dir {directory}), not both")
    if is_edition(directory) or editions(directory):
        return find_edition(str(directory.absolute()), root)
    return directory


def results_root(ctx: click.Context, root: Path, plan: Plan) -> Path:
    """Where the plan's results go: --root or BAKEOFF_ROOT, else what its file names, else the default root."""
    chosen = ctx.get_parameter_source("root") is not ParameterSource.DEFAULT
    return root if chosen or plan.root is None else plan.root


class Several(click.Option):
    """An option that takes every value up to the next option: `--baseline run_s*` as a shell expands it.

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
    """`--flag a b c` becomes `--flag a --flag b --flag c` for flags in `names`; other arguments stay as they are."""
    flag, first = "", True
    for position, arg in enumerate(args):
        if arg == "--":
            yield from args[position:]
            return
        # `-j` and `--jobs` are flags; `-1` is a number and `-` alone is standard input.
        if len(arg) > 1 and arg[0] == "-" and (arg[1] == "-" or arg[1].isalpha()):
            flag, first = arg if arg in names else "", True
            yield arg
        else:
            yield from (arg,) if first or not flag else (flag, arg)
            first = False
