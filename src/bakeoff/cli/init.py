"""`bakeoff init`: write a small complete example to start from."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from bakeoff.cli import print_note
from bakeoff.errors import EXTRAS, UsageError, did_you_mean, install
from bakeoff.plugins import load_all
from bakeoff.spec.starters import STARTERS, Starter

DEFAULT = "command"
"""The template where nobody can be asked."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--template",
    metavar="NAME",
    help=f"command, python, csv, tasks, market, language, gridworld or sweep (default: asks at a terminal, else {DEFAULT}).",
)
def command(file: Path | None, template: str | None) -> None:
    """Write a small, commented example to FILE, and what it needs beside it. Nothing that exists is replaced.

    FILE is named after the template by default; without a template it is experiment.toml.
    """
    starters: dict[str, Starter] = dict(load_all(STARTERS, report=print_note))
    if template is None and sys.stdin.isatty() and sys.stdout.isatty():
        template = _ask(starters)
    chosen = starters.get(template or DEFAULT)
    if chosen is None:
        known = f"there are {', '.join(starters)}"
        raise UsageError(f"no template called {template!r}; {did_you_mean(template or '', starters, known)}")
    target = file or Path(chosen.main if template else "experiment.toml")
    suffix = Path(chosen.main).suffix
    if target.suffix != suffix:
        raise UsageError(
            f"{target}: the file of this template is {suffix[1:].upper()}; choose a name that ends in {suffix}"
        )
    contents = chosen.files(target)
    if existing := [place for place in contents if place.exists()]:
        fix = "name another file" if existing == [target] else "call it in another directory"
        raise UsageError(f"{existing[0]} exists already; {fix}")
    for place, content in contents.items():
        if place != target:
            place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as written:
            written.write(content)
    beside = sorted({place.relative_to(target.parent).parts[0] for place in contents if place != target})
    click.echo(f"wrote {target}" + (f", and beside it {', '.join(beside)}" if beside else ""))
    if chosen.extra is not None and (missing := [name for name in EXTRAS[chosen.extra] if find_spec(name) is None]):
        click.echo(f"its runs need {', '.join(missing)}: {install(chosen.extra)}")
    calls = [f"bakeoff {verb.format(file=shlex.quote(str(target)))}" for verb in chosen.verbs]
    click.echo(f"next: {calls[0]}" + "".join(f", then {call}" for call in calls[1:]))


def _ask(starters: dict[str, Starter]) -> str:
    """Let the user choose by name or number at the terminal."""
    names = list(starters)
    for number, name in enumerate(names, 1):
        click.echo(f"{number:>3}  {name:<10} {starters[name].summary}")
    numbers = {str(number): name for number, name in enumerate(names, 1)}
    answer: str = click.prompt("Which one", type=click.Choice([*names, *numbers]), default=DEFAULT, show_choices=False)
    return numbers.get(answer, answer)
