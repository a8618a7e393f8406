"""All pages about one set of results, made one by one as somebody asks for them.

    site = site_of(Contents(results))
    site.html("index")                  # a whole page, by its slug
    site.file("assets/runs.js")         # a file beside the pages

The folder writes everything; the live server answers requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path

from markupsafe import Markup

from bakeoff.errors import BakeoffError
from bakeoff.text import number
from bakeoff.verdicts.answer import answer, as_html
from bakeoff.verdicts.question import Calibrate
from bakeoff.web.contents import Contents
from bakeoff.web.curves import curves_page
from bakeoff.web.drawing import Picture, as_csv, image, numbers
from bakeoff.web.front import front_page
from bakeoff.web.matrix import disagreements_page, matrix_page
from bakeoff.web.outcomes import Tasks
from bakeoff.web.page import ASSETS, GROUP, STATIC, TEMPLATES, File, Page, WorkloadPages, render
from bakeoff.web.runs import Details, runs_page

_PICTURE = re.compile(rf"{ASSETS}/([a-zA-Z0-9_-]+)\.(?:svg|csv)")
MAX_TABLE = 500
"""Rows of a picture's table on a page; its CSV has all."""
TABLE = "table-"
"""Begins the slug of the page with the numbers behind a picture."""


class Site:
    """Pages by slug, and the files beside them by name. Pictures of a page are files once the page was rendered."""

    def __init__(
        self, label: str, title: str, pages: Sequence[Page], problems: Sequence[str] = (), caveat: str = ""
    ) -> None:
        """`label` says where the results come from; `problems` are pages that could not be made; `caveat` is on tables."""
        self.label, self.title, self.problems, self.caveat = label, title, tuple(problems), caveat
        self.pages = {page.slug: page for page in pages}
        self._pictures: dict[str, tuple[Page, Picture]] = {}

    def html(self, slug: str) -> str:
        """Return the whole page. Raises KeyError where there is none of that name."""
        if slug.startswith(TABLE):
            return self._table(*self._picture(slug.removeprefix(TABLE)))
        page = self.pages[slug]
        body = page.body()
        self._pictures |= {picture.slug: (page, picture) for picture in body.pictures if picture.has_files}
        return self._layout(page, body.html)

    def _layout(self, page: Page, body: str) -> str:
        pages = list(self.pages.values())
        return render("layout.html", label=self.label, site_title=self.title, page=page, body=Markup(body), pages=pages)

    @property
    def tables(self) -> list[str]:
        """Slugs of the pages with the numbers behind the pictures of pages that were rendered so far."""
        return [TABLE + slug for slug in self._pictures]

    def _picture(self, slug: str) -> tuple[Page, Picture]:
        """Return a picture and its page, which is rendered if it was not yet. Raises KeyError."""
        for page in self.pages:
            if slug in self._pictures:
                break
            self.html(page)
        return self._pictures[slug]

    def _table(self, page: Page, picture: Picture) -> str:
        headers, rows = numbers(picture.figure)
        kept = [at for at in range(len(headers)) if any(row[at] not in (None, "") for row in rows)]
        data = {
            "page": page,
            "picture": picture,
            "headers": [headers[at] for at in kept],
            "rows": [[number(row[at]) if row[at] is not None else "" for at in kept] for row in rows[:MAX_TABLE]],
            "count": len(rows),
            "caveat": self.caveat,
        }
        own = Page(picture.figure.title, TABLE + picture.slug, TEMPLATES / "table.html.j2", lambda: data)
        return self._layout(own, own.html)

    @cached_property
    def static(self) -> dict[str, str]:
        """Style sheet and scripts, which are the same for all results."""
        return {f"{ASSETS}/{path.name}": path.read_text("utf-8") for path in sorted(STATIC.iterdir())}

    def files(self) -> dict[str, File]:
        """Return every file beside the pages that were rendered so far."""
        files: dict[str, File] = dict(self.static)
        for _, picture in self._pictures.values():
            files[f"{ASSETS}/{picture.slug}.svg"] = image(picture.figure, "svg")
            files[f"{ASSETS}/{picture.slug}.csv"] = as_csv(picture.figure)
        for page in self.pages.values():
            files |= page.files
        return files

    def file(self, name: str) -> str | bytes:
        """Return the content of one file. Raises KeyError where there is none of that name."""
        files = self.files()
        if name not in files and (picture := _PICTURE.fullmatch(name)):
            self._picture(picture[1])  # of a page that was not rendered yet
            files = self.files()
        content = files[name]
        return content() if callable(content) else content


def site_of(contents: Contents, *, base: Path | None = None, calibrate: bool = False) -> Site:
    """Return all pages about one set of results, with `calibrate` a page of the analysis' error rates.

    Links to files of runs start at `base`; without it there are none.
    """
    added: list[Page] = []
    problems: list[str] = []
    if not contents.is_open:  # pages of workloads have intervals
        added, problems = pages_of((contents.workload, contents.dialect), contents)
    if calibrate and not contents.is_open:
        try:
            added.append(_calibration(contents))
        except BakeoffError as error:
            problems.append(f"there is no calibration: {error}")
    tasks = Tasks(contents)
    details = Details(contents, base, tasks)
    own = [
        disagreements_page(contents, tasks),
        matrix_page(contents, tasks),
        curves_page(contents),
        runs_page(contents),
        details.page(),
    ]
    front = front_page(contents, [*own, *added], [*contents.results.problems, *problems])
    return Site(contents.label, contents.title, [front, *own, *added], problems, contents.caveat)


def _calibration(contents: Contents) -> Page:
    """Raises BakeoffError where nothing can be said about error rates."""
    asked = contents.question.model_dump(include=contents.question.model_fields_set & set(Calibrate.model_fields))
    html = as_html(answer(contents.results, Calibrate.model_validate(asked)))
    return Page("Calibration", "calibration", TEMPLATES / "plain.html.j2", lambda: {"html": Markup(html)})


# -- pages that a workload or a dialect adds

RESERVED = ("index", "disagreements", "matrix", "runs", "run", "curves", "calibration")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")
_FILE = re.compile(r"[a-z0-9][a-z0-9-]*\.(csv|json|txt)|assets/[a-z0-9_-]+\.(svg|js|css)")


def pages_of(names: Iterable[str], contents: Contents) -> tuple[list[Page], list[str]]:
    """Pages of the workload and of the dialect, and what went wrong: a page that fails must not cost the report.

    The entry-point group `bakeoff.pages` maps their names to `WorkloadPages`.
    """
    pages: list[Page] = []
    problems: list[str] = []
    entries = {entry.value: entry for name in names for entry in entry_points(group=GROUP, name=name)}
    for entry in entries.values():
        try:
            added: WorkloadPages = entry.load()
            for page in added.report(contents):
                reserved = page.slug in (*RESERVED, *(other.slug for other in pages)) or page.slug.startswith(TABLE)
                if not _SLUG.fullmatch(page.slug) or reserved:
                    raise ValueError(f"{page.slug!r} cannot be the name of a page, or is taken")
                for name in page.files:
                    if not _FILE.fullmatch(name) or any(name in other.files for other in pages):
                        raise ValueError(f"{name!r} cannot be the name of a file beside a page, or is taken")
                pages.append(page)
        except Exception as error:
            problems.append(f"pages of {entry.value} could not be made: {type(error).__name__}: {error}")
    return pages, problems
