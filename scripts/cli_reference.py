"""Write the command-line reference (docs/cli.md) from the output of `--help`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from bakeoff.cli import main

INTRODUCTION = """\
# Command line

This page is what `--help` prints, written by `make docs`; a test fails when the two differ.
"""


def commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    """Yield the context of a command and of all its subcommands, depth first, in the order of the help."""
    settings = {"max_content_width": 100, "terminal_width": 100, **command.context_settings}
    context = click.Context(command, parent=parent, info_name=name, **settings)
    context.color = False
    yield context
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if child is not None and not child.hidden:
                yield from commands(child, context, child_name)


def reference() -> str:
    sections = [INTRODUCTION]
    for context in commands(main, None, "bakeoff"):
        sections.append(f"## {context.command_path}\n\n```text\n{context.get_help().rstrip()}\n```\n")
    return "\n".join(sections)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
