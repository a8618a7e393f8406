"""A page as a template and the function that collects what it shows; how templates become HTML.

    page = Page("Arms", "arms", HERE / "arms.html.j2", lambda: {"arms": contents.arms})
    page.body().html

The folder and the live server show the same pages through `web/site.py`. Workloads add theirs through the entry points
`bakeoff.pages`, each of which is a `WorkloadPages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.text import duration, format_ends, format_level, format_p, number, percent
from bakeoff.verdicts import answer as answers
from bakeoff.web.drawing import Picture

if TYPE_CHECKING:
    from jinja2 import Environment

    from bakeoff.results.table import Row
    from bakeoff.web.contents import Contents

GROUP = "bakeoff.pages"
TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
ASSETS = "assets"
File = str | bytes | Callable[[], str | bytes]
"""The content of a file beside a page, or the function that makes it."""


@dataclass(frozen=True, slots=True)
class Body:
    """What stands between the header and the footer of a page, and the pictures in it."""

    html: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a report. `template` gets what `data` returns; it is called when somebody opens the page."""

    title: str
    slug: str
    """The file's name without its ending: small letters, digits and dashes."""
    template: Path
    data: Callable[[], Mapping[str, Any]] = dict
    headline: str = ""
    """A sentence that the front page shows before its verdicts, as text."""
    listed: bool = True
    """False: only the workload's other pages lead to it."""
    files: Mapping[str, File] = field(default_factory=dict)
    """Files that the page links to, by name: `.csv`, `.json` or `.txt`, or below assets/ pictures (`.svg`), data and
    scripts (`.js`)."""
    scripts: tuple[str, ...] = ()
    """Scripts below assets/ that the page loads, in this order."""

    def body(self) -> Body:
        """Collect what the page shows and render it. Pictures among the data are those that can be downloaded."""
        data = self.data()
        return Body(render(self.template, **data), tuple(_pictures_in(data)))

    @property
    def html(self) -> str:
        """The rendered body."""
        return self.body().html


@dataclass(frozen=True, slots=True)
class Part:
    """One part of what is known about a run, such as its diff: runs are shown side by side part by part."""

    title: str
    html: str
    """What comes from runs is escaped in it; templates of `environment` do that."""


@dataclass(frozen=True, slots=True)
class WorkloadPages:
    """What a workload adds to reports: the value of an entry point of the group `bakeoff.pages`, under its kind.

    pages = WorkloadPages(report=my_pages, run=my_parts)
    """

    report: Callable[[Contents], Sequence[Page]]
    """Pages about all runs."""
    run: Callable[[Row], Sequence[Part]] = lambda row: ()
    """What is known about one run beside what every run has, such as its diff and its tests."""


def _pictures_in(value: Any) -> Iterator[Picture]:
    """Yield the pictures in nested tables and lists."""
    if isinstance(value, Picture):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _pictures_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _pictures_in(each)


@cache
def environment(*directories: Path) -> Environment:
    """Jinja with the report's templates and filters; those of answers (`verdicts/templates`) can be imported too.

    `directories` hold further templates, such as those of a workload.
    """
    made = answers.environment(*directories, TEMPLATES, STATIC)
    made.filters |= {
        "number": number,
        "signed": lambda value: number(value, sign=True),
        "share": lambda value: percent(value, sign=True),
        "duration": duration,
        "interval": format_ends,
        "level": lambda interval: "" if interval is None else format_level(interval.level),
        "p": format_p,
    }
    return made


def render(template: Path | str, **values: Any) -> str:
    """Render a template: one of ours by its name without `.j2`, or one of a workload by its path."""
    if isinstance(template, str):
        return environment().get_template(f"{template}.j2").render(**values)
    return environment(template.parent).get_template(template.name).render(**values)


def macro(template: Path, name: str, *values: Any, **named: Any) -> str:
    """Render one macro of a template alone. The result is Markup, which templates take as it is."""
    part: str = getattr(environment(template.parent).get_template(template.name).module, name)(*values, **named)
    return part
