"""An answer as text, Markdown, CSV, JSON and HTML: five functions over one structure (`verdicts/answer.py`)."""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.text import drawn_table, markdown_table, plain_table, printable, standard
from bakeoff.verdicts.answer import Answer, Notes, Table, Text
from bakeoff.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
"""`answer.html.j2` has the macros that every page with an answer uses."""


def as_text(answer: Answer, width: int | None = None) -> str:
    """For people. `width` is that of a terminal, which gets drawn tables and colours; None for a pipe or a file."""
    import click

    parts = []
    for block in answer.blocks():
        match block:
            case Text(text, strong, colour):
                line = printable(text)
                parts.append(click.style(line, bold=strong, fg=colour or None) if width is not None else line)
            case Table(headers, rows, title, right) if width is not None:
                parts.append(drawn_table(headers, rows, right, title, width))
            case Table(headers, rows, title, right):
                parts.append((f"{title}\n" if title else "") + plain_table(headers, rows, right))
            case Notes(heading, lines):
                head = click.style(heading, bold=True) if width is not None else heading
                parts.append("\n".join([head, *(f"  {printable(line)}" for line in lines)]))
    # Paragraphs that follow each other stand together; everything else has an empty line before it.
    blocks = answer.blocks()
    text = parts[0] if parts else ""
    for previous, block, part in zip(blocks, blocks[1:], parts[1:], strict=False):
        together = isinstance(previous, Text) and isinstance(block, Text)
        text += ("\n" if together else "\n\n") + part
    return text


def as_markdown(answer: Answer) -> str:
    """A document with a heading, for a pull request, a job summary or a file."""
    lines = [f"# {answer.title}", ""]
    for block in answer.blocks():
        match block:
            case Text(text, strong):
                lines += [f"**{printable(text)}**" if strong else printable(text), ""]
            case Table(headers, rows, title):
                lines += [*([f"## {title}", ""] if title else []), *markdown_table(headers, rows), ""]
            case Notes(heading, notes):
                lines += [f"## {heading}", "", *(f"- {printable(note)}" for note in notes), ""]
    return "\n".join(lines).rstrip() + "\n"


def as_csv(answer: Answer) -> str:
    """The answer's records as comma-separated values."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    records = answer.records()
    writer.writerow(records.headers)
    writer.writerows(records.rows)
    return out.getvalue()


def as_json(answer: Answer) -> str:
    """Everything, as standard JSON: NaN and infinities are null."""
    return json.dumps(standard(answer.facts()), indent=2, ensure_ascii=False, allow_nan=False)


def as_html(answer: Answer) -> str:
    """A fragment of a page, by the macros that the report uses too."""
    macros: Any = environment().get_template("answer.html.j2").module
    return str(macros.answer(answer.blocks()))


@cache
def environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        finalize=lambda value: printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    )  # fmt: skip
    made.globals["version"] = __version__
    return made
